//! Where issue slots go: the top-down method (Yasin, "A Top-Down method for performance analysis and counters architecture",
//! ISPASS 2014), levels 1 and 2, as far as a PMU's own events tell; where they do not, in how many cycles which part stalled.
//!
//! The formulas are those of Intel's TMA metrics for each core (github.com/intel/perfmon), in the form that needs no PERF_METRICS
//! register. What a PMU cannot split is left whole. On a hybrid processor each type of cores has shares of its own slots.

mod cove;
mod four_wide;
mod mont;
mod stalls;

#[cfg(test)]
mod tests;

use hpm_abi::EVENTS_MAX;

use crate::event::{core_pmus, pmu_prefix};

/// What to count, and how to read it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The events, as [`crate::event::parse`] knows them, in the order in which [`Plan::shares`] wants their counts.
    pub events: Vec<String>,
    parts: Vec<Part>,
    level: u8,
}

/// What is counted on the cores of one type.
#[derive(Clone, Debug)]
struct Part {
    /// Their name in an event; `None` where there is one type only.
    cores: Option<&'static str>,
    method: &'static Method,
    /// The events without that name.
    events: Vec<&'static str>,
}

/// How a PMU's counts become shares.
#[derive(Debug)]
struct Method {
    /// Of issue slots; else of cycles.
    of_slots: bool,
    /// Events of level 1.
    first: &'static [&'static str],
    /// What level 2 needs beside them.
    second: &'static [&'static [&'static str]],
    shares: fn(&Counts<'_>) -> Option<Vec<Share>>,
    /// What has to be said of level 1, and of level 2.
    remarks: [&'static str; 2],
}

/// A part of all slots or cycles.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Share {
    /// The type of cores whose slots they are, as events name it; absent where there is one type only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<&'static str>,
    /// What they went to.
    pub name: &'static str,
    /// The share of level 1 that it is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part_of: Option<&'static str>,
    /// From 0 to 1. Those of one level add up to 1 only where the last of them is taken to be the rest.
    pub share: f64,
}

impl Share {
    /// Its name, with that of the cores where there are several types.
    #[must_use]
    pub fn label(&self) -> String {
        self.cores.map_or_else(|| self.name.to_owned(), |cores| format!("{} ({cores})", self.name))
    }
}

/// What to count on a PMU for the method's level 1 or 2, or for stalls instead. `smt` says that two threads share each core.
///
/// # Errors
/// Why neither can be had, in one sentence.
pub fn plan(pmu: &str, level: u8, smt: bool) -> Result<Plan, String> {
    let parts: Vec<Part> = core_pmus(pmu)
        .map(|(core_type, pmu)| {
            let method = method(pmu, smt)?;
            let second: &[&[&str]] = if level > 1 { method.second } else { &[] };
            let events = std::iter::once(&method.first).chain(second).flat_map(|events| events.iter());
            Ok(Part { cores: pmu_prefix(core_type), method, events: events.copied().collect() })
        })
        .collect::<Result<_, String>>()?;
    let events: Vec<String> = parts.iter().flat_map(Part::named).collect();
    if events.len() > EVENTS_MAX {
        return Err(format!(
            "level {level} of all core types of the {pmu} PMU takes {} events, and a session has {EVENTS_MAX}: count level 1",
            events.len()
        ));
    }
    Ok(Plan { events, parts, level })
}

fn method(pmu: &str, smt: bool) -> Result<&'static Method, String> {
    Ok(match pmu {
        // Their slots are counted for both threads of a core, and whose they are cannot be told.
        "sandybridge" | "ivybridge" | "haswell" | "broadwell" | "skylake" if smt => &stalls::SANDY_BRIDGE,
        "sandybridge" | "ivybridge" | "haswell" | "broadwell" => &four_wide::SANDY_BRIDGE,
        "skylake" => &four_wide::SKYLAKE,
        "icelake" => &cove::ICE_LAKE,
        "goldencove" | "redwoodcove" => &cove::GOLDEN_COVE,
        "lioncove" | "cougarcove" => &cove::LION_COVE,
        "gracemont" => &mont::GRACEMONT,
        "crestmont" | "skymont" | "darkmont" => &mont::CRESTMONT,
        "merom" | "core2" | "nehalem" | "westmere" => &stalls::NEHALEM,
        "netburst" | "netburst_p" => &stalls::NETBURST,
        "k8" | "family10h" | "family15h" | "family16h" | "zen1" | "zen2" | "zen3" | "zen4" | "zen5" => {
            return Err(format!(
                "of the {pmu} PMU hpm knows no top-down method: count its stalls with -e resource-stall"
            ));
        }
        pmu => return Err(format!("the {pmu} PMU counts neither issue slots nor stalls")),
    })
}

impl Part {
    /// The events as these cores have them.
    fn named(&self) -> impl Iterator<Item = String> {
        self.events.iter().map(|event| match (self.cores, event.strip_prefix("cpu/")) {
            (None, _) => (*event).to_owned(),
            (Some(cores), Some(raw)) => format!("{cores}/{raw}"),
            (Some(cores), None) => format!("{cores}/{event}/"),
        })
    }
}

