//! Counting: exact at any granularity, with any mixture of counters.

use crate::machine::*;
use proptest::prelude::*;
use vpmu::pmu::msr;
use vpmu::profile::{CLEARWATER_FOREST, SKYLAKE};
use vpmu::{Basic, Demand, Event, EventSet, MicroEvents, Options, Privilege, Retired};

/// SDM Vol. 3B 18.2.1.1: USR and OS choose the privilege levels, EN and IA32_PERF_GLOBAL_CTRL switch on.
#[test]
fn privilege_and_enable_bits_select_what_is_counted() {
    for (select, expected) in [(USR | EN, 7), (OS | EN, 5), (USR | OS | EN, 12), (EN, 0), (USR | OS, 0)] {
        let mut machine = Machine::new(Options::default());
        machine.wr(msr::IA32_PERFEVTSEL0, 0xC0 | select);
        machine.steps(nop(), 7);
        machine.steps(Instruction { kernel: true, ..nop() }, 5);
        assert_eq!(machine.pmc(0), expected, "{select:#x}");
    }
    let mut machine = Machine::new(Options::default());
    machine.wr(msr::IA32_PERFEVTSEL0, 0xC0 | USR | EN);
    machine.wr(msr::IA32_PERF_GLOBAL_CTRL, 0b10);
    machine.steps(nop(), 7);
    assert_eq!(machine.pmc(0), 0);
}

/// SDM Vol. 3B, tables 18-1 and 18-2: the fixed-function counters.
#[test]
fn fixed_counters_count_instructions_cycles_and_reference_cycles() {
    let mut machine = Machine::new(Options::default());
    machine.wr(msr::IA32_PERF_GLOBAL_CTRL, 7 << 32);
    machine.wr(msr::IA32_FIXED_CTR_CTRL, 0x132);
    let micro = MicroEvents { cycles: 3, ..MicroEvents::default() };
    machine.steps(Instruction { micro, ..nop() }, 4);
    machine.steps(Instruction { kernel: true, micro, ..nop() }, 2);
    assert_eq!(machine.rd(msr::IA32_FIXED_CTR0), 4, "user only");
    assert_eq!(machine.rd(msr::IA32_FIXED_CTR0 + 1), 18, "both");
    assert_eq!(machine.rd(msr::IA32_FIXED_CTR0 + 2), 6, "kernel only");
}

/// An encoding that the profile does not know counts nothing and asks for nothing; an event on a counter that
/// cannot count it neither (SDM Vol. 3B, table 18-56, note 1).
#[test]
fn unknown_and_misplaced_events_count_nothing() {
    let mut machine = Machine::new(Options::default());
    for (index, event) in [(0, 0x01C0), (1, 0x00C1), (2, 0x01C0), (3, 0xFFFF)] {
        machine.wr(msr::IA32_PERFEVTSEL0 + index, event | USR | OS | EN);
    }
    assert_eq!(machine.pmu.demand(), Demand::Nothing);
    machine.steps(load(0x1000), 9);
    assert_eq!([0, 1, 2, 3].map(|index| machine.pmc(index)), [0; 4]);
    machine.wr(msr::IA32_PERFEVTSEL0 + 1, 0x01C0 | USR | EN);
    machine.steps(nop(), 9);
    assert_eq!(machine.pmc(1), 9);
}

/// What must be observed follows what is programmed.
#[test]
fn demand_follows_the_registers() {
    let mut machine = Machine::new(Options::default());
    let demand = |machine: &mut Machine, select: u64, pebs: u64| {
        machine.wr(msr::IA32_PERFEVTSEL0, select);
        machine.wr(msr::IA32_PEBS_ENABLE, pebs);
        machine.pmu.demand()
    };
    assert_eq!(demand(&mut machine, 0, 0), Demand::Nothing);
    assert_eq!(demand(&mut machine, 0x81D0 | EN, 0), Demand::Nothing, "no privilege level");
    assert_eq!(demand(&mut machine, 0x81D0 | USR | EN, 0), Demand::Basic);
    assert_eq!(demand(&mut machine, 0x81D0 | USR | EN, 1), Demand::DataAddresses);
    assert_eq!(
        demand(&mut machine, 0x82D0 | USR | EN, 1),
        Demand::Microarchitecture,
        "the record says hit or miss"
    );
    assert_eq!(demand(&mut machine, 0x08D1 | USR | EN, 0), Demand::Microarchitecture);
    assert_eq!(demand(&mut machine, 0x00C0 | USR | EN | EDGE, 0), Demand::Microarchitecture);
    machine.wr(msr::IA32_PERF_GLOBAL_CTRL, 0);
    assert_eq!(machine.pmu.demand(), Demand::Nothing);
}

/// One counter of the reference: counts event by event and knows nothing of batches.
#[derive(Debug, Clone, Copy)]
struct Reference {
    basic: Basic,
    user: bool,
    kernel: bool,
    value: u64,
    overflowed: bool,
}

