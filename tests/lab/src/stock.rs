//! Preparing a stock kernel: what Debian's packages lack for building a module in Rust and for a fast boot.

use crate::apt::Apt;
use crate::kernel::{self, Kernel};
use crate::kernels::{Build, Prepared, loaded, version_of, vmlinux};
use crate::progress::step;
use crate::sandbox::sandbox;
use crate::tree::Tree;
use crate::{bzimage, initramfs, metadata, paths};
use anyhow::Result;
use std::path::Path;

/// Adds the stock kernel of this release, or the one before the tree's own, to the package tree.
///
/// # Errors
/// When there is none, or a step fails: the message names it and its log.
pub(crate) fn fetch(tree: &Tree, cache: &Path, release: Option<&str>) -> Result<Kernel> {
    let apt = Apt::new(cache)?;
    let kernel = kernel::other(&apt, &tree.kernel, release)?;
    apt.pin(&kernel.preferences())?;
    apt.add(&format!("Linux {}", kernel.release), &kernel.packages(), &tree.dir)?;
    Ok(kernel)
}

/// Prepares a kernel whose packages are in the tree.
///
/// # Errors
/// When a step fails: the message names it and its log.
pub(crate) fn prepare(tree: &Tree, cache: &Path, dir: &Path, kernel: Kernel) -> Result<Prepared> {
    if !tree.host(&kernel.modules()).join("modules.dep").exists() {
        // What the package's maintainer script would have done.
        let argv = ["depmod", &kernel.release];
        let mut command = sandbox(&tree.dir, &[], &argv);
        step("indexing the kernel's modules", &paths::log(cache, "depmod"), &mut command)?;
    }
    metadata::prepare(tree, &kernel, cache)?;
    initramfs::unpack_modules(tree, &kernel, &loaded(dir))?;
    bzimage::unpack(tree, &kernel, &vmlinux(dir))?;
    Ok(Prepared {
        build: Build::Headers(kernel.headers()),
        made_from: version_of(&kernel),
        release: kernel.release,
    })
}
