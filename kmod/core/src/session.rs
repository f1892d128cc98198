//! A session as one CPU sees it.

use super::abi::{CpuStatus, Totals, EVENTS_MAX};
use super::threads::Threads;
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
    /// TSC ticks during which a thread of the session was on the CPU, up to the last cut.
    pub on_cpu_tsc: u64,
    /// Quanta published.
    pub quanta: u64,
    /// Records in published quanta.
    pub records: u64,
    /// PMIs handled.
    pub pmis: u64,
    /// RDMSR and RDPMC executed.
    pub msr_reads: u64,
    /// WRMSR executed.
    pub msr_writes: u64,
}

/// The state of one session on one CPU: kept by the shell for as long as the session lives, used by that CPU only.
#[derive(Clone, Copy, Debug)]
pub struct CpuSession {
    /// Sums.
    pub totals: CpuTotals,
    /// What user space is told.
    pub status: CpuStatus,
}

impl CpuSession {
    /// The state before anything has run.
    #[must_use]
    pub fn new(_program: &Program) -> Self {
        Self { totals: CpuTotals::default(), status: CpuStatus::default() }
    }

    /// Adds this CPU's share to a session's totals.
    pub fn add_to(&self, totals: &mut Totals) {
        for (sum, count) in totals.counts.iter_mut().zip(self.totals.counts) {
            *sum += count;
        }
        totals.on_cpu_tsc += self.totals.on_cpu_tsc;
        totals.quanta += self.totals.quanta;
        totals.quanta_lost += self.status.quanta_lost;
        totals.records += self.totals.records;
        totals.records_lost += self.status.records_lost;
        totals.pmis += self.totals.pmis;
        totals.msr_reads += self.totals.msr_reads;
        totals.msr_writes += self.totals.msr_writes;
    }
}

/// What the shell hands to each engine call: one session, seen from the CPU the caller runs on.
pub struct Session<'a, R> {
    /// Unique number of the session, never used again.
    pub id: u64,
    /// What it measures.
    pub program: &'a Program,
    /// Its state on this CPU.
    pub state: &'a mut CpuSession,
    /// Its threads' sampling positions, shared by all CPUs.
    pub threads: Threads<'a>,
    /// Its memory on this CPU.
    pub rings: &'a mut R,
}
