//! Where issue slots go: the top-down method (Yasin, "A Top-Down method for performance analysis and counters architecture",
//! ISPASS 2014), levels 1 and 2, as far as a PMU's own events tell; where they do not, in how many cycles which part stalled.
//!
//! The formulas are those of Intel's TMA metrics for each core, in the form that needs no PERF_METRICS register. What a PMU
//! cannot split is left whole.

/// What to count, and how to read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The events, as [`crate::event::parse`] knows them, in the order in which [`Plan::shares`] wants their counts.
    pub events: Vec<&'static str>,
    method: Method,
    level: u8,
}

/// A part of all slots or cycles.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Share {
    /// What they went to.
    pub name: &'static str,
    /// The share of level 1 that it is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub part_of: Option<&'static str>,
    /// From 0 to 1. Those of one level add up to 1 only where the last of them is taken to be the rest.
    pub share: f64,
}

/// How a PMU's counts become shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// Sandy Bridge to Skylake: four slots a cycle; the back end is the rest.
    FourWide {
        /// The back end can be split.
        memory: bool,
    },
    /// Ice Lake: slots are counted; bad speculation is the rest.
    IceLake,
    /// Golden Cove, Redwood Cove: all parts are counted.
    GoldenCove,
    /// Gracemont, Darkmont: all parts are counted, and slots are their sum.
    SumOfParts,
    /// No slots: cycles in which something stalled, which overlap.
    Stalls,
}

/// Level 1.
const RETIRING: &str = "retiring";
const BAD_SPECULATION: &str = "bad speculation";
const FRONT_END: &str = "front end bound";
const BACK_END: &str = "back end bound";

const FOUR_WIDE: [&str; 5] = [
    "cycles",
    "IDQ_UOPS_NOT_DELIVERED.CORE",
    "UOPS_ISSUED.ANY",
    "UOPS_RETIRED.RETIRE_SLOTS",
    "INT_MISC.RECOVERY_CYCLES",
];
/// Level 2: IDQ_UOPS_NOT_DELIVERED.CYCLES_0_UOPS_DELIV.CORE is the event with a counter mask of the core's width.
const FOUR_WIDE_2: [&str; 4] =
    ["cpu/event=0x9c,umask=0x01,cmask=4/", "branch-misses", "MACHINE_CLEARS.COUNT", "IDQ.MS_UOPS"];
/// What splits the back end from Skylake on.
const MEMORY: [&str; 5] = [
    "CYCLE_ACTIVITY.STALLS_MEM_ANY",
    "CYCLE_ACTIVITY.STALLS_TOTAL",
    "EXE_ACTIVITY.1_PORTS_UTIL",
    "EXE_ACTIVITY.2_PORTS_UTIL",
    "EXE_ACTIVITY.BOUND_ON_STORES",
];
/// The last is INT_MISC.CLEARS_COUNT: times that the allocator began to recover.
const ICE_LAKE: [&str; 6] = [
    "TOPDOWN.SLOTS_P",
    "UOPS_RETIRED.SLOTS",
    "IDQ_UOPS_NOT_DELIVERED.CORE",
    "INT_MISC.UOP_DROPPING",
    "TOPDOWN.BACKEND_BOUND_SLOTS",
    "cpu/event=0x0d,umask=0x01,cmask=1,edge/",
];
const ICE_LAKE_2: [&str; 5] = [
    "cpu/event=0x9c,umask=0x01,cmask=5/",
    "branch-misses",
    "MACHINE_CLEARS.COUNT",
    "UOPS_ISSUED.ANY",
    "IDQ.MS_UOPS",
];
const GOLDEN_COVE: [&str; 6] = [
    "TOPDOWN.SLOTS_P",
    "UOPS_RETIRED.SLOTS",
    "TOPDOWN.BAD_SPEC_SLOTS",
    "IDQ_BUBBLES.CORE",
    "INT_MISC.UOP_DROPPING",
    "TOPDOWN.BACKEND_BOUND_SLOTS",
];
const GOLDEN_COVE_2: [&str; 4] = [
    "UOPS_RETIRED.MS",
    "TOPDOWN.BR_MISPREDICT_SLOTS",
    "cpu/event=0x9c,umask=0x01,cmask=6/",
    "TOPDOWN.MEMORY_BOUND_SLOTS",
];
const GRACEMONT: [&str; 4] =
    ["TOPDOWN_RETIRING.ALL", "TOPDOWN_BAD_SPECULATION.ALL", "TOPDOWN_FE_BOUND.ALL", "TOPDOWN_BE_BOUND.ALL"];
