//! The views of a trace other than its plain tables, and the options that choose samples.

use std::path::{Path, PathBuf};

use libhpm::trace::{
    Event, EventUse, KernelSymbolRow, MapRow, Meta, QuantumRow, Registers, SampleRow, ThreadChange,
    ThreadRow, Totals, TraceWriter,
};
use tempfile::TempDir;

use super::share;
use super::tests::{KERNEL, meta, report, trace};

fn text(options: &[&str]) -> String {
    let temp = TempDir::new().unwrap();
    report(&trace(&temp, true), options).unwrap().0
}

fn error(options: &[&str]) -> String {
    let temp = TempDir::new().unwrap();
    report(&trace(&temp, true), options).unwrap_err().to_string()
}

#[test]
fn callers_of_all_functions() {
    insta::assert_snapshot!(text(&["--callers"]));
}

#[test]
fn callees_of_one_function() {
    insta::assert_snapshot!(text(&["--callees=read", "--min-share", "0"]));
}

#[test]
fn a_function_that_is_on_no_stack_is_an_error() {
    assert!(error(&["--callers=nobody"]).contains("no sample's stack has a function `nobody`; name it"));
    assert!(
        error(&["--callers=cop"]).contains("no sample's stack has a function `cop`: did you mean `copy`?")
    );
    assert!(
        error(&["--code", "__copy"])
            .ends_with("; no sample lies in a function `__copy`: did you mean `copy`?")
    );
    assert!(
        error(&["--within", "raed"])
            .ends_with("; no sample's stack has a function `raed`: did you mean `read`?")
    );
}

#[test]
fn what_does_not_go_together_is_refused() {
    assert!(error(&["--callers", "--by", "line"]).contains("leave --by out"));
    assert!(error(&["--off-cpu", "--by", "branch"]).contains("waits have no branches"));
    assert!(error(&["--by", "function,branch"]).contains("--by branch has a table of its own"));
    for view in ["--off-cpu", "--wall-clock"] {
        let sentence = error(&[view, "-e", "l1d-load-miss"]);
        assert!(sentence.contains("of no event: leave --event out"), "{sentence}");
    }
    assert!(error(&["--around", "main"]).contains("--around is for --by offset"));
    for meant in [&["--callers", "inner"], &["inner", "--callees"]] {
        let sentence = error(meant);
        assert!(sentence.contains("there is no trace inner: if it is meant for --call"), "{sentence}");
    }
    assert!(error(&["another.hpm"]).contains("hpmctl diff"));
    assert!(error(&["--min-share", "1"]).contains("--min-share is for --callers and --callees"));
    let sentence = error(&["--by", "offset", "--around", "0xzz"]);
    assert!(sentence.contains("`0xzz` is no address: write 0x"), "{sentence}");
    assert!(["nan", "1000", "-1", "x"].iter().all(|wrong| share(wrong).is_err()) && share("0") == Ok(0.0));
}

#[test]
fn options_choose_samples() {
    insta::assert_snapshot!(text(&["--by", "function", "--thread", "helper", "--code", "read"]));
    let samples = |options: &[&str]| -> u64 {
        let json: serde_json::Value = serde_json::from_str(&text(&[options, &["--json"]].concat())).unwrap();
        json["summary"]["events"][0]["sampled"]["samples"].as_u64().unwrap()
    };
    assert_eq!(samples(&["--thread", "7"]), 10);
    assert_eq!(samples(&["--process", "7", "--cpu", "1"]), 4);
    assert_eq!(samples(&["--within", "entry"]), 10);
    assert_eq!(samples(&["--code", "0xffffffff81000300-0xffffffff81000301"]), 1);
    assert_eq!(samples(&["--code", "idle", "--code", "copy"]), 11);
    assert_eq!(samples(&["--filter", "function ~ \"^(idle|copy)$\" and tid > 0"]), 11);
    assert_eq!(samples(&["--filter", "cpu == 1", "--thread", "sort"]), 3);
    assert!(error(&["--filter", "cpu =="]).contains("the expression"));
}

