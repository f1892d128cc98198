//! The truth as tests read it.

use super::branches::TakenBranch;
use super::totals::Counts;
use crate::event::Privilege;
use crate::micro::DataOutcome;
use crate::pmu::PebsOutcome;
use serde::{Deserialize, Serialize};

/// Everything that is known.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// Each CPU, in the order in which they appeared.
    pub cpus: Vec<CpuReport>,
    /// Each address space since it was first seen or labelled, in that order.
    pub address_spaces: Vec<AddressSpaceReport>,
    /// Each window, in the order of opening.
    pub windows: Vec<WindowReport>,
    /// Every PEBS record that was due, if [`super::TruthOptions::pebs_log`] is on.
    pub pebs: Vec<PebsReport>,
    /// Every performance-monitoring interrupt that was requested, if that option is on.
    pub pmis: Vec<PmiReport>,
}

/// What one CPU did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuReport {
    /// Its index.
    pub cpu: u32,
    /// Use of the PMU.
    pub activity: Activity,
    /// Events.
    pub counts: Counts,
}

/// Use of the PMU on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Activity {
    /// `RDMSR` of a PMU register.
    pub rdmsr: u64,
    /// `WRMSR` of a PMU register.
    pub wrmsr: u64,
    /// `RDPMC`.
    pub rdpmc: u64,
    /// How many of these three faulted.
    pub general_protection: u64,
    /// Performance-monitoring interrupts requested.
    pub pmis: u64,
    /// PEBS records written.
    pub pebs_written: u64,
    /// PEBS records that found the buffer full.
    pub pebs_dropped: u64,
    /// PEBS records that found the DS area or the buffer unmapped.
    pub pebs_faulted: u64,
}

/// What happened in one address space.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressSpaceReport {
    /// Physical address of its page table (CR3 without flags; with page-table isolation, the kernel's).
    pub page_table: u64,
    /// Its label, if a guest program gave it one; its counts are those since then.
    pub label: Option<String>,
    /// CPUs it has been loaded on.
    pub cpus: Vec<u32>,
    /// Events. Those at CPL 0 include whatever the kernel did while this page table was loaded, also on
    /// other's behalf.
    pub counts: Counts,
}

/// What happened in one address space between two moments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowReport {
    /// The window's tag.
    pub tag: String,
    /// The address space's page table.
    pub page_table: u64,
    /// CPU that opened it.
    pub opened_on: u32,
    /// CPU that closed it; `None` if nobody did.
    pub closed_on: Option<u32>,
    /// Events in the address space, on all CPUs, from opening to closing; empty while it is open.
    pub counts: Counts,
}

/// The true facts of one PEBS record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PebsReport {
    /// CPU.
    pub cpu: u32,
    /// Page table of the address space.
    pub page_table: u64,
    /// Label of the address space.
    pub label: Option<String>,
    /// Instruction that caused it.
    pub pc: u64,
    /// Instruction that executed next.
    pub next_pc: u64,
    /// Privilege level of the instruction.
    pub privilege: Privilege,
    /// Linear address of the instruction's last load, if it was observed.
    pub load: Option<u64>,
    /// Linear address of the instruction's last store, if it was observed.
    pub store: Option<u64>,
    /// Where the load's data came from and how long it took, if the caches were observed.
    pub load_outcome: Option<DataOutcome>,
    /// The same of the store.
    pub store_outcome: Option<DataOutcome>,
    /// Whether the instruction's accesses are locked.
    pub locked: bool,
    /// Where the processor was when the record was taken, if that was later ([`crate::Options::pebs_skid`]).
    pub taken: Option<Taken>,
    /// Branches taken before the record was, if [`super::TruthOptions::branch_log`] is on and branches were observed
    /// (branch records on): at most 32 of user mode, then at most 32 of the kernel, each the most recent first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<TakenBranch>,
    /// Time-stamp counter.
    pub tsc: u64,
    /// What became of the record.
    pub outcome: PebsOutcome,
}

/// A request of a performance-monitoring interrupt. The interrupt itself may come later (`skid` of the QEMU adapter).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PmiReport {
    /// CPU.
    pub cpu: u32,
    /// Page table of the address space.
    pub page_table: u64,
    /// Label of the address space.
    pub label: Option<String>,
    /// Instruction that made the counter overflow, or the PEBS index reach its threshold.
    pub pc: u64,
    /// Instruction that executed next.
    pub next_pc: u64,
    /// Linear address that the instruction read, if it read any and the level of observation was that of data addresses or above.
    pub load: Option<u64>,
    /// Privilege level of the instruction.
    pub privilege: Privilege,
    /// Time-stamp counter.
    pub tsc: u64,
}

/// The instruction after which a PEBS record was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// The instruction.
    pub pc: u64,
    /// The next one.
    pub next_pc: u64,
    /// Privilege level of the instruction.
    pub privilege: Privilege,
}

/// A tag as text: its bytes from the lowest on if they are printable ASCII, else a hexadecimal number.
pub(super) fn tag_text(tag: u64) -> String {
    let bytes = tag.to_le_bytes();
    let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let text = &bytes[..end];
    if !text.is_empty() && text.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') {
        text.iter().map(|&byte| char::from(byte)).collect()
    } else {
        format!("{tag:#x}")
    }
}
