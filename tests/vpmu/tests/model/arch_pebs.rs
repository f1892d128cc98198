//! PerfMon version 6 and architectural PEBS (Intel Architecture Instruction Set Extensions Programming
//! Reference).

use crate::machine::*;
use vpmu::pmu::msr;
use vpmu::profile::CLEARWATER_FOREST;
use vpmu::{
    BranchKind, DataAccess, DataOutcome, DataSource, GeneralProtection, Options, PebsOutcome, Privilege,
    Registers,
};

const BASE: u64 = 0x4_0000;
const PEBS_EN: u64 = 1 << 63;
const AUX: u64 = 1 << 62;
const GPR: u64 = 1 << 61;
const XMM: u64 = 1 << 49;
const LBR_8: u64 = 1 << 40;
const INDEX_EN: u64 = 1 << 32;
const FULL: u64 = 1 << 31;
const THRESHOLD_STATUS: u64 = 1 << 54;
/// Header and basic group.
const BASIC: u64 = 16 + 48;

/// A machine that samples loads on counter 2 with these groups, into 4 KiB at `BASE`.
fn sampling(period: u64, groups: u64, threshold: u64) -> Machine {
    let mut machine = Machine::of(&CLEARWATER_FOREST, Options::default());
    program(&mut machine, period, groups, threshold);
    machine
}

fn program(machine: &mut Machine, period: u64, groups: u64, threshold: u64) {
    machine.wr(msr::IA32_PEBS_BASE, BASE);
    machine.wr(msr::IA32_PEBS_INDEX, INDEX_EN | (threshold / 16) << 36);
    machine.wr(msr::IA32_PMC_GP0_CFG_A + 8, 0x81D0 | USR | EN);
    machine.wr(msr::IA32_PMC_GP0_CTR + 8, RANGE - period);
    machine.wr(msr::IA32_PMC_GP0_CFG_C + 8, PEBS_EN | groups | (period.wrapping_neg() & 0xFFFF_FFFF));
}

fn word(machine: &Machine, offset: u64) -> u64 {
    let bytes = (0..8).map(|byte| machine.bus.physical.get(&(BASE + offset + byte)).copied().unwrap_or(0));
    bytes.rev().fold(0, |value, byte| value << 8 | u64::from(byte))
}

fn write_offset(machine: &mut Machine) -> u64 {
    machine.rd(msr::IA32_PEBS_INDEX) & 0x7F_FFFF << 4
}

/// Header: size (15:0), 64-bit mode (30), groups at the places of their enable bits, basic group (63).
#[test]
fn a_basic_record_goes_to_physical_memory() {
    let mut machine = sampling(10, 0, 4096);
    machine.bus.tsc = 1000;
    machine.steps(load(0x40), 10);
    assert_eq!(write_offset(&mut machine), 0, "armed");
    let pc = machine.pc;
    machine.step(load(0x40));
    assert_eq!(write_offset(&mut machine), BASIC);
    assert_eq!(word(&machine, 0), BASIC | 1 << 30 | 1 << 63);
    let words = [16, 24, 32].map(|offset| word(&machine, offset));
    assert_eq!(words, [pc, 0b100, 1110]);
    assert_eq!(machine.rd(msr::IA32_PMC_GP0_CTR + 8), RANGE - 9, "reloaded from CFG_C, plus the event");
    assert_eq!(machine.pmc(2), RANGE - 9, "the same counter by its old address");
}

