//! The program on a machine without the driver: perf_event takes its place where that can be, else there is one clear
//! sentence, a failing exit status, and nothing left behind.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use self::common::said;

fn hpmctl(arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let output =
        Command::new(env!("CARGO_BIN_EXE_hpmctl")).args(arguments).current_dir(&folder).output().unwrap();
    assert_eq!(folder.path().read_dir().unwrap().count(), 0, "{arguments:?} left something behind");
    output
}

fn driver_is_here() -> bool {
    Path::new("/dev/hpm").exists()
}

/// Whether the kernel lets this user measure by perf_event at all, and by hardware counters.
fn perf() -> (bool, bool) {
    (libhpm::source::perf::software().is_ok(), libhpm::source::perf::hardware().is_ok())
}

#[test]
fn asking_for_the_driver_says_that_the_module_is_not_loaded() {
    if driver_is_here() {
        return;
    }
    for arguments in [
        &["stat", "--source", "driver", "--", "true"][..],
        &["record", "--source", "driver", "-e", "load", "--", "true"],
        &["stat", "--source", "driver", "-p", "1"],
    ] {
        let output = hpmctl(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert_eq!(
            said(&output.stderr),
            "hpmctl: /dev/hpm does not exist: the hpm module is not loaded; load it as root with `modprobe hpm` or \
             `insmod hpm.ko`\n"
        );
    }
}

#[test]
fn a_name_that_is_missing_is_not_laid_to_the_module() {
    if driver_is_here() || !perf().0 {
        return;
    }
    let said = |events| said(&hpmctl(&["stat", "-e", events, "true"]).stderr);
    assert!(said("sched:sched_switch").ends_with("`hpmctl list` has the events that it does\n"));
    assert!(said("task-clock,,page-faults").ends_with("as `hpmctl list` lists them\n"), "{}", said(""));
    let near = said("page-fault");
    assert!(near.contains("did you mean `page-faults`? Other events need the hpm module"), "{near}");
    assert!(
        said("l1d-load-miss")
            .contains("; other events need the hpm module, which is not used here: /dev/hpm")
    );
}

#[test]
fn counting_goes_on_by_perf_event_and_says_why() {
    if driver_is_here() {
        return;
    }
    let output = hpmctl(&["stat", "--", "true"]);
    let said = said(&output.stderr);
    let (software, hardware) = perf();
    if !software {
        assert_eq!(output.status.code(), Some(1));
        assert!(said.starts_with("hpmctl: nothing can measure here: /dev/hpm does not exist"), "{said}");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("because /dev/hpm does not exist"), "{said}");
    assert!(said.contains("page-faults") && said.contains("task-clock"), "{said}");
    assert_eq!(said.contains("software events only"), !hardware, "{said}");
    assert_eq!(said.contains("instructions"), hardware, "nothing pretends to be a hardware count: {said}");
}

/// The kernel would count a clock in both modes, and a switch in none.
#[test]
fn a_mode_in_which_the_kernel_does_not_count_is_refused() {
    if driver_is_here() || !perf().0 {
        return;
    }
    for (events, words) in
        [("task-clock:u", "counts it in both modes"), ("context-switches:u", "happens in kernel mode alone")]
    {
        let output = hpmctl(&["stat", "-e", events, "--", "true"]);
        let said = said(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains(events) && said.contains(words), "{said}");
    }
}

#[test]
fn an_event_of_the_module_is_refused_in_one_sentence() {
    if driver_is_here() || !perf().0 {
        return;
    }
    let output = hpmctl(&["record", "-e", "l1d-load-miss", "--", "true"]);
    let said = said(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("l1d-load-miss") && said.contains("need the hpm module"), "{said}");
}

/// What is wrong with `--window` is told before anything is measured.
#[test]
fn windows_that_cannot_be_are_refused_in_one_sentence() {
    let record = |options: &[&str]| {
        let output = hpmctl(&[&["record", "-e", "branch-miss:u"], options, &["--", "true"]].concat());
        (output.status.code(), said(&output.stderr))
    };
    for bad in ["nonsense", "instructions", "instructions=", "instructions=2k"] {
        let (status, said) = record(&["-c", "50", "--window", bad]);
        assert_eq!(status, Some(2), "{said}");
        assert!(said.contains("write one EVENT=N, as in instructions:u=1000"), "{said}");
    }
    let (status, said) = record(&["-c", "50", "--window", "instructions=0"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("windows are 100 to 2147483647 events long"), "{said}");
    for (options, words) in [
        (&[][..], "say with -c how many"),
        (&["-F", "1000"], "leave -F out"),
        (&["-c", "50", "--imprecise"], "--imprecise samples by interrupts"),
    ] {
        let (status, said) = record(&[&["--window", "instructions:u=1000"], options].concat());
        assert_eq!((status, said.lines().count()), (Some(1), 1), "{said}");
        assert!(said.contains(words), "{said}");
    }
    if driver_is_here() || !perf().0 {
        return;
    }
    let (status, said) = record(&["--source", "perf", "-c", "50", "--window", "instructions:u=1000"]);
    assert_eq!((status, said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("--window needs the hpm module"), "{said}");
}

/// A recording by perf_event is a trace as any other: it is reported, and replayed as a source.
#[test]
fn a_recording_can_be_reported_counted_and_copied() {
    if driver_is_here() || !perf().0 {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_hpmctl")).args(arguments).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", said(&output.stderr));
        output
    };
    let events = "cpu-clock,page-faults";
    let busy = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
    let recorded = run(&["record", "--stacks", "-e", events, "-o", "a.hpm", "--", "sh", "-c", busy]);
    assert!(
        said(&recorded.stderr).contains("samples by software of cpu-clock, page-faults"),
        "{}",
        said(&recorded.stderr)
    );
    run(&["record", "--trace", "a.hpm", "-o", "b.hpm"]);
    let rows = |trace: &str| {
        let meta = std::fs::read_to_string(folder.path().join(trace).join("meta.json")).unwrap();
        serde_json::from_str::<serde_json::Value>(&meta).unwrap()["rows"].clone()
    };
    assert_eq!(rows("a.hpm"), rows("b.hpm"));
    assert!(rows("a.hpm")["samples"].as_u64().unwrap() > 10, "{}", rows("a.hpm"));
    let report = |trace: &str| String::from_utf8(run(&["report", trace]).stdout).unwrap();
    assert!(report("a.hpm").contains("by the kernel's software"), "{}", report("a.hpm"));
    assert_eq!(report("a.hpm"), report("b.hpm"));
    let counted = run(&["stat", "--json", "-o", "c.json", "--trace", "b.hpm"]);
    let json = std::fs::read_to_string(folder.path().join("c.json")).unwrap();
    let json: serde_json::Value =
        serde_json::from_str(&json).unwrap_or_else(|_| panic!("{}", said(&counted.stderr)));
    assert!(json["events"][1]["count"].as_u64().unwrap() > 0, "{json}");
}

/// Runs `stat` by perf_event's software events on a shell that forks two others; its result, from a file.
fn counted(options: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let begin = ["stat", "--source", "perf", "-e", "task-clock,page-faults:u", "-o", "counts"];
    let busy = "f() { i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done; }; f & f & wait; exit 3";
    let output = Command::new(env!("CARGO_BIN_EXE_hpmctl"))
        .args(begin.iter().chain(options).chain(&["--", "sh", "-c", busy]))
        .current_dir(&folder)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3), "{options:?}: {}", said(&output.stderr));
    std::fs::read_to_string(folder.path().join("counts")).unwrap()
}

