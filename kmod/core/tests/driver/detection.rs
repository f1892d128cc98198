//! From CPUID to a PMU, on processors that exist and on what hypervisors make of them.

use std::collections::HashMap;

use hpm_abi::{EventMode, EventSpec, Info, InfoFlags, Reason, Scope, SessionConfig};
use hpm_core::allocate::Counter;
use hpm_core::lbr::Lbr;
use hpm_core::pmu::netburst::Share;
use hpm_core::pmu::Interface;
use hpm_core::{detect, Cpuid, CpuidRegisters, Machine, Port, Program, Refusal};

/// Answers CPUID from a list, and RDMSR only for the registers named.
#[derive(Clone, Default)]
struct Processor {
    leaves: HashMap<u32, CpuidRegisters>,
    registers: HashMap<u32, u64>,
    microcode: u32,
}

impl Cpuid for Processor {
    fn cpuid(&mut self, leaf: u32, _subleaf: u32) -> CpuidRegisters {
        self.leaves[&leaf]
    }

    fn microcode(&mut self) -> u32 {
        self.microcode
    }
}

impl Port for Processor {
    fn rdmsr(&mut self, register: u32) -> u64 {
        *self.registers.get(&register).unwrap_or_else(|| panic!("RDMSR {register:#x} faults here"))
    }
    fn wrmsr(&mut self, register: u32, _value: u64) {
        panic!("detection writes {register:#x}");
    }
    fn rdpmc(&mut self, _index: u32) -> u64 {
        unreachable!("not of detection")
    }
    fn rdtsc(&mut self) -> u64 {
        unreachable!("not of detection")
    }
    fn unmask_pmi(&mut self) {
        unreachable!("not of detection")
    }
    fn pmi_is_masked(&mut self) -> bool {
        unreachable!("not of detection")
    }
    fn sibling_is_held(&mut self) -> bool {
        unreachable!("not of detection")
    }
    fn expect_pmi(&mut self, _until_tsc: u64) {
        unreachable!("not of detection")
    }
    fn expected_pmi(&mut self) -> u64 {
        unreachable!("not of detection")
    }
    fn registers(&mut self, _user_only: bool) -> Option<hpm_core::interrupt::Registers> {
        unreachable!("not of detection")
    }
    fn ds_area(&mut self) -> u64 {
        unreachable!("not of detection")
    }
    fn ds_read(&mut self, _offset: u32) -> u64 {
        unreachable!("not of detection")
    }
    fn ds_write(&mut self, _offset: u32, _value: u64) {
        unreachable!("not of detection")
    }
    fn pebs_window(&mut self) -> u64 {
        unreachable!("not of detection")
    }
    fn pebs_read(&mut self, _offset: u32) -> u64 {
        unreachable!("not of detection")
    }
}

fn leaf(eax: u32, ebx: u32, ecx: u32, edx: u32) -> CpuidRegisters {
    CpuidRegisters { eax, ebx, ecx, edx }
}

const INTEL: CpuidRegisters =
    CpuidRegisters { eax: 0x16, ebx: 0x756E_6547, ecx: 0x6C65_746E, edx: 0x4965_6E69 };
const AMD: CpuidRegisters =
    CpuidRegisters { eax: 0x10, ebx: 0x6874_7541, ecx: 0x444D_4163, edx: 0x6974_6E65 };
/// DTES64 (2), PDCM (15).
const ECX: u32 = 1 << 2 | 1 << 15;
/// DS (21).
const EDX: u32 = 1 << 21;

/// A Core i7-6700: version 4, four counters of 48 bits, three fixed ones.
fn skylake() -> Processor {
    Processor {
        leaves: HashMap::from([
            (0, INTEL),
            (1, leaf(0x0005_06E3, 0, ECX, EDX)),
            // RTM, HLE and AVX2 among others; hybrid and architectural LBR are not.
            (7, leaf(0, 0x029C_6FBF, 0, 0)),
            (0xA, leaf(0x0730_0404, 0, 0, 0x603)),
            (0xB, leaf(1, 2, 0x100, 0)),
        ]),
        registers: HashMap::from([(0x345, 0x33C5), (0x1A0, 0x850089)]),
        microcode: 0xF0,
    }
}

fn machine(processor: &Processor) -> Machine {
    detect(&mut processor.clone(), &mut processor.clone())
}

