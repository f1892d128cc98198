//! NetBurst: overflow, cascading, and what logical processors share.

use crate::machine::*;
use crate::netburst::*;
use vpmu::profile::PRESCOTT;
use vpmu::{Event, Options, Pmu, PmuCore};

/// Two logical processors of one core.
pub(crate) fn siblings() -> [Machine; 2] {
    let core = PmuCore::new(&PRESCOTT, Options::default());
    [0, 1].map(|thread| Machine::with(Pmu::of_thread(&core, thread)))
}

/// OVF is set when the counter passes its maximum and stays until software clears it; "the PMI is generated on the next event
/// count after the counter has overflowed" (18.15.3).
#[test]
fn overflow_sets_ovf_and_interrupts_at_the_next_event() {
    let mut machine = prescott();
    count_instructions(&mut machine, T0_USR, OVF_PMI_T0);
    machine.wr(COUNTER + 12, RANGE_40 - 3);
    machine.steps(nop(), 2);
    assert_eq!(machine.rd(CCCR + 12) & OVF, 0);
    machine.step(nop());
    assert_eq!((machine.rd(CCCR + 12) & OVF, machine.bus.pmis), (OVF, 0));
    // Not an event of this counter.
    machine.steps(Instruction { kernel: true, ..nop() }, 4);
    assert_eq!(machine.bus.pmis, 0);
    assert_eq!(machine.pmu.headroom(vpmu::Privilege::User)[0], 1);
    machine.step(nop());
    assert_eq!((machine.bus.pmis, machine.rd(COUNTER + 12)), (1, 1));
    machine.steps(nop(), 10);
    assert_eq!((machine.bus.pmis, machine.rd(CCCR + 12) & OVF), (1, OVF));
    // Who clears OVF before the next event has seen the overflow.
    machine.wr(COUNTER + 12, RANGE_40 - 1);
    machine.step(nop());
    count_instructions(&mut machine, T0_USR, OVF_PMI_T0);
    machine.steps(nop(), 2);
    assert_eq!((machine.bus.pmis, machine.rd(CCCR + 12) & OVF), (1, 0));
}

/// FORCE_OVF: "forces a counter overflow on every counter increment" (18.15.3); the counter counts on.
#[test]
fn forced_overflows_come_with_every_increment() {
    let mut machine = prescott();
    count_instructions(&mut machine, T0_USR, FORCE_OVF | OVF_PMI_T0);
    machine.step(nop());
    assert_eq!((machine.rd(CCCR + 12) & OVF, machine.bus.pmis), (OVF, 0));
    machine.steps(nop(), 6);
    assert_eq!((machine.bus.pmis, machine.rd(COUNTER + 12)), (6, 7));
}

/// A counter with CASCADE starts when its partner overflows (18.15.5.6, example 18-1): 0 and 2 in either order, 16 from 14 alone.
#[test]
fn counters_cascade() {
    let cascade = |from: u32, into: u32| {
        let mut machine = prescott();
        for address in [CRU_ESCR0, CRU_ESCR0 + 1] {
            machine.wr(address, escr(0x02, 0b11, T0_USR));
        }
        machine.wr(CCCR + from, cccr(4, 0));
        machine.wr(CCCR + into, 4 << 13 | ANY | CASCADE);
        machine.wr(COUNTER + from, RANGE_40 - 200);
        machine.steps(nop(), 200);
        assert_eq!(machine.rd(COUNTER + into), 0, "starts behind the overflow");
        machine.steps(nop(), 30);
        assert_eq!(machine.rd(COUNTER + from), 30, "wraps around");
        machine.rd(COUNTER + into)
    };
    for (from, into) in [(12, 14), (14, 12), (13, 15), (15, 13), (14, 16), (15, 17)] {
        assert_eq!(cascade(from, into), 30, "{from} into {into}");
    }
    for (from, into) in [(12, 13), (12, 15), (12, 16), (16, 14), (16, 12), (17, 15)] {
        assert_eq!(cascade(from, into), 0, "{from} into {into}");
    }
}

/// Bit 11 of four CCCRs of the IQ group: 16 and 17 start others (18.15.5.7, table 18-65).
#[test]
fn counters_16_and_17_cascade_by_the_extension() {
    for (from, into, starts) in
        [(16, 12, true), (17, 15, true), (17, 16, true), (16, 17, true), (16, 15, false), (17, 12, false)]
    {
        let mut machine = prescott();
        for address in [CRU_ESCR0, CRU_ESCR0 + 1] {
            machine.wr(address, escr(0x02, 0b11, T0_USR));
        }
        machine.wr(CCCR + from, cccr(4, 0));
        machine.wr(CCCR + into, 4 << 13 | ANY | 1 << 11);
        machine.wr(COUNTER + from, RANGE_40 - 5);
        machine.steps(nop(), 12);
        assert_eq!(machine.rd(COUNTER + into), if starts { 7 } else { 0 }, "{from} into {into}");
    }
}

