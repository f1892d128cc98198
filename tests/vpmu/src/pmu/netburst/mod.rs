//! The PMU of Intel's NetBurst microarchitecture (SDM Vol. 3B 18.15 and, with Hyper-Threading, 18.16).
//!
//! Two logical processors share everything but IA32_DS_AREA: [`Unit`] is what they share, [`Netburst`] is one logical
//! processor's view of it.

mod bits;
mod counter;
mod registers;
mod rule;
mod settle;

use super::{CpuidRegs, Demand, GeneralProtection, Options, Settlement};
use crate::bus::{Bus, Retired};
use crate::event::{Basic, BasicCounts, MicroEvents, Privilege};
use crate::micro::BranchKind;
use crate::profile::{self, Profile};
use counter::{BITS, Counter};
use registers::Registers;
use rule::Rule;
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How many counters there are, each with its CCCR.
const COUNTERS: usize = 18;

/// What the logical processors of a core share.
#[derive(Debug, Clone)]
pub(super) struct Unit {
    facts: &'static profile::Netburst,
    options: Options,
    /// How many logical processors use it; each is taken to be active always.
    threads: u8,
    registers: Registers,
    counters: [Counter; COUNTERS],
    /// What each counter counts, derived from the registers.
    rules: [Rule; COUNTERS],
    /// Counters that are on, by logical processor, as bit masks.
    on: [u32; 2],
    /// Logical processors for which an interrupt has been requested that has not been delivered.
    interrupts: [bool; 2],
}

/// A handle of a [`Unit`]; cloning shares it.
#[derive(Debug, Clone)]
pub(super) struct SharedUnit(Arc<Mutex<Unit>>);

/// The PMU as one logical processor sees it.
#[derive(Debug)]
pub(super) struct Netburst {
    signature: u32,
    unit: SharedUnit,
    /// Which of the core's logical processors it is: 0 or 1.
    thread: usize,
    ds_area: u64,
}

/// A clone has a unit of its own.
impl Clone for Netburst {
    fn clone(&self) -> Self {
        let unit = SharedUnit(Arc::new(Mutex::new(self.unit.lock().clone())));
        Self { unit, ..*self }
    }
}

/// What a snapshot holds: the unit, and what is the logical processor's own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Saved {
    threads: u8,
    thread: usize,
    ds_area: u64,
    registers: Registers,
    counters: Vec<Counter>,
    interrupts: [bool; 2],
}

impl SharedUnit {
    /// A unit just after reset that nobody uses yet.
    pub(super) fn new(facts: &'static profile::Netburst, options: Options) -> Self {
        Self(Arc::new(Mutex::new(Unit {
            facts,
            options,
            threads: 0,
            registers: Registers::reset(facts),
            counters: Default::default(),
            rules: Default::default(),
            on: [0; 2],
            interrupts: [false; 2],
        })))
    }

    /// The unit. Nothing panics while it is locked.
    fn lock(&self) -> MutexGuard<'_, Unit> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Netburst {
    /// Logical processor `thread` of the core whose unit is `unit`.
    pub(super) fn new(profile: &'static Profile, unit: &SharedUnit, thread: u8) -> Self {
        {
            let mut unit = unit.lock();
            unit.threads += 1;
            unit.update_rules();
        }
        Self { signature: profile.signature, unit: unit.clone(), thread: thread.into(), ds_area: 0 }
    }

    pub(super) fn save(&self) -> Saved {
        let unit = self.unit.lock();
        Saved {
            threads: unit.threads,
            thread: self.thread,
            ds_area: self.ds_area,
            registers: unit.registers.clone(),
            counters: unit.counters.to_vec(),
            interrupts: unit.interrupts,
        }
    }

    /// Takes up a saved state of the same profile; false if it does not fit. What was shared is from now on its own.
    pub(super) fn restore(&mut self, saved: Saved) -> bool {
        let mut unit = self.unit.lock();
        let Ok(counters) = <[Counter; COUNTERS]>::try_from(saved.counters) else { return false };
        if !saved.registers.fits(unit.facts) || saved.thread > 1 {
            return false;
        }
        self.thread = saved.thread;
        self.ds_area = saved.ds_area;
        unit.threads = saved.threads;
        unit.registers = saved.registers;
        unit.counters = counters;
        unit.interrupts = saved.interrupts;
        unit.update_rules();
        true
    }

    pub(super) fn owns_msr(&self, msr: u32) -> bool {
        self.unit.lock().owns_msr(msr)
    }

    pub(super) fn rdmsr(&self, msr: u32) -> Result<u64, GeneralProtection> {
        if msr == super::msr::IA32_DS_AREA {
            return Ok(self.ds_area);
        }
        self.unit.lock().rdmsr(msr, self.thread)
    }

