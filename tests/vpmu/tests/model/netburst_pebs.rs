//! NetBurst: tagging, at-retirement events, PEBS.

use crate::machine::*;
use crate::netburst::*;
use crate::netburst_overflow::siblings;
use vpmu::pmu::msr;
use vpmu::profile::PRESCOTT;
use vpmu::{DataAccess, Event, Options, PebsOutcome};

const RAT_ESCR0: u32 = 0x3BC;
const SAAT_ESCR0: u32 = 0x3AE;
const SAAT_ESCR1: u32 = 0x3AF;
const MATRIX_VERT: u32 = 0x3F2;
const UOP_TAG: u64 = 1 << 24;
const MY_THREAD: u64 = 1 << 25;
const OTHER_THREAD: u64 = 1 << 26;

const FRONT_END_EVENT: u64 = 0x08;
const REPLAY_EVENT: u64 = 0x09;
const RECORD_BYTES: u64 = 144;

/// The at-retirement event `select` on `counter`: 16 through MSR_CRU_ESCR2, 17 through MSR_CRU_ESCR3.
fn at_retirement(machine: &mut Machine, counter: u32, select: u64, more: u64) {
    let qualifiers = if counter == 16 { T0_USR } else { T1_USR };
    machine.wr(CRU_ESCR2 + (counter - 16), escr(select, 1, qualifiers));
    machine.wr(CCCR + counter, cccr(5, more));
}

/// A buffer for `records`, which interrupts when there are `threshold`; the counter is reset to 0 − `period`.
fn set_up(machine: &mut Machine, records: u64, threshold: u64, period: u64) {
    machine.set_up_pebs(records, threshold, period);
    machine.bus.set_word(DS_AREA + 0x30, BUFFER + records * RECORD_BYTES);
    machine.bus.set_word(DS_AREA + 0x38, BUFFER + threshold * RECORD_BYTES);
    machine.bus.set_word(DS_AREA + 0x40, RANGE_40 - period);
}

fn records(machine: &mut Machine) -> u64 {
    (machine.bus.word(DS_AREA + 0x28) - BUFFER) / RECORD_BYTES
}

/// Samples L1 load misses, one in `period`.
fn sampling(period: u64, capacity: u64, threshold: u64) -> Machine {
    let mut machine = prescott();
    set_up(&mut machine, capacity, threshold, period);
    machine.wr(MATRIX_VERT, 1);
    machine.wr(msr::IA32_PEBS_ENABLE, MY_THREAD | UOP_TAG | 1);
    at_retirement(&mut machine, 16, REPLAY_EVENT, 0);
    machine.wr(COUNTER + 16, RANGE_40 - period);
    machine
}

fn miss() -> Instruction {
    let access = DataAccess { linear: 0x7000, outcome: None };
    Instruction { load: Some(access), ..happens(&[Event::LoadL1Miss]) }
}

/// Replay tagging (18.15.6.4, table 19-33): the metric in IA32_PEBS_ENABLE, what is tagged in MSR_PEBS_MATRIX_VERT, and for
/// split accesses an ESCR besides.
#[test]
fn replay_tagging_counts_the_metrics_of_the_table() {
    let instructions = [
        happens(&[Event::LoadL1Miss]),
        happens(&[Event::LoadL1Miss, Event::LoadL3Miss]),
        happens(&[Event::LoadStlbMiss]),
        happens(&[Event::StoreStlbMiss]),
        happens(&[Event::BranchMispredicted]),
        happens(&[Event::LoadSplit]),
        happens(&[Event::StoreSplit]),
        happens(&[Event::LoadL1Hit]),
    ];
    // The n-th happens 2^n times.
    let cases: [(&str, u64, u64, u64); 10] = [
        ("1stL_cache_load_miss_retired", 1 << 0, 1, 0b11),
        ("2ndL_cache_load_miss_retired", 1 << 1, 1, 0b10),
        ("DTLB_load_miss_retired", 1 << 2, 1, 0b100),
        ("DTLB_store_miss_retired", 1 << 2, 2, 0b1000),
        ("DTLB_all_miss_retired", 1 << 2, 3, 0b1100),
        ("Tagged_mispred_branch", 1 << 15 | 1 << 16, 1 << 4, 0b1_0000),
        ("split_load_retired", 1 << 10, 1, 0b10_0000),
        ("split_store_retired", 1 << 10, 2, 0b100_0000),
        // A micro-operation is tagged once.
        ("both levels", 0b11, 1, 0b11),
        ("MOB_load_replay_retired, which is not modelled", 1 << 9, 1, 0),
    ];
    for (name, metric, vert, expected) in cases {
        let mut machine = prescott();
        machine.wr(SAAT_ESCR1, escr(0x04, 2, 0));
        machine.wr(SAAT_ESCR0, escr(0x05, 2, 0));
        machine.wr(MATRIX_VERT, vert);
        machine.wr(msr::IA32_PEBS_ENABLE, UOP_TAG | metric);
        at_retirement(&mut machine, 16, REPLAY_EVENT, 0);
        for (n, instruction) in instructions.iter().enumerate() {
            machine.steps(*instruction, 1 << n);
        }
        assert_eq!(machine.rd(COUNTER + 16), expected, "{name}");
    }
}