#[test]
fn intervals_and_threads_add_up_to_the_whole() {
    if !perf().0 {
        return;
    }
    let lines = counted(&["-I", "10", "--json"]);
    let lines: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let (whole, intervals) = lines.split_last().unwrap();
    assert!(intervals.len() > 1, "{} intervals", intervals.len());
    let count = |slice: &serde_json::Value, event: usize| slice["events"][event]["count"].as_u64().unwrap();
    for event in [0, 1] {
        assert_eq!(intervals.iter().map(|slice| count(slice, event)).sum::<u64>(), count(whole, event));
    }
    let ends: Vec<u64> = intervals.iter().map(|slice| slice["until_ns"].as_u64().unwrap()).collect();
    assert!(ends.is_sorted() && ends[0] >= 10_000_000, "{ends:?}");
    let whole: serde_json::Value = serde_json::from_str(&counted(&["--per-thread", "--json"])).unwrap();
    let parts = whole["parts"].as_array().unwrap();
    assert_eq!(parts.len(), 3, "the shell and two others: {parts:?}");
    assert!(parts.iter().all(|part| part["thread"] == "sh" && count(part, 1) > 0), "{parts:?}");
    assert_eq!(parts.iter().map(|part| count(part, 1)).sum::<u64>(), count(&whole, 1), "{whole}");
}