const DARKMONT: [&str; 4] = [
    "TOPDOWN_RETIRING.ALL_P",
    "TOPDOWN_BAD_SPECULATION.ALL_P",
    "TOPDOWN_FE_BOUND.ALL_P",
    "TOPDOWN_BE_BOUND.ALL_P",
];
const SUM_OF_PARTS_2: [&str; 1] = ["TOPDOWN_BAD_SPECULATION.MISPREDICT"];

/// Stalls, and what they are called; those of one PMU differ.
const STALLS_SANDY_BRIDGE: [&str; 4] =
    ["cycles", "UOPS_ISSUED.STALL_CYCLES", "UOPS_RETIRED.STALL_CYCLES", "RESOURCE_STALLS.ANY"];
const STALLS_NEHALEM: [&str; 3] = ["cycles", "RAT_STALLS.ANY", "RESOURCE_STALLS.ANY"];

/// What to count on a PMU for the method's level 1 or 2, or for stalls instead. `smt` says that two threads share each core.
///
/// # Errors
/// Why neither can be had, in one sentence.
pub fn plan(pmu: &str, level: u8, smt: bool) -> Result<Plan, String> {
    let four_wide = |memory: bool| {
        let split: &[&str] = if memory { &MEMORY } else { &[] };
        (Method::FourWide { memory }, FOUR_WIDE.to_vec(), [&FOUR_WIDE_2, split].concat())
    };
    let (method, first, second) = match pmu {
        // Their slots are counted for both threads of a core, and whose they are cannot be told.
        "sandybridge" | "ivybridge" | "haswell" | "broadwell" | "skylake" if smt => {
            (Method::Stalls, STALLS_SANDY_BRIDGE.to_vec(), vec![])
        }
        "sandybridge" | "ivybridge" | "haswell" | "broadwell" => four_wide(false),
        "skylake" => four_wide(true),
        "icelake" => (Method::IceLake, ICE_LAKE.to_vec(), [&ICE_LAKE_2[..], &MEMORY].concat()),
        "goldencove" | "redwoodcove" => (Method::GoldenCove, GOLDEN_COVE.to_vec(), GOLDEN_COVE_2.to_vec()),
        "gracemont" => (Method::SumOfParts, GRACEMONT.to_vec(), SUM_OF_PARTS_2.to_vec()),
        "darkmont" => (Method::SumOfParts, DARKMONT.to_vec(), SUM_OF_PARTS_2.to_vec()),
        "merom" | "core2" | "nehalem" | "westmere" => (Method::Stalls, STALLS_NEHALEM.to_vec(), vec![]),
        pmu if pmu.contains('+') => {
            return Err(format!(
                "the core types of the hybrid PMU {pmu} have different slots, so that there are no shares of both: bind the \
                 program to one type and count that type's events with -e"
            ));
        }
        "k8" | "family10h" | "zen3" | "zen4" => {
            return Err(format!(
                "of the {pmu} PMU hpm knows no top-down method: count its stalls with -e resource-stall"
            ));
        }
        pmu => return Err(format!("the {pmu} PMU counts neither issue slots nor stalls")),
    };
    let events = if level > 1 { [first, second].concat() } else { first };
    Ok(Plan { events, method, level })
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
        self.method != Method::Stalls
    }

    /// What shares rest on, where that needs saying.
    #[must_use]
    pub fn remark(&self) -> &'static str {
        match (self.method, self.level) {
            (Method::Stalls, _) => {
                "This PMU does not tell whose issue slots are empty, so these are cycles in which a part stalled; they overlap."
            }
            (Method::FourWide { .. } | Method::IceLake, _) => "",
            (Method::GoldenCove | Method::SumOfParts, 1) => "",
            (Method::GoldenCove, _) => {
                "Each share of level 1 is counted by itself; what they lack to 100 % is told by none."
            }
            (Method::SumOfParts, _) => "Front and back end are not split on this PMU.",
        }
    }

    /// The shares that counts in the order of [`Plan::events`] come to, scaled where events took turns; one that cannot be
    /// computed is left out. Level 2 follows the part of level 1 that it splits.
    #[must_use]
    pub fn shares(&self, counts: &[Option<u64>]) -> Vec<Share> {
        let counts = Counts { events: &self.events, values: counts };
        let found = match self.method {
            Method::FourWide { memory } => four_wide(&counts, memory),
            Method::IceLake => ice_lake(&counts),
            Method::GoldenCove => golden_cove(&counts),
            Method::SumOfParts => sum_of_parts(&counts),
            Method::Stalls => Some(stalls(&counts)),
        };
        let known = |share: &Share| share.share.is_finite();
        let mut shares: Vec<Share> = found.unwrap_or_default().into_iter().filter(known).collect();
        // Counts are not read at one instant, and scaled ones not at the same times.
        shares.iter_mut().for_each(|share| share.share = share.share.clamp(0.0, 1.0));
        shares
    }
}

