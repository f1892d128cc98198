//! The demo: a real program, recorded by PEBS through hpm.ko, reported by function and line, and as a flame graph.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use libhpm::trace::{StackRow, TraceReader};

use crate::check::Tally;

/// What jaq is asked: how often is each package of this workspace depended upon?
const QUESTION: &str =
    "[.packages[].dependencies[].name] | group_by(.) | map({name: .[0], users: length}) | sort_by(.users)";

/// Records jaq on this workspace's dependency graph in the lab, and prints the report there.
///
/// # Errors
/// A step failed; the message names it.
pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let folder = root.join("target/demo/run");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let graph = File::create(folder.join("dependencies.json"))?;
    let metadata = Command::new("cargo")
        .args(["metadata", "--format-version", "1"])
        .current_dir(root)
        .stdout(graph)
        .stderr(Stdio::null())
        .status()
        .context("cargo cannot be started")?;
    ensure!(metadata.success(), "`cargo metadata` ended with {metadata}");
    let (hpmctl, jaq) = (root.join("target/release/hpmctl"), root.join("target/demo/bin/jaq"));
    let script = format!(
        "'{hpmctl}' record -e l1d-load-miss:u -c 997 --stacks -o jaq.hpm -- '{jaq}' '{QUESTION}' dependencies.json \
         > answer.json && '{hpmctl}' report --by function --limit 15 jaq.hpm && \
         '{hpmctl}' report --by line --limit 15 --picture flame.svg jaq.hpm",
        hpmctl = hpmctl.display(),
        jaq = jaq.display(),
    );
    let status = Command::new(root.join("target/release/lab"))
        .args(["run", "--name", "demo", "--", "sh", "-c", &script])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .status()
        .context("target/release/lab cannot be started")?;
    ensure!(status.success(), "the demo ended with {status}");
    println!("flame graph: {}", folder.join("flame.svg").display());
    println!("trace: {}", folder.join("jaq.hpm").display());
    Ok(ExitCode::SUCCESS)
}

/// Runs the demo and looks at what it left: stacks that begin at `_start`, and no loss.
pub(crate) fn check(root: &Path, tally: &mut Tally) {
    tally.run("demo: it runs", || run(root).map(|_| String::new()));
    let folder = root.join("target/demo/run");
    tally.run("demo: the flame graph's stacks begin at _start", || {
        let svg = fs::read_to_string(folder.join("flame.svg"))?;
        ensure!(svg.contains("_start"), "no frame of the flame graph is _start");
        Ok(String::new())
    });
    tally.run("demo: at most one stack in fifty lacks its outermost calls", || {
        let trace = TraceReader::open(folder.join("jaq.hpm"))?;
        let stacks: Vec<StackRow> = trace.rows::<StackRow>().collect();
        let truncated = stacks.iter().filter(|stack| stack.truncated).count();
        ensure!(!stacks.is_empty(), "the trace has no stacks");
        ensure!(truncated * 50 <= stacks.len(), "{truncated} of {} stacks are truncated", stacks.len());
        Ok(format!("{truncated} of {}", stacks.len()))
    });
    tally.run("demo: nothing was lost", || {
        let trace = TraceReader::open(folder.join("jaq.hpm"))?;
        let totals = trace.meta().totals.clone().context("the recording has no totals")?;
        ensure!(
            totals.records_lost == 0,
            "{} records and {} quanta were lost",
            totals.records_lost,
            totals.quanta_lost
        );
        Ok(format!("{} records", totals.records))
    });
}
