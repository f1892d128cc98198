//! Sums over a session, and over a part of it.

use hpm_abi::QuantumFlags;
use serde::{Deserialize, Serialize};

use super::row::QuantumRow;

/// Sums over a session: what [`hpm_abi::Totals`] gives, and what user space lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// What each event counted, lost quanta included.
    pub counts: Vec<u64>,
    /// TSC ticks during which each event was counted; less than `on_cpu_tsc` for one that had to take turns. Empty where
    /// that is not known. On cores of a type that does not have the event, its turns are taken to have been as they were on the others
    /// ([`running_tsc`]).
    #[serde(default)]
    pub running_tsc: Vec<u64>,
    /// TSC ticks during which some thread of the session was on a CPU, summed over CPUs.
    pub on_cpu_tsc: u64,
    /// Quanta published.
    pub quanta: u64,
    /// Quanta that found no room; `counts` has what they counted.
    pub quanta_lost: u64,
    /// Records that were written.
    pub records: u64,
    /// Records that could not be written, or were held back (events / period).
    pub records_lost: u64,
    /// Records that were written and are not shown, because the kernel showed in them and the user may not see it, or
    /// nobody can read them.
    #[serde(default)]
    pub records_withheld: u64,
    /// Processes forked by measured ones that are not measured, because the driver's table was full.
    #[serde(default)]
    pub processes_left_out: u64,
    /// Quanta in which the driver held samples back, because interrupts or records came faster than its ceilings; by perf_event how
    /// often the kernel did so.
    #[serde(default)]
    pub throttled: u64,
    /// Records that named no counter of a sampled event, or in formats 1 and 2 several, and are not among the samples.
    #[serde(default)]
    pub records_unattributed: u64,
    /// Stacks of samples that found no room in the driver's ring; the samples are there.
    #[serde(default)]
    pub stacks_lost: u64,
    /// Performance-monitoring interrupts handled.
    pub pmis: u64,
    /// RDMSR and RDPMC executed for the measurement.
    #[serde(default)]
    pub msr_reads: u64,
    /// WRMSR executed for the measurement.
    #[serde(default)]
    pub msr_writes: u64,
    /// Threads that found no place in the driver's thread table.
    pub threads_overflowed: u64,
    /// Markers that were set and found no room.
    pub markers_lost: u64,
    /// Reports of mappings, names, forks and exits that the kernel had no room for.
    pub sideband_lost: u64,
}

impl Totals {
    /// Takes a quantum into account, for sums of what a trace or a part of it holds.
    pub fn add_quantum(&mut self, row: &QuantumRow) {
        self.quanta += 1;
        self.records = self.records.saturating_add(row.records.into());
        self.records_lost = self.records_lost.saturating_add(row.records_lost);
        self.on_cpu_tsc = self.on_cpu_tsc.saturating_add(row.end_tsc.saturating_sub(row.start_tsc));
        self.throttled += u64::from(row.flags & QuantumFlags::THROTTLED != 0);
        self.counts.resize(self.counts.len().max(row.counts.len()), 0);
        for (sum, count) in self.counts.iter_mut().zip(&row.counts) {
            *sum = sum.saturating_add(*count);
        }
    }

    /// TSC ticks during which an event was counted. Sums that do not tell, as those of a trace's quanta, are of events that were
    /// on all the time.
    pub(super) fn running(&self, event: usize) -> u64 {
        self.running_tsc.get(event).copied().unwrap_or(self.on_cpu_tsc)
    }

    /// Adds the sums of another session, or of another part of the same.
    pub fn add(&mut self, other: &Self) {
        *self = self.with(other, u64::saturating_add);
    }

    /// What came between `before` and these sums of the same session.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        self.with(before, u64::saturating_sub)
    }

    /// Each sum with the other's.
    fn with(&self, other: &Self, of: fn(u64, u64) -> u64) -> Self {
        let count = |totals: &Self, event: usize| totals.counts.get(event).copied().unwrap_or(0);
        let (counts, turns) =
            (self.counts.len().max(other.counts.len()), self.running_tsc.len().max(other.running_tsc.len()));
        Self {
            counts: (0..counts).map(|event| of(count(self, event), count(other, event))).collect(),
            running_tsc: (0..turns).map(|event| of(self.running(event), other.running(event))).collect(),
            on_cpu_tsc: of(self.on_cpu_tsc, other.on_cpu_tsc),
            quanta: of(self.quanta, other.quanta),
            quanta_lost: of(self.quanta_lost, other.quanta_lost),
            records: of(self.records, other.records),
            records_lost: of(self.records_lost, other.records_lost),
            records_withheld: of(self.records_withheld, other.records_withheld),
            processes_left_out: of(self.processes_left_out, other.processes_left_out),
            throttled: of(self.throttled, other.throttled),
            records_unattributed: of(self.records_unattributed, other.records_unattributed),
            stacks_lost: of(self.stacks_lost, other.stacks_lost),
            pmis: of(self.pmis, other.pmis),
            msr_reads: of(self.msr_reads, other.msr_reads),
            msr_writes: of(self.msr_writes, other.msr_writes),
            threads_overflowed: of(self.threads_overflowed, other.threads_overflowed),
            markers_lost: of(self.markers_lost, other.markers_lost),
            sideband_lost: of(self.sideband_lost, other.sideband_lost),
        }
    }
}