#[test]
fn counts_of_each_cpu_are_lines_of_csv() {
    if !perf().0 {
        return;
    }
    let csv = counted(&["--per-cpu", "--csv"]);
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert!(rows.iter().all(|row| row.len() == 13), "{csv}");
    let faults = |of_cpu: bool| -> u64 {
        let rows = rows.iter().filter(|row| row[5] == "page-faults:u" && row[1].is_empty() != of_cpu);
        rows.map(|row| row[6].parse::<u64>().unwrap()).sum()
    };
    assert!(faults(false) > 0 && faults(true) == faults(false), "{csv}");
}

#[test]
fn repeated_runs_have_a_mean_and_its_interval() {
    if !perf().0 {
        return;
    }
    let runs: serde_json::Value = serde_json::from_str(&counted(&["-r", "3", "--json"])).unwrap();
    assert_eq!(runs["exit_statuses"], serde_json::json!([3, 3, 3]));
    let rows = runs["rows"].as_array().unwrap();
    let elapsed = rows.iter().find(|row| row["name"] == "elapsed").unwrap();
    let number = |name: &str| elapsed[name].as_f64().unwrap();
    assert!(
        number("runs") == 3.0 && number("min") <= number("mean") && number("mean") <= number("max"),
        "{elapsed}"
    );
    // Student's quantile for two degrees of freedom, over the root of three.
    assert!(
        (number("interval") - number("deviation") * 2.484_14).abs() < 1e-4 * number("deviation"),
        "{elapsed}"
    );
}

#[test]
fn what_stat_cannot_do_here_is_one_sentence() {
    if driver_is_here() || !perf().0 {
        return;
    }
    for (options, words) in [
        (&["--topdown", "--", "true"][..], "issue slots are not counted through perf_event"),
        (&["-r", "2", "-p", "1"], "--repeat runs a command again and again"),
    ] {
        let output = hpmctl(&[&["stat"], options].concat());
        assert_eq!(
            (output.status.code(), said(&output.stderr).lines().count()),
            (Some(1), 1),
            "{}",
            said(&output.stderr)
        );
        assert!(said(&output.stderr).contains(words), "{}", said(&output.stderr));
    }
}

#[test]
fn doctor_names_the_obstacle_in_text_and_json() {
    if driver_is_here() {
        return;
    }
    let text = hpmctl(&["doctor"]);
    assert_eq!(text.status.code(), Some(1));
    assert!(String::from_utf8(text.stdout).unwrap().contains("hpm is not loaded"));
    let json: serde_json::Value = serde_json::from_slice(&hpmctl(&["doctor", "--json"]).stdout).unwrap();
    assert_eq!(json["usable"], false);
    // No PMU is claimed that the kernel has looked for and not found.
    if json["facts"]["hypervisor"].is_object() && json["facts"]["kernel_pmu"] == false {
        assert_eq!(json["facts"]["pmu"]["general_counters"], 0);
    }
    let module =
        json["findings"].as_array().unwrap().iter().find(|finding| finding["topic"] == "module").unwrap();
    assert_eq!(module["status"], "obstacle");
}

#[test]
fn events_of_an_unknown_pmu_are_refused() {
    let output = hpmctl(&["list", "--pmu", "nonesuch"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .starts_with("hpmctl: hpm has no table of events for the PMU `nonesuch`")
    );
}

/// Runs it in a folder that stays.
fn hpmctl_in(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hpmctl")).args(arguments).current_dir(folder).output().unwrap()
}

/// The named column of a CSV with a head, without empty lines.
fn column<'a>(csv: &'a str, name: &str) -> Vec<&'a str> {
    let mut lines = csv.lines();
    let place = lines.next().unwrap().split(',').position(|head| head == name).unwrap();
    lines.map(|line| line.split(',').nth(place).unwrap()).collect()
}

