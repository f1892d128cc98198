//! What the host tells the guest's PID 1 to do, and what PID 1 answers.
//!
//! The host writes a [`RunSpec`] as JSON into the initramfs; PID 1 writes an [`Outcome`] as JSON to the
//! virtio port named [`PORT_STATUS`]. Both ends are built from the same tree, so there is no version field.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Virtio port that carries the command's standard output.
pub const PORT_STDOUT: &str = "stdout";
/// Virtio port that carries the command's standard error.
pub const PORT_STDERR: &str = "stderr";
/// Virtio port that carries the [`Outcome`].
pub const PORT_STATUS: &str = "status";
/// 9p mount tag of the host's root, exported read-only.
pub const TAG_ROOT: &str = "root";
/// Where the [`RunSpec`] lies in the initramfs.
pub const SPEC_PATH: &str = "/lab/run.json";
/// Folder of the initramfs that holds the stock kernel's modules PID 1 needs.
pub const MODULES_DIR: &str = "/lab/modules";
/// Where hpm.ko lies in the initramfs.
pub const HPM_PATH: &str = "/lab/hpm.ko";
/// Folder in the guest for the lab's own files: `bin/` is first in `PATH`, `hpm.ko` is the module under test.
pub const GUEST_DIR: &str = "/run/lab";

/// One run of the lab.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSpec {
    /// Program and arguments; the program is looked up in `PATH`.
    pub argv: Vec<String>,
    /// The whole environment of the command.
    pub env: Vec<(String, String)>,
    /// Working folder of the command.
    pub cwd: PathBuf,
    /// Host folders the guest may write to.
    pub shares: Vec<Share>,
    /// File names under [`MODULES_DIR`], in the order they have to be loaded.
    pub modules: Vec<String>,
    /// Parameters for hpm.ko; `None` leaves it unloaded.
    pub hpm_params: Option<String>,
    /// Commands made available under `/run/lab/bin`.
    pub tools: Vec<Tool>,
    /// Folder with the stock kernel's modules, shown as `/lib/modules/RELEASE` so that modprobe finds them.
    pub module_tree: PathBuf,
    /// An interactive run on the guest's `/dev/hvc0` with this many rows and columns.
    pub terminal: Option<(u16, u16)>,
}

/// A host folder exported read-write over 9p and mounted at the same path in the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// 9p mount tag.
    pub tag: String,
    /// Absolute path, on the host and in the guest.
    pub path: PathBuf,
}

/// A command of the lab's own package tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Name under `/run/lab/bin`.
    pub name: String,
    /// A shell script that runs it.
    pub script: String,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The command exited with this status.
    Exited(i32),
    /// The command was killed by this signal.
    Signalled(i32),
    /// The command never ran: the sentence says which step failed.
    Failed(String),
}
