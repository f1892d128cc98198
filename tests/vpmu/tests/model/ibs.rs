//! Instruction-based sampling (APM 13.3; registers and their fields: PPR 56713, MSRC001_1030 to MSRC001_103C).

use crate::machine::*;
use proptest::prelude::*;
use vpmu::pmu::msr;
use vpmu::profile::amd::{FAMILY_10H, FAMILY_15H, FAMILY_16H, K8, ZEN_1, ZEN_2, ZEN_3, ZEN_4, ZEN_5};
use vpmu::{
    DataAccess, DataOutcome, DataSource, Demand, Event, EventSet, MicroEvents, Options, Privilege, Profile,
};

const OP_EN: u64 = 1 << 17;
const OP_VAL: u64 = 1 << 18;
const COUNT_OPS: u64 = 1 << 19;
const OP_L3_MISS_ONLY: u64 = 1 << 16;
const FETCH_EN: u64 = 1 << 48;
const FETCH_VAL: u64 = 1 << 49;
const RAND_EN: u64 = 1 << 57;
const FETCH_L3_MISS_ONLY: u64 = 1 << 59;

fn machine(profile: &'static Profile) -> Machine {
    Machine::of(profile, Options::default())
}

/// A fetch that waited for `stall` cycles and had `events`.
fn fetched(stall: u32, events: &[Event]) -> MicroEvents {
    let mut once = EventSet::of(events);
    once.insert(Event::L1iRead);
    MicroEvents { once, cycles: stall + 1, stall_cycles: stall, ..MicroEvents::default() }
}

fn executed(micro: MicroEvents) -> Instruction {
    Instruction { micro, ..nop() }
}

fn access(linear: u64, source: DataSource, latency_cycles: u16, stlb_miss: bool) -> DataAccess {
    DataAccess { linear, outcome: Some(DataOutcome { source, latency_cycles, stlb_miss }) }
}

/// Has the next instruction sampled: IbsOpCurCnt can be written (CPUID.8000_001BH:EAX.RdWrOpCnt).
fn sample_next_op(machine: &mut Machine) {
    machine.wr(msr::IBS_OP_CTL, 0x10 | OP_EN | COUNT_OPS | 0xFF << 32);
}

/// The op that makes the count of ops the maximum is the sample. Then the counter stands still, one interrupt is
/// requested, and the low seven bits of the count are random for the next period.
#[test]
fn the_op_at_the_maximum_is_sampled() {
    for profile in [&FAMILY_10H, &FAMILY_15H, &FAMILY_16H, &ZEN_1, &ZEN_2, &ZEN_3, &ZEN_4, &ZEN_5] {
        let mut machine = machine(profile);
        assert_eq!(machine.pmu.demand(), Demand::Nothing);
        machine.wr(msr::IBS_OP_CTL, 0x10 | OP_EN | COUNT_OPS);
        assert_eq!(machine.pmu.demand(), Demand::Microarchitecture);
        assert_eq!(machine.pmu.headroom(Privilege::Kernel)[0], 0x100);
        machine.steps(Instruction { kernel: true, ..nop() }, 0xFF);
        assert_eq!(machine.rd(msr::IBS_OP_CTL), 0x10 | OP_EN | COUNT_OPS | 0xFF << 32, "IbsOpCurCnt");
        let tagged = machine.pc;
        let settlement = machine.step(nop()).expect("a sample");
        assert_eq!((settlement.ibs, settlement.pmis, machine.bus.ibs, machine.bus.pmis), (1, 0, 1, 0));
        assert_eq!(machine.rd(msr::IBS_OP_RIP), tagged);
        let control = machine.rd(msr::IBS_OP_CTL);
        assert_eq!(control & 0xFFFF_FFFF, 0x10 | OP_EN | OP_VAL | COUNT_OPS);
        assert!(control >> 32 < 0x80, "{control:#x}");
        machine.steps(nop(), 1000);
        assert_eq!((machine.rd(msr::IBS_OP_CTL), machine.bus.ibs), (control, 1), "IbsOpVal stops it");
        assert_eq!(machine.pmu.demand(), Demand::Nothing);
        machine.wr(msr::IBS_OP_CTL, control & !OP_VAL);
        machine.steps(nop(), 0x100 - (control >> 32) - 1);
        assert_eq!(machine.bus.ibs, 1);
        machine.steps(nop(), 1);
        assert_eq!(machine.bus.ibs, 2, "the next period is shorter by the random bits");
    }
}

