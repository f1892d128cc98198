//! Extended and adaptive PEBS (SDM Vol. 3B 20.9, in the editions since 2023).

use crate::machine::*;
use vpmu::pmu::msr;
use vpmu::profile::{ALDER_LAKE, GRANITE_RAPIDS, ICE_LAKE, LUNAR_LAKE, SAPPHIRE_RAPIDS, SIERRA_FOREST};
use vpmu::{
    BranchKind, DataAccess, DataOutcome, DataSource, Demand, Event, EventSet, MicroEvents, Options,
    PebsOutcome, Privilege, Profile, Registers,
};

const BASIC: u64 = 32;
const ADAPTIVE: u64 = 1 << 34;
const ALL_LOADS: u64 = 0x81D0;
const LOAD_LATENCY: u64 = 0x01CD;

/// A machine with a PEBS buffer of 64 KiB and the reset value of every counter at 0 − `period`.
fn machine(profile: &'static Profile, period: u64) -> Machine {
    let mut machine = Machine::of(profile, Options::default());
    machine.bus.map(DS_AREA, 0x200);
    machine.bus.map(BUFFER, 0x1_0000);
    let area = [BUFFER, BUFFER, BUFFER + 0x1_0000, BUFFER + 0x1_0000];
    for (offset, value) in (0x20..).step_by(8).zip(area) {
        machine.bus.set_word(DS_AREA + offset, value);
    }
    for offset in (0x40..0x1C0).step_by(8) {
        machine.bus.set_word(DS_AREA + offset, RANGE - period);
    }
    machine.wr(msr::IA32_DS_AREA, DS_AREA);
    machine
}

/// `machine`, sampling `select` on general-purpose counter `counter` with these groups.
fn sampling(profile: &'static Profile, counter: u32, select: u64, period: u64, groups: u64) -> Machine {
    let mut machine = machine(profile, period);
    machine.wr(msr::MSR_PEBS_DATA_CFG, groups);
    machine.wr(msr::IA32_PERFEVTSEL0 + counter, select | ADAPTIVE | USR | EN);
    machine.set_period(counter, period);
    machine.wr(msr::IA32_PEBS_ENABLE, 1 << counter);
    machine
}

/// How many bytes of records there are.
fn written(machine: &mut Machine) -> u64 {
    machine.bus.word(DS_AREA + 0x28) - BUFFER
}

fn word(machine: &mut Machine, offset: u64) -> u64 {
    machine.bus.word(BUFFER + offset)
}

/// 20.9.1: PEBS on every counter, with reset values at 40H (general-purpose) and 80H (fixed-function), in
/// format 5 at 140H; the record names its counter as IA32_PERF_GLOBAL_STATUS does.
#[test]
fn fixed_counters_write_records() {
    for (profile, resets) in [(&ICE_LAKE, 0x80), (&GRANITE_RAPIDS, 0x140)] {
        let mut machine = machine(profile, 10);
        for offset in (0x40..0x1C0).step_by(8) {
            machine.bus.set_word(DS_AREA + offset, 0);
        }
        machine.bus.set_word(DS_AREA + resets, RANGE - 10);
        machine.wr(msr::IA32_FIXED_CTR_CTRL, 0b0010);
        machine.wr(msr::IA32_PERF_GLOBAL_CTRL, 1 << 32);
        machine.wr(msr::IA32_PEBS_ENABLE, 1 << 32);
        machine.wr(msr::IA32_FIXED_CTR0, RANGE - 10);
        machine.steps(nop(), 10);
        assert_eq!(machine.pmu.headroom(Privilege::User)[0], 1, "armed: INST_RETIRED.ANY is precise");
        machine.steps(nop(), 25);
        assert_eq!(written(&mut machine), 3 * BASIC);
        assert_eq!(word(&mut machine, 16), 1 << 32);
        assert_eq!(machine.rd(msr::IA32_FIXED_CTR0), RANGE - 5);
    }
}

/// 20.9.1: "a non-precise event will occur at the next opportunity after the counter has overflowed".
#[test]
fn any_event_can_be_sampled() {
    let mut machine = sampling(&ICE_LAKE, 7, 0x003C, 10, 0);
    let cycle = Instruction { micro: MicroEvents { cycles: 5, ..MicroEvents::default() }, ..nop() };
    machine.step(cycle);
    let pc = machine.pc;
    machine.step(cycle);
    assert_eq!((written(&mut machine), word(&mut machine, 8)), (BASIC, pc));
    assert_eq!(machine.pmc(7), RANGE - 10);
}

