//! What really happened, for tests to compare the PMU with.
//!
//! One [`CpuTruth`] per logical CPU is fed by the adapter's instruction and memory callbacks, never from PMU
//! registers. All of them belong to a [`Truth`], which reports at the end or at any time in between.

mod branches;
mod report;
mod totals;

use crate::bus::Retired;
use crate::event::{BasicCounts, MicroEvents, Privilege};
use crate::micro::BranchKind;
use crate::pmu::{GeneralProtection, PebsOutcome, Settlement};
use branches::Branches;
use report::tag_text;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use totals::{Totals, add};

pub use branches::TakenBranch;
pub use report::{
    Activity, AddressSpaceReport, CpuReport, PebsReport, PmiReport, Report, Taken, WindowReport,
};
pub use totals::{Counts, PerPrivilege};

/// How address spaces are told apart, and what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TruthOptions {
    /// The guest isolates page tables (PTI): the two page tables of one process differ in CR3 bit 12 and
    /// count as one.
    pub page_table_isolation: bool,
    /// Keep every PEBS record's and every PMI's true facts.
    pub pebs_log: bool,
    /// Keep with every PEBS record the branches that were taken before it.
    pub branch_log: bool,
}

/// What all CPUs of one machine share. Cloning shares it.
#[derive(Debug, Clone)]
pub struct Truth(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: TruthOptions,
    /// Grows whenever an address space starts afresh, so that CPUs that have it loaded notice.
    epoch: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    cpus: Vec<Cpu>,
    spaces: Vec<Space>,
    /// The address space that a page table belongs to now.
    current: HashMap<u64, usize>,
    windows: Vec<Window>,
    pebs: Vec<PebsReport>,
    pmis: Vec<PmiReport>,
}

#[derive(Debug)]
struct Cpu {
    index: u32,
    activity: Arc<AtomicActivity>,
}

#[derive(Debug)]
struct Space {
    page_table: u64,
    label: Option<String>,
    /// What happened on each CPU it has been loaded on.
    totals: Vec<(u32, Arc<Totals>)>,
}

#[derive(Debug)]
struct Window {
    report: WindowReport,
    space: usize,
    tag: u64,
    /// The counts at opening.
    before: Counts,
}

/// [`Activity`], written by one CPU.
#[derive(Debug, Default)]
struct AtomicActivity {
    rdmsr: AtomicU64,
    wrmsr: AtomicU64,
    rdpmc: AtomicU64,
    general_protection: AtomicU64,
    pmis: AtomicU64,
    pebs_written: AtomicU64,
    pebs_dropped: AtomicU64,
    pebs_faulted: AtomicU64,
}

impl Truth {
    /// Nothing has happened yet.
    #[must_use]
    pub fn new(options: TruthOptions) -> Self {
        Self(Arc::new(Shared { options, epoch: AtomicU64::new(0), state: Mutex::default() }))
    }

    /// The recorder of one more CPU, with this index. Until it hears of a CR3, its page table is 0.
    #[must_use]
    pub fn cpu(&self, index: u32) -> CpuTruth {
        let activity = Arc::new(AtomicActivity::default());
        let mut state = self.0.state();
        state.cpus.push(Cpu { index, activity: Arc::clone(&activity) });
        let (space, totals) = state.load(0, index);
        drop(state);
        let epoch = self.0.epoch.load(Relaxed);
        CpuTruth {
            shared: Arc::clone(&self.0),
            index,
            page_table: 0,
            epoch,
            space,
            totals,
            activity,
            branches: Branches::default(),
        }
    }

    /// Everything so far.
    #[must_use]
    pub fn report(&self) -> Report {
        let state = self.0.state();
        Report {
            cpus: state.cpus.iter().map(|cpu| state.cpu_report(cpu)).collect(),
            address_spaces: state.spaces.iter().map(Space::report).collect(),
            windows: state.windows.iter().map(|window| window.report.clone()).collect(),
            pebs: state.pebs.clone(),
            pmis: state.pmis.clone(),
        }
    }
}

impl Shared {
    /// The state; a CPU that panicked while it held it cannot have left it half-changed in a way that matters
    /// here.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The page table that CR3 names: bits 51:12 (SDM Vol. 3A 4.5), without the bit that tells an isolated
    /// pair apart.
    fn page_table(&self, cr3: u64) -> u64 {
        let table = cr3 & 0x000F_FFFF_FFFF_F000;
        if self.options.page_table_isolation { table & !0x1000 } else { table }
    }
}