/// "Replay tagging must also be enabled with the UOP_Tag flag (bit 24)" (18.15.6.4); BOGUS work is never seen; split metrics need
/// their ESCR.
#[test]
fn replay_tagging_needs_all_its_registers() {
    let count = |enable: u64, vert: u64, mask: u64, split_escr: u64, what: Event| {
        let mut machine = prescott();
        machine.wr(SAAT_ESCR1, split_escr);
        machine.wr(MATRIX_VERT, vert);
        machine.wr(msr::IA32_PEBS_ENABLE, enable);
        machine.wr(CRU_ESCR2, escr(REPLAY_EVENT, mask, T0_USR));
        machine.wr(CCCR + 16, cccr(5, 0));
        machine.steps(happens(&[what]), 3);
        machine.rd(COUNTER + 16)
    };
    assert_eq!(count(UOP_TAG | 1, 1, 1, 0, Event::LoadL1Miss), 3);
    assert_eq!(count(1, 1, 1, 0, Event::LoadL1Miss), 0);
    assert_eq!(count(UOP_TAG | 1, 2, 1, 0, Event::LoadL1Miss), 0);
    assert_eq!(count(UOP_TAG | 1, 1, 2, 0, Event::LoadL1Miss), 0);
    assert_eq!(count(UOP_TAG | 1 << 10, 1, 1, escr(0x04, 2, 0), Event::LoadSplit), 3);
    assert_eq!(count(UOP_TAG | 1 << 10, 1, 1, 0, Event::LoadSplit), 0);
}

/// Front-end tagging (18.15.6.2, table 19-31): uop_type's TAGLOADS and TAGSTORES in a RAT ESCR, which no counter chooses.
/// instr_retired tells tagged instructions from others.
#[test]
fn front_end_tagging_tags_loads_and_stores() {
    let both = Instruction { store: store(0x2000).store, ..load(0x1000) };
    let times = [(nop(), 1), (load(0x1000), 2), (store(0x2000), 4), (both, 8)];
    // Mask of uop_type; micro-operations tagged; instructions tagged, and not.
    for (tags, tagged, yes, no) in [(0, 0, 0, 15), (2, 10, 10, 5), (4, 12, 12, 3), (6, 22, 14, 1)] {
        let mut machine = prescott();
        machine.wr(RAT_ESCR0, escr(0x02, tags, 0));
        at_retirement(&mut machine, 16, FRONT_END_EVENT, 0);
        machine.wr(CRU_ESCR0, escr(0x02, 0b10, T0_USR));
        machine.wr(CCCR + 12, cccr(4, 0));
        machine.wr(CRU_ESCR0 + 1, escr(0x02, 0b01, T0_USR));
        machine.wr(CCCR + 14, cccr(4, 0));
        for (instruction, n) in times {
            machine.steps(instruction, n);
        }
        let counts = [16, 12, 14].map(|counter| machine.rd(COUNTER + counter));
        assert_eq!(counts, [tagged, yes, no], "{tags:#b}");
    }
}

