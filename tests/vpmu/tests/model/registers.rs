//! Registers: reserved bits, read-only registers, aliases, reset values, CPUID.

use crate::machine::*;
use proptest::prelude::*;
use vpmu::pmu::msr;
use vpmu::profile::SKYLAKE;
use vpmu::{CpuidRegs, GeneralProtection, MicroEvents, Options, Pmu};

fn pmu() -> Pmu {
    Pmu::new(&SKYLAKE, Options::default())
}

/// Every MSR in and around the PMU's ranges.
fn msrs() -> Vec<u32> {
    let ranges =
        [0xC0..0xCA, 0x185..0x18F, 0x1A5..0x1A9, 0x1C7..0x1CB, 0x1D8..0x1DB, 0x308..0x30E, 0x344..0x347];
    let more = [0x38C..0x394, 0x3F0..0x3F9, 0x4C0..0x4CA, 0x5FF..0x602, 0x67F..0x6E1, 0xDBF..0xDE1];
    ranges.into_iter().chain(more).flatten().collect()
}

/// What reads back after an accepted write (SDM Vol. 3B 18.2.4.2, 18.2.5; Vol. 4, table 2-2).
fn expected_after_write(msr: u32, value: u64) -> u64 {
    match msr {
        // Legacy counter writes take 32 bits and sign-extend them to the counter's width.
        0xC1..=0xC4 => value as u32 as i32 as i64 as u64 & (RANGE - 1),
        // Command registers read as 0.
        msr::IA32_PERF_GLOBAL_STATUS_RESET | msr::IA32_PERF_GLOBAL_STATUS_SET => 0,
        _ => value,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, ..ProptestConfig::default() })]

    #[test]
    fn a_write_faults_and_changes_nothing_or_reads_back(
        msr in proptest::sample::select(msrs()),
        value in prop_oneof![
            any::<u64>(), any::<u32>().prop_map(u64::from), (0..64u32).prop_map(|bit| 1 << bit),
        ],
        preset in any::<u32>(),
    ) {
        let mut pmu = pmu();
        pmu.wrmsr(msr::IA32_PERF_GLOBAL_STATUS_SET, 0b1010 | 1 << 62).unwrap();
        pmu.wrmsr(msr::IA32_PERFEVTSEL0, preset.into()).unwrap();
        let snapshot = |pmu: &mut Pmu| -> Vec<_> {
            msrs().into_iter().map(|msr| (msr, pmu.rdmsr(msr))).collect()
        };
        let before = snapshot(&mut pmu);
        let status = pmu.rdmsr(msr::IA32_PERF_GLOBAL_STATUS).unwrap();
        match pmu.wrmsr(msr, value) {
            Err(GeneralProtection) => prop_assert_eq!(snapshot(&mut pmu), before),
            Ok(()) => {
                prop_assert!(pmu.owns_msr(msr));
                let read = pmu.rdmsr(msr).unwrap();
                prop_assert_eq!(read, expected_after_write(msr, value));
                let status_now = pmu.rdmsr(msr::IA32_PERF_GLOBAL_STATUS).unwrap();
                match msr {
                    msr::IA32_PERF_GLOBAL_STATUS_RESET => prop_assert_eq!(status_now, status & !value),
                    msr::IA32_PERF_GLOBAL_STATUS_SET => prop_assert_eq!(status_now, status | value),
                    _ => prop_assert_eq!(status_now, status),
                }
            }
        }
    }
}

