//! The processor that this runs on: whose PMU is modelled, how many CPUs there are, and whether hpm takes it.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use vpmu::Profile;
use vpmu::event::{Event, EventSet};
use vpmu::profile::{self, EventSpec, PmuKind};

use super::programs::{PERIOD, hpmctl};

/// The profile whose processor `/proc/cpuinfo` shows.
///
/// # Errors
/// There is none of this family and model.
pub(crate) fn profile() -> Result<&'static Profile> {
    let text = std::fs::read_to_string("/proc/cpuinfo").context("reading /proc/cpuinfo")?;
    let field = |name: &str| -> Option<u32> {
        let line =
            text.lines().find(|line| line.split(':').next().is_some_and(|field| field.trim() == name))?;
        line.split(':').nth(1)?.trim().parse().ok()
    };
    let family = field("cpu family").context("/proc/cpuinfo shows no family")?;
    let model = field("model").context("/proc/cpuinfo shows no model")?;
    let found = profile::every().find(|profile| identity(profile) == (family, model));
    found.with_context(|| format!("no profile has processors of family {family}, model {model:#x}"))
}

/// Vendors' families do not meet but for 15, where their models do not. Family and model, with their extensions, of
/// `CPUID.01H:EAX` (SDM Vol. 2A, CPUID).
pub(crate) fn identity(profile: &Profile) -> (u32, u32) {
    let signature = profile.signature;
    let family = signature >> 8 & 0xf;
    let extended = if family == 0xf { signature >> 20 & 0xff } else { 0 };
    (family + extended, signature >> 4 & 0xf | signature >> 12 & 0xf0)
}

/// CPUs that are online.
pub(super) fn cpus() -> Result<usize> {
    Ok(std::thread::available_parallelism().context("asking for the number of CPUs")?.get())
}

/// The CPUs that there are, whether or not the calling thread may run on them.
pub(super) fn every_cpu() -> Result<Vec<usize>> {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")
        .context("reading which CPUs there are")?;
    let last: usize =
        possible.trim().rsplit('-').next().unwrap_or("0").parse().context("the last CPU's number")?;
    Ok((0..=last).collect())
}

/// The branch records of a processor.
pub(crate) struct BranchRecords {
    /// How many branches they hold.
    pub(crate) depth: usize,
    /// Whether hardware can have them follow calls (SDM Vol. 3B, "LBR Call Stack": from Haswell on).
    pub(crate) follow_calls: bool,
}

/// What an Intel processor has of them.
pub(crate) fn branch_records(profile: &Profile) -> Result<BranchRecords> {
    const EN_CALLSTACK: u64 = 1 << 9;
    let pmu = profile.perfmon().with_context(|| format!("{} has no such records", profile.name))?;
    Ok(match pmu.extended.arch_lbr {
        // Bit n: a depth of 8 * (n + 1).
        Some(lbr) => BranchRecords { depth: 8 * (1 + lbr.depths.ilog2() as usize), follow_calls: true },
        None => BranchRecords {
            depth: pmu.lbr_depth.into(),
            follow_calls: pmu.lbr_select_mask & EN_CALLSTACK != 0,
        },
    })
}

/// The precise event that is sampled: loads that missed the first-level cache. Processors before Ivy Bridge count the loads
/// that hit each level only; there it is the hits of the third level, where the programs' memory lies.
pub(crate) fn sampled_event(profile: &Profile) -> Result<&'static EventSpec> {
    let one = |event| precise_event(profile, event);
    one(Event::LoadL1Miss).or_else(|| one(Event::LoadL3Hit)).context("no precise event counts missing loads")
}

/// The precise event that counts just this.
pub(crate) fn precise_event(profile: &Profile, what: Event) -> Option<&'static EventSpec> {
    let counts = EventSet::of(&[what]);
    profile.events.iter().find(|spec| spec.precise && spec.counts == counts)
}

/// hpmctl's name of [`sampled_event`]: the generic one, where the generic one means it.
fn sampled_name(profile: &Profile) -> Result<&'static str> {
    let spec = sampled_event(profile)?;
    Ok(if spec.counts == EventSet::of(&[Event::LoadL1Miss]) { "l1d-load-miss" } else { spec.name })
}