impl Reference {
    fn count(&mut self, basic: Basic, kernel: bool) {
        if basic == self.basic && if kernel { self.kernel } else { self.user } {
            self.value = (self.value + 1) % RANGE;
            self.overflowed |= self.value == 0;
        }
    }
}

/// A report of cycles that passed.
fn spent(busy: u32, stall: u32) -> MicroEvents {
    MicroEvents { cycles: busy + stall, stall_cycles: stall, ..MicroEvents::default() }
}

fn basic() -> impl Strategy<Value = Basic> {
    proptest::sample::select(Basic::ALL.to_vec())
}

fn encoding(basic: Basic) -> u64 {
    match basic {
        Basic::Instruction => 0x00C0,
        Basic::Load => 0x81D0,
        Basic::Store => 0x82D0,
        Basic::Branch => 0x00C4,
    }
}

proptest! {
    /// An adapter that counts inline and comes back only when the headroom is used up, or the privilege level
    /// changes, gets the same values and overflow bits at every such point as the reference that looks at
    /// each instruction.
    #[test]
    fn batches_equal_single_steps(
        counters in prop::collection::vec((basic(), any::<bool>(), any::<bool>(), 1..40u64), 1..=4),
        // Per run: privilege, instructions, and which of them load, store, branch (as a repeating pattern).
        runs in prop::collection::vec((any::<bool>(), 1..50u32, 0..64u64), 1..20),
    ) {
        let mut machine = Machine::new(Options::default());
        let mut references = Vec::new();
        for (index, &(basic, user, kernel, period)) in counters.iter().enumerate() {
            let index = index as u32;
            let privileges = if user { USR } else { 0 } | if kernel { OS } else { 0 };
            machine.wr(msr::IA32_PERFEVTSEL0 + index, encoding(basic) | privileges | EN);
            machine.set_period(index, period);
            let value = (RANGE - period) % RANGE;
            references.push(Reference { basic, user, kernel, value, overflowed: false });
        }
        for (kernel, instructions, pattern) in runs {
            let privilege = if kernel { Privilege::Kernel } else { Privilege::User };
            let mut left = machine.pmu.headroom(privilege);
            let mut batch = [[0; 2]; 4];
            for n in 0..instructions {
                for basic in Basic::ALL {
                    let happens = basic == Basic::Instruction || pattern >> ((n + basic as u32) % 6) & 1 == 1;
                    if happens {
                        batch[basic as usize][privilege as usize] += 1;
                        left[basic as usize] -= 1;
                        references.iter_mut().for_each(|reference| reference.count(basic, kernel));
                    }
                }
                if left.contains(&0) {
                    machine.pmu.count_basic(&std::mem::take(&mut batch));
                    prop_assert!(machine.pmu.needs_settle());
                    let retired = Retired { pc: 0, next_pc: 4, privilege, load: None, store: None, locked: false };
                    let _ = machine.pmu.settle(&retired, &mut machine.bus);
                    left = machine.pmu.headroom(privilege);
                    prop_assert!(!left.contains(&0));
                }
            }
            machine.pmu.count_basic(&batch);
            prop_assert!(!machine.pmu.needs_settle(), "the headroom was not used up");
            let status = machine.rd(msr::IA32_PERF_GLOBAL_STATUS);
            for (index, reference) in references.iter().enumerate() {
                prop_assert_eq!(machine.pmc(index as u32), reference.value);
                prop_assert_eq!(status >> index & 1 == 1, reference.overflowed);
            }
        }
        prop_assert_eq!(machine.bus.pmis, 0, "no counter had INT set");
    }

    /// Events of the microarchitecture add up, each as often as it happened.
    #[test]
    fn micro_events_add_up(
        // Per report: privilege, busy cycles, stalled cycles, which events happened.
        reports in prop::collection::vec((any::<bool>(), 0..9u32, 0..9u32, 0..8u64), 0..50),
    ) {
        let mut machine = Machine::new(Options::default());
        // MEM_LOAD_RETIRED.L1_MISS user, L1D.REPLACEMENT both, THREAD_P kernel, CYCLE_ACTIVITY.STALLS_L2_MISS
        // both.
        let selects = [0x08D1 | USR, 0x0151 | USR | OS, 0x003C | OS, 5 << 24 | 0x05A3 | USR | OS];
        for (index, select) in (0..).zip(selects) {
            machine.wr(msr::IA32_PERFEVTSEL0 + index, select | EN);
        }
        let mut expected = [0u64; 4];
        for (kernel, busy, stall, happened) in reports {
            let mut micro = spent(busy, stall);
            micro.stalled = EventSet::of(&[Event::StallL1dMiss, Event::StallL2Miss]);
            let possible = [Event::LoadL1Miss, Event::L1dReadMiss, Event::L1dWriteMiss];
            for (bit, event) in possible.into_iter().enumerate() {
                if happened >> bit & 1 == 1 {
                    micro.once.insert(event);
                }
            }
            expected[0] += u64::from(!kernel && happened & 1 == 1);
            expected[1] += (happened >> 1 & 1) + (happened >> 2 & 1);
            expected[2] += if kernel { u64::from(busy + stall) } else { 0 };
            expected[3] += u64::from(stall);
            machine.step(Instruction { kernel, micro, ..nop() });
        }
        let counted = [0, 1, 2, 3].map(|index| machine.pmc(index));
        prop_assert_eq!(counted, expected);
    }

    /// CMASK, INV and E (SDM Vol. 3B 18.2.1.1), and version 6's EQ, against a reference that looks at each cycle.
    #[test]
    fn cycle_filters_equal_a_cycle_by_cycle_reference(
        cmask in 0..4u64, invert in any::<bool>(), edge in any::<bool>(), equal in any::<bool>(),
        // Per instruction: busy cycles, stalled cycles, whether it has the event.
        stream in prop::collection::vec((0..3u32, 0..3u32, any::<bool>()), 1..60),
    ) {
        // Only version 6 has EQ.
        let (profile, encoding, event) = if equal {
            (&CLEARWATER_FOREST, 0x02D1 | EQ, Event::LoadL2Hit)
        } else {
            (&SKYLAKE, 0x2124, Event::L2ReadMiss)
        };
        let mut machine = Machine::of(profile, Options::default());
        let modifiers = cmask << 24 | if invert { INV } else { 0 } | if edge { EDGE } else { 0 };
        machine.wr(msr::IA32_PERFEVTSEL0, encoding | USR | EN | modifiers);
        let mut cycles = vec![0u64];
        for &(busy, stall, happens) in &stream {
            let mut micro = spent(busy, stall);
            cycles.extend(std::iter::repeat_n(0, micro.cycles as usize));
            if happens {
                micro.once.insert(event);
                *cycles.last_mut().unwrap() += 1;
            }
            machine.step(Instruction { micro, ..nop() });
        }
        // The last cycle has not ended.
        cycles.pop();
        let qualifies = |&events: &u64| match (cmask, edge) {
            (0, false) => false,
            (0, true) => events >= 1,
            _ => (if equal && cmask != 0 { events == cmask } else { events >= cmask }) != invert,
        };
        let mut expected = 0;
        let mut asserted = false;
        for now in cycles.iter().map(qualifies) {
            expected += u64::from(now && !(edge && asserted));
            asserted = now;
        }
        if cmask == 0 && !edge {
            expected = stream.iter().filter(|(_, _, happens)| *happens).count() as u64;
        }
        prop_assert_eq!(machine.pmc(0), expected);
    }
}

