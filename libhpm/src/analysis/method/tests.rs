//! Step 1 to the bottleneck table on events that are written down here.

use proptest::prelude::*;

use super::*;

fn event(kind: CallKind, function: u32, frame: u64, time: u64) -> CallEvent {
    CallEvent { kind, function, site: function as u16, frame, time, counts: [0; MAX_COUNTS] }
}

/// A thread that calls as it is told, and keeps its own stack and clock.
#[derive(Default)]
struct Script {
    events: Vec<CallEvent>,
    depth: u64,
    now: u64,
}

impl Script {
    const TOP: u64 = 0x7fff_0000;

    fn frame(&self) -> u64 {
        Self::TOP - 32 * self.depth
    }

    /// Calls a function that works for itself so long, and whatever `inside` does.
    fn call(&mut self, function: u32, own: u64, inside: impl FnOnce(&mut Self)) {
        self.enter(function);
        self.now += own;
        inside(self);
        self.events.push(event(CallKind::Exit, function, self.frame(), self.now));
        self.depth -= 1;
    }

    fn enter(&mut self, function: u32) {
        self.depth += 1;
        self.events.push(event(CallKind::Enter, function, self.frame(), self.now));
    }

    fn graph(&self) -> (CallGraph, Mismatches) {
        let (mut matcher, mut graph) = (CallMatcher::new(), CallGraph::new());
        self.events.iter().for_each(|event| matcher.push(event, &mut graph));
        let mismatches = matcher.finish(&mut graph);
        (graph, mismatches)
    }

    fn invocations(&self) -> Vec<Invocation> {
        #[derive(Default)]
        struct All(Vec<Invocation>);
        impl Calls for All {
            fn enter(&mut self, _: Option<usize>, _: u32) -> usize {
                0
            }
            fn leave(&mut self, _: usize, invocation: &Invocation) {
                self.0.push(*invocation);
            }
        }
        let (mut matcher, mut all) = (CallMatcher::new(), All::default());
        self.events.iter().for_each(|event| matcher.push(event, &mut all));
        matcher.finish(&mut all);
        all.0
    }
}

const NAMES: [&str; 10] = [
    "main",
    "init",
    "readData",
    "readElement",
    "print",
    "sortData",
    "compare",
    "swap",
    "printData",
    "printElement",
];

fn id(name: &str) -> u32 {
    NAMES.iter().position(|known| *known == name).unwrap() as u32
}

/// The program of Figure 3. Its table has 1800 for main and 1830 for what main would call if `print` were among it, so that
/// `print` has to be called by one of the others; here it is by `readData`. The table's 200 for one call of `readData` is 300, as its
/// total and number of calls have it.
fn figure_3() -> Script {
    let mut script = Script::default();
    script.call(id("main"), 0, |script| {
        script.call(id("init"), 30, |_| {});
        script.call(id("readData"), 70, |script| {
            (0..50).for_each(|_| script.call(id("readElement"), 4, |_| {}));
            script.call(id("print"), 30, |_| {});
        });
        script.call(id("sortData"), 200, |script| {
            for round in 0..300 {
                script.call(id("compare"), 2, |_| {});
                if round % 6 != 0 {
                    script.call(id("swap"), 2, |_| {});
                }
            }
        });
        script.call(id("printData"), 20, |script| {
            (0..50).for_each(|_| script.call(id("printElement"), 3, |_| {}));
        });
    });
    script
}

#[test]
fn figure_3_is_annotated_as_its_table_says() {
    let (graph, mismatches) = figure_3().graph();
    assert_eq!(mismatches, Mismatches::default());
    let profile = graph.profile();
    assert_eq!(profile.total, 1800);
    let row = |name: &str| {
        let of = profile.functions.iter().find(|function| function.function == id(name)).unwrap();
        (of.total, of.per_call(), of.calls)
    };
    assert_eq!(row("main"), (1800, 1800.0, 1));
    assert_eq!(row("init"), (30, 30.0, 1));
    assert_eq!(row("readData"), (300, 300.0, 1));
    assert_eq!(row("readElement"), (200, 4.0, 50));
    assert_eq!(row("print"), (30, 30.0, 1));
    assert_eq!(row("sortData"), (1300, 1300.0, 1));
    assert_eq!(row("compare"), (600, 2.0, 300));
    assert_eq!(row("swap"), (500, 2.0, 250));
    assert_eq!(row("printData"), (170, 170.0, 1));
    assert_eq!(row("printElement"), (150, 3.0, 50));
    assert_eq!(graph.roots().count(), 1);
    assert_eq!(graph.nodes().len(), NAMES.len(), "each function has one chain of callers");
    assert_eq!(graph.callees()[0].len(), 4);
}

