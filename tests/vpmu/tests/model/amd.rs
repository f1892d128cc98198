//! AMD's core performance counters (APM 13.2; manuals as in `vpmu::profile::amd`).

use crate::machine::*;
use std::collections::HashSet;
use vpmu::pmu::msr;
use vpmu::profile::PmuKind;
use vpmu::profile::amd::{
    self, Amd, FAMILY_10H, FAMILY_15H, FAMILY_16H, K8, Units, ZEN_1, ZEN_2, ZEN_3, ZEN_4, ZEN_5,
};
use vpmu::{
    Core, CpuidRegs, DataSource, Demand, Event, EventSet, MicroEvents, Options, Pmu, Privilege, Profile,
    SharedCache,
};

const INSTRUCTIONS: u64 = 0xC0;
const GUEST_ONLY: u64 = 1 << 40;
const HOST_ONLY: u64 = 1 << 41;

fn machine(profile: &'static Profile) -> Machine {
    Machine::of(profile, Options::default())
}

fn facts(profile: &Profile) -> &'static Amd {
    match profile.pmu {
        PmuKind::Amd(facts) => facts,
        _ => panic!("{} is not AMD's", profile.name),
    }
}

fn cpuid(profile: &'static Profile, leaf: u32, machine: CpuidRegs) -> CpuidRegs {
    let mut regs = machine;
    Pmu::new(profile, Options::default()).cpuid(leaf, 0, &mut regs);
    regs
}

/// K7 and K8 have four counters at C001_0000H, family 15h and later six at C001_0200H, of which the first four are
/// the legacy ones (APM 13.2.1).
#[test]
fn each_part_has_its_counters_at_its_addresses() {
    for (profile, counters, extended) in [
        (&K8, 4, false),
        (&FAMILY_10H, 4, false),
        (&FAMILY_15H, 6, true),
        (&FAMILY_16H, 4, false),
        (&ZEN_1, 6, true),
        (&ZEN_2, 6, true),
        (&ZEN_3, 6, true),
        (&ZEN_4, 6, true),
        (&ZEN_5, 6, true),
    ] {
        let mut machine = machine(profile);
        for index in 0..4 {
            machine.wr(msr::PERF_CTL0_LEGACY + index, INSTRUCTIONS | USR);
            machine.wr(msr::PERF_CTR0_LEGACY + index, 100 + u64::from(index));
        }
        for index in 0..8 {
            let (control, counter) = (msr::PERF_CTL0 + 2 * index, msr::PERF_CTR0 + 2 * index);
            assert!(machine.pmu.owns_msr(control) && machine.pmu.owns_msr(counter));
            assert_eq!(machine.pmu.rdmsr(control).is_ok(), extended && index < counters, "{}", profile.name);
            assert_eq!(machine.pmu.wrmsr(counter, 0).is_ok(), extended && index < counters);
            assert_eq!(machine.pmu.rdpmc(index).is_ok(), index < counters);
        }
        if extended {
            machine.wr(msr::PERF_CTR0 + 6, 77);
            assert_eq!(machine.rd(msr::PERF_CTR0_LEGACY + 3), 77, "the same counter");
            assert_eq!(machine.rd(msr::PERF_CTL0 + 6), INSTRUCTIONS | USR, "the same register");
            assert_eq!(machine.pmu.rdpmc(3), Ok(77));
        }
    }
}

/// Reserved bits are cleared, and do not fault (Linux commit 9b026073db2f); K8 has no bits above 31 (BKDG 32559),
/// later parts have EventSelect[11:8] and HostGuestOnly (APM 13.2.1).
#[test]
fn reserved_bits_of_the_control_register_read_as_zero() {
    for (profile, defined) in [
        (&K8, 0xFFDF_FFFF),
        (&FAMILY_10H, 0x30F_FFD7_FFFF),
        (&FAMILY_15H, 0x30F_FFD7_FFFF),
        (&FAMILY_16H, 0x30F_FFD7_FFFF),
        (&ZEN_1, 0x30F_FFD7_FFFF),
        (&ZEN_2, 0x30F_FFD7_FFFF),
        (&ZEN_3, 0x30F_FFD7_FFFF),
        (&ZEN_4, 0x30F_FFD7_FFFF),
        (&ZEN_5, 0x30F_FFD7_FFFF),
    ] {
        let mut machine = machine(profile);
        machine.wr(msr::PERF_CTL0_LEGACY, u64::MAX);
        assert_eq!(machine.rd(msr::PERF_CTL0_LEGACY), defined, "{}", profile.name);
        machine.wr(msr::PERF_CTR0_LEGACY, u64::MAX);
        assert_eq!(machine.rd(msr::PERF_CTR0_LEGACY), (1 << 48) - 1, "48 bits");
    }
}

