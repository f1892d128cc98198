//! What each scenario came to on each machine: the table of docs/test-report.md.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::check::Tally;

/// Results so far. They are kept in a file below target/ too, so that a run that is broken off can be gone on with.
#[derive(Debug)]
pub(crate) struct Results {
    begun: Instant,
    kept: PathBuf,
    of: Kept,
}

/// What the file holds.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    commit: String,
    /// Time that earlier parts of the run took.
    seconds: u64,
    rows: Vec<Row>,
}

#[derive(Debug, Serialize, Deserialize)]
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
        let of = Kept { commit: commit.unwrap_or_default(), ..Kept::default() };
        Self { begun: Instant::now(), kept: root.join("target/suite/results.json"), of }
    }

    /// Those of a run that was broken off, but for scenarios that failed.
    ///
    /// # Errors
    /// There are none, or they are of another commit.
    pub(crate) fn resume(root: &Path) -> Result<Self> {
        let mut results = Self::begin(root);
        let text =
            std::fs::read(&results.kept).context("there is no run to go on with: leave --resume out")?;
        let kept: Kept = serde_json::from_slice(&text).with_context(|| results.kept.display().to_string())?;
        let (then, now) = (&kept.commit, &results.of.commit);
        ensure!(then == now, "the run to go on with was of commit {then}, this is {now}: leave --resume out");
        results.of = kept;
        results.of.rows.retain(|row| row.tally.failed == 0);
        Ok(results)
    }

    /// Runs a scenario on a machine, if an earlier part of the run has not.
    pub(crate) fn run(&mut self, scenario: &str, machine: &str, check: impl FnOnce(&mut Tally)) {
        let is_it = |row: &Row| row.scenario == scenario && row.machine == machine;
        if self.of.rows.iter().any(is_it) {
            println!("---- {scenario} on {machine} has passed before");
            return;
        }
        let mut tally = Tally::of(machine);
        check(&mut tally);
        self.of.rows.push(Row { scenario: scenario.to_owned(), machine: machine.to_owned(), tally });
        let (total, minutes) = (self.total(), self.seconds() / 60);
        println!("---- {} passed, {} failed so far, {minutes} min", total.passed, total.failed);
        if let Err(error) = self.keep() {
            println!("---- {error:#}");
        }
    }

    fn keep(&self) -> Result<()> {
        let Kept { commit, rows, .. } = &self.of;
        let seconds = self.seconds();
        write(
            &self.kept,
            &serde_json::json!({"commit": commit, "seconds": seconds, "rows": rows}).to_string(),
        )
    }

    fn seconds(&self) -> u64 {
        self.of.seconds + self.begun.elapsed().as_secs()
    }

    /// Whether a scenario has passed, on whichever machine.
    pub(crate) fn passed(&self, scenario: &str) -> bool {
        self.of.rows.iter().any(|row| row.scenario == scenario && row.tally.failed == 0)
    }

    /// All checks.
    pub(crate) fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.of.rows.iter().for_each(|row| total.add(&row.tally));
        total
    }

    /// Writes docs/test-report.md.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn publish(&self, root: &Path) -> Result<()> {
        write(&root.join("docs/test-report.md"), &self.text())
    }

    fn text(&self) -> String {
        let total = self.total();
        let mut text = format!(
            "# Test report\n\nLast run of `make test-full`.\n\n| commit | duration | passed | failed |\n|---|---|---|---|\n\
             | {} | {} min | {} | {} |\n\nPassed checks by machine (profile, CPUs, what else is special) and scenario; with failed \
             ones as passed + failed.\n",
            self.of.commit,
            self.seconds().div_ceil(60),
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
        for machine in self.of.rows.iter().map(|row| &row.machine).filter(|machine| done.insert(*machine)) {
            let of_machine = self.of.rows.iter().filter(|row| row.machine == *machine);
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
        let of = Kept { commit: "c0ffee".into(), seconds: 61, rows };
        let text = Results { begun: Instant::now(), kept: PathBuf::new(), of }.text();
        assert!(text.contains("| c0ffee | 2 min | 3 | 1 |"), "{text}");
        assert!(text.contains("| skylake-1 | counting 1, **sampling 1 + 1** |"), "{text}");
        assert!(text.contains("- [skylake-1] a check: no\n"), "{text}");
    }

    #[test]
    fn a_run_goes_on_with_what_has_not_passed() {
        let folder = tempfile::tempdir().unwrap();
        let mut first = Results::begin(folder.path());
        first.run("counting", "skylake-1", |tally| tally.run("exact", || Ok(String::new())));
        first.run("sampling", "skylake-1", |tally| tally.run("a check", || anyhow::bail!("no")));
        let mut second = Results::resume(folder.path()).unwrap();
        second.run("counting", "skylake-1", |_| panic!("it has passed"));
        second.run("sampling", "skylake-1", |tally| tally.run("a check", || Ok(String::new())));
        assert_eq!((second.total().passed, second.total().failed), (2, 0));
        second.of.commit = "another".into();
        second.keep().unwrap();
        assert!(Results::resume(folder.path()).unwrap_err().to_string().contains("leave --resume out"));
    }
}
