//! What really happened, for tests to compare the PMU with.
//!
//! One [`CpuTruth`] per logical CPU is fed by the adapter's instruction and memory callbacks, never from PMU registers.
//! All of them share a [`Truth`], from which the report is made at the end (or at any time in between).

use crate::bus::Retired;
use crate::event::{BasicCounts, MicroEvents, Privilege};
use crate::pmu::{GeneralProtection, Settlement};
use serde::{Deserialize, Serialize};

/// How address spaces are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruthOptions {
    /// The guest isolates page tables (PTI): the two page tables of one process differ in CR3 bit 12 and count as one.
    pub page_table_isolation: bool,
    /// Keep every PEBS record's true facts.
    pub pebs_log: bool,
}

/// What all CPUs of one machine share.
#[derive(Debug, Clone)]
pub struct Truth {}

impl Truth {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(options: TruthOptions) -> Self {
        let _ = options;
        Self {}
    }

    /// The recorder of one more CPU, with this index.
    #[must_use]
    pub fn cpu(&self, index: u32) -> CpuTruth {
        let _ = index;
        CpuTruth {}
    }

    /// Everything so far. Exact for CPUs that have published since their last event ([`CpuTruth::publish`]).
    #[must_use]
    pub fn report(&self) -> Report {
        Report {}
    }
}

/// Everything the truth knows; serialises to JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {}

/// The recorder of one CPU.
#[derive(Debug)]
pub struct CpuTruth {}

impl CpuTruth {
    /// CR3 was loaded with this value. Basic events before it must have been counted.
    pub fn address_space(&mut self, cr3: u64) {
        let _ = cr3;
    }

    /// Basic events that have passed since the last call, in the current address space.
    pub fn count_basic(&mut self, delta: &BasicCounts) {
        let _ = delta;
    }

    /// What the microarchitecture model reported.
    pub fn count(&mut self, events: &MicroEvents, privilege: Privilege) {
        let _ = (events, privilege);
    }

    /// An `RDMSR` of the PMU and what came of it.
    pub fn rdmsr(&mut self, result: Result<u64, GeneralProtection>) {
        let _ = result;
    }

    /// A `WRMSR` of the PMU and what came of it.
    pub fn wrmsr(&mut self, result: Result<(), GeneralProtection>) {
        let _ = result;
    }

    /// An `RDPMC` and what came of it.
    pub fn rdpmc(&mut self, result: Result<u64, GeneralProtection>) {
        let _ = result;
    }

    /// What a `settle` did, for the instruction `retired`, at time `tsc`.
    pub fn settled(&mut self, settlement: &Settlement, retired: &Retired, tsc: u64) {
        let _ = (settlement, retired, tsc);
    }

    /// The guest labels the current address space. Its counts start afresh: a page table that is used again
    /// later for another process starts with that process' label.
    pub fn label(&mut self, tag: u64) {
        let _ = tag;
    }

    /// The guest opens a window in the current address space. Counts of all CPUs are in it; exact as long as the address
    /// space runs on one CPU at a time.
    pub fn open_window(&mut self, tag: u64) {
        let _ = tag;
    }

    /// The guest closes the window, on this or another CPU.
    pub fn close_window(&mut self, tag: u64) {
        let _ = tag;
    }

    /// Makes this CPU's counts visible to [`Truth::report`].
    pub fn publish(&mut self) {}
}
