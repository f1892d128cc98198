//! Builds the C program that the tests of symbols and stacks look into.

use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("nested.c");

/// Runs a tool that comes with every C toolchain.
pub(crate) fn run(tool: &str, arguments: &[&str]) {
    let output =
        Command::new(tool).args(arguments).output().unwrap_or_else(|error| panic!("{tool}: {error}"));
    assert!(output.status.success(), "{tool} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Who lays out the code in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Linker {
    /// GNU ld, which gives code pages of its own.
    Gnu,
    /// lld, as it comes with Rust; its code shares a page of the file with what is before.
    Lld,
}

/// Compiles `nested.c` into the folder, optimised and with debug information.
pub(crate) fn build(folder: &Path) -> PathBuf {
    build_with(folder, Linker::Gnu)
}

/// The same with another linker.
pub(crate) fn build_with(folder: &Path, linker: Linker) -> PathBuf {
    let (source, program) = (folder.join("nested.c"), folder.join("nested"));
    std::fs::write(&source, SOURCE).unwrap();
    let [source, output] = [&source, &program].map(|path| path.to_str().unwrap());
    // Functions are bound at the start, because framehop cannot unwind what binds them at their first call.
    let mut arguments = vec!["-O2", "-g", "-Wl,--build-id=sha1", "-Wl,-z,now", "-o", output, source];
    let lld;
    if let Linker::Lld = linker {
        let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap().stdout;
        let sysroot = String::from_utf8(sysroot).unwrap();
        lld = format!("-B{}/lib/rustlib/x86_64-unknown-linux-gnu/bin/gcc-ld", sysroot.trim());
        arguments.extend(["-fuse-ld=lld", &lld]);
    }
    run("cc", &arguments);
    program
}

/// The number of the line with this mark.
pub(crate) fn line_of(mark: &str) -> u32 {
    let index = SOURCE.lines().position(|line| line.contains(mark)).unwrap();
    u32::try_from(index + 1).unwrap()
}