/// A shell's fork that runs another program, and later another process with the same ID.
#[test]
fn a_process_that_runs_another_program_is_one_row() {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("forks.hpm");
    let mut writer = TraceWriter::create(&folder, meta()).unwrap();
    for (tsc, name, what) in [
        (10, "sh", ThreadChange::Fork),
        (20, "sort", ThreadChange::Exec),
        (40, "sort", ThreadChange::Exit),
        (50, "sh", ThreadChange::Fork),
        (60, "cat", ThreadChange::Exec),
    ] {
        let what = what as u8;
        writer
            .thread(&ThreadRow { tsc, pid: 7, tid: 7, name: name.into(), what, ..ThreadRow::default() })
            .unwrap();
    }
    for tsc in [11, 21, 22, 61] {
        let sample = SampleRow { tsc, pid: 7, tid: 7, period: 1000, ip: KERNEL, ..SampleRow::default() };
        writer.sample(&sample).unwrap();
    }
    writer.finish(Totals::default()).unwrap();
    let rows = |options: &[&str], name: &str| -> Vec<(String, u64)> {
        let json = report(&folder, &[options, &["--json"]].concat()).unwrap().0;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let row = |entry: &serde_json::Value| {
            (entry[name].as_str().unwrap().to_owned(), entry["self"]["samples"].as_u64().unwrap())
        };
        json["tables"][0]["entries"].as_array().unwrap().iter().map(row).collect()
    };
    let expected = [("sort".to_owned(), 3), ("cat".to_owned(), 1)];
    assert_eq!(rows(&["--by", "process"], "process"), expected);
    assert_eq!(rows(&["--by", "thread"], "thread"), expected);
    // What is chosen has the name at its own time.
    assert_eq!(rows(&["--by", "thread", "--thread", "sh"], "thread"), [("sort".to_owned(), 1)]);
}

#[test]
fn only_the_event_that_was_asked_for_is_shown() {
    let events = |text: &str| -> Vec<String> {
        let heads = text.lines().filter_map(|line| line.strip_prefix("event "));
        heads.map(|head| head.split_whitespace().next().unwrap().to_owned()).collect()
    };
    assert_eq!(events(&text(&[])), ["l1d-load-miss", "instructions"]);
    let counted = text(&["-e", "instructions"]);
    assert_eq!(events(&counted), ["instructions"]);
    assert!(counted.contains("counted   1,300,000") && !counted.contains("samples"), "{counted}");
    for options in [&["-e", "l1d-load-miss"][..], &["-e", "l1d-load-miss", "--callers"]] {
        let sampled = text(options);
        assert_eq!(events(&sampled), ["l1d-load-miss"]);
        assert!(sampled.contains("copy"), "{sampled}");
    }
    let json: serde_json::Value = serde_json::from_str(&text(&["-e", "instructions", "--json"])).unwrap();
    assert_eq!(json["summary"]["events"].as_array().unwrap().len(), 1);
    assert_eq!(json["summary"]["events"][0]["event"]["name"], "instructions");
}

/// The tables of an event that is not the trace's first are those of the only summary.
#[test]
fn tables_of_a_later_event_are_shown() {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("two.hpm");
    let mut of = meta();
    of.events.reverse();
    let mut writer = TraceWriter::create(&folder, of).unwrap();
    let name = KernelSymbolRow { address: KERNEL, name: "entry".into(), module: None };
    writer.kernel_symbol(&name).unwrap();
    writer.sample(&SampleRow { event: 1, period: 1000, ip: KERNEL, ..SampleRow::default() }).unwrap();
    writer.finish(Totals::default()).unwrap();
    let options = ["-e", "l1d-load-miss", "--by", "function"];
    assert!(report(&folder, &options).unwrap().0.contains("entry     [kernel]"));
    let json = report(&folder, &[&options[..], &["--json"]].concat()).unwrap().0;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["tables"][0]["event"], &json["summary"]["events"][0]["sampled"]["samples"]),
        (&0.into(), &1.into())
    );
}