#[test]
fn groups_follow_in_order() {
    let groups = AUX | GPR | XMM | LBR_8;
    let mut machine = sampling(1, groups, 4096);
    machine.wr(msr::IA32_LBR_CTL, 1 | 1 << 2 | 0x7F << 16);
    machine.pmu.record_branch(0x111, 0x222, BranchKind::DirectJump, false, Privilege::User);
    let mut general = [0; 16];
    general[15] = 0xF15;
    machine.bus.registers = Registers { general, rip: 0, rflags: 0x202 };
    machine.bus.xmm[0] = [0xAA, 0xBB];
    let outcome = Some(DataOutcome { source: DataSource::L2, latency_cycles: 19, stlb_miss: true });
    machine.wr(msr::IA32_PMC_GP0_CFG_A + 8, 0x05D0 | USR | EN);
    let micro = vpmu::MicroEvents {
        once: vpmu::EventSet::of(&[vpmu::Event::LoadLatency]),
        load_latency_cycles: 19,
        ..vpmu::MicroEvents::default()
    };
    let sampled = Instruction { load: Some(DataAccess { linear: 0x5000, outcome }), micro, ..nop() };
    machine.steps(sampled, 2);
    let size = BASIC + 64 + 160 + 16 + 256 + 48 + 8 * 24;
    assert_eq!(word(&machine, 0), size | 1 << 30 | 1 << 63 | groups);
    let aux = BASIC;
    assert_eq!([aux, aux + 40, aux + 48].map(|at| word(&machine, at)), [0x5000, 3 | 1 << 6, 19 | 19 << 32]);
    let gpr = aux + 64;
    assert_eq!([gpr, gpr + 136].map(|at| word(&machine, at)), [0x202, 0xF15]);
    let xmm = gpr + 160;
    assert_eq!([xmm, xmm + 16, xmm + 24].map(|at| word(&machine, at)), [0b10, 0xAA, 0xBB]);
    let lbr = xmm + 16 + 256;
    assert_eq!([lbr + 16, lbr + 48, lbr + 56].map(|at| word(&machine, at)), [32, 0x111, 0x222]);
    assert_eq!(write_offset(&mut machine), size);
}

/// Each second record is divided, in each way once: behind its basic group and each other one, behind two groups, by a null record.
#[test]
fn records_in_fragments_say_so() {
    let mut machine = Machine::of(&CLEARWATER_FOREST, Options { pebs_fragments: 2, ..Options::default() });
    program(&mut machine, 1, AUX | GPR, 4096);
    machine.steps(load(0x40), 7);
    let mut headers = Vec::new();
    let (mut at, end) = (0, write_offset(&mut machine));
    while at < end {
        let header = word(&machine, at);
        headers.push((header & 0xFFFF, header >> 31 & 1, header >> 61));
        at += header & 0xFFFF;
    }
    let whole = (288, 0, 0b111);
    let alone = [(64, 1, 0b100), (80, 1, 0b010), (176, 0, 0b001)];
    let two = [(128, 1, 0b110), (176, 0, 0b001)];
    let null = [(16, 0, 0), whole];
    let expected = [&[whole][..], &alone, &[whole], &two, &[whole], &null].concat();
    assert_eq!(headers, expected);
    assert_eq!(at, end);
}

/// At the threshold bit 54 of IA32_PERF_GLOBAL_STATUS is set and an interrupt requested.
#[test]
fn the_threshold_interrupts() {
    let mut machine = sampling(1, 0, 3 * BASIC);
    machine.steps(load(0), 3);
    assert_eq!((machine.bus.pmis, write_offset(&mut machine)), (0, 2 * BASIC));
    machine.step(load(0));
    assert_eq!((machine.bus.pmis, write_offset(&mut machine)), (1, 3 * BASIC));
    assert_ne!(machine.rd(msr::IA32_PERF_GLOBAL_STATUS) & THRESHOLD_STATUS, 0);
    machine.wr(msr::IA32_PERF_GLOBAL_STATUS_RESET, THRESHOLD_STATUS);
    assert_eq!(machine.rd(msr::IA32_PERF_GLOBAL_STATUS) & THRESHOLD_STATUS, 0);
}

/// A record that does not fit sets FULL; nothing is written until software clears it.
#[test]
fn a_full_buffer_says_so() {
    let mut machine = sampling(1, 0, 4096);
    machine.steps(load(0), 1 + 4096 / BASIC);
    assert_eq!(write_offset(&mut machine), 4096);
    let settlement = machine.step(load(0)).expect("a dropped record");
    assert_eq!(settlement.pebs, Some(PebsOutcome::Dropped { counters: 0b100 }));
    assert_ne!(machine.rd(msr::IA32_PEBS_INDEX) & FULL, 0);
    machine.wr(msr::IA32_PEBS_INDEX, INDEX_EN | FULL);
    machine.step(load(0));
    assert_eq!(write_offset(&mut machine), 0);
    machine.wr(msr::IA32_PEBS_INDEX, INDEX_EN);
    machine.steps(load(0), 2);
    assert_ne!(write_offset(&mut machine), 0);
}