impl State {
    /// The address space of `page_table` and its totals on `cpu`, both made if need be.
    fn load(&mut self, page_table: u64, cpu: u32) -> (usize, Arc<Totals>) {
        let space = match self.current.get(&page_table) {
            Some(&space) => space,
            None => self.begin(page_table, None),
        };
        let on_cpus = &mut self.spaces[space].totals;
        if let Some((_, totals)) = on_cpus.iter().find(|(index, _)| *index == cpu) {
            return (space, Arc::clone(totals));
        }
        let totals = Arc::new(Totals::new());
        on_cpus.push((cpu, Arc::clone(&totals)));
        (space, totals)
    }

    /// From now on `page_table` belongs to a new address space.
    fn begin(&mut self, page_table: u64, label: Option<String>) -> usize {
        self.spaces.push(Space { page_table, label, totals: Vec::new() });
        self.current.insert(page_table, self.spaces.len() - 1);
        self.spaces.len() - 1
    }

    fn cpu_report(&self, cpu: &Cpu) -> CpuReport {
        let mut counts = Counts::default();
        let here =
            self.spaces.iter().flat_map(|space| &space.totals).filter(|(index, _)| *index == cpu.index);
        here.for_each(|(_, totals)| counts.add(totals));
        CpuReport { cpu: cpu.index, activity: cpu.activity.read(), counts }
    }
}

impl Space {
    fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.totals.iter().for_each(|(_, totals)| counts.add(totals));
        counts
    }

    fn report(&self) -> AddressSpaceReport {
        let cpus = self.totals.iter().map(|(index, _)| *index).collect();
        AddressSpaceReport {
            page_table: self.page_table,
            label: self.label.clone(),
            cpus,
            counts: self.counts(),
        }
    }
}

impl AtomicActivity {
    fn read(&self) -> Activity {
        Activity {
            rdmsr: self.rdmsr.load(Relaxed),
            wrmsr: self.wrmsr.load(Relaxed),
            rdpmc: self.rdpmc.load(Relaxed),
            general_protection: self.general_protection.load(Relaxed),
            pmis: self.pmis.load(Relaxed),
            pebs_written: self.pebs_written.load(Relaxed),
            pebs_dropped: self.pebs_dropped.load(Relaxed),
            pebs_faulted: self.pebs_faulted.load(Relaxed),
        }
    }
}

/// The recorder of one CPU; it belongs to the thread that runs this CPU.
#[derive(Debug)]
pub struct CpuTruth {
    shared: Arc<Shared>,
    index: u32,
    page_table: u64,
    epoch: u64,
    space: usize,
    totals: Arc<Totals>,
    activity: Arc<AtomicActivity>,
    branches: Branches,
}

impl CpuTruth {
    /// CR3 was loaded with this value. Basic events before it must have been counted.
    pub fn address_space(&mut self, cr3: u64) {
        let page_table = self.shared.page_table(cr3);
        if page_table != self.page_table {
            self.page_table = page_table;
            self.load();
        }
    }

    /// Finds the totals of the loaded page table.
    fn load(&mut self) {
        self.epoch = self.shared.epoch.load(Relaxed);
        (self.space, self.totals) = self.shared.state().load(self.page_table, self.index);
    }

    /// The page table may have got a label on another CPU without being loaded anew here.
    #[inline]
    fn follow(&mut self) {
        if self.shared.epoch.load(Relaxed) != self.epoch {
            self.load();
        }
    }

    /// Basic events that have passed since the last call, in the current address space.
    pub fn count_basic(&mut self, delta: &BasicCounts) {
        self.follow();
        self.totals.count_basic(delta);
    }

    /// What the microarchitecture model reported.
    #[inline]
    pub fn count(&mut self, events: &MicroEvents, privilege: Privilege) {
        self.follow();
        self.totals.count(events, privilege);
        self.branches.advance(events.cycles);
    }

    /// A branch was taken. Called when branches are observed one by one.
    pub fn branch(&mut self, from: u64, to: u64, kind: BranchKind, mispredicted: bool, privilege: Privilege) {
        if self.shared.options.branch_log {
            self.branches.record(from, to, kind, mispredicted, privilege);
        }
    }

    /// An `RDMSR` of the PMU and what came of it.
    pub fn rdmsr(&mut self, result: Result<u64, GeneralProtection>) {
        add(&self.activity.rdmsr, 1);
        add(&self.activity.general_protection, result.is_err().into());
    }

