//! Facts about the machine, each read from where the system tells it.

use std::fs;
use std::path::Path;

use hpm_abi::{Info, InfoFlags};
use raw_cpuid::{CpuId, CpuIdReader};
use serde::Serialize;

use super::Holders;
use crate::sys::device::Driver;

/// The processor, by CPUID leaves 0, 1 and 80000002H.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Processor {
    /// Vendor string.
    pub vendor: String,
    /// Brand string; empty without one.
    pub brand: String,
    /// Display family.
    pub family: u8,
    /// Display model.
    pub model: u8,
    /// Stepping.
    pub stepping: u8,
}

/// The PMU, by CPUID leaf 0AH and the DS bits of leaf 1; AMD's by leaf 80000001H. All zero in a virtual machine that has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Pmu {
    /// Architectural PerfMon version; 0 without one.
    pub perfmon_version: u8,
    /// General counters per logical processor.
    pub general_counters: u8,
    /// Their width in bits.
    pub general_width: u8,
    /// Fixed counters.
    pub fixed_counters: u8,
    /// Debug Store, which PEBS needs.
    pub debug_store: bool,
    /// Instruction-based sampling (AMD).
    pub ibs: bool,
}

/// The hypervisor, by `CPUID.01H:ECX[31]` and leaf 40000000H.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hypervisor {
    /// Its signature, `KVMKVMKVM` and such; empty when it gives none.
    pub signature: String,
}

/// The driver, as the loaded module tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DriverFacts {
    /// Why the device cannot be used; `None` when it can.
    pub problem: Option<String>,
    /// Name of the PMU in the driver's table; empty when it does not know it.
    pub pmu_name: String,
    /// The driver knows the PMU and can program it.
    pub usable: bool,
    /// PEBS record format; `None` without PEBS.
    pub pebs_format: Option<u32>,
    /// Ops are sampled by IBS.
    pub ibs: bool,
    /// Last branch records that a session may use; 0 without any.
    pub branch_records: u32,
    /// They can follow calls and returns.
    pub branch_calls: bool,
    /// Hardware writes them into its precise samples.
    pub records_branches: bool,
    /// An hpm session holds the PMU now.
    pub held_by_hpm: bool,
    /// Somebody else holds counters.
    pub held_by_others: bool,
}

impl DriverFacts {
    /// The module is there and can program the PMU, whatever others say of it.
    pub(super) fn can_measure(&self) -> bool {
        self.problem.is_none() && self.usable
    }

    /// Whether there is a PMU has to be asked elsewhere. A driver that knows none does not say whether there is one, and CPUID does not
    /// of AMD's: a processor of this family has the counters that a hypervisor withholds. Of others the leaf tells.
    fn leaves_open(&self, is_amd: bool) -> bool {
        self.problem.is_some() || is_amd && !self.usable
    }
}

/// Everything that [`super::assess`] judges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// The processor.
    pub processor: Processor,
    /// Its PMU as this system shows it.
    pub pmu: Pmu,
    /// The kernel's own driver has found a PMU, and registered it as an event source.
    pub kernel_pmu: bool,
    /// The hypervisor, if there is one.
    pub hypervisor: Option<Hypervisor>,
    /// `uname -r`.
    pub kernel_release: String,
    /// CONFIG_RUST of the running kernel; `None` when its configuration cannot be read.
    pub kernel_has_rust: Option<bool>,
    /// Whether the kernel's headers are installed, which building the module needs.
    pub kernel_headers: bool,
    /// Whether the module `hpm` is loaded.
    pub module_loaded: bool,
    /// The driver.
    pub driver: DriverFacts,
    /// `/sys/kernel/security/lockdown`'s mode; `None` when it cannot be read.
    pub lockdown: Option<String>,
    /// `/proc/sys/kernel/perf_event_paranoid`.
    pub perf_event_paranoid: Option<i32>,
    /// Whether this process has CAP_PERFMON or CAP_SYS_ADMIN in effect.
    pub cap_perfmon: bool,
    /// What the kernel says of Meltdown, and so of page-table isolation.
    pub meltdown: Option<String>,
    /// `/sys/bus/event_source/devices/cpu/rdpmc`, on a hybrid processor `cpu_core`'s: who may read counters in user space.
    pub rdpmc: Option<i32>,
    /// Likely holders of counters.
    pub holders: Holders,
}

impl Facts {
    /// Reads the facts of this machine.
    #[must_use]
    pub fn gather() -> Self {
        Self::gather_at(Path::new("/"), &CpuId::new(), driver())
    }

    /// Reads the facts below `root`, with this CPUID and driver.
    pub(super) fn gather_at<R: CpuIdReader>(root: &Path, cpuid: &CpuId<R>, driver: DriverFacts) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).ok().map(|text| text.trim().to_owned());
        let number = |path| read(path)?.parse().ok();
        let kernel_release = read("proc/sys/kernel/osrelease").unwrap_or_default();
        let hypervisor = hypervisor(cpuid);
        // Hybrid processors have one for each type of cores.
        let kernel_pmu = ["cpu", "cpu_core"]
            .iter()
            .any(|name| root.join("sys/bus/event_source/devices").join(name).exists());
        let is_withheld = hypervisor.is_some() && !kernel_pmu && driver.leaves_open(is_amd(cpuid));
        Self {
            processor: processor(cpuid),
            pmu: if is_withheld { Pmu::default() } else { pmu(cpuid) },
            kernel_pmu,
            hypervisor,
            kernel_has_rust: read(&format!("boot/config-{kernel_release}"))
                .map(|config| config.lines().any(|line| line == "CONFIG_RUST=y")),
            kernel_headers: root.join(format!("lib/modules/{kernel_release}/build/Makefile")).exists(),
            kernel_release,
            module_loaded: root.join("sys/module/hpm").exists(),
            driver,
            lockdown: read("sys/kernel/security/lockdown").and_then(|modes| bracketed(&modes)),
            perf_event_paranoid: number("proc/sys/kernel/perf_event_paranoid"),
            cap_perfmon: read("proc/self/status").is_some_and(|status| has_perfmon(&status)),
            meltdown: read("sys/devices/system/cpu/vulnerabilities/meltdown"),
            rdpmc: number("sys/bus/event_source/devices/cpu/rdpmc")
                .or_else(|| number("sys/bus/event_source/devices/cpu_core/rdpmc")),
            holders: Holders::find(root),
        }
    }
}

