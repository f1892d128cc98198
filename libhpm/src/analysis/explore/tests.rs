//! A small trace explored: Sweeney's steps on records whose every number is known.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

/// A worker whose IPC falls before the marker `gc`, and a helper on the other CPU.
fn records() -> Records {
    records_of(["instructions:u", "cycles:u", "l1d-load-miss:u"])
}

/// The same where these were counted.
fn records_of(events: [&str; 3]) -> Records {
    let worker = |number: u64, instructions: u64| Record {
        cpu: (number % 2) as u32,
        pid: 1,
        tid: 1,
        thread: "worker".into(),
        function: if number == 3 { "pthread_mutex_lock" } else { "compute" }.into(),
        start_ns: number * 10 * MS,
        end_ns: number * 10 * MS + 8 * MS,
        end: Some(if number == 3 { QuantumEnd::Yielded } else { QuantumEnd::Timer }),
        samples: 2,
        lost: 0,
        counts: vec![instructions, 1000, 1000 - instructions / 4],
    };
    let helper = Record {
        cpu: 1,
        tid: 2,
        thread: "helper".into(),
        start_ns: 2 * MS,
        end_ns: 3 * MS,
        end: Some(QuantumEnd::Preempted),
        ..worker(0, 0)
    };
    let helper = Record { counts: vec![0, 0, 0], ..helper };
    let all = vec![worker(3, 800), worker(2, 1200), worker(1, 1600), worker(0, 2000), helper];
    let marker = |time_ns, text: &str| Marker { time_ns, text: text.into() };
    Records::new(
        events.map(str::to_owned).to_vec(),
        all,
        vec![marker(40 * MS as i64, "gc"), marker(-5, "start")],
    )
}

fn chosen(text: &str) -> Vec<u64> {
    let (records, definitions) = (records(), Definitions::default());
    let filter = Metric::new(text, &RecordScope::new(&records, &definitions)).unwrap();
    filter.choose(&records).map(|record| record.start_ns / MS).collect()
}

#[test]
fn filters_choose_by_thread_cpu_duration_metric_marker_and_function() {
    assert_eq!(chosen("1"), [0, 2, 10, 20, 30]);
    assert_eq!(chosen("thread ~ \"help\""), [2]);
    assert_eq!(chosen("cpu == 0"), [0, 20]);
    assert_eq!(chosen("duration_ns < 5 ms"), [2]);
    assert_eq!(chosen("ipc < 1.3"), [20, 30]);
    assert_eq!(chosen("function ~ \".*lock.*\""), [30]);
    assert_eq!(chosen("end == \"preempted\""), [2]);
    assert_eq!(chosen("next_marker == \"gc\" and until_marker_ns < 15 ms"), [20, 30]);
    assert_eq!(chosen("last_marker == \"start\" and since_marker_ns < 4 ms"), [2]);
}

#[test]
fn sets_have_names_and_are_united_intersected_and_subtracted() {
    let records = records();
    let mut definitions = Definitions::default();
    definitions.define("slow", "ipc < 1.3").unwrap();
    definitions.define("first_cpu", "cpu == 0").unwrap();
    let choose = |text: &str| -> Vec<u64> {
        let filter = Metric::new(text, &RecordScope::new(&records, &definitions)).unwrap();
        filter.choose(&records).map(|record| record.start_ns / MS).collect()
    };
    assert_eq!(choose("slow or first_cpu"), [0, 20, 30]);
    assert_eq!(choose("slow and first_cpu"), [20]);
    assert_eq!(choose("slow and not first_cpu"), [30]);
}

#[test]
fn names_that_are_not_there_say_so() {
    let (records, definitions) = (records(), Definitions::default());
    let sentence =
        |text: &str| Metric::new(text, &RecordScope::new(&records, &definitions)).unwrap_err().to_string();
    assert!(sentence("branch_miss_rate").contains("`branch-misses`"), "{}", sentence("branch_miss_rate"));
    assert!(sentence("durations_ns > 1").contains("did you mean `duration_ns`"));
}

#[test]
fn statistics_of_known_values() {
    let (records, definitions) = (records(), Definitions::default());
    let ipc = Metric::new("ipc", &RecordScope::new(&records, &definitions)).unwrap();
    let s = Statistics::of(records.all().iter().map(|record| ipc.of(&records, record)));
    assert_eq!((s.count, s.undefined), (4, 1), "the helper has no cycles");
    // 2.0, 1.6, 1.2, 0.8 in the order of time.
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{a} {b}");
    close(s.sum, 5.6);
    close(s.mean, 1.4);
    close(s.min, 0.8);
    close(s.max, 2.0);
    close(s.mean_delta, 0.4);
    close(s.sd, (0.8_f64 / 3.0).sqrt());
    let none = Statistics::of([f64::NAN]);
    assert_eq!((none.count, none.undefined, none.sum), (0, 1, 0.0));
    assert!([none.min, none.max, none.mean, none.sd, none.mean_delta].iter().all(|value| value.is_nan()));
    let one = Statistics::of([3.0, f64::NAN]);
    assert_eq!((one.count, one.min, one.max, one.mean), (1, 3.0, 3.0, 3.0));
    assert!(one.sd.is_nan() && one.mean_delta.is_nan(), "a single value does not differ: {one:?}");
    let two = Statistics::of([3.0, 3.0]);
    assert_eq!((two.sd, two.mean_delta), (0.0, 0.0));
}

