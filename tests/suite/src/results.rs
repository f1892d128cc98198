//! What each scenario came to on each machine: the table of docs/test-report.md.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::check::Tally;

/// Results so far. They are kept in a file below target/ too, so that a run that is broken off has not been for nothing.
#[derive(Debug)]
pub(crate) struct Results {
    begun: Instant,
    commit: String,
    so_far: PathBuf,
    rows: Vec<Row>,
}

#[derive(Debug)]
struct Row {
    scenario: String,
    machine: String,
    tally: Tally,
}

impl Results {
    /// None yet, of the workspace at `root` as it is now.
    pub(crate) fn begin(root: &Path) -> Self {
        let commit = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root).output();
        let commit = commit.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        Self {
            begun: Instant::now(),
            commit: commit.unwrap_or_default(),
            so_far: root.join("target/suite/test-report.md"),
            rows: Vec::new(),
        }
    }

    /// Adds what a scenario came to on a machine.
    pub(crate) fn add(&mut self, scenario: &str, machine: &str, tally: &Tally) {
        let row = Row { scenario: scenario.to_owned(), machine: machine.to_owned(), tally: tally.clone() };
        self.rows.push(row);
        let total = self.total();
        let minutes = self.begun.elapsed().as_secs() / 60;
        println!("---- {} passed, {} failed so far, {minutes} min", total.passed, total.failed);
        if let Err(error) = write(&self.so_far, &self.text(self.begun.elapsed())) {
            println!("---- {error:#}");
        }
    }

    /// All checks.
    pub(crate) fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.rows.iter().for_each(|row| total.add(&row.tally));
        total
    }

    /// Writes docs/test-report.md.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn publish(&self, root: &Path) -> Result<()> {
        write(&root.join("docs/test-report.md"), &self.text(self.begun.elapsed()))
    }

    fn text(&self, elapsed: Duration) -> String {
        let total = self.total();
        let mut text = format!(
            "# Test report\n\nLast run of `make test-full`.\n\n| commit | duration | passed | failed |\n|---|---|---|---|\n\
             | {} | {} min | {} | {} |\n\nPassed checks by machine (profile, CPUs, what else is special) and scenario; with failed \
             ones as passed + failed.\n",
            self.commit,
            elapsed.as_secs().div_ceil(60),
            total.passed,
            total.failed
        );
        self.table(&mut text);
        if total.failed > 0 {
            text += "\n## Failed checks\n\n";
            for failure in &total.failures {
                text += &format!("- {}\n", failure.lines().next().unwrap_or_default());
            }
        }
        text
    }

    /// A line for each machine, with its scenarios.
    fn table(&self, text: &mut String) {
        *text += "\n| machine | checks |\n|---|---|\n";
        let mut done = BTreeSet::new();
        for machine in self.rows.iter().map(|row| &row.machine).filter(|machine| done.insert(*machine)) {
            let of_machine = self.rows.iter().filter(|row| row.machine == *machine);
            let cells: Vec<String> = of_machine.map(cell).collect();
            let _ = writeln!(text, "| {machine} | {} |", cells.join(", "));
        }
    }
}

fn cell(row: &Row) -> String {
    let Tally { passed, failed, .. } = row.tally;
    match failed {
        0 => format!("{} {passed}", row.scenario),
        _ => format!("**{} {passed} + {failed}**", row.scenario),
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_has_a_line_for_each_machine_and_names_what_failed() {
        let mut tally = Tally::of("skylake-1");
        tally.run("exact", || Ok(String::new()));
        let row = |scenario: &str, machine: &str, tally: &Tally| Row {
            scenario: scenario.into(),
            machine: machine.into(),
            tally: tally.clone(),
        };
        let mut rows = vec![row("counting", "skylake-1", &tally), row("counting", "nehalem-1", &tally)];
        tally.run("a check", || anyhow::bail!("no"));
        rows.push(row("sampling", "skylake-1", &tally));
        let results =
            Results { begun: Instant::now(), commit: "c0ffee".into(), so_far: PathBuf::new(), rows };
        let text = results.text(Duration::from_secs(61));
        assert!(text.contains("| c0ffee | 2 min | 3 | 1 |"), "{text}");
        assert!(text.contains("| skylake-1 | counting 1, **sampling 1 + 1** |"), "{text}");
        assert!(text.contains("- [skylake-1] a check: no\n"), "{text}");
    }
}
