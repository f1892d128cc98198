//! What parts with version 5 and later say of themselves (SDM Vol. 2A, CPUID; Vol. 3B 20.2.5).

use crate::geometry::latency;
use crate::machine::*;
use vpmu::profile::{
    ALDER_LAKE, ARROW_LAKE_H, CLEARWATER_FOREST, GRANITE_RAPIDS, ICE_LAKE, LUNAR_LAKE, METEOR_LAKE,
    SAPPHIRE_RAPIDS, SIERRA_FOREST, SKYLAKE,
};
use vpmu::{
    Core, CpuidRegs, DataSource, Event, EventSet, GeneralProtection, MicroEvents, Options, Pmu, Privilege,
    Profile, SharedCache, pmu::msr,
};

fn ask(profile: &'static Profile, leaf: u32, subleaf: u32) -> CpuidRegs {
    let mut regs = CpuidRegs::default();
    Pmu::new(profile, Options::default()).cpuid(leaf, subleaf, &mut regs);
    regs
}

/// 20.2.5.2: ECX is the bit map of fixed-function counters; EDX bit 15 says that AnyThread is deprecated.
/// Eight architectural events, with top-down slots.
#[test]
fn version_5_has_a_bit_map_of_fixed_counters() {
    let regs = ask(&ICE_LAKE, 0x0A, 0);
    assert_eq!(regs, CpuidRegs { eax: 0x0830_0805, ebx: 0, ecx: 0xF, edx: 0x8604 });
    let mut pmu = Pmu::new(&ICE_LAKE, Options::default());
    for (register, any_thread) in [(msr::IA32_PERFEVTSEL0, 1 << 21), (msr::IA32_FIXED_CTR_CTRL, 1 << 6)] {
        assert_eq!(pmu.wrmsr(register, any_thread), Err(GeneralProtection), "{register:#x}");
    }
    // Adaptive_Record of each counter (20.9.2.1).
    assert!(pmu.wrmsr(msr::IA32_PERFEVTSEL0 + 7, 1 << 34).is_ok());
    assert!(pmu.wrmsr(msr::IA32_FIXED_CTR_CTRL, 0x1111 << 32).is_ok());
    assert_eq!(pmu.wrmsr(msr::IA32_FIXED_CTR_CTRL, 1 << 33), Err(GeneralProtection));
    assert_eq!(pmu.wrmsr(msr::IA32_PEBS_ENABLE, 1 << 8), Err(GeneralProtection));
    assert!(pmu.wrmsr(msr::IA32_PEBS_ENABLE, 0xF_0000_00FF).is_ok());
}

/// Leaf 1CH: depths 8, 16 and 32, linear addresses; filters and call stack; misprediction, cycles, type.
#[test]
fn architectural_branch_records_are_enumerated() {
    assert_eq!(ask(&SAPPHIRE_RAPIDS, 7, 0).edx, 1 << 19);
    let leaf = ask(&SAPPHIRE_RAPIDS, 0x1C, 0);
    assert_eq!(leaf, CpuidRegs { eax: 1 << 31 | 0b1011, ebx: 7, ecx: 7, edx: 0 });
    assert_eq!(ask(&SAPPHIRE_RAPIDS, 0, 0).eax, 0x1C);
    assert_eq!((ask(&SKYLAKE, 7, 0).edx, ask(&SKYLAKE, 0, 0).eax), (0, 0x0A));
}

/// Leaf 23H. There is no debug store: DS and DTES64 are clear, and IA32_MISC_ENABLE says that PEBS by way of
/// it is unavailable.
#[test]
fn version_6_is_enumerated_by_leaf_23h() {
    assert_eq!(ask(&CLEARWATER_FOREST, 7, 1).eax, 1 << 8);
    let of = |subleaf| ask(&CLEARWATER_FOREST, 0x23, subleaf);
    assert_eq!((of(0).eax, of(0).ebx), (0b11_1111, 0b11));
    assert_eq!((of(1).eax, of(1).ebx), (0xFF, 0x77));
    assert_eq!(of(2), CpuidRegs { eax: 0xFC, ebx: 2, ecx: 0xFC, edx: 2 });
    assert_eq!(of(4).ebx, 1 << 30 | 1 << 29 | 1 << 17 | 0b11 << 8);
    assert_eq!(of(5), CpuidRegs { eax: 0xFF, ebx: 1, ecx: 0b111, edx: 1 });
    let leaf = ask(&CLEARWATER_FOREST, 0x0A, 0);
    assert_eq!((leaf.eax & 0xFFFF, leaf.ecx, leaf.edx & 0x1F), (0x0806, 0x77, 3));
    let one = ask(&CLEARWATER_FOREST, 1, 0);
    assert_eq!((one.ecx, one.edx), (1 << 15, 0));
    let pmu = Pmu::new(&CLEARWATER_FOREST, Options::default());
    assert_eq!(pmu.misc_enable(0), 1 << 7 | 1 << 11 | 1 << 12);
}

