//! Facts from prepared folders and CPUID dumps, and what they are judged to mean.

use std::fs;
use std::path::Path;

use raw_cpuid::{CpuId, CpuIdResult};

use super::facts::{DriverFacts, Facts};
use super::{Status, assess};

/// CPUID of an Intel Core i7-6700 (family 6, model 5EH) in the leaves that are read.
fn skylake(leaf: u32, _: u32) -> CpuIdResult {
    let [eax, ebx, ecx, edx] = match leaf {
        0 => [0x16, 0x756e_6547, 0x6c65_746e, 0x4965_6e69],
        1 => [0x0005_06e3, 0x0010_0800, 0x7ffa_fbff, 0xbfeb_fbff],
        0xa => [0x0730_0804, 0, 0, 0x603],
        0x8000_0000 => [0x8000_0008, 0, 0, 0],
        _ => [0; 4],
    };
    CpuIdResult { eax, ebx, ecx, edx }
}

/// A virtual machine under KVM that shows no PMU.
fn virtual_machine(leaf: u32, sub: u32) -> CpuIdResult {
    match leaf {
        1 => CpuIdResult { ecx: 0x8000_0000, ..skylake(leaf, sub) },
        0xa => CpuIdResult { eax: 0, ebx: 0, ecx: 0, edx: 0 },
        0x4000_0000 => CpuIdResult { eax: 0x4000_0001, ebx: 0x4b4d_564b, ecx: 0x564b_4d56, edx: 0x4d },
        _ => skylake(leaf, sub),
    }
}

fn driver(problem: Option<&str>) -> DriverFacts {
    DriverFacts {
        problem: problem.map(str::to_owned),
        pmu_name: "skylake".into(),
        usable: true,
        pebs_format: Some(3),
        branch_records: 32,
        branch_calls: true,
        ..DriverFacts::default()
    }
}

/// A folder with these files, as `/` of a machine.
fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn judged(facts: &Facts) -> String {
    assess(facts)
        .iter()
        .map(|finding| {
            format!("{:?} {}: {} -> {}\n", finding.status, finding.topic, finding.what, finding.advice)
        })
        .collect()
}

const MODULE: (&str, &str) = ("sys/module/hpm/version", "");
const CAPABLE: (&str, &str) = ("proc/self/status", "CapEff:\t0000004000000000\n");
const RELEASE: (&str, &str) = ("proc/sys/kernel/osrelease", "7.3.4+deb13-amd64\n");

#[test]
fn a_ready_machine_has_no_obstacle() {
    let root = root(&[
        MODULE,
        RELEASE,
        ("sys/kernel/security/lockdown", "[none] integrity confidentiality\n"),
        ("proc/sys/kernel/perf_event_paranoid", "3\n"),
        ("proc/self/status", "Name:\thpmctl\nCapEff:\t000001ffffffffff\n"),
        ("sys/devices/system/cpu/vulnerabilities/meltdown", "Mitigation: PTI\n"),
        ("sys/bus/event_source/devices/cpu/rdpmc", "1\n"),
    ]);
    let facts = Facts::gather_at(root.path(), &CpuId::with_cpuid_fn(skylake), driver(None));
    insta::assert_snapshot!(judged(&facts));
    assert!(assess(&facts).iter().all(|finding| finding.status != Status::Obstacle));
}

/// CPUID of an AMD Ryzen of Zen 4 (family 19H, model 61H) in the leaves that are read.
fn zen_4(leaf: u32, _: u32) -> CpuIdResult {
    let [eax, ebx, ecx, edx] = match leaf {
        0 => [0x10, 0x6874_7541, 0x444d_4163, 0x6974_6e65],
        1 => [0x00a6_0f12, 0, 0, 0],
        0x8000_0000 => [0x8000_0028, 0, 0, 0],
        0x8000_0001 => [0x00a6_0f12, 0, 1 << 23 | 1 << 10, 0],
        _ => [0; 4],
    };
    CpuIdResult { eax, ebx, ecx, edx }
}