/// Intel's and Linux' way to count cycles precisely: instructions retired, CMASK 16, inverted (SDM Vol. 3B,
/// table 18-56, note 2), on any counter.
#[test]
fn fewer_than_sixteen_instructions_a_cycle_is_every_cycle() {
    let mut machine = Machine::new(Options::default());
    machine.wr(msr::IA32_PERFEVTSEL0 + 3, 0x01C0 | 16 << 24 | INV | USR | EN);
    machine.wr(msr::IA32_PERFEVTSEL0, 0x003C | USR | EN);
    for n in 0..100 {
        let micro = MicroEvents { cycles: n % 5, ..MicroEvents::default() };
        machine.step(Instruction { micro, ..nop() });
    }
    assert_eq!(machine.pmc(3), machine.pmc(0));
    assert_eq!(machine.pmc(0), 200);
}

/// Counting instructions per cycle needs each instruction in its cycle: the headroom says so.
#[test]
fn cycle_filters_of_basic_events_are_told_each_event() {
    let mut machine = Machine::new(Options::default());
    machine.wr(msr::IA32_PERFEVTSEL0, 0x00C0 | 2 << 24 | USR | EN);
    assert_eq!(machine.pmu.headroom(Privilege::User), [1, u64::MAX, u64::MAX, u64::MAX]);
    assert_eq!(machine.pmu.headroom(Privilege::Kernel), [u64::MAX; 4]);
    // Cycles with 2, 3 and 1 instructions: two have at least 2.
    for cycles in [0, 0, 1, 0, 0, 1, 1] {
        let micro = MicroEvents { cycles, ..MicroEvents::default() };
        machine.step(Instruction { micro, ..nop() });
    }
    assert_eq!(machine.pmc(0), 2);
}

/// A counter that is programmed anew starts with no cycle half counted.
#[test]
fn a_new_cycle_filter_forgets_the_old_one() {
    let mut machine = Machine::new(Options::default());
    let step = |machine: &mut Machine, cycles| {
        machine.step(Instruction { micro: MicroEvents { cycles, ..MicroEvents::default() }, ..nop() });
    };
    machine.wr(msr::IA32_PERFEVTSEL0, 0x00C0 | 2 << 24 | USR | EN);
    step(&mut machine, 0);
    step(&mut machine, 0);
    machine.wr(msr::IA32_PERFEVTSEL0, 0x00C0 | 1 << 24 | USR | EN);
    step(&mut machine, 1);
    assert_eq!(machine.pmc(0), 0, "the two instructions before were not this counter's");
    step(&mut machine, 1);
    assert_eq!(machine.pmc(0), 1);
}
