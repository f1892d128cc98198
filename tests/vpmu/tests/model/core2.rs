//! PerfMon versions 1 and 2: which registers they have, and PEBS on one counter.

use crate::machine::*;
use vpmu::pmu::msr;
use vpmu::profile::{CORE2, PERFMON1, Profile};
use vpmu::{CpuidRegs, Event, EventSet, GeneralProtection, MicroEvents, Options};

/// A counter's range on these parts.
const RANGE_40: u64 = 1 << 40;

fn machine(profile: &'static Profile) -> Machine {
    Machine::of(profile, Options::default())
}

fn missed(event: Event) -> Instruction {
    Instruction { micro: MicroEvents { once: EventSet::of(&[event]), ..MicroEvents::default() }, ..nop() }
}

/// CPUID leaf 0AH: version, two counters of 40 bits; fixed-function counters are enumerated from version 2 on (SDM Vol. 3B
/// 18.2.1.1, 18.2.2). Version 1 has neither a debug store nor IA32_PERF_CAPABILITIES.
#[test]
fn cpuid_enumerates_what_there_is() {
    let machine_bits = CpuidRegs { ecx: 1 << 15 | 1 << 2, edx: 1 << 21, ..CpuidRegs::default() };
    for (profile, eax, edx, has) in [(&CORE2, 0x0728_0202, 0x503, true), (&PERFMON1, 0x0728_0201, 0, false)] {
        let mut regs = CpuidRegs::default();
        machine(profile).pmu.cpuid(0x0A, 0, &mut regs);
        assert_eq!(regs, CpuidRegs { eax, ebx: 0, ecx: 0, edx }, "{}", profile.name);
        regs = machine_bits;
        machine(profile).pmu.cpuid(1, 0, &mut regs);
        assert_eq!(regs.ecx >> 15 & 1 == 1, has, "{}: PDCM", profile.name);
        assert_eq!(regs.ecx >> 2 & 1 == 1, has, "{}: DTES64", profile.name);
        assert_eq!(regs.edx >> 21 & 1 == 1, has, "{}: DS", profile.name);
        let unavailable = machine(profile).pmu.misc_enable(0) >> 12 & 1 == 1;
        assert_eq!(unavailable, !has, "{}: PEBS_UNAVAILABLE", profile.name);
    }
}

/// Version 1 has counters and event selects and nothing else (SDM Vol. 3B 18.2.1); what came with versions 3 and 4 faults on
/// both.
#[test]
fn registers_of_later_versions_fault() {
    let version_2 = [
        msr::IA32_FIXED_CTR0,
        msr::IA32_FIXED_CTR_CTRL,
        msr::IA32_PERF_GLOBAL_STATUS,
        msr::IA32_PERF_GLOBAL_CTRL,
        msr::IA32_PERF_CAPABILITIES,
        msr::IA32_PEBS_ENABLE,
        msr::IA32_DS_AREA,
    ];
    for register in version_2 {
        assert!(machine(&CORE2).pmu.rdmsr(register).is_ok(), "{register:#x}");
        assert_eq!(machine(&PERFMON1).pmu.rdmsr(register), Err(GeneralProtection), "{register:#x}");
        assert!(machine(&PERFMON1).pmu.owns_msr(register), "{register:#x}");
    }
    let later = [
        msr::IA32_PMC0 + 2,
        msr::IA32_PERFEVTSEL0 + 2,
        msr::IA32_A_PMC0,
        msr::MSR_PEBS_LD_LAT_THRESHOLD,
        msr::MSR_OFFCORE_RSP_0,
        msr::IA32_PERF_GLOBAL_STATUS_SET,
        msr::MSR_LASTBRANCH_TOS,
    ];
    for register in later {
        for profile in [&CORE2, &PERFMON1] {
            let read = machine(profile).pmu.rdmsr(register);
            assert_eq!(read, Err(GeneralProtection), "{}: {register:#x}", profile.name);
        }
    }
}

/// AnyThread came with version 3 (SDM Vol. 3B 18.2.3): bit 21 of event selects and bit 2 of a fixed-function counter's field are
/// reserved; so is OvfUncore.
#[test]
fn reserved_bits_fault() {
    let cases = [
        (&CORE2, msr::IA32_PERFEVTSEL0, 0xFFDF_FFFF),
        (&PERFMON1, msr::IA32_PERFEVTSEL0, 0xFFDF_FFFF),
        (&CORE2, msr::IA32_FIXED_CTR_CTRL, 0xBBB),
        (&CORE2, msr::IA32_PERF_GLOBAL_CTRL, 0x7_0000_0003),
        (&CORE2, msr::IA32_PERF_GLOBAL_STATUS_RESET, 0x7_0000_0003 | 3 << 62),
        (&CORE2, msr::IA32_PEBS_ENABLE, 1),
    ];
    for (profile, register, mask) in cases {
        for bit in 0..64 {
            let accepted = machine(profile).pmu.wrmsr(register, 1 << bit).is_ok();
            assert_eq!(accepted, mask >> bit & 1 == 1_u64, "{} {register:#x} bit {bit}", profile.name);
        }
    }
}