/// Without IbsOpCntCtl it counts cycles, and the next period begins at 0.
#[test]
fn cycles_choose_the_instruction_that_spends_the_last() {
    let mut machine = machine(&ZEN_4);
    machine.wr(msr::IBS_OP_CTL, 0x10 | OP_EN);
    assert_eq!(machine.pmu.headroom(Privilege::User), [u64::MAX; 4]);
    machine.steps(executed(fetched(99, &[])), 2);
    assert_eq!(machine.bus.ibs, 0);
    let tagged = machine.pc;
    machine.steps(executed(fetched(99, &[])), 1);
    assert_eq!((machine.bus.ibs, machine.rd(msr::IBS_OP_RIP)), (1, tagged));
    assert_eq!(machine.rd(msr::IBS_OP_CTL), 0x10 | OP_EN | OP_VAL);
    assert_eq!(machine.rd(msr::IBS_OP_DATA), 100 << 16, "IbsTagToRetCtr");
}

/// IbsOpMaxCnt has 27 bits with the extension (OpCntExt), else 20; IbsOpL3MissOnly came with Zen 4.
#[test]
fn the_control_registers_have_the_bits_of_their_part() {
    let op = 0xFFFF | OP_EN | OP_VAL | COUNT_OPS;
    let fetch = 0xFFFF_FFFF | FETCH_EN | FETCH_VAL | RAND_EN;
    for (profile, op, fetch) in [
        (&FAMILY_10H, op | 0xF_FFFF << 32, fetch),
        (&FAMILY_15H, op | 0x7F << 20 | 0x7FF_FFFF << 32, fetch),
        (&FAMILY_16H, op | 0x7F << 20 | 0x7FF_FFFF << 32, fetch),
        (&ZEN_1, op | 0x7F << 20 | 0x7FF_FFFF << 32, fetch),
        (&ZEN_2, op | 0x7F << 20 | 0x7FF_FFFF << 32, fetch),
        (&ZEN_3, op | 0x7F << 20 | 0x7FF_FFFF << 32, fetch),
        (&ZEN_4, op | 0x7F << 20 | 0x7FF_FFFF << 32 | OP_L3_MISS_ONLY, fetch | FETCH_L3_MISS_ONLY),
        (&ZEN_5, op | 0x7F << 20 | 0x7FF_FFFF << 32 | OP_L3_MISS_ONLY, fetch | FETCH_L3_MISS_ONLY),
    ] {
        let mut machine = machine(profile);
        machine.wr(msr::IBS_OP_CTL, u64::MAX);
        assert_eq!(machine.rd(msr::IBS_OP_CTL), op, "{}", profile.name);
        machine.wr(msr::IBS_FETCH_CTL, u64::MAX);
        assert_eq!(machine.rd(msr::IBS_FETCH_CTL), fetch, "{}", profile.name);
    }
    let mut machine = machine(&ZEN_3);
    machine.wr(msr::IBS_OP_CTL, 0x7F << 20 | 0xFFFF | OP_EN | COUNT_OPS);
    assert_eq!(machine.pmu.headroom(Privilege::User)[0], 0x7FF_FFF0);
}

