//! The processor the guest sees, per profile of the PMU model.

use anyhow::{Context, Result};

/// A profile of the PMU model and QEMU's processor of the same generation.
struct Profile {
    name: &'static str,
    /// QEMU's `-cpu`: without what TCG cannot do (it would only warn), and without x2APIC, because the plugin
    /// reads LVTPC through the xAPIC page.
    cpu: &'static str,
}

const PROFILES: [Profile; 1] = [Profile {
    name: "skylake",
    cpu: "Skylake-Client-v1,-x2apic,-pcid,-tsc-deadline,-hle,-invpcid,-rtm,-mpx,-xsavec,-xsaves",
}];

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
