//! Intel's architectural performance monitoring, versions 2 to 6 (SDM Vol. 3B 18.2), with PEBS and LBR.

mod acr;
mod adaptive;
mod arch_lbr;
mod arch_pebs;
mod bits;
mod counter;
mod cpuid;
mod extended;
mod fragments;
mod lbr;
mod offcore;
mod pebs;
mod record;
mod registers;
mod settle;
mod skid;
mod tagging;

use super::cycles::CycleFilter;
use super::{Demand, Options};
use crate::event::{Basic, BasicCounts, Event, MicroEvents, Privilege};
use crate::micro::BranchKind;
use crate::profile::{self, DataRecord, EventSpec, Profile};
use arch_lbr::ArchLbr;
use bits::{evtsel, fixed_ctrl, status};
use counter::{Counter, Rule};
use fragments::Fragmenter;
use lbr::Lbr;
use registers::Registers;
use serde::{Deserialize, Serialize};
use skid::Late;
use tagging::Tagger;

/// The PMU's whole state.
#[derive(Debug, Clone)]
pub(super) struct Perfmon {
    profile: &'static Profile,
    facts: &'static profile::Perfmon,
    options: Options,
    registers: Registers,
    /// General-purpose counters, then fixed-function counters.
    counters: Vec<Counter>,
    /// Model-specific branch records; of depth 0 where there are architectural ones.
    lbr: Lbr,
    arch_lbr: Option<ArchLbr>,
    /// Core clock cycles that the current instruction has taken.
    retire_cycles: u32,
    /// A record that waits for its skid to pass.
    late: Option<Late>,
    tagger: Tagger,
    fragmenter: Fragmenter,
    demand: Demand,
    /// Indices of the counters that are on, as a bit mask: most counters are off most of the time.
    on: u64,
}

/// What a snapshot of the PMU must hold.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Saved {
    registers: Registers,
    counters: Vec<Counter>,
    lbr: Lbr,
    arch_lbr: Option<ArchLbr>,
    retire_cycles: u32,
    late: Option<Late>,
    tagger: Tagger,
    fragmenter: Fragmenter,
}

/// The indices of the bits that are set, from the lowest on.
fn set_bits(mut bits: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let index = bits.trailing_zeros() as usize;
        bits &= bits.wrapping_sub(1);
        (index < 64).then_some(index)
    })
}

impl Perfmon {
    pub(super) fn new(profile: &'static Profile, pmu: &'static profile::Perfmon, options: Options) -> Self {
        let counters = vec![Counter::default(); usize::from(pmu.general_counters + pmu.fixed_counters)];
        let lbr = Lbr::new(pmu.lbr_depth, pmu.lbr_format());
        Self {
            profile,
            facts: pmu,
            options,
            registers: Registers::reset(pmu),
            counters,
            lbr,
            arch_lbr: pmu.extended.arch_lbr.map(ArchLbr::new),
            retire_cycles: 0,
            late: None,
            tagger: Tagger::new(),
            fragmenter: Fragmenter::default(),
            demand: Demand::Nothing,
            on: 0,
        }
    }

    pub(super) fn save(&self) -> Saved {
        Saved {
            registers: self.registers.clone(),
            counters: self.counters.clone(),
            lbr: self.lbr.clone(),
            arch_lbr: self.arch_lbr.clone(),
            retire_cycles: self.retire_cycles,
            late: self.late,
            tagger: self.tagger,
            fragmenter: self.fragmenter,
        }
    }

    /// Takes up a saved state of the same profile; false if it does not fit.
    pub(super) fn restore(&mut self, saved: Saved) -> bool {
        let fits = saved.counters.len() == self.counters.len()
            && saved.registers.fits(self.facts)
            && saved.lbr.depth() == self.lbr.depth()
            && match (&saved.arch_lbr, self.facts.extended.arch_lbr) {
                (Some(saved), Some(facts)) => saved.fits(facts),
                (saved, facts) => saved.is_none() && facts.is_none(),
            };
        if fits {
            self.registers = saved.registers;
            self.counters = saved.counters;
            self.lbr = saved.lbr;
            self.arch_lbr = saved.arch_lbr;
            self.retire_cycles = saved.retire_cycles;
            self.late = saved.late;
            self.tagger = saved.tagger;
            self.fragmenter = saved.fragmenter;
            self.update_rules();
        }
        fits
    }