/// Registers exist as `CPUID.8000_001BH` says: branch target and extended fetch control not on family 10h, IBS_OP_DATA4
/// on none of these, none on K8. IBS_CTL names entry 0 of the extended local vector table and is read-only.
#[test]
fn registers_exist_as_enumerated() {
    for (profile, absent) in [
        (&FAMILY_10H, &[msr::BP_IBSTGT_RIP, msr::IC_IBS_EXTD_CTL, msr::IBS_OP_DATA4][..]),
        (&FAMILY_15H, &[msr::IC_IBS_EXTD_CTL, msr::IBS_OP_DATA4]),
        (&FAMILY_16H, &[msr::IC_IBS_EXTD_CTL, msr::IBS_OP_DATA4]),
        (&ZEN_1, &[msr::IBS_OP_DATA4]),
        (&ZEN_2, &[msr::IBS_OP_DATA4]),
        (&ZEN_3, &[msr::IBS_OP_DATA4]),
        (&ZEN_4, &[msr::IBS_OP_DATA4]),
        (&ZEN_5, &[msr::IBS_OP_DATA4]),
    ] {
        let mut machine = machine(profile);
        for register in msr::IBS_FETCH_CTL..=msr::IBS_OP_DATA4 {
            assert_eq!(machine.pmu.rdmsr(register).is_err(), absent.contains(&register), "{register:#x}");
            let writable = register != msr::IBS_CTL && !absent.contains(&register);
            assert_eq!(machine.pmu.wrmsr(register, 0).is_ok(), writable, "{register:#x}");
        }
        assert_eq!(machine.rd(msr::IBS_CTL), 1 << 8);
    }
    let mut machine = machine(&K8);
    assert!((msr::IBS_FETCH_CTL..=msr::IBS_OP_DATA4).all(|register| machine.pmu.rdmsr(register).is_err()));
}

/// A load's sample: addresses, where the data came from, how long the miss took. The latency of the access is 4 (L1) + 30
/// (page walk) + 266 here.
#[test]
fn a_load_is_described() {
    let linear = 0x7000_1238;
    let load = access(linear, DataSource::Memory, 300, true);
    let mut micro = fetched(0, &[Event::DtlbLoadWalk, Event::LoadL3Miss]);
    micro.cycles = 297;
    for (profile, l2_miss, refill) in
        [(&FAMILY_10H, 0, 0), (&ZEN_3, 1 << 20, 30 << 48), (&ZEN_4, 1 << 20, 30 << 48)]
    {
        let l1 = u64::from(profile.microarchitecture.l1d_latency_cycles);
        let mut machine = machine(profile);
        machine.bus.map(linear, 8);
        sample_next_op(&mut machine);
        machine.step(Instruction { load: Some(load), locked: true, ..executed(micro) });
        // IbsLdOp, IbsDcL1TlbMiss, IbsDcL2TlbMiss, IbsDcMiss, IbsDcLockedOp, both addresses valid.
        let flags = 1 | 1 << 2 | 1 << 3 | 1 << 7 | 1 << 15 | 1 << 17 | 1 << 18 | l2_miss;
        let latency = (300 - 30 - l1) << 32;
        assert_eq!(machine.rd(msr::IBS_OP_DATA3), flags | latency | refill, "{}", profile.name);
        assert_eq!(machine.rd(msr::IBS_OP_DATA2), 3, "DRAM");
        assert_eq!(machine.rd(msr::IBS_DC_LINADDR), linear);
        assert_eq!(machine.rd(msr::IBS_DC_PHYSADDR), physical(linear));
        assert_eq!(machine.rd(msr::IBS_OP_DATA), 297 << 16, "no branch");
    }
}

/// Sources: none for what L2 had, 2 for caches of the local node (not modified in another: CacheHitSt), 3 for memory; misses of L1 and L2 accordingly.
#[test]
fn levels_are_told_apart() {
    let (miss, l2_miss) = (1 << 7, 1 << 20);
    let levels = [
        (DataSource::L1, 4, 0, 0),
        (DataSource::L2, 12, 0, miss | 8 << 32),
        (DataSource::L3, 46, 2 | 1 << 5, miss | l2_miss | 42 << 32),
        (DataSource::Memory, 300, 3, miss | l2_miss | 296 << 32),
    ];
    for (source, latency, data2, data3) in levels {
        let mut machine = machine(&ZEN_3);
        sample_next_op(&mut machine);
        let load = Some(access(0x1000, source, latency, false));
        machine.step(Instruction { load, ..executed(fetched(0, &[])) });
        assert_eq!(machine.rd(msr::IBS_OP_DATA2), data2, "{source:?}");
        // IbsLdOp, IbsDcLinAddrValid; the page is not mapped, so there is no physical address.
        assert_eq!(machine.rd(msr::IBS_OP_DATA3), 1 | 1 << 17 | data3, "{source:?}");
        assert_eq!(machine.rd(msr::IBS_DC_PHYSADDR), 0);
    }
}

