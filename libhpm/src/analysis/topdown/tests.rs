//! Plans against the tables of events, shares against counts that are known.

use super::*;
use crate::event::{self, pmus};

/// Shares of a plan with these counts, in percent.
fn shares(pmu: &str, level: u8, counts: &[(&str, u64)]) -> Vec<(&'static str, i64)> {
    let plan = plan(pmu, level, false).unwrap();
    let count = |event: &String| counts.iter().find(|(name, _)| name == event).map(|(_, count)| *count);
    let values: Vec<Option<u64>> = plan.events.iter().map(count).collect();
    let shares = plan.shares(&values);
    shares.into_iter().map(|share| (share.name, (share.share * 100.0).round() as i64)).collect()
}

#[test]
fn every_event_of_every_plan_exists_and_level_1_fits() {
    let hybrids = [
        "goldencove+gracemont",
        "redwoodcove+crestmont",
        "lioncove+skymont",
        "lioncove+skymont+crestmont",
        "cougarcove+darkmont",
    ];
    for pmu in pmus().filter(|pmu| plan(pmu, 1, false).is_ok()).chain(hybrids) {
        for (level, smt) in [(1, false), (2, false), (1, true)] {
            let Ok(plan) = plan(pmu, level, smt) else {
                assert!(hybrids.contains(&pmu) && level == 2, "{pmu} has level 1");
                continue;
            };
            let parse =
                |name: &String| event::parse(name, pmu).unwrap_or_else(|error| panic!("{pmu}: {error}"));
            // Those with a counter mask of their own are in no table; general counters take them.
            let raw = |name: &&String| name.contains("event=");
            let listed: Vec<_> = plan.events.iter().filter(|name| !raw(name)).map(parse).collect();
            plan.events.iter().filter(raw).map(parse).for_each(drop);
            let general = match pmu {
                "merom" | "core2" => 2,
                "gracemont" => 6,
                _ if plan.events.iter().any(|event| event == "cycles") => 4,
                _ => 8,
            };
            let spare = plan.events.len() - listed.len();
            if level == 1 && !hybrids.contains(&pmu) {
                let fits = event::fit(&listed, pmu, general - spare as u32);
                assert!(fits.is_ok(), "{pmu} {smt}: {fits:?}");
            }
        }
    }
}

#[test]
fn what_has_no_slots_says_so() {
    let without: Vec<&str> = pmus().filter(|pmu| plan(pmu, 1, false).is_err()).collect();
    assert_eq!(
        without,
        ["k8", "family10h", "family15h", "family16h", "zen1", "zen2", "zen3", "zen4", "zen5"]
    );
    assert!(plan("unheard of", 1, false).unwrap_err().contains("neither issue slots nor stalls"));
    assert!(plan("goldencove+zen4", 1, false).unwrap_err().contains("zen4"));
    assert!(!plan("skylake", 2, true).unwrap().of_slots() && plan("skylake", 2, false).unwrap().of_slots());
    let counts = [("cycles", 100), ("RAT_STALLS.ANY", 20), ("RESOURCE_STALLS.ANY", 50)];
    let expected = [("renaming stalled", 20), ("allocation waited for a resource", 50)];
    assert_eq!(shares("nehalem", 1, &counts), expected);
    let counts = [("cycles", 1000), ("resource_stall.SBFULL", 70)];
    assert_eq!(shares("netburst", 2, &counts), [("allocation waited for a store buffer", 7)]);
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
    let level_1 = [("retiring", 30), ("bad speculation", 5), ("front end bound", 25), ("back end bound", 40)];
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
    let level_1 = [("retiring", 40), ("bad speculation", 9), ("front end bound", 20), ("back end bound", 31)];
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
}

