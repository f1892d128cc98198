//! What `CPUID` says of the PMU.

use crate::pmu::CpuidRegs;
use crate::profile::Profile;

/// `CPUID.01H:ECX`: 64-bit DS layout.
const DTES64: u32 = 1 << 2;
/// `CPUID.01H:ECX`: IA32_PERF_CAPABILITIES exists.
const PDCM: u32 = 1 << 15;
/// `CPUID.01H:EDX`: debug store.
const DS: u32 = 1 << 21;
/// The leaf of architectural performance monitoring.
const PERFMON: u32 = 0x0A;
/// Architectural events that leaf 0AH enumerates (SDM Vol. 3B, table 18-1); all are available.
const ARCHITECTURAL_EVENTS: u32 = 7;

/// Overlays the profile onto the machine's answer (SDM Vol. 2A, CPUID, leaves 0, 1 and 0AH).
pub(in crate::pmu) fn overlay(profile: &Profile, leaf: u32, regs: &mut CpuidRegs) {
    let pmu = &profile.pmu;
    match leaf {
        0 => regs.eax = regs.eax.max(PERFMON),
        1 => {
            regs.eax = profile.signature;
            regs.ecx |= DTES64 | PDCM;
            regs.edx |= DS;
        }
        PERFMON => {
            let bits = u32::from(pmu.counter_bits);
            *regs = CpuidRegs {
                eax: u32::from(pmu.version)
                    | u32::from(pmu.general_counters) << 8
                    | bits << 16
                    | ARCHITECTURAL_EVENTS << 24,
                // A set bit would mean "not available".
                ebx: 0,
                ecx: 0,
                edx: u32::from(pmu.fixed_counters) | bits << 5,
            };
        }
        _ => {}
    }
}
