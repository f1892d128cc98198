//! The processors that can be modelled.

/// A processor: its PMU and its microarchitecture.
#[derive(Debug)]
pub struct Profile {
    /// The name by which a user chooses it, for example `skylake`.
    pub name: &'static str,
    /// CPUID display family (SDM Vol. 2A, CPUID leaf 1).
    pub family: u32,
    /// CPUID display model.
    pub model: u32,
}

/// The profile of this name.
#[must_use]
pub fn by_name(name: &str) -> Option<&'static Profile> {
    ALL.iter().copied().find(|profile| profile.name == name)
}

/// Every profile.
pub static ALL: &[&Profile] = &[&SKYLAKE];

/// 6th generation Intel Core (client Skylake): PerfMon version 4, PEBS record format 3.
pub static SKYLAKE: Profile = Profile { name: "skylake", family: 6, model: 94 };