/// "θ_weight = 10 % and θ_grain = 5 % would select methods whose total execution time is more than 180 and whose average execution
/// time is more than 90: main, readData and sortData".
#[test]
fn figure_3_is_selected_as_the_text_says() {
    let profile = figure_3().graph().0.profile();
    let selection = select(&profile, Thresholds { weight: 0.1, grain: 0.05 });
    let names: Vec<&str> = selection.functions.iter().map(|&function| NAMES[function as usize]).collect();
    assert_eq!(names, ["main", "sortData", "readData"]);
    assert_eq!(selection.invocations, 3);
    assert!((selection.estimated_overhead - 3.0 / 656.0).abs() < 1e-12);
    let all = select(&profile, Thresholds { weight: 0.0, grain: 0.0 });
    assert_eq!((all.functions.len(), all.estimated_overhead), (10, 1.0));
}

#[test]
fn a_proposal_has_the_most_phases_that_can_be_afforded() {
    let profile = figure_3().graph().0.profile();
    let at_most = |overhead: f64| propose(&profile, |point| point.estimated_overhead <= overhead);
    let one_percent = at_most(0.01).unwrap();
    assert_eq!(one_percent.functions.len(), 6, "all that are called once: 6 of 656 invocations");
    assert!(one_percent.estimated_overhead <= 0.01);
    assert_eq!(at_most(1.0).unwrap().functions.len(), 10);
    assert_eq!(at_most(0.001), None, "already main is more than that");
    let points = grid(&profile, &[0.1, 0.01], &[0.05, 0.001]);
    let cells: Vec<(usize, u64)> = points.iter().map(|point| (point.functions, point.invocations)).collect();
    assert_eq!(cells, [(3, 3), (6, 603), (4, 4), (10, 656)]);
}

#[test]
fn an_exit_that_skips_frames_closes_them() {
    let mut script = Script::default();
    script.enter(1);
    script.now += 10;
    script.enter(2);
    script.now += 10;
    script.enter(3);
    script.now += 10;
    // An exception from 3 to 1, which then leaves.
    script.depth = 1;
    script.events.push(event(CallKind::Exit, 1, script.frame(), 40));
    let (graph, mismatches) = script.graph();
    assert_eq!(mismatches, Mismatches { unwound: 2, ..Mismatches::default() });
    let totals: Vec<(u32, u64, u64)> =
        graph.nodes().iter().map(|node| (node.function, node.total, node.own)).collect();
    assert_eq!(totals, [(1, 40, 10), (2, 30, 10), (3, 20, 20)]);
    let ends: Vec<End> = script.invocations().iter().map(|invocation| invocation.end).collect();
    assert_eq!(ends, [End::Unwound, End::Unwound, End::Returned]);
}

/// `while (setjmp(b) < 3) f(b);` where f never returns.
#[test]
fn a_call_again_after_longjmp_is_no_recursion() {
    let mut script = Script::default();
    script.enter(1);
    for _ in 0..3 {
        script.depth = 1;
        script.enter(2);
        script.now += 5;
    }
    script.depth = 1;
    script.events.push(event(CallKind::Exit, 1, script.frame(), script.now));
    let (graph, mismatches) = script.graph();
    assert_eq!(mismatches.unwound, 3);
    assert_eq!(graph.nodes()[1], Node { function: 2, caller: Some(0), calls: 3, total: 15, own: 15 });
}

/// A function that the compiler put into another one shares its stack pointer, also into itself.
#[test]
fn inlined_functions_share_a_frame() {
    let at = |kind, function, site, time| CallEvent { site, ..event(kind, function, 0x1000, time) };
    let events = vec![
        at(CallKind::Enter, 1, 1, 0),
        at(CallKind::Enter, 2, 2, 10),
        at(CallKind::Enter, 2, 3, 20),
        at(CallKind::Exit, 2, 4, 30),
        at(CallKind::Exit, 2, 5, 40),
        at(CallKind::Exit, 1, 6, 50),
    ];
    let script = Script { events, ..Script::default() };
    let (graph, mismatches) = script.graph();
    assert_eq!(mismatches, Mismatches::default());
    let two = graph.profile().functions[1];
    assert_eq!((two.calls, two.total, two.own), (2, 30, 30), "of recursion the outermost time counts");
}