    pub(super) fn wrmsr(&mut self, msr: u32, value: u64) -> Result<(), GeneralProtection> {
        if msr != super::msr::IA32_DS_AREA {
            return self.unit.lock().wrmsr(msr, value, self.thread);
        }
        if !registers::canonical(value) {
            return Err(GeneralProtection);
        }
        self.ds_area = value;
        Ok(())
    }

    pub(super) fn rdpmc(&self, ecx: u32) -> Result<u64, GeneralProtection> {
        self.unit.lock().rdpmc(ecx)
    }

    /// Overlays what the part says (SDM Vol. 2A, CPUID; Vol. 3B 18.15.7.1): the highest basic leaf is 5, there is no
    /// architectural performance monitoring and no IA32_PERF_CAPABILITIES, but a debug store in 64-bit layout.
    pub(super) fn cpuid(&self, leaf: u32, _subleaf: u32, regs: &mut CpuidRegs) {
        const DTES64: u32 = 1 << 2;
        const PDCM: u32 = 1 << 15;
        const DS: u32 = 1 << 21;
        match leaf {
            0 => regs.eax = regs.eax.min(5),
            1 => {
                regs.eax = self.signature;
                regs.ecx = regs.ecx & !PDCM | DTES64;
                regs.edx |= DS;
            }
            0x0A => *regs = CpuidRegs::default(),
            _ => {}
        }
    }

    /// IA32_MISC_ENABLE (Vol. 4, table of family 15, 1A0H): performance monitoring is available (7), PEBS is not
    /// unavailable (12), branch trace storage is (11): it is not modelled.
    pub(super) fn misc_enable(&self, machine: u64) -> u64 {
        machine & !(1 << 12) | 1 << 11 | 1 << 7
    }

    /// What the core's counters demand, whichever logical processor asks: one may count what the other does.
    pub(super) fn demand(&self) -> Demand {
        let unit = self.unit.lock();
        unit.rules.iter().map(Rule::demand).max().unwrap_or(Demand::Nothing)
    }

    pub(super) fn headroom(&self, privilege: Privilege) -> [u64; 4] {
        let unit = self.unit.lock();
        let mut headroom = [u64::MAX; 4];
        for (counter, rule) in unit.counters.iter().zip(&unit.rules) {
            if !rule.privileges[self.thread][privilege as usize] {
                continue;
            }
            for basic in Basic::ALL {
                let limit = match rule.limits(basic) {
                    rule::Limit::None => continue,
                    rule::Limit::Each => 1,
                    rule::Limit::Overflow => counter.distance(rule),
                };
                headroom[basic as usize] = headroom[basic as usize].min(limit);
            }
        }
        headroom
    }

    pub(super) fn count_basic(&mut self, delta: &BasicCounts) {
        self.unit
            .lock()
            .count_each(self.thread, |counter, rule| counter.count_basic(rule, delta, self.thread));
    }

    #[inline]
    pub(super) fn count(&mut self, events: &MicroEvents, privilege: Privilege) {
        self.unit
            .lock()
            .count_each(self.thread, |counter, rule| counter.count(rule, events, privilege, self.thread));
    }

    /// There are no branch records in this model of the part.
    pub(super) fn record_branch(&mut self, _: u64, _: u64, _: BranchKind, _: bool, _: Privilege) {}

    pub(super) fn needs_settle(&self) -> bool {
        let unit = self.unit.lock();
        unit.interrupts[self.thread] || unit.counters.iter().any(|counter| counter.needs_settle(self.thread))
    }

    pub(super) fn settle(&mut self, retired: &Retired, bus: &mut dyn Bus) -> Settlement {
        self.unit.lock().settle(self.thread, self.ds_area, retired, bus)
    }
}

impl Unit {
    fn count_each(&mut self, thread: usize, mut count: impl FnMut(&mut Counter, &Rule)) {
        let mut on = self.on[thread];
        while on != 0 {
            let index = on.trailing_zeros() as usize;
            on &= on - 1;
            count(&mut self.counters[index], &self.rules[index]);
        }
    }

    /// Derives what each counter counts from the registers.
    fn update_rules(&mut self) {
        for index in 0..COUNTERS {
            self.rules[index] = self.rule(index);
        }
        self.on = [0, 1].map(|thread: usize| {
            let on = self.rules.iter().enumerate().filter(|(_, rule)| rule.is_on(thread));
            on.fold(0, |on, (index, _)| on | 1 << index)
        });
    }

    /// The value of counter `index` as software sees it.
    fn value(&self, index: usize) -> u64 {
        self.counters[index].value & ((1 << BITS) - 1)
    }
}