/// Of quanta that are missing nobody knows whether they would have been chosen; where none is, there is nothing to say.
#[test]
fn lost_quanta_are_nobodys() {
    let temp = TempDir::new().unwrap();
    let folder = trace(&temp, true);
    let quanta = |options: &[&str]| {
        let text = report(&folder, options).unwrap().0;
        text.lines().find(|line| line.starts_with("quanta")).unwrap().to_owned()
    };
    let lost = |options: &[&str]| -> u64 {
        let json = report(&folder, &[options, &["--json"]].concat()).unwrap().0;
        serde_json::from_str::<serde_json::Value>(&json).unwrap()["summary"]["quanta_lost"].as_u64().unwrap()
    };
    assert_eq!(quanta(&["--cpu", "0"]), "quanta    1, 1 lost, which could be anybody's; 2 records lost");
    assert_eq!(quanta(&["--code", "read"]), "quanta    1, 1 lost; 2 records lost");
    assert_eq!((lost(&[]), lost(&["--cpu", "0"])), (1, 1));
    let path = folder.join("meta.json");
    let mut meta: Meta = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    meta.totals.as_mut().unwrap().quanta_lost = 0;
    std::fs::write(&path, serde_json::to_vec(&meta).unwrap()).unwrap();
    assert_eq!(quanta(&["--cpu", "0"]), "quanta    1, 0 lost; 2 records lost");
}

#[test]
fn choosing_nothing_is_an_error() {
    // The quantum of this trace is nobody's.
    for options in [["--thread", "nobody"], ["--code", "nobody"]] {
        let sentence = error(&options);
        assert!(sentence.contains("no sample that was asked for; `hpmctl report --by thread`"), "{sentence}");
    }
    assert!(error(&["--time", "1ms..0%"]).contains("no time of the trace is in 1ms..0%"));
}

/// What is mapped where the data of four samples is.
#[test]
fn data_regions() {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("data.hpm");
    let mut writer = TraceWriter::create(&folder, meta()).unwrap();
    let map = |start, path: &str| MapRow {
        pid: 7,
        start,
        end: start + 0x1000,
        path: path.into(),
        ..MapRow::default()
    };
    writer.map(&map(0x1000, "[heap]")).unwrap();
    writer.map(&map(0x8000, "/lib/libx.so")).unwrap();
    let mut registers = [0; Registers::COUNT];
    registers[Registers::RSP] = 0x7fff_0000_0000;
    for data_address in [0x1008, 0x1010, 0x8ff8, 0x7fff_0000_0010, 0x5000] {
        let sample = SampleRow {
            pid: 7,
            tid: 7,
            period: 1000,
            ip: KERNEL,
            data_address: Some(data_address),
            registers: Some(Registers(registers)),
            ..SampleRow::default()
        };
        writer.sample(&sample).unwrap();
    }
    writer.finish(Totals { counts: vec![5000, 0], ..Totals::default() }).unwrap();
    let rows = |options: &[&str]| -> Vec<(String, u64)> {
        let json = report(&folder, &[options, &["--by", "region", "--json"]].concat()).unwrap().0;
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let entries = json["tables"][0]["entries"].as_array().unwrap();
        let row = |entry: &serde_json::Value| {
            (entry["region"].as_str().unwrap().to_owned(), entry["self"]["samples"].as_u64().unwrap())
        };
        entries.iter().map(row).collect()
    };
    let expected = [("[heap]", 2), ("/lib/libx.so", 1), ("[stack]", 1), ("[unknown]", 1)];
    assert_eq!(rows(&[]), expected.map(|(region, samples)| (region.to_owned(), samples)));
    assert_eq!(rows(&["--data", "libx.so", "--data", "0x1010-0x1018"]).len(), 2);
    assert_eq!(rows(&["--data", "stack"]), [("[stack]".to_owned(), 1)]);
}

