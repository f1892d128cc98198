//! The three steps on a profile that is written down here, and on a program that is compiled here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Parser;
use tempfile::TempDir;

use super::exclude::option;
use super::folder::{
    CpuRow, FunctionRow, ModuleRow, NodeRow, ProfileFile, ThreadRow, read_profile, write_profile,
};
use super::*;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    methods: MethodsArgs,
}

fn step(words: &[&str]) -> Step {
    Cli::try_parse_from([&["methods"], words].concat()).unwrap().methods.step
}

fn select(folder: &Path, options: &[&str]) -> Result<String> {
    let words = [&["select", folder.to_str().unwrap()], options].concat();
    let Step::Select(args) = step(&words) else { unreachable!() };
    select::output(&args).map(|(text, _)| text)
}

fn report(folder: &Path, options: &[&str]) -> Result<report::Report> {
    let words = [&["report", folder.to_str().unwrap()], options].concat();
    let Step::Report(args) = step(&words) else { unreachable!() };
    report::report(&args)
}

/// The table of Figure 3, in µs.
fn figure_3(temp: &TempDir) -> PathBuf {
    let folder = temp.path().join("sort.methods");
    let rows = [
        ("main", 1800, 0, 1),
        ("init", 30, 30, 1),
        ("readData", 300, 70, 1),
        ("readElement", 200, 200, 50),
        ("print", 30, 30, 1),
        ("sortData", 1300, 200, 1),
        ("compare", 600, 600, 300),
        ("swap", 500, 500, 250),
        ("printData", 170, 20, 1),
        ("printElement", 150, 150, 50),
    ];
    let function = |(name, total, own, calls): (&str, u64, u64, u64)| FunctionRow {
        name: name.into(),
        module: usize::from(name.contains("Element")),
        offset: calls * 16,
        file: None,
        line: None,
        calls,
        total: total * 1000,
        own: own * 1000,
        worth_it: name != "print",
    };
    let module = |path: &str| ModuleRow { path: path.into(), build_id: None };
    let profile = ProfileFile {
        command: vec!["sort".into(), "data".into()],
        clock: "time on a CPU".into(),
        ticks_per_ms: Some(1e6),
        modules: vec![module("/usr/bin/sort"), module("/usr/lib/libelement.so")],
        functions: rows.map(function).into(),
        nodes: vec![NodeRow { function: 0, caller: None, calls: 1, total: 1_800_000, own: 0 }],
        threads: vec![ThreadRow { pid: 7, tid: 7, name: "sort".into(), calls: 656, total: 1_800_000 }],
        cost: 25.0,
        skip_cost: 4.0,
        measured_cost: 60.0,
        cpu: CpuRow::default(),
        left_out: 3,
        least_bytes: Some(100),
        skipped: 2000,
        unwound: 2,
        ..ProfileFile::default()
    };
    fs::create_dir_all(&folder).unwrap();
    write_profile(&folder, &profile).unwrap();
    folder
}

#[test]
fn profiles_are_tables() {
    let temp = tempfile::tempdir().unwrap();
    let profile = folder::read_profile(&figure_3(&temp)).unwrap();
    insta::assert_snapshot!(text::profile(&profile, 8));
}

#[test]
fn selections_are_made_by_thresholds_or_by_overhead() {
    let temp = tempfile::tempdir().unwrap();
    let folder = figure_3(&temp);
    insta::assert_snapshot!(select(&folder, &["--weight", "10%", "--grain", "5%", "--grid"]).unwrap());
    let proposed = select(&folder, &["--overhead", "0.5 %", "--json"]).unwrap();
    let json: serde_json::Value = serde_json::from_str(&proposed).unwrap();
    assert_eq!(json["names"].as_array().unwrap().len(), 5, "all that are called once, but print: {proposed}");
    assert!(json["selection"]["estimated_overhead"].as_f64().unwrap() <= 0.005);
    let refused = |options: &[&str]| select(&folder, options).unwrap_err().to_string();
    assert!(refused(&["--overhead", "0.0001%"]).starts_with("no phase can be measured"));
    assert!(refused(&["--weight", "100%", "--grain", "0"]).starts_with("no function exceeds"));
    let missing = select(temp.path(), &["--grid"]).unwrap_err().to_string();
    assert!(missing.contains("has no profile of methods: make one with"), "{missing}");
}

