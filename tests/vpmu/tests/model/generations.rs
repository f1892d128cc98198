//! What the generations before Skylake do differently: registers, record formats, branch records, stores,
//! off-core responses.

use crate::machine::*;
use vpmu::pmu::msr;
use vpmu::profile::{
    ALL, BROADWELL, EARLY, HASWELL, IVY_BRIDGE, NEHALEM, Perfmon, Profile, SANDY_BRIDGE, SKYLAKE, WESTMERE,
};
use vpmu::{
    BranchKind, CpuidRegs, DataAccess, DataOutcome, DataSource, Demand, Event, EventSet, GeneralProtection,
    MicroEvents, Options, Privilege,
};

const BEFORE_SKYLAKE: [&Profile; 6] = [&NEHALEM, &WESTMERE, &SANDY_BRIDGE, &IVY_BRIDGE, &HASWELL, &BROADWELL];

fn machine(profile: &'static Profile) -> Machine {
    Machine::of(profile, Options::default())
}

/// Whether `RDMSR` and a `WRMSR` of what was read are accepted.
fn exists(profile: &'static Profile, register: u32) -> bool {
    let mut machine = machine(profile);
    assert!(machine.pmu.owns_msr(register), "{register:#x}");
    match machine.pmu.rdmsr(register) {
        Ok(value) => machine.pmu.wrmsr(register, value).is_ok(),
        Err(GeneralProtection) => {
            assert_eq!(machine.pmu.wrmsr(register, 0), Err(GeneralProtection), "{register:#x}");
            false
        }
    }
}

/// CPUID.01H of real parts, and leaf 0AH: version, four counters, three fixed ones, 48 bits each (SDM Vol. 3B
/// 18.2.3, 18.8).
#[test]
fn cpuid_names_the_part() {
    let signatures = [0x106A5, 0x20655, 0x206A7, 0x306A9, 0x306C3, 0x306D4];
    for (profile, signature) in BEFORE_SKYLAKE.into_iter().zip(signatures) {
        let mut regs = CpuidRegs::default();
        machine(profile).pmu.cpuid(1, 0, &mut regs);
        assert_eq!(regs.eax, signature, "{}", profile.name);
        machine(profile).pmu.cpuid(0x0A, 0, &mut regs);
        assert_eq!(regs, CpuidRegs { eax: 0x0730_0403, ebx: 0, ecx: 0, edx: 0x603 }, "{}", profile.name);
    }
}

/// Formats of branch records and of PEBS records, and full-width writes (SDM Vol. 3B 17.4.8.1, 18.4.4.2,
/// 18.9.3).
#[test]
fn capabilities_differ_by_generation() {
    let expected: [(&Profile, u8, u8, bool); 7] = [
        (&NEHALEM, 3, 1, false),
        (&WESTMERE, 3, 1, false),
        (&SANDY_BRIDGE, 3, 1, true),
        (&IVY_BRIDGE, 3, 1, true),
        (&HASWELL, 4, 2, true),
        (&BROADWELL, 4, 2, true),
        (&SKYLAKE, 5, 3, true),
    ];
    for (profile, lbr, pebs, full_width) in expected {
        let capabilities = machine(profile).rd(msr::IA32_PERF_CAPABILITIES);
        assert_eq!(capabilities & 0x3F, u64::from(lbr), "{}", profile.name);
        assert_eq!(capabilities >> 8 & 0xF, u64::from(pebs), "{}", profile.name);
        assert_eq!(capabilities >> 13 & 1 == 1, full_width, "{}", profile.name);
        assert_eq!(exists(profile, msr::IA32_A_PMC0 + 3), full_width, "{}", profile.name);
    }
}

/// Registers that came later fault: IA32_PERF_GLOBAL_STATUS_SET and _INUSE with version 4 (SDM Vol. 3B 18.2.4),
/// MSR_PEBS_FRONTEND, MSR_LBR_INFO_x and the upper half of the branch records with Skylake (17.10, 18.13.2),
/// MSR_OFFCORE_RSP_1 after Nehalem (18.8.1.3).
#[test]
fn later_registers_do_not_exist() {
    let skylakes = [
        msr::MSR_PEBS_FRONTEND,
        msr::MSR_LBR_INFO_0,
        msr::MSR_LASTBRANCH_0_FROM_IP + 16,
        msr::MSR_LASTBRANCH_0_TO_IP + 31,
        msr::IA32_PERF_GLOBAL_STATUS_SET,
    ];
    for register in skylakes {
        assert!(exists(&SKYLAKE, register), "{register:#x}");
        for profile in BEFORE_SKYLAKE {
            assert!(!exists(profile, register), "{} {register:#x}", profile.name);
        }
    }
    for profile in BEFORE_SKYLAKE {
        let in_use = machine(profile).pmu.rdmsr(msr::IA32_PERF_GLOBAL_INUSE);
        assert_eq!(in_use, Err(GeneralProtection), "{}", profile.name);
        assert!(exists(profile, msr::IA32_PERF_GLOBAL_STATUS_RESET), "{}", profile.name);
        assert!(exists(profile, msr::MSR_LASTBRANCH_0_FROM_IP + 15), "{}", profile.name);
        assert_eq!(exists(profile, msr::MSR_OFFCORE_RSP_1), profile.name != "nehalem", "{}", profile.name);
    }
}