/// Instructions of which the first has 60 of 100 samples, and the last ones a single one each.
fn spread(temp: &TempDir, name: &str, samples: &[u64]) -> PathBuf {
    let folder = temp.path().join(name);
    let mut writer = TraceWriter::create(&folder, meta()).unwrap();
    writer.kernel_symbol(&KernelSymbolRow { address: KERNEL, name: "sort".into(), module: None }).unwrap();
    for (place, &count) in (0..).zip(samples) {
        let sample = SampleRow { period: 1000, ip: KERNEL + place * 4, ..SampleRow::default() };
        (0..count).for_each(|_| writer.sample(&sample).unwrap());
    }
    writer.finish(Totals { counts: vec![100_000, 0], ..Totals::default() }).unwrap();
    folder
}

#[test]
fn distributions_of_two_traces_stand_side_by_side() {
    let temp = TempDir::new().unwrap();
    let hot = spread(&temp, "hot.hpm", &[60, 20, 10, 5, 2, 1, 1, 1]);
    let flat = spread(&temp, "flat.hpm", &[2; 50]);
    let svg = temp.path().join("top.svg");
    let options =
        ["--distribution", "--limit", "2", "--picture", svg.to_str().unwrap(), hot.to_str().unwrap()];
    let (text, warnings) = report(&flat, &options).unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");
    insta::assert_snapshot!(text.replace(&format!("{}/", temp.path().display()), ""));
    assert_eq!(std::fs::read_to_string(svg).unwrap().matches("<title>").count(), 58);
}

const MS: u64 = 1_000_000;

/// A trace of a clock with a period of 5 ms, and of switches if they are wanted.
fn clocked(folder: &Path, with_switches: bool) -> TraceWriter {
    let event = |name: &str, period| Event {
        name: name.into(),
        mode: EventUse::Software,
        period,
        user: true,
        kernel: true,
        ..Event::default()
    };
    let mut events = vec![event("cpu-clock", 5 * MS)];
    events.extend(with_switches.then(|| event("context-switches", 1)));
    let mut meta = Meta { events, source: "perf_event".into(), ..meta() };
    meta.clock.tsc_khz = 1_000_000;
    TraceWriter::create(folder, meta).unwrap()
}

/// A thread that runs 10 ms, waits 30 ms in `read`, runs 20 ms elsewhere and is pre-empted for 5 ms; with a sample of the
/// clock each 5 ms, and one of the first switch.
fn waiting(temp: &TempDir, with_switches: bool) -> PathBuf {
    let folder = temp.path().join("waiting.hpm");
    let mut writer = clocked(&folder, with_switches);
    for (offset, name) in [(0, "main"), (0x100, "work"), (0x200, "read")] {
        writer
            .kernel_symbol(&KernelSymbolRow { address: KERNEL + offset, name: name.into(), module: None })
            .unwrap();
    }
    let thread = ThreadRow {
        pid: 7,
        tid: 7,
        name: "sort".into(),
        what: ThreadChange::Start as u8,
        ..ThreadRow::default()
    };
    writer.thread(&thread).unwrap();
    let work = writer.stack(&[KERNEL + 0x110, KERNEL + 0x10], false).unwrap();
    let read = writer.stack(&[KERNEL + 0x210, KERNEL + 0x110, KERNEL + 0x10], false).unwrap();
    let quanta = [(0, 0, 10, 1), (1, 40, 60, 2), (2, 65, 70, 6)];
    for (sequence, start, end, why) in quanta {
        let row = QuantumRow {
            sequence,
            pid: 7,
            tid: 7,
            start_tsc: start * MS,
            end_tsc: end * MS,
            end: why,
            last_ip: Some(KERNEL + 0x110),
            counts: vec![(end - start) * MS; if with_switches { 2 } else { 1 }],
            ..QuantumRow::default()
        };
        writer.quantum(&row).unwrap();
        let sample = |tsc, event, ip, stack| SampleRow {
            tsc,
            pid: 7,
            tid: 7,
            quantum: sequence,
            event,
            period: if event == 0 { 5 * MS } else { 1 },
            ip,
            stack: Some(stack),
            ..SampleRow::default()
        };
        for number in 0..(end - start) / 5 {
            writer.sample(&sample((start + number * 5) * MS, 0, KERNEL + 0x110, work)).unwrap();
        }
        if with_switches && sequence == 0 {
            writer.sample(&sample(end * MS - 1, 1, KERNEL + 0x210, read)).unwrap();
        }
    }
    writer.finish(Totals::default()).unwrap();
    folder
}