/// USR, OS and EN choose what is counted.
#[test]
fn privilege_and_enable_bits_select_what_is_counted() {
    for profile in amd::ALL {
        for (select, expected) in [(USR | EN, 7), (OS | EN, 5), (USR | OS | EN, 12), (EN, 0), (USR | OS, 0)] {
            let mut machine = machine(profile);
            machine.wr(msr::PERF_CTL0_LEGACY + 1, INSTRUCTIONS | select);
            machine.steps(nop(), 7);
            machine.steps(Instruction { kernel: true, ..nop() }, 5);
            assert_eq!(machine.rd(msr::PERF_CTR0_LEGACY + 1), expected, "{} {select:#x}", profile.name);
        }
    }
}

/// With EFER.SVME = 0 a counter for the host alone or guests alone stands still, one with both bits counts (APM 13.2.1,
/// "HostGuestOnly"). On K8 the bits are reserved.
#[test]
fn host_only_and_guest_only_count_nothing_without_virtualization() {
    let cases = [(0, 3), (HOST_ONLY, 0), (GUEST_ONLY, 0), (HOST_ONLY | GUEST_ONLY, 3)];
    for (bits, expected) in cases {
        for (profile, expected) in [(&ZEN_3, expected), (&FAMILY_10H, expected), (&K8, 3)] {
            let mut machine = machine(profile);
            machine.wr(msr::PERF_CTL0_LEGACY, INSTRUCTIONS | USR | EN | bits);
            machine.steps(nop(), 3);
            assert_eq!(machine.rd(msr::PERF_CTR0_LEGACY), expected, "{} {bits:#x}", profile.name);
        }
    }
}

/// Without PerfMonV2 an overflow shows in nothing but the counter's value; INT requests the interrupt, and the counter
/// goes on.
#[test]
fn an_overflow_wraps_and_interrupts() {
    for (int, pmis) in [(INT, 1), (0, 0)] {
        let mut machine = machine(&K8);
        machine.wr(msr::PERF_CTL0_LEGACY, INSTRUCTIONS | USR | EN | int);
        machine.wr(msr::PERF_CTR0_LEGACY, RANGE - 3);
        assert_eq!(machine.pmu.headroom(Privilege::User)[0], 3);
        machine.steps(nop(), 2);
        assert_eq!(machine.bus.pmis, 0);
        machine.steps(nop(), 3);
        assert_eq!((machine.bus.pmis, machine.rd(msr::PERF_CTR0_LEGACY)), (pmis, 2));
    }
    let mut machine = machine(&K8);
    for register in
        [msr::PERF_CNTR_GLOBAL_STATUS, msr::PERF_CNTR_GLOBAL_CTL, msr::PERF_CNTR_GLOBAL_STATUS_CLR]
    {
        assert!(machine.pmu.rdmsr(register).is_err() && machine.pmu.wrmsr(register, 0).is_err());
    }
}

/// PerfMonV2 (APM 13.2.2): PerfCntrGlobalCtl starts with every counter enabled and gates them; overflows stay in
/// PerfCntrGlobalStatus until PerfCntrGlobalStatusClr takes them away.
#[test]
fn version_2_has_global_control_and_status() {
    [&ZEN_4, &ZEN_5].into_iter().for_each(has_global_control_and_status);
}