/// Each writable bit alone is accepted, each reserved bit alone faults.
#[test]
fn reserved_bits_fault_by_generation() {
    let counters = 0x7_0000_000F;
    let pebs: [(&Profile, u64); 3] =
        [(&NEHALEM, 0xF_0000_000F), (&SANDY_BRIDGE, 1 << 63 | 0xF_0000_000F), (&HASWELL, 0xF_0000_000F)];
    let offcore: [(&Profile, u64); 3] =
        [(&NEHALEM, 0xFFFF), (&HASWELL, 0x3F_807F_8FFF), (&BROADWELL, 0x3F_FFFF_8FFF)];
    let select: [(&Profile, u64); 2] = [(&IVY_BRIDGE, 0x1FF), (&HASWELL, 0x3FF)];
    let mut cases = Vec::new();
    // Figures 18-21 and 18-35; tables 18-26 and 18-36 to 18-38; tables 17-11 and 17-13.
    cases.extend(pebs.map(|(profile, mask)| (profile, msr::IA32_PEBS_ENABLE, mask)));
    cases.extend(offcore.map(|(profile, mask)| (profile, msr::MSR_OFFCORE_RSP_0, mask)));
    cases.extend(select.map(|(profile, mask)| (profile, msr::MSR_LBR_SELECT, mask)));
    for profile in BEFORE_SKYLAKE {
        // OvfUncore, OvfBuffer and CondChgd, no frozen indicators (figure 18-9).
        cases.push((profile, msr::IA32_PERF_GLOBAL_STATUS_RESET, counters | 7 << 61));
        cases.push((profile, msr::MSR_LASTBRANCH_TOS, 0xF));
        cases.push((profile, msr::IA32_DEBUGCTL, 0x7FC3));
    }
    for (profile, register, mask) in cases {
        for bit in 0..64 {
            let accepted = machine(profile).pmu.wrmsr(register, 1 << bit).is_ok();
            assert_eq!(accepted, mask >> bit & 1 == 1, "{} {register:#x} bit {bit}", profile.name);
        }
    }
}

/// A counter of a part without full-width writes takes 32 bits, sign-extended (SDM Vol. 3B 18.2.5); a record's
/// reload from the DS area is not so limited.
fn set_period(machine: &mut Machine, counter: u32, period: u64) {
    machine.wr(msr::IA32_PMC0 + counter, RANGE - period);
}

/// A machine that samples `event` on `counter`, each record right behind the next: the buffer's index tells
/// their size.
fn sampling(profile: &'static Profile, counter: u32, event: u64, enable: u64) -> Machine {
    let mut machine = machine(profile);
    machine.set_up_pebs(8, 9, 1);
    machine.wr(msr::IA32_PERFEVTSEL0 + counter, event | USR | EN);
    machine.wr(msr::IA32_PEBS_ENABLE, enable);
    set_period(&mut machine, counter, 1);
    machine
}

/// The size of a record is that of its format (SDM Vol. 3B, tables 18-23, 18-44 and 18-55), and nothing behind
/// it is written.
#[test]
fn records_have_the_size_of_their_format() {
    let sizes = [0x90, 0xB0, 0xC0, 0xC8];
    let fixed = |facts: &Perfmon| facts.pebs_counters != 0 && usize::from(facts.pebs_format()) < sizes.len();
    for profile in EARLY.iter().chain(ALL).filter(|profile| fixed(perfmon(profile))) {
        // Taken branches: an event of all these parts; on Nehalem, all branches; on Core 2, instructions.
        let event = match perfmon(profile).pebs_format() {
            0 => 0x00C0,
            1 => 0x04C4,
            _ => 0x20C4,
        };
        let mut machine = sampling(profile, 0, event, 1);
        for offset in (0..0xE0).step_by(8) {
            machine.bus.set_word(BUFFER + offset, !0);
        }
        let once = EventSet::of(&[Event::BranchTaken]);
        let micro = MicroEvents { once, ..MicroEvents::default() };
        machine.steps(Instruction { branch: true, micro, ..nop() }, 2);
        let size = machine.bus.word(DS_AREA + 0x28) - BUFFER;
        assert_eq!(size, sizes[usize::from(perfmon(profile).pebs_format())], "{}", profile.name);
        assert_eq!(machine.bus.word(BUFFER + size), !0, "{}", profile.name);
        assert_ne!(machine.bus.word(BUFFER + size - 8), !0, "{}", profile.name);
    }
}

