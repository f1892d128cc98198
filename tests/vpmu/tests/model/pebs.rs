//! PEBS: when records are written, what is in them, what happens when they cannot be.

use crate::machine::*;
use proptest::prelude::*;
use vpmu::pmu::msr;
use vpmu::{
    Basic, DataAccess, DataOutcome, DataSource, Demand, Event, MicroEvents, Options, PebsOutcome, Privilege,
    Registers,
};

const OVF_BUFFER: u64 = 1 << 62;
const ALL_LOADS: u64 = 0x81D0;
const ALL_STORES: u64 = 0x82D0;
const LOAD_LATENCY: u64 = 0x01CD;

/// A machine that samples `event` on counter 0 with this period.
fn sampling(event: u64, period: u64, records: u64, threshold: u64) -> Machine {
    let mut machine = Machine::new(Options::default());
    machine.set_up_pebs(records, threshold, period);
    machine.wr(msr::IA32_PERFEVTSEL0, event | USR | EN);
    machine.wr(msr::IA32_PEBS_ENABLE, 1);
    machine.set_period(0, period);
    machine
}

/// SDM Vol. 3B 18.8.1.1: the overflow arms, the next event writes the record; the reload keeps the distance
/// between records at the period.
#[test]
fn the_event_after_the_overflow_writes_the_record() {
    let mut machine = sampling(ALL_LOADS, 10, 8, 9);
    let first = machine.pc;
    machine.steps(load(0x5000), 10);
    assert_eq!(machine.records(), 0);
    assert_eq!(machine.rd(msr::IA32_PERF_GLOBAL_STATUS), 1, "overflowed, not yet recorded");
    machine.steps(nop(), 5);
    assert_eq!(machine.records(), 0, "an instruction without the event does not trigger");
    machine.step(load(0x6000));
    assert_eq!(machine.records(), 1);
    assert_eq!(machine.record(0, 0xB0), first + 15 * 4);
    assert_eq!(machine.record(0, 0x98), 0x6000);
    assert_eq!(machine.pmc(0), RANGE - 9, "the triggering event is the first of the next period");
    assert_eq!(machine.rd(msr::IA32_PERF_GLOBAL_STATUS), 0, "the assist clears the overflow bit (18.2.2)");
    machine.steps(load(0x7000), 9);
    assert_eq!(machine.records(), 1);
    machine.step(load(0x7000));
    assert_eq!(machine.records(), 2);
    assert_eq!(machine.bus.pmis, 0);
}

proptest! {
    /// records = ⌊(events − 1) / period⌋, and Linux' accounting (intel_pmu_save_and_restart_reload) gives the
    /// events back.
    #[test]
    fn records_times_period_is_the_count(period in 1..50u64, events in 0..400u64, others in 0..3u64) {
        let mut machine = sampling(ALL_LOADS, period, 400, 500);
        for _ in 0..events {
            machine.steps(nop(), others);
            machine.step(load(0x1000));
        }
        let records = machine.records();
        prop_assert_eq!(records, events.saturating_sub(1) / period);
        let value = machine.pmc(0) as i128 - if machine.pmc(0) >= RANGE / 2 { RANGE as i128 } else { 0 };
        prop_assert_eq!(i128::from(records * period) + value + i128::from(period), i128::from(events));
    }
}

/// SDM Vol. 3B, table 18-55: each field at its offset; all 25 are written.
#[test]
fn record_layout() {
    let mut machine = sampling(ALL_LOADS, 1, 4, 5);
    let mut general = [0; 16];
    for (value, number) in general.iter_mut().zip(0x100..) {
        *value = number;
    }
    machine.bus.registers = Registers { general, rip: 0xDEAD, rflags: 0x246 };
    machine.bus.tsc = 777;
    machine.step(load(0x10));
    let pc = machine.pc;
    machine.step(load(0xFFFF_8800_0000_1234));
    let words: Vec<u64> = (0..25).map(|word| machine.record(0, 8 * word)).collect();
    let [rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi] = general[..8].try_into().unwrap();
    let mut expected = vec![0x246, pc + 4, rax, rbx, rcx, rdx, rsi, rdi, rbp, rsp];
    expected.extend(&general[8..]);
    expected.extend([1, 0xFFFF_8800_0000_1234, 0, 0, pc, 0, 797]);
    assert_eq!(words, expected);
    assert_eq!(machine.records(), 1);
}

/// SDM Vol. 3B 18.8.1.1: at the threshold OvfBuffer is set and one interrupt requested, whatever INT says.
#[test]
fn reaching_the_threshold_interrupts() {
    let mut machine = sampling(ALL_LOADS, 2, 8, 3);
    machine.steps(load(0), 6);
    assert_eq!((machine.records(), machine.bus.pmis), (2, 0));
    machine.step(load(0));
    assert_eq!((machine.records(), machine.bus.pmis), (3, 1));
    assert_eq!(machine.rd(msr::IA32_PERF_GLOBAL_STATUS), OVF_BUFFER);
}

