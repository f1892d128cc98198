//! NetBurst: registers, event selection, filters.

use crate::machine::*;
use proptest::prelude::*;
use vpmu::pmu::msr;
use vpmu::profile::{Escr, Netburst, NetburstEvent, PRESCOTT};
use vpmu::{CpuidRegs, Demand, Event, EventSet, GeneralProtection, MicroEvents, Options};

pub(crate) const T1_USR: u64 = 1;
pub(crate) const T1_OS: u64 = 1 << 1;
pub(crate) const T0_USR: u64 = 1 << 2;
pub(crate) const T0_OS: u64 = 1 << 3;

pub(crate) const ENABLE: u64 = 1 << 12;
pub(crate) const ANY: u64 = 0b11 << 16;
pub(crate) const COMPARE: u64 = 1 << 18;
pub(crate) const COMPLEMENT: u64 = 1 << 19;
pub(crate) const EDGE_FLAG: u64 = 1 << 24;
pub(crate) const FORCE_OVF: u64 = 1 << 25;
pub(crate) const OVF_PMI_T0: u64 = 1 << 26;
pub(crate) const OVF_PMI_T1: u64 = 1 << 27;
pub(crate) const CASCADE: u64 = 1 << 30;
pub(crate) const OVF: u64 = 1 << 31;

pub(crate) const COUNTER: u32 = 0x300;
pub(crate) const CCCR: u32 = 0x360;
pub(crate) const CRU_ESCR0: u32 = 0x3B8;
pub(crate) const CRU_ESCR2: u32 = 0x3CC;
/// A counter's range.
pub(crate) const RANGE_40: u64 = 1 << 40;

pub(crate) fn prescott() -> Machine {
    Machine::of(&PRESCOTT, Options::default())
}

fn facts() -> &'static Netburst {
    PRESCOTT.netburst().expect("NetBurst's PMU")
}

/// An ESCR value.
pub(crate) fn escr(select: u64, mask: u64, qualifiers: u64) -> u64 {
    select << 25 | mask << 9 | qualifiers
}

/// A CCCR value that chooses an ESCR and counts.
pub(crate) fn cccr(escr_select: u64, more: u64) -> u64 {
    escr_select << 13 | ENABLE | ANY | more
}

/// instr_retired, both mask bits, on counter 12 through MSR_CRU_ESCR0.
pub(crate) fn count_instructions(machine: &mut Machine, qualifiers: u64, more: u64) {
    machine.wr(CRU_ESCR0, escr(0x02, 0b11, qualifiers));
    machine.wr(CCCR + 12, cccr(4, more));
}

pub(crate) fn happens(events: &[Event]) -> Instruction {
    Instruction { micro: MicroEvents { once: EventSet::of(events), ..MicroEvents::default() }, ..nop() }
}

/// SDM Vol. 3B, table 18-63, and its note: 43 ESCRs from model 3 on, of which each pair's second feeds the pair of counters after
/// the first's. MSR_IQ_ESCR0 and 1 (3BAH, 3BBH) and the holes fault.
#[test]
fn escrs_are_those_of_the_model() {
    assert_eq!(facts().escrs.len(), 43);
    let holes = (0x3A0..=0x3E1).filter(|address| !facts().escrs.iter().any(|escr| escr.address == *address));
    let holes: Vec<u32> = holes.collect();
    let expected: Vec<u32> = [0x3BA, 0x3BB, 0x3BF, 0x3C6, 0x3C7].into_iter().chain(0x3CE..=0x3DF).collect();
    assert_eq!(holes, expected);
    let mut machine = prescott();
    for hole in holes {
        assert!(machine.pmu.owns_msr(hole));
        assert_eq!(machine.pmu.rdmsr(hole), Err(GeneralProtection), "{hole:#x}");
        assert_eq!(machine.pmu.wrmsr(hole, 0), Err(GeneralProtection), "{hole:#x}");
    }
    for counter in 0..18 {
        let choices: Vec<u8> = fed(counter).map(|escr| escr.select).collect();
        let distinct: std::collections::HashSet<u8> = choices.iter().copied().collect();
        assert_eq!(distinct.len(), choices.len(), "counter {counter}: ESCR_SELECT chooses one");
    }
    let numbers = |counter: u32| fed(counter).map(|escr| (escr.address, escr.select)).collect::<Vec<_>>();
    assert_eq!(numbers(4), [(0x3C0, 0), (0x3C2, 2), (0x3C4, 1)]);
    assert_eq!(numbers(11), [(0x3A5, 1), (0x3A7, 0), (0x3A9, 5), (0x3AF, 2), (0x3B1, 3)]);
    assert_eq!(numbers(16), [(0x3B8, 4), (0x3BC, 2), (0x3BE, 3), (0x3CA, 1), (0x3CC, 5), (0x3E0, 6)]);
    assert_eq!(numbers(17), [(0x3B9, 4), (0x3BD, 2), (0x3CB, 1), (0x3CD, 5), (0x3E1, 6)]);
}

