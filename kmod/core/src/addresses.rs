//! Where a PMU's registers are: Intel's up to version 5 at the addresses of version 1, in version 6 four to a counter.

use super::allocate::Counter;
use super::pmu::netburst::registers::{COUNTERS, MSR_BPU_CCCR0, MSR_BPU_COUNTER0};
use super::pmu::{ExtraRegister, Interface};
use super::registers::{
    IA32_A_PMC0, IA32_FIXED_CTR0, IA32_PERFEVTSEL0, IA32_PMC0, IA32_PMC_FX0_CTR, IA32_PMC_GP0_CTR,
};
use super::Pmu;

/// Registers of one counter in version 6: CTR, CFG_A, CFG_B, CFG_C (SDM Vol. 4, table 2-2).
const STEP: u32 = 4;
const CFG_A: u32 = 1;
const CFG_B: u32 = 2;
const CFG_C: u32 = 3;

impl Pmu {
    /// The counter's register, for reading it; a general one is written with its full width where
    /// [`Pmu::full_width_writes`] says so and [`Pmu::written_register`] is used.
    #[must_use]
    pub const fn counter_register(&self, counter: Counter) -> u32 {
        if let Interface::Amd(amd) = &self.interface {
            return amd.counter_register(counter);
        }
        if self.perfmon.version >= 6 {
            return base(counter);
        }
        match counter.as_fixed() {
            Some(number) => IA32_FIXED_CTR0 + number,
            None => IA32_PMC0 + counter.place() as u32,
        }
    }

    /// The counter's register, for writing it.
    #[must_use]
    pub const fn written_register(&self, counter: Counter) -> u32 {
        let aliased = matches!(self.interface, Interface::Architectural) && self.perfmon.version < 6;
        if counter.as_fixed().is_none() && aliased && self.full_width_writes {
            return IA32_A_PMC0 + counter.place() as u32;
        }
        self.counter_register(counter)
    }

    /// The event select of a general counter.
    #[must_use]
    pub const fn select_register(&self, counter: Counter) -> u32 {
        if let Interface::Amd(amd) = &self.interface {
            return amd.select_register(counter);
        }
        if self.perfmon.version >= 6 {
            return base(counter) + CFG_A;
        }
        IA32_PERFEVTSEL0 + counter.place() as u32
    }

    /// The event select of the general counter with this number, which hpm need not use. Of Intel's architectural monitoring.
    #[must_use]
    pub const fn numbered_select_register(&self, number: u32) -> u32 {
        if self.perfmon.version >= 6 {
            return IA32_PMC_GP0_CTR + STEP * number + CFG_A;
        }
        IA32_PERFEVTSEL0 + number
    }

    /// Which counters set the counter back (auto counter reload).
    #[must_use]
    pub const fn cfg_b_register(&self, counter: Counter) -> u32 {
        base(counter) + CFG_B
    }

    /// What the counter does for architectural PEBS, and to what it is set back.
    #[must_use]
    pub const fn cfg_c_register(&self, counter: Counter) -> u32 {
        base(counter) + CFG_C
    }

    /// The registers by which the kernel's reservation knows the counters, with their event selects: the general counters
    /// only, Intel's by their addresses before version 6, or all of NetBurst's, of whose CCCRs it keeps no note. Whoever holds one of
    /// them holds the PMU.
    pub fn reservation(&self) -> impl DoubleEndedIterator<Item = (u32, u32)> {
        let first = Counter::at(0);
        // Also what lies between them and is not used.
        let general = u32::BITS - self.perfmon.general.leading_zeros();
        let (counter, select, count, step) = match self.interface {
            Interface::Architectural => (IA32_PMC0, IA32_PERFEVTSEL0, general, 1),
            Interface::NetBurst(_) => (MSR_BPU_COUNTER0, MSR_BPU_CCCR0, COUNTERS, 1),
            Interface::Amd(amd) => {
                (amd.counter_register(first), amd.select_register(first), general, amd.step())
            }
        };
        (0..count).map(move |number| (counter + step * number, select + step * number))
    }

    /// Whether it has this register: an event needs it, and for the one that only PEBS uses there is PEBS.
    #[must_use]
    pub fn has_extra(&self, register: ExtraRegister) -> bool {
        let sampling = register == ExtraRegister::LoadLatency;
        self.generation.has_extra(register) && (!sampling || self.pebs.is_ok())
    }
}

const fn base(counter: Counter) -> u32 {
    match counter.as_fixed() {
        Some(number) => IA32_PMC_FX0_CTR + STEP * number,
        None => IA32_PMC_GP0_CTR + STEP * counter.place() as u32,
    }
}
