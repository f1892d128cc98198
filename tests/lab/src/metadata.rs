//! The Rust metadata that Debian's header packages lack: what rustc needs to know of the kernel crate.

use crate::paths;
use crate::progress::step;
use crate::sandbox::{Bind, sandbox};
use crate::tree::{Tree, discard};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::Path;

/// Half of the source's 96,000 files: no header, no Kconfig and nothing that `modules_prepare` compiles.
/// Writing and removing them would take as long as everything else in this step.
const LEFT_OUT: [&str; 6] =
    ["*/Documentation/*/*", "*/tools/testing/*", "*/drivers/*.c", "*/sound/*.c", "*.dts", "*.dtsi"];

/// Builds the metadata from Debian's kernel source, with Debian's configuration and compilers, and puts it
/// beside the headers. `modules_prepare` builds the kernel crate, but no kernel.
///
/// # Errors
/// When a step fails: the message names it and its log.
pub(crate) fn prepare(tree: &Tree, cache: &Path) -> Result<()> {
    let work = cache.join("metadata");
    discard(&work)?;
    let (source, build) = (work.join("source"), work.join("build"));
    for folder in [&source, &build] {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    unpack_source(tree, cache, &source)?;
    let headers = tree.dir.join(tree.headers().trim_start_matches('/'));
    let config = build.join(".config");
    fs::copy(headers.join(".config"), &config).context("copying Debian's kernel configuration")?;
    make(tree, cache, &source, &build)?;
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

fn unpack_source(tree: &Tree, cache: &Path, source: &Path) -> Result<()> {
    let archive = format!("/usr/src/{}.tar.xz", tree.kernel.source);
    let mut argv = ["tar", "-xf", &archive, "-C", "/mnt/source", "--strip-components=1", "--wildcards"]
        .map(str::to_owned)
        .to_vec();
    argv.extend(LEFT_OUT.map(|pattern| format!("--exclude={pattern}")));
    let binds = [Bind { host: source, inside: "/mnt/source", writable: true }];
    let mut command = sandbox(&tree.dir, &binds, &argv);
    step("unpacking the kernel source", &paths::log(cache, "source"), &mut command)?;
    // 160 MB that nothing needs any more.
    discard(&tree.dir.join(archive.trim_start_matches('/')))
}

fn make(tree: &Tree, cache: &Path, source: &Path, build: &Path) -> Result<()> {
    let abi = tree.kernel.release.as_str();
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
        Bind { host: source, inside: "/mnt/source", writable: false },
        Bind { host: build, inside: "/mnt/build", writable: true },
    ];
    let mut command = sandbox(&tree.dir, &binds, &argv);
    step("preparing the Rust metadata", &paths::log(cache, "metadata"), &mut command)
}

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
    fs::copy(build.join("scripts/target.json"), headers.join("scripts/target.json"))
        .context("copying the Rust target description")?;
    Ok(())
}