#[test]
fn skylake_is_known_with_its_counters() {
    let machine = machine(&skylake());
    assert_eq!((machine.family, machine.model, machine.stepping), (6, 0x5E, 3));
    let pmu = machine.pmu.expect("known");
    assert_eq!((pmu.generation.name, pmu.full_width_writes), ("skylake", true));
    assert_eq!((pmu.perfmon.general, pmu.perfmon.general_width), (0xF, 48));
    assert_eq!((pmu.perfmon.fixed, pmu.perfmon.fixed_width), (7, 48));
    let pebs = pmu.pebs.expect("PEBS");
    assert_eq!((pebs.format, pebs.groups, pebs.counters.general_bits()), (3, 0, 0xF));
    let mut info = Info::default();
    machine.describe(&mut info);
    assert_eq!(info.flags, InfoFlags::USABLE | InfoFlags::BRANCH_CALLS);
    assert_eq!(info.branch_records, 32);
    assert!(info.pmu_name.starts_with(b"skylake\0") && info.vendor.starts_with(b"GenuineIntel\0"));
    assert_eq!((info.pebs_format, info.pebs_counters, info.perfmon_version), (3, 0xF, 4));
}

/// On Nehalem and Westmere the off-core response registers are the core's, of which hyperthreads would overwrite each other's values.
#[test]
fn hyperthreads_that_share_offcore_registers_are_refused_their_events() {
    let refusal = |signature: u32, threads: u32| {
        let mut processor = skylake();
        processor.leaves.insert(1, leaf(signature, 0, ECX, EDX));
        processor.leaves.insert(0xB, leaf(1, threads, 0x100, 0));
        let mut config = SessionConfig {
            scope: Scope::Process as u32,
            pid: 1,
            event_count: 1,
            quanta: 1024,
            ..SessionConfig::default()
        };
        let [privilege, mode] = [EventSpec::USER, EventMode::Count as u8];
        config.events[0] = EventSpec { encoding: 0x01B7, extra: 1, mode, privilege, ..EventSpec::default() };
        Program::new(&machine(&processor).pmu.expect("known"), &config).err().map(|refusal| refusal.reason)
    };
    const NEHALEM: u32 = 0x0001_06A5;
    const SKYLAKE: u32 = 0x0005_06E3;
    assert_eq!(refusal(NEHALEM, 2), Some(Reason::SharedEvent));
    assert_eq!([refusal(NEHALEM, 1), refusal(SKYLAKE, 2)], [None; 2]);
}

#[test]
fn the_counter_that_microcode_uses_for_transactions_is_left_out() {
    const TSX_FORCE_ABORT: u32 = 1 << 13;
    const RTM_ALWAYS_ABORT: u32 = 1 << 11;
    let counters = |edx| {
        let mut processor = skylake();
        processor.leaves.insert(7, leaf(0, 0x029C_6FBF, 0, edx));
        let pmu = machine(&processor).pmu.expect("known");
        (pmu.perfmon.general, pmu.pebs.expect("PEBS").counters.general_bits())
    };
    assert_eq!(counters(TSX_FORCE_ABORT), (0x7, 0x7));
    assert_eq!([counters(0), counters(TSX_FORCE_ABORT | RTM_ALWAYS_ABORT)], [(0xF, 0xF); 2]);
}

#[test]
fn a_guest_without_a_pmu_says_so_and_no_register_is_read() {
    let mut processor = Processor { registers: HashMap::new(), ..skylake() };
    processor.leaves.insert(0xA, CpuidRegisters::default());
    processor.leaves.insert(1, leaf(0x0005_06E3, 0, 1 << 31, 0));
    let machine = machine(&processor);
    assert!(machine.hypervisor);
    assert_eq!(machine.pmu.expect_err("no PMU").reason, Reason::NoPmu);
    let mut info = Info::default();
    machine.describe(&mut info);
    assert_eq!((info.flags, info.pebs_format), (InfoFlags::HYPERVISOR, u32::MAX));
}

