//! From CPUID to a PMU that hpm knows. No register is touched before CPUID and the table of known PMUs have shown that it
//! exists.

use super::abi::{Info, InfoFlags, Reason};
use super::pmu::architectural::{Perfmon, FIXED_COUNTERS_MAX, GENERAL_COUNTERS_MAX};
use super::pmu::{generation_of, Generation, Pebs};
use super::registers::{MiscEnable, PerfCapabilities, IA32_MISC_ENABLE, IA32_PERF_CAPABILITIES};
use super::{Pmu, Port, Refusal};

/// What CPUID returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuidRegisters {
    /// EAX.
    pub eax: u32,
    /// EBX.
    pub ebx: u32,
    /// ECX.
    pub ecx: u32,
    /// EDX.
    pub edx: u32,
}

/// The CPUID instruction.
pub trait Cpuid {
    /// The answer to this leaf and subleaf; asked only up to the maximum that leaf 0 names.
    fn cpuid(&mut self, leaf: u32, subleaf: u32) -> CpuidRegisters;
}

/// The processor, whether or not hpm knows its PMU.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Vendor string.
    pub vendor: [u8; 12],
    /// Display family (SDM Vol. 2A, CPUID leaf 01H).
    pub family: u32,
    /// Display model.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// What leaf 0AH says; all zero without it.
    pub perfmon: Perfmon,
    /// Whether a hypervisor says it is there (CPUID.01H:ECX, bit 31).
    pub hypervisor: bool,
    /// The PMU, or why hpm cannot program it.
    pub pmu: Result<Pmu, Refusal>,
}

/// Reads what the processor is.
pub fn detect<C: Cpuid, P: Port>(cpuid: &mut C, port: &mut P) -> Machine {
    let head = cpuid.cpuid(0, 0);
    let leaf_1 = cpuid.cpuid(1, 0);
    let leaf_10 = if head.eax >= 0xA { cpuid.cpuid(0xA, 0) } else { CpuidRegisters::default() };
    let vendor = vendor(head);
    let intel = vendor == *b"GenuineIntel";
    let (family, model) = family_and_model(leaf_1.eax);
    // Leaf 0AH is Intel's; on other vendors' processors it is reserved.
    let perfmon = if intel { Perfmon::new(leaf_10) } else { Perfmon::default() };
    let unknown = Refusal::new(Reason::UnknownPmu, [u64::from(family), u64::from(model)]);
    let pmu = match generation_of(model) {
        _ if intel && perfmon.version == 0 => Err(Refusal::new(Reason::NoPmu, [0; 2])),
        Some(generation) if intel && family == 6 && is_sound(&perfmon) => {
            Ok(known(generation, perfmon, leaf_1, port))
        }
        _ => Err(unknown),
    };
    Machine {
        vendor,
        family,
        model,
        stepping: leaf_1.eax & 0xf,
        perfmon,
        hypervisor: leaf_1.ecx >> 31 == 1,
        pmu,
    }
}

/// Whether the counters are such as a known generation has. A hypervisor may say anything: before version 2 there is no
/// IA32_PERF_GLOBAL_CTRL, and no counter of those generations is narrower than 32 bits.
fn is_sound(perfmon: &Perfmon) -> bool {
    let widths = 32..64;
    perfmon.version >= 2
        && perfmon.general_counters > 0
        && widths.contains(&perfmon.general_width)
        && (perfmon.fixed_counters == 0 || widths.contains(&perfmon.fixed_width))
}

fn vendor(head: CpuidRegisters) -> [u8; 12] {
    let mut vendor = [0; 12];
    for (bytes, register) in vendor.chunks_exact_mut(4).zip([head.ebx, head.edx, head.ecx]) {
        bytes.copy_from_slice(&register.to_le_bytes());
    }
    vendor
}

/// Display family and model (SDM Vol. 2A, CPUID leaf 01H, EAX).
const fn family_and_model(signature: u32) -> (u32, u32) {
    let family = (signature >> 8) & 0xf;
    let model = (signature >> 4) & 0xf;
    let extended_model = (signature >> 16) & 0xf;
    match family {
        0xf => (family + ((signature >> 20) & 0xff), extended_model << 4 | model),
        6 => (family, extended_model << 4 | model),
        _ => (family, model),
    }
}

fn known<P: Port>(
    generation: &'static Generation,
    perfmon: Perfmon,
    leaf_1: CpuidRegisters,
    port: &mut P,
) -> Pmu {
    // PDCM (CPUID.01H:ECX[15]): IA32_PERF_CAPABILITIES exists.
    let pdcm = leaf_1.ecx >> 15 & 1 == 1;
    let capabilities = PerfCapabilities(if pdcm { port.rdmsr(IA32_PERF_CAPABILITIES) } else { 0 });
    // DS and DTES64 (CPUID.01H:EDX[21], ECX[2]): the debug store exists and has 64-bit fields.
    let debug_store = leaf_1.edx >> 21 & 1 == 1 && leaf_1.ecx >> 2 & 1 == 1;
    let has_pebs = debug_store
        && pdcm
        && capabilities.pebs_rec_fmt() == u64::from(generation.pebs.format)
        && MiscEnable(port.rdmsr(IA32_MISC_ENABLE)).pebs_unavailable() == 0;
    let usable = Perfmon {
        general_counters: perfmon.general_counters.min(GENERAL_COUNTERS_MAX),
        fixed_counters: perfmon.fixed_counters.min(FIXED_COUNTERS_MAX),
        ..perfmon
    };
    let present = ((1u32 << usable.general_counters) - 1) as u16;
    let pebs = has_pebs.then_some(Pebs { counters: generation.pebs.counters & present, ..generation.pebs });
    Pmu { generation, perfmon: usable, full_width_writes: capabilities.fw_write() == 1, pebs }
}

impl Machine {
    /// Fills in what this crate knows of [`Info`]; the rest is the kernel's.
    pub fn describe(&self, info: &mut Info) {
        info.vendor[..12].copy_from_slice(&self.vendor);
        (info.family, info.model, info.stepping) = (self.family, self.model, self.stepping);
        let mut perfmon = self.perfmon;
        info.pebs_format = u32::MAX;
        if let Ok(pmu) = &self.pmu {
            perfmon = pmu.perfmon;
            info.flags |= InfoFlags::USABLE;
            let name = pmu.generation.name.as_bytes();
            info.pmu_name[..name.len()].copy_from_slice(name);
            if let Some(pebs) = pmu.pebs {
                info.pebs_format = pebs.format.into();
                info.pebs_counters = pebs.counters.into();
            }
        }
        if self.hypervisor {
            info.flags |= InfoFlags::HYPERVISOR;
        }
        info.perfmon_version = perfmon.version;
        (info.general_counters, info.general_width) = (perfmon.general_counters, perfmon.general_width);
        (info.fixed_counters, info.fixed_width) = (perfmon.fixed_counters, perfmon.fixed_width);
    }
}
