//! The kernels that the lab can boot: each is prepared once, under `kernels/NAME`.

use crate::kernel::{Kernel, module_folder};
use crate::sandbox::Bind;
use crate::tree::{Tree, discard};
use crate::{debug_kernel, stock};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Which kernel a run boots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Which {
    /// The newest stock kernel.
    Newest,
    /// The stock kernel before that.
    Previous,
    /// The stock kernel of this release.
    Release(String),
    /// A kernel of our own with the kernel's checks on.
    Debug,
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "newest" => Ok(Self::Newest),
            "previous" => Ok(Self::Previous),
            "debug" => Ok(Self::Debug),
            // It becomes a folder's name.
            release if release.starts_with(|c: char| c.is_ascii_digit()) && !release.contains('/') => {
                Ok(Self::Release(release.to_owned()))
            }
            _ => Err("expected newest, previous, debug, or a release such as 7.2.12+deb13-amd64".to_owned()),
        }
    }
}

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Newest => f.write_str("newest"),
            Self::Previous => f.write_str("previous"),
            Self::Debug => f.write_str("debug"),
            Self::Release(release) => f.write_str(release),
        }
    }
}

/// How modules are built for a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Build {
    /// Against the headers in this folder of the package tree.
    Headers(String),
    /// Against what the compilation of the kernel itself left.
    Compiled,
}

/// A kernel that can be booted. Its folder is complete if it holds this as `kernel.json`, which is written last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Prepared {
    /// What `uname -r` says.
    pub(crate) release: String,
    /// How hpm.ko is built for it.
    pub(crate) build: Build,
    /// What it was made from, in full: a kernel made from something else is another one.
    pub(crate) made_from: String,
}

/// A prepared kernel and where it lies.
#[derive(Debug)]
pub(crate) struct Ready {
    /// Its folder.
    pub(crate) dir: PathBuf,
    /// What is in it.
    pub(crate) kernel: Prepared,
}

impl Ready {
    /// The ELF kernel.
    pub(crate) fn vmlinux(&self) -> PathBuf {
        vmlinux(&self.dir)
    }

    /// The folder of the modules that PID 1 loads.
    pub(crate) fn loaded(&self) -> PathBuf {
        loaded(&self.dir)
    }

    /// The folder of the kernel's modules, which the guest sees as `/lib/modules/RELEASE`. It is derived and not kept in
    /// `kernel.json`, so that a clone can be moved with what it has prepared.
    pub(crate) fn module_tree(&self, tree: &Tree) -> PathBuf {
        match self.kernel.build {
            Build::Headers(_) => tree.host(&module_folder(&self.kernel.release)),
            Build::Compiled => debug_kernel::modules(&self.dir),
        }
    }

    /// The folder that hpm.ko is built in.
    pub(crate) fn hpm(&self) -> PathBuf {
        self.dir.join("hpm")
    }

    /// The arguments of `make` that choose the kernel to build a module for, and what the sandbox must show.
    pub(crate) fn kbuild(&self) -> (Vec<String>, Vec<Bind>) {
        match &self.kernel.build {
            Build::Headers(path) => (vec!["-C".to_owned(), path.clone()], Vec::new()),
            Build::Compiled => debug_kernel::kbuild(&self.dir),
        }
    }
}

/// Where the ELF kernel of the prepared kernel in `dir` lies.
pub(crate) fn vmlinux(dir: &Path) -> PathBuf {
    dir.join("vmlinux")
}

/// Where the modules that PID 1 loads lie.
pub(crate) fn loaded(dir: &Path) -> PathBuf {
    dir.join("load")
}

/// The folder of all prepared kernels.
pub(crate) fn folder(cache: &Path) -> PathBuf {
    cache.join("kernels")
}

/// The kernel `which`, prepared if it is not yet.
///
/// # Errors
/// When a step fails: the message names it and its log.
pub(crate) fn ready(tree: &Tree, cache: &Path, which: &Which) -> Result<Ready> {
    let dir = folder(cache).join(which.to_string());
    fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let lock = dir.join("lock");
    let lock = File::create(&lock).with_context(|| format!("creating {}", lock.display()))?;
    lock.lock().context("waiting for another lab to prepare the kernel")?;
    let stamp = dir.join("kernel.json");
    let known: Option<Prepared> =
        fs::read_to_string(&stamp).ok().and_then(|text| serde_json::from_str(&text).ok());
    if let Some(kernel) = known.filter(|kernel| is_current(kernel, tree, which)) {
        return Ok(Ready { dir, kernel });
    }
    discard(&stamp)?;
    discard(&loaded(&dir))?;
    fs::create_dir_all(loaded(&dir)).with_context(|| format!("creating {}", loaded(&dir).display()))?;
    let kernel = match which {
        Which::Newest => stock::prepare(tree, cache, &dir, tree.kernel.clone())?,
        Which::Previous => stock::prepare(tree, cache, &dir, stock::fetch(tree, cache, None)?)?,
        Which::Release(release) => {
            stock::prepare(tree, cache, &dir, stock::fetch(tree, cache, Some(release))?)?
        }
        Which::Debug => debug_kernel::prepare(tree, cache, &dir)?,
    };
    let text = serde_json::to_string_pretty(&kernel).context("encoding the kernel's stamp")?;
    fs::write(&stamp, text).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(Ready { dir, kernel })
}

/// Whether a prepared kernel is what would be prepared now. The stock ones stay as they are until the tree goes.
fn is_current(kernel: &Prepared, tree: &Tree, which: &Which) -> bool {
    *which != Which::Debug || kernel.made_from == debug_kernel::made_from(&tree.kernel)
}

/// What a stock kernel is made from.
pub(crate) fn version_of(kernel: &Kernel) -> String {
    format!("{} {}", kernel.image, kernel.version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_kernels_read_back_and_never_leave_the_folder() {
        for name in ["newest", "previous", "debug", "7.2.12+deb13-amd64"] {
            assert_eq!(name.parse::<Which>().map(|which| which.to_string()).as_deref(), Ok(name));
        }
        for name in ["", "oldest", "../7.2", "7/../.."] {
            assert!(name.parse::<Which>().is_err(), "{name}");
        }
    }
}