/// L3 is 1 on family 10h (NbIbsReqSrc) and in the extended encoding of Zen 4 and Zen 5; on Zen 3 and before it is among the local node's caches, 2.
#[test]
fn parts_encode_the_last_level_differently() {
    for (profile, source) in
        [(&FAMILY_10H, 1), (&ZEN_1, 2), (&ZEN_2, 2), (&ZEN_3, 2), (&ZEN_4, 1), (&ZEN_5, 1)]
    {
        let mut machine = machine(profile);
        sample_next_op(&mut machine);
        let load = Some(access(0x1000, DataSource::L3, 50, false));
        machine.step(Instruction { load, ..executed(fetched(0, &[])) });
        assert_eq!(machine.rd(msr::IBS_OP_DATA2), source | 1 << 5, "{}", profile.name);
    }
}

/// A store has neither source nor latency of its miss ("not valid"), but its TLB's, which hit in the second level.
#[test]
fn a_store_is_described() {
    let mut machine = machine(&ZEN_3);
    sample_next_op(&mut machine);
    let store = Some(access(0x2000, DataSource::Memory, 307, false));
    let micro = fetched(0, &[Event::DtlbStoreStlbHit, Event::StoreSplit]);
    machine.step(Instruction { store, ..executed(micro) });
    let flags = 1 << 1 | 1 << 2 | 1 << 7 | 1 << 8 | 1 << 17 | 1 << 20;
    assert_eq!(machine.rd(msr::IBS_OP_DATA3), flags | 7 << 48);
    assert_eq!(machine.rd(msr::IBS_OP_DATA2), 0);
}

/// A branch's sample: IbsOpBrnRet, and how it went. A return's target is told; on family 10h also that it was mispredicted.
#[test]
fn a_branch_is_described() {
    let (misp_return, is_return, taken, mispredicted, retired) =
        (1 << 33, 1 << 34, 1 << 35, 1 << 36, 1 << 37);
    let cases: [(&[Event], u64); 3] = [
        (&[Event::BranchConditional, Event::BranchNotTaken], retired),
        (
            &[Event::BranchConditional, Event::BranchTaken, Event::BranchMispredicted],
            retired | taken | mispredicted,
        ),
        (
            &[Event::BranchReturn, Event::BranchTaken, Event::BranchMispredicted],
            retired | taken | mispredicted | is_return,
        ),
    ];
    for (events, expected) in cases {
        let mut machine = machine(&ZEN_4);
        sample_next_op(&mut machine);
        let next = machine.pc + 4;
        machine.step(Instruction { branch: true, ..executed(fetched(0, events)) });
        assert_eq!(machine.rd(msr::IBS_OP_DATA), expected | 1 << 16, "{events:?}");
        assert_eq!(machine.rd(msr::BP_IBSTGT_RIP), if expected & taken != 0 { next } else { 0 });
        let mut old = Machine::of(&FAMILY_10H, Options::default());
        sample_next_op(&mut old);
        old.step(Instruction { branch: true, ..executed(fetched(0, events)) });
        let more = if expected & is_return != 0 { misp_return } else { 0 };
        assert_eq!(old.rd(msr::IBS_OP_DATA), expected | more | 1 << 16, "{events:?}");
    }
}

/// What happened to the instruction before is not in the sample.
#[test]
fn a_sample_is_of_one_instruction() {
    let mut machine = machine(&ZEN_4);
    machine.wr(msr::IBS_OP_CTL, 0x10 | OP_EN | COUNT_OPS | 0xFE << 32);
    machine.step(Instruction {
        branch: true,
        load: Some(access(0x3000, DataSource::Memory, 300, true)),
        ..executed(fetched(50, &[Event::BranchTaken, Event::DtlbLoadWalk]))
    });
    machine.step(executed(fetched(0, &[])));
    let data =
        [msr::IBS_OP_DATA, msr::IBS_OP_DATA2, msr::IBS_OP_DATA3, msr::IBS_DC_LINADDR, msr::BP_IBSTGT_RIP];
    assert_eq!(data.map(|register| machine.rd(register)), [1 << 16, 0, 0, 0, 0]);
}