    /// How many general-purpose counters there are.
    fn general(&self) -> usize {
        usize::from(self.facts.general_counters)
    }

    /// The bit of counter `index` in IA32_PERF_GLOBAL_CTRL and IA32_PERF_GLOBAL_STATUS.
    fn global_bit(&self, index: usize) -> u64 {
        if index < self.general() { 1 << index } else { 1 << (32 + index - self.general()) }
    }

    /// Derives what each counter counts from the registers.
    fn update_rules(&mut self) {
        for index in 0..self.counters.len() {
            let rule = if index < self.general() { self.general_rule(index) } else { self.fixed_rule(index) };
            self.counters[index].rule = rule;
        }
        let on = self.counters.iter().enumerate().filter(|(_, counter)| counter.rule.is_on());
        self.on = on.fold(0, |on, (index, _)| on | 1 << index);
        self.abandon_late();
        let timed = self.has_timed_pebs() && self.counters.iter().any(|counter| counter.rule.records());
        let base = if self.lbr_records() || timed { Demand::Microarchitecture } else { Demand::Nothing };
        self.demand = self.counters.iter().map(|counter| counter.rule.demand()).fold(base, Demand::max);
    }

    /// Whether counter `index` is enabled globally and not frozen (SDM Vol. 3B 18.2.4.1).
    fn runs(&self, index: usize) -> bool {
        let enabled =
            !self.facts.has_global_control() || self.registers.global_ctrl & self.global_bit(index) != 0;
        enabled && self.registers.status & status::CTR_FRZ == 0
    }

    fn general_rule(&self, index: usize) -> Rule {
        let select = self.registers.evtsel[index];
        let on = select & evtsel::EN != 0 && self.runs(index);
        let cmask = (select & evtsel::CMASK) >> 24;
        let (invert, edge) = (select & evtsel::INV != 0, select & evtsel::E != 0);
        let Some((event, modified)) = self.lookup(index, select) else { return Rule::default() };
        let latency = event.data == DataRecord::LoadLatency;
        if latency && !self.load_latency_is_on(index) {
            return Rule::default();
        }
        Rule {
            privileges: [on && select & evtsel::USR != 0, on && select & evtsel::OS != 0],
            event: Some(event),
            counts: self.responses(event),
            // INV has no effect without CMASK; E alone looks at whether anything happened in the cycle.
            filter: (modified && (cmask != 0 || edge)).then_some(CycleFilter {
                cmask: cmask.max(1),
                invert: invert && cmask != 0,
                equal: select & evtsel::EQ != 0 && cmask != 0,
                edge,
            }),
            // The minimum that can be detected is 4 cycles (ibidem).
            latency_above_cycles: if latency { (self.registers.ld_lat as u16).max(3) } else { 0 },
            precise: event.precise,
            pebs: (event.precise || self.has_extended_pebs()) && self.pebs_enabled(index),
            interrupt: select & evtsel::INT != 0,
        }
    }

    /// Whether the load latency facility works for counter `index`: its LL_EN bit is set (SDM Vol. 3B
    /// 18.9.4.2). Version 5 has no such bit; some of its parts sample loads only while an auxiliary event is
    /// counted, too.
    fn load_latency_is_on(&self, index: usize) -> bool {
        if self.facts.version < 5 {
            return self.registers.pebs_enable >> (32 + index) & 1 != 0;
        }
        let Some(auxiliary) = self.facts.extended.load_auxiliary else { return true };
        let counts = |(index, &select): (usize, &u64)| {
            select & evtsel::EVENT == auxiliary.into() && select & evtsel::EN != 0 && self.runs(index)
        };
        self.registers.evtsel.iter().enumerate().any(counts)
    }

