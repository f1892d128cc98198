//! The processor the guest sees, per profile of the PMU model.

use anyhow::{Context, Result};

/// A profile of the PMU model and QEMU's processor of the same generation.
struct Profile {
    name: &'static str,
    /// QEMU's `-cpu`: without what TCG cannot do (it would only warn), and without x2APIC, because the plugin
    /// reads LVTPC through the xAPIC page.
    cpu: &'static str,
}

/// From Ice Lake on what the guest sees beside the PMU is Skylake: QEMU's later processors differ in features that TCG
/// lacks. The leaves of `CPUID` up to 23H, which the PMU model answers, must be in range.
const LATER: &str =
    "Skylake-Client-v1,-x2apic,-pcid,-tsc-deadline,-hle,-invpcid,-rtm,-mpx,-xsavec,-xsaves,level=0x23";

const PROFILES: [Profile; 12] = [
    Profile { name: "nehalem", cpu: "Nehalem-v1" },
    Profile { name: "westmere", cpu: "Westmere-v1" },
    // Linux refuses PEBS on Sandy Bridge before microcode 28H; the revision is in the upper half.
    Profile { name: "sandybridge", cpu: "SandyBridge-v1,-x2apic,-tsc-deadline,ucode-rev=0x2f00000000" },
    Profile { name: "ivybridge", cpu: "IvyBridge-v1,-x2apic,-tsc-deadline" },
    Profile { name: "haswell", cpu: "Haswell-v2,-x2apic,-pcid,-tsc-deadline,-invpcid" },
    Profile { name: "broadwell", cpu: "Broadwell-v2,-x2apic,-pcid,-tsc-deadline,-invpcid" },
    Profile {
        name: "skylake",
        cpu: "Skylake-Client-v1,-x2apic,-pcid,-tsc-deadline,-hle,-invpcid,-rtm,-mpx,-xsavec,-xsaves",
    },
    Profile { name: "icelake", cpu: LATER },
    Profile { name: "sapphirerapids", cpu: LATER },
    Profile { name: "graniterapids", cpu: LATER },
    Profile { name: "alderlake", cpu: LATER },
    Profile { name: "clearwaterforest", cpu: LATER },
];

/// QEMU's `-cpu` for a profile.
///
/// # Errors
/// When there is no such profile: the message lists them.
pub(crate) fn cpu(name: &str) -> Result<&'static str> {
    let known = PROFILES.iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ");
    let profile = PROFILES.iter().find(|profile| profile.name == name);
    profile
        .map(|profile| profile.cpu)
        .with_context(|| format!("there is no profile {name}; known are: {known}"))
}
