//! One workload, one generic event, sampled precisely on processors of every kind: the same hot instructions in the same order, and
//! counts that are exact on each.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use vpmu::event::Event;
use vpmu::profile::amd::ZEN_4;
use vpmu::profile::{CORE2, ICE_LAKE, PRESCOTT, Profile, SKYLAKE};
use vpmu::truth::Report;

use crate::check::Tally;
use crate::guest::equivalents::{COUNT, HISTOGRAM};
use crate::lab::{self, Boot};
use crate::machine::Machine;

pub(super) const NAME: &str = "equivalents";
/// Options of `lab run`: the truth counts misses also while no counter asks for them.
const OPTIONS: &[&str] = &["--plugin-arg", crate::lab::TRUTH_OF_ALL];

/// The processors that are compared.
pub(super) const PROFILES: [&Profile; 5] = [&PRESCOTT, &CORE2, &SKYLAKE, &ICE_LAKE, &ZEN_4];

/// What each of `walks`' loads has of its misses.
const SHARES: [f64; 3] = [4.0 / 7.0, 2.0 / 7.0, 1.0 / 7.0];

/// Three shares of each of five processors are held against the truth at once: each may be off by its interval of 99.9 %, where
/// hpmctl prints that of 95 %, so that one run in a hundred fails by chance and not every second one.
const INTERVAL: f64 = 3.29 / 1.96;

/// One hot instruction as hpmctl reports it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Hot {
    /// Instructions from the first load.
    distance: i64,
    share: f64,
    error: f64,
}

/// Those of [`PROFILES`] with these names, all if there are none.
///
/// # Errors
/// A name is none of theirs.
pub(crate) fn chosen(names: &[String]) -> Result<Vec<&'static Profile>> {
    let known = PROFILES.map(|profile| profile.name);
    if let Some(other) = names.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("`{other}` is not compared; these are: {}", known.join(", "));
    }
    let wanted = |profile: &&Profile| names.is_empty() || names.iter().any(|name| name == profile.name);
    Ok(PROFILES.into_iter().filter(wanted).collect())
}

/// Boots each processor, and compares them at the end.
pub(crate) fn run(root: &Path, tally: &mut Tally, profiles: &[&'static Profile]) {
    let mut all = BTreeMap::new();
    for profile in profiles {
        let name = profile.name;
        let mut boot = None;
        tally.run(&format!("{NAME}: the lab runs it on {name}"), || {
            boot = Some(lab::boot(root, NAME, &Machine::of(profile), OPTIONS)?);
            Ok(String::new())
        });
        let Some(boot) = boot else { continue };
        tally.take_in(&format!("{NAME}: {name}"), &boot.report.checks);
        tally.run(&format!("{NAME}: the count on {name} is exact"), || counted(&boot));
        tally.run(&format!("{NAME}: the hot instructions on {name} are the loads"), || {
            let found = hot(&boot)?;
            all.insert(name, found.clone());
            expected(&found)
        });
    }
    tally.run(&format!("{NAME}: all processors have the same hot instructions in the same order"), || {
        same(&all, profiles.len())
    });
}

/// `hpmctl stat` of the generic event, and the truth of the program's loads that missed. The window was opened twice: to be counted,
/// then to be sampled.
fn counted(boot: &Boot) -> Result<String> {
    let count = &boot.report.facts.get(COUNT).context("the guest left no count")?["events"][0]["count"];
    let count = count.as_u64().context("the count is no number")?;
    let truth: Report = serde_json::from_value(boot.truth.clone()).context("the truth")?;
    let window = truth.windows.iter().find(|window| window.tag == "walks");
    // What the event counts (tests/suite/src/guest/equivalents.rs).
    let amd = boot.machine.profile.amd().is_some();
    let event = if amd { Event::L1dReadMiss } else { Event::LoadL1Miss };
    let missed = window.context("the truth has no window walks")?.counts.of(event).user;
    ensure!(count == missed, "hpmctl counted {count}, the truth is {missed}");
    Ok(format!("{count}"))
}

/// The three instructions with most samples, the hottest first.
fn hot(boot: &Boot) -> Result<Vec<Hot>> {
    let histogram = boot.report.facts.get(HISTOGRAM).context("the guest left no histogram")?;
    let entries = histogram["traces"][0]["entries"].as_array().context("the histogram has no entries")?;
    let one = |entry: &Value| -> Option<(u64, Hot)> {
        let estimate = &entry["estimate"];
        let hot = Hot {
            distance: entry["distance"].as_i64()?,
            share: estimate["share"].as_f64()?,
            error: estimate["error"].as_f64()?,
        };
        Some((entry["events"].as_u64()?, hot))
    };
    let mut all: Vec<(u64, Hot)> =
        entries.iter().map(one).collect::<Option<_>>().context("an entry is incomplete")?;
    all.sort_by_key(|(events, _)| std::cmp::Reverse(*events));
    Ok(all.into_iter().take(SHARES.len()).map(|(_, hot)| hot).collect())
}

/// The loads stand one behind another, the hottest first, and have the shares that the program gives them.
fn expected(found: &[Hot]) -> Result<String> {
    let places: Vec<i64> = found.iter().map(|hot| hot.distance).collect();
    ensure!(places == [0, 1, 2], "the hottest are at {places:?} from the first load");
    for (hot, share) in found.iter().zip(SHARES) {
        ensure!((hot.share - share).abs() <= hot.error * INTERVAL, "{hot:?}, where the share is {share:.3}");
    }
    Ok(shown(found))
}

fn shown(found: &[Hot]) -> String {
    let one =
        |hot: &Hot| format!("{:+}: {:.1} % ± {:.1}", hot.distance, hot.share * 100.0, hot.error * 100.0);
    found.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// Every processor agrees with every other: the same places in the same order, and shares whose intervals meet.
fn same(all: &BTreeMap<&str, Vec<Hot>>, wanted: usize) -> Result<String> {
    ensure!(all.len() == wanted, "only {:?} have results", all.keys());
    for (one, here) in all {
        for (other, there) in all {
            for (a, b) in here.iter().zip(there) {
                if a.distance != b.distance || (a.share - b.share).abs() > a.error + b.error {
                    bail!("{one} has {}; {other} has {}", shown(here), shown(there));
                }
            }
        }
    }
    let table: Vec<String> =
        all.iter().map(|(name, found)| format!("\n     {name:<12} {}", shown(found))).collect();
    Ok(table.concat())
}