    /// The event of an IA32_PERFEVTSELx value on counter `index`, and whether CMASK, INV and E are modifiers
    /// of it rather than part of its definition.
    fn lookup(&self, index: usize, select: u64) -> Option<(&'static EventSpec, bool)> {
        let cmask = (select & evtsel::CMASK) >> 24;
        let invert = select & evtsel::INV != 0;
        let edge = select & evtsel::E != 0;
        let encoded = self.profile.events.iter().filter(|event| event.encoding() == select & evtsel::EVENT);
        let defined = |event: &&EventSpec| {
            event.cmask != 0 && u64::from(event.cmask) == cmask && event.invert == invert && !edge
        };
        let event =
            encoded.clone().find(defined).or_else(|| encoded.clone().find(|event| event.cmask == 0))?;
        (event.counters >> index & 1 != 0).then_some((event, event.cmask == 0))
    }

    fn fixed_rule(&self, index: usize) -> Rule {
        let fixed = index - self.general();
        let control = self.registers.fixed_ctrl >> (4 * fixed);
        let on = self.runs(index);
        let event = self.profile.fixed_events.get(fixed).filter(|_| !self.is_absent(index));
        let Some(event) = event else { return Rule::default() };
        Rule {
            privileges: [on && control & fixed_ctrl::USR != 0, on && control & fixed_ctrl::OS != 0],
            event: Some(event),
            counts: event.counts,
            precise: event.precise,
            pebs: self.has_extended_pebs() && self.pebs_enabled(index),
            interrupt: control & fixed_ctrl::PMI != 0,
            ..Rule::default()
        }
    }

    pub(super) fn demand(&self) -> Demand {
        self.demand
    }

    pub(super) fn headroom(&self, privilege: Privilege) -> [u64; 4] {
        let mut headroom = [u64::MAX; 4];
        headroom[Basic::Instruction as usize] = self.late.map_or(u64::MAX, |late| late.left);
        for counter in &self.counters {
            let Some(event) = counter.rule.event else { continue };
            if !counter.rule.privileges[privilege as usize] {
                continue;
            }
            for basic in Basic::ALL {
                if event.counts.contains(basic.into()) {
                    // Cycle-wise counting has to know in which cycle each event falls.
                    let limit = match counter.rule.filter {
                        Some(_) => 1,
                        None => counter.distance(self.facts.counter_bits),
                    };
                    headroom[basic as usize] = headroom[basic as usize].min(limit);
                }
            }
        }
        headroom
    }

    pub(super) fn count_basic(&mut self, delta: &BasicCounts) {
        self.approach_late(delta);
        for index in set_bits(self.on) {
            self.counters[index].count_basic(delta);
        }
    }

    #[inline]
    pub(super) fn count(&mut self, events: &MicroEvents, privilege: Privilege) {
        let seen = self.tagger.filter(events, self.options.loads_per_tag);
        for index in set_bits(self.on) {
            self.counters[index].count(&seen, privilege);
        }
        // The fetch is the first that is heard of an instruction.
        let begun = if events.once.contains(Event::L1iRead) { 0 } else { self.retire_cycles };
        self.retire_cycles = begun.saturating_add(events.cycles);
        match &mut self.arch_lbr {
            Some(lbr) => lbr.advance(events.cycles),
            None => self.lbr.advance(events.cycles),
        }
    }

    /// Whether branches are recorded now (SDM Vol. 3B 17.4.1, 17.4.7; architectural records: 19.1.1).
    fn lbr_records(&self) -> bool {
        let enabled = match &self.arch_lbr {
            Some(lbr) => lbr.is_on(),
            None => self.lbr.depth() > 0 && self.registers.debugctl & bits::debugctl::LBR != 0,
        };
        enabled && self.registers.status & status::LBR_FRZ == 0
    }

    pub(super) fn record_branch(
        &mut self,
        from: u64,
        to: u64,
        kind: BranchKind,
        mispredicted: bool,
        privilege: Privilege,
    ) {
        if !self.lbr_records() {
            return;
        }
        match &mut self.arch_lbr {
            Some(lbr) => lbr.record(from, to, kind, mispredicted, privilege),
            None => self.lbr.record(from, to, kind, mispredicted, privilege),
        }
    }

    pub(super) fn needs_settle(&self) -> bool {
        let bits = self.facts.counter_bits;
        self.counters.iter().any(|counter| counter.needs_settle(bits)) || self.late_is_due()
    }
}