#[test]
fn what_a_process_begins_with_is_part_of_the_overhead() {
    let temp = tempfile::tempdir().unwrap();
    let folder = figure_3(&temp);
    let mut profile = read_profile(&folder).unwrap();
    // Of 3.6 ms 2 % once, and 0.01 % for each call.
    profile.cpu = CpuRow { program: 3_600_000.0, set_up: 72_000.0, processes: 1, measured: 180.0 };
    write_profile(&folder, &profile).unwrap();
    assert!((profile.time_overhead(3) - 0.0203).abs() < 1e-12);
    let refused = select(&folder, &["--overhead", "1%"]).unwrap_err().to_string();
    assert!(refused.contains("takes 2.000 % of the program's time"), "{refused}");
    let chosen = select(&folder, &["--overhead", "2.1%"]).unwrap();
    assert!(chosen.contains("2.00 % once for each process"), "{chosen}");
}

#[test]
fn reports_without_measurements_say_what_to_do() {
    let temp = tempfile::tempdir().unwrap();
    let folder = figure_3(&temp);
    insta::assert_snapshot!(text::report(&report(&folder, &[]).unwrap()));
    select(&folder, &["--overhead", "1%"]).unwrap();
    assert!(text::report(&report(&folder, &[]).unwrap()).contains("nothing has been measured yet"));
}

#[test]
fn parts_are_percentages_or_numbers() {
    assert_eq!(["1%", "0.5 %", "0.01", "1"].map(|text| part(text).unwrap()), [0.01, 0.005, 0.01, 1.0]);
    assert!(["", "%", "101%", "-1%", "2", "x"].iter().all(|text| part(text).is_err()));
}