#[test]
fn scripts_set_markers_through_a_pipe_with_any_source() {
    if driver_is_here() || !perf().0 {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    nix::unistd::mkfifo(&folder.path().join("marks"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let script = "echo begin > marks; sleep 0.5; printf 'three words here\\nend 7' > marks";
    let output =
        hpmctl_in(folder.path(), &["record", "--marks", "marks", "-o", "t.hpm", "--", "sh", "-c", script]);
    let text = said(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("2 markers read from the pipe marks, 1 line was not understood"), "{text}");
    assert_eq!(text.matches("`three words here` has more than two words").count(), 1, "{text}");
    let export = ["export", "--format", "csv", "--table", "markers", "-o", "-", "t.hpm"];
    let csv = String::from_utf8(hpmctl_in(folder.path(), &export).stdout).unwrap();
    assert_eq!((column(&csv, "text"), column(&csv, "value")), (vec!["begin", "end"], vec!["0", "7"]));
    let times: Vec<u64> = column(&csv, "tsc").iter().map(|time| time.parse().unwrap()).collect();
    // Of a clock in ns: half a second would be less in µs. Both are read some time after they were written.
    assert!((1_000_000..60_000_000_000).contains(&(times[1] - times[0])), "{times:?}");
}

#[test]
fn intervals_of_a_trace_add_up_to_its_counts() {
    if driver_is_here() || !perf().0 {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let work = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";
    let recorded = hpmctl_in(folder.path(), &["record", "-o", "t.hpm", "--", "sh", "-c", work]);
    assert!(recorded.status.success(), "{}", said(&recorded.stderr));
    let counts = |options: &[&str]| {
        let arguments = [&["stat", "--trace", "t.hpm", "--csv"][..], options].concat();
        let csv = String::from_utf8(hpmctl_in(folder.path(), &arguments).stdout).unwrap();
        let number = |text: &&str| text.parse::<u64>().unwrap();
        let (ends, events) = (column(&csv, "interval_end_s"), column(&csv, "event"));
        let (counts, scaled) = (column(&csv, "count"), column(&csv, "scaled"));
        assert_eq!(counts, scaled, "nothing took turns: {csv}");
        let mut sums = [0, 0];
        for ((end, event), count) in ends.iter().zip(events).zip(&counts) {
            if event == "cpu-clock" {
                sums[usize::from(!end.is_empty())] += number(count);
            }
        }
        sums
    };
    let [whole, none] = counts(&[]);
    assert!(whole > 0 && none == 0);
    let [again, intervals] = counts(&["-I", "10"]);
    assert_eq!((again, intervals), (whole, whole));
}

/// What users get wrong, and what they are told.
const WRONG: &[(&[&str], &str)] = &[
    (&["report", "none.hpm"], "cannot read none.hpm"),
    (&["report", "empty.hpm"], "name a folder that `hpmctl record` wrote"),
    (&["verify", "empty.hpm"], "name a folder that `hpmctl record` wrote"),
    (&["stat", "-C", "9999", "-a"], "cannot be used with"),
    (&["stat", "--trace", "t.hpm", "true"], "cannot be used with"),
    (&["stat", "-C", "9999"], "there is no CPU 9999"),
    (&["stat", "-C", "9999", "--", "true"], "there is no CPU 9999"),
    (&["stat", "-g", "loads", "true"], "groups are of the hpm module's events"),
    (&["stat", "-g", "loads", "-e", "cycles", "true"], "cannot be used with"),
    (&["record", "-o", "u.hpm", "-a", "--allocations", "true"], "for a program that hpmctl starts"),
    (&["stat", "--cgroup", "none"], "there is no control group none"),
    (&["stat", "--trace", "t.hpm", "-e", "cycles"], "cannot be used with"),
    (&["record", "--trace", "t.hpm", "-F", "9", "-o", "u.hpm"], "cannot be used with"),
    (&["record", "--marks", "none", "--", "true"], "there is no such pipe"),
    (&["record", "-o", "none/t.hpm", "--", "true"], "cannot make the trace none/t.hpm"),
    (&["report", "--code", "nobody", "t.hpm"], "holds no sample that was asked for; `hpmctl report --by"),
    (&["report", "--callers", "--min-share", "nan", "t.hpm"], "write a percentage from 0 to 100"),
    (&["report", "--time", "5s..1s", "t.hpm"], "write the earlier time first"),
    (&["phases", "--interval", "1e300", "t.hpm"], "write milliseconds from 0.001 to 1000000"),
    (&["explore", "--picture", "x.svg", "t.hpm"], "--picture draws a graph or a timeline"),
    (&["export", "-f", "folded", "--table", "maps", "-o", "x", "t.hpm"], "--table is for csv and parquet"),
    (
        &["record", "-c", "18446744073709551615", "-o", "u.hpm", "--", "true"],
        "is not from 1 to 9223372036854775807",
    ),
    (&["report", "-e", "nobody", "t.hpm"], "the trace has no event `nobody`"),
    (&["report", "--symfs", "none", "t.hpm"], "there is no such folder"),
    (&["report", "--picture", "x.jpg", "t.hpm"], "ends in .svg or .png"),
    (&["annotate", "t.hpm", "nobody"], "no sample lies in a function `nobody`"),
    (&["export", "--format", "chrome", "-o", "none/x", "t.hpm"], "cannot write none/x"),
    (&["list", "nobody"], "no event that perf_event has here"),
    (&["report", "--callers", "hot", "t.hpm"], "write --callers=hot"),
    (&["record", "-o", "u.hpm", "--stacks", "fp", "--", "true"], "write --stacks=fp"),
    (&["record", "-o", "u.hpm", "--branches", "16", "true"], "write --branches=16"),
    (&["stat", "--topdown", "2", "true"], "write --topdown=2"),
    (&["record", "-o", "u.hpm", "--stack-bytes", "2048", "true"], "--stack-bytes is for --stacks=dwarf"),
    (&["record", "-o", "u.hpm", "-p", "1", "--allocations"], "for a program that hpmctl starts"),
    (&["stat", "--speed", "2", "true"], "cannot be used with"),
    (&["stat", "-t", "4194304"], "no thread has the TID 4194304"),
    (&["record", "-o", "t.hpm", "true"], "replace it with --force"),
    (&["record", "-f", "-o", "empty.hpm", "true"], "--force replaces nothing but traces"),
    (&["record", "-f", "-o", "t.hpm", "--trace", "t.hpm"], "cannot be replaced by a copy of itself"),
    (&["record", "-f", "-o", "t.hpm", "./nobody"], "cannot run `./nobody`"),
];

#[test]
fn what_users_get_wrong_is_one_sentence() {
    if driver_is_here() || !perf().0 {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let recorded = hpmctl_in(folder.path(), &["record", "-o", "t.hpm", "--", "true"]);
    assert!(recorded.status.success(), "{}", said(&recorded.stderr));
    std::fs::create_dir(folder.path().join("empty.hpm")).unwrap();
    for (arguments, sentence) in WRONG {
        let output = hpmctl_in(folder.path(), arguments);
        let text = said(&output.stderr);
        assert!(!output.status.success(), "{arguments:?}");
        assert!(text.contains(sentence), "{arguments:?}: {text}");
        let lines = text.lines().filter(|line| line.starts_with("hpmctl: ") && !line.contains(": note: "));
        assert!(lines.count() == usize::from(!text.starts_with("error: ")), "{arguments:?}: {text}");
    }
    let kept = hpmctl_in(folder.path(), &["verify", "t.hpm"]);
    assert!(kept.status.success(), "the earlier trace is as it was: {}", said(&kept.stderr));
    let left: Vec<_> = folder.path().read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

/// The values stand where warnings do: what is only good to know is left out there, also of runs.
#[test]
fn comma_separated_values_on_standard_error_are_alone() {
    if driver_is_here() || !perf().0 {
        return;
    }
    for options in [&["--csv"][..], &["--csv", "-r", "2"]] {
        let said = said(&hpmctl(&[&["stat", "-e", "page-faults"], options, &["true"]].concat()).stderr);
        assert!(said.contains("page-faults,") && !said.contains("hpmctl:"), "{options:?}: {said}");
    }
}