/// 20.9.2.1: without Adaptive_Record the record is a basic one, whatever MSR_PEBS_DATA_CFG says.
#[test]
fn a_counter_without_adaptive_record_writes_basic_records() {
    let mut machine = sampling(&ICE_LAKE, 0, ALL_LOADS, 1, 0b1111);
    machine.wr(msr::IA32_PERFEVTSEL0, ALL_LOADS | USR | EN);
    machine.bus.tsc = 500;
    machine.step(load(0));
    let pc = machine.pc;
    machine.step(load(0));
    let words: Vec<u64> = (0..4).map(|index| word(&mut machine, 8 * index)).collect();
    assert_eq!(words, [BASIC << 48, pc, 1, 520]);
    assert_eq!(written(&mut machine), BASIC);
}

/// 20.9.2.2: basic, memory, GPR, XMM and LBR groups in this order; the first word has the groups in bits 31:0
/// and the record's size in 63:48.
#[test]
fn groups_follow_in_order() {
    let groups = 0b1111 | 1 << 24;
    let mut machine = sampling(&ICE_LAKE, 0, ALL_LOADS, 1, groups);
    machine.wr(msr::IA32_DEBUGCTL, 1);
    for n in 1..=3 {
        machine.pmu.record_branch(0x100 * n, 0x200 * n, BranchKind::DirectJump, false, Privilege::User);
    }
    let mut general = [0; 16];
    for (value, number) in general.iter_mut().zip(0x10..) {
        *value = number;
    }
    machine.bus.registers = Registers { general, rip: 0xABC, rflags: 0x246 };
    machine.bus.xmm[15] = [0x1234, 0x5678];
    machine.step(load(0));
    let outcome = machine.step(load(0x7000)).and_then(|settlement| settlement.pebs);
    let size = BASIC + 32 + 144 + 256 + 2 * 24;
    assert_eq!(outcome, Some(PebsOutcome::Written { at: BUFFER, bytes: 512, counters: 1, shown: 1 }));
    assert_eq!(written(&mut machine), size);
    assert_eq!(word(&mut machine, 0), size << 48 | groups);
    let memory: Vec<u64> = (4..8).map(|index| word(&mut machine, 8 * index)).collect();
    assert_eq!(memory, [0x7000, 0, 0, 0]);
    let gprs: Vec<u64> = (8..26).map(|index| word(&mut machine, 8 * index)).collect();
    assert_eq!((gprs[0], gprs[1]), (0x246, machine.bus.registers.rip));
    assert_eq!(gprs[2..], general);
    let xmm15 = [0x1C0, 0x1C8].map(|offset| word(&mut machine, offset));
    assert_eq!(xmm15, [0x1234, 0x5678]);
    let branches = [0x1D0, 0x1D8, 0x1E8, 0x1F0].map(|offset| word(&mut machine, offset));
    assert_eq!(branches, [0x300, 0x600, 0x200, 0x400], "the most recent branch first");
}

/// Records of one buffer can differ in size; the index moves by what was written.
#[test]
fn a_record_that_does_not_fit_is_dropped() {
    let mut machine = sampling(&ICE_LAKE, 0, ALL_LOADS, 1, 0b10);
    machine.bus.set_word(DS_AREA + 0x30, BUFFER + 176 + 175);
    machine.steps(load(0), 2);
    assert_eq!(written(&mut machine), 176);
    let settlement = machine.step(load(0)).expect("the dropped record");
    assert_eq!(settlement.pebs, Some(PebsOutcome::Dropped { counters: 1 }));
    machine.wr(msr::MSR_PEBS_DATA_CFG, 0);
    machine.step(load(0));
    assert_eq!(written(&mut machine), 176 + BASIC);
}

fn sampled_load(linear: u64, source: DataSource, latency_cycles: u16, stlb_miss: bool) -> Instruction {
    let outcome = Some(DataOutcome { source, latency_cycles, stlb_miss });
    let once = EventSet::of(&[Event::LoadLatency]);
    let micro = MicroEvents { once, load_latency_cycles: latency_cycles, ..MicroEvents::default() };
    Instruction { load: Some(DataAccess { linear, outcome }), micro, ..nop() }
}

/// 20.9.7: version 5 has no LL_EN bit. Ice Lake's latency is one number, Golden Cove's two; data source in
/// the low bits.
#[test]
fn load_latency_needs_no_enable_bit() {
    for (profile, latency) in [(&ICE_LAKE, 300), (&GRANITE_RAPIDS, 300 | 300 << 32)] {
        let mut machine = sampling(profile, 1, LOAD_LATENCY, 1, 0b1);
        machine.wr(msr::MSR_PEBS_LD_LAT_THRESHOLD, 20);
        machine.step(sampled_load(0x40, DataSource::L2, 20, false));
        assert_eq!(machine.pmc(1), RANGE - 1, "not above the threshold");
        machine.step(sampled_load(0x40, DataSource::L3, 50, false));
        machine.step(sampled_load(0x80, DataSource::Memory, 300, true));
        let words = [0x20, 0x28, 0x30].map(|offset| word(&mut machine, offset));
        assert_eq!(words, [0x80, 0xA | 1 << 4, latency], "{}", profile.name);
    }
}