/// Linux's `intel_pmu_init`: versions 2 to 4 have three fixed counters, whatever leaf 0AH says, but in a virtual machine.
#[test]
fn fixed_counters_that_leaf_0ah_hides_are_there_without_a_hypervisor() {
    let fixed = |version: u32, edx, hypervisor: u32| {
        let mut processor = skylake();
        processor.leaves.insert(1, leaf(0x0005_06E3, 0, ECX | hypervisor << 31, EDX));
        processor.leaves.insert(0xA, leaf(0x0730_0400 | version, 0, 0, edx));
        let perfmon = machine(&processor).pmu.expect("known").perfmon;
        (perfmon.fixed, perfmon.fixed_width)
    };
    for version in 2..=4 {
        assert_eq!([fixed(version, 0, 0), fixed(version, 0x602, 0)], [(7, 48); 2], "version {version}");
        assert_eq!([fixed(version, 0, 1), fixed(version, 0x602, 1)], [(0, 0), (3, 48)], "version {version}");
        assert_eq!(fixed(version, 0x604, 0), (0xF, 48), "more are more");
    }
    assert_eq!(fixed(5, 0x602, 0), (3, 48), "which has a map of them");
}

#[test]
fn branch_records_are_those_of_the_generation_or_none() {
    let lbr = |capabilities: u64| {
        let mut processor = skylake();
        processor.registers.insert(0x345, capabilities);
        machine(&processor).pmu.expect("known").lbr
    };
    let found = lbr(0x33C5).expect("format 5");
    assert_eq!((found.depth, found.call_stack), (32, true));
    // A hypervisor that gives the guest none says format 0.
    assert_eq!([lbr(0x33C0), lbr(0x33C4), lbr(0x33FF)], [None; 3]);
    let filters = |ebx| Lbr::architectural(leaf(0x8B, ebx, 7, 0));
    assert_eq!(filters(7).map(|lbr| (lbr.depth, lbr.call_stack)), Some((32, true)));
    // Without filters the kernel could not be kept out.
    assert_eq!([filters(1), filters(2), filters(4)], [None; 3]);
}

/// A Pentium 4 whose IA32_MISC_ENABLE reads this; its package has `logical` processors in `cores` cores.
fn pentium_4(model: u32, misc_enable: u64, apic_id: u32, (logical, cores): (u32, u32)) -> Processor {
    let htt = u32::from(logical > 1) << 28;
    let features = leaf(0xF01 | model << 4, apic_id << 24 | logical << 16, 1 << 2, EDX | htt);
    Processor {
        leaves: HashMap::from([
            (0, CpuidRegisters { eax: 5, ..INTEL }),
            (1, features),
            (4, leaf((cores - 1) << 26, 0, 0, 0)),
        ]),
        registers: HashMap::from([(0x1A0, misc_enable)]),
        microcode: 0,
    }
}

/// Performance Monitoring Available, and PEBS Unavailable.
const EMON: u64 = 1 << 7;
const NO_PEBS: u64 = 1 << 12;

#[test]
fn a_pentium_4_has_18_counters_or_shares_them() {
    let unit = |processor: &Processor| {
        let pmu = machine(processor).pmu.expect("known");
        let Interface::NetBurst(unit) = pmu.interface else { panic!("{:?}", pmu.interface) };
        (pmu.generation.name, unit.share, unit.counters().count(), unit.pebs_counter())
    };
    assert_eq!(unit(&pentium_4(4, EMON, 0, (1, 1))), ("netburst_p", Share::Whole, 18, 16));
    assert_eq!(unit(&pentium_4(2, EMON, 0, (1, 1))), ("netburst", Share::Whole, 18, 16));
    assert_eq!(unit(&pentium_4(3, EMON, 6, (2, 1))), ("netburst_p", Share::Half(0), 9, 16));
    assert_eq!(unit(&pentium_4(3, EMON, 7, (2, 1))), ("netburst_p", Share::Half(1), 9, 17));
    // Two cores that share nothing, and two that share with one each.
    assert_eq!(unit(&pentium_4(6, EMON, 1, (2, 2))), ("netburst_p", Share::Whole, 18, 16));
    assert_eq!(unit(&pentium_4(6, EMON, 3, (4, 2))), ("netburst_p", Share::Half(1), 9, 17));
}

#[test]
fn both_logical_processors_of_a_core_are_described_as_one_pmu() {
    let mut info = Info::default();
    for apic_id in [0, 1] {
        let machine = machine(&pentium_4(4, EMON, apic_id, (2, 1)));
        assert_eq!(machine.place(), apic_id as usize);
        machine.describe(&mut info);
    }
    assert!(info.pmu_name.starts_with(b"netburst_p\0"));
    assert_eq!((info.general_counters, info.general_width, info.perfmon_version), (9, 40, 0));
    assert_eq!((info.family, info.model, info.pebs_format), (15, 4, 0));
}