/// A share of level 1, with the parts that it is split into.
fn level(
    name: &'static str,
    share: f64,
    parts: [(&'static str, Option<f64>); 2],
) -> impl Iterator<Item = Share> {
    let part = move |(part, share): (&'static str, Option<f64>)| {
        Some(Share { name: part, part_of: Some(name), share: share? })
    };
    std::iter::once(Share { name, part_of: None, share }).chain(parts.into_iter().filter_map(part))
}

/// A whole in two parts, the first of which is known.
fn split(whole: f64, names: [&'static str; 2], first: Option<f64>) -> [(&'static str, Option<f64>); 2] {
    let first = first.map(|first| first.clamp(0.0, whole.max(0.0)));
    [(names[0], first), (names[1], first.map(|first| whole - first))]
}

const FRONT_END_PARTS: [&str; 2] = ["fetch latency", "fetch bandwidth"];
const BACK_END_PARTS: [&str; 2] = ["memory bound", "core bound"];
const BAD_SPECULATION_PARTS: [&str; 2] = ["branch mispredictions", "machine clears"];
const RETIRING_PARTS: [&str; 2] = ["microcode", "other micro-operations"];

/// Bad speculation is shared out by how often each cause comes.
fn mispredicted(counts: &Counts<'_>, bad: f64) -> Option<f64> {
    let (misses, clears) = (counts.of("branch-misses")?, counts.of("MACHINE_CLEARS.COUNT")?);
    Some(if misses + clears > 0.0 { bad * misses / (misses + clears) } else { 0.0 })
}

/// The part of the back end that waits for memory, by cycles in which execution stalls.
fn memory_bound(counts: &Counts<'_>, back_end: f64, retiring: f64) -> Option<f64> {
    let stores = counts.of("EXE_ACTIVITY.BOUND_ON_STORES")?;
    let waiting = counts.of("CYCLE_ACTIVITY.STALLS_MEM_ANY")? + stores;
    let few = counts.of("EXE_ACTIVITY.1_PORTS_UTIL")? + retiring * counts.of("EXE_ACTIVITY.2_PORTS_UTIL")?;
    let all = counts.of("CYCLE_ACTIVITY.STALLS_TOTAL")? + few + stores;
    Some(if all > 0.0 { back_end * waiting / all } else { 0.0 })
}

fn four_wide(counts: &Counts<'_>, memory: bool) -> Option<Vec<Share>> {
    const WIDTH: f64 = 4.0;
    let slots = WIDTH * counts.of("cycles")?;
    let (issued, retired) = (counts.of("UOPS_ISSUED.ANY")?, counts.of("UOPS_RETIRED.RETIRE_SLOTS")?);
    let front_end = counts.of("IDQ_UOPS_NOT_DELIVERED.CORE")? / slots;
    let retiring = retired / slots;
    let bad = ((issued - retired + WIDTH * counts.of("INT_MISC.RECOVERY_CYCLES")?) / slots).max(0.0);
    let back_end = (1.0 - front_end - retiring - bad).max(0.0);
    let starved = counts.of(FOUR_WIDE_2[0]).map(|cycles| WIDTH * cycles / slots);
    let microcode = counts.of("IDQ.MS_UOPS").map(|uops| retired / issued * uops / slots);
    let waiting = memory.then(|| memory_bound(counts, back_end, retiring)).flatten();
    Some(four([retiring, bad, front_end, back_end], [microcode, mispredicted(counts, bad), starved, waiting]))
}

/// The four shares of level 1 in order, each with its first part.
fn four(shares: [f64; 4], firsts: [Option<f64>; 4]) -> Vec<Share> {
    let names = [RETIRING, BAD_SPECULATION, FRONT_END, BACK_END];
    let parts = [RETIRING_PARTS, BAD_SPECULATION_PARTS, FRONT_END_PARTS, BACK_END_PARTS];
    let all = names.into_iter().zip(shares).zip(parts.into_iter().zip(firsts));
    all.flat_map(|((name, share), (parts, first))| level(name, share, split(share, parts, first))).collect()
}

fn ice_lake(counts: &Counts<'_>) -> Option<Vec<Share>> {
    const WIDTH: f64 = 5.0;
    let slots = counts.of("TOPDOWN.SLOTS_P")?;
    let retired = counts.of("UOPS_RETIRED.SLOTS")?;
    let retiring = retired / slots;
    let dropped = counts.of("INT_MISC.UOP_DROPPING")?;
    let front_end = (counts.of("IDQ_UOPS_NOT_DELIVERED.CORE")? - dropped).max(0.0) / slots;
    let back_end = (counts.of("TOPDOWN.BACKEND_BOUND_SLOTS")? + WIDTH * counts.of(ICE_LAKE[5])?) / slots;
    let bad = (1.0 - front_end - retiring - back_end).max(0.0);
    let starved = counts.of(ICE_LAKE_2[0]).map(|cycles| (WIDTH * cycles - dropped) / slots);
    let microcode = || Some(retired / counts.of("UOPS_ISSUED.ANY")? * counts.of("IDQ.MS_UOPS")? / slots);
    let waiting = memory_bound(counts, back_end, retiring);
    Some(four(
        [retiring, bad, front_end, back_end],
        [microcode(), mispredicted(counts, bad), starved, waiting],
    ))
}

fn golden_cove(counts: &Counts<'_>) -> Option<Vec<Share>> {
    const WIDTH: f64 = 6.0;
    let slots = counts.of("TOPDOWN.SLOTS_P")?;
    let of_slots = |event: &str| Some(counts.of(event)? / slots);
    let dropped = of_slots("INT_MISC.UOP_DROPPING")?;
    let front_end = (of_slots("IDQ_BUBBLES.CORE")? - dropped).max(0.0);
    let level_1 = [
        of_slots("UOPS_RETIRED.SLOTS")?,
        of_slots("TOPDOWN.BAD_SPEC_SLOTS")?,
        front_end,
        of_slots("TOPDOWN.BACKEND_BOUND_SLOTS")?,
    ];
    let starved = of_slots(GOLDEN_COVE_2[2]).map(|cycles| WIDTH * cycles - dropped);
    let [microcode, missed, memory] = [GOLDEN_COVE_2[0], GOLDEN_COVE_2[1], GOLDEN_COVE_2[3]].map(of_slots);
    Some(four(level_1, [microcode, missed, starved, memory]))
}

fn sum_of_parts(counts: &Counts<'_>) -> Option<Vec<Share>> {
    let part = |place: usize| Some(counts.values.get(place).copied().flatten()? as f64);
    let parts = [part(0)?, part(1)?, part(2)?, part(3)?];
    let slots: f64 = parts.iter().sum();
    let missed = counts.of(SUM_OF_PARTS_2[0]).map(|count| count / slots);
    Some(four(parts.map(|part| part / slots), [None, missed, None, None]))
}

fn stalls(counts: &Counts<'_>) -> Vec<Share> {
    let names = [
        ("UOPS_ISSUED.STALL_CYCLES", "nothing issued"),
        ("UOPS_RETIRED.STALL_CYCLES", "nothing retired"),
        ("RAT_STALLS.ANY", "renaming stalled"),
        ("RESOURCE_STALLS.ANY", "allocation waited for a resource"),
    ];
    let share =
        |(event, name)| Some(Share { name, part_of: None, share: counts.of(event)? / counts.of("cycles")? });
    names.into_iter().filter_map(share).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{self, pmus};

    /// Shares of a plan with these counts, in percent.
    fn shares(pmu: &str, level: u8, counts: &[(&str, u64)]) -> Vec<(&'static str, i64)> {
        let plan = plan(pmu, level, false).unwrap();
        let count = |event: &&str| counts.iter().find(|(name, _)| name == event).map(|(_, count)| *count);
        let values: Vec<Option<u64>> = plan.events.iter().map(count).collect();
        let shares = plan.shares(&values);
        shares.into_iter().map(|share| (share.name, (share.share * 100.0).round() as i64)).collect()
    }

    #[test]
    fn every_event_of_every_plan_exists_and_level_1_fits() {
        for pmu in pmus().filter(|pmu| plan(pmu, 1, false).is_ok()) {
            for (level, smt) in [(1, false), (2, false), (1, true)] {
                let plan = plan(pmu, level, smt).unwrap();
                let events: Vec<_> = plan
                    .events
                    .iter()
                    .map(|name| event::parse(name, pmu).unwrap_or_else(|error| panic!("{pmu}: {error}")))
                    .collect();
                let listed: Vec<_> = events
                    .iter()
                    .zip(&plan.events)
                    .filter(|(_, name)| !name.contains('/'))
                    .map(|(event, _)| event.clone())
                    .collect();
                // Those with a counter mask of their own are in no table; general counters take them.
                let general = if matches!(pmu, "merom" | "core2") {
                    2
                } else {
                    4 + 4 * u32::from(!plan.events.contains(&"cycles"))
                };
                let spare = events.len() - listed.len();
                if level == 1 {
                    let fits = event::fit(&listed, pmu, general - spare as u32);
                    assert!(fits.is_ok(), "{pmu} {smt}: {fits:?}");
                }
            }
        }
    }

    #[test]
    fn what_has_no_slots_says_so() {
        let without: Vec<&str> = pmus().filter(|pmu| plan(pmu, 1, false).is_err()).collect();
        assert_eq!(without, ["netburst", "netburst_p", "k8", "family10h", "zen3", "zen4"]);
        assert!(plan("netburst", 1, false).unwrap_err().contains("neither issue slots nor stalls"));
        assert!(plan("goldencove+gracemont", 1, false).unwrap_err().contains("bind the program"));
        assert!(
            !plan("skylake", 2, true).unwrap().of_slots() && plan("skylake", 2, false).unwrap().of_slots()
        );
        let counts = [("cycles", 100), ("RAT_STALLS.ANY", 20), ("RESOURCE_STALLS.ANY", 50)];
        let expected = [("renaming stalled", 20), ("allocation waited for a resource", 50)];
        assert_eq!(shares("nehalem", 1, &counts), expected);
    }

    /// 1000 cycles of 4 slots: 1000 not delivered, 1200 retired of 1300 issued, 25 cycles of recovery; the rest is the back end's.
    #[test]
    fn four_slots_a_cycle() {
        let counts = [
            ("cycles", 1000),
            ("IDQ_UOPS_NOT_DELIVERED.CORE", 1000),
            ("UOPS_ISSUED.ANY", 1300),
            ("UOPS_RETIRED.RETIRE_SLOTS", 1200),
            ("INT_MISC.RECOVERY_CYCLES", 25),
            ("cpu/event=0x9c,umask=0x01,cmask=4/", 150),
            ("branch-misses", 9),
            ("MACHINE_CLEARS.COUNT", 1),
            ("IDQ.MS_UOPS", 130),
            ("CYCLE_ACTIVITY.STALLS_MEM_ANY", 300),
            ("CYCLE_ACTIVITY.STALLS_TOTAL", 350),
            ("EXE_ACTIVITY.1_PORTS_UTIL", 20),
            ("EXE_ACTIVITY.2_PORTS_UTIL", 100),
            ("EXE_ACTIVITY.BOUND_ON_STORES", 0),
        ];
        let level_1 =
            [("retiring", 30), ("bad speculation", 5), ("front end bound", 25), ("back end bound", 40)];
        assert_eq!(shares("haswell", 1, &counts), level_1);
        let expected = [
            ("retiring", 30),
            ("microcode", 3),
            ("other micro-operations", 27),
            ("bad speculation", 5),
            ("branch mispredictions", 5),
            ("machine clears", 1),
            ("front end bound", 25),
            ("fetch latency", 15),
            ("fetch bandwidth", 10),
            ("back end bound", 40),
            ("memory bound", 30),
            ("core bound", 10),
        ];
        assert_eq!(shares("skylake", 2, &counts), expected);
        assert!(!shares("haswell", 2, &counts).iter().any(|(name, _)| *name == "memory bound"));
        assert!(shares("skylake", 1, &counts[1..]).is_empty(), "without cycles there is nothing");
    }

    #[test]
    fn slots_that_are_counted() {
        let counts = [
            ("TOPDOWN.SLOTS_P", 1000),
            ("UOPS_RETIRED.SLOTS", 400),
            ("IDQ_UOPS_NOT_DELIVERED.CORE", 210),
            ("IDQ_BUBBLES.CORE", 210),
            ("INT_MISC.UOP_DROPPING", 10),
            ("TOPDOWN.BACKEND_BOUND_SLOTS", 300),
            ("cpu/event=0x0d,umask=0x01,cmask=1,edge/", 2),
            ("TOPDOWN.BAD_SPEC_SLOTS", 90),
            ("TOPDOWN.BR_MISPREDICT_SLOTS", 80),
            ("TOPDOWN.MEMORY_BOUND_SLOTS", 250),
            ("cpu/event=0x9c,umask=0x01,cmask=6/", 20),
            ("UOPS_RETIRED.MS", 40),
        ];
        let level_1 =
            [("retiring", 40), ("bad speculation", 9), ("front end bound", 20), ("back end bound", 31)];
        assert_eq!(shares("icelake", 1, &counts), level_1);
        let two = shares("goldencove", 2, &counts);
        for expected in [
            ("back end bound", 30),
            ("memory bound", 25),
            ("machine clears", 1),
            ("fetch latency", 11),
            ("microcode", 4),
        ] {
            assert!(two.contains(&expected), "{expected:?} {two:?}");
        }
        let parts = [
            ("TOPDOWN_RETIRING.ALL", 50),
            ("TOPDOWN_BAD_SPECULATION.ALL", 10),
            ("TOPDOWN_FE_BOUND.ALL", 20),
            ("TOPDOWN_BE_BOUND.ALL", 20),
        ];
        let level_1 =
            [("retiring", 50), ("bad speculation", 10), ("front end bound", 20), ("back end bound", 20)];
        assert_eq!(shares("gracemont", 1, &parts), level_1);
    }
}