/// Leaf 23H of version 5: each core's own counters, where leaf 0AH has those of all; nothing else of version 6.
#[test]
fn version_5_can_have_leaf_23h_for_its_counters() {
    for (core, fixed) in
        [(METEOR_LAKE.of_cpu(0, 2), 0b1111), (METEOR_LAKE.of_cpu(1, 2), 0b111), (&SIERRA_FOREST, 0b111)]
    {
        assert_eq!(ask(core, 7, 1).eax, 1 << 8);
        let leaf = ask(core, 0x0A, 0);
        assert_eq!((leaf.eax & 0xFFFF, leaf.ecx), (0x0805, 0b111), "{}", core.name);
        let of = |subleaf| ask(core, 0x23, subleaf);
        assert_eq!((of(0).eax, of(0).ebx), (0b1011, 0));
        assert_eq!((of(1).eax, of(1).ebx), (0xFF, fixed));
        assert_eq!([of(4), of(5)], [CpuidRegs::default(); 2]);
        let mut pmu = Pmu::new(core, Options::default());
        assert_eq!(pmu.rdmsr(msr::IA32_PMC_GP0_CTR), Err(GeneralProtection), "the registers of version 6");
        assert_eq!(pmu.wrmsr(msr::IA32_PERFEVTSEL0, 1 << 36), Err(GeneralProtection), "EQ");
    }
}

/// Version 6 without architectural PEBS: the counters' second addresses and EQ, but CFG_C only for auto counter reload.
#[test]
fn lunar_lake_has_version_6_and_a_debug_store() {
    for (core, counters) in
        [(LUNAR_LAKE.of_cpu(0, 2), [0x3FF, 0b1111]), (LUNAR_LAKE.of_cpu(1, 2), [0xFF, 0x77])]
    {
        let of = |subleaf| ask(core, 0x23, subleaf);
        let unit_mask2 = counters[0] == 0x3FF;
        let [reload, fixed] = if unit_mask2 { [0, 0] } else { [0xFC, 0b10] };
        assert_eq!(
            (of(0).eax, of(0).ebx),
            (0b1011 | u32::from(reload != 0) << 2, 1 << 1 | u32::from(unit_mask2))
        );
        assert_eq!(of(2), CpuidRegs { eax: reload, ebx: fixed, ecx: reload, edx: fixed });
        assert_eq!([of(1).eax, of(1).ebx], counters, "{}", core.name);
        assert_eq!(ask(core, 1, 0).edx, 1 << 21);
        let mut pmu = Pmu::new(core, Options::default());
        assert_eq!(pmu.rdmsr(msr::IA32_PMC_GP0_CTR), Ok(0));
        assert_eq!(pmu.rdmsr(msr::IA32_PMC_GP0_CTR + 3), Err(GeneralProtection), "CFG_C");
        assert!(pmu.wrmsr(msr::IA32_PERFEVTSEL0, 1 << 36).is_ok(), "EQ");
        assert_eq!(pmu.wrmsr(msr::IA32_PERFEVTSEL0, 0xFF << 40).is_ok(), unit_mask2);
    }
    // Of all cores: neither fixed-function counter 3 nor those behind it.
    assert_eq!(ask(LUNAR_LAKE.of_cpu(0, 2), 0x0A, 0).ecx, 0b111);
}

/// Version 5 on all cores; the EQ bit and UnitMask2 are where leaf 23H tells of them.
#[test]
fn arrow_lake_h_has_three_types_of_core() {
    let of = |cpu, cpus| ARROW_LAKE_H.of_cpu(cpu, cpus);
    let native = |cpus| (0..cpus).map(|cpu| ask(of(cpu, cpus), 0x1A, 0).eax).collect::<Vec<_>>();
    assert_eq!(native(2), [0x4000_0003, 0x2000_0003]);
    assert_eq!(native(3), [0x4000_0003, 0x2000_0003, 0x2000_0002]);
    assert_eq!(native(4), [0x4000_0003, 0x4000_0003, 0x2000_0003, 0x2000_0002]);
    let counters = [[0x3FF, 0b1111], [0xFF, 0x77], [0xFF, 0b111]];
    for (cpu, (counters, features)) in counters.into_iter().zip([3, 2, 0]).enumerate() {
        let core = of(cpu as u32, 3);
        assert_eq!(ask(core, 1, 0).eax, 0x000C_0652);
        let leaf = ask(core, 0x0A, 0);
        assert_eq!((leaf.eax & 0xFFFF, leaf.ecx), (0x0805, 0b111), "{}", core.name);
        let leaf = ask(core, 0x23, 1);
        assert_eq!(([leaf.eax, leaf.ebx], ask(core, 0x23, 0).ebx), (counters, features), "{}", core.name);
        let mut pmu = Pmu::new(core, Options::default());
        assert_eq!(pmu.rdmsr(msr::IA32_PMC_GP0_CTR), Err(GeneralProtection), "the registers of version 6");
        assert_eq!(pmu.wrmsr(msr::IA32_PERFEVTSEL0, 1 << 36).is_ok(), features & 2 != 0, "EQ");
        assert_eq!(pmu.wrmsr(msr::IA32_PERFEVTSEL0, 0xFF << 40).is_ok(), features & 1 != 0);
    }
}

