//! Bad input: one clear sentence, a non-zero exit, nothing lost.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libhpm::trace::{SampleRow, TraceReader};

use super::GuestReport;
use super::programs::{built, hpmctl, record, succeed};

/// Makes every mistake a person may make.
pub(super) fn run(report: &mut GuestReport) {
    report.check("unknown event", || {
        refused(hpmctl(&["stat", "-e", "l1d-lod-miss", "--", "true"])?, "l1d-load-miss")
    });
    report.check("program not found", || {
        refused(hpmctl(&["stat", "-e", "instructions", "--", "no-such-program"])?, "no-such-program")
    });
    report.check("no such process", || refused(hpmctl(&["stat", "-p", "4194000"])?, "4194000"));
    report.check("too many events", || {
        let events =
            "load,store,branch,branch-miss,l1d-load-miss,l2-load-miss,l3-miss,dtlb-load-miss,l1d-load-miss:k";
        refused(hpmctl(&["stat", "-e", events, "--", "true"])?, "counter")
    });
    report.check("no permission", no_permission);
    report
        .check("a file that is no trace", || refused(hpmctl(&["report", "/etc/hostname"])?, "/etc/hostname"));
    report.check("a trace cut off in the middle", cut_trace);
    report.check("a full file system", full);
    report.check("no module", no_module);
}

/// Runs a command that must fail with one sentence that names `word`.
pub(super) fn refused(mut command: Command, word: &str) -> Result<String> {
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    ensure!(!output.status.success(), "it succeeded");
    ensure!(said.lines().count() == 1, "it said more than one line, or nothing: {said:?}");
    ensure!(said.contains(word), "it does not say {word:?}: {said}");
    ensure!(!said.contains("panicked"), "it panicked: {said}");
    Ok(said)
}

/// As user nobody, who may not open the device.
fn no_permission() -> Result<String> {
    let mut command = hpmctl(&["stat", "--source", "driver", "-e", "instructions", "--", "true"])?;
    command.uid(65534).gid(65534);
    refused(command, "may not be opened")
}

/// Cuts a table of a good trace in the middle: the report must say so and show the rest.
fn cut_trace() -> Result<String> {
    succeed(record("cut.hpm")?.arg(built("strides")?).args(["x", "x"]))?;
    let table = fs::read_dir("cut.hpm")?
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("samples")))
        .context("the trace has no samples table")?;
    let bytes = fs::read(&table)?;
    fs::write(&table, &bytes[..bytes.len() * 2 / 3])?;
    let output = hpmctl(&["report", "cut.hpm"])?.output()?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    ensure!(said.contains("samples"), "it does not say that the samples are cut: {said:?}");
    ensure!(!said.contains("panicked"), "it panicked: {said}");
    Ok(said)
}

/// Records until the file system is full: the program runs to its end, and what was written can be read.
fn full() -> Result<String> {
    fs::create_dir("full")?;
    succeed(Command::new("mount").args(["-t", "tmpfs", "-o", "size=12m", "tmpfs", "full"]))?;
    let mut command = hpmctl(&["record", "-e", "load:u", "-c", "300", "-o", "full/trace.hpm", "--"])?;
    command.args(["sh", "-c", "i=0; while [ $i -lt 600000 ]; do i=$((i+1)); done; echo over"]);
    let output = command.output()?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    ensure!(!output.status.success(), "it succeeded");
    ensure!(output.stdout == b"over\n", "the program did not run to its end: {said}");
    ensure!(said.contains("No space left") && said.contains("not complete"), "it does not say so: {said}");
    let reader = TraceReader::open("full/trace.hpm")?;
    let rows = reader.rows::<SampleRow>().count();
    // Nearly all that the disk has room for.
    ensure!(rows > 10_000, "only {rows} samples can be read");
    succeed(Command::new("umount").arg("full"))?;
    Ok(format!("{rows} samples can be read: {said}"))
}

fn no_module() -> Result<String> {
    succeed(Command::new("rmmod").arg("hpm"))?;
    refused(hpmctl(&["stat", "--source", "driver", "-e", "instructions", "--", "true"])?, "hpm.ko")
}
