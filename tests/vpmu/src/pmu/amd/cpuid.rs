//! What `CPUID` says of the PMU (APM Vol. 3, appendix E).

use super::Amd;
use crate::pmu::CpuidRegs;

/// `CPUID.8000_0001H:ECX`.
mod features {
    pub(super) const IBS: u32 = 1 << 10;
    pub(super) const PERF_CTR_EXT_CORE: u32 = 1 << 23;
    /// Counters of the northbridge and of L3, which are not modelled.
    pub(super) const PERF_CTR_EXT_NB: u32 = 1 << 24;
    pub(super) const PERF_CTR_EXT_LLC: u32 = 1 << 28;
}

/// `CPUID.8000_0022H:EAX`.
const PERF_MON_V2: u32 = 1;
const LBR_AND_PMC_FREEZE: u32 = 1 << 2;

const HIGHEST: u32 = 0x8000_0000;
const FEATURES: u32 = 0x8000_0001;
const IBS: u32 = 0x8000_001B;
const PERFMON: u32 = 0x8000_0022;

impl Amd {
    /// Overlays the profile onto the machine's answer.
    pub(in crate::pmu) fn cpuid(&self, leaf: u32, _: u32, regs: &mut CpuidRegs) {
        let facts = self.facts;
        match leaf {
            1 => regs.eax = self.profile.signature,
            HIGHEST if facts.version_2 => regs.eax = regs.eax.max(PERFMON),
            HIGHEST if facts.ibs != 0 => regs.eax = regs.eax.max(IBS),
            FEATURES => {
                use features as f;
                regs.eax = self.profile.signature;
                regs.ecx &= !(f::IBS | f::PERF_CTR_EXT_CORE | f::PERF_CTR_EXT_NB | f::PERF_CTR_EXT_LLC);
                regs.ecx |= if facts.ibs != 0 { f::IBS } else { 0 };
                regs.ecx |= if facts.extended { f::PERF_CTR_EXT_CORE } else { 0 };
            }
            IBS => *regs = CpuidRegs { eax: facts.ibs, ..CpuidRegs::default() },
            PERFMON => {
                let (eax, ebx) = match facts.version_2 {
                    true => (PERF_MON_V2 | LBR_AND_PMC_FREEZE, facts.counters.into()),
                    false => (0, 0),
                };
                *regs = CpuidRegs { eax, ebx, ..CpuidRegs::default() };
            }
            _ => {}
        }
    }
}