fn has_global_control_and_status(profile: &'static Profile) {
    let mut machine = machine(profile);
    assert_eq!(machine.rd(msr::PERF_CNTR_GLOBAL_CTL), 0x3F);
    for index in [0, 5] {
        machine.wr(msr::PERF_CTL0 + 2 * index, INSTRUCTIONS | USR | EN);
        machine.wr(msr::PERF_CTR0 + 2 * index, RANGE - 1);
    }
    machine.wr(msr::PERF_CNTR_GLOBAL_CTL, u64::MAX);
    assert_eq!(machine.rd(msr::PERF_CNTR_GLOBAL_CTL), 0x3F, "six counters");
    machine.wr(msr::PERF_CNTR_GLOBAL_CTL, 1 << 5);
    machine.steps(nop(), 2);
    assert_eq!(machine.rd(msr::PERF_CNTR_GLOBAL_STATUS), 1 << 5, "without INT, too");
    assert_eq!((machine.pmu.rdpmc(0), machine.pmu.rdpmc(5)), (Ok(RANGE - 1), Ok(1)));
    machine.wr(msr::PERF_CNTR_GLOBAL_CTL, 0);
    assert_eq!(machine.pmu.demand(), Demand::Nothing);
    assert!(machine.pmu.wrmsr(msr::PERF_CNTR_GLOBAL_STATUS, 0).is_err(), "read-only");
    machine.wr(msr::PERF_CNTR_GLOBAL_STATUS_SET, 0b10);
    assert_eq!(machine.rd(msr::PERF_CNTR_GLOBAL_STATUS), 0b10_0010);
    // Linux acknowledges by writing ones to everything but what it left unhandled.
    machine.wr(msr::PERF_CNTR_GLOBAL_STATUS_CLR, !0b10);
    assert_eq!(machine.rd(msr::PERF_CNTR_GLOBAL_STATUS), 0b10);
    assert_eq!(machine.rd(msr::PERF_CNTR_GLOBAL_STATUS_CLR), 0);
}

/// DebugCtl.FPCI freezes every counter on an interrupt of one until PmcFreeze is cleared; an overflow without INT does
/// not.
#[test]
fn freeze_on_pmi_stops_all_counters() {
    for (int, frozen) in [(INT, true), (0, false)] {
        let mut machine = machine(&ZEN_4);
        machine.wr(msr::IA32_DEBUGCTL, 1 << 12);
        machine.wr(msr::PERF_CTL0, INSTRUCTIONS | USR | EN | int);
        machine.wr(msr::PERF_CTL0 + 2, INSTRUCTIONS | USR | EN);
        machine.wr(msr::PERF_CTR0, RANGE - 4);
        machine.steps(nop(), 10);
        let status = machine.rd(msr::PERF_CNTR_GLOBAL_STATUS);
        assert_eq!(status, 1 | if frozen { 1 << 59 } else { 0 });
        assert_eq!(machine.pmu.rdpmc(1), Ok(if frozen { 4 } else { 10 }));
        machine.wr(msr::PERF_CNTR_GLOBAL_STATUS_CLR, status);
        machine.steps(nop(), 1);
        assert_eq!(machine.pmu.rdpmc(1), Ok(if frozen { 5 } else { 11 }));
    }
}

/// Each bit of a unit mask adds its part: here the L2 requests that missed (PMCx064, PPR 56713).
#[test]
fn unit_masks_add_up() {
    let of = |events: &[Event]| MicroEvents { once: EventSet::of(events), ..MicroEvents::default() };
    for (mask, expected) in [(0x01, 1), (0x08, 5), (0x09, 6), (0x40, 4), (0xFF, 10), (0, 0)] {
        let mut machine = machine(&ZEN_3);
        machine.wr(msr::PERF_CTL0, 0x64 | mask << 8 | USR | EN);
        for (events, n) in [
            (of(&[Event::L2CodeMiss]), 1),
            (of(&[Event::L2ReadMiss, Event::LoadL2Miss]), 2),
            (of(&[Event::L2RfoMiss]), 3),
            (of(&[Event::L2ReadHit]), 4),
        ] {
            machine.steps(Instruction { micro: events, ..nop() }, n);
        }
        assert_eq!(machine.rd(msr::PERF_CTR0), expected, "{mask:#x}");
    }
}

/// EventSelect[11:8] are in bits 35:32: 1C7H is not 0C7H.
#[test]
fn event_selects_have_twelve_bits() {
    let micro =
        MicroEvents { once: EventSet::of(&[Event::BranchConditionalMispredicted]), ..MicroEvents::default() };
    for (select, expected) in [(0x1_0000_00C7, 3), (0xC7, 0)] {
        let mut machine = machine(&ZEN_3);
        machine.wr(msr::PERF_CTL0, select | USR | EN);
        machine.steps(Instruction { micro, ..nop() }, 3);
        assert_eq!(machine.rd(msr::PERF_CTR0), expected);
    }
}

