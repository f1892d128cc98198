//! What each step of a tier came to on each machine, at which commit, and the table of it in docs/test-report.md.
//!
//! The full tier takes longer than one sitting, so that its results are kept in the repository ([`KEPT`]): a run goes on with
//! what has never run, then with what ran longest ago, and the report says of which commit each result is.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::check::Tally;
use crate::scenario::document;

/// The full tier's results, in the repository.
const KEPT: &str = "tests/suite/results.json";
const REPORT: &str = "docs/test-report.md";
const HEADING: &str = "## The full tier";

/// Results so far.
#[derive(Debug)]
pub(crate) struct Results {
    begun: Instant,
    commit: String,
    /// Where they are kept; the fast tier's are nowhere.
    kept: Option<PathBuf>,
    rows: Vec<Row>,
    /// Of this run.
    total: Tally,
}

/// The last result of a step.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    scenario: String,
    machine: String,
    /// With a plus sign where sources had been changed since.
    commit: String,
    /// When it ended, in seconds since 1970.
    ended: u64,
    seconds: u64,
    tally: Tally,
}

/// What a step's last result says about running it again: the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// It has never run.
    Open,
    /// It ended then, at another commit or with failures.
    Old(u64),
    /// It passed at this commit.
    Done,
}

impl Results {
    /// None yet, of the workspace at `root` as it is now, and kept nowhere.
    pub(crate) fn begin(root: &Path) -> Self {
        let total = Tally::default();
        Self { begun: Instant::now(), commit: commit(root), kept: None, rows: Vec::new(), total }
    }

    /// Those that the repository has of the full tier.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn of_full_tier(root: &Path) -> Result<Self> {
        let kept = root.join(KEPT);
        Ok(Self { rows: read(&kept)?, kept: Some(kept), ..Self::begin(root) })
    }

    /// How a step stands.
    pub(crate) fn standing(&self, scenario: &str, machine: &str) -> Standing {
        match self.rows.iter().find(|row| row.is_of(scenario, machine)) {
            None => Standing::Open,
            Some(row) if row.passed_at(&self.commit) => Standing::Done,
            Some(row) => Standing::Old(row.ended),
        }
    }

    /// Runs a step on a machine; its result replaces the last one.
    pub(crate) fn run(&mut self, scenario: &str, machine: &str, check: impl FnOnce(&mut Tally)) {
        let begun = Instant::now();
        let mut tally = Tally::of(machine);
        check(&mut tally);
        self.total.add(&tally);
        let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.rows.retain(|row| !row.is_of(scenario, machine));
        self.rows.push(Row {
            scenario: scenario.to_owned(),
            machine: machine.to_owned(),
            commit: self.commit.clone(),
            ended,
            seconds: begun.elapsed().as_secs(),
            tally,
        });
        let Tally { passed, failed, .. } = self.total;
        println!("---- {passed} passed, {failed} failed so far, {} min", self.elapsed().as_secs() / 60);
    }

    /// Leaves out steps that the tier does not have any more, keeps the others, and writes docs/test-report.md.
    ///
    /// # Errors
    /// A file cannot be written.
    pub(crate) fn publish(&mut self, root: &Path, steps: &[(String, String)]) -> Result<()> {
        if let Some(kept) = self.kept.clone() {
            self.take_in(read(&kept)?);
            self.rows.retain(|row| steps.iter().any(|(scenario, machine)| row.is_of(scenario, machine)));
            self.rows.sort_by(|a, b| (&a.machine, &a.scenario).cmp(&(&b.machine, &b.scenario)));
            let text = serde_json::to_string_pretty(&self.rows)? + "\n";
            fs::write(&kept, text).with_context(|| format!("writing {}", kept.display()))?;
        }
        document::replace_in(&root.join(REPORT), HEADING, &self.text(steps))
    }

    /// Takes in what another run has written meanwhile.
    fn take_in(&mut self, rows: Vec<Row>) {
        for row in rows {
            match self.rows.iter_mut().find(|own| own.is_of(&row.scenario, &row.machine)) {
                Some(own) if own.ended < row.ended => *own = row,
                Some(_) => {}
                None => self.rows.push(row),
            }
        }
    }

    /// How long this run has lasted.
    pub(crate) fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    /// All checks of this run.
    pub(crate) fn total(&self) -> &Tally {
        &self.total
    }

    /// The report's section, for a tier of so many steps.
    fn text(&self, steps: &[(String, String)]) -> String {
        let sum = |of: fn(&Row) -> u64| self.rows.iter().map(of).sum::<u64>();
        let mut text = format!(
            "{HEADING}\n\nWritten by `make test-full`. It takes hours: a run (`target/release/suite full --minutes N` for a part of it) \
             goes on with what has never run, then with what ran longest ago and has not passed at this commit. Each result is of the commit that stands with \
             it; a plus sign says that sources had been changed since.\n\n\
             | steps | never run | minutes | checks passed | failed |\n|---|---|---|---|---|\n| {} | {} | {} | {} | {} |\n",
            steps.len(),
            steps.len() - self.rows.len(),
            sum(|row| row.seconds).div_ceil(60),
            sum(|row| row.tally.passed),
            sum(|row| row.tally.failed)
        );
        let is_open = |(scenario, machine): &&(String, String)| {
            !self.rows.iter().any(|row| row.is_of(scenario, machine))
        };
        let open: Vec<String> = steps
            .iter()
            .filter(is_open)
            .map(|(scenario, machine)| format!("{scenario} on {machine}"))
            .collect();
        if !open.is_empty() {
            let _ = writeln!(text, "\nNever run: {}.", open.join(", "));
        }
        self.table(&mut text);
        self.failures(&mut text);
        text
    }

    /// A line for each machine and commit, with its steps.
    fn table(&self, text: &mut String) {
        let mut lines: BTreeMap<(&str, u64, &str), Vec<String>> = BTreeMap::new();
        for row in &self.rows {
            let of_commit = self.rows.iter().filter(|other| other.commit == row.commit);
            let last = of_commit.map(|other| other.ended).max().unwrap_or(row.ended);
            lines.entry((&row.machine, last, &row.commit)).or_default().push(cell(row));
        }
        *text += "\nPassed checks by machine (profile, CPUs, what else is special) and step; with failed ones as passed + failed.\n\n\
                  | machine | commit | checks |\n|---|---|---|\n";
        for ((machine, _, commit), cells) in lines {
            let _ = writeln!(text, "| {machine} | {} | {} |", short(commit), cells.join(", "));
        }
    }

    fn failures(&self, text: &mut String) {
        let failed = self.rows.iter().flat_map(|row| &row.tally.failures);
        let lines: Vec<&str> = failed.filter_map(|failure| failure.lines().next()).collect();
        if !lines.is_empty() {
            *text += "\n### Failed checks\n\n";
            lines.iter().for_each(|line| *text += &format!("- {line}\n"));
        }
    }
}