/// What is sampled on a processor, and how.
pub(crate) struct Sampled {
    /// hpmctl's names of events in user mode.
    pub(crate) events: String,
    /// The period.
    pub(crate) period: u64,
    /// More of `hpmctl record`'s options.
    pub(crate) options: &'static [&'static str],
}

/// Period of IBS, a prime too: its samples are interrupts, whose own ops count towards the next one. Also of what is as frequent.
const LONG_PERIOD: u64 = 10_007;

/// On Intel's processors [`sampled_event`], which is one event for each type of core. On AMD's, IBS samples ops of every kind, of which
/// those that load have their data's source; where it does not exist, misses are sampled by interrupts.
pub(super) fn sampled() -> Result<Sampled> {
    Ok(match profile()?.pmu {
        PmuKind::Amd(facts) if facts.ibs == 0 => {
            Sampled { events: "DATA_CACHE_MISSES:u".to_owned(), period: PERIOD, options: &["--imprecise"] }
        }
        PmuKind::Amd(_) => {
            Sampled { events: "ibs_op/cnt_ctl=1/u".to_owned(), period: LONG_PERIOD, options: &[] }
        }
        PmuKind::Netburst(_) => {
            Sampled { events: "l1d-load-miss:u".to_owned(), period: PERIOD, options: &[] }
        }
        PmuKind::Perfmon(_) => {
            Sampled { events: format!("{}:u", sampled_name(profile()?)?), period: PERIOD, options: &[] }
        }
    })
}

/// As [`sampled`], but all loads where hardware writes records of them: the model need not follow its caches for those, which makes a
/// guest many times slower, and one that checks itself so slow that its programs starve.
pub(super) fn sampled_lightly() -> Result<Sampled> {
    match profile()?.pmu {
        PmuKind::Perfmon(_) => Ok(Sampled { events: LOADS.to_owned(), period: LONG_PERIOD, options: &[] }),
        PmuKind::Amd(_) | PmuKind::Netburst(_) => sampled(),
    }
}

/// hpmctl's name of loads in user mode, which is one event for each type of core.
pub(super) const LOADS: &str = "load:u";

/// Whether the processor counts loads and stores only together, as accesses to the data cache: AMD's before Zen.
pub(crate) fn counts_accesses(profile: &Profile) -> bool {
    profile.amd().is_some_and(|facts| facts.event(LS_DISPATCH).is_none())
}

/// LsDispatch, which tells loads from stores (PPR 56214, PMCx029).
pub(super) const LS_DISPATCH: u16 = 0x29;

/// hpmctl's names of instructions, branches, loads and stores in user mode. Of a hybrid part the first two are the same on every
/// core; loads, and then stores, are one event for each type of core. Some have one event in place of the last two
/// ([`counts_accesses`]).
pub(super) fn counted_events() -> Result<&'static str> {
    Ok(if counts_accesses(profile()?) {
        "instructions:u,branch:u,DATA_CACHE_ACCESSES:u"
    } else {
        "instructions:u,branch:u,load:u,store:u"
    })
}

/// What hpm says when it does not take this processor's PMU; `None` when it counts.
///
/// # Errors
/// hpmctl cannot be started, or does not refuse in one sentence.
pub(super) fn refusal() -> Result<Option<String>> {
    let output = hpmctl(&["stat", "--source", "driver", "-e", "instructions", "--", "true"])?
        .stdout(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(None);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    ensure!(said.lines().count() == 1, "it said more than one line, or nothing: {said:?}");
    ensure!(!said.contains("panicked"), "it panicked: {said}");
    Ok(Some(said))
}

#[cfg(test)]
mod tests {
    use vpmu::profile::Hybrid;

    use super::*;

    #[test]
    fn every_profile_is_a_processor_of_its_own_and_an_event_to_sample() {
        let mut all: Vec<(u32, u32)> = profile::every().map(identity).collect();
        let profiles = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), profiles);
        for known in [(6, 0x5e), (0xf, 4), (0x10, 4), (0x19, 0x61)] {
            assert!(all.contains(&known), "{known:x?} is not among {all:x?}");
        }
        for profile in profile::ALL {
            let name = sampled_name(profile).expect(profile.name);
            for other in profile.hybrid.into_iter().flat_map(Hybrid::others) {
                assert_eq!(sampled_name(other).ok(), Some(name), "{} has other cores", profile.name);
            }
        }
    }
}