#[test]
fn events_go_into_groups_with_the_instructions() {
    let names = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let groups = |text: &str| {
        let groups = measure::groups(&names(text), 4);
        groups.iter().map(|group| group.join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(
        groups("cycles a instructions b c d"),
        ["instructions cycles a b", "instructions c d"].map(str::to_owned)
    );
    assert_eq!(groups("a b c d e"), ["a b c d", "e"].map(str::to_owned));
    assert_eq!(groups("instructions:u a"), ["instructions:u a".to_owned()]);
    assert_eq!(groups("instructions:u instructions:k"), ["instructions:u instructions:k".to_owned()]);
    assert_eq!(measure::groups(&[], 4), [Vec::<String>::new()]);
}

#[test]
fn exclusions_name_nothing_that_is_kept() {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let excluded = names(&[
        "at",
        "A::get(int, char)",
        "pick<int>(int)",
        "v<int>::size() const",
        "B::getter()",
        "get_all",
    ]);
    let (option, left) = option(&excluded, &names(&["concat", "main"]));
    assert_eq!(option, "-finstrument-functions-exclude-function-list=A::get,B::getter,get_all,pick");
    assert_eq!(left, 2, "`at` is in `concat`, and what gcc calls the class template is not known");
}

/// A program in three phases, of which one touches much memory.
const PROGRAM: &str = r"
#define _GNU_SOURCE
#include <sys/mman.h>
static volatile unsigned long sink;
static __attribute__((noinline)) void step(unsigned long rounds) { for (unsigned long i = 0; i < rounds; i++) sink += i; }
__attribute__((noinline)) void touch(void) {
    /* Not by malloc, which keeps pages for the next call. */
    char *memory = mmap(0, 400 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int page = 0; page < 400; page++) memory[page * 4096] = 1;
    munmap(memory, 400 * 4096);
    step(2000);
}
__attribute__((noinline)) void compute(void) { for (int i = 0; i < 200; i++) step(2000); }
int main(void) {
    for (int round = 0; round < 5; round++) { touch(); compute(); }
    return 3;
}
";

fn compiled(temp: &TempDir) -> String {
    let (source, program) = (temp.path().join("phases.c"), temp.path().join("phases"));
    fs::write(&source, PROGRAM).unwrap();
    let done = Command::new("gcc")
        .args(["-O2", "-g", "-finstrument-functions"])
        .args([&source, Path::new("-o"), &program])
        .output()
        .unwrap_or_else(|reason| panic!("gcc, which this test needs, does not start: {reason}"));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    program.to_str().unwrap().to_owned()
}

/// The shim that cargo has built for this test.
fn shim() -> String {
    let here = std::env::current_exe().unwrap();
    let mut folders = here.ancestors().skip(1).take(2);
    let found =
        folders.find_map(|folder| Some(folder.join("libhpm_methods.so")).filter(|path| path.exists()));
    found.expect("cargo builds the shim before this test").to_str().unwrap().to_owned()
}

#[test]
fn a_program_goes_through_all_steps() {
    let temp = tempfile::tempdir().unwrap();
    let (program, shim) = (compiled(&temp), shim());
    let folder = temp.path().join("phases.methods");
    let name = folder.to_str().unwrap();
    let Step::Profile(args) =
        step(&["profile", "--clock", "cpu", "--shim", &shim, "-o", name, "--", &program])
    else {
        unreachable!()
    };
    assert_eq!(profile::run(&args).unwrap(), ExitCode::from(3));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "the profile alone");
    let found = folder::read_profile(&folder).unwrap();
    let calls = |name: &str| found.functions.iter().find(|row| row.name == name).map(|row| row.calls);
    assert_eq!(
        [calls("main"), calls("touch"), calls("compute"), calls("step")],
        [Some(1), Some(5), Some(5), Some(1005)]
    );
    assert_eq!(found.functions.iter().filter_map(|row| row.line).count(), 4);
    let selected = select(&folder, &["--weight", "0.1%", "--grain", "0.1%"]).unwrap();
    assert!(selected.contains("compute") && !selected.contains("  step"), "{selected}");

    let words = [
        "measure",
        name,
        "--shim",
        &shim,
        "--source",
        "perf",
        "-e",
        "page-faults",
        "--repeat",
        "2",
        "--baseline",
    ];
    let Step::Measure(args) = step(&words) else { unreachable!() };
    assert_eq!(measure::run(&args).unwrap(), ExitCode::from(3));
    let drawn = temp.path().join("phases.svg");
    let found = report(&folder, &["--picture", drawn.to_str().unwrap()]).unwrap();
    let measured = found.measured.as_ref().unwrap();
    assert_eq!(measured.runs, 2);
    assert!(measured.real_overhead.is_some());
    let shown = text::report(&found);
    if measured.runs_by_event.is_empty() {
        assert!(shown.contains("nothing is counted: "), "{shown}");
        return;
    }
    let touch = measured.phases.iter().find(|phase| phase.name == "touch").unwrap();
    assert_eq!((touch.calls, touch.metrics[0].over_time.len()), (5.0, 5));
    let faults = |name: &str| {
        let phase = measured.phases.iter().find(|phase| phase.name == name).unwrap();
        phase.metrics[0].numbers.median
    };
    assert!(faults("touch") > 10.0 * faults("compute"), "{} {}", faults("touch"), faults("compute"));
    let anova = measured.variability[0].anova.unwrap();
    assert_eq!((anova.between, anova.within), (2, 8), "main, touch and compute, with 1, 5 and 5 calls");
    assert!(anova.p < 0.01, "{anova:?}");
    let svg = svg::draw(&found.command, measured);
    assert!(svg.matches("<rect").count() >= 4 && svg.contains("page-faults per ms"), "{svg}");
    assert!(shown.contains("real") && shown.contains("touch"), "{shown}");
}

#[test]
fn a_new_profile_takes_only_what_belongs_to_the_earlier_one() {
    let temp = tempfile::tempdir().unwrap();
    let folder = figure_3(&temp);
    select(&folder, &["--weight", "10%", "--grain", "5%"]).unwrap();
    folder::begin_run(&folder, 1).unwrap();
    fs::write(folder.join("notes.txt"), "mine").unwrap();
    let begun = begun::Begun::new(&folder).unwrap();
    begun.work("log").unwrap();
    assert!(folder.join("selection.json").exists() && folder.join("runs").exists(), "until there is one");
    begun.finish(&ProfileFile { status: 9, ..ProfileFile::default() }).unwrap();
    let mut left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["notes.txt", "profile.json"]);
    assert_eq!(read_profile(&folder).unwrap().status, 9);
}