#[test]
fn a_machine_of_amd_has_counters_and_ibs() {
    let root = root(&[MODULE, RELEASE, CAPABLE]);
    let driver = DriverFacts { pmu_name: "zen4".into(), pebs_format: None, ibs: true, ..driver(None) };
    let facts = Facts::gather_at(root.path(), &CpuId::with_cpuid_fn(zen_4), driver);
    let judged = judged(&facts);
    assert!(
        judged.contains("Ok PMU: AMD's, 6 counters of 48 bits, instruction-based sampling (IBS)"),
        "{judged}"
    );
    assert!(judged.contains("Ok driver: knows the PMU as zen4, precise samples by IBS"), "{judged}");
    assert!(assess(&facts).iter().all(|finding| finding.status != Status::Obstacle), "{judged}");
}

#[test]
fn a_virtual_machine_without_pmu_and_module() {
    let root = root(&[
        RELEASE,
        ("boot/config-7.3.4+deb13-amd64", "CONFIG_MODULES=y\nCONFIG_RUST=y\n"),
        ("proc/sys/kernel/perf_event_paranoid", "2\n"),
        ("proc/self/status", "CapEff:\t0000000000000000\n"),
    ]);
    let absent = driver(Some("/dev/hpm does not exist"));
    insta::assert_snapshot!(judged(&Facts::gather_at(
        root.path(),
        &CpuId::with_cpuid_fn(virtual_machine),
        absent
    )));
}

/// The same under a hypervisor. CPUID does not tell whether it lets counters be used.
fn virtual_zen_4(leaf: u32, sub: u32) -> CpuIdResult {
    match leaf {
        1 => CpuIdResult { ecx: 1 << 31, ..zen_4(leaf, sub) },
        0x4000_0000 => virtual_machine(leaf, sub),
        _ => zen_4(leaf, sub),
    }
}

#[test]
fn counters_that_a_hypervisor_withholds_are_not_claimed() {
    let gather = |files: &[(&str, &str)], driver| {
        let root = root(files);
        Facts::gather_at(root.path(), &CpuId::with_cpuid_fn(virtual_zen_4), driver)
    };
    let absent = || DriverFacts { problem: Some("/dev/hpm does not exist".into()), ..DriverFacts::default() };
    let without = gather(&[RELEASE, CAPABLE], absent());
    insta::assert_snapshot!(judged(&without));
    assert_eq!((without.pmu.general_counters, without.pmu.ibs, without.kernel_pmu), (0, false, false));
    let claimed = "Ok PMU: AMD's, 6 counters of 48 bits, instruction-based sampling (IBS)";
    // The kernel's driver has found that they count, or hpm's has, which knows PMUs that the kernel's does not.
    let of_kernel = gather(&[CAPABLE, ("sys/bus/event_source/devices/cpu/type", "4\n")], absent());
    assert!(judged(&of_kernel).contains(claimed), "{}", judged(&of_kernel));
    let knows = DriverFacts { pmu_name: "zen4".into(), pebs_format: None, ibs: true, ..driver(None) };
    let of_module = gather(&[MODULE, RELEASE, CAPABLE], knows);
    assert!(judged(&of_module).contains(claimed), "{}", judged(&of_module));
    assert!(assess(&of_module).iter().all(|finding| finding.status != Status::Obstacle));
    // One that knows no PMU does not make one.
    let knows_not = || DriverFacts { usable: false, ..driver(None) };
    let of_neither = judged(&gather(&[MODULE, RELEASE, CAPABLE], knows_not()));
    assert!(of_neither.contains("Obstacle PMU: there is none in this virtual machine"), "{of_neither}");
    let files = [MODULE, RELEASE, CAPABLE, ("sys/bus/event_source/devices/cpu/type", "4\n")];
    let unknown = judged(&gather(&files, knows_not()));
    assert!(unknown.contains("Obstacle driver: the driver does not know this PMU"), "{unknown}");
}

