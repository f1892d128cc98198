//! Intel Core Ultra 200H (Arrow Lake-H), family 6 model 197: Lunar Lake's two types of cores, Lion Cove and Skymont, and
//! low-power ones, Crestmont.

use super::{
    Hybrid, Perfmon, PmuKind, Profile, crestmont, crestmont_events, lioncove_events, lunarlake,
    skymont_events,
};

/// Family 6, extended model 12, model 5 (display model 197), stepping 2; the same on all cores of the part.
const SIGNATURE: u32 = 0x000C_0652;

/// What Linux prints of a Core Ultra 9 285H: version 5, PEBS of format 5, and each type's counters, for which it asks leaf
/// 23H: 10 and 4, 8 and 6, 8 and 3. It prints the first core's format and uses it on all of them: that all have it is
/// assumed, and that leaf 23H tells of the EQ bit, UnitMask2 and auto counter reload as on Lunar Lake; the latter's registers are
/// then the only ones of version 6.
const VERSION: u8 = 5;
const CAPABILITIES: u64 = 0x75FF;

const PMU: Perfmon = Perfmon { version: VERSION, capabilities: CAPABILITIES, ..lunarlake::PMU };
const EFFICIENT_PMU: Perfmon =
    Perfmon { version: VERSION, capabilities: CAPABILITIES, ..lunarlake::EFFICIENT_PMU };
const LOW_POWER_PMU: Perfmon = Perfmon { capabilities: CAPABILITIES, ..crestmont::PMU };

/// The performance cores, and through [`Profile::of_cpu`] the efficient and the low-power ones.
pub static ARROW_LAKE_H: Profile = Profile {
    name: "arrowlakeh",
    signature: SIGNATURE,
    pmu: PmuKind::Perfmon(&PMU),
    events: lioncove_events::EVENTS,
    fixed_events: lioncove_events::FIXED_EVENTS,
    geometry: lunarlake::CACHES,
    microarchitecture: lunarlake::CORE,
    hybrid: Some(Hybrid {
        core_type: 0x40,
        native_model: 3,
        efficient: Some(&EFFICIENT),
        low_power: Some(&LOW_POWER),
    }),
};

static EFFICIENT: Profile = Profile {
    name: "arrowlakeh-efficient",
    signature: SIGNATURE,
    pmu: PmuKind::Perfmon(&EFFICIENT_PMU),
    events: skymont_events::EVENTS,
    fixed_events: skymont_events::FIXED_EVENTS,
    geometry: lunarlake::EFFICIENT_CACHES,
    microarchitecture: lunarlake::EFFICIENT_CORE,
    hybrid: Some(Hybrid { core_type: 0x20, native_model: 3, efficient: None, low_power: Some(&LOW_POWER) }),
};

/// They are on another die, and have no last-level cache; here they have that of the others.
static LOW_POWER: Profile = Profile {
    name: "arrowlakeh-low-power",
    signature: SIGNATURE,
    pmu: PmuKind::Perfmon(&LOW_POWER_PMU),
    events: crestmont_events::EVENTS,
    fixed_events: crestmont_events::FIXED_EVENTS,
    geometry: super::Geometry {
        l2: crestmont::METEOR_LAKE_EFFICIENT.geometry.l2,
        llc: lunarlake::CACHES.llc,
        ..crestmont::SERVER_CACHES
    },
    microarchitecture: crestmont::CORE,
    hybrid: Some(Hybrid { core_type: 0x20, native_model: 2, efficient: None, low_power: None }),
};