/// The ESCRs that can feed a counter.
fn fed(counter: u32) -> impl Iterator<Item = &'static Escr> {
    facts().escrs.iter().filter(move |escr| escr.counters >> counter & 1 != 0)
}

/// Every event's ESCRs exist, and share the CCCR select that tables 19-28 to 19-30 give for it.
#[test]
fn events_are_on_escrs_that_exist() {
    let selects = [
        ("instr_retired", 4),
        ("uops_retired", 4),
        ("instr_completed", 4),
        ("branch_retired", 5),
        ("mispred_branch_retired", 4),
        ("front_end_event", 5),
        ("replay_event", 5),
        ("execution_event", 5),
        ("uop_type", 2),
        ("retired_branch_type", 2),
        ("retired_mispred_branch_type", 2),
        ("BPU_fetch_request", 0),
        ("ITLB_reference", 3),
        ("page_walk_type", 4),
        ("BSQ_cache_reference", 7),
        ("load_port_replay", 2),
        ("store_port_replay", 2),
        ("memory_complete", 2),
        ("global_power_events", 6),
    ];
    assert_eq!(facts().events.len(), selects.len());
    for (event, (name, select)) in facts().events.iter().zip(selects) {
        assert_eq!(event.name, name);
        assert!(!event.escrs.is_empty());
        for address in event.escrs {
            let escr = facts().escrs.iter().find(|escr| escr.address == *address);
            assert_eq!(escr.map(|escr| escr.select), Some(select), "{name} {address:#x}");
        }
    }
}

/// Reserved bits (18.16.1, 18.16.2, family 15's register table): bit 31 of an ESCR, bits 29:28 and 11:0 of a CCCR, but bit 11 of
/// those with an extended cascade (18.15.5.7).
#[test]
fn reserved_bits_fault() {
    let cases = [
        (CRU_ESCR0, 0x7FFF_FFFF),
        (CCCR, 0xCFFF_F000),
        (CCCR + 12, 0xCFFF_F800),
        (CCCR + 13, 0xCFFF_F000),
        (CCCR + 14, 0xCFFF_F000),
        (CCCR + 15, 0xCFFF_F800),
        (CCCR + 16, 0xCFFF_F800),
        (CCCR + 17, 0xCFFF_F800),
        (msr::IA32_PEBS_ENABLE, 0x0701_9FFF),
        (0x3F2, 0b1_0011),
    ];
    for (register, mask) in cases {
        for bit in 0..64 {
            let accepted = prescott().pmu.wrmsr(register, 1 << bit).is_ok();
            assert_eq!(accepted, mask >> bit & 1 == 1_u64, "{register:#x} bit {bit}");
        }
    }
    // A counter keeps 40 bits of whatever is written (18.15.2).
    let mut machine = prescott();
    machine.wr(COUNTER + 17, 0_u64.wrapping_sub(200));
    assert_eq!(machine.rd(COUNTER + 17), RANGE_40 - 200);
}

/// There is no architectural performance monitoring: its registers fault or are not the PMU's; CPUID says so (18.15.7.1: DS).
#[test]
fn there_is_no_architectural_perfmon() {
    let mut machine = prescott();
    for register in [msr::IA32_PERF_GLOBAL_CTRL, msr::IA32_PERF_GLOBAL_STATUS, msr::IA32_PERF_CAPABILITIES] {
        assert_eq!(machine.pmu.rdmsr(register), Err(GeneralProtection), "{register:#x}");
    }
    let mut regs = CpuidRegs { eax: 0xD, ..CpuidRegs::default() };
    machine.pmu.cpuid(0, 0, &mut regs);
    assert_eq!(regs.eax, 5);
    regs = CpuidRegs { ecx: 1 << 15, ..CpuidRegs::default() };
    machine.pmu.cpuid(1, 0, &mut regs);
    assert_eq!((regs.eax, regs.ecx, regs.edx), (0xF41, 1 << 2, 1 << 21));
    machine.pmu.cpuid(0x0A, 0, &mut regs);
    assert_eq!(regs, CpuidRegs::default());
    assert_eq!(machine.pmu.misc_enable(1 | 1 << 12), 1 | 1 << 7 | 1 << 11);
}

