//! The package tree: stock kernels, their build tools, QEMU and perf, downloaded and unpacked without root.

use crate::apt::Apt;
use crate::kernel::{self, Kernel};
use crate::kernels;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// What the lab needs besides the kernel; apt adds what these depend on.
const PACKAGES: [&str; 33] = [
    // The machine, and the judges: perf runs in it, Cachegrind beside it.
    "qemu-system-x86",
    "linux-perf",
    "valgrind",
    "busybox-static",
    // The sandbox for the kernel's build system, and a minimal system in it.
    "bubblewrap",
    "base-files",
    "bash",
    "dash",
    "coreutils",
    "diffutils",
    "findutils",
    "gawk",
    "grep",
    "gzip",
    "sed",
    "tar",
    "xz-utils",
    "zstd",
    "kmod",
    "dpkg",
    // What building against a kernel with Rust takes; the headers bring the C compiler they were built by.
    "bc",
    "bindgen",
    "bison",
    "dkms",
    "flex",
    "gcc",
    "libelf-dev",
    "libssl-dev",
    "make",
    "perl",
    "pahole",
    "rust-src",
    "rustc",
];

/// What is unpacked where; written last, so a tree without it is incomplete.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    kernel: Kernel,
    packages: Vec<String>,
}

/// A complete package tree.
pub(crate) struct Tree {
    /// Its root folder.
    pub(crate) dir: PathBuf,
    /// The newest stock kernel when the tree was made, which its tools fit.
    pub(crate) kernel: Kernel,
}

impl Tree {
    /// The tree under `cache` if it is complete and of this lab's making.
    pub(crate) fn open(cache: &Path) -> Option<Self> {
        let text = fs::read_to_string(stamp_path(cache)).ok()?;
        let stamp: Stamp = serde_json::from_str(&text).ok()?;
        (stamp.packages == PACKAGES).then(|| Self { dir: cache.join("tree"), kernel: stamp.kernel })
    }

    /// Fetches and unpacks a tree; replaces an older one, and forgets the kernels that were prepared by its tools.
    ///
    /// # Errors
    /// When a step fails: the message names it and its log.
    pub(crate) fn fetch(cache: &Path) -> Result<Self> {
        let apt = Apt::new(cache)?;
        let kernel = kernel::newest(&apt)?;
        apt.pin(&kernel.preferences())?;
        let mut packages = kernel.packages();
        packages.extend(PACKAGES.map(str::to_owned));
        let tree = Self { dir: cache.join("tree"), kernel };
        discard(&kernels::folder(cache))?;
        discard(&tree.dir)?;
        apt.add(&format!("Linux {} and its tools", tree.kernel.release), &packages, &tree.dir)?;
        // What the package's maintainer script would have done.
        let awk = tree.dir.join("usr/bin/awk");
        symlink("gawk", &awk).with_context(|| format!("linking {}", awk.display()))?;
        let stamp = Stamp { kernel: tree.kernel.clone(), packages: PACKAGES.map(str::to_owned).to_vec() };
        let text = serde_json::to_string_pretty(&stamp).context("encoding the tree's stamp")?;
        let path = stamp_path(cache);
        fs::create_dir_all(tree.dir.join("lab")).context("creating the tree's folder of stamps")?;
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        Ok(tree)
    }

    /// The place on this machine of a file that programs in the tree know as `path`.
    pub(crate) fn host(&self, path: &str) -> PathBuf {
        self.dir.join(path.trim_start_matches('/'))
    }
}

fn stamp_path(cache: &Path) -> PathBuf {
    cache.join("tree/lab/tree.json")
}

/// Removes a file or folder of the cache, if it exists and nothing is mounted in it.
///
/// # Errors
/// When something is mounted below it, or removing fails.
pub(crate) fn discard(path: &Path) -> Result<()> {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("reading /proc/self/mountinfo")?;
    if let Some(mount) = mount_in(&mounts, path) {
        bail!("{} is not removed, because something is mounted in it: {mount}", path.display());
    }
    let result = if meta.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    result.with_context(|| format!("removing {}", path.display()))
}

/// The first mount point at or below `path`, of a table as in proc_pid_mountinfo(5).
fn mount_in<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .find(|target| Path::new(target).starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_below_a_folder_are_seen() {
        let mounts = "21 1 0:5 / /dev rw - devtmpfs x rw\n22 21 0:6 / /a/tree/dev rw - tmpfs x rw\n";
        assert_eq!(mount_in(mounts, Path::new("/a/tree")), Some("/a/tree/dev"));
        assert_eq!(mount_in(mounts, Path::new("/a/tr")), None);
    }

    #[test]
    fn a_tree_counts_only_when_it_is_complete_and_has_all_packages() {
        let cache = tempfile::tempdir().expect("a temporary folder");
        let write = |packages: &[&str]| {
            let text = serde_json::json!({
                "kernel": {"release": "7-amd64", "version": "7-1", "image": "i", "source": "s", "rustc": "1"},
                "packages": packages,
            });
            fs::create_dir_all(cache.path().join("tree/lab")).expect("a folder");
            fs::write(stamp_path(cache.path()), text.to_string()).expect("a file");
        };
        assert!(Tree::open(cache.path()).is_none());
        write(&PACKAGES[1..]);
        assert!(Tree::open(cache.path()).is_none());
        write(&PACKAGES);
        assert_eq!(Tree::open(cache.path()).map(|tree| tree.kernel.release).as_deref(), Some("7-amd64"));
        discard(&cache.path().join("tree")).expect("removed");
        assert!(Tree::open(cache.path()).is_none());
    }
}
