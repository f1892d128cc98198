//! A session as one CPU sees it.

use super::abi::{CounterPage, CpuControl, CpuStatus, SessionConfig, Totals, EVENTS_MAX};
use super::counters::PageKeys;
use super::guard::Limits;
use super::interrupt::Handled;
use super::markers::Markers;
use super::period::Periods;
use super::port::Rings;
use super::quantum::Stay;
use super::rings::Ring;
use super::segments::Segments;
use super::threads::Threads;
use super::turns::Turn;
use super::Program;

/// Who runs: numbers in the root PID namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// Thread-group ID.
    pub pid: u32,
    /// Thread ID; 0 for a CPU's idle thread.
    pub tid: u32,
}

/// What one session has used and seen on one CPU. Written by that CPU only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTotals {
    /// Sum of each event's count.
    pub counts: [u64; EVENTS_MAX],
    /// TSC ticks during which a thread of the session was on the CPU and the PMU the session's, up to the last cut.
    pub on_cpu_tsc: u64,
    /// As that, the PMU having been another session's.
    pub lent_tsc: u64,
    /// Of `on_cpu_tsc`, the ticks during which each event waited for its turn.
    pub waiting_tsc: [u64; EVENTS_MAX],
    /// Records in published quanta.
    pub records: u64,
    /// Quanta that found no room.
    pub quanta_lost: u64,
    /// Records that found no segment, or belonged to a quantum that found no room.
    pub records_lost: u64,
    /// Records that were written and are not shown, because the kernel showed in them or nobody can read them.
    pub records_withheld: u64,
    /// PMIs handled.
    pub pmis: u64,
    /// RDMSR and RDPMC executed.
    pub msr_reads: u64,
    /// WRMSR executed.
    pub msr_writes: u64,
    /// Quanta in which samples were held back.
    pub throttled: u64,
}

/// The state of one session on one CPU: kept by the shell for as long as the session lives, used by that CPU only.
#[derive(Clone, Copy, Debug)]
pub struct CpuSession {
    /// Sums.
    pub(super) totals: CpuTotals,
    /// What the quantum that was closed last counted; here, because to clear as many at each cut would cost more than to count a few.
    pub(super) counts: [u64; EVENTS_MAX],
    pub(super) quanta: Ring,
    pub(super) stacks: Ring,
    pub(super) segments: Segments,
    pub(super) markers: Markers,
    /// What interrupts have done since the last cut.
    pub(super) handled: Handled,
    pub(super) periods: Periods,
    /// Number of the next quantum; lost ones are numbered too.
    pub(super) sequence: u64,
    /// The turn that the next new thread begins with, so that threads too short for two turns do not all have the first.
    pub(super) next_turn: u8,
    /// The quantum before the next one was lost.
    pub(super) lost_before: bool,
    /// A bit for each event that only cores of another type than this CPU's have: known for sure once something has run, as a CPU may first
    /// come when the session is there.
    pub(super) absent: u16,
    /// TSC up to which it has been told that it waits.
    pub(super) told_tsc: u64,
}

impl CpuSession {
    /// The state before anything has run.
    #[must_use]
    pub fn new(program: &Program) -> Self {
        let config = program.config();
        Self {
            totals: CpuTotals {
                counts: [0; EVENTS_MAX],
                on_cpu_tsc: 0,
                lent_tsc: 0,
                waiting_tsc: [0; EVENTS_MAX],
                records: 0,
                quanta_lost: 0,
                records_lost: 0,
                records_withheld: 0,
                pmis: 0,
                msr_reads: 0,
                msr_writes: 0,
                throttled: 0,
            },
            counts: [0; EVENTS_MAX],
            quanta: Ring::new(config.quanta),
            stacks: Ring::new(config.stack_ring_bytes),
            segments: Segments::new(config.segment_count(), program.filled_bytes()),
            markers: Markers::new(config.markers),
            handled: Handled::NONE,
            periods: Periods::new(program),
            sequence: 0,
            next_turn: 0,
            lost_before: false,
            absent: program.absent(),
            told_tsc: 0,
        }
    }