/// A hypervisor that shows leaf 0AH means it: a driver that could be opened and does not know that PMU says which one it is.
#[test]
fn an_architectural_pmu_that_the_driver_does_not_know_is_named_in_a_virtual_machine() {
    let virtual_skylake = |leaf, sub| match leaf {
        0xa => skylake(leaf, sub),
        _ => virtual_machine(leaf, sub),
    };
    let root = root(&[MODULE, RELEASE, CAPABLE]);
    let judged =
        |driver| judged(&Facts::gather_at(root.path(), &CpuId::with_cpuid_fn(virtual_skylake), driver));
    let unknown = judged(DriverFacts { usable: false, ..driver(None) });
    assert!(unknown.contains("PMU: PerfMon version 4, 8 general counters"), "{unknown}");
    assert!(unknown.contains("Obstacle driver: the driver does not know this PMU"), "{unknown}");
    let absent = judged(DriverFacts { problem: Some("absent".into()), ..DriverFacts::default() });
    assert!(absent.contains("Obstacle PMU: there is none in this virtual machine"), "{absent}");
}

/// A Pentium 4's counters are in no leaf: its driver knows them.
#[test]
fn a_pmu_that_only_the_driver_knows_needs_no_virtual_lab() {
    let root = root(&[MODULE, RELEASE, CAPABLE]);
    let facts = Facts::gather_at(root.path(), &CpuId::with_cpuid_fn(virtual_machine), driver(None));
    let judged = judged(&facts);
    assert!(judged.contains("Ok PMU: not architectural") && !judged.contains("virtual lab"), "{judged}");
}

#[test]
fn what_stands_in_the_way_is_an_obstacle() {
    let obstacles = |files: &[(&str, &str)], driver| {
        let root = root(files);
        let facts = Facts::gather_at(root.path(), &CpuId::with_cpuid_fn(skylake), driver);
        let obstacles = assess(&facts).into_iter().filter(|finding| finding.status == Status::Obstacle);
        obstacles.map(|finding| finding.topic).collect::<Vec<_>>()
    };
    assert_eq!(
        obstacles(&[MODULE, CAPABLE, ("proc/sys/kernel/nmi_watchdog", "1\n")], driver(None)),
        ["counters"]
    );
    assert_eq!(
        obstacles(&[MODULE, CAPABLE], DriverFacts { held_by_others: true, ..driver(None) }),
        ["counters"]
    );
    assert_eq!(obstacles(&[MODULE, CAPABLE], driver(Some("version 2"))), ["module"]);
    assert_eq!(obstacles(&[MODULE, CAPABLE], DriverFacts { usable: false, ..driver(None) }), ["driver"]);
    let locked = ("sys/kernel/security/lockdown", "none integrity [confidentiality]\n");
    assert_eq!(obstacles(&[MODULE, CAPABLE, locked], driver(None)), ["lockdown"]);
    let no_rust = [RELEASE, CAPABLE, ("boot/config-7.3.4+deb13-amd64", "# CONFIG_RUST is not set\n")];
    assert_eq!(obstacles(&no_rust, driver(Some("absent"))), ["kernel", "module"]);
}

#[test]
fn who_has_no_capability_is_told_what_may_be_measured() {
    let told = |level: &str| {
        let root = root(&[MODULE, ("proc/sys/kernel/perf_event_paranoid", level)]);
        let facts = Facts::gather_at(root.path(), &CpuId::with_cpuid_fn(skylake), driver(None));
        let rights = assess(&facts).into_iter().find(|finding| finding.topic == "rights").unwrap();
        assert_eq!(rights.status, Status::Note);
        rights.what
    };
    assert!(told("3\n").ends_with("by `record` where the kernel has kprobes on ftrace"));
    assert!(told("2\n").ends_with("your own programs, in user mode"));
    assert!(told("1\n").ends_with("in user and kernel mode"));
    assert!(told("0\n").ends_with("from Linux 7.3 on the whole system (-a)"));
}

#[test]
fn gathering_on_this_machine_finds_its_processor() {
    let facts = Facts::gather();
    assert!(!facts.processor.vendor.is_empty());
    assert_eq!(facts.kernel_release.is_empty(), !Path::new("/proc/sys/kernel/osrelease").exists());
}
