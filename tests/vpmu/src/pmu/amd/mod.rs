//! AMD's core performance counters (APM 13.2) and instruction-based sampling.
//!
//! Manuals are cited as in [`crate::profile::amd`].

mod counter;
mod cpuid;
mod ibs;
mod registers;

use super::cycles::CycleFilter;
use super::{Demand, Settlement};
use crate::bus::{Bus, Retired};
use crate::event::{Basic, BasicCounts, MicroEvents, Privilege};
use crate::micro::BranchKind;
use crate::profile::{self, Profile};
use counter::{Counter, Rule};
use ibs::Ibs;
use registers::{Registers, control, debugctl, status};
use serde::{Deserialize, Serialize};

/// The PMU's whole state.
#[derive(Debug, Clone)]
pub(super) struct Amd {
    profile: &'static Profile,
    facts: &'static profile::Amd,
    registers: Registers,
    counters: Vec<Counter>,
    ibs: Ibs,
    demand: Demand,
}

/// What a snapshot of the PMU must hold.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Saved {
    registers: Registers,
    counters: Vec<Counter>,
    ibs: Ibs,
}

impl Amd {
    pub(super) fn new(profile: &'static Profile, facts: &'static profile::Amd) -> Self {
        Self {
            profile,
            facts,
            registers: Registers::reset(facts),
            counters: vec![Counter::default(); facts.counters.into()],
            ibs: Ibs::new(),
            demand: Demand::Nothing,
        }
    }

    pub(super) fn save(&self) -> Saved {
        Saved { registers: self.registers.clone(), counters: self.counters.clone(), ibs: self.ibs.clone() }
    }

    /// Takes up a saved state of the same profile; false if it does not fit.
    pub(super) fn restore(&mut self, saved: Saved) -> bool {
        let fits = saved.counters.len() == self.counters.len() && saved.registers.fits(self.facts);
        if fits {
            self.registers = saved.registers;
            self.counters = saved.counters;
            self.ibs = saved.ibs;
            self.update_rules();
        }
        fits
    }

    /// Derives what each counter counts from the registers.
    fn update_rules(&mut self) {
        for index in 0..self.counters.len() {
            self.counters[index].rule = self.rule(index);
        }
        let base = if self.ibs.is_running() { Demand::Microarchitecture } else { Demand::Nothing };
        self.demand = self.counters.iter().map(|counter| counter.rule.demand()).fold(base, Demand::max);
    }

    /// Whether counter `index` is enabled globally and not frozen. Without global control there is nothing to
    /// stop it but its own register.
    fn runs(&self, index: usize) -> bool {
        !self.facts.version_2
            || self.registers.global_ctl >> index & 1 != 0 && self.registers.status & status::PMC_FREEZE == 0
    }

    fn rule(&self, index: usize) -> Rule {
        let value = self.registers.control[index];
        // HostGuestOnly: one of the two bits alone counts nothing, because the modelled machine leaves
        // EFER.SVME 0; both together are as none (APM 13.2.1).
        let virtualized =
            matches!(value & control::HOST_GUEST_ONLY, control::HOST_ONLY | control::GUEST_ONLY);
        let on = value & control::EN != 0 && !virtualized && self.runs(index);
        let cmask = (value & control::CNT_MASK) >> 24;
        let (invert, edge) = (value & control::INV != 0, value & control::E != 0);
        // Bits 35:32 are EventSelect[11:8] where they are not reserved: then they read as 0.
        let select = (value & 0xFF | value >> 24 & 0xF00) as u16;
        let event = self.facts.event(select).filter(|event| event.is_counted_by(index));
        let Some(event) = event else { return Rule::default() };
        Rule {
            privileges: [on && value & control::USR != 0, on && value & control::OS != 0],
            counts: event.counts((value >> 8 & 0xFF) as u8),
            filter: (cmask != 0 || edge).then_some(CycleFilter {
                cmask: cmask.max(1),
                invert: invert && cmask != 0,
                equal: false,
                edge,
            }),
            interrupt: value & control::INT != 0,
        }
    }

    pub(super) fn demand(&self) -> Demand {
        self.demand
    }

    pub(super) fn headroom(&self, privilege: Privilege) -> [u64; 4] {
        let mut headroom = [u64::MAX; 4];
        headroom[Basic::Instruction as usize] = self.ibs.headroom();
        for counter in self.counters.iter().filter(|counter| counter.rule.privileges[privilege as usize]) {
            for basic in Basic::ALL.into_iter().filter(|&basic| counter.rule.counts.contains(basic.into())) {
                // Cycle-wise counting has to know in which cycle each event falls.
                let limit = if counter.rule.filter.is_some() { 1 } else { counter.distance() };
                headroom[basic as usize] = headroom[basic as usize].min(limit);
            }
        }
        headroom
    }

    pub(super) fn count_basic(&mut self, delta: &BasicCounts) {
        self.ibs.retire(delta[Basic::Instruction as usize].iter().sum());
        self.counters.iter_mut().for_each(|counter| counter.count_basic(delta));
    }

    #[inline]
    pub(super) fn count(&mut self, events: &MicroEvents, privilege: Privilege) {
        self.ibs.observe(events);
        self.counters.iter_mut().for_each(|counter| counter.count(events, privilege));
    }

    /// There are no branch records.
    pub(super) fn record_branch(&mut self, _: u64, _: u64, _: BranchKind, _: bool, _: Privilege) {}

    pub(super) fn needs_settle(&self) -> bool {
        self.counters.iter().any(Counter::has_overflowed) || self.ibs.is_due()
    }

    /// Overflows set their bit of PerfCntrGlobalStatus, where there is that register, and interrupt if asked to.
    /// Then the sampled op or fetch is recorded.
    pub(super) fn settle(&mut self, retired: &Retired, bus: &mut dyn Bus) -> Settlement {
        let mut interrupt = false;
        for (index, counter) in self.counters.iter_mut().enumerate() {
            if counter.wrap() {
                interrupt |= counter.rule.interrupt;
                self.registers.status |= if self.facts.version_2 { 1 << index } else { 0 };
            }
        }
        if interrupt {
            // DebugCtl.FPCI (APM 13.2.2, "PmcFreeze").
            if self.registers.debugctl & debugctl::FPCI != 0 {
                self.registers.status |= status::PMC_FREEZE;
            }
            bus.pmi();
        }
        let sampled = self.ibs.settle(self.facts, &self.profile.microarchitecture, retired, bus);
        if sampled {
            bus.ibs();
        }
        self.update_rules();
        Settlement { pmis: interrupt.into(), ibs: sampled.into(), ..Settlement::default() }
    }

    /// The register is Intel's.
    pub(super) fn misc_enable(&self, machine: u64) -> u64 {
        machine
    }
}
