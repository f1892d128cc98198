//! A kernel of our own with the kernel's checks on (lockdep, KASAN, kmemleak and more), from Debian's source.

use crate::apt::Apt;
use crate::kernel::Kernel;
use crate::kernels::{Build, Prepared, version_of, vmlinux};
use crate::progress::step;
use crate::sandbox::{Bind, sandbox};
use crate::tree::Tree;
use crate::{paths, source};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// What it is made of; all else stays off.
const CONFIG: &str = include_str!("../debug.config");

/// Added to the version.
const SUFFIX: &str = "-debug";

/// KASAN and Rust together need both compilers to be LLVM's (init/Kconfig, RUST).
const COMPILER: [&str; 3] = ["clang", "lld", "llvm"];

/// Large parts of the source whose Makefiles are read but nothing of which is compiled.
const LEFT_OUT: [&str; 7] = [
    "*/Documentation/*/*",
    "*/tools/testing/*",
    "*/drivers/gpu/*.[ch]",
    "*/drivers/media/*.[ch]",
    "*/sound/*.[ch]",
    "*.dts",
    "*.dtsi",
];

/// What the debug kernel of the source of `kernel` is made from.
pub(crate) fn made_from(kernel: &Kernel) -> String {
    format!("{}\n{CONFIG}", version_of(kernel))
}

/// Compiles the kernel from the source of the tree's own kernel. Once interrupted, it goes on where it was.
///
/// # Errors
/// When a step fails: the message names it and its log.
pub(crate) fn prepare(tree: &Tree, cache: &Path, dir: &Path) -> Result<Prepared> {
    if !tree.dir.join("usr/bin/clang").exists() {
        let apt = Apt::new(cache)?;
        apt.pin(&tree.kernel.preferences())?;
        apt.add("LLVM's compiler", &COMPILER.map(str::to_owned), &tree.dir)?;
    }
    let (source, build) = folders(dir);
    if !source.exists() {
        source::unpack(tree, &tree.kernel, cache, &source, &LEFT_OUT)?;
    }
    fs::create_dir_all(&build).with_context(|| format!("creating {}", build.display()))?;
    each_file(&build, &remove_if_cut_off)?;
    fs::write(build.join("wanted.config"), CONFIG).context("writing the wanted configuration")?;
    let config = ["KCONFIG_ALLCONFIG=/mnt/build/wanted.config", "allnoconfig"];
    make(tree, cache, dir, "configuring the debug kernel", &config)?;
    let made =
        fs::read_to_string(build.join(".config")).context("reading the debug kernel's configuration")?;
    if let Some(option) = first_missing(&made) {
        bail!(
            "the debug kernel cannot have {option}: {} knows no such option, or it needs others",
            tree.kernel.source
        );
    }
    let jobs = format!("-j{}", std::thread::available_parallelism().map_or(1, usize::from));
    make(tree, cache, dir, "compiling the debug kernel (it takes long)", &[&jobs, "vmlinux", "modules"])?;
    fs::copy(build.join("vmlinux"), vmlinux(dir)).context("copying the debug kernel")?;
    let release = fs::read_to_string(build.join("include/config/kernel.release"));
    let release = release.context("reading the debug kernel's release")?.trim().to_owned();
    // Everything is built in, so there are no modules; modprobe says so by itself.
    let module_tree = modules(dir);
    fs::create_dir_all(&module_tree).with_context(|| format!("creating {}", module_tree.display()))?;
    each_file(&build, &remove_object)?;
    Ok(Prepared { release, build: Build::Compiled, made_from: made_from(&tree.kernel) })
}

/// The arguments of `make` that build a module for the debug kernel in `dir`, and what the sandbox must show.
pub(crate) fn kbuild(dir: &Path) -> (Vec<String>, Vec<Bind>) {
    let (source, build) = folders(dir);
    let binds = vec![
        Bind { host: source, inside: "/mnt/source", writable: false },
        Bind { host: build, inside: "/mnt/build", writable: false },
    ];
    (vec!["LLVM=1".to_owned(), "-C".to_owned(), "/mnt/build".to_owned()], binds)
}

/// The folder of the kernel's modules: it has none.
pub(crate) fn modules(dir: &Path) -> PathBuf {
    dir.join("modules")
}

fn folders(dir: &Path) -> (PathBuf, PathBuf) {
    (dir.join("source"), dir.join("build"))
}

fn make(tree: &Tree, cache: &Path, dir: &Path, title: &str, targets: &[&str]) -> Result<()> {
    let suffix = format!("LOCALVERSION={SUFFIX}");
    let mut argv = vec!["make", "-C", "/mnt/source", "O=/mnt/build", "LLVM=1", &suffix];
    argv.extend(targets);
    let (source, build) = folders(dir);
    let binds = [
        Bind { host: source, inside: "/mnt/source", writable: false },
        Bind { host: build, inside: "/mnt/build", writable: true },
    ];
    step(title, &paths::log(cache, "debug-kernel"), &mut sandbox(&tree.dir, &binds, &argv))
}

/// The first wanted option that the configuration lacks: Kconfig drops what it cannot have without a word.
fn first_missing(made: &str) -> Option<&'static str> {
    let wanted = CONFIG.lines().filter(|line| line.starts_with("CONFIG_"));
    wanted.into_iter().find(|option| !made.lines().any(|line| line == *option))
}

/// Does this to every file below a folder.
fn each_file(folder: &Path, act: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry.with_context(|| format!("listing {}", folder.display()))?.path();
        if path.is_dir() && !path.is_symlink() {
            each_file(&path, act)?;
        } else {
            act(&path)?;
        }
    }
    Ok(())
}

/// Removes what only a next compilation of the kernel would need: two thirds of the folder.
fn remove_object(path: &Path) -> Result<()> {
    if path.extension().is_some_and(|e| e == "o" || e == "a") { remove(path) } else { Ok(()) }
}

/// Removes what Kbuild was writing of an object's dependencies when it was killed: make would stop at the line that is cut off. Without
/// it the object is made again.
fn remove_if_cut_off(path: &Path) -> Result<()> {
    if path.extension().is_none_or(|e| e != "cmd") {
        return Ok(());
    }
    let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    if text.ends_with(b"\n") { Ok(()) } else { remove(path) }
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).with_context(|| format!("removing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_build_left_half_written_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let below = folder.path().join("kernel/trace");
        fs::create_dir_all(&below).unwrap();
        let [whole, cut, object] = [".one.o.cmd", ".two.o.cmd", "two.o"].map(|name| below.join(name));
        fs::write(&whole, "deps := \\\n a.h\n").unwrap();
        fs::write(&cut, "deps := $(wildcard include/conf").unwrap();
        fs::write(&object, "ELF").unwrap();
        each_file(folder.path(), &remove_if_cut_off).unwrap();
        assert_eq!([&whole, &cut, &object].map(|path| path.exists()), [true, false, true]);
        each_file(folder.path(), &remove_object).unwrap();
        assert_eq!([&whole, &object].map(|path| path.exists()), [true, false]);
    }

    #[test]
    fn a_check_that_kconfig_dropped_is_named() {
        assert_eq!(first_missing(CONFIG), None);
        let without = CONFIG.replace("CONFIG_KASAN=y", "# CONFIG_KASAN is not set");
        assert_eq!(first_missing(&without), Some("CONFIG_KASAN=y"));
    }
}