    /// The turn of a thread that has not had one, of `turns`.
    pub(super) fn new_turn(&mut self, turns: usize) -> Turn {
        let number = self.next_turn;
        self.next_turn = if usize::from(number) + 1 < turns { number + 1 } else { 0 };
        Turn { number, used: 0 }
    }

    /// This CPU's share, up to the last cut.
    #[must_use]
    pub const fn totals(&self) -> &CpuTotals {
        &self.totals
    }

    /// What user space is told.
    #[must_use]
    pub const fn status(&self) -> CpuStatus {
        CpuStatus {
            quanta_produced: self.quanta.produced(),
            segments_begun: self.segments.begun(),
            stack_produced: self.stacks.produced(),
            quanta_lost: self.totals.quanta_lost,
            records_lost: self.totals.records_lost,
            records_withheld: self.totals.records_withheld,
            markers_produced: self.markers.ring.produced(),
            markers_lost: self.markers.lost,
            periods: *self.periods.in_use(),
        }
    }

    /// Quanta, segments, markers and bytes of stacks until now: of [`CpuSession::status`] what a reader may wait for.
    #[must_use]
    pub const fn produced(&self) -> [u64; 4] {
        let (markers, stacks) = (self.markers.ring.produced(), self.stacks.produced());
        [self.quanta.produced(), self.segments.begun(), markers, stacks]
    }

    /// Adds this CPU's share to a session's totals.
    pub fn add_to(&self, totals: &mut Totals) {
        for (sum, count) in totals.counts.iter_mut().zip(self.totals.counts) {
            *sum += count;
        }
        let all_tsc = self.totals.on_cpu_tsc + self.totals.lent_tsc;
        totals.on_cpu_tsc += all_tsc;
        for (event, waiting) in self.totals.waiting_tsc.iter().enumerate() {
            let absent = u64::from(self.absent >> event & 1);
            totals.absent_tsc[event] += absent * all_tsc;
            // Nothing is missed of what cannot occur here.
            totals.running_tsc[event] +=
                self.totals.on_cpu_tsc.saturating_sub(*waiting) + absent * self.totals.lent_tsc;
        }
        totals.quanta += self.quanta.produced();
        totals.quanta_lost += self.totals.quanta_lost;
        totals.records += self.totals.records;
        totals.records_lost += self.totals.records_lost;
        totals.records_withheld += self.totals.records_withheld;
        totals.markers += self.markers.ring.produced();
        totals.markers_lost = totals.markers_lost.saturating_add(self.markers.lost);
        totals.pmis += self.totals.pmis;
        totals.msr_reads += self.totals.msr_reads;
        totals.msr_writes += self.totals.msr_writes;
        totals.throttled += self.totals.throttled;
    }
}

/// By how much [`CpuSession::produced`] grows while a ring fills by a quarter, of each ring; `u64::MAX` of one that is not there. Readers
/// should not wait any longer then.
#[must_use]
pub fn quarters(config: &SessionConfig) -> [u64; 4] {
    let quarter = |size: u32| if size == 0 { u64::MAX } else { u64::from(size / 4) };
    // Of the segments that were begun the last one is not full.
    let segments = quarter(config.segment_count()).saturating_add(1);
    [quarter(config.quanta), segments, quarter(config.markers), quarter(config.stack_ring_bytes)]
}

/// Whether one of the rings has filled by one of these [`quarters`] from when [`CpuSession::produced`] was `told` to when it was `produced`.
#[must_use]
pub fn has_filled(quarters: &[u64; 4], told: &[u64; 4], produced: &[u64; 4]) -> bool {
    let since = told.iter().zip(produced).map(|(told, produced)| produced.wrapping_sub(*told));
    quarters.iter().zip(since).any(|(quarter, since)| since >= *quarter)
}

