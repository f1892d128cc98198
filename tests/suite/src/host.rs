//! Checks that need no lab: formatting, lints, documentation and the unit tests of every crate.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::check::Tally;
use crate::consumers::tools::output;
use crate::lab;
use crate::machine::{KERNEL, PREVIOUS_KERNEL};

/// Runs every host check in the workspace at `root`.
pub(crate) fn run(root: &Path, tally: &mut Tally) {
    tally.run("format", || cargo(root, &["fmt", "--all", "--check"]));
    // Its shell belongs to no crate that cargo knows.
    tally.run("format of the module", || {
        quiet(root, "rustfmt", &["--check", "--edition", "2021", "kmod/hpm.rs"])
    });
    tally.run("lints", || {
        cargo(root, &["clippy", "--workspace", "--all-targets", "--release", "--", "-D", "warnings"])
    });
    // They are no members, so that nobody else needs what fuzzing does, and would be missed only by the full tier.
    tally.run("lock file of the fuzzing targets", || {
        let manifest = ["--manifest-path", "libhpm/fuzz/Cargo.toml"];
        cargo(root, &[&["metadata", "--locked", "--format-version", "1"][..], &manifest].concat())
    });
    tally.run("tools and tests are compiled of the same", || one_set_of_features(root));
    tally.run("documentation", || cargo(root, &["doc", "--workspace", "--no-deps", "--release"]));
    // They take minutes of one CPU; tests and a terminal that is waited for leave as much.
    let kernels = [KERNEL, PREVIOUS_KERNEL].map(|kernel| (kernel, lab::begin_to_build(root, kernel)));
    libtest(root, &["--workspace"], &[], tally);
    crate::libgc::check(root, tally);
    crate::screen::check(root, tally);
    for (kernel, building) in kernels {
        tally.run(&format!("the lab has its {kernel} kernel"), || lab::wait_until_built(building));
    }
    crate::install::check(root, tally);
}

/// Every property and every parser of the driver's logic, the library and the model with many more random cases than each
/// build has.
pub(crate) fn run_properties(root: &Path, tally: &mut Tally) {
    let packages = ["-p", "hpm-core", "-p", "libhpm", "-p", "vpmu"];
    libtest(root, &packages, &[("PROPTEST_CASES", "20000")], tally);
    // One of the last thousand of these once showed a counter with the encoding of another register.
    let interleavings = ["-p", "hpm-core", "--test", "driver", "--", "witnessed::"];
    libtest(root, &interleavings, &[("PROPTEST_CASES", "100000")], tally);
}

/// The tests of the lab and of the plugin that boot machines of their own; they need what the lab has fetched.
pub(crate) fn run_booting_tests(root: &Path, tally: &mut Tally) {
    libtest(root, &["-p", "lab", "-p", "vpmu-qemu", "--", "--ignored", "--test-threads=1"], &[], tally);
}

/// The tests that take minutes and need no machine: the tables of docs/measurements.md on the bias of sampling, and the memory
/// of hpmtop in the replay of an hour.
pub(crate) fn run_long_tests(root: &Path, tally: &mut Tally) {
    libtest(root, &["-p", "hpm-core", "--test", "driver", "--", "--ignored", "bias::"], &[], tally);
    libtest(root, &["-p", "hpmtop", "--lib", "--", "--ignored"], &[], tally);
}

/// No package that `make tools` compiles has other features where tests are compiled, too: it would be compiled twice, and with it all that
/// stands on it, which are minutes.
fn one_set_of_features(root: &Path) -> Result<String> {
    let makefile = fs::read_to_string(root.join("Makefile"))?;
    let tools = makefile.lines().find_map(|line| line.split_once("$(CARGO) build --release "));
    let (_, packages) = tools.context("the Makefile does not say what the tools are")?;
    let packages: Vec<&str> = packages.split_whitespace().chain(["--edges", "no-dev"]).collect();
    let (tools, all) = (features(root, &packages)?, features(root, &["--workspace"])?);
    let twice: Vec<&str> = tools.difference(&all).map(String::as_str).collect();
    ensure!(
        twice.is_empty(),
        "tests need other features of these; name them in tests/suite/Cargo.toml:\n{}",
        twice.join("\n")
    );
    Ok(format!("{} packages", tools.len()))
}

/// Every package that these arguments of `cargo tree` select, with its features.
fn features(root: &Path, arguments: &[&str]) -> Result<BTreeSet<String>> {
    let format = ["tree", "--locked", "--prefix", "none", "--format", "{p} [{f}]"];
    let tree = output(Command::new("cargo").args(format).args(arguments).current_dir(root))?;
    Ok(tree.lines().map(|line| line.trim_end_matches(" (*)").to_owned()).collect())
}

fn cargo(root: &Path, arguments: &[&str]) -> Result<String> {
    quiet(root, "cargo", arguments)
}

/// Runs a tool of the toolchain quietly; its output is shown only when it fails.
fn quiet(root: &Path, tool: &str, arguments: &[&str]) -> Result<String> {
    let output = Command::new(tool)
        .args(arguments)
        .env("RUSTDOCFLAGS", "-D warnings")
        .current_dir(root)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{tool} cannot be started: install the Rust toolchain"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        let stdout = String::from_utf8_lossy(&output.stdout);
        bail!("`{tool} {}` failed:\n{stdout}{stderr}", arguments.join(" "));
    }
    Ok(String::new())
}

/// Runs `cargo test`, passes its output on, and adds up what its runners counted.
fn libtest(root: &Path, arguments: &[&str], environment: &[(&str, &str)], tally: &mut Tally) {
    let output = Command::new("cargo")
        .args(["test", "--release", "--no-fail-fast"])
        .args(arguments)
        .envs(environment.iter().copied())
        .current_dir(root)
        .stdin(Stdio::null())
        .output();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!("FAIL unit tests: cargo cannot be started: {error}");
            tally.failed += 1;
            return;
        }
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    print!("{stdout}");
    let counted = totals(&stdout);
    if !output.status.success() && counted.failed == 0 {
        // A test that does not compile, or a runner that crashed, counts nothing of its own.
        println!("FAIL unit tests: {}", String::from_utf8_lossy(&output.stderr));
        tally.failed += 1;
    }
    tally.add(&counted);
}

/// Sums the "test result: …" lines of libtest, and names the tests that failed.
fn totals(stdout: &str) -> Tally {
    let mut sum = Tally::default();
    for line in stdout.lines() {
        if line.starts_with("test result:") {
            sum.passed += number_before(line, " passed");
            sum.failed += number_before(line, " failed");
        } else if let Some(name) =
            line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED"))
        {
            sum.failures.push(name.to_owned());
        }
    }
    sum
}

/// The number that stands right before `word`, or 0.
fn number_before(line: &str, word: &str) -> u64 {
    line.split(word)
        .next()
        .and_then(|head| head.rsplit(|c: char| !c.is_ascii_digit()).next())
        .and_then(|digits| digits.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::totals;

    #[test]
    fn libtest_lines_are_summed() {
        let text = "running 3 tests\n\
            test one::works ... ok\n\
            test two::fails ... FAILED\n\
            test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.1s\n\
            test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n";
        let sum = totals(text);
        assert_eq!((sum.passed, sum.failed), (15, 2));
        assert_eq!(sum.failures, ["two::fails"]);
    }

    #[test]
    fn other_lines_count_nothing() {
        let sum = totals("5 passed in a comment\n");
        assert_eq!((sum.passed, sum.failed), (0, 0));
    }
}