/// On family 15h what the cores of a module share is counted by counters 0 to 2 only (BKDG 42301: PMCx076 and others,
/// PERF_CTL[2:0]); retired instructions by all six.
#[test]
fn family_15h_binds_events_to_counters() {
    let micro = MicroEvents { once: EventSet::of(&[Event::L2ReadMiss]), cycles: 1, ..MicroEvents::default() };
    for (select, counters) in [(0xC0, 6), (0x76, 3), (0x43, 3), (0x027E, 3), (0x0142, 6)] {
        let mut machine = machine(&FAMILY_15H);
        (0..6).for_each(|index| machine.wr(msr::PERF_CTL0 + 2 * index, select | USR | EN));
        machine.steps(Instruction { micro, ..nop() }, 3);
        for index in 0..6 {
            let counted = machine.rd(msr::PERF_CTR0 + 2 * index);
            assert_eq!(counted, if index < counters { 3 } else { 0 }, "{select:#x} on {index}");
        }
    }
}

/// What Zen 1 and Zen 2 do not have in common: Zen 2 counts the sources of fills, and mispredicted conditional branches elsewhere
/// (PPR 54945: PMCx0D2, PPR 55803: PMCx043, PMCx1C7).
#[test]
fn zen_1_and_zen_2_differ_in_their_events() {
    let events = &[Event::BranchConditionalMispredicted, Event::L2ReadHit];
    let micro = MicroEvents { once: EventSet::of(events), ..MicroEvents::default() };
    for (select, zen_1, zen_2) in [(0xD2, 3, 0), (0x1_0000_00C7, 0, 3), (0x0143, 0, 3)] {
        for (profile, expected) in [(&ZEN_1, zen_1), (&ZEN_2, zen_2)] {
            let mut machine = machine(profile);
            machine.wr(msr::PERF_CTL0, select | USR | EN);
            machine.steps(Instruction { micro, ..nop() }, 3);
            assert_eq!(machine.rd(msr::PERF_CTR0), expected, "{} {select:#x}", profile.name);
        }
    }
}

/// CntMask, Inv and Edge look at each cycle: three cycles with two instructions, then five without.
#[test]
fn counts_per_cycle_are_compared_with_the_counter_mask() {
    let cases = [(2 << 24, 3), (3 << 24, 0), (1 << 24 | INV, 5), (1 << 24 | EDGE, 1), (EDGE, 1)];
    for (modifiers, expected) in cases {
        let mut machine = machine(&FAMILY_10H);
        machine.wr(msr::PERF_CTL0_LEGACY, INSTRUCTIONS | USR | EN | modifiers);
        for _ in 0..3 {
            machine.steps(nop(), 2);
            machine.pmu.count(&MicroEvents { cycles: 1, ..MicroEvents::default() }, Privilege::User);
        }
        machine.pmu.count(&MicroEvents { cycles: 5, ..MicroEvents::default() }, Privilege::User);
        assert_eq!(machine.rd(msr::PERF_CTR0_LEGACY), expected, "{modifiers:#x}");
    }
}

/// What must be observed follows from the event.
#[test]
fn demand_follows_the_event() {
    for (select, demand) in [
        (INSTRUCTIONS, Demand::Basic),
        (0xC2, Demand::Basic),
        (0x0329, Demand::Basic),
        (0x76, Demand::Microarchitecture),
        (0x0843, Demand::Microarchitecture),
        (0x0043, Demand::Nothing),
        (0xFFF, Demand::Nothing),
        (INSTRUCTIONS | 1 << 24, Demand::Microarchitecture),
    ] {
        let mut machine = machine(&ZEN_4);
        machine.wr(msr::PERF_CTL0, select | USR | EN);
        assert_eq!(machine.pmu.demand(), demand, "{select:#x}");
    }
}

/// No two events of a part share name or encoding, no two units a bit, and every one counts something on its part.
#[test]
fn tables_are_unambiguous() {
    for profile in amd::ALL {
        let (mut names, mut selects) = (HashSet::new(), HashSet::new());
        for event in facts(profile).events() {
            assert!(names.insert(event.name) && selects.insert(event.select), "{} twice", event.name);
            assert!(!event.counts(0xFF).is_empty(), "{}", event.name);
            if let Units::Bits(bits) = event.units {
                let all: u32 = bits.iter().map(|(bit, _)| u32::from(*bit)).sum();
                assert!(bits.iter().all(|(bit, _)| bit.is_power_of_two()) && all < 256, "{}", event.name);
                assert_eq!(all.count_ones() as usize, bits.len(), "{}: a bit twice", event.name);
            }
            let mut machine = machine(profile);
            let select = u64::from(event.select);
            let control = msr::PERF_CTL0_LEGACY + event.counters.trailing_zeros();
            machine.wr(control, select & 0xFF | (select & 0xF00) << 24 | 0xFF00 | USR | EN);
            assert!(machine.pmu.demand() >= Demand::Basic, "{}", event.name);
        }
    }
}