/// IbsOpL3MissOnly: an op that did not miss L3 is no sample, and counting begins anew.
#[test]
fn ops_that_hit_l3_can_be_left_out() {
    let mut machine = machine(&ZEN_4);
    machine.wr(msr::IBS_OP_CTL, 0x10 | OP_EN | COUNT_OPS | OP_L3_MISS_ONLY);
    let load = |source| Instruction { load: Some(access(0x1000, source, 50, false)), ..nop() };
    machine.steps(load(DataSource::L3), 0x100);
    assert_eq!(machine.bus.ibs, 0);
    let control = machine.rd(msr::IBS_OP_CTL);
    assert!(control & OP_VAL == 0 && control >> 32 < 0x80, "{control:#x}");
    machine.steps(load(DataSource::Memory), 0x100);
    assert_eq!(machine.bus.ibs, 1);
}

/// A fetch's sample (IBS_FETCH_CTL, addresses, IC_IBS_EXTD_CTL).
#[test]
fn the_fetch_at_the_maximum_is_sampled() {
    let events = [Event::L1iMiss, Event::L2CodeMiss, Event::LlcInstructionMiss, Event::ItlbWalk];
    let (l2_miss, l3_miss) = (1 << 58, 1 << 61);
    for (profile, more) in [(&FAMILY_10H, 0), (&ZEN_3, l2_miss), (&ZEN_4, l2_miss | l3_miss)] {
        let mut machine = machine(profile);
        machine.wr(msr::IBS_FETCH_CTL, 1 | FETCH_EN);
        machine.steps(executed(fetched(0, &[])), 15);
        assert_eq!(machine.bus.ibs, 0);
        let tagged = machine.pc;
        machine.bus.map(tagged, 4);
        machine.steps(executed(fetched(330, &events)), 1);
        assert_eq!(machine.bus.ibs, 1);
        // IbsFetchComp, IbsIcMiss, IbsPhyAddrValid, IbsL1TlbMiss, IbsL2TlbMiss.
        let flags = 1 << 50 | 1 << 51 | 1 << 52 | 1 << 55 | 1 << 56 | more;
        let control = machine.rd(msr::IBS_FETCH_CTL);
        assert_eq!(control, 1 | 1 << 16 | FETCH_EN | FETCH_VAL | 330 << 32 | flags, "{}", profile.name);
        assert_eq!(machine.rd(msr::IBS_FETCH_LINADDR), tagged);
        assert_eq!(machine.rd(msr::IBS_FETCH_PHYSADDR), physical(tagged));
        if more != 0 {
            assert_eq!(machine.rd(msr::IC_IBS_EXTD_CTL), 30, "IbsItlbRefillLat: a page walk");
        }
        machine.wr(msr::IBS_FETCH_CTL, 1 | FETCH_EN);
        assert_eq!(machine.rd(msr::IBS_FETCH_CTL), 1 | FETCH_EN, "a new period");
        machine.steps(executed(fetched(0, &[])), 16);
        assert_eq!(machine.rd(msr::IBS_FETCH_CTL), 1 | 1 << 16 | FETCH_EN | FETCH_VAL | 1 << 50 | 1 << 52);
    }
}

/// IbsRandEn draws the low four bits of the count anew at each start: the period varies by less than 16.
#[test]
fn random_fetch_periods_stay_in_range() {
    let mut machine = machine(&ZEN_3);
    let mut periods = std::collections::HashSet::new();
    for n in 1..=64 {
        machine.wr(msr::IBS_FETCH_CTL, 2 | FETCH_EN | RAND_EN);
        let mut period = 0;
        while machine.bus.ibs < n {
            machine.steps(executed(fetched(0, &[])), 1);
            period += 1;
        }
        assert!((17..=32).contains(&period), "{period}");
        periods.insert(period);
    }
    assert!(periods.len() > 8, "{periods:?}");
}