/// A record is 144 bytes: RFLAGS, RIP of the next instruction, RAX to R15 (SDM Vol. 3B, figure 17-10). The counter is reloaded
/// with the 40 bits at offset 40H of the DS area.
#[test]
fn a_record_shows_the_machine_behind_the_event() {
    let mut machine = sampling(3, 8, 9);
    machine.bus.registers.general = std::array::from_fn(|register| 0x100 + register as u64);
    machine.bus.registers.rflags = 0x246;
    machine.steps(miss(), 3);
    assert_eq!(records(&mut machine), 0, "armed by the overflow");
    machine.steps(nop(), 5);
    let cause = machine.pc;
    let settlement = machine.step(miss()).expect("a boundary");
    let written = PebsOutcome::Written { at: BUFFER, bytes: 144, counters: 1 << 16, shown: 0 };
    assert_eq!(settlement.pebs, Some(written));
    assert_eq!((machine.bus.word(BUFFER), machine.bus.word(BUFFER + 8)), (0x246, cause + 4));
    let order = [0, 3, 1, 2, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
    for (place, register) in order.into_iter().enumerate() {
        assert_eq!(machine.bus.word(BUFFER + 0x10 + 8 * place as u64), 0x100 + register);
    }
    assert_eq!(machine.rd(COUNTER + 16), RANGE_40 - 2);
    assert_eq!(machine.bus.pmis, 0);
}

/// Records are a period apart: events = records × period + what the counter has counted since.
#[test]
fn records_times_period_is_the_count() {
    for period in [1, 2, 7, 100] {
        let mut machine = sampling(period, 400, 500);
        machine.steps(miss(), 350);
        let since = machine.rd(COUNTER + 16).wrapping_sub(RANGE_40 - period) % RANGE_40;
        assert_eq!(records(&mut machine) * period + since, 350, "{period}");
        assert_eq!(records(&mut machine), 349 / period, "{period}");
    }
}

/// The threshold interrupts; a full buffer takes nothing more, and the counter is reloaded all the same.
#[test]
fn the_buffer_interrupts_at_its_threshold_and_never_overflows() {
    let mut machine = sampling(2, 4, 3);
    machine.steps(miss(), 6);
    assert_eq!((records(&mut machine), machine.bus.pmis), (2, 0));
    machine.step(miss());
    assert_eq!((records(&mut machine), machine.bus.pmis), (3, 1));
    machine.steps(miss(), 2);
    assert_eq!(records(&mut machine), 4);
    machine.step(miss());
    let settlement = machine.step(miss()).expect("a boundary");
    assert_eq!(settlement.pebs, Some(PebsOutcome::Dropped { counters: 1 << 16 }));
    assert_eq!((records(&mut machine), machine.rd(COUNTER + 16)), (4, RANGE_40 - 1));
}

/// An unmapped DS area or buffer faults; the counter stays armed, and the record comes once it is mapped.
#[test]
fn an_unmapped_buffer_faults() {
    let mut machine = sampling(2, 4, 5);
    machine.bus.unmap(BUFFER);
    machine.steps(miss(), 2);
    let settlement = machine.step(miss()).expect("a boundary");
    assert!(matches!(settlement.pebs, Some(PebsOutcome::Faulted { fault, .. }) if fault.linear == BUFFER));
    machine.bus.map(BUFFER, 4096);
    machine.step(miss());
    assert_eq!(records(&mut machine), 1);
}

/// PEBS is for IQ_COUNTER4 of logical processor 0 and IQ_COUNTER5 of logical processor 1 alone (18.16.3), and for the three
/// events that support it (18.15.7).
#[test]
fn only_some_counters_and_events_have_pebs() {
    // Counter 12 with the same event.
    let mut machine = sampling(2, 8, 9);
    machine.wr(CCCR + 16, 0);
    machine.wr(CCCR + 12, cccr(5, 0));
    machine.wr(COUNTER + 12, RANGE_40 - 2);
    machine.steps(miss(), 6);
    assert_eq!((records(&mut machine), machine.rd(COUNTER + 12)), (0, 4));
    // instr_retired on counter 16.
    let mut machine = sampling(2, 8, 9);
    machine.wr(CRU_ESCR0, escr(0x02, 0b11, T0_USR));
    machine.wr(CCCR + 16, cccr(4, 0));
    machine.steps(miss(), 6);
    assert_eq!((records(&mut machine), machine.rd(COUNTER + 16)), (0, 4));
    // Front-end tagged stores.
    let mut machine = sampling(2, 8, 9);
    machine.wr(RAT_ESCR0, escr(0x02, 4, 0));
    at_retirement(&mut machine, 16, FRONT_END_EVENT, 0);
    machine.steps(store(0x2000), 7);
    assert_eq!(records(&mut machine), 3);
}

/// ENABLE_PEBS_MY_THR and ENABLE_PEBS_OTH_THR are relative to who writes and reads (18.16.3). Each logical processor has its own
/// DS area, so that each writes its own records.
#[test]
fn each_logical_processor_has_its_own_records() {
    let [mut zero, mut one] = siblings();
    for machine in [&mut zero, &mut one] {
        set_up(machine, 8, 9, 2);
    }
    zero.wr(MATRIX_VERT, 1);
    zero.wr(msr::IA32_PEBS_ENABLE, OTHER_THREAD | UOP_TAG | 1);
    assert_eq!(one.rd(msr::IA32_PEBS_ENABLE), MY_THREAD | UOP_TAG | 1);
    for counter in [16, 17] {
        at_retirement(&mut zero, counter, REPLAY_EVENT, 0);
        zero.wr(COUNTER + counter, RANGE_40 - 2);
    }
    zero.steps(miss(), 7);
    one.steps(miss(), 7);
    assert_eq!((records(&mut zero), records(&mut one)), (0, 3));
    one.wr(msr::IA32_PEBS_ENABLE, OTHER_THREAD | UOP_TAG | 1);
    zero.wr(COUNTER + 16, RANGE_40 - 2);
    zero.steps(miss(), 7);
    one.steps(miss(), 7);
    assert_eq!((records(&mut zero), records(&mut one)), (3, 3));
}

/// Disabling PEBS disarms a counter that has overflowed, or not, as the option says.
#[test]
fn disabling_disarms_if_asked_to() {
    for (disarms, expected) in [(true, 0), (false, 1)] {
        let mut machine =
            Machine::of(&PRESCOTT, Options { pebs_disable_disarms: disarms, ..Options::default() });
        set_up(&mut machine, 8, 9, 5);
        machine.wr(MATRIX_VERT, 1);
        machine.wr(msr::IA32_PEBS_ENABLE, MY_THREAD | UOP_TAG | 1);
        at_retirement(&mut machine, 16, REPLAY_EVENT, 0);
        machine.wr(COUNTER + 16, RANGE_40 - 1);
        machine.step(miss());
        machine.wr(msr::IA32_PEBS_ENABLE, 0);
        machine.wr(msr::IA32_PEBS_ENABLE, MY_THREAD | UOP_TAG | 1);
        machine.step(miss());
        assert_eq!(records(&mut machine), expected, "{disarms}");
    }
}