fn processor<R: CpuIdReader>(cpuid: &CpuId<R>) -> Processor {
    let brand = cpuid.get_processor_brand_string();
    let features = cpuid.get_feature_info();
    let feature = |get: fn(&raw_cpuid::FeatureInfo) -> u8| features.as_ref().map_or(0, get);
    Processor {
        vendor: cpuid.get_vendor_info().map_or_else(String::new, |vendor| vendor.as_str().to_owned()),
        brand: brand.map_or_else(String::new, |brand| brand.as_str().trim().to_owned()),
        family: feature(raw_cpuid::FeatureInfo::family_id),
        model: feature(raw_cpuid::FeatureInfo::model_id),
        stepping: feature(raw_cpuid::FeatureInfo::stepping_id),
    }
}

fn pmu<R: CpuIdReader>(cpuid: &CpuId<R>) -> Pmu {
    if is_amd(cpuid) {
        return amd_pmu(cpuid);
    }
    let leaf = cpuid.get_performance_monitoring_info();
    let get = |field: fn(&raw_cpuid::PerformanceMonitoringInfo) -> u8| leaf.as_ref().map_or(0, field);
    Pmu {
        perfmon_version: get(raw_cpuid::PerformanceMonitoringInfo::version_id),
        general_counters: get(raw_cpuid::PerformanceMonitoringInfo::number_of_counters),
        general_width: get(raw_cpuid::PerformanceMonitoringInfo::counter_bit_width),
        fixed_counters: get(raw_cpuid::PerformanceMonitoringInfo::fixed_function_counters),
        debug_store: cpuid.get_feature_info().is_some_and(|features| features.has_ds()),
        ibs: false,
    }
}

fn is_amd<R: CpuIdReader>(cpuid: &CpuId<R>) -> bool {
    cpuid.get_vendor_info().is_some_and(|vendor| vendor.as_str() == "AuthenticAMD")
}

/// Four counters of 48 bits, from PerfCtrExtCore on six (AMD64 Architecture Programmer's Manual Vol. 2, 13.2.1).
fn amd_pmu<R: CpuIdReader>(cpuid: &CpuId<R>) -> Pmu {
    let features = cpuid.get_extended_processor_and_feature_identifiers();
    let extended = features.as_ref().is_some_and(|features| features.has_perf_cntr_extensions());
    Pmu {
        perfmon_version: 0,
        general_counters: if extended { 6 } else { 4 },
        general_width: 48,
        fixed_counters: 0,
        debug_store: false,
        ibs: features.as_ref().is_some_and(|features| features.has_ibs()),
    }
}

fn hypervisor<R: CpuIdReader>(cpuid: &CpuId<R>) -> Option<Hypervisor> {
    if !cpuid.get_feature_info()?.has_hypervisor() {
        return None;
    }
    let signature = cpuid.get_hypervisor_info().map(|info| match info.identify() {
        raw_cpuid::Hypervisor::Unknown(ebx, ecx, edx) => {
            let bytes = [ebx, ecx, edx].map(u32::to_le_bytes).concat();
            String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
        }
        known => format!("{known:?}"),
    });
    Some(Hypervisor { signature: signature.unwrap_or_default() })
}

/// What the loaded module says; opening it tells the rest.
fn driver() -> DriverFacts {
    match Driver::open_checked() {
        Ok((_, info)) => driver_facts(&info),
        Err(error) => DriverFacts { problem: Some(error.to_string()), ..DriverFacts::default() },
    }
}

fn driver_facts(info: &Info) -> DriverFacts {
    let has = |flag| info.flags & flag != 0;
    DriverFacts {
        problem: None,
        pmu_name: pmu_name(info),
        usable: has(InfoFlags::USABLE),
        pebs_format: (info.pebs_format != u32::MAX).then_some(info.pebs_format),
        ibs: has(InfoFlags::IBS_OP),
        branch_records: info.branch_records,
        branch_calls: has(InfoFlags::BRANCH_CALLS),
        records_branches: has(InfoFlags::RECORDS_BRANCHES),
        held_by_hpm: has(InfoFlags::HELD_BY_HPM),
        held_by_others: has(InfoFlags::HELD_BY_OTHERS),
    }
}

/// The PMU's name in the driver's table; empty when it knows none.
#[must_use]
pub fn pmu_name(info: &Info) -> String {
    text(&info.pmu_name)
}

/// The processor's vendor string.
#[must_use]
pub fn vendor(info: &Info) -> String {
    text(&info.vendor)
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The chosen one of a list like `none [integrity] confidentiality`.
fn bracketed(modes: &str) -> Option<String> {
    let (_, rest) = modes.split_once('[')?;
    Some(rest.split_once(']')?.0.to_owned())
}

/// Whether `/proc/self/status` shows CAP_PERFMON (38) or CAP_SYS_ADMIN (21) in the effective set, as perf asks for.
fn has_perfmon(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    bits & (1 << 38 | 1 << 21) != 0
}
