//! Programs in C and C++ that are compiled here, run with the shim, and what their logs then say.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use libhpm::analysis::method::{CallGraph, CallKind, CallMatcher, MAX_COUNTS, Mismatches, Node};
use libhpm::call_log::{
    CONFIG, Clock, Config, Counting, FOLDER_VARIABLE, FileFunctions, Filter, Functions, logs,
};
use libhpm::source::perf;
use libhpm::symbol::{FileFinder, functions_of};
use libhpm::sys::clock::tsc_per_ms;
use tempfile::TempDir;

/// The shim, which cargo has put beside this test or one folder up.
fn shim() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let folders = here.ancestors().skip(1).take(2);
    let mut places = folders.map(|folder| folder.join("libhpm_methods.so"));
    places.find(|path| path.exists()).expect("cargo builds the shim before its tests")
}

fn compile(temp: &Path, source: &str, output: &str, options: &[&str]) -> PathBuf {
    let compiler = if source.ends_with(".cc") { "g++" } else { "gcc" };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(source);
    let output = temp.join(output);
    let done = Command::new(compiler)
        .args(["-Wall", "-Wextra", "-Werror", "-O2", "-g", "-finstrument-functions"])
        .args(options)
        .arg(source)
        .arg("-o")
        .arg(&output)
        .output()
        .unwrap_or_else(|reason| panic!("{compiler}, which this test needs, does not start: {reason}"));
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    output
}

fn config() -> Config {
    Config {
        filter: Filter::LeaveOut(vec![]),
        clock: Clock::Cpu,
        events: vec![],
        priced: vec![],
        encoded: Err("perf_event is asked for".into()),
        cycles: Err("the time on a CPU is asked for".into()),
        counting: Counting::Perf,
        limit: 1 << 30,
        tsc_per_ms: tsc_per_ms(),
    }
}

/// A thread's name, its graph's nodes and what did not match.
struct Thread {
    name: String,
    forked: bool,
    lost: u64,
    skipped: u64,
    nodes: Vec<Node>,
    mismatches: Mismatches,
}

struct Ran {
    status: ExitStatus,
    threads: Vec<Thread>,
    names: Vec<String>,
}

impl Ran {
    /// Calls of each chain of callers, as `main/work`.
    fn calls(&self, thread: usize) -> BTreeMap<String, u64> {
        let nodes = &self.threads[thread].nodes;
        let mut paths: Vec<String> = Vec::new();
        for node in nodes {
            let name = &self.names[node.function as usize];
            let path = node.caller.map_or_else(|| name.clone(), |caller| format!("{}/{name}", paths[caller]));
            paths.push(path);
        }
        paths.into_iter().zip(nodes).map(|(path, node)| (path, node.calls)).collect()
    }

    fn node(&self, thread: usize, name: &str) -> Node {
        let named = |node: &&Node| self.names[node.function as usize] == name;
        *self.threads[thread].nodes.iter().find(named).unwrap()
    }
}

/// Runs a program with the shim; the folder has its logs.
fn log(program: &Path, arguments: &[&str], config: &Config) -> (TempDir, ExitStatus) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join(CONFIG), serde_json::to_vec(config).unwrap()).unwrap();
    let done = Command::new(program)
        .args(arguments)
        .env("LD_PRELOAD", shim())
        .env(FOLDER_VARIABLE, folder.path())
        .output()
        .unwrap();
    assert!(done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
    (folder, done.status)
}

fn run(program: &Path, arguments: &[&str], config: &Config) -> Ran {
    let (folder, status) = log(program, arguments, config);
    let mut functions = Functions::default();
    let logs = logs(folder.path()).unwrap();
    let read = |log: libhpm::Result<libhpm::call_log::CallLog<'_>>| {
        let mut log = log.unwrap();
        let (mut matcher, mut graph) = (CallMatcher::new(), CallGraph::new());
        while let Some(event) = log.next(&mut functions) {
            matcher.push(&event, &mut graph);
        }
        assert!(log.header.costs[0] > 0.0, "what the shim costs is known: {:?}", log.header);
        Thread {
            name: log.name.clone(),
            forked: log.header.forked,
            lost: log.lost,
            skipped: log.skipped,
            mismatches: matcher.finish(&mut graph),
            nodes: graph.nodes().to_vec(),
        }
    };
    let threads = logs.threads().map(read).collect();
    let name = |key: &libhpm::call_log::FunctionKey| {
        let all = functions_of(Path::new(&*key.module), &FileFinder::default()).unwrap();
        all.iter().find(|function| function.offset == key.offset).unwrap().name.to_string()
    };
    Ran { status, threads, names: functions.keys().iter().map(name).collect() }
}

fn calls_c(temp: &TempDir) -> PathBuf {
    compile(temp.path(), "calls.c", "calls", &["-pthread"])
}

fn map(calls: &[(&str, u64)]) -> BTreeMap<String, u64> {
    calls.iter().map(|&(path, calls)| (path.to_owned(), calls)).collect()
}