/// The bit that Linux sets on Meteor Lake's performance cores (intel_pmu_broken_perf_cap).
#[test]
fn meteor_lake_lets_metrics_be_enabled() {
    let accepts =
        |core| Pmu::new(core, Options::default()).wrmsr(msr::IA32_PERF_GLOBAL_CTRL, 1 << 48).is_ok();
    assert!(accepts(&METEOR_LAKE) && !accepts(METEOR_LAKE.of_cpu(1, 2)) && !accepts(&ALDER_LAKE));
}

/// A hybrid part: the first half of its processors are performance cores, leaf 1AH tells which, and leaf 0AH
/// is of both.
#[test]
fn a_hybrid_part_has_two_types_of_core() {
    let types =
        |cpus| (0..cpus).map(|cpu| ask(ALDER_LAKE.of_cpu(cpu, cpus), 0x1A, 0).eax >> 24).collect::<Vec<_>>();
    assert_eq!(types(1), [0x40]);
    assert_eq!(types(2), [0x40, 0x20]);
    assert_eq!(types(3), [0x40, 0x40, 0x20]);
    assert_eq!(types(4), [0x40, 0x40, 0x20, 0x20]);
    for core in [ALDER_LAKE.of_cpu(0, 2), ALDER_LAKE.of_cpu(1, 2)] {
        assert_eq!(ask(core, 7, 0).edx, 1 << 15 | 1 << 19);
        let leaf = ask(core, 0x0A, 0);
        assert_eq!((leaf.eax >> 8 & 0xFF, leaf.ecx), (6, 7));
        assert_eq!(ask(core, 1, 0).eax, 0x0009_0672);
    }
    let mut performance = Pmu::new(ALDER_LAKE.of_cpu(0, 2), Options::default());
    let mut efficient = Pmu::new(ALDER_LAKE.of_cpu(1, 2), Options::default());
    assert_eq!((performance.rdpmc(7), efficient.rdpmc(7)), (Ok(0), Err(GeneralProtection)));
    let restored = Pmu::restore(efficient.snapshot()).expect("a core of a known part");
    assert_eq!(restored.profile().name, "alderlake-efficient");
}

/// Sizes and latencies of the caches, found by behaviour (Optimization Reference Manual, "Cache parameters";
/// what is chosen is in docs/pmu-model.md). One way of L1D is 4 KiB on all of them.
#[test]
fn each_level_has_its_size_and_latency() {
    for (profile, l1_ways, l1_latency, l2, l2_latency, llc, llc_latency) in [
        (&ICE_LAKE, 12, 5, (512 << 10, 8), 13, (8 << 20, 16), 42),
        (&SAPPHIRE_RAPIDS, 12, 5, (2 << 20, 16), 15, (30 << 20, 15), 70),
        (&GRANITE_RAPIDS, 12, 5, (2 << 20, 16), 15, (30 << 20, 15), 70),
        (ALDER_LAKE.of_cpu(0, 2), 12, 5, (1280 << 10, 10), 15, (12 << 20, 12), 70),
        (ALDER_LAKE.of_cpu(1, 2), 8, 4, (2 << 20, 16), 17, (12 << 20, 12), 70),
        (&CLEARWATER_FOREST, 8, 4, (4 << 20, 16), 19, (32 << 20, 16), 70),
    ] {
        let name = profile.name;
        assert_eq!(latency(profile, 4096, l1_ways - 1), (DataSource::L1, l1_latency), "{name}");
        assert_eq!(latency(profile, 4096, l1_ways), (DataSource::L2, l2_latency), "{name}");
        // Lines that share a set of one level share one of every level before it: as many as the most ways of
        // any.
        let (l2_bytes, l2_ways) = l2;
        let conflicts = l2_ways.max(l1_ways);
        assert_eq!(latency(profile, l2_bytes / l2_ways, conflicts), (DataSource::L3, llc_latency), "{name}");
        let (llc_bytes, llc_ways) = llc;
        let conflicts = llc_ways.max(conflicts);
        assert_eq!(latency(profile, llc_bytes / llc_ways, conflicts).0, DataSource::Memory, "{name}");
    }
}