/// Each writable bit alone is accepted, each reserved bit alone faults.
#[test]
fn reserved_bits_fault() {
    let counters = 0x7_0000_000F;
    let masks = [
        // SDM Vol. 3B, figure 18-6: bits 31:0.
        (msr::IA32_PERFEVTSEL0, 0xFFFF_FFFF),
        (msr::IA32_PERFEVTSEL0 + 3, 0xFFFF_FFFF),
        // Figure 18-7: three 4-bit fields.
        (msr::IA32_FIXED_CTR_CTRL, 0xFFF),
        (msr::IA32_PERF_GLOBAL_CTRL, counters),
        // Figures 18-11 and 18-12; bits 55 and 60 need Intel PT and SGX.
        (msr::IA32_PERF_GLOBAL_STATUS_RESET, counters | 0xEC00_0000_0000_0000),
        (msr::IA32_PERF_GLOBAL_STATUS_SET, counters | 0x6C00_0000_0000_0000),
        // Figure 18-21: PEBS_EN and LL_EN.
        (msr::IA32_PEBS_ENABLE, 0xF_0000_000F),
        // Figure 18-23.
        (msr::MSR_PEBS_LD_LAT_THRESHOLD, 0xFFFF),
        (msr::IA32_DEBUGCTL, 0x7FC3),
        // Full-width writes: bits beyond the counter's width are reserved (18.2.5).
        (msr::IA32_A_PMC0, RANGE - 1),
        (msr::IA32_FIXED_CTR0 + 2, RANGE - 1),
        (msr::MSR_LBR_SELECT, 0x3FF),
        (msr::MSR_LASTBRANCH_TOS, 0x1F),
        (msr::MSR_OFFCORE_RSP_1, 0x3F_FFFF_8FFF),
        (msr::MSR_PEBS_FRONTEND, 0x7F_FF17),
    ];
    for (msr, mask) in masks {
        for bit in 0..64 {
            let accepted = pmu().wrmsr(msr, 1 << bit).is_ok();
            assert_eq!(accepted, mask >> bit & 1 == 1, "MSR {msr:#x} bit {bit}");
        }
    }
}

/// SDM Vol. 4, table 2-2: read-only registers; counters that this part does not have.
#[test]
fn read_only_and_absent_registers_fault() {
    let mut pmu = pmu();
    for msr in [msr::IA32_PERF_GLOBAL_STATUS, msr::IA32_PERF_GLOBAL_INUSE, msr::IA32_PERF_CAPABILITIES] {
        assert!(pmu.rdmsr(msr).is_ok());
        assert_eq!(pmu.wrmsr(msr, 0), Err(GeneralProtection), "{msr:#x}");
    }
    for msr in [0xC5, 0x18A, 0x30C, 0x4C5, 0x3F2] {
        assert!(pmu.owns_msr(msr));
        assert_eq!(pmu.rdmsr(msr), Err(GeneralProtection), "{msr:#x}");
        assert_eq!(pmu.wrmsr(msr, 0), Err(GeneralProtection), "{msr:#x}");
    }
    for msr in [0x10, 0x1A0, 0xC000_0080] {
        assert!(!pmu.owns_msr(msr), "{msr:#x}");
    }
}

/// SDM Vol. 3B 18.2.5: the legacy alias sign-extends EAX and ignores EDX.
#[test]
fn legacy_and_full_width_writes_alias_one_counter() {
    let mut pmu = pmu();
    pmu.wrmsr(msr::IA32_PMC0, 0x1234_5678_8000_0001).unwrap();
    assert_eq!(pmu.rdmsr(msr::IA32_A_PMC0), Ok(0xFFFF_8000_0001));
    pmu.wrmsr(msr::IA32_A_PMC0, 0x1234_5678_9ABC).unwrap();
    assert_eq!(pmu.rdmsr(msr::IA32_PMC0), Ok(0x1234_5678_9ABC));
    assert_eq!(pmu.rdpmc(0), Ok(0x1234_5678_9ABC));
}

