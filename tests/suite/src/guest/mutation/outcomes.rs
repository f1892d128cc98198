//! What the driver said to the requests, by kind: so that it is seen how deep they went.

use std::collections::BTreeMap;
use std::io;

use anyhow::{Context, Result, ensure};
use libhpm::sys::probe::{ARGUMENT_WORDS, reason};
use nix::errno::Errno;

use super::IOCTLS;
use crate::guest::GuestReport;

/// The report's fact that holds them.
const FACT: &str = "outcomes";
/// An outcome that is no refusal.
const DONE: &str = "done";
/// Kinds that are no ioctl's name.
pub(super) const OPEN: &str = "open";
pub(super) const STRANGE: &str = "strange ioctl";

/// How far random requests must have come: a test whose requests only ever bounce off is to be noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::guest) enum Depth {
    /// Each ioctl was tried, a tenth of all was done, and some sessions measured. Of few requests none may have come through to some kind
    /// or area, which are for a session that is open, configured and started.
    Some,
    /// Each ioctl was refused, and was done so often at least, as every area was mapped.
    Each(u64),
}

/// How often each kind of request had each outcome.
#[derive(Debug, Default)]
pub(in crate::guest) struct Outcomes(BTreeMap<String, BTreeMap<String, u64>>);

impl Outcomes {
    /// Notes one outcome.
    pub(super) fn add(&mut self, kind: &str, outcome: String) {
        let kind = self.0.entry(kind.to_owned()).or_default();
        *kind.entry(outcome).or_default() += 1;
    }

    /// Adds another program's.
    pub(in crate::guest) fn merge(&mut self, other: Self) {
        for (kind, outcomes) in other.0 {
            let own = self.0.entry(kind).or_default();
            for (outcome, count) in outcomes {
                *own.entry(outcome).or_default() += count;
            }
        }
    }

    /// Notes what came of a request without an argument.
    pub(super) fn note<T>(&mut self, kind: &str, result: &io::Result<T>) {
        let outcome = match result {
            Ok(_) => DONE.to_owned(),
            Err(error) => errno(error),
        };
        self.add(kind, outcome);
    }

    /// Notes what came of an ioctl: the errno, and the reason that stands in its argument.
    pub(super) fn note_ioctl(
        &mut self,
        kind: &str,
        result: &io::Result<i32>,
        argument: &[u64; ARGUMENT_WORDS],
    ) {
        match (result, reason(argument)) {
            (Err(error), Some(reason)) => self.add(kind, format!("{} {reason:?}", errno(error))),
            _ => self.note(kind, result),
        }
    }

    /// Leaves them in the report.
    pub(super) fn leave(self, report: &mut GuestReport) -> Result<()> {
        report.fact(FACT, serde_json::to_value(self.0)?);
        Ok(())
    }

    /// Those that a report holds.
    ///
    /// # Errors
    /// It holds none.
    pub(in crate::guest) fn of(report: &GuestReport) -> Result<Self> {
        let fact = report.facts.get(FACT).context("the sender left no outcomes")?;
        Ok(Self(serde_json::from_value(fact.clone())?))
    }

    /// How many requests of a kind had an outcome that starts like this.
    fn count(&self, kind: &str, outcome: &str) -> u64 {
        let found = self.0.get(kind).into_iter().flatten().filter(|(name, _)| name.starts_with(outcome));
        found.map(|(_, count)| count).sum()
    }

    /// That they came so far.
    ///
    /// # Errors
    /// What was not.
    pub(in crate::guest) fn check_depth(&self, areas: &[&str], depth: Depth) -> Result<()> {
        let Depth::Each(least) = depth else {
            let all: u64 = self.0.values().flat_map(BTreeMap::values).sum();
            let done: u64 = self.0.keys().map(|kind| self.count(kind, DONE)).sum();
            let started = self.count("START", DONE);
            ensure!(
                done >= all / 10 && started >= 3,
                "{done} of {all} requests were done, START {started} times"
            );
            let untried = IOCTLS.iter().find(|(kind, _)| !self.0.contains_key(*kind));
            ensure!(untried.is_none(), "{} was never tried", untried.map_or("", |(kind, _)| kind));
            return Ok(());
        };
        for (kind, _) in IOCTLS {
            let (done, refused) = (self.count(kind, DONE), self.count(kind, "E"));
            ensure!(done >= least && refused > 0, "{kind} was done {done} times and refused {refused} times");
        }
        for area in areas {
            let done = self.count(area, DONE);
            ensure!(done >= least, "{area} was mapped {done} times only");
        }
        let reasons = self.0.get("CONFIGURE").map_or(0, BTreeMap::len) as u64;
        ensure!(reasons >= (3 + least).min(10), "CONFIGURE had {reasons} different outcomes only");
        Ok(())
    }

    /// All of them, a line for each kind.
    pub(in crate::guest) fn table(&self) -> String {
        let line = |(kind, outcomes): (&String, &BTreeMap<String, u64>)| {
            let list: Vec<String> =
                outcomes.iter().map(|(outcome, count)| format!("{outcome} {count}")).collect();
            format!("\n      {kind}: {}", list.join(", "))
        };
        self.0.iter().map(line).collect()
    }
}

fn errno(error: &io::Error) -> String {
    error
        .raw_os_error()
        .map_or_else(|| error.kind().to_string(), |errno| format!("{:?}", Errno::from_raw(errno)))
}