#[test]
fn waits_have_their_places() {
    let temp = TempDir::new().unwrap();
    insta::assert_snapshot!(report(&waiting(&temp, true), &["--off-cpu"]).unwrap().0);
}

#[test]
fn the_place_of_a_switch_in_the_kernel_is_where_the_program_called_it() {
    let temp = TempDir::new().unwrap();
    let mut writer = clocked(&temp.path().join("called.hpm"), true);
    let kernel = KernelSymbolRow { address: KERNEL, name: "schedule".into(), module: None };
    writer.kernel_symbol(&kernel).unwrap();
    let mapping = |start, path: &str| MapRow {
        pid: 7,
        start,
        end: start + 0x1000,
        path: path.into(),
        ..MapRow::default()
    };
    writer.map(&mapping(0x1000, "/nowhere/waiter")).unwrap();
    writer.map(&mapping(0x5000, "/nowhere/main")).unwrap();
    let stack = writer.stack(&[KERNEL + 8, KERNEL + 4, 0x1005, 0x5006], false).unwrap();
    for (sequence, start) in [(0, 0), (1, 40)] {
        writer
            .quantum(&QuantumRow {
                sequence,
                pid: 7,
                tid: 7,
                start_tsc: start * MS,
                end_tsc: (start + 10) * MS,
                end: 1,
                last_ip: Some(KERNEL + 8),
                counts: vec![0, 1],
                ..QuantumRow::default()
            })
            .unwrap();
    }
    let switch = SampleRow {
        tsc: 10 * MS - 1,
        pid: 7,
        tid: 7,
        event: 1,
        period: 1,
        ip: KERNEL + 8,
        ..SampleRow::default()
    };
    writer.sample(&SampleRow { stack: Some(stack), ..switch }).unwrap();
    writer.finish(Totals::default()).unwrap();
    let (text, _) = report(&temp.path().join("called.hpm"), &["--off-cpu", "--by", "module"]).unwrap();
    let place = text.lines().find(|line| line.contains("/nowhere/waiter"));
    assert!(place.is_some_and(|line| line.contains("30.000 ms")), "{text}");
    assert!(!text.contains("[kernel]"), "{text}");
}

#[test]
fn wall_clock_time_is_on_a_cpu_or_off_it() {
    let temp = TempDir::new().unwrap();
    let svg = temp.path().join("time.svg");
    let (text, _) =
        report(&waiting(&temp, true), &["--wall-clock", "--picture", svg.to_str().unwrap()]).unwrap();
    insta::assert_snapshot!(text.replace(&format!("{}/", temp.path().display()), ""));
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(
        ["sort: wall-clock time", "read (30,000,000 ns"].iter().all(|words| svg.contains(words)),
        "{svg}"
    );
}

#[test]
fn without_samples_of_switches_a_wait_is_where_the_thread_was_last_seen() {
    let temp = TempDir::new().unwrap();
    let folder = waiting(&temp, false);
    let json = |options: &[&str]| -> serde_json::Value {
        serde_json::from_str(&report(&folder, &[options, &["--json"]].concat()).unwrap().0).unwrap()
    };
    let all = json(&["--off-cpu"]);
    let entry = &all["tables"][0]["entries"][0];
    assert_eq!((&entry["function"], &entry["blocked_ns"]), (&"work".into(), &(30 * MS).into()));
    let late = json(&["--off-cpu", "--time", "30ms..62ms"]);
    assert_eq!(late["all_ns"], serde_json::json!([0, 10 * MS, 2 * MS, 0]));
    assert!(report(&folder, &["--off-cpu"]).unwrap().0.contains("record context-switches with --stacks"));
}

