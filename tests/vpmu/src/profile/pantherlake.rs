//! Intel Core Ultra, third series (Panther Lake), family 6 model 204: Cougar Cove and Darkmont.

use super::clearwaterforest::DARKMONT_PMU;
use super::cougarcove_events::{EVENTS, FIXED_EVENTS};
use super::{
    ArchitecturalPebs, Extended, Hybrid, Perfmon, PerfmonExtension, PmuKind, Profile, darkmont_events,
    lunarlake,
};

/// Family 6, extended model 12, model 12 (display model 204), stepping 2; the same on all cores of the part.
const SIGNATURE: u32 = 0x000C_06C2;
/// `CPUID.1AH:EAX[23:0]` of both types (the map beside Intel's event lists).
const NATIVE_MODEL: u32 = 4;

/// Cougar Cove's PMU: Lion Cove's counters, and PEBS that is architectural, of all of them and with Darkmont's
/// groups (both are for `CPUID` to say and not in the manuals).
const PMU: Perfmon = Perfmon {
    capabilities: DARKMONT_PMU.capabilities,
    pebs_enable_mask: 0,
    extended: Extended {
        perfmon_extension: Some(PerfmonExtension {
            unit_mask2: true,
            equal: true,
            // Linux enables it on no performance core before Panther Cove (intel_pmu_init_pnc).
            reload: None,
            pebs: Some(ArchitecturalPebs {
                general: 0x3FF,
                // Intel's event list, "PDISTCounter".
                pdist_general: 0b11,
                pdist_fixed: 0b1,
                groups: 0x6002_0300,
            }),
        }),
        ..lunarlake::PMU.extended
    },
    ..lunarlake::PMU
};

/// The performance cores, and through [`Profile::of_cpu`] the efficient ones. Caches, and what else is not the PMU's,
/// are Lunar Lake's here.
pub static PANTHER_LAKE: Profile = Profile {
    name: "pantherlake",
    signature: SIGNATURE,
    pmu: PmuKind::Perfmon(&PMU),
    events: EVENTS,
    fixed_events: FIXED_EVENTS,
    geometry: lunarlake::CACHES,
    microarchitecture: lunarlake::CORE,
    hybrid: Some(Hybrid {
        core_type: 0x40,
        native_model: NATIVE_MODEL,
        efficient: Some(&EFFICIENT),
        low_power: None,
    }),
};

static EFFICIENT: Profile = Profile {
    name: "pantherlake-efficient",
    signature: SIGNATURE,
    pmu: PmuKind::Perfmon(&DARKMONT_PMU),
    events: darkmont_events::EVENTS,
    fixed_events: darkmont_events::FIXED_EVENTS,
    geometry: lunarlake::EFFICIENT_CACHES,
    microarchitecture: lunarlake::EFFICIENT_CORE,
    hybrid: Some(Hybrid { core_type: 0x20, native_model: NATIVE_MODEL, efficient: None, low_power: None }),
};