/// What the shell hands to each engine call: one session, seen from the CPU the caller runs on.
pub struct Session<'a, R> {
    /// Unique number of the session, never used again.
    pub id: u64,
    /// What it measures in each of its turns; at least one.
    pub programs: &'a [Program],
    /// The one that the thread at hand has its turn with.
    pub program: &'a Program,
    /// TSC ticks that a turn lasts.
    pub turn_tsc: u64,
    /// Its state on this CPU.
    pub state: &'a mut CpuSession,
    /// Its threads' sampling positions, shared by all CPUs.
    pub threads: Threads<'a>,
    /// Its counter pages; `None` without [`super::abi::SessionFlags::COUNTER_PAGES`].
    pub pages: Option<&'a PageKeys>,
    /// Its memory on this CPU.
    pub rings: &'a mut R,
    /// The CPU's ceilings.
    pub limits: Limits,
}

impl CpuSession {
    /// Counts markers that were overwritten in a thread's page. How many, that thread says: any number must do.
    pub fn lose_markers(&mut self, lost: u64) {
        self.markers.lost = self.markers.lost.saturating_add(lost);
    }
}

impl<R: Rings> Session<'_, R> {
    /// Whether its events take turns.
    pub(super) const fn multiplexes(&self) -> bool {
        self.programs.len() > 1
    }

    /// [`Program::rests_in_kernel`], of all programs that take turns.
    pub(super) const fn rests_in_kernel(&self) -> bool {
        self.program.rests_in_kernel() && !self.multiplexes()
    }

    /// [`Program::restarts_at_cuts`], of all programs that take turns: each of these does.
    pub(super) const fn restarts_at_cuts(&self) -> bool {
        self.program.restarts_at_cuts() || self.multiplexes()
    }

    /// The number of the thread's counter page.
    pub(super) fn page_of(&self, thread: Thread) -> Option<usize> {
        self.pages.and_then(|pages| pages.find(thread.tid))
    }

    /// The counter page of the thread that runs.
    pub(super) fn counter_page(&self, stay: &Stay) -> Option<&CounterPage> {
        self.rings.counter_page(stay.page?)
    }

    /// Goes on with the program of this turn.
    pub(super) fn select(&mut self, turn: Turn) {
        if let Some(program) = self.programs.get(usize::from(turn.number)) {
            self.program = program;
        }
    }

    /// Takes note of what the reader has given back.
    pub(super) fn take_back(&mut self) {
        let control = self.rings.control();
        self.state.quanta.give_back(control.quanta_consumed);
        self.state.segments.give_back(control.segments_consumed);
        self.state.stacks.give_back(control.stack_consumed);
        self.state.markers.ring.give_back(control.markers_consumed);
    }

    /// Whether the reader wants no samples now.
    pub(super) fn is_paused(&mut self) -> bool {
        self.rings.pause() == CpuControl::PAUSE
    }

    /// Tells user space what there is.
    pub(super) fn publish(&mut self) {
        let status = self.state.status();
        self.rings.publish(&status);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_any_ring_is_enough_and_a_ring_that_is_not_there_is_never_full() {
        let config = SessionConfig {
            quanta: 64,
            segments: 8,
            markers: 128,
            stack_ring_bytes: 4096,
            ..SessionConfig::EMPTY
        };
        let told = [1000, 10, u64::MAX, 0];
        let after = |more: [u64; 4]| {
            let mut produced = told;
            produced
                .iter_mut()
                .zip(more)
                .for_each(|(produced, more)| *produced = produced.wrapping_add(more));
            has_filled(&quarters(&config), &told, &produced)
        };
        assert!(!after([15, 2, 31, 1023]));
        for enough in [[16, 0, 0, 0], [0, 3, 0, 0], [0, 0, 32, 0], [0, 0, 0, 1024]] {
            assert!(after(enough), "{enough:?}");
        }
        assert!(!has_filled(&quarters(&SessionConfig::EMPTY), &[0; 4], &[0, 0, 1, 0]));
    }
}