/// Without IA32_PERF_GLOBAL_CTRL, EN alone enables, INT interrupts, and the count goes on from 0 of 40 bits (18.2.1.1).
#[test]
fn version_1_counts_and_interrupts_by_event_selects_alone() {
    let mut machine = machine(&PERFMON1);
    machine.wr(msr::IA32_PMC0, RANGE_40 - 5);
    machine.wr(msr::IA32_PERFEVTSEL0, 0xC0 | USR | INT | EN);
    machine.wr(msr::IA32_PERFEVTSEL0 + 1, 0xC4 | USR | EN);
    machine.steps(nop(), 4);
    assert_eq!((machine.pmc(0), machine.bus.pmis), (RANGE_40 - 1, 0));
    machine.steps(Instruction { branch: true, ..nop() }, 3);
    assert_eq!((machine.pmc(0), machine.pmc(1), machine.bus.pmis), (2, 3, 1));
}

/// What is tagged "is limited to IA32_PMC0" (18.4.3), and so is PEBS (18.4.4).
#[test]
fn only_counter_0_counts_at_retirement() {
    let mut machine = machine(&CORE2);
    for counter in [0, 1] {
        machine.wr(msr::IA32_PERFEVTSEL0 + counter, 0x01CB | USR | EN);
    }
    machine.steps(missed(Event::LoadL1Miss), 3);
    assert_eq!((machine.pmc(0), machine.pmc(1)), (3, 0));
}

/// A record of format 0 is 144 bytes: RFLAGS, RIP of the next instruction, general registers (18.4.4, "architectural state of
/// the instruction executed after the instruction that caused the event"). Records are a period apart, the counter is
/// reloaded with 40 bits, and the threshold interrupts with OvfBuffer.
#[test]
fn records_are_of_format_0() {
    let mut machine = machine(&CORE2);
    machine.set_up_pebs(8, 8, 10);
    let threshold = BUFFER + 2 * 0x90;
    machine.bus.set_word(DS_AREA + 0x38, threshold);
    machine.wr(msr::IA32_PERFEVTSEL0, 0x04CB | USR | EN);
    machine.wr(msr::IA32_PEBS_ENABLE, 1);
    machine.wr(msr::IA32_PMC0, RANGE_40 - 10);
    machine.bus.registers.general = std::array::from_fn(|register| 0x100 + register as u64);
    machine.steps(nop(), 3);
    machine.steps(missed(Event::LoadL3Miss), 10);
    assert_eq!(machine.bus.word(DS_AREA + 0x28), BUFFER, "armed, not written");
    let first = machine.pc;
    machine.step(missed(Event::LoadL3Miss));
    assert_eq!(machine.bus.word(DS_AREA + 0x28), BUFFER + 0x90);
    assert_eq!(machine.bus.word(BUFFER + 8), first + 4, "the next instruction");
    // RAX, RBX, RCX, RDX, ..., R15: their places, not their encodings.
    assert_eq!(
        [0x10, 0x18, 0x20, 0x28, 0x88].map(|at| machine.bus.word(BUFFER + at)),
        [0x100, 0x103, 0x101, 0x102, 0x10F]
    );
    assert_eq!(machine.pmc(0), RANGE_40 - 9);
    assert_eq!(machine.bus.pmis, 0);
    machine.steps(missed(Event::LoadL3Miss), 10);
    assert_eq!(machine.bus.word(DS_AREA + 0x28), threshold);
    assert_eq!(machine.bus.pmis, 1);
    assert_eq!(machine.rd(msr::IA32_PERF_GLOBAL_STATUS), 1 << 62);
}

/// With more than a page the part hangs (Linux, arch/x86/events/intel/ds.c, intel_ds_pebs_init); here no record is written.
#[test]
fn a_buffer_larger_than_a_page_gets_no_record() {
    for (bytes, written) in [(4096, 1), (4097, 0), (1 << 16, 0)] {
        let mut machine = machine(&CORE2);
        machine.set_up_pebs(1, 1, 10);
        machine.bus.map(BUFFER, bytes);
        machine.bus.set_word(DS_AREA + 0x30, BUFFER + bytes);
        machine.wr(msr::IA32_PERFEVTSEL0, 0xC0 | USR | EN);
        machine.wr(msr::IA32_PEBS_ENABLE, 1);
        machine.wr(msr::IA32_PMC0, RANGE_40 - 10);
        machine.steps(nop(), 11);
        assert_eq!(machine.bus.word(DS_AREA + 0x28), BUFFER + written * 0x90, "{bytes} bytes");
    }
}