#[test]
fn a_choice_holds_for_waits_and_time_on_cpus() {
    let temp = TempDir::new().unwrap();
    let folder = waiting(&temp, true);
    let all = |options: &[&str]| {
        let json = report(&folder, &[options, &["--json"]].concat()).unwrap().0;
        serde_json::from_str::<serde_json::Value>(&json).unwrap()["all_ns"].clone()
    };
    let whole = all(&["--wall-clock"]);
    assert_eq!(whole, serde_json::json!([35 * MS, 30 * MS, 5 * MS, 0]));
    for options in [["--thread", "sort"], ["--process", "7"], ["--cpu", "0"], ["--within", "work"]] {
        assert_eq!(all(&[&["--wall-clock"], &options[..]].concat()), whole, "{options:?}");
    }
    // All samples of the clock are elsewhere.
    assert_eq!(all(&["--wall-clock", "--code", "read"]), serde_json::json!([0, 30 * MS, 0, 0]));
    // Two of the seven.
    let early = ["--wall-clock", "--filter", "time_ns < 10e6"];
    assert_eq!(all(&early), serde_json::json!([10 * MS, 0, 0, 0]));
    let text = report(&folder, &["--off-cpu", "--code", "read"]).unwrap().0;
    assert!(text.contains("Threads' times are of all code;"), "{text}");
    let error = |options: &[&str]| report(&folder, options).unwrap_err().to_string();
    for options in [["--cpu", "1"], ["--thread", "nobody"], ["--process", "8"]] {
        let sentence = error(&[&["--off-cpu"], &options[..]].concat());
        assert!(sentence.contains("holds no quantum that was asked for"), "{sentence}");
    }
    assert!(error(&["--off-cpu", "--filter", "cpu == 77"]).contains("no wait that was asked for"));
    assert!(error(&["--off-cpu", "--data", "heap"]).contains("leave --data out"));
}

/// A clock that samples user mode counts on in the kernel: of 10 ms its samples stand for 4.
#[test]
fn wall_clock_time_in_the_mode_without_samples_is_told_apart() {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("user.hpm");
    let mut writer = clocked(&folder, false);
    writer
        .quantum(&QuantumRow {
            tid: 7,
            end_tsc: 10 * MS,
            end: 1,
            counts: vec![10 * MS],
            ..QuantumRow::default()
        })
        .unwrap();
    for ip in [0x10, 0x20] {
        writer.sample(&SampleRow { tid: 7, period: 2 * MS, ip, cpu: 0, ..SampleRow::default() }).unwrap();
    }
    writer.finish(Totals { on_cpu_tsc: 10 * MS, counts: vec![10 * MS], ..Totals::default() }).unwrap();
    let path = folder.join("meta.json");
    let mut meta: Meta = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    (meta.events[0].name, meta.events[0].kernel) = ("cpu-clock:u".into(), false);
    std::fs::write(&path, serde_json::to_vec(&meta).unwrap()).unwrap();
    let (text, _) = report(&folder, &["--wall-clock"]).unwrap();
    assert!(text.contains("what they leave is [kernel mode]"), "{text}");
    let json = |options: &[&str]| -> serde_json::Value {
        let options = [&["--wall-clock", "--json"], options].concat();
        serde_json::from_str(&report(&folder, &options).unwrap().0).unwrap()
    };
    let first = &json(&[])["tables"][0]["entries"][0];
    assert_eq!(
        (&first["function"], &first["on_cpu_ns"]),
        (&"[kernel mode]".into(), &(6 * MS).into()),
        "{first}"
    );
    assert_eq!(json(&["--by", "cpu"])["tables"][0]["entries"][0]["on_cpu_ns"], 10 * MS);
    let (text, _) = report(&folder, &[]).unwrap();
    assert!(
        text.contains("remark    counts of cpu-clock:u are the time on CPUs in user and kernel mode"),
        "{text}"
    );
}

#[test]
fn wall_clock_time_needs_a_clock() {
    assert!(error(&["--wall-clock"]).contains("record one of task-clock, cpu-clock, ref-cycles, cycles"));
    assert!(report(Path::new("/nonexistent.hpm"), &["--off-cpu"]).is_err());
}