/// A tail call of the hook comes with the caller's stack pointer.
#[test]
fn a_tail_exit_ends_what_is_further_in() {
    let events = vec![
        event(CallKind::Enter, 1, 0x1000, 0),
        event(CallKind::Enter, 2, 0xf00, 10),
        event(CallKind::Enter, 2, 0xe00, 15),
        event(CallKind::TailExit, 2, 0xf00, 20),
        event(CallKind::TailExit, 2, 0x1000, 25),
        event(CallKind::TailExit, 9, 0x1000, 26),
        event(CallKind::Exit, 1, 0x1000, 30),
    ];
    let script = Script { events, ..Script::default() };
    let (graph, mismatches) = script.graph();
    assert_eq!(mismatches, Mismatches { orphans: 1, ..Mismatches::default() });
    assert_eq!(graph.profile().functions[1].total, 15);
    assert_eq!(graph.nodes()[0].own, 15);
}

#[test]
fn what_does_not_match_is_counted() {
    let events = vec![
        event(CallKind::Exit, 7, 0x2000, 5),
        event(CallKind::Enter, 1, 0x1000, 10),
        event(CallKind::Mark, 0, 0, 4),
    ];
    let script = Script { events, ..Script::default() };
    let (graph, mismatches) = script.graph();
    let expected = Mismatches { orphans: 1, unfinished: 1, backwards: 1, unwound: 0 };
    assert_eq!(mismatches, expected);
    assert_eq!(graph.profile().total, 0);
}

fn run(events: &[&str], factor: u64, calls: &[(u32, [u64; 2])]) -> Run {
    let observation = |(index, (function, counts)): (usize, &(u32, [u64; 2]))| {
        let mut all = [0; MAX_COUNTS];
        all[..2].copy_from_slice(&counts.map(|count| count * factor));
        Observation {
            function: *function,
            thread: 0,
            at_ns: index as u64 * 1000,
            time_ns: 1000.0,
            outermost: true,
            counts: all,
        }
    };
    let observations: Vec<Observation> = calls.iter().enumerate().map(observation).collect();
    let mut whole = [0; MAX_COUNTS];
    for seen in &observations {
        whole.iter_mut().zip(seen.counts).for_each(|(sum, count)| *sum += count);
    }
    let events = events.iter().map(ToString::to_string).collect();
    Run { events, whole_ns: 1000.0 * calls.len() as f64, observations, whole }
}

#[test]
fn repeated_runs_are_averaged_call_by_call() {
    let base = &["instructions", "cycles"];
    let runs = [
        run(base, 1, &[(1, [100, 100]), (2, [100, 400]), (1, [100, 300])]),
        run(base, 3, &[(1, [100, 200]), (2, [100, 400]), (1, [100, 300])]),
        run(&["instructions", "misses"], 1, &[(1, [100, 1]), (2, [100, 9]), (1, [100, 2])]),
    ];
    let merged = merge(&runs, Some("instructions"));
    assert_eq!(merged.events, ["instructions", "cycles", "misses"]);
    assert_eq!(merged.runs["cycles"], 2);
    let one = merged.phases.iter().find(|phase| phase.function == 1).unwrap();
    assert_eq!(one.rates["cycles"], [1.5, 3.0]);
    assert_eq!(one.begins["cycles"], [0, 2000]);
    assert_eq!((one.calls, one.time_ns, one.differs), (2.0, 2000.0, false));
    let table = bottlenecks(&merged, 0.01);
    assert_eq!((table.metric, table.events.as_slice()), (Metric::Cpi, &["misses".to_owned()][..]));
    assert_eq!(table.rows.iter().map(|row| row.function).collect::<Vec<_>>(), [Some(2), Some(1)]);
    assert_eq!(table.rows[0].cpi, Some(400.0 * 4.0 / 2.0 / (100.0 * 5.0 / 3.0)));
    let (cause, factor) = table.rows[0].cause.unwrap();
    assert!(cause == 0 && factor > 2.0, "{factor}");
    assert_eq!(table.rows[1].cause, None, "its misses are below the average");
}