/// `CPUID` enumerates what there is and nothing else (APM Vol. 3, appendix E): 8000_0001H:ECX bits 10 (IBS) and 23
/// (PerfCtrExtCore), 8000_001BH, 8000_0022H.
#[test]
fn cpuid_is_consistent_with_the_registers() {
    let machine = CpuidRegs { eax: 0x8000_0008, ebx: 7, ecx: u32::MAX, edx: 7 };
    let rows = [
        (&K8, 0x8000_0008, 0, 0, (0, 0)),
        (&FAMILY_10H, 0x8000_001B, 1 << 10, 0x1F, (0, 0)),
        (&FAMILY_15H, 0x8000_001B, 1 << 10 | 1 << 23, 0xFF, (0, 0)),
        (&FAMILY_16H, 0x8000_001B, 1 << 10, 0xFF, (0, 0)),
        (&ZEN_1, 0x8000_001B, 1 << 10 | 1 << 23, 0x3FF, (0, 0)),
        (&ZEN_2, 0x8000_001B, 1 << 10 | 1 << 23, 0x3FF, (0, 0)),
        (&ZEN_3, 0x8000_001B, 1 << 10 | 1 << 23, 0x3FF, (0, 0)),
        (&ZEN_4, 0x8000_0022, 1 << 10 | 1 << 23, 0xBFF, (0b101, 6)),
        (&ZEN_5, 0x8000_0022, 1 << 10 | 1 << 23, 0xBFF, (0b101, 6)),
    ];
    for (profile, highest, features, ibs, (perfmon, counters)) in rows {
        assert_eq!(cpuid(profile, 0x8000_0000, machine).eax, highest, "{}", profile.name);
        let extended = cpuid(profile, 0x8000_0001, machine);
        let pmu = 1 << 10 | 1 << 23 | 1 << 24 | 1 << 28;
        assert_eq!((extended.ecx & pmu, extended.ecx | pmu), (features, u32::MAX), "{}", profile.name);
        assert_eq!((extended.eax, cpuid(profile, 1, machine).eax), (profile.signature, profile.signature));
        assert_eq!(cpuid(profile, 0x8000_001B, machine), CpuidRegs { eax: ibs, ..CpuidRegs::default() });
        let version = CpuidRegs { eax: perfmon, ebx: counters, ..CpuidRegs::default() };
        assert_eq!(cpuid(profile, 0x8000_0022, machine), version, "{}", profile.name);
    }
}

/// A restored snapshot goes on where it was taken, and one of another part is refused.
#[test]
fn a_snapshot_restores_the_pmu() {
    let mut machine = machine(&ZEN_4);
    machine.wr(msr::PERF_CTL0, INSTRUCTIONS | USR | EN);
    machine.wr(msr::IBS_OP_CTL, 0x10 | 1 << 17 | 1 << 19);
    machine.steps(nop(), 100);
    let text = serde_json::to_string(&machine.pmu.snapshot()).expect("a snapshot is JSON");
    let mut restored =
        Pmu::restore(serde_json::from_str(&text).expect("the same")).expect("the profile exists");
    assert_eq!(restored.rdpmc(0), Ok(100));
    assert_eq!(restored.rdmsr(msr::IBS_OP_CTL), machine.pmu.rdmsr(msr::IBS_OP_CTL));
    assert_eq!(restored.headroom(Privilege::User), machine.pmu.headroom(Privilege::User));
    let other = text.replace("zen4", "skylake");
    assert!(Pmu::restore(serde_json::from_str(&other).expect("JSON")).is_err());
}

/// K8 has no third level: whatever the second lacks comes from memory, also what it once had.
#[test]
fn behind_the_second_level_of_k8_is_memory() {
    let llc = SharedCache::new(&K8.geometry.llc).expect("a cache");
    let mut core = Core::new(&K8, &K8.geometry, llc).expect("caches");
    let mut sources = HashSet::new();
    for round in 0..3u64 {
        // Three times what the second level holds, and some lines again at once.
        for line in 0..3 << 14 {
            let address = 64 * (line ^ round);
            sources.insert(core.data(address, address, 8, line % 5 == 0).1.source);
            sources.insert(core.data(address, address, 8, false).1.source);
        }
    }
    assert_eq!(sources, HashSet::from([DataSource::L1, DataSource::Memory]));
}
