//! Overflow, interrupts and freezing.

use crate::machine::*;
use vpmu::pmu::msr;
use vpmu::{Event, EventSet, MicroEvents, Options, Privilege};

const CTR_FRZ: u64 = 1 << 59;
const LBR_FRZ: u64 = 1 << 58;
const FREEZE_LBRS_ON_PMI: u64 = 1 << 11;
const FREEZE_PERFMON_ON_PMI: u64 = 1 << 12;

fn counting(select: u64, period: u64) -> Machine {
    let mut machine = Machine::new(Options::default());
    machine.wr(msr::IA32_PERFEVTSEL0, 0xC0 | USR | OS | EN | select);
    machine.set_period(0, period);
    machine
}

/// SDM Vol. 3B 18.2.2: the overflow bit is set with or without INT, the interrupt requested only with it;
/// both at the instruction that overflows.
#[test]
fn overflow_sets_status_and_interrupts_if_asked() {
    for (select, pmis) in [(0, 0), (INT, 1)] {
        let mut machine = counting(select, 10);
        machine.steps(nop(), 9);
        assert_eq!((machine.rd(msr::IA32_PERF_GLOBAL_STATUS), machine.bus.pmis), (0, 0));
        machine.step(nop());
        assert_eq!((machine.rd(msr::IA32_PERF_GLOBAL_STATUS), machine.bus.pmis), (1, pmis));
        assert_eq!(machine.pmc(0), 0);
        machine.steps(nop(), 3);
        assert_eq!(machine.pmc(0), 3, "without freezing it counts on");
        machine.wr(msr::IA32_PERF_GLOBAL_STATUS_RESET, 1);
        assert_eq!(machine.rd(msr::IA32_PERF_GLOBAL_STATUS), 0);
    }
}

/// The fixed-function counters report in bits 32 and up, and interrupt by their own enable bit.
#[test]
fn a_fixed_counter_overflows_into_its_own_bit() {
    let mut machine = Machine::new(Options::default());
    machine.wr(msr::IA32_PERF_GLOBAL_CTRL, 7 << 32);
    machine.wr(msr::IA32_FIXED_CTR_CTRL, 0x00B);
    machine.wr(msr::IA32_FIXED_CTR0, RANGE - 3);
    machine.steps(nop(), 3);
    assert_eq!(machine.rd(msr::IA32_PERF_GLOBAL_STATUS), 1 << 32);
    assert_eq!(machine.bus.pmis, 1);
}

/// SDM Vol. 3B 18.8.1.1: "Hardware will not generate separate interrupts for each counter that simultaneously
/// overflows."
#[test]
fn simultaneous_overflows_are_one_interrupt() {
    let mut machine = counting(INT, 4);
    machine.wr(msr::IA32_PERFEVTSEL0 + 1, 0xC0 | USR | EN | INT);
    machine.set_period(1, 4);
    machine.steps(nop(), 4);
    assert_eq!(machine.rd(msr::IA32_PERF_GLOBAL_STATUS), 0b11);
    assert_eq!(machine.bus.pmis, 1);
}

/// SDM Vol. 3B 17.4.7 and 18.2.4.1, streamlined freezing of version 4: CTR_FRZ stops the counters,
/// GLOBAL_CTRL stays, and clearing CTR_FRZ lets them run.
#[test]
fn freeze_on_pmi_stops_all_counters_at_the_overflow() {
    let mut machine = counting(INT, 5);
    machine.wr(msr::IA32_PERFEVTSEL0 + 1, 0xC0 | USR | EN);
    machine.wr(msr::IA32_DEBUGCTL, FREEZE_PERFMON_ON_PMI);
    machine.steps(nop(), 20);
    assert_eq!([machine.pmc(0), machine.pmc(1)], [0, 5]);
    assert_eq!(machine.rd(msr::IA32_PERF_GLOBAL_STATUS), CTR_FRZ | 1);
    assert_eq!(machine.rd(msr::IA32_PERF_GLOBAL_CTRL), 0xF);
    assert_eq!(machine.pmu.headroom(Privilege::User), [u64::MAX; 4]);
    machine.wr(msr::IA32_PERF_GLOBAL_STATUS_RESET, CTR_FRZ | 1);
    machine.steps(nop(), 2);
    assert_eq!([machine.pmc(0), machine.pmc(1)], [2, 7]);
}

/// Without INT there is no PMI, hence nothing to freeze on; LBR_FRZ has its own control.
#[test]
fn only_a_pmi_freezes() {
    let mut machine = counting(0, 5);
    machine.wr(msr::IA32_DEBUGCTL, FREEZE_PERFMON_ON_PMI | FREEZE_LBRS_ON_PMI);
    machine.steps(nop(), 7);
    assert_eq!((machine.pmc(0), machine.rd(msr::IA32_PERF_GLOBAL_STATUS)), (2, 1));

    let mut machine = counting(INT, 5);
    machine.wr(msr::IA32_DEBUGCTL, FREEZE_LBRS_ON_PMI);
    machine.steps(nop(), 7);
    assert_eq!((machine.pmc(0), machine.rd(msr::IA32_PERF_GLOBAL_STATUS)), (2, LBR_FRZ | 1));
}

/// SDM Vol. 3B 18.2.4.2: software can set status bits itself; a frozen status freezes, an overflow bit
/// interrupts nobody.
#[test]
fn status_set_writes_the_bits_software_asks_for() {
    let mut machine = counting(INT, 100);
    machine.wr(msr::IA32_PERF_GLOBAL_STATUS_SET, CTR_FRZ | 0b100);
    machine.steps(nop(), 3);
    assert_eq!(machine.pmc(0), RANGE - 100);
    assert_eq!(machine.bus.pmis, 0);
    assert_eq!(machine.rd(msr::IA32_PERF_GLOBAL_STATUS), CTR_FRZ | 0b100);
}

/// An instruction can count many cycles at once; the overflow loses none of them.
#[test]
fn an_overflow_within_an_instruction_keeps_what_is_over() {
    let mut machine = Machine::new(Options::default());
    machine.wr(msr::IA32_PERFEVTSEL0, 0x3C | USR | EN | INT);
    machine.set_period(0, 50);
    let micro = MicroEvents {
        cycles: 240,
        stall_cycles: 240,
        stalled: EventSet::of(&[Event::StallTotal]),
        ..MicroEvents::default()
    };
    machine.step(Instruction { micro, ..nop() });
    assert_eq!((machine.pmc(0), machine.bus.pmis), (190, 1));
}