#[test]
fn events_of_different_privilege_are_different_events() {
    let calls = [(1, [100, 300]), (2, [100, 100])];
    let user = &["instructions", "cycles:u"];
    let mut runs = [run(user, 1, &calls), run(&["instructions", "cycles:k"], 5, &calls)];
    assert_eq!((take_common_privilege(&mut runs), base(&runs)), (None, Some("instructions")));
    let merged = merge(&runs, base(&runs));
    assert_eq!(merged.events, ["instructions", "cycles:u", "cycles:k"], "no mean of both");
    assert_eq!(merged.phases[0].rates["cycles:u"].len(), 1);
    let table = bottlenecks(&merged, 0.01);
    assert_eq!(
        (table.whole.cpi, &table.per_ms),
        (None, &table.events),
        "cycles of user mode are no CPI of both modes"
    );
    assert_eq!(table.whole.rates, [Some(400.0 / 2e-3), Some(2000.0 / 2e-3)]);

    let both = &["instructions:u", "cycles:u"];
    let mut runs = [run(both, 1, &calls), run(&["instructions:u", "misses"], 1, &calls)];
    assert_eq!(take_common_privilege(&mut runs), None);
    let table = bottlenecks(&merge(&runs, base(&runs)), 0.01);
    assert_eq!((table.whole.cpi, table.per_ms.as_slice()), (Some(2.0), &["misses".to_owned()][..]));

    let mut runs = [run(both, 1, &calls)];
    assert_eq!(take_common_privilege(&mut runs), Some((true, false)));
    assert_eq!(runs[0].events, ["instructions", "cycles"], "where all have one it is told beside them");
    assert_eq!(base(&[run(&["misses", "faults"], 1, &calls)]), None);
}

#[test]
fn runs_that_differ_are_not_averaged_call_by_call() {
    let events = &["instructions", "cycles"];
    let runs = [run(events, 1, &[(1, [100, 100])]), run(events, 1, &[(1, [100, 100]), (1, [100, 900])])];
    let merged = merge(&runs, Some("instructions"));
    assert!(merged.phases[0].differs);
    assert_eq!(merged.phases[0].rates["cycles"], [1.0], "those of the first run");
    assert_eq!(merged.phases[0].calls, 1.5);
    let by_time = merge(&runs, None);
    assert_eq!(by_time.phases[0].rates["cycles"], [100.0 / 1e-3]);
    assert_eq!(bottlenecks(&merge(&[], None), 0.0).rows, []);
}

#[test]
fn components_are_sums_by_name() {
    let found = components([("app", 60, 2), ("libm", 30, 1), ("app", 10, 1)]);
    let rows: Vec<(&str, u64, u64)> =
        found.iter().map(|one| (one.name.as_str(), one.time, one.calls)).collect();
    assert_eq!(rows, [("app", 70, 3), ("libm", 30, 1)]);
    assert!((found[0].share - 0.7).abs() < 1e-12);
    assert!(components([]).is_empty());
}

proptest! {
    /// However entries and exits come, no time is counted twice, and every entry ends once.
    #[test]
    fn times_add_up(steps in prop::collection::vec((0_u32..4, 0_u64..6, 0_u8..4, 0_u64..9), 0..200)) {
        let mut script = Script::default();
        for (function, depth, kind, wait) in steps {
            script.now += wait;
            let kind = [CallKind::Enter, CallKind::Exit, CallKind::TailExit, CallKind::Mark][usize::from(kind)];
            script.events.push(event(kind, function, Script::TOP - 32 * depth, script.now));
        }
        let entries = script.events.iter().filter(|event| event.kind == CallKind::Enter).count() as u64;
        let span = script.events.last().map_or(0, |event| event.time);
        let (graph, _) = script.graph();
        let profile = graph.profile();
        prop_assert_eq!(profile.calls(), entries);
        prop_assert_eq!(profile.functions.iter().map(|function| function.own).sum::<u64>(), profile.total);
        prop_assert!(profile.total <= span);
        prop_assert!(profile.functions.iter().all(|function| function.total <= profile.total));
        for (place, callees) in graph.callees().into_iter().enumerate() {
            let below: u64 = callees.iter().map(|&callee| graph.nodes()[callee].total).sum();
            prop_assert_eq!(graph.nodes()[place].total, graph.nodes()[place].own + below);
        }
    }
}