/// SDM Vol. 2B, RDPMC.
#[test]
fn rdpmc_reads_general_and_fixed_counters_only() {
    let mut pmu = pmu();
    pmu.wrmsr(msr::IA32_A_PMC0 + 3, 33).unwrap();
    pmu.wrmsr(msr::IA32_FIXED_CTR0 + 2, 22).unwrap();
    assert_eq!(pmu.rdpmc(3), Ok(33));
    assert_eq!(pmu.rdpmc(1 << 30 | 2), Ok(22));
    for ecx in [4, 1 << 30 | 3, 1 << 31, 1 << 29, u32::MAX] {
        assert_eq!(pmu.rdpmc(ecx), Err(GeneralProtection), "{ecx:#x}");
    }
}

/// SDM Vol. 3A, table 9-1: after reset only IA32_PERF_GLOBAL_CTRL is not 0; SDM Vol. 3B 18.18:
/// PERF_CAPABILITIES.
#[test]
fn reset_values() {
    let mut pmu = pmu();
    for msr in msrs() {
        let expected = match msr {
            msr::IA32_PERF_GLOBAL_CTRL => 0xF,
            // LBR format 5, PEBS trap, architectural registers, format 3, freeze while SMM, full-width
            // writes.
            msr::IA32_PERF_CAPABILITIES => 5 | 1 << 6 | 1 << 7 | 3 << 8 | 1 << 12 | 1 << 13,
            _ => 0,
        };
        if let Ok(value) = pmu.rdmsr(msr) {
            assert_eq!(value, expected, "{msr:#x}");
        }
    }
}

/// IA32_DS_AREA and the branch records hold canonical addresses (SDM Vol. 4, table 2-2, 600H).
#[test]
fn addresses_must_be_canonical() {
    for msr in [msr::IA32_DS_AREA, msr::MSR_LASTBRANCH_0_FROM_IP, msr::MSR_LASTBRANCH_0_TO_IP + 31] {
        let mut pmu = pmu();
        for good in [0, 0x7FFF_FFFF_FFFF, 0xFFFF_8000_0000_0000, u64::MAX] {
            assert_eq!(pmu.wrmsr(msr, good), Ok(()), "{good:#x}");
            assert_eq!(pmu.rdmsr(msr), Ok(good));
        }
        for bad in [0x8000_0000_0000, 0xFFFF_7FFF_FFFF_FFFF, 1 << 63] {
            assert_eq!(pmu.wrmsr(msr, bad), Err(GeneralProtection), "{bad:#x}");
        }
    }
}

/// SDM Vol. 3B 18.2.4.3.
#[test]
fn in_use_reflects_the_control_registers() {
    let mut machine = Machine::new(Options::default());
    let in_use = |machine: &mut Machine| machine.rd(msr::IA32_PERF_GLOBAL_INUSE);
    assert_eq!(in_use(&mut machine), 0);
    machine.wr(msr::IA32_PERFEVTSEL0 + 2, 0xC0);
    assert_eq!(in_use(&mut machine), 0b100);
    machine.wr(msr::IA32_FIXED_CTR_CTRL, 0x030);
    assert_eq!(in_use(&mut machine), 0b100 | 1 << 33);
    machine.wr(msr::IA32_FIXED_CTR_CTRL, 0x080);
    assert_eq!(in_use(&mut machine), 0b100 | 1 << 63);
    machine.wr(msr::IA32_FIXED_CTR_CTRL, 0);
    machine.wr(msr::IA32_PERFEVTSEL0 + 2, INT);
    assert_eq!(in_use(&mut machine), 1 << 63);
    machine.wr(msr::IA32_PERFEVTSEL0 + 2, 0);
    machine.wr(msr::IA32_PEBS_ENABLE, 1);
    assert_eq!(in_use(&mut machine), 1 << 63);
}