/// RDPMC (SDM Vol. 2B): 18 counters; with bit 31 of ECX the low 32 bits.
#[test]
fn rdpmc_reads_slow_and_fast() {
    let mut machine = prescott();
    machine.wr(COUNTER + 3, 0x12_3456_789A);
    assert_eq!(machine.pmu.rdpmc(3), Ok(0x12_3456_789A));
    assert_eq!(machine.pmu.rdpmc(1 << 31 | 3), Ok(0x3456_789A));
    assert_eq!(machine.pmu.rdpmc(17), Ok(0));
    for ecx in [18, 1 << 31 | 18, 1 << 30, 1 << 30 | 1] {
        assert_eq!(machine.pmu.rdpmc(ecx), Err(GeneralProtection), "{ecx:#x}");
    }
}

/// A counter counts what the ESCR that its CCCR chooses selects, where that ESCR's flags say, while ENABLE is set (18.15.1,
/// 18.15.3): neither a wrong ESCR, nor one of another group, nor an event on a wrong ESCR.
#[test]
fn escr_and_cccr_select_together() {
    for (qualifiers, more, expected) in
        [(T0_USR, 0, 7), (T0_OS, 0, 5), (T0_USR | T0_OS, 0, 12), (0, 0, 0), (T1_USR | T1_OS, 0, 0)]
    {
        let mut machine = prescott();
        count_instructions(&mut machine, qualifiers, more);
        machine.steps(nop(), 7);
        machine.steps(Instruction { kernel: true, ..nop() }, 5);
        assert_eq!(machine.rd(COUNTER + 12), expected, "{qualifiers:#x}");
    }
    let mut machine = prescott();
    machine.wr(CRU_ESCR0, escr(0x02, 0b11, T0_USR));
    // Not enabled; the ESCR of another unit; a counter that MSR_CRU_ESCR0 does not feed; branch_retired's select.
    machine.wr(CCCR + 12, 4 << 13 | ANY);
    machine.wr(CCCR + 13, cccr(5, 0));
    machine.wr(CCCR + 14, cccr(4, 0));
    machine.wr(CRU_ESCR2, escr(0x02, 0b11, T0_USR));
    assert_eq!(machine.pmu.demand(), Demand::Nothing);
    machine.steps(nop(), 9);
    assert_eq!([12, 13, 14].map(|index| machine.rd(COUNTER + index)), [0; 3]);
    // One ESCR may feed several counters.
    machine.wr(CCCR + 12, cccr(4, 0));
    machine.wr(CCCR + 16, cccr(4, 0));
    machine.steps(nop(), 9);
    assert_eq!([12, 16].map(|index| machine.rd(COUNTER + index)), [9, 9]);
}

/// Demand follows what is programmed.
#[test]
fn demand_follows_the_registers() {
    let mut machine = prescott();
    count_instructions(&mut machine, T0_USR, 0);
    assert_eq!(machine.pmu.demand(), Demand::Basic);
    count_instructions(&mut machine, T0_USR, COMPARE);
    assert_eq!(machine.pmu.demand(), Demand::Microarchitecture);
    count_instructions(&mut machine, T0_USR, 0);
    machine.wr(CRU_ESCR0, escr(0x03, 1, T0_USR));
    assert_eq!(machine.pmu.demand(), Demand::Microarchitecture, "mispred_branch_retired");
    machine.wr(CCCR + 12, 0);
    assert_eq!(machine.pmu.demand(), Demand::Nothing);
}

/// branch_retired (table 19-29): MMNP, MMNM, MMTP, MMTM, in any combination.
#[test]
fn branches_count_by_outcome() {
    let not_taken = happens(&[Event::BranchNotTaken, Event::BranchConditional]);
    let not_taken_wrong =
        happens(&[Event::BranchNotTaken, Event::BranchConditional, Event::BranchMispredicted]);
    let taken = happens(&[Event::BranchTaken]);
    let far = happens(&[Event::BranchFar]);
    let taken_wrong =
        happens(&[Event::BranchTaken, Event::BranchMispredicted, Event::BranchTakenMispredicted]);
    let times = [(not_taken, 1), (not_taken_wrong, 2), (taken, 4), (far, 8), (taken_wrong, 16)];
    for mask in 0..16 {
        let mut machine = prescott();
        machine.wr(CRU_ESCR2, escr(0x06, mask, T0_USR));
        machine.wr(CCCR + 12, cccr(5, 0));
        for (instruction, n) in times {
            machine.steps(Instruction { branch: true, ..instruction }, n);
        }
        let bits = [1, 2, 12, 16];
        let expected: u64 = (0..4).filter(|bit| mask >> bit & 1 == 1).map(|bit| bits[bit]).sum();
        assert_eq!(machine.rd(COUNTER + 12), expected, "{mask:#b}");
    }
}