#[test]
fn a_pentium_4_is_believed_what_it_lacks() {
    let pmu = |processor: &Processor| machine(processor).pmu;
    assert_eq!(pmu(&pentium_4(4, 0, 0, (1, 1))).expect_err("no PMU").reason, Reason::NoPmu);
    let without = pmu(&pentium_4(4, EMON | NO_PEBS, 0, (1, 1))).expect("a PMU");
    assert_eq!(without.pebs.expect_err("no PEBS").reason, Reason::NoPebs);
    let mut short = pentium_4(2, EMON, 0, (1, 1));
    short.leaves.get_mut(&1).expect("leaf 1").ecx = 0;
    assert_eq!(pmu(&short).expect("a PMU").pebs.expect_err("no 64-bit fields").reason, Reason::NoPebs);
}

#[test]
fn another_model_of_family_15_is_left_alone() {
    let unknown = Processor { registers: HashMap::new(), ..pentium_4(5, 0, 0, (1, 1)) };
    let refusal = machine(&unknown).pmu.expect_err("not known");
    assert_eq!(refusal, Refusal::new(Reason::UnknownPmu, [15, 5]));
}

#[test]
fn processors_that_are_not_known_are_named_and_left_alone() {
    let none = HashMap::new();
    let mut zen = Processor { registers: none.clone(), ..skylake() };
    zen.leaves.insert(0, AMD);
    zen.leaves.insert(1, leaf(0x00B5_0F00, 0, 0, 0));
    let mut knights_landing = Processor { registers: none, ..skylake() };
    knights_landing.leaves.insert(1, leaf(0x0005_0671, 0, ECX, EDX));
    for (processor, named) in [(zen, [0x1A, 0x50]), (knights_landing, [6, 0x57])] {
        let refusal = machine(&processor).pmu.expect_err("not known");
        assert_eq!(refusal, Refusal::new(Reason::UnknownPmu, named));
    }
}

#[test]
fn pebs_is_used_only_when_every_sign_of_it_is_there() {
    let without = |change: fn(&mut Processor)| {
        let mut processor = skylake();
        change(&mut processor);
        machine(&processor).pmu.expect("known").pebs
    };
    const SIGNATURE: u32 = 0x0005_06E3;
    assert!(without(|_| {}).is_ok());
    assert!(without(|p| _ = p.leaves.insert(1, leaf(SIGNATURE, 0, ECX, 0))).is_err());
    assert!(without(|p| _ = p.leaves.insert(1, leaf(SIGNATURE, 0, 1 << 15, EDX))).is_err());
    assert!(without(|p| _ = p.leaves.insert(1, leaf(SIGNATURE, 0, 1 << 2, EDX))).is_err());
    assert!(without(|p| _ = p.registers.insert(0x345, 0x32C5)).is_err());
    assert!(without(|p| _ = p.registers.insert(0x1A0, 1 << 12)).is_err());
}

/// Linux's `pebs_ucodes` (arch/x86/events/intel/core.c) and `intel_clovertown_quirk`: what they refuse, hpm refuses.
#[test]
fn pebs_is_not_used_where_an_erratum_breaks_it() {
    let pebs = |signature, capabilities, version: u32, microcode| {
        let mut processor = Processor { microcode, ..skylake() };
        processor.leaves.insert(1, leaf(signature, 0, ECX, EDX));
        processor.leaves.insert(0xA, leaf(0x0730_0400 | version, 0, 0, 0x603));
        processor.registers.insert(0x345, capabilities);
        machine(&processor).pmu.expect("known").pebs.map(|_| ())
    };
    let refused = |microcode: u32, needed: u32| {
        Err(Refusal::new(Reason::PebsErratum, [microcode.into(), needed.into()]))
    };
    for (signature, needed) in [(0x0002_06A7, 0x28), (0x0002_06D6, 0x618), (0x0002_06D7, 0x70C)] {
        let with = |microcode| pebs(signature, 0x31C3, 3, microcode);
        assert_eq!(with(needed), Ok(()), "{signature:#x}");
        assert_eq!(with(needed - 1), refused(needed - 1, needed), "{signature:#x}");
    }
    let never = u32::MAX;
    assert_eq!(pebs(0x0002_06A5, 0x31C3, 3, 0x700), refused(0x700, never), "a stepping that is not known");
    assert_eq!(pebs(0x0000_06FB, 0x00C0, 2, 0xBA), refused(0xBA, never), "the first Core 2");
    assert_eq!(pebs(0x0003_06A9, 0x31C4, 3, 0), Ok(()), "Ivy Bridge has no such erratum");
}