/// A larger buffer: 4 KiB × 2^SIZE.
#[test]
fn the_buffer_has_a_power_of_two_of_pages() {
    let mut machine = sampling(1, 0, 0x7F_FFFF * 16);
    machine.wr(msr::IA32_PEBS_BASE, BASE | 1);
    machine.steps(load(0), 1 + 8192 / BASIC + 1);
    assert_eq!(write_offset(&mut machine), 8192);
    assert_ne!(machine.rd(msr::IA32_PEBS_INDEX) & FULL, 0);
}

/// IA32_PEBS_INDEX.EN and CFG_C.EN are both needed.
#[test]
fn both_enable_bits_are_needed() {
    for (index, counter) in [(0, PEBS_EN), (INDEX_EN, 0)] {
        let mut machine = sampling(1, 0, 4096);
        machine.wr(msr::IA32_PEBS_INDEX, index);
        machine.wr(msr::IA32_PMC_GP0_CFG_C + 8, counter);
        machine.steps(load(0), 5);
        assert_eq!((write_offset(&mut machine), machine.pmc(2)), (0, 4));
    }
}

/// Reserved bits: CFG_C takes the groups of CPUID.23H.4 on the counters of CPUID.23H.5 and RELOAD on all;
/// IA32_PEBS_BASE SIZE and a page's address; IA32_PEBS_INDEX its fields.
#[test]
fn reserved_bits_fault() {
    let groups = PEBS_EN | AUX | GPR | XMM | 0b11 << 40;
    let masks = [
        (msr::IA32_PMC_GP0_CFG_C, groups | 0xFFFF_FFFF),
        (msr::IA32_PMC_FX0_CFG_C, groups | 0xFFFF_FFFF),
        (msr::IA32_PMC_FX0_CFG_C + 4 * 6, 0xFFFF_FFFF),
        (msr::IA32_PEBS_BASE, 0x000F_FFFF_FFFF_F01F),
        (msr::IA32_PEBS_INDEX, 0x07FF_FFF1_87FF_FFF0),
        (msr::IA32_PMC_GP0_CFG_A, 0xFF << 40 | EQ | 0xFFDF_FFFF),
        (msr::IA32_FIXED_CTR_CTRL, 0x0BBB_0BBB),
        (msr::IA32_PERF_GLOBAL_CTRL, 0x77_0000_00FF),
    ];
    for (register, mask) in masks {
        for bit in 0..64 {
            let mut pmu = Machine::of(&CLEARWATER_FOREST, Options::default()).pmu;
            let accepted = pmu.wrmsr(register, 1 << bit).is_ok();
            assert_eq!(accepted, mask >> bit & 1 == 1, "MSR {register:#x} bit {bit}");
        }
    }
}

/// The registers that architectural PEBS replaces, the counter that does not exist, and what is not
/// enumerated.
#[test]
fn what_is_not_there_faults() {
    let mut pmu = Machine::of(&CLEARWATER_FOREST, Options::default()).pmu;
    let absent = [
        msr::IA32_PEBS_ENABLE,
        msr::MSR_PEBS_DATA_CFG,
        msr::IA32_DS_AREA,
        msr::IA32_FIXED_CTR0 + 3,
        msr::IA32_PMC_FX0_CTR + 12,
        msr::IA32_PMC_GP0_CFG_B,
        msr::IA32_PMC_GP0_CFG_B + 4,
        msr::IA32_PMC_FX0_CFG_B,
        msr::IA32_PMC_GP0_CTR + 32,
        msr::MSR_PERF_METRICS,
    ];
    for register in absent {
        assert!(pmu.owns_msr(register));
        assert_eq!(pmu.rdmsr(register), Err(GeneralProtection), "{register:#x}");
    }
    assert_eq!(pmu.rdpmc(1 << 30 | 3), Err(GeneralProtection));
    assert!(pmu.rdpmc(1 << 30 | 6).is_ok());
}
