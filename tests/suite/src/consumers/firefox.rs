//! The Firefox Profiler's own code, as its makers' command-line program has it: it loads the export and sums up functions.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::tools::output;

/// Events by function.
type Own = BTreeMap<String, u64>;

/// What it finds in `export.firefox.json`: of each event the sum of periods as in the table, and of the event of the folded stacks
/// each function's own share as there.
pub(super) fn check(modules: &Path, folder: &Path, events: &BTreeMap<String, (u64, u64)>) -> Result<String> {
    let program = Profiler { program: modules.join(".bin/profiler-cli"), folder };
    // It works in a process of its own, which a run that was broken off may have left.
    let _ = program.ask(&["stop"]);
    program.ask(&["load", "export.firefox.json"])?;
    let found = program.functions();
    program.ask(&["stop"])?;
    let found = found?;
    for (event, &(_, total)) in events {
        let sum: u64 = found.get(event).with_context(|| format!("it has no {event}"))?.values().sum();
        ensure!(sum == total, "{event}: it has {sum}, the table {total}");
    }
    let folded = folded(&fs::read_to_string(folder.join("export.txt"))?);
    let same = found.values().find(|functions| **functions == folded);
    let functions = same.context("no event has the functions of the folded stacks")?.len();
    Ok(format!("{functions} functions"))
}

struct Profiler<'a> {
    program: std::path::PathBuf,
    folder: &'a Path,
}

impl Profiler<'_> {
    fn ask(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(&self.program);
        output(command.args(arguments).args(["--session", "hpm"]).current_dir(self.folder))
    }

    /// Each event's functions, over all threads.
    fn functions(&self) -> Result<BTreeMap<String, Own>> {
        let threads: Value = serde_json::from_str(&self.ask(&["thread", "list", "--json"])?)?;
        let mut found: BTreeMap<String, Own> = BTreeMap::new();
        for thread in threads["threads"].as_array().context("it lists no threads")? {
            let text = |key: &str| thread[key].as_str().unwrap_or_default().to_owned();
            let (handle, name) = (text("threadHandle"), text("name"));
            // A track for each thread and event: "jaq (cpu-clock)".
            let event = name.rsplit_once(" (").map_or("", |(_, event)| event.trim_end_matches(')'));
            let listed = self.ask(&["thread", "functions", "--json", "--limit", "0", "--thread", &handle])?;
            let listed: Value = serde_json::from_str(&listed)?;
            for function in listed["functions"].as_array().context("it lists no functions")? {
                let own = function["selfSamples"].as_u64().context("a function has no events")?;
                let name = function["name"].as_str().unwrap_or_default();
                if own > 0 {
                    *found.entry(event.to_owned()).or_default().entry(name.to_owned()).or_default() += own;
                }
            }
        }
        Ok(found)
    }
}

/// The innermost functions of folded stacks.
fn folded(text: &str) -> Own {
    let mut own = Own::new();
    for (stack, events) in text.lines().filter_map(|line| line.rsplit_once(' ')) {
        let innermost = stack.rsplit(';').next().unwrap_or(stack);
        *own.entry(innermost.to_owned()).or_default() += events.parse::<u64>().unwrap_or(0);
    }
    own
}
