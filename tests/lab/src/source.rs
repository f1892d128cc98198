//! The source of Debian's kernels.

use crate::apt::Apt;
use crate::kernel::Kernel;
use crate::paths;
use crate::progress::step;
use crate::sandbox::{Bind, sandbox};
use crate::tree::{Tree, discard};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Downloads the source of `kernel` and unpacks it into the folder `to`, without the files that match one of the
/// patterns `left_out`: writing and removing all 96,000 would take as long as what they are needed for.
///
/// # Errors
/// When a step fails: the message names it and its log.
pub(crate) fn unpack(tree: &Tree, kernel: &Kernel, cache: &Path, to: &Path, left_out: &[&str]) -> Result<()> {
    let work = tempfile::tempdir_in(cache).context("creating a temporary folder")?;
    let wanted = format!("{}={}", kernel.source, kernel.version);
    let deb = Apt::new(cache)?.download_one(&wanted, work.path())?;
    let status = Command::new("dpkg-deb").arg("-x").arg(&deb).arg(work.path()).status();
    if !status.context("running dpkg-deb")?.success() {
        bail!("dpkg-deb could not unpack {}", deb.display());
    }
    // Renamed when complete, so that half a source is never taken for one.
    let new = to.with_extension("new");
    discard(&new)?;
    fs::create_dir_all(&new).with_context(|| format!("creating {}", new.display()))?;
    let archive = format!("/mnt/package/usr/src/{}.tar.xz", kernel.source);
    let mut argv = ["tar", "-xf", &archive, "-C", "/mnt/source", "--strip-components=1", "--wildcards"]
        .map(str::to_owned)
        .to_vec();
    argv.extend(left_out.iter().map(|pattern| format!("--exclude={pattern}")));
    let binds = [
        Bind { host: new.clone(), inside: "/mnt/source", writable: true },
        Bind { host: work.path().to_path_buf(), inside: "/mnt/package", writable: false },
    ];
    let mut command = sandbox(&tree.dir, &binds, &argv);
    step("unpacking the kernel source", &paths::log(cache, "source"), &mut command)?;
    discard(to)?;
    fs::rename(&new, to).with_context(|| format!("renaming {}", new.display()))
}
