//! A thread and a process.

use std::collections::BTreeSet;

use super::batch::{ProcessFacts, Quantum};
use super::series::{Series, ThreadSeries};

/// A thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Thread {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) name: String,
    pub(crate) ended_ns: Option<u64>,
    /// Where it was last.
    pub(crate) cpu: Option<u32>,
    /// Its place among the slots of all threads, once it has run.
    pub(crate) place: Option<usize>,
}

impl Thread {
    pub(crate) fn new(pid: u32, tid: u32) -> Self {
        Self { pid, tid, ..Self::default() }
    }

    /// Takes a quantum; whether it was on another CPU than the one before.
    pub(crate) fn quantum(&mut self, quantum: &Quantum, slots: &mut ThreadSeries, slot_ns: u64) -> bool {
        let migrated = self.cpu.is_some_and(|cpu| cpu != quantum.cpu);
        self.cpu = Some(quantum.cpu);
        let place = *self.place.get_or_insert_with(|| slots.place());
        slots.add(place, quantum, migrated, slot_ns);
        migrated
    }
}

/// A process with its threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) parent: Option<u32>,
    pub(crate) name: String,
    pub(crate) command: String,
    /// Its control group below the hierarchy's root; empty when unknown.
    pub(crate) cgroup: String,
    pub(crate) kernel: bool,
    pub(crate) tids: BTreeSet<u32>,
    pub(crate) series: Series,
}

impl Process {
    /// Takes what `/proc` says.
    pub(crate) fn know(&mut self, facts: ProcessFacts) {
        self.pid = facts.pid;
        self.parent = facts.parent.or(self.parent);
        if !facts.name.is_empty() {
            self.name = facts.name;
        }
        self.command = facts.command;
        self.cgroup = facts.cgroup;
        self.kernel = facts.kernel;
    }
}