/// Until format 3, offset 90H holds IA32_PERF_GLOBAL_STATUS as the assist finds it: it names counters that have
/// overflowed without a record, too (SDM Vol. 3B 18.8.1.1, table 18-23).
#[test]
fn early_records_hold_the_global_status() {
    for profile in [&NEHALEM, &HASWELL] {
        let mut machine = sampling(profile, 0, 0x01C4, 1);
        machine.wr(msr::IA32_PERFEVTSEL0 + 2, 0x00C0 | USR | EN);
        set_period(&mut machine, 2, 2);
        let once = EventSet::of(&[Event::BranchConditional]);
        let micro = MicroEvents { once, ..MicroEvents::default() };
        machine.steps(Instruction { branch: true, micro, ..nop() }, 2);
        assert_eq!(machine.bus.word(BUFFER + 0x90), 0b101, "{}", profile.name);
        let left = machine.rd(msr::IA32_PERF_GLOBAL_STATUS);
        // The assist cleared its own counter's bit, and the reload to -1 with the event carried over overflows
        // again.
        assert_eq!(left & 0b100, 0b100, "{}", profile.name);
    }
}

/// SDM Vol. 3B 18.9.4.3: counter 3 and PS_EN; the record has the store's address and status, and no latency.
#[test]
fn precise_stores_are_sandy_bridges() {
    const PRECISE_STORE: u64 = 0x02CD;
    let outcome = |source, stlb_miss| Some(DataOutcome { source, latency_cycles: 77, stlb_miss });
    let stores = [
        (DataSource::L1, false, false, 0x01),
        (DataSource::L1, true, true, 0x31),
        (DataSource::L2, false, false, 0x00),
        (DataSource::Memory, true, false, 0x10),
    ];
    for (profile, counter, enable, recorded) in [
        (&SANDY_BRIDGE, 3, 1 << 63 | 8, true),
        (&IVY_BRIDGE, 3, 1 << 63 | 8, true),
        (&SANDY_BRIDGE, 3, 8, false),
    ] {
        let mut machine = sampling(profile, counter, PRECISE_STORE, enable);
        assert_eq!(machine.pmu.demand(), Demand::Microarchitecture);
        machine.step(store(0));
        for (linear, (source, stlb_miss, locked, _)) in (0x100..).zip(stores) {
            let store = Some(DataAccess { linear, outcome: outcome(source, stlb_miss) });
            machine.step(Instruction { store, locked, ..nop() });
        }
        for (index, (.., status)) in (0..).zip(stores) {
            let words = [0x98, 0xA0, 0xA8].map(|at| machine.bus.word(BUFFER + index * 0xB0 + at));
            let expected = if recorded { [0x100 + index, status, 0] } else { [0; 3] };
            assert_eq!(words, expected, "{}", profile.name);
        }
    }
    // On another counter it counts nothing.
    let mut elsewhere = sampling(&SANDY_BRIDGE, 0, PRECISE_STORE, 1);
    assert_eq!(elsewhere.pmu.demand(), Demand::Nothing);
    assert!(elsewhere.step(store(0)).is_none());
}

