//! The processor the guest sees, per profile of the PMU model.

use anyhow::{Context, Result, ensure};

/// A profile of the PMU model and QEMU's processor of the same generation.
struct Profile {
    name: &'static str,
    /// QEMU's `-cpu`: without what TCG cannot do (it would only warn), and without x2APIC, because the plugin
    /// reads LVTPC through the xAPIC page.
    cpu: &'static str,
    /// Logical processors per core.
    threads: u32,
}

/// From Ice Lake on what the guest sees beside the PMU is Skylake: QEMU's later processors differ in features that TCG
/// lacks. The leaves of `CPUID` up to 23H, which the PMU model answers, must be in range.
const LATER: &str =
    "Skylake-Client-v1,-x2apic,-pcid,-tsc-deadline,-hle,-invpcid,-rtm,-mpx,-xsavec,-xsaves,level=0x23";

const fn profile(name: &'static str, cpu: &'static str) -> Profile {
    Profile { name, cpu, threads: 1 }
}

/// Of AMD's processors too the guest sees the oldest that has what it needs: TCG lacks features of the later ones.
const ZEN: &str = "EPYC-v1,-x2apic,-topoext,-osvw,-xsavec,-xsaves,-monitor,xlevel=0x80000022";

/// Of the families before Zen the guest sees family 10H's, which TCG can do.
const OPTERON: &str = "Opteron_G3-v1,xlevel=0x8000001b";

const PROFILES: [Profile; 29] = [
    // QEMU has no 64-bit Pentium 4 of its own: its generic 64-bit processor, with that family and model.
    Profile { threads: 2, ..profile("prescott", "kvm64-v1,family=15,model=4,stepping=1") },
    profile("perfmon1", "Conroe-v1,level=10"),
    profile("core2", "Penryn-v1,level=10"),
    profile("nehalem", "Nehalem-v1"),
    profile("westmere", "Westmere-v1"),
    // Linux refuses PEBS on Sandy Bridge before microcode 28H; the revision is in the upper half.
    profile("sandybridge", "SandyBridge-v1,-x2apic,-tsc-deadline,ucode-rev=0x2f00000000"),
    profile("ivybridge", "IvyBridge-v1,-x2apic,-tsc-deadline"),
    profile("haswell", "Haswell-v2,-x2apic,-pcid,-tsc-deadline,-invpcid"),
    profile("broadwell", "Broadwell-v2,-x2apic,-pcid,-tsc-deadline,-invpcid"),
    profile(
        "skylake",
        "Skylake-Client-v1,-x2apic,-pcid,-tsc-deadline,-hle,-invpcid,-rtm,-mpx,-xsavec,-xsaves",
    ),
    profile("icelake", LATER),
    profile("sapphirerapids", LATER),
    profile("graniterapids", LATER),
    profile("alderlake", LATER),
    profile("meteorlake", LATER),
    profile("sierraforest", LATER),
    profile("lunarlake", LATER),
    profile("arrowlakeh", LATER),
    profile("clearwaterforest", LATER),
    profile("pantherlake", LATER),
    profile("k8", "Opteron_G1-v1"),
    profile("family10h", OPTERON),
    profile("family15h", OPTERON),
    profile("family16h", OPTERON),
    profile("zen1", ZEN),
    profile("zen2", ZEN),
    profile("zen3", ZEN),
    profile("zen4", ZEN),
    profile("zen5", ZEN),
];

/// The processor of a profile: QEMU's `-cpu`, and how many logical processors a core has when there are `cpus` of them.
///
/// # Errors
/// When there is no such profile, or it cannot have that many processors: the message says what there is.
pub(crate) fn cpu(name: &str, cpus: u32) -> Result<(&'static str, u32)> {
    let known = PROFILES.iter().map(|profile| profile.name).collect::<Vec<_>>().join(", ");
    let profile = PROFILES.iter().find(|profile| profile.name == name);
    let profile = profile.with_context(|| format!("there is no profile {name}; known are: {known}"))?;
    let threads = profile.threads.min(cpus);
    ensure!(
        cpus.is_multiple_of(threads.max(1)),
        "{name} has {threads} logical processors per core: --cpus must be 1 or a multiple of {threads}"
    );
    Ok((profile.cpu, threads))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logical_processors_come_in_whole_cores() {
        assert_eq!(cpu("skylake", 3).map(|(_, threads)| threads).ok(), Some(1));
        assert_eq!(cpu("prescott", 1).map(|(_, threads)| threads).ok(), Some(1));
        assert_eq!(cpu("prescott", 4).map(|(_, threads)| threads).ok(), Some(2));
        let odd = cpu("prescott", 3).map_err(|error| error.to_string());
        assert!(odd.is_err_and(|message| message.contains("a multiple of 2")));
    }
}