/// Two logical processors share counters, CCCRs and ESCRs (18.16); T0 and T1 flags choose among them.
#[test]
fn logical_processors_share_counters() {
    for (qualifiers, expected) in [(T0_USR, 5), (T1_USR, 7), (T0_USR | T1_USR, 12), (T1_OS, 2), (T0_OS, 0)] {
        let [mut zero, mut one] = siblings();
        count_instructions(&mut one, qualifiers, 0);
        assert_eq!(zero.rd(CCCR + 12), cccr(4, 0), "one CCCR");
        zero.steps(nop(), 5);
        one.steps(nop(), 7);
        one.steps(Instruction { kernel: true, ..nop() }, 2);
        assert_eq!((zero.rd(COUNTER + 12), one.rd(COUNTER + 12)), (expected, expected), "{qualifiers:#x}");
    }
}

/// page_walk_type cannot be qualified by logical processor: privilege levels chosen for either count on both (18.16.4).
#[test]
fn thread_independent_events_count_on_both() {
    let walk = happens(&[Event::DtlbLoadWalk]);
    for (qualifiers, expected) in [(T0_USR, 8), (T1_OS, 1), (T0_USR | T1_OS, 9), (0, 0)] {
        let [mut zero, mut one] = siblings();
        zero.wr(0x3AC, escr(0x01, 1, qualifiers));
        zero.wr(CCCR, cccr(4, 0));
        zero.steps(walk, 5);
        one.steps(walk, 3);
        one.step(Instruction { kernel: true, ..walk });
        assert_eq!(zero.rd(COUNTER), expected, "{qualifiers:#x}");
    }
}

/// ACTIVE_THREAD (18.16.2): none, single, both, any.
#[test]
fn active_thread_qualifies() {
    for (field, alone, together) in [(0, 0, 0), (1, 6, 0), (2, 0, 6), (3, 6, 6)] {
        let program = |machine: &mut Machine| {
            machine.wr(CRU_ESCR0, escr(0x02, 0b11, T0_USR));
            machine.wr(CCCR + 12, 4 << 13 | ENABLE | field << 16);
        };
        let mut single = prescott();
        program(&mut single);
        single.steps(nop(), 6);
        assert_eq!(single.rd(COUNTER + 12), alone, "{field}");
        let [mut zero, _one] = siblings();
        program(&mut zero);
        zero.steps(nop(), 6);
        assert_eq!(zero.rd(COUNTER + 12), together, "{field}");
    }
}

/// OVF_PMI_T0 and OVF_PMI_T1 say who is interrupted, whoever counted (18.16.2).
#[test]
fn interrupts_go_to_the_logical_processors_that_are_named() {
    for (flags, expected) in
        [(OVF_PMI_T0, (1, 0)), (OVF_PMI_T1, (0, 1)), (OVF_PMI_T0 | OVF_PMI_T1, (1, 1)), (0, (0, 0))]
    {
        let [mut zero, mut one] = siblings();
        count_instructions(&mut zero, T0_USR, flags);
        zero.wr(COUNTER + 12, RANGE_40 - 2);
        zero.steps(nop(), 3);
        assert_eq!(one.pmu.needs_settle(), flags & OVF_PMI_T1 != 0);
        one.step(nop());
        assert_eq!((zero.bus.pmis, one.bus.pmis), expected, "{flags:#x}");
    }
}

/// A clone shares nothing; a snapshot has the whole state.
#[test]
fn clones_and_snapshots_stand_alone() {
    let [mut zero, mut one] = siblings();
    count_instructions(&mut zero, T0_USR | T1_USR, OVF_PMI_T0);
    zero.wr(COUNTER + 12, RANGE_40 - 1);
    zero.step(nop());
    let mut clone = zero.pmu.clone();
    clone.wrmsr(COUNTER + 12, 99).expect("a counter");
    assert_eq!(one.rd(COUNTER + 12), 0);
    let text = serde_json::to_string(&zero.pmu.snapshot()).expect("a snapshot");
    let restored = Pmu::restore(serde_json::from_str(&text).expect("the same")).expect("the same profile");
    let mut restored = Machine::with(restored);
    one.step(nop());
    restored.step(nop());
    assert_eq!((restored.rd(COUNTER + 12), restored.bus.pmis), (1, 1), "the interrupt was waiting");
}