#[test]
fn earlier_runs_stay_until_new_ones_have_come_to_their_end() {
    let temp = tempfile::tempdir().unwrap();
    let (folder, shim) = (figure_3(&temp), shim());
    select(&folder, &["--weight", "10%", "--grain", "5%"]).unwrap();
    let earlier = folder::begin_run(&folder, 7).unwrap();
    let measure = |command: &[&str]| {
        let begin = ["measure", folder.to_str().unwrap(), "--shim", &shim, "--repeat", "2", "--"];
        let Step::Measure(args) = step(&[&begin, command].concat()) else { unreachable!() };
        measure::run(&args)
    };
    assert!(format!("{:#}", measure(&["./typo"]).unwrap_err()).starts_with("cannot run `./typo`"));
    assert!(measure(&["true"]).is_err(), "nothing was called");
    let mark = temp.path().join("mark");
    // Not SIGINT, which a job in a shell's background ignores, and with it what it starts.
    let once = format!("echo >> {}; kill -TERM $$", mark.display());
    assert_eq!(measure(&["sh", "-c", &once]).unwrap(), ExitCode::from(143));
    assert_eq!(fs::read_to_string(mark).unwrap(), "\n", "no further run begins");
    let mut left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["profile.json", "runs", "selection.json"]);
    assert!(earlier.exists());
}

#[test]
fn what_was_under_way_when_hpmctl_was_killed_goes_with_the_next_profile() {
    let temp = tempfile::tempdir().unwrap();
    let folder = figure_3(&temp);
    for name in ["profiling-dead", "measuring-dead", "profiles"] {
        fs::create_dir(folder.join(name)).unwrap();
        fs::write(folder.join(name).join("log"), "").unwrap();
    }
    let other = begun::Begun::new(&folder).unwrap();
    let log = other.work("log").unwrap();
    let runs = begun::BegunRuns::new(&folder).unwrap();
    assert!(log.exists() && runs.work().exists(), "what is being made stays");
    assert!(!folder.join("profiling-dead").exists() && !folder.join("measuring-dead").exists());
    assert!(folder.join("profiles").exists());
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let temp = tempfile::tempdir().unwrap();
    let shim = shim();
    let name = temp.path().join("x.methods");
    let profile = |command: &str| {
        let words = ["profile", "--shim", &shim, "-o", name.to_str().unwrap(), "--", command];
        let Step::Profile(args) = step(&words) else { unreachable!() };
        format!("{:#}", profile::run(&args).unwrap_err())
    };
    assert!(profile("/bin/true").contains("compile it with -finstrument-functions"));
    assert!(profile("no-such-program").starts_with("cannot run `no-such-program`"));
    assert!(!name.exists(), "nothing is left of what came to nothing");
    fs::create_dir_all(&name).unwrap();
    fs::write(name.join("mine"), "").unwrap();
    assert!(profile("/bin/true").contains("is there and is no profile of methods"));
    for file in ["profile.json", "selection.json"] {
        fs::write(name.join(file), file).unwrap();
    }
    assert!(profile("/bin/true").contains("compile it with -finstrument-functions"));
    let kept = fs::read_dir(&name).unwrap().map(|entry| entry.unwrap().file_name());
    let mut kept: Vec<_> = kept.collect();
    kept.sort();
    assert_eq!(kept, ["mine", "profile.json", "selection.json"], "the earlier profile stays");
    assert_eq!(fs::read_to_string(name.join("profile.json")).unwrap(), "profile.json");
}

#[test]
fn a_selection_says_what_its_profile_lost() {
    let temp = TempDir::new().unwrap();
    let folder = figure_3(&temp);
    let lossy = ProfileFile { lost: 5, ..read_profile(&folder).unwrap() };
    write_profile(&folder, &lossy).unwrap();
    let text = select(&folder, &["--grid", "--json"]).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(json["warnings"].to_string().contains("5 entries and exits are lost"), "{json}");
}