/// Golden Cove samples no load latency unless MEM_LOADS_AUX (03H, umask 82H) is counted as well (Intel's
/// event list; Linux: PMU_FL_MEM_LOADS_AUX).
#[test]
fn golden_cove_needs_the_auxiliary_event() {
    let mut machine = sampling(&SAPPHIRE_RAPIDS, 1, LOAD_LATENCY, 1, 0b1);
    machine.step(sampled_load(0x40, DataSource::Memory, 300, false));
    assert_eq!((machine.pmc(1), machine.pmu.demand()), (RANGE - 1, Demand::Nothing));
    machine.wr(msr::IA32_PERFEVTSEL0, 0x8203 | USR | EN);
    machine.steps(sampled_load(0x40, DataSource::Memory, 300, false), 2);
    assert_eq!(written(&mut machine), BASIC + 32);
}

/// 20.9.8: the store latency facility, on counter 0.
#[test]
fn store_latency_has_source_and_latency() {
    let mut machine = sampling(&SAPPHIRE_RAPIDS, 0, 0x02CD, 1, 0b1);
    assert_eq!(machine.pmu.demand(), Demand::Microarchitecture);
    let outcome = Some(DataOutcome { source: DataSource::L2, latency_cycles: 15, stlb_miss: false });
    let store = Instruction { store: Some(DataAccess { linear: 0x99, outcome }), ..nop() };
    machine.steps(store, 2);
    let words = [0x20, 0x28, 0x30].map(|offset| word(&mut machine, offset));
    assert_eq!(words, [0x99, 3, 15 | 15 << 32]);
    let elsewhere = sampling(&SAPPHIRE_RAPIDS, 1, 0x02CD, 1, 0b1);
    assert_eq!(elsewhere.pmu.demand(), Demand::Nothing, "only counter 0 counts it");
}

/// Gracemont has lock and STLB miss the other way round (Linux: grt_latency_data).
#[test]
fn gracemont_swaps_lock_and_tlb() {
    let efficient = ALDER_LAKE.of_cpu(1, 2);
    let mut machine = sampling(efficient, 0, 0x05D0, 1, 0b1);
    machine.steps(sampled_load(0x80, DataSource::L2, 40, true), 2);
    assert_eq!(word(&mut machine, 0x28), 3 | 1 << 5);
}

/// Crestmont has a wider data source, and lock and STLB miss behind it (Linux: cmt_latency_data); load latency is an event of
/// counters 0 and 1.
#[test]
fn crestmont_has_lock_and_tlb_one_bit_higher() {
    let mut machine = sampling(&SIERRA_FOREST, 1, 0x05D0, 1, 0b1);
    machine.steps(sampled_load(0x80, DataSource::L2, 40, true), 2);
    assert_eq!(word(&mut machine, 0x28), 3 | 1 << 6);
    let elsewhere = sampling(&SIERRA_FOREST, 2, 0x05D0, 1, 0b1);
    assert_eq!(elsewhere.pmu.demand(), Demand::Nothing, "no other counts it");
}

/// Lion Cove's data sources (Linux: lnc_pebs_data_source, lnc_latency_data); load latency is no event of counters 0 and 1.
#[test]
fn lion_cove_has_codes_of_its_own() {
    let mut machine = sampling(&LUNAR_LAKE, 2, LOAD_LATENCY, 1, 0b1);
    machine.step(sampled_load(0x40, DataSource::L2, 40, false));
    machine.step(sampled_load(0x80, DataSource::Memory, 300, true));
    assert_eq!(word(&mut machine, 0x28), 0x11 | 1 << 10);
    let elsewhere = sampling(&LUNAR_LAKE, 1, LOAD_LATENCY, 1, 0b1);
    assert_eq!(elsewhere.pmu.demand(), Demand::Nothing, "no other counts it");
}

/// IA32_PERF_CAPABILITIES.PEBS_TIMING_INFO: bits 47:32 of the first word are the cycles since the instruction
/// before retired. They are known only if everything is observed.
#[test]
fn timed_pebs_has_the_retire_latency() {
    let mut machine = sampling(&GRANITE_RAPIDS, 0, ALL_LOADS, 1, 0);
    assert_eq!(machine.pmu.demand(), Demand::Microarchitecture);
    let begin = EventSet::of(&[Event::L1iRead]);
    let fetch = |cycles| MicroEvents { once: begin, cycles, ..MicroEvents::default() };
    machine.step(Instruction { micro: fetch(9), ..load(0) });
    machine.pmu.count(&fetch(1), Privilege::User);
    machine.pmu.count(&MicroEvents { cycles: 70, ..MicroEvents::default() }, Privilege::User);
    machine.step(load(0));
    assert_eq!(word(&mut machine, 0) >> 32 & 0xFFFF, 71);
    let untimed = sampling(&SAPPHIRE_RAPIDS, 0, 0x00C4, 1, 0);
    assert_eq!(untimed.pmu.demand(), Demand::Basic);
}
