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

/// Compiles `nested.c` into the folder, optimised and with debug information.
pub(crate) fn build(folder: &Path) -> PathBuf {
    let (source, program) = (folder.join("nested.c"), folder.join("nested"));
    std::fs::write(&source, SOURCE).unwrap();
    let [source, output] = [&source, &program].map(|path| path.to_str().unwrap());
    run("cc", &["-O2", "-g", "-Wl,--build-id=sha1", "-o", output, source]);
    program
}

/// The number of the line with this mark.
pub(crate) fn line_of(mark: &str) -> u32 {
    let index = SOURCE.lines().position(|line| line.contains(mark)).unwrap();
    u32::try_from(index + 1).unwrap()
}
