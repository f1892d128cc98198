//! The library's parsers under libFuzzer, a coverage-guided fuzzer, for a bounded time each.
//!
//! The targets are `libhpm/fuzz`. A crash found once is mended and becomes a named test of libhpm. The driver's side is fuzzed by
//! `kmod/core/tests` and the scenario `torture`.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use crate::check::Tally;

/// Seconds that each target has in the full tier.
pub(crate) const SECONDS: u32 = 60;

const TARGETS: [&str; 6] = ["perf_data", "jitdump", "perf_map", "expression", "records", "trace"];

/// What libFuzzer asks for: the compiler counts the edges that each input takes. These are what cargo-fuzz sets, less the
/// sanitizer, which a stable compiler does not offer.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";
/// With a target named, build scripts and macros are compiled without that.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Expressions to begin with.
const EXPRESSIONS: [&str; 4] = [
    "instructions / cycles > 1.5 and thread ~ \"xz.*\"",
    "cpu == 1 or duration_ns < 1e6",
    "not (level == \"L1\") and latency >= 30",
    "-(a + b) * 2 ^ 3 % 4",
];

/// Builds the targets and runs each so long.
pub(crate) fn run(root: &Path, seconds: u32, tally: &mut Tally) {
    let mut built = false;
    tally.run("fuzz: the targets are built", || {
        build(root)?;
        built = true;
        Ok(String::new())
    });
    for target in TARGETS.iter().filter(|_| built) {
        tally.run(&format!("fuzz: {target}"), || fuzz(root, target, seconds));
    }
}

fn build(root: &Path) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--release", "--locked", "--quiet", "--target", TRIPLE, "--manifest-path"]);
    cargo.arg(root.join("libhpm/fuzz/Cargo.toml")).arg("--target-dir").arg(root.join("target/fuzz"));
    let output = cargo.env("RUSTFLAGS", COVERAGE).output().context("cargo cannot be started")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// Runs one target; what it learns stays in `target/fuzz/corpus` for the next time.
fn fuzz(root: &Path, target: &str, seconds: u32) -> Result<String> {
    let folder = root.join("target/fuzz");
    let (corpus, seeds) = (folder.join("corpus").join(target), folder.join("seeds").join(target));
    fs::create_dir_all(&corpus)?;
    sow(root, target, &seeds)?;
    let mut command = Command::new(folder.join(TRIPLE).join("release").join(target));
    command.arg(format!("-max_total_time={seconds}")).args(["-print_final_stats=1", "-timeout=20"]);
    command.arg("-rss_limit_mb=4096").arg(format!("-artifact_prefix={}/{target}-", folder.display()));
    let output = command.arg(&corpus).arg(&seeds).stdin(Stdio::null()).output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().collect();
    // What a panic says stands before its stack, and libFuzzer's words, with the input's file, behind.
    let panic = lines.iter().position(|line| line.contains("panicked at"));
    let said = panic.map_or(&[][..], |at| &lines[at..lines.len().min(at + 2)]);
    let last = &lines[lines.len().saturating_sub(40)..];
    ensure!(output.status.success(), "{}", [said, last].concat().join("\n"));
    let runs = lines.iter().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    let runs: u64 = runs.context("it says nothing of its runs")?.trim().parse()?;
    ensure!(runs > 1000, "only {runs} inputs were tried in {seconds} s");
    let edges = text.split("cov: ").last().and_then(|rest| rest.split(' ').next()).unwrap_or("?");
    Ok(format!("{runs} inputs, {edges} edges"))
}

/// Inputs to begin with, where there are good ones.
fn sow(root: &Path, target: &str, seeds: &Path) -> Result<()> {
    fs::create_dir_all(seeds)?;
    let recordings = root.join("libhpm/tests/data/perf");
    match target {
        "expression" => {
            for (number, text) in EXPRESSIONS.iter().enumerate() {
                fs::write(seeds.join(number.to_string()), text)?;
            }
        }
        "perf_data" => {
            for entry in fs::read_dir(recordings)? {
                let entry = entry?;
                fs::copy(entry.path(), seeds.join(entry.file_name()))?;
            }
        }
        "trace" => sow_trace(root, &recordings.join("two.data"), seeds)?,
        _ => {}
    }
    Ok(())
}

/// Each file of a trace behind its place among their names, as the target wants it.
fn sow_trace(root: &Path, recording: &Path, seeds: &Path) -> Result<()> {
    let trace = seeds.with_extension("hpm");
    let _ = fs::remove_dir_all(&trace);
    libhpm::source::perf_data::import(recording, &trace).with_context(|| {
        format!("importing {}", recording.strip_prefix(root).unwrap_or(recording).display())
    })?;
    let mut files: Vec<_> = fs::read_dir(&trace)?.collect::<std::io::Result<_>>()?;
    files.sort_by_key(fs::DirEntry::file_name);
    for (place, file) in (0u8..).zip(files) {
        let content = [vec![place], fs::read(file.path())?].concat();
        fs::write(seeds.join(file.file_name()), content)?;
    }
    Ok(())
}