/// The load latency event and its counter, and what the data source says (SDM Vol. 3B 18.8.1.2, 18.9.4.2, table
/// 18-24): Nehalem's tells nothing of TLB and lock.
#[test]
fn load_latency_by_generation() {
    for (profile, event, counter, size, details, memory) in [
        (&NEHALEM, 0x100B, 0, 0xB0, 0, 0xC),
        (&WESTMERE, 0x100B, 2, 0xB0, 0x30, 0xC),
        (&SANDY_BRIDGE, 0x01CD, 3, 0xB0, 0x30, 0xC),
        (&HASWELL, 0x01CD, 1, 0xC0, 0x30, 0xC),
        (&BROADWELL, 0x01CD, 3, 0xC0, 0x30, 0xC),
        (&SKYLAKE, 0x01CD, 2, 0xC8, 0x30, 0xA),
    ] {
        let sources =
            [(DataSource::L1, 1), (DataSource::L2, 3), (DataSource::L3, 4), (DataSource::Memory, memory)];
        let mut machine = sampling(profile, counter, event, (1 << 32 | 1) << counter);
        let micro = MicroEvents {
            once: EventSet::of(&[Event::LoadLatency]),
            load_latency_cycles: 50,
            ..MicroEvents::default()
        };
        machine.step(Instruction { micro, ..load(0) });
        for (source, _) in sources {
            let outcome = Some(DataOutcome { source, latency_cycles: 50, stlb_miss: true });
            let load = Some(DataAccess { linear: 0x1234, outcome });
            machine.step(Instruction { load, micro, locked: true, ..nop() });
        }
        for (index, (_, encoding)) in (0..).zip(sources) {
            let words = [0x98, 0xA0, 0xA8].map(|at| machine.bus.word(BUFFER + index * size + at));
            assert_eq!(words, [0x1234, encoding | details, 50], "{}", profile.name);
        }
    }
}

/// "Counts only tagged retired loads" (SDM Vol. 3B 18.9.4.2): about one in eight, the same ones each time, and
/// never in step with a loop.
#[test]
fn loads_can_be_tagged_at_random() {
    let tagged = |profile| {
        let mut machine = Machine::of(profile, Options { loads_per_tag: 8, ..Options::default() });
        machine.wr(msr::IA32_PERFEVTSEL0 + 3, 0x01CD | USR | EN);
        machine.wr(msr::IA32_PERFEVTSEL0, 0x01D1 | USR | EN);
        machine.wr(msr::IA32_PEBS_ENABLE, 1 << 35 | 1 << 3);
        let once = EventSet::of(&[Event::LoadLatency, Event::LoadL1Hit]);
        let micro = MicroEvents { once, load_latency_cycles: 50, ..MicroEvents::default() };
        (0..64_000)
            .filter(|&n| {
                let before = machine.pmc(3);
                machine.step(Instruction { micro, ..load(n) });
                machine.pmc(3) != before
            })
            .collect::<Vec<_>>()
    };
    let loads = tagged(&HASWELL);
    assert!((7_500..8_500).contains(&loads.len()), "{} of 64000", loads.len());
    assert_eq!(loads, tagged(&BROADWELL));
    for phase in 0..8 {
        let n = loads.iter().filter(|&load| load % 8 == phase).count();
        assert!((800..1_200).contains(&n), "{n} in phase {phase}");
    }
    let mut machine = Machine::of(&HASWELL, Options { loads_per_tag: 8, ..Options::default() });
    machine.wr(msr::IA32_PERFEVTSEL0, 0x01D1 | USR | EN);
    let once = EventSet::of(&[Event::LoadLatency, Event::LoadL1Hit]);
    machine.steps(Instruction { micro: MicroEvents { once, ..MicroEvents::default() }, ..load(0) }, 100);
    assert_eq!(machine.pmc(0), 100, "other events count every load");
}

/// SDM Vol. 3B 17.4.7, before version 4: a PMI clears IA32_PERF_GLOBAL_CTRL and IA32_DEBUGCTL.LBR, if asked to.
#[test]
fn legacy_freezing_clears_the_enable_bits() {
    const FREEZE_LBRS_ON_PMI: u64 = 1 << 11;
    const FREEZE_PERFMON_ON_PMI: u64 = 1 << 12;
    for profile in BEFORE_SKYLAKE {
        let mut machine = machine(profile);
        machine.wr(msr::IA32_PERFEVTSEL0, 0xC0 | USR | EN | INT);
        machine.wr(msr::IA32_DEBUGCTL, FREEZE_LBRS_ON_PMI | FREEZE_PERFMON_ON_PMI | 1);
        set_period(&mut machine, 0, 3);
        machine.steps(nop(), 9);
        assert_eq!(machine.bus.pmis, 1);
        assert_eq!(machine.pmc(0), 0, "{}: stopped at the overflow", profile.name);
        assert_eq!(machine.rd(msr::IA32_PERF_GLOBAL_STATUS), 1, "{}", profile.name);
        assert_eq!(machine.rd(msr::IA32_PERF_GLOBAL_CTRL), 0, "{}", profile.name);
        let frozen = FREEZE_LBRS_ON_PMI | FREEZE_PERFMON_ON_PMI;
        assert_eq!(machine.rd(msr::IA32_DEBUGCTL), frozen, "{}", profile.name);
    }
}