#[test]
fn calls_are_logged_as_they_were_made() {
    let temp = tempfile::tempdir().unwrap();
    let ran = run(&calls_c(&temp), &["many"], &config());
    assert!(ran.status.success(), "{:?}", ran.status);
    assert_eq!(ran.calls(0), map(&[("main", 1), ("main/work", 200_001), ("main/tiny", 1)]));
    assert_eq!((ran.threads.len(), ran.threads[0].lost), (1, 0));
    assert_eq!(ran.threads[0].mismatches, Mismatches::default());
    let main = ran.node(0, "main");
    assert!(main.own < main.total, "{main:?}");
}

#[test]
fn functions_that_longjmp_leaves_are_closed() {
    let temp = tempfile::tempdir().unwrap();
    let ran = run(&calls_c(&temp), &["jumps"], &config());
    let calls = ran.calls(0);
    assert_eq!(calls["main/jumps"], 1, "{calls:?}");
    let thrower: u64 =
        calls.iter().filter(|(path, _)| path.ends_with("thrower")).map(|(_, calls)| calls).sum();
    assert_eq!(thrower, 15, "{calls:?}");
    assert_eq!(calls["main/jumps/thrower"], 5, "{calls:?}");
    assert_eq!(ran.threads[0].mismatches, Mismatches { unwound: 15, ..Mismatches::default() });
}

#[test]
fn functions_that_exceptions_leave_are_closed() {
    let temp = tempfile::tempdir().unwrap();
    let program = compile(temp.path(), "exceptions.cc", "exceptions", &[]);
    let ran = run(&program, &[], &config());
    assert!(ran.status.success(), "{:?}", ran.status);
    let calls = ran.calls(0);
    let of = |name: &str| -> u64 {
        calls.iter().filter(|(path, _)| path.ends_with(name)).map(|(_, calls)| calls).sum()
    };
    assert_eq!((of("throws(int)"), of("~Guard()")), (16, 16), "{calls:?}");
    assert_eq!(calls["main/catches(int)/throws(int)"], 4, "{calls:?}");
    let mismatches = ran.threads[0].mismatches;
    assert_eq!((mismatches.orphans, mismatches.unfinished), (0, 0), "{mismatches:?}");
}

#[test]
fn threads_have_logs_with_their_names() {
    let temp = tempfile::tempdir().unwrap();
    let ran = run(&calls_c(&temp), &["threads"], &config());
    let mut names: Vec<&str> = ran.threads.iter().map(|thread| thread.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["calls", "first", "second", "third"]);
    for thread in 0..4 {
        let expected: &[(&str, u64)] = match ran.threads[thread].name.as_str() {
            "calls" => &[("main", 1), ("main/work", 1), ("main/tiny", 1), ("main/threads", 1)],
            _ => &[("in_thread", 1), ("in_thread/work", 100)],
        };
        assert_eq!(ran.calls(thread), map(expected));
        assert_eq!(ran.threads[thread].mismatches, Mismatches::default());
    }
}

#[test]
fn a_forked_child_has_a_log_of_its_own() {
    let temp = tempfile::tempdir().unwrap();
    let ran = run(&calls_c(&temp), &["forks"], &config());
    assert!(ran.status.success(), "{:?}", ran.status);
    let [parent, child] = &ran.threads[..] else { panic!("{} logs", ran.threads.len()) };
    assert_eq!((parent.forked, child.forked), (false, true));
    assert_eq!(
        ran.calls(0),
        map(&[("main", 1), ("main/work", 1), ("main/tiny", 1), ("main/forks", 1), ("main/forks/work", 1)])
    );
    assert_eq!(parent.mismatches, Mismatches::default());
    assert_eq!(ran.calls(1), map(&[("child", 1), ("child/work", 1)]));
}

#[test]
fn what_is_loaded_later_is_known() {
    let temp = tempfile::tempdir().unwrap();
    let plugin = compile(temp.path(), "plugin.c", "plugin.so", &["-shared", "-fPIC"]);
    let ran = run(&calls_c(&temp), &["plugin", plugin.to_str().unwrap()], &config());
    assert!(ran.status.success(), "{:?}", ran.status);
    assert_eq!(ran.calls(0)["main/plugin/plugged/inside"], 10);
}

#[test]
fn a_killed_program_leaves_what_it_did() {
    let temp = tempfile::tempdir().unwrap();
    let ran = run(&calls_c(&temp), &["killed"], &config());
    assert_eq!(ran.status.signal(), Some(9));
    assert_eq!(ran.calls(0), map(&[("main", 1), ("main/work", 1), ("main/tiny", 1)]));
    assert_eq!(ran.threads[0].mismatches, Mismatches { unfinished: 1, ..Mismatches::default() });
}