/// Intel's event lists, OCR.DEMAND_DATA_RD.LOCAL_DRAM: Golden Cove's value has no "snoop none" beside local memory.
#[test]
fn off_core_responses_by_the_lists_values() {
    let local_dram = [
        (&ICE_LAKE, 0x01B7, 0x1_8400_0001),
        (&SAPPHIRE_RAPIDS, 0x012A, 0x1_0400_0001),
        (ALDER_LAKE.of_cpu(1, 2), 0x01B7, 0x7_8400_0001),
        (&CLEARWATER_FOREST, 0x01B7, 0x7_8400_0001),
    ];
    for (profile, select, choice) in local_dram {
        let mut machine = Machine::of(profile, Options::default());
        machine.wr(msr::MSR_OFFCORE_RSP_0, choice);
        machine.wr(msr::IA32_PERFEVTSEL0, select | USR | EN);
        for event in [Event::LlcReadMiss, Event::L3ReadHit, Event::LlcWriteMiss] {
            let micro = MicroEvents { once: EventSet::of(&[event]), ..MicroEvents::default() };
            machine.step(Instruction { micro, ..nop() });
        }
        assert_eq!(machine.pmc(0), 1, "{}", profile.name);
    }
}

/// Fixed-function counter 3 counts slots: each cycle has as many as the core is wide.
#[test]
fn the_fourth_fixed_counter_counts_slots() {
    let llc = SharedCache::new(&ICE_LAKE.geometry.llc).unwrap();
    let mut core = Core::new(&ICE_LAKE, &ICE_LAKE.geometry, llc).unwrap();
    let mut pmu = Pmu::new(&ICE_LAKE, Options::default());
    pmu.wrmsr(msr::IA32_FIXED_CTR_CTRL, 0x2020).unwrap();
    pmu.wrmsr(msr::IA32_PERF_GLOBAL_CTRL, 0b1010 << 32).unwrap();
    for line in 0..100 {
        pmu.count(&core.fetch(line * 64, line * 64, 4), Privilege::User);
    }
    let cycles = pmu.rdpmc(1 << 30 | 1).unwrap();
    assert!(cycles > 100, "the cold cache stalls");
    assert_eq!(pmu.rdpmc(1 << 30 | 3), Ok(5 * cycles));
}

/// Instruction Set Extensions, RDPMC user disable: there on request, and of each counter by itself.
#[test]
fn counters_can_be_kept_from_rdpmc_in_user_mode() {
    const KEPT: u64 = 1 << 37;
    let mut without = Pmu::new(&CLEARWATER_FOREST, Options::default());
    assert!(without.wrmsr(msr::IA32_PERFEVTSEL0, KEPT).is_err());
    assert!(without.wrmsr(msr::IA32_FIXED_CTR_CTRL, 1 << 33).is_err());
    let options = Options { rdpmc_user_disable: true, ..Options::default() };
    assert!(Pmu::new(&SKYLAKE, options).wrmsr(msr::IA32_PERFEVTSEL0, KEPT).is_err(), "no leaf 23H");
    let mut pmu = Pmu::new(&CLEARWATER_FOREST, options);
    let mut leaf = CpuidRegs::default();
    pmu.cpuid(0x23, 0, &mut leaf);
    assert_eq!(leaf.ebx, 0b111);
    for (counter, fixed) in [(0, 0), (3, 6)] {
        pmu.wrmsr(msr::IA32_PMC0 + counter, 33).unwrap();
        pmu.wrmsr(msr::IA32_FIXED_CTR0 + fixed, 22).unwrap();
    }
    pmu.wrmsr(msr::IA32_PERFEVTSEL0 + 3, KEPT).unwrap();
    pmu.wrmsr(msr::IA32_FIXED_CTR_CTRL, 1 << (33 + 4 * 6)).unwrap();
    let fixed = |number: u32| 1 << 30 | number;
    assert_eq!([0, 3, fixed(0), fixed(6)].map(|ecx| pmu.rdpmc(ecx)), [33, 33, 22, 22].map(Ok));
    assert_eq!([0, 3, fixed(0), fixed(6)].map(|ecx| pmu.user_rdpmc(ecx)), [33, 0, 22, 0].map(Ok));
    assert!(
        pmu.user_rdpmc(8).is_err() && pmu.user_rdpmc(fixed(3)).is_err() && pmu.user_rdpmc(fixed(9)).is_err()
    );
}