/// The same section: assist, threshold interrupt, overflow interrupt are in this order, and the two
/// interrupts separate.
#[test]
fn a_counter_with_int_interrupts_at_its_overflow_too() {
    let mut machine = sampling(ALL_LOADS, 2, 8, 1);
    machine.wr(msr::IA32_PERFEVTSEL0, ALL_LOADS | USR | EN | INT);
    machine.steps(load(0), 2);
    assert_eq!((machine.records(), machine.bus.pmis), (0, 1));
    machine.step(load(0));
    assert_eq!((machine.records(), machine.bus.pmis), (1, 2));
}

/// SDM Vol. 3B 18.8.1.1: nothing is written past the absolute maximum and nothing is signalled. The counter
/// is reloaded.
#[test]
fn a_full_buffer_drops_the_record() {
    let mut machine = sampling(ALL_LOADS, 2, 1, 9);
    machine.steps(load(0), 3);
    assert_eq!(machine.records(), 1);
    machine.step(load(0));
    let settlement = machine.step(load(0)).expect("the dropped record");
    assert_eq!(settlement.pebs, Some(PebsOutcome::Dropped { counters: 1 }));
    assert_eq!(settlement.pmis, 0);
    assert_eq!(machine.records(), 1);
    assert_eq!(machine.pmc(0), RANGE - 1);
}

/// A record ends exactly at the absolute maximum or is not written.
#[test]
fn a_record_that_would_end_one_byte_late_is_dropped() {
    let mut machine = sampling(ALL_LOADS, 1, 1, 9);
    machine.bus.set_word(DS_AREA + 0x30, BUFFER + RECORD - 1);
    machine.step(load(0));
    assert_eq!(machine.step(load(0)).unwrap().pebs, Some(PebsOutcome::Dropped { counters: 1 }));
    assert_eq!(machine.record(0, 0xB0), 0);
}

/// SDM Vol. 3B 17.4.9.2: buffer and management area must be present. If not, the access faults; nothing is
/// lost but the record, which is written at the first event after the page is there.
#[test]
fn an_unmapped_buffer_faults_and_the_counter_stays_armed() {
    for unmapped in [DS_AREA, BUFFER] {
        let mut machine = sampling(ALL_LOADS, 4, 8, 9);
        let management: Vec<u64> = (0..8).map(|word| machine.bus.word(DS_AREA + 0x20 + 8 * word)).collect();
        machine.bus.unmap(unmapped);
        machine.steps(load(0), 4);
        let settlement = machine.step(load(0)).unwrap();
        let Some(PebsOutcome::Faulted { counters: 1, fault }) = settlement.pebs else {
            panic!("{settlement:?}");
        };
        assert_eq!(fault.linear & !0xFFF, unmapped);
        assert_eq!(fault.write, unmapped == BUFFER);
        assert_eq!(machine.pmc(0), 1, "not reloaded");
        machine.bus.map(unmapped, 4096);
        if unmapped == DS_AREA {
            for (word, value) in (0..).zip(management) {
                machine.bus.set_word(DS_AREA + 0x20 + 8 * word, value);
            }
        }
        machine.step(load(0));
        assert_eq!((machine.records(), machine.pmc(0)), (1, RANGE - 2), "the reload keeps all events");
    }
}

/// SDM Vol. 3B 18.13.1.1: the applicable-counters field says whose record it is; simultaneous ones share a
/// record.
#[test]
fn several_counters_share_the_buffer() {
    let mut machine = sampling(ALL_LOADS, 6, 8, 9);
    machine.bus.set_word(DS_AREA + 0x50, RANGE - 3);
    machine.wr(msr::IA32_PERFEVTSEL0 + 2, 0x20C4 | USR | EN);
    machine.wr(msr::IA32_PEBS_ENABLE, 0b101);
    machine.set_period(2, 3);
    let micro = MicroEvents { once: vpmu::EventSet::of(&[Event::BranchTaken]), ..MicroEvents::default() };
    machine.steps(Instruction { branch: true, micro, ..load(0x40) }, 13);
    let counters: Vec<u64> = (0..machine.records()).map(|index| machine.record(index, 0x90)).collect();
    assert_eq!(counters, [0b100, 0b101, 0b100, 0b101]);
    let addresses: Vec<u64> = (0..4).map(|index| machine.record(index, 0x98)).collect();
    assert_eq!(addresses, [0, 0x40, 0, 0x40], "a branch's record has no data address");
}