fn read(kept: &Path) -> Result<Vec<Row>> {
    match fs::read(kept) {
        Ok(text) => serde_json::from_slice(&text).with_context(|| kept.display().to_string()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("reading {}", kept.display())),
    }
}

impl Row {
    fn is_of(&self, scenario: &str, machine: &str) -> bool {
        self.scenario == scenario && self.machine == machine
    }

    /// Whether it passed, and the sources were this commit's.
    fn passed_at(&self, commit: &str) -> bool {
        self.tally.failed == 0 && self.commit == commit && !commit.ends_with('+')
    }
}

/// The workspace's commit; what the suite itself writes counts as no change.
fn commit(root: &Path) -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).current_dir(root).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(head) = git(&["rev-parse", "HEAD"]) else { return "unknown+".to_owned() };
    let results = format!(":!{KEPT}");
    let changes = git(&["status", "--porcelain", "--", ".", ":!docs", &results]);
    head + if changes.is_none_or(|changes| !changes.is_empty()) { "+" } else { "" }
}

/// As people name it.
fn short(commit: &str) -> String {
    let changed = if commit.ends_with('+') { "+" } else { "" };
    format!("{}{changed}", commit.trim_end_matches('+').chars().take(7).collect::<String>())
}

fn cell(row: &Row) -> String {
    let Tally { passed, failed, .. } = row.tally;
    match failed {
        0 => format!("{} {passed}", row.scenario),
        _ => format!("**{} {passed} + {failed}**", row.scenario),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scenario: &str, machine: &str, tally: &Tally) -> Row {
        let (scenario, machine) = (scenario.to_owned(), machine.to_owned());
        Row { scenario, machine, commit: "c0ffee0123".into(), ended: 7, seconds: 61, tally: tally.clone() }
    }

    fn results(rows: Vec<Row>, commit: &str) -> Results {
        let total = Tally::default();
        Results { begun: Instant::now(), commit: commit.into(), kept: None, rows, total }
    }

    #[test]
    fn the_report_has_a_line_for_each_machine_and_names_what_failed_and_what_never_ran() {
        let mut tally = Tally::of("skylake-1");
        tally.run("exact", || Ok(String::new()));
        let mut rows = vec![row("counting", "skylake-1", &tally), row("counting", "nehalem-1", &tally)];
        tally.run("a check", || anyhow::bail!("no"));
        rows.push(row("sampling", "skylake-1", &tally));
        let ran = rows.iter().map(|row| (row.scenario.clone(), row.machine.clone()));
        let steps: Vec<_> = ran.chain([("judge".to_owned(), "haswell-1".to_owned())]).collect();
        let text = results(rows, "c0ffee0123").text(&steps);
        assert!(text.contains("\nNever run: judge on haswell-1.\n"), "{text}");
        assert!(text.contains("| 4 | 1 | 4 | 3 | 1 |"), "{text}");
        assert!(text.contains("| skylake-1 | c0ffee0 | counting 1, **sampling 1 + 1** |"), "{text}");
        assert!(text.contains("- [skylake-1] a check: no\n"), "{text}");
    }

    #[test]
    fn what_never_ran_comes_first_and_what_passed_at_this_commit_is_done() {
        let mut tally = Tally::default();
        tally.run("exact", || Ok(String::new()));
        let mut failed = tally.clone();
        failed.run("a check", || anyhow::bail!("no"));
        let rows = vec![row("counting", "skylake-1", &tally), row("sampling", "skylake-1", &failed)];
        let standings = |commit: &str| {
            let results = results(rows.clone(), commit);
            ["counting", "sampling", "judge"].map(|scenario| results.standing(scenario, "skylake-1"))
        };
        assert_eq!(standings("c0ffee0123"), [Standing::Done, Standing::Old(7), Standing::Open]);
        assert_eq!(standings("another"), [Standing::Old(7), Standing::Old(7), Standing::Open]);
        assert!(Standing::Open < Standing::Old(0) && Standing::Old(7) < Standing::Old(8));
        assert!(Standing::Old(u64::MAX) < Standing::Done);
    }

    /// An empty repository's folder.
    fn repository() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for part in ["tests/suite", "docs"] {
            fs::create_dir_all(folder.path().join(part)).unwrap();
        }
        fs::write(folder.path().join(REPORT), "# Test report\n").unwrap();
        folder
    }

    fn run_and_publish(results: &mut Results, scenarios: &[&str], root: &Path) {
        let step = |scenario: &&str| ((*scenario).to_owned(), "skylake-1".to_owned());
        for scenario in scenarios {
            results.run(scenario, "skylake-1", |tally| tally.run("exact", || Ok(String::new())));
        }
        results.publish(root, &["counting", "judge"].iter().map(step).collect::<Vec<_>>()).unwrap();
    }

    #[test]
    fn results_are_kept_and_a_step_has_one() {
        let folder = repository();
        for _ in 0..2 {
            let mut results = Results::of_full_tier(folder.path()).unwrap();
            run_and_publish(&mut results, &["counting", "gone"], folder.path());
        }
        let results = Results::of_full_tier(folder.path()).unwrap();
        assert_eq!(results.rows.len(), 1);
        // There is no repository, so that nobody knows whether sources have changed.
        assert!(matches!(results.standing("counting", "skylake-1"), Standing::Old(1..)));
        let report = fs::read_to_string(folder.path().join(REPORT)).unwrap();
        assert!(report.contains("| skylake-1 | unknown+ | counting 1 |"), "{report}");
    }

    #[test]
    fn what_another_run_has_found_meanwhile_is_kept() {
        let folder = repository();
        let [mut one, mut other] = [(); 2].map(|()| Results::of_full_tier(folder.path()).unwrap());
        run_and_publish(&mut other, &["judge"], folder.path());
        run_and_publish(&mut one, &["counting"], folder.path());
        let report = fs::read_to_string(folder.path().join(REPORT)).unwrap();
        assert!(report.contains("counting 1, judge 1 |"), "{report}");
    }
}