#[test]
fn correlation_of_known_values() {
    let of = |pairs: &[(f64, f64)]| Correlation::of(pairs.iter().copied());
    // Anscombe's first quartet (The American Statistician 27, 1973): r = 0.816.
    let x = [10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0];
    let y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68];
    let quartet = Correlation::of(x.into_iter().zip(y));
    assert!((quartet.r.unwrap() - 0.81642).abs() < 1e-5, "{quartet:?}");
    let (low, high) = quartet.interval.unwrap();
    assert!((low - 0.4244).abs() < 1e-3 && (high - 0.9507).abs() < 1e-3, "{quartet:?}");
    assert_eq!(of(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]).r, Some(1.0));
    assert_eq!(of(&[(1.0, 5.0), (2.0, 5.0)]).r, None);
    assert_eq!(of(&[(f64::NAN, 5.0)]), Correlation { count: 0, r: None, interval: None });
}

#[test]
fn a_name_is_the_sum_of_the_events_of_each_type_of_core() {
    let (records, mut definitions) =
        (records_of(["instructions", "cpu_core/load/u", "cpu_atom/load/u"]), Definitions::default());
    let overall = |text: &str, definitions: &Definitions| {
        Metric::new(text, &RecordScope::new(&records, definitions)).map(|it| it.overall(records.all()))
    };
    let [core, atom] = ["`cpu_core/load/u`", "`cpu_atom/load/u`"].map(|name| overall(name, &definitions));
    let both = core.unwrap() + atom.unwrap();
    assert!(both > 0.0);
    assert_eq!([overall("load", &definitions), overall("load:u", &definitions)], [Ok(both), Ok(both)]);
    assert_eq!(overall("load / 2", &definitions), Ok(both / 2.0));
    assert!(overall("load:k", &definitions).is_err());
    definitions.define("load", "instructions").unwrap();
    assert_eq!(
        overall("load", &definitions),
        overall("instructions", &definitions),
        "what was defined goes first"
    );
}

#[test]
fn what_many_records_come_to_is_computed_of_their_sums() {
    let (records, definitions) = (records(), Definitions::default());
    let scope = RecordScope::new(&records, &definitions);
    let overall = |text: &str| Metric::new(text, &scope).unwrap().overall(records.all());
    assert_eq!(overall("ipc"), 5600.0 / 4000.0);
    assert_eq!(overall("duration_ns"), 33e6);
    assert_eq!(overall("samples"), 10.0);
    assert!(overall("cpu").is_nan() && overall("until_marker_ns").is_nan());
}

#[test]
fn timelines_show_who_ran_where_and_how_it_ended() {
    let records = records();
    let all: Vec<&Record> = records.all().iter().collect();
    // 38 ms in 19 cells of 2 ms.
    let draw = |timeline: Timeline| -> Vec<(u32, String, String)> {
        let digit = |cell: &Cell| cell.most.map_or('.', |id| char::from_digit(id, 10).unwrap());
        let end =
            |cell: &Cell| cell.end.map_or(' ', |end| if end == QuantumEnd::Yielded { 'y' } else { 'p' });
        let lane = |lane: &Lane| {
            (lane.id, lane.cells.iter().map(digit).collect(), lane.cells.iter().map(end).collect())
        };
        timeline.lanes(&all, 19).iter().map(lane).collect()
    };
    let lane = |id, cells: &str, ends: &str| (id, cells.to_owned(), ends.to_owned());
    let threads = [
        lane(1, "0000.1111.0000.1111", "                  y"),
        lane(2, ".1.................", " p                 "),
    ];
    assert_eq!(draw(Timeline::Threads), threads);
    let cpus = [
        lane(0, "1111......1111.....", "                   "),
        lane(1, ".2...1111......1111", " p                y"),
    ];
    assert_eq!(draw(Timeline::Cpus), cpus);
}

proptest! {
    /// Whatever the records are, nothing panics, and each record is in exactly one of a set and its complement.
    #[test]
    fn any_records(
        rows in prop::collection::vec((0_u32..4, 0_u32..5, 0_u64..1000, 0_u64..1000, prop::collection::vec(0_u64..9, 0..3)), 1..30),
        cells in 0_usize..50,
    ) {
        let record = |(cpu, tid, start_ns, end_ns, counts): (u32, u32, u64, u64, Vec<u64>)| Record {
            cpu, pid: tid, tid, thread: "t".into(), function: "f".into(), start_ns, end_ns, end: None, samples: 0, lost: 0, counts,
        };
        let records = Records::new(vec!["cycles".into()], rows.into_iter().map(record).collect(), vec![]);
        let definitions = Definitions::default();
        let scope = RecordScope::new(&records, &definitions);
        let some = Metric::new("cycles > 3 and cpu < 2", &scope).unwrap();
        let others = Metric::new("not (cycles > 3 and cpu < 2)", &scope).unwrap();
        prop_assert_eq!(some.choose(&records).count() + others.choose(&records).count(), records.all().len());
        let all: Vec<&Record> = records.all().iter().collect();
        for timeline in [Timeline::Threads, Timeline::Cpus] {
            for lane in timeline.lanes(&all, cells) {
                prop_assert_eq!(lane.cells.len(), cells.max(1));
                prop_assert!(lane.cells.iter().any(|cell| cell.most.is_some()));
            }
        }
    }
}