/// The compare, complement, threshold and edge flags (18.15.5.2) against a cycle-by-cycle count; a condition that is met counts
/// one, whatever the number of events.
fn filtered(cycles: &[u64], threshold: u64, complement: bool, edge: bool) -> u64 {
    let (mut before, mut count) = (false, 0);
    for &events in cycles {
        let now = (events > threshold) != complement;
        count += u64::from(now && !(edge && before));
        before = now;
    }
    count
}

proptest! {
    #[test]
    fn filters_count_cycles(
        cycles in proptest::collection::vec(0..4_u64, 1..40),
        threshold in 0..16_u64,
        complement: bool,
        edge: bool,
    ) {
        let mut machine = prescott();
        let flags = COMPARE | if complement { COMPLEMENT } else { 0 } | if edge { EDGE_FLAG } else { 0 };
        count_instructions(&mut machine, T0_USR, flags | threshold << 20);
        let end = MicroEvents { cycles: 1, ..MicroEvents::default() };
        for &instructions in &cycles {
            for _ in 0..instructions {
                machine.step(nop());
            }
            machine.pmu.count(&end, vpmu::Privilege::User);
        }
        prop_assert_eq!(machine.rd(COUNTER + 12), filtered(&cycles, threshold, complement, edge));
    }

    /// A write faults and changes nothing, or reads back, and changes no other register.
    #[test]
    fn a_write_faults_or_reads_back(
        msr in prop_oneof![0x2FE..0x315_u32, 0x35E..0x374_u32, 0x39E..0x3E4_u32, 0x3EE..0x3F5_u32, 0x5FF..0x602_u32],
        value in prop_oneof![any::<u64>(), any::<u32>().prop_map(u64::from), (0..64_u32).prop_map(|bit| 1 << bit)],
    ) {
        let ranges = [0x300..0x312_u32, 0x360..0x372, 0x3A0..0x3E2, 0x3F0..0x3F3, 0x600..0x601];
        let all = || ranges.iter().cloned().flatten();
        let mut machine = prescott();
        count_instructions(&mut machine, T0_USR | T0_OS, OVF | OVF_PMI_T0);
        let before: Vec<_> = all().map(|msr| machine.pmu.rdmsr(msr)).collect();
        let accepted = machine.pmu.wrmsr(msr, value).is_ok();
        prop_assert!(machine.pmu.owns_msr(msr) || !accepted);
        for (register, before) in all().zip(before) {
            let now = machine.pmu.rdmsr(register);
            match accepted && register == msr {
                true if (0x300..0x312).contains(&msr) => prop_assert_eq!(now, Ok(value % RANGE_40)),
                true => prop_assert_eq!(now, Ok(value)),
                false => prop_assert_eq!(now, before, "{:#x}", register),
            }
        }
    }

    /// Batches that keep within the headroom count as single steps do, and overflow at the same instruction.
    #[test]
    fn batches_equal_single_steps(period in 1..500_u64, n in 1..2000_u64, batch in 1..200_u64) {
        let program = |machine: &mut Machine| {
            count_instructions(machine, T0_USR, OVF_PMI_T0);
            machine.wr(COUNTER + 12, RANGE_40 - period);
        };
        let (mut single, mut batched) = (prescott(), prescott());
        program(&mut single);
        program(&mut batched);
        single.steps(nop(), n);
        let mut left = n;
        while left > 0 {
            let now = batched.pmu.headroom(vpmu::Privilege::User)[0].min(batch).min(left);
            batched.pmu.count_basic(&[[now - 1, 0], [0, 0], [0, 0], [0, 0]]);
            batched.step(nop());
            left -= now;
        }
        prop_assert_eq!(single.rd(COUNTER + 12), batched.rd(COUNTER + 12));
        prop_assert_eq!(single.rd(CCCR + 12), batched.rd(CCCR + 12));
        prop_assert_eq!(single.bus.pmis, batched.bus.pmis);
        prop_assert_eq!(single.bus.pmis, u32::from(n > period));
    }
}

/// Every event of the table, on every counter that its ESCRs feed, is recognised there.
#[test]
fn every_event_can_be_programmed() {
    let counted = |event: &&NetburstEvent| !event.masks.is_empty() && !event.precise;
    for event in facts().events.iter().filter(counted) {
        for escr_of in facts().escrs.iter().filter(|escr| event.escrs.contains(&escr.address)) {
            for counter in (0..18).filter(|counter| escr_of.counters >> counter & 1 != 0) {
                let mut machine = prescott();
                machine.wr(escr_of.address, escr(event.select.into(), event.masks[0].mask.into(), T0_USR));
                machine.wr(CCCR + counter, cccr(escr_of.select.into(), 0));
                assert!(machine.pmu.demand() >= Demand::Basic, "{} on {counter}", event.name);
            }
        }
    }
}
