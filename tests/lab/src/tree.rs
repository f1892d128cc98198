//! The package tree: the kernel, its build tools, QEMU and perf, downloaded and unpacked without root.

use crate::apt::Apt;
use crate::kernel::{self, Kernel};
use crate::progress::step;
use crate::sandbox::sandbox;
use crate::{bzimage, initramfs, metadata, paths};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the lab needs besides the kernel; apt adds what these depend on.
const PACKAGES: [&str; 31] = [
    // The machine, and the judge that runs in it.
    "qemu-system-x86",
    "linux-perf",
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
    /// The kernel in it.
    pub(crate) kernel: Kernel,
}

impl Tree {
    /// The tree under `cache` if it is complete and of this lab's making.
    pub(crate) fn open(cache: &Path) -> Option<Self> {
        let text = fs::read_to_string(stamp_path(cache)).ok()?;
        let stamp: Stamp = serde_json::from_str(&text).ok()?;
        (stamp.packages == PACKAGES).then(|| Self { dir: cache.join("tree"), kernel: stamp.kernel })
    }

    /// Fetches, unpacks and prepares a tree; replaces an older one.
    ///
    /// # Errors
    /// When a step fails: the message names it and its log.
    pub(crate) fn fetch(cache: &Path) -> Result<Self> {
        let apt = Apt::new(cache)?;
        apt.update()?;
        let kernel = kernel::newest(&apt)?;
        apt.pin(&kernel.preferences())?;
        let mut packages = kernel.packages();
        packages.extend(PACKAGES.map(str::to_owned));
        let debs = apt.download(&format!("downloading Linux {} and its tools", kernel.release), &packages)?;
        let tree = Self { dir: cache.join("tree"), kernel };
        discard(&stamp_path(cache))?;
        discard(&tree.dir)?;
        tree.unpack(cache, &debs)?;
        apt.clean()?;
        tree.configure(cache)?;
        metadata::prepare(&tree, cache)?;
        let stamp = Stamp { kernel: tree.kernel.clone(), packages: PACKAGES.map(str::to_owned).to_vec() };
        let text = serde_json::to_string_pretty(&stamp).context("encoding the tree's stamp")?;
        fs::write(stamp_path(cache), text).context("writing the tree's stamp")?;
        Ok(tree)
    }

    /// The stock kernel's modules and configuration.
    pub(crate) fn modules(&self) -> PathBuf {
        self.dir.join("usr/lib/modules").join(&self.kernel.release)
    }

    /// The folder modules are built against, inside the sandbox.
    pub(crate) fn headers(&self) -> String {
        format!("/usr/src/linux-headers-{}", self.kernel.release)
    }

    /// The stock kernel, unpacked from its boot image: QEMU starts an ELF kernel directly, which saves the
    /// emulated decompression.
    pub(crate) fn vmlinux(&self) -> PathBuf {
        self.dir.join("boot/vmlinux")
    }

    fn unpack(&self, cache: &Path, debs: &[PathBuf]) -> Result<()> {
        fs::create_dir_all(&self.dir).with_context(|| format!("creating {}", self.dir.display()))?;
        // xargs, because dpkg-deb takes one package at a time; two at once, because xz is slow.
        let script = "tree=$1; shift; printf '%s\\0' \"$@\" | xargs -0 -P2 -I{} dpkg-deb -x {} \"$tree\"";
        let mut command = Command::new("sh");
        command.args(["-c", script, "sh"]).arg(&self.dir).args(debs);
        step("unpacking the packages", &paths::log(cache, "unpack"), &mut command)
    }

    /// What the packages' maintainer scripts would have done, as far as it matters here.
    fn configure(&self, cache: &Path) -> Result<()> {
        let awk = self.dir.join("usr/bin/awk");
        symlink("gawk", &awk).with_context(|| format!("linking {}", awk.display()))?;
        let argv = ["depmod", &self.kernel.release];
        step(
            "indexing the kernel's modules",
            &paths::log(cache, "depmod"),
            &mut sandbox(&self.dir, &[], &argv),
        )?;
        initramfs::unpack_modules(self)?;
        bzimage::unpack(self)
    }
}

fn stamp_path(cache: &Path) -> PathBuf {
    cache.join("tree.json")
}

/// Removes a file or folder of the cache, if it exists and nothing is mounted in it.
///
/// # Errors
/// When something is mounted below it, or removing fails.
pub(crate) fn discard(path: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("reading /proc/self/mountinfo")?;
    let below =
        |line: &&str| line.split(' ').nth(4).is_some_and(|target| Path::new(target).starts_with(path));
    if let Some(line) = mounts.lines().find(below) {
        bail!("{} is not removed, because something is mounted in it: {line}", path.display());
    }
    let Ok(meta) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    let result = if meta.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    result.with_context(|| format!("removing {}", path.display()))
}