/// What clearing IA32_PEBS_ENABLE does to an armed counter is the model's option.
#[test]
fn disabling_pebs_disarms_or_postpones() {
    for disarms in [true, false] {
        let mut machine = sampling(ALL_LOADS, 5, 8, 9);
        machine.pmu = vpmu::Pmu::new(
            machine.pmu.profile(),
            Options { pebs_disable_disarms: disarms, ..Options::default() },
        );
        machine.set_up_pebs(8, 9, 5);
        machine.wr(msr::IA32_PERFEVTSEL0, ALL_LOADS | USR | EN);
        machine.wr(msr::IA32_PEBS_ENABLE, 1);
        machine.set_period(0, 5);
        machine.steps(load(0), 5);
        machine.wr(msr::IA32_PEBS_ENABLE, 0);
        machine.steps(load(0), 2);
        assert_eq!((machine.records(), machine.pmc(0)), (0, 2));
        machine.wr(msr::IA32_PEBS_ENABLE, 1);
        machine.step(load(0));
        assert_eq!(machine.records(), u64::from(!disarms));
        assert_eq!(machine.pmc(0), if disarms { 3 } else { RANGE - 2 });
    }
}

/// A postponed record comes at the first event after PEBS is on again, whatever software has made of the
/// counter meanwhile; the reload then carries over only what came after that.
#[test]
fn a_postponed_record_survives_rewriting_the_counter() {
    let mut machine = Machine::new(Options { pebs_disable_disarms: false, ..Options::default() });
    machine.set_up_pebs(8, 9, 5);
    machine.wr(msr::IA32_PERFEVTSEL0, ALL_LOADS | USR | EN);
    machine.wr(msr::IA32_PEBS_ENABLE, 1);
    machine.set_period(0, 5);
    machine.steps(load(0), 5);
    machine.wr(msr::IA32_PEBS_ENABLE, 0);
    machine.steps(load(0), 2);
    // Another thread's counter, one event before its overflow.
    machine.set_period(0, 1);
    assert_eq!(machine.pmu.headroom(Privilege::User)[Basic::Load as usize], 1);
    machine.set_period(0, 3);
    assert_eq!(machine.pmu.headroom(Privilege::User)[Basic::Load as usize], 3, "it only counts meanwhile");
    machine.set_period(0, 1);
    machine.wr(msr::IA32_PEBS_ENABLE, 1);
    machine.step(load(0));
    assert_eq!((machine.records(), machine.pmc(0)), (1, RANGE - 4));
    assert!(!machine.pmu.needs_settle());
}

/// Each overflow of a counter with INT interrupts, also the one that follows a reload at once.
#[test]
fn a_period_of_one_interrupts_at_each_event() {
    let mut machine = sampling(ALL_LOADS, 1, 8, 9);
    machine.wr(msr::IA32_PERFEVTSEL0, ALL_LOADS | USR | EN | INT);
    for events in 1..=5 {
        machine.step(load(0));
        assert_eq!((machine.records(), machine.bus.pmis), (events - 1, events as u32));
        assert_eq!(machine.rd(msr::IA32_PERF_GLOBAL_STATUS), 1, "overflowed again");
    }
}

/// A driver that resumes a disarmed counter at −1 gets its record two events later.
#[test]
fn a_counter_restored_to_minus_one_records_after_one_event() {
    let mut machine = sampling(ALL_LOADS, 5, 8, 9);
    machine.steps(load(0), 5);
    machine.wr(msr::IA32_PERF_GLOBAL_CTRL, 0);
    machine.wr(msr::IA32_PEBS_ENABLE, 0);
    machine.wr(msr::IA32_PEBS_ENABLE, 1);
    machine.set_period(0, 1);
    machine.wr(msr::IA32_PERF_GLOBAL_CTRL, 1);
    machine.step(load(0));
    assert_eq!(machine.records(), 0);
    machine.step(load(0));
    assert_eq!(machine.records(), 1);
}

/// SDM Vol. 3B, table 18-56: only precise events have records; others overflow as without PEBS.
#[test]
fn an_event_that_is_not_precise_writes_no_record() {
    let mut machine = sampling(0x00C0, 3, 8, 9);
    machine.wr(msr::IA32_PERFEVTSEL0, 0x00C0 | USR | EN | INT);
    machine.steps(nop(), 9);
    assert_eq!((machine.records(), machine.pmc(0), machine.bus.pmis), (0, 6, 1));
}

fn outcome(source: DataSource, latency_cycles: u16, stlb_miss: bool) -> Option<DataOutcome> {
    Some(DataOutcome { source, latency_cycles, stlb_miss })
}

