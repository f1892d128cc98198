//! Running checks one by one and saying what came of each.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::guest::GuestCheck;

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
        self.judge(name, start.elapsed().as_secs_f64(), result);
    }

    /// Takes in the checks that the guest part of `scenario` made.
    pub(crate) fn take_in(&mut self, scenario: &str, checks: &[GuestCheck]) {
        for GuestCheck { name, verdict, seconds } in checks {
            self.judge(&format!("{scenario}: {name}"), *seconds, verdict.clone().map_err(anyhow::Error::msg));
        }
    }

    /// Counts and prints one verdict.
    fn judge(&mut self, name: &str, seconds: f64, result: anyhow::Result<String>) {
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