/// 200 cycles of 5 slots: 500 retired, 200 each that the front and the back end lost; the rest is bad speculation.
#[test]
fn five_slots_a_cycle() {
    let counts = [
        ("cycles", 200),
        ("TOPDOWN_RETIRING.ALL", 500),
        ("TOPDOWN_FE_BOUND.ALL", 200),
        ("TOPDOWN_BE_BOUND.ALL", 200),
        ("TOPDOWN_FE_BOUND.FRONTEND_LATENCY", 150),
        ("TOPDOWN_BE_BOUND.ALLOC_RESTRICTIONS", 30),
        ("TOPDOWN_BAD_SPECULATION.MISPREDICT", 80),
        ("UOPS_RETIRED.MS", 10),
    ];
    let level_1 =
        [("retiring", 50), ("bad speculation", 10), ("front end bound", 20), ("back end bound", 20)];
    assert_eq!(shares("gracemont", 1, &counts), level_1);
    let level_2 = [
        ("retiring", 50),
        ("microcode", 1),
        ("other micro-operations", 49),
        ("bad speculation", 10),
        ("branch mispredictions", 8),
        ("machine clears", 2),
        ("front end bound", 20),
        ("fetch latency", 15),
        ("fetch bandwidth", 5),
        ("back end bound", 20),
        ("core bound", 3),
        ("resource bound", 17),
    ];
    assert_eq!(shares("gracemont", 2, &counts), level_2);
}

#[test]
fn slots_are_the_sum_of_their_parts() {
    let counts = [
        ("TOPDOWN_RETIRING.ALL_P", 50),
        ("TOPDOWN_BAD_SPECULATION.ALL_P", 10),
        ("TOPDOWN_FE_BOUND.ALL_P", 25),
        ("TOPDOWN_BE_BOUND.ALL_P", 15),
    ];
    let level_1 =
        [("retiring", 50), ("bad speculation", 10), ("front end bound", 25), ("back end bound", 15)];
    for pmu in ["crestmont", "skymont", "darkmont"] {
        assert_eq!(shares(pmu, 1, &counts), level_1);
    }
    let seconds = [
        ("TOPDOWN_FE_BOUND.FRONTEND_LATENCY", 20),
        ("TOPDOWN_BE_BOUND.ALLOC_RESTRICTIONS", 3),
        ("TOPDOWN_BAD_SPECULATION.MISPREDICT", 9),
        ("UOPS_RETIRED.MS", 4),
    ];
    let two = shares("crestmont", 2, &[&counts[..], &seconds].concat());
    for expected in [("fetch latency", 20), ("core bound", 3), ("resource bound", 12), ("machine clears", 1)]
    {
        assert!(two.contains(&expected), "{expected:?} {two:?}");
    }
}

/// Each type of cores has shares of its own slots, and none where nothing ran on it.
#[test]
fn a_hybrid_processor_has_shares_for_each_type_of_cores() {
    let counts = [
        ("cpu_core/TOPDOWN.SLOTS_P/", 1000),
        ("cpu_core/UOPS_RETIRED.SLOTS/", 400),
        ("cpu_core/IDQ_BUBBLES.CORE/", 210),
        ("cpu_core/INT_MISC.UOP_DROPPING/", 10),
        ("cpu_core/TOPDOWN.BACKEND_BOUND_SLOTS/", 300),
        ("cpu_core/TOPDOWN.BAD_SPEC_SLOTS/", 90),
        ("cpu_atom/cycles/", 200),
        ("cpu_atom/TOPDOWN_RETIRING.ALL/", 500),
        ("cpu_atom/TOPDOWN_FE_BOUND.ALL/", 200),
        ("cpu_atom/TOPDOWN_BE_BOUND.ALL/", 200),
    ];
    let plan = plan("goldencove+gracemont", 1, true).unwrap();
    let value = |event: &String| counts.iter().find(|(name, _)| name == event).map(|(_, count)| *count);
    let values: Vec<Option<u64>> = plan.events.iter().map(value).collect();
    assert!(plan.of_slots() && values.iter().all(Option::is_some), "{:?}", plan.events);
    let of = |cores: &str, values: &[Option<u64>]| {
        let shares = plan.shares(values).into_iter().filter(|share| share.cores == Some(cores));
        shares.map(|share| (share.share * 100.0).round() as i64).collect::<Vec<_>>()
    };
    assert_eq!(
        (of("cpu_core", &values), of("cpu_atom", &values)),
        (vec![40, 9, 20, 30], vec![50, 10, 20, 20])
    );
    let mut idle = values;
    idle[6..].fill(Some(0));
    assert_eq!((of("cpu_core", &idle), of("cpu_atom", &idle)), (vec![40, 9, 20, 30], vec![]));
    let refusal = super::plan("goldencove+gracemont", 2, true).unwrap_err();
    assert!(refusal.contains("takes 18 events, and a session has 16"), "{refusal}");
}