/// SDM Vol. 3B, table 18-46: a store's record says in bit 0 whether it hit the L1 data cache.
#[test]
fn store_records_say_hit_or_miss() {
    let mut machine = sampling(ALL_STORES, 1, 8, 9);
    machine.step(store(0));
    for (source, linear) in [(DataSource::L1, 0x100), (DataSource::L2, 0x200), (DataSource::Memory, 0x300)] {
        let access = DataAccess { linear, outcome: outcome(source, 0, false) };
        machine.step(Instruction { store: Some(access), load: load(0x999).load, ..nop() });
    }
    let records: Vec<_> =
        (0..3).map(|index| (machine.record(index, 0x98), machine.record(index, 0xA0))).collect();
    assert_eq!(records, [(0x100, 1), (0x200, 0), (0x300, 0)]);
}

/// SDM Vol. 3B 18.9.4.2 and table 18-24: loads above the threshold count; the record has latency and data
/// source.
#[test]
fn load_latency_counts_above_the_threshold() {
    let mut machine = sampling(LOAD_LATENCY, 1, 8, 9);
    let micro = |load_latency_cycles| MicroEvents {
        once: vpmu::EventSet::of(&[Event::LoadLatency]),
        load_latency_cycles,
        ..MicroEvents::default()
    };
    machine.step(Instruction { micro: micro(500), ..load(0) });
    assert_eq!(machine.pmc(0), RANGE - 1, "LL_EN is off");
    assert_eq!(machine.pmu.demand(), Demand::Nothing);
    machine.wr(msr::IA32_PEBS_ENABLE, 1 << 32 | 1);
    machine.wr(msr::MSR_PEBS_LD_LAT_THRESHOLD, 12);
    assert_eq!(machine.pmu.demand(), Demand::Microarchitecture);
    let loads = [
        (DataSource::L1, 4, false),
        (DataSource::L2, 12, false),
        (DataSource::L1, 13, false),
        (DataSource::L1, 34, true),
        (DataSource::L2, 21, false),
        (DataSource::L3, 44, false),
        (DataSource::Memory, 270, true),
    ];
    for (linear, (source, latency, stlb_miss)) in (0x1000..).step_by(64).zip(loads) {
        let access = DataAccess { linear, outcome: outcome(source, latency, stlb_miss) };
        machine.step(Instruction { load: Some(access), micro: micro(latency), ..nop() });
    }
    // The first above 12 cycles overflowed the counter, each further one has a record.
    let words = |machine: &mut Machine, index| [0x98, 0xA0, 0xA8].map(|offset| machine.record(index, offset));
    assert_eq!(machine.records(), 4);
    assert_eq!(words(&mut machine, 0), [0x10C0, 0x11, 34]);
    assert_eq!(words(&mut machine, 1), [0x1100, 0x03, 21]);
    assert_eq!(words(&mut machine, 2), [0x1140, 0x04, 44]);
    assert_eq!(words(&mut machine, 3), [0x1180, 0x1A, 270]);
}

/// "The minimum value that may be programmed in this field is 3" (SDM Vol. 3B 18.9.4.2); a smaller one acts
/// as 3.
#[test]
fn the_smallest_latency_threshold_is_three() {
    let mut machine = Machine::new(Options::default());
    machine.wr(msr::IA32_PERFEVTSEL0, LOAD_LATENCY | USR | EN);
    machine.wr(msr::IA32_PEBS_ENABLE, 1 << 32 | 1);
    for load_latency_cycles in [3, 4] {
        let once = vpmu::EventSet::of(&[Event::LoadLatency]);
        let micro = MicroEvents { once, load_latency_cycles, ..MicroEvents::default() };
        machine.step(Instruction { micro, ..load(0) });
    }
    assert_eq!(machine.pmc(0), 1);
}

/// Cycles sampled precisely: the instruction that is waiting gets the record, once, however long it waits.
#[test]
fn a_long_instruction_writes_one_record() {
    let mut machine = sampling(0x01C0 | 16 << 24 | INV, 10, 8, 9);
    let wait = Instruction { micro: MicroEvents { cycles: 35, ..MicroEvents::default() }, ..nop() };
    let pc = machine.pc;
    machine.step(wait);
    assert_eq!((machine.records(), machine.record(0, 0xB0)), (1, pc));
    // 35 events: 10 to the first overflow, 25 carried into the period reloaded to −10, which is over again.
    assert_eq!(machine.pmc(0), 15);
    assert!(!machine.pmu.needs_settle(), "the next record is the next event's");
    machine.step(nop());
    assert_eq!(machine.records(), 1);
    let pc = machine.pc;
    machine.step(Instruction { micro: MicroEvents { cycles: 1, ..MicroEvents::default() }, ..nop() });
    assert_eq!((machine.records(), machine.record(1, 0xB0)), (2, pc));
}