/// Formats 3 and 4 have the misprediction in bit 63 of the source (SDM Vol. 3B, tables 17-8 and 17-14); without
/// transactions format 4 has 0 in bits 62:61 of a kernel's address, and takes the address in a write.
#[test]
fn branch_records_have_flags_in_the_source() {
    const FROM: u64 = 0xFFFF_FFFF_8100_0000;
    for (profile, predicted, mispredicted) in [
        (&NEHALEM, 0x7FFF_FFFF_8100_0000, FROM),
        (&IVY_BRIDGE, 0x7FFF_FFFF_8100_0000, FROM),
        (&HASWELL, 0x1FFF_FFFF_8100_0000, 0x9FFF_FFFF_8100_0000),
    ] {
        let mut machine = machine(profile);
        machine.wr(msr::IA32_DEBUGCTL, 1);
        for (n, missed) in [false, true].into_iter().enumerate() {
            machine.pmu.record_branch(FROM, FROM + 8, BranchKind::DirectJump, missed, Privilege::Kernel);
            let tos = machine.rd(msr::MSR_LASTBRANCH_TOS) as u32;
            assert_eq!(tos, n as u32 + 1);
            let expected = if missed { mispredicted } else { predicted };
            assert_eq!(machine.rd(msr::MSR_LASTBRANCH_0_FROM_IP + tos), expected, "{}", profile.name);
            assert_eq!(machine.rd(msr::MSR_LASTBRANCH_0_TO_IP + tos), FROM + 8, "{}", profile.name);
        }
        for (value, taken) in [(FROM, true), (FROM & !(1 << 63), true), (FROM & !(1 << 62), false)] {
            let written = machine.pmu.wrmsr(msr::MSR_LASTBRANCH_0_FROM_IP, value).is_ok();
            assert_eq!(written, taken, "{} {value:#x}", profile.name);
        }
    }
}

/// SDM Vol. 3B 18.8.1.3 and 18.9.5.1: a request type and a response type must be chosen; from Sandy Bridge on a
/// supplier needs a snoop result, and "any" neither.
#[test]
fn offcore_responses_are_filtered_by_request_and_supplier() {
    let events = [Event::L3ReadHit, Event::LlcReadMiss, Event::L3RfoHit, Event::LlcWriteMiss];
    let counts = |profile, select: u64| {
        let mut machine = machine(profile);
        machine.wr(msr::MSR_OFFCORE_RSP_0, select);
        machine.wr(msr::IA32_PERFEVTSEL0, 0x01B7 | USR | EN);
        events.map(|event| {
            let before = machine.pmc(0);
            let micro = MicroEvents { once: EventSet::of(&[event]), ..MicroEvents::default() };
            machine.step(Instruction { micro, ..nop() });
            machine.pmc(0) - before
        })
    };
    let any_snoop = 0x3F_8000_0000;
    for (profile, select, expected) in [
        (&NEHALEM, 0x0001, [0, 0, 0, 0]),
        (&NEHALEM, 0x0101, [1, 0, 0, 0]),
        (&NEHALEM, 0x4103, [1, 1, 1, 1]),
        (&NEHALEM, 0x4002, [0, 0, 0, 1]),
        (&HASWELL, 1 << 16 | 1, [1, 1, 0, 0]),
        (&HASWELL, 1 << 16, [0, 0, 0, 0]),
        (&HASWELL, 1 << 22 | 3, [0, 0, 0, 0]),
        (&HASWELL, any_snoop | 1 << 22 | 3, [0, 1, 0, 1]),
        (&HASWELL, any_snoop | 1 << 19 | 1, [1, 0, 0, 0]),
        (&SKYLAKE, any_snoop | 1 << 26 | 1, [0, 1, 0, 0]),
        // Only "hit in another core, modified": never.
        (&SKYLAKE, 1 << 36 | 1 << 26 | 1 << 19 | 1, [0, 0, 0, 0]),
    ] {
        assert_eq!(counts(profile, select), expected, "{} {select:#x}", profile.name);
    }
}

/// Nehalem's L1 data cache events are those of two counters, Sandy Bridge's pending misses that of one (Intel's
/// event lists).
#[test]
fn events_are_bound_to_their_counters() {
    for (profile, event, counters) in
        [(&NEHALEM, 0x0151, 0b0011), (&SANDY_BRIDGE, 0x0148, 0b0100), (&HASWELL, 0x01C0, 0b0010)]
    {
        for counter in 0..4 {
            let mut machine = machine(profile);
            machine.wr(msr::IA32_PERFEVTSEL0 + counter, event | USR | EN);
            let counts = machine.pmu.demand() != Demand::Nothing;
            assert_eq!(counts, counters >> counter & 1 == 1, "{} {event:#x}", profile.name);
        }
    }
}
