//! Running checks one by one and saying what came of each.

use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Passed and failed checks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    /// What is checked, printed before each check's name; empty for the host.
    subject: String,
    /// Checks that held.
    pub(crate) passed: u64,
    /// Checks that did not.
    pub(crate) failed: u64,
    /// What each of these said; those that other runners counted say nothing.
    pub(crate) failures: Vec<String>,
}

impl Tally {
    /// A tally of checks of one machine, which others run beside.
    pub(crate) fn of(subject: &str) -> Self {
        Self { subject: format!("[{subject}] "), ..Self::default() }
    }

    /// Runs one check and prints its verdict. `check` returns what it saw, or why it failed.
    pub(crate) fn run(&mut self, name: &str, check: impl FnOnce() -> anyhow::Result<String>) {
        let start = Instant::now();
        let result = check();
        let seconds = start.elapsed().as_secs_f64();
        match result {
            Ok(seen) => {
                self.passed += 1;
                println!("PASS {}{name} ({seconds:.1} s) {seen}", self.subject);
            }
            Err(error) => {
                self.failed += 1;
                println!("FAIL {}{name} ({seconds:.1} s) {error:#}", self.subject);
                self.failures.push(format!("{}{name}: {error:#}", self.subject));
            }
        }
    }

    /// Adds the totals of checks that were counted elsewhere.
    pub(crate) fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.failures.extend_from_slice(&other.failures);
    }

    /// Prints the closing line and turns it into an exit status.
    pub(crate) fn close(&self) -> std::process::ExitCode {
        println!("{} passed, {} failed", self.passed, self.failed);
        if self.failed == 0 && self.passed > 0 {
            std::process::ExitCode::SUCCESS
        } else {
            std::process::ExitCode::FAILURE
        }
    }
}