    /// A `WRMSR` of the PMU and what came of it.
    pub fn wrmsr(&mut self, result: Result<(), GeneralProtection>) {
        add(&self.activity.wrmsr, 1);
        add(&self.activity.general_protection, result.is_err().into());
    }

    /// An `RDPMC` and what came of it (also the adapter's own #GP for CPL and CR4.PCE).
    pub fn rdpmc(&mut self, result: Result<u64, GeneralProtection>) {
        add(&self.activity.rdpmc, 1);
        add(&self.activity.general_protection, result.is_err().into());
    }

    /// What a `settle` did, for the instruction `retired`, at time `tsc`.
    pub fn settled(&mut self, settlement: &Settlement, retired: &Retired, tsc: u64) {
        self.follow();
        let interrupts = settlement.pmis + settlement.ibs;
        add(&self.activity.pmis, interrupts.into());
        if interrupts > 0 && self.shared.options.pebs_log {
            self.log_pmi(retired, tsc);
        }
        let Some(outcome) = settlement.pebs else { return };
        let number = match outcome {
            PebsOutcome::Written { .. } => &self.activity.pebs_written,
            PebsOutcome::Dropped { .. } => &self.activity.pebs_dropped,
            PebsOutcome::Faulted { .. } => &self.activity.pebs_faulted,
        };
        add(number, 1);
        if self.shared.options.pebs_log {
            let mut state = self.shared.state();
            let cause = settlement.cause.as_ref().unwrap_or(retired);
            let record = PebsReport {
                cpu: self.index,
                page_table: self.page_table,
                label: state.spaces[self.space].label.clone(),
                pc: cause.pc,
                next_pc: cause.next_pc,
                privilege: cause.privilege,
                load: cause.load.map(|access| access.linear),
                store: cause.store.map(|access| access.linear),
                load_outcome: cause.load.and_then(|access| access.outcome),
                store_outcome: cause.store.and_then(|access| access.outcome),
                locked: cause.locked,
                taken: settlement.cause.map(|_| Taken {
                    pc: retired.pc,
                    next_pc: retired.next_pc,
                    privilege: retired.privilege,
                }),
                branches: self.branches.recent(),
                tsc,
                outcome,
            };
            state.pebs.push(record);
        }
    }

    fn log_pmi(&self, retired: &Retired, tsc: u64) {
        let mut state = self.shared.state();
        let request = PmiReport {
            cpu: self.index,
            page_table: self.page_table,
            label: state.spaces[self.space].label.clone(),
            pc: retired.pc,
            next_pc: retired.next_pc,
            load: retired.load.map(|access| access.linear),
            privilege: retired.privilege,
            tsc,
        };
        state.pmis.push(request);
    }

    /// The guest labels the current address space; 0 takes its label away. Either way its counts start
    /// afresh: a page table that is used again later, for another process, is told apart by that.
    pub fn label(&mut self, tag: u64) {
        let label = (tag != 0).then(|| tag_text(tag));
        self.shared.state().begin(self.page_table, label);
        self.shared.epoch.fetch_add(1, Relaxed);
        self.load();
    }

    /// The guest opens a window in the current address space. It covers all CPUs. Basic events before it must
    /// have been counted, on all CPUs; it is exact unless the address space is running on another CPU at the
    /// moment.
    pub fn open_window(&mut self, tag: u64) {
        self.follow();
        let mut state = self.shared.state();
        let report = WindowReport {
            tag: tag_text(tag),
            page_table: self.page_table,
            opened_on: self.index,
            closed_on: None,
            counts: Counts::default(),
        };
        let before = state.spaces[self.space].counts();
        state.windows.push(Window { report, space: self.space, tag, before });
    }

    /// The guest closes the window of this tag that this address space opened last, on this or another CPU;
    /// false if there is none. As for opening, basic events before it must have been counted on all CPUs.
    pub fn close_window(&mut self, tag: u64) -> bool {
        self.follow();
        let mut state = self.shared.state();
        let after = state.spaces[self.space].counts();
        let mine = |window: &&mut Window| {
            window.space == self.space && window.tag == tag && window.report.closed_on.is_none()
        };
        let Some(window) = state.windows.iter_mut().rev().find(mine) else { return false };
        window.report.closed_on = Some(self.index);
        window.report.counts = &after - &window.before;
        true
    }
}