#[test]
fn waiting_is_no_time_on_a_cpu() {
    let temp = tempfile::tempdir().unwrap();
    let program = calls_c(&temp);
    let (cpu, real) = (config(), Config { clock: Clock::Tsc, ..config() });
    let [cpu, real] = [cpu, real].map(|config| run(&program, &["waits"], &config).node(0, "waits").total);
    assert!(cpu < 50_000_000, "{cpu} ns on a CPU");
    // At any TSC of 1 GHz or more.
    assert!(real > 200_000_000, "{real} ticks");
}

/// The filter list is kept: what is left out is counted as skipped, and what alone is logged has no other callees.
#[test]
fn filters_are_followed() {
    let temp = tempfile::tempdir().unwrap();
    let program = calls_c(&temp);
    let functions = functions_of(&program, &FileFinder::default()).unwrap();
    let of = |names: &[&str]| {
        let chosen = functions.iter().filter(|function| names.contains(&&*function.name));
        let path = program.canonicalize().unwrap().to_str().unwrap().to_owned();
        vec![FileFunctions { path, offsets: chosen.map(|function| function.offset).collect() }]
    };
    let without = Config { filter: Filter::LeaveOut(of(&["work", "tiny"])), ..config() };
    let ran = run(&program, &["many"], &without);
    assert_eq!(ran.calls(0), map(&[("main", 1)]));
    assert_eq!(ran.threads[0].skipped, 2 * 200_002);
    let only = Config { filter: Filter::Only(of(&["work"])), ..config() };
    assert_eq!(run(&program, &["many"], &only).calls(0), map(&[("work", 200_001)]));
}

#[test]
fn a_full_log_counts_what_it_loses() {
    let temp = tempfile::tempdir().unwrap();
    let ran = run(&calls_c(&temp), &["many"], &Config { limit: 1 << 20, ..config() });
    assert!(ran.status.success());
    let thread = &ran.threads[0];
    let logged: u64 = ran.calls(0).values().sum();
    assert!(thread.lost > 300_000 && logged > 10_000, "{} {logged}", thread.lost);
}

/// Reading an event by a system call is dearer than not reading it; nothing of it is in the records.
#[test]
fn events_are_priced_without_being_logged() {
    let temp = tempfile::tempdir().unwrap();
    let program = calls_c(&temp);
    let config = Config { priced: vec!["page-faults".into(), "context-switches".into()], ..config() };
    let (folder, status) = log(&program, &["many"], &config);
    assert!(status.success());
    let (logs, mut functions) = (logs(folder.path()).unwrap(), Functions::default());
    let mut log = logs.threads().next().unwrap().unwrap();
    assert_eq!(log.header.events, Vec::<String>::new());
    match log.header.priced_cost {
        Some(cost) => assert!(cost > log.header.costs[0], "{:?}", log.header),
        None => assert!(perf::software().is_err(), "{:?}", log.header),
    }
    let mut events = 0;
    while let Some(event) = log.next(&mut functions) {
        assert_eq!(event.counts, [0; MAX_COUNTS]);
        events += 1;
    }
    assert!(events > 10_000, "{events}");
    let cpu = log.header.cpu;
    assert!(cpu.set_up > 0.0 && cpu.lasted > 0.0 && cpu.logged > 0.0, "{cpu:?}");
    assert!(log.header.priced_cost.is_none() || cpu.priced > cpu.logged, "{cpu:?}");
    assert!(log.cpu_ns().is_none_or(|time| time < cpu.lasted), "{cpu:?}");
}

/// Page faults are counted wherever perf_event is; where it is not, the log says why nothing is counted.
#[test]
fn events_are_counted_for_each_call() {
    let temp = tempfile::tempdir().unwrap();
    let program = calls_c(&temp);
    let config = Config { events: vec!["page-faults".into()], ..config() };
    let (folder, status) = log(&program, &["touches"], &config);
    assert!(status.success());
    let (logs, mut functions) = (logs(folder.path()).unwrap(), Functions::default());
    let mut log = logs.threads().next().unwrap().unwrap();
    if log.header.events.is_empty() {
        assert!(log.header.counting.contains("nothing is counted: "), "{:?}", log.header);
        return;
    }
    let mut events = Vec::new();
    while let Some(event) = log.next(&mut functions) {
        events.push(event);
    }
    let finder = FileFinder::default();
    let touches =
        functions_of(&program, &finder).unwrap().into_iter().find(|one| &*one.name == "touches").unwrap();
    let number = functions.keys().iter().position(|key| key.offset == touches.offset).unwrap() as u32;
    let of =
        |kind: CallKind| events.iter().filter(move |event| event.kind == kind && event.function == number);
    let faults: Vec<u64> = of(CallKind::Enter)
        .zip(events.iter().filter(|event| event.function == number && event.kind != CallKind::Enter))
        .map(|(enter, exit)| exit.counts[1] - enter.counts[1])
        .collect();
    assert_eq!(faults.len(), 10);
    assert!(faults[0] >= 500 && faults[0] < 600, "{faults:?}");
}