/// Counts by event.
struct Counts<'a> {
    events: &'a [&'static str],
    values: &'a [Option<u64>],
}

impl Counts<'_> {
    /// `None` for an event that was not counted.
    fn of(&self, event: &str) -> Option<f64> {
        let place = self.events.iter().position(|known| *known == event)?;
        Some(self.values.get(place).copied().flatten()? as f64)
    }
}

impl Plan {
    /// Whether shares are of issue slots; else of cycles.
    #[must_use]
    pub fn of_slots(&self) -> bool {
        self.parts.iter().all(|part| part.method.of_slots)
    }

    /// What shares rest on, where that needs saying; with several types of cores, of each.
    #[must_use]
    pub fn remark(&self) -> String {
        let remarks = self.parts.iter().filter_map(|part| {
            let remark = part.method.remarks[usize::from(self.level > 1)];
            let named = part.cores.map_or_else(String::new, |cores| format!("{cores}: "));
            (!remark.is_empty()).then(|| named + remark)
        });
        remarks.collect::<Vec<_>>().join("\n")
    }

    /// The shares that counts in the order of [`Plan::events`] come to, scaled where events took turns; one that cannot be
    /// computed is left out. Level 2 follows the part of level 1 that it splits.
    #[must_use]
    pub fn shares(&self, counts: &[Option<u64>]) -> Vec<Share> {
        let mut rest = counts;
        let mut shares = Vec::new();
        for part in &self.parts {
            let (values, others) = rest.split_at(part.events.len().min(rest.len()));
            rest = others;
            let found = (part.method.shares)(&Counts { events: &part.events, values });
            let known = found.unwrap_or_default().into_iter().filter(|share| share.share.is_finite());
            // Counts are not read at one instant, and scaled ones not at the same times.
            shares.extend(known.map(|share| Share {
                cores: part.cores,
                share: share.share.clamp(0.0, 1.0),
                ..share
            }));
        }
        shares
    }
}

/// Two parts of a share of level 1.
type Parts = [&'static str; 2];

const FRONT_END_PARTS: Parts = ["fetch latency", "fetch bandwidth"];
const BACK_END_PARTS: Parts = ["memory bound", "core bound"];
const BAD_SPECULATION_PARTS: Parts = ["branch mispredictions", "machine clears"];
const RETIRING_PARTS: Parts = ["microcode", "other micro-operations"];

/// The four shares of level 1 (retiring, bad speculation, front end, back end), each with the first of the parts that it is split
/// into, where that is known; the second part is the rest. `back_end` names the parts of the back end. Nothing when there were no
/// slots.
fn four(shares: [f64; 4], firsts: [Option<f64>; 4], back_end: Parts) -> Vec<Share> {
    if !shares.iter().all(|share| share.is_finite()) {
        return vec![];
    }
    let names = ["retiring", "bad speculation", "front end bound", "back end bound"];
    let parts = [RETIRING_PARTS, BAD_SPECULATION_PARTS, FRONT_END_PARTS, back_end];
    let all = names.into_iter().zip(shares).zip(parts.into_iter().zip(firsts));
    all.flat_map(|((name, share), (parts, first))| {
        let first = first.map(|first| first.clamp(0.0, share.max(0.0)));
        let split = [(parts[0], first), (parts[1], first.map(|first| share - first))];
        let part = move |(part, share): (&'static str, Option<f64>)| {
            Some(Share { cores: None, name: part, part_of: Some(name), share: share? })
        };
        let whole = Share { cores: None, name, part_of: None, share };
        std::iter::once(whole).chain(split.into_iter().filter_map(part))
    })
    .collect()
}

/// Bad speculation is shared out by how often each cause comes.
fn mispredicted(counts: &Counts<'_>, bad: f64) -> Option<f64> {
    let (misses, clears) = (counts.of("branch-misses")?, counts.of("MACHINE_CLEARS.COUNT")?);
    Some(if misses + clears > 0.0 { bad * misses / (misses + clears) } else { 0.0 })
}

/// What splits the back end from Skylake to Ice Lake.
const MEMORY: &[&str] = &[
    "CYCLE_ACTIVITY.STALLS_MEM_ANY",
    "CYCLE_ACTIVITY.STALLS_TOTAL",
    "EXE_ACTIVITY.1_PORTS_UTIL",
    "EXE_ACTIVITY.2_PORTS_UTIL",
    "EXE_ACTIVITY.BOUND_ON_STORES",
];

/// The part of the back end that waits for memory, by cycles in which execution stalls; `None` where [`MEMORY`] is not counted.
fn memory_bound(counts: &Counts<'_>, back_end: f64, retiring: f64) -> Option<f64> {
    let stores = counts.of("EXE_ACTIVITY.BOUND_ON_STORES")?;
    let waiting = counts.of("CYCLE_ACTIVITY.STALLS_MEM_ANY")? + stores;
    let few = counts.of("EXE_ACTIVITY.1_PORTS_UTIL")? + retiring * counts.of("EXE_ACTIVITY.2_PORTS_UTIL")?;
    let all = counts.of("CYCLE_ACTIVITY.STALLS_TOTAL")? + few + stores;
    Some(if all > 0.0 { back_end * waiting / all } else { 0.0 })
}