/// An op and a fetch that are due together share the interrupt.
#[test]
fn two_samples_at_once_are_one_interrupt() {
    let mut machine = machine(&ZEN_4);
    machine.wr(msr::IBS_OP_CTL, 0x1 | OP_EN | COUNT_OPS);
    machine.wr(msr::IBS_FETCH_CTL, 0x1 | FETCH_EN);
    machine.steps(executed(fetched(0, &[])), 16);
    assert_eq!(machine.bus.ibs, 1);
    assert_ne!(machine.rd(msr::IBS_OP_CTL) & OP_VAL, 0);
    assert_ne!(machine.rd(msr::IBS_FETCH_CTL) & FETCH_VAL, 0);
}

proptest! {
    /// An adapter that comes back only when the headroom is used up gets what one does that looks at each instruction: the
    /// same counts, interrupts and sample.
    #[test]
    fn batches_equal_single_steps(
        counter_period in 1..300u64, op_period in 1..20u64, runs in prop::collection::vec((any::<bool>(), 1..60u64), 1..20),
    ) {
        let start = || {
            let mut machine = machine(&ZEN_4);
            machine.wr(msr::PERF_CTL0, 0xC0 | USR | EN | INT);
            machine.wr(msr::PERF_CTR0, RANGE - counter_period);
            machine.wr(msr::IBS_OP_CTL, op_period | OP_EN | COUNT_OPS);
            machine
        };
        let (mut single, mut batched) = (start(), start());
        for (kernel, instructions) in runs {
            single.steps(Instruction { kernel, ..nop() }, instructions);
            let privilege = if kernel { Privilege::Kernel } else { Privilege::User };
            let mut left = instructions;
            while left > 0 {
                let headroom = batched.pmu.headroom(privilege)[0];
                prop_assert!(headroom > 0);
                // All but one pass unobserved; the last is looked at.
                let unobserved = left.min(headroom) - 1;
                let mut delta = [[0; 2]; 4];
                delta[0][privilege as usize] = unobserved;
                batched.pmu.count_basic(&delta);
                prop_assert!(!batched.pmu.needs_settle(), "the headroom was not used up");
                batched.pc += 4 * unobserved;
                batched.step(Instruction { kernel, ..nop() });
                left -= unobserved + 1;
            }
        }
        let state = |machine: &mut Machine| {
            let registers = [msr::PERF_CTR0, msr::PERF_CNTR_GLOBAL_STATUS, msr::IBS_OP_CTL, msr::IBS_OP_RIP];
            (registers.map(|register| machine.rd(register)), machine.bus.pmis, machine.bus.ibs, machine.pc)
        };
        prop_assert_eq!(state(&mut single), state(&mut batched));
    }

    /// Software that carries the random bits over, as Linux does: the ops between two samples are the maximum less what the
    /// count began with, whatever counters run beside.
    #[test]
    fn samples_and_counts_agree(periods in prop::collection::vec(1..16u64, 1..8), counter_period in 1..200u64) {
        let mut machine = machine(&ZEN_4);
        machine.wr(msr::PERF_CTL0, 0xC0 | USR | EN | INT);
        machine.wr(msr::PERF_CTR0, RANGE - counter_period);
        let (mut begun_with, mut ops, mut expected) = (0, 0, 0);
        for (n, period) in (1..).zip(periods) {
            // Below 128 the random bits alone could reach the maximum.
            let maximum = (period << 4) + 0x80;
            machine.wr(msr::IBS_OP_CTL, maximum >> 4 | OP_EN | COUNT_OPS | begun_with << 32);
            expected += maximum - begun_with;
            while machine.bus.ibs < n {
                let tagged = machine.pc;
                machine.steps(nop(), 1);
                ops += 1;
                if machine.bus.ibs == n {
                    prop_assert_eq!(machine.rd(msr::IBS_OP_RIP), tagged);
                }
            }
            begun_with = machine.rd(msr::IBS_OP_CTL) >> 32 & 0x7F;
            prop_assert_eq!(ops, expected);
        }
        let counted = (machine.rd(msr::PERF_CTR0) + counter_period) % RANGE;
        prop_assert_eq!(counted, ops);
        prop_assert_eq!(u64::from(machine.bus.pmis), u64::from(ops >= counter_period));
    }
}