/// SDM Vol. 2A, CPUID: leaf 0AH, and the bits of leaf 1 that belong to a PMU with a debug store.
#[test]
fn cpuid_is_consistent_with_the_registers() {
    let pmu = pmu();
    let machine = CpuidRegs { eax: 0x0D, ebx: 1, ecx: 1 << 31, edx: 1 };
    let ask = |leaf| {
        let mut regs = machine;
        pmu.cpuid(leaf, 0, &mut regs);
        regs
    };
    assert_eq!(ask(0), machine);
    assert_eq!(ask(0x0A), CpuidRegs { eax: 0x0730_0404, ebx: 0, ecx: 0, edx: 0x603 });
    let one = ask(1);
    assert_eq!((one.eax, one.ebx, one.edx), (0x506E3, 1, 1 | 1 << 21));
    assert_eq!(one.ecx, 1 << 31 | 1 << 2 | 1 << 15);
    assert_eq!(ask(7), machine);
    assert_eq!(pmu.misc_enable(1 << 12 | 1), 1 | 1 << 7 | 1 << 11);
}

/// SDM Vol. 4, table 2-2: IA32_RTIT_CTL is there where CPUID.07H:EBX[25] says so.
#[test]
fn processor_trace_is_there_on_request_only() {
    let ask = |machine: &Machine, leaf| {
        let mut regs = CpuidRegs { eax: 0x0D, ebx: 1, ecx: 1, edx: 1 };
        machine.pmu.cpuid(leaf, 0, &mut regs);
        regs
    };
    let mut without = Machine::new(Options::default());
    assert_eq!((ask(&without, 0).eax, ask(&without, 7).ebx), (0x0D, 1));
    assert!(!without.pmu.owns_msr(msr::IA32_RTIT_CTL) && without.pmu.rdmsr(msr::IA32_RTIT_CTL).is_err());
    let mut machine = Machine::new(Options { processor_trace: true, ..Options::default() });
    assert_eq!((ask(&machine, 0).eax, ask(&machine, 7).ebx), (0x14, 1 | 1 << 25));
    assert_eq!(ask(&machine, 0x14), CpuidRegs::default(), "no capability");
    machine.wr(msr::IA32_RTIT_CTL, 1);
    assert_eq!(machine.rd(msr::IA32_RTIT_CTL), 1);
    assert!(machine.pmu.wrmsr(msr::IA32_RTIT_CTL, 1 << 1).is_err(), "cycle-accurate mode is a capability");
}

/// A snapshot carries the whole state; one of an unknown profile is refused.
#[test]
fn a_snapshot_restores_the_pmu() {
    let mut machine = Machine::new(Options { pebs_disable_disarms: false, ..Options::default() });
    machine.set_up_pebs(8, 8, 5);
    machine.wr(msr::IA32_PERFEVTSEL0 + 1, 0x1C0 | USR | EN);
    machine.wr(msr::IA32_PEBS_ENABLE, 0b10);
    machine.set_period(1, 5);
    // Stop while armed: the snapshot must keep that, too.
    machine.steps(nop(), 5);
    // And in the middle of a cycle that counts if it has two instructions.
    machine.wr(msr::IA32_PERFEVTSEL0 + 3, 0x00C0 | 2 << 24 | OS | EN);
    machine.step(Instruction { kernel: true, ..nop() });
    let text = serde_json::to_string(&machine.pmu.snapshot()).unwrap();
    let mut restored = Pmu::restore(serde_json::from_str(&text).unwrap()).unwrap();
    for msr in msrs() {
        assert_eq!(restored.rdmsr(msr), machine.pmu.rdmsr(msr), "{msr:#x}");
    }
    assert_eq!(restored.demand(), machine.pmu.demand());
    machine.pmu = restored;
    machine.step(nop());
    assert_eq!(machine.records(), 1);
    machine.step(Instruction { kernel: true, ..nop() });
    let micro = MicroEvents { cycles: 1, ..MicroEvents::default() };
    machine.step(Instruction { kernel: true, micro, ..nop() });
    assert_eq!(machine.pmc(3), 1);
    let unknown = text.replace("skylake", "no such part");
    assert!(
        Pmu::restore(serde_json::from_str(&unknown).unwrap())
            .unwrap_err()
            .to_string()
            .contains("no such part")
    );
}