#[test]
fn counters_that_no_skylake_has_are_not_believed() {
    for eax in [0x0700_0404, 0x0730_0004, 0x0730_0401, 0x07FF_0404] {
        let mut processor = skylake();
        processor.leaves.insert(0xA, leaf(eax, 0, 0, 0x603));
        assert_eq!(machine(&processor).pmu.expect_err("unsound").reason, Reason::UnknownPmu);
    }
}

/// AMD's processor with this signature, these features (CPUID.8000_0001H:ECX), version and IBS.
fn amd(signature: u32, features: u32, version_2: CpuidRegisters, ibs: u32) -> Processor {
    Processor {
        leaves: HashMap::from([
            (0, AMD),
            (1, leaf(signature, 0, 0, 0)),
            (0x8000_0000, leaf(0x8000_0023, 0, 0, 0)),
            (0x8000_0001, leaf(signature, 0, features, 0)),
            (0x8000_001B, leaf(ibs, 0, 0, 0)),
            (0x8000_0022, version_2),
        ]),
        ..Processor::default()
    }
}

/// PerfCtrExtCore and IBS.
const EXTENDED: u32 = 1 << 23 | 1 << 10;

#[test]
fn amd_has_as_many_counters_as_it_says() {
    let found = |processor: &Processor| {
        let mut info = Info::default();
        let machine = machine(processor);
        machine.describe(&mut info);
        let pmu = machine.pmu.expect("known");
        let register = pmu.counter_register(Counter::at(1));
        (pmu.generation.name, info.perfmon_version, info.general_counters, register, info.flags)
    };
    let none = CpuidRegisters::default();
    let ibs = InfoFlags::IBS_FETCH | InfoFlags::IBS_OP;
    let k8 = amd(0x0004_0F12, 0, none, 0);
    assert_eq!(found(&k8), ("k8", 1, 4, 0xC001_0005, InfoFlags::USABLE));
    for (signature, name) in
        [(0x0080_0F11, "zen1"), (0x0081_0F10, "zen1"), (0x0083_0F10, "zen2"), (0x008A_0F00, "zen2")]
    {
        let zen = amd(signature, EXTENDED, none, 0x3FF);
        assert_eq!(found(&zen), (name, 1, 6, 0xC001_0203, InfoFlags::USABLE | ibs));
    }
    let bulldozer = amd(0x0060_0F12, EXTENDED, none, 0xFF);
    assert_eq!(found(&bulldozer), ("family15h", 1, 6, 0xC001_0203, InfoFlags::USABLE | ibs));
    let jaguar = amd(0x0070_0F01, 1 << 10, none, 0xFF);
    assert_eq!(found(&jaguar), ("family16h", 1, 4, 0xC001_0005, InfoFlags::USABLE | ibs));
    let zen_3 = amd(0x00A2_0F12, EXTENDED, none, 0x3FF);
    assert_eq!(found(&zen_3), ("zen3", 1, 6, 0xC001_0203, InfoFlags::USABLE | ibs));
    let zen_4 = amd(0x00A6_0F12, EXTENDED, leaf(5, 6, 0, 0), 0x3FF);
    assert_eq!(found(&zen_4), ("zen4", 2, 6, 0xC001_0203, InfoFlags::USABLE | ibs));
    let zen_5 = amd(0x00B4_0F40, EXTENDED, leaf(5, 6, 0, 0), 0x1BFF);
    assert_eq!(found(&zen_5), ("zen5", 2, 6, 0xC001_0203, InfoFlags::USABLE | ibs));
    // A hypervisor may hide some of it.
    assert_eq!(found(&amd(0x00A6_0F12, 0, none, 0)), ("zen4", 1, 4, 0xC001_0005, InfoFlags::USABLE));
    let hidden = machine(&amd(0x00A6_0F12, EXTENDED, leaf(5, 0, 0, 0), 0)).pmu.expect_err("no counters");
    assert_eq!(hidden.reason, Reason::NoPmu);
}
