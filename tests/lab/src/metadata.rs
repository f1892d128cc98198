//! The Rust metadata that Debian's header packages lack: what rustc needs to know of the kernel crate.

use crate::kernel::Kernel;
use crate::progress::step;
use crate::sandbox::{Bind, sandbox};
use crate::tree::{Tree, discard};
use crate::{paths, source};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;

/// No header, no Kconfig and nothing that `modules_prepare` compiles.
const LEFT_OUT: [&str; 6] =
    ["*/Documentation/*/*", "*/tools/testing/*", "*/drivers/*.c", "*/sound/*.c", "*.dts", "*.dtsi"];

/// Builds the metadata from Debian's kernel source, with Debian's configuration and compilers, and puts it
/// beside the headers, unless it is there. `modules_prepare` builds the kernel crate, but no kernel.
///
/// # Errors
/// When a step fails: the message names it and its log.
pub(crate) fn prepare(tree: &Tree, kernel: &Kernel, cache: &Path) -> Result<()> {
    let headers = tree.host(&kernel.headers());
    if headers.join(TARGET).exists() {
        return Ok(());
    }
    let work = cache.join(format!("metadata-{}", kernel.release));
    discard(&work)?;
    let (source, build) = (work.join("source"), work.join("build"));
    fs::create_dir_all(&build).with_context(|| format!("creating {}", build.display()))?;
    source::unpack(tree, kernel, cache, &source, &LEFT_OUT)?;
    let config = build.join(".config");
    fs::copy(headers.join(".config"), &config).context("copying Debian's kernel configuration")?;
    make(tree, kernel, cache, &work)?;
    // Without a usable rustc or bindgen, olddefconfig silently switches Rust off.
    let made = fs::read_to_string(&config).context("reading the prepared configuration")?;
    if !made.lines().any(|line| line == "CONFIG_RUST=y") {
        bail!(
            "preparing the Rust metadata failed: the kernel's build system refuses the Rust compiler; see {}",
            paths::log(cache, "metadata").display()
        );
    }
    install(&build, &headers)?;
    discard(&work)
}

fn make(tree: &Tree, kernel: &Kernel, cache: &Path, work: &Path) -> Result<()> {
    let abi = kernel.release.as_str();
    // The release is the source's own version and this suffix; it must equal the running kernel's.
    let suffix = abi.find('+').map_or("", |at| &abi[at..]);
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let argv = [
        "make".to_owned(),
        "-C".to_owned(),
        "/mnt/source".to_owned(),
        "O=/mnt/build".to_owned(),
        format!("LOCALVERSION={suffix}"),
        format!("-j{jobs}"),
        "olddefconfig".to_owned(),
        "modules_prepare".to_owned(),
    ];
    let binds = [
        Bind { host: work.join("source"), inside: "/mnt/source", writable: false },
        Bind { host: work.join("build"), inside: "/mnt/build", writable: true },
    ];
    let mut command = sandbox(&tree.dir, &binds, &argv);
    step("preparing the Rust metadata", &paths::log(cache, "metadata"), &mut command)
}

/// The target description below a headers' folder; copied last, so that with it all is there.
const TARGET: &str = "scripts/target.json";

/// Copies the crates' metadata, the procedural macros and the target description.
fn install(build: &Path, headers: &Path) -> Result<()> {
    let target = headers.join("rust");
    fs::create_dir_all(&target).with_context(|| format!("creating {}", target.display()))?;
    let mut crates = 0;
    for entry in fs::read_dir(build.join("rust")).context("listing the Rust metadata")? {
        let entry = entry.context("listing the Rust metadata")?;
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "rmeta" || e == "so") {
            fs::copy(&path, target.join(entry.file_name()))
                .with_context(|| format!("copying {}", path.display()))?;
            crates += 1;
        }
    }
    if crates == 0 {
        bail!("preparing the Rust metadata left no *.rmeta in {}", build.display());
    }
    fs::copy(build.join(TARGET), headers.join(TARGET)).context("copying the Rust target description")?;
    Ok(())
}