/// [`Totals::running_tsc`] of an event of which nothing was missed in `complete` of `on_cpu` ticks, and which could not occur in `absent` of
/// these, because only cores of another type have it: its count is scaled by what it had on those that do.
#[must_use]
pub fn running_tsc(on_cpu: u64, complete: u64, absent: u64) -> u64 {
    match on_cpu.saturating_sub(absent) {
        0 => on_cpu,
        present => share(on_cpu, complete.saturating_sub(absent), present),
    }
}

/// `whole` times `part` of `all`.
pub(crate) fn share(whole: u64, part: u64, all: u64) -> u64 {
    let product = u128::from(whole) * u128::from(part);
    product.checked_div(all.into()).map_or(0, |share| share as u64)
}

/// The totals of a trace that holds a part of a session: the sums of its quanta, and what the session lost meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Sums of its quanta.
    quanta: Totals,
    /// What came in the stretches of the session that belong to it.
    meanwhile: Totals,
    /// The session's sums when it was last looked at.
    seen: Totals,
}

impl Part {
    /// Begins where the session has these sums.
    #[must_use]
    pub fn beginning(now: Totals) -> Self {
        Self { seen: now, ..Self::default() }
    }

    /// Takes a quantum of the trace into account.
    pub fn add_quantum(&mut self, row: &QuantumRow) {
        self.quanta.add_quantum(row);
    }

    /// The session has these sums now; what came since the last look belongs to the part, unless it was left out.
    pub fn look(&mut self, now: Totals, left_out: bool) {
        if !left_out {
            self.meanwhile.add(&now.since(&self.seen));
        }
        self.seen = now;
    }

    /// The totals of the part, which ends with the last look; another one begins.
    pub fn end(&mut self) -> Totals {
        let quanta = std::mem::take(&mut self.quanta);
        Totals {
            // What the session has counted may be in quanta that are yet to come.
            counts: quanta.counts,
            quanta: quanta.quanta,
            records: quanta.records,
            // What was not reported or not followed before is missing here, too.
            processes_left_out: self.seen.processes_left_out,
            sideband_lost: self.seen.sideband_lost,
            ..std::mem::take(&mut self.meanwhile)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_those_on_cores_that_have_the_event() {
        assert_eq!((running_tsc(100, 100, 0), running_tsc(100, 30, 0)), (100, 30));
        // On the other 40 ticks' cores it was on for half of the time.
        assert_eq!((running_tsc(100, 80, 60), running_tsc(100, 100, 60)), (50, 100));
        assert_eq!((running_tsc(100, 100, 100), running_tsc(0, 0, 0)), (100, 0), "it cannot have occurred");
    }

    fn totals(count: u64, ticks: u64) -> Totals {
        Totals {
            counts: vec![count, 2 * count],
            running_tsc: vec![ticks, ticks / 2],
            on_cpu_tsc: ticks,
            ..Totals::default()
        }
    }

    #[test]
    fn what_came_between_two_sums() {
        assert_eq!(totals(100, 40).since(&totals(30, 10)), totals(70, 30));
        let untold = Totals { running_tsc: vec![], ..totals(30, 10) };
        assert_eq!(totals(100, 40).since(&untold).running_tsc, [30, 10]);
        assert_eq!(totals(100, 40).since(&Totals::default()), totals(100, 40), "the first one");
    }

    #[test]
    fn a_part_has_the_sums_of_its_quanta_and_the_losses_of_its_time() {
        let now = |lost, ticks| Totals {
            quanta_lost: lost,
            records_lost: lost,
            sideband_lost: lost,
            ..totals(100 * lost, ticks)
        };
        let mut part = Part::beginning(now(1, 10));
        part.add_quantum(&QuantumRow { counts: vec![2, 3], end_tsc: 5, ..QuantumRow::default() });
        part.look(now(3, 30), false);
        part.look(now(10, 70), true);
        part.look(now(11, 80), false);
        let first = part.end();
        assert_eq!((first.quanta, first.quanta_lost, first.records_lost), (1, 3, 3));
        assert_eq!(
            (&first.counts[..], &first.running_tsc[..], first.on_cpu_tsc),
            (&[2, 3][..], &[30, 15][..], 30)
        );
        assert_eq!(first.sideband_lost, 11, "what was not told before is not known later");
        part.look(now(12, 90), false);
        let second = part.end();
        assert_eq!((second.quanta, second.quanta_lost, second.on_cpu_tsc), (0, 1, 10));
    }
}
