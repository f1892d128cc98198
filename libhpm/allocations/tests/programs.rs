//! Programs that say what they allocated, against what was recorded of them, by the library that is preloaded or by probes.

use std::path::{Path, PathBuf};
use std::process::Command;

use libhpm::allocation::log::{LIBRARY, VARIABLES, read};
use libhpm::allocation::probes::{Probes, is_static};
use libhpm::allocation::{Allocated, TraceClock};
use libhpm::sys::child::Child;
use libhpm::sys::clock::{ClockPair, tsc};
use libhpm::trace::Allocations;
use tempfile::TempDir;

/// What a program printed, and what was recorded of it.
struct Run {
    printed: Vec<u8>,
    succeeded: bool,
    objects: Vec<Allocated>,
    how: Allocations,
}

/// The library as cargo has built it for this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let folder = own.parent().unwrap();
    let places = [folder.join(LIBRARY), folder.join("..").join(LIBRARY)];
    let modified = |path: &PathBuf| path.metadata().and_then(|file| file.modified()).ok();
    places.into_iter().filter(|path| path.is_file()).max_by_key(modified).expect("cargo builds it")
}

fn compile(folder: &Path, compiler: &str, source: &str, more: &[&str]) -> PathBuf {
    let program = folder.join("program");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(source);
    let options = ["-O1", "-g", "-fno-omit-frame-pointer", "-fno-builtin", "-pthread"];
    let mut command = Command::new(compiler);
    let status = command.args(options).args(more).arg("-o").arg(&program).arg(source).status().unwrap();
    assert!(status.success());
    program
}

fn run(program: &Path, arguments: &[&str], sampled_bytes: u64) -> Run {
    let logs = TempDir::new().unwrap();
    let output = Command::new(program)
        .args(arguments)
        .env("LD_PRELOAD", library())
        .env(VARIABLES[0], logs.path())
        .env(VARIABLES[1], sampled_bytes.to_string())
        .output()
        .unwrap();
    let (objects, how) = read(logs.path(), TraceClock::Tsc, ClockPair::now()).unwrap();
    assert_eq!((how.lost, how.damaged), (0, 0), "{how:?}");
    Run { printed: output.stdout, succeeded: output.status.success(), objects, how }
}

/// The same by probes in a program that is linked statically; `None` where the kernel allows none, as in some containers.
fn run_probed(folder: &Path, arguments: &[&str]) -> Option<Run> {
    let program = compile(folder, "cc", "programs.c", &["-static"]);
    assert!(is_static(&program));
    let (began, printed) = (tsc(), folder.join("printed"));
    // Probes are in a file, so that they are found again after another execve.
    let script = format!("exec {} {} > {}", program.display(), arguments.join(" "), printed.display());
    let mut child = Child::prepare(&["sh", "-c", &script]).unwrap();
    let mut probes = match Probes::of_program(child.pid(), &program) {
        Err(libhpm::Error::Probes(_)) => return None,
        probes => probes.unwrap(),
    };
    child.execute().unwrap();
    let status = loop {
        probes.take();
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    let (objects, how) = probes.finish(TraceClock::Tsc);
    assert_eq!((how.lost, how.damaged), (0, 0), "{how:?}");
    let during = began..=tsc();
    assert!(objects.iter().all(|object| during.contains(&object.tsc)), "times are TSC");
    Some(Run { printed: std::fs::read(printed).unwrap(), succeeded: status == 0, objects, how })
}

impl Run {
    /// Name, address and size of each line.
    fn said(&self) -> Vec<(String, u64, u64)> {
        let text = String::from_utf8_lossy(&self.printed).into_owned();
        let line = |line: &str| {
            let words: Vec<&str> = line.split(' ').collect();
            let address = u64::from_str_radix(words[1].trim_start_matches("0x"), 16).unwrap();
            (words[0].to_owned(), address, words[2].parse().unwrap())
        };
        text.lines().map(line).collect()
    }

    /// The last object at an address.
    fn object(&self, address: u64) -> &Allocated {
        let found = self.objects.iter().rev().find(|object| object.address == address);
        found.unwrap_or_else(|| panic!("nothing was recorded at {address:#x}"))
    }
}

fn c_program() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let program = compile(folder.path(), "cc", "programs.c", &[]);
    (folder, program)
}

#[test]
fn every_way_to_allocate_is_recorded() {
    let (_folder, program) = c_program();
    every_way_is_there(&run(&program, &["ways"], 0));
}

fn every_way_is_there(run: &Run) {
    assert!(run.succeeded);
    let said = run.said();
    assert_eq!(said.len(), 11);
    for (name, address, size) in &said {
        let object = run.object(*address);
        if name == "free" {
            assert!(object.freed_tsc.is_some());
            continue;
        }
        assert_eq!(object.bytes, *size, "{name}");
        assert_eq!(object.freed_tsc.is_some(), *size == 4321, "{name}");
        assert!(!object.frames.is_empty(), "{name}");
    }
    // malloc, called by `ways`, called by `main`.
    assert!(run.object(said[0].1).frames.len() >= 2, "{:x?}", run.object(said[0].1).frames);
    assert!(
        run.objects.iter().any(|object| object.bytes == 24 && object.freed_tsc.is_some()),
        "realloc frees"
    );
}

#[test]
fn threads_have_their_own_logs_and_each_object_its_thread() {
    let (_folder, program) = c_program();
    threads_are_told_apart(&run(&program, &["threads"], 0), 20_000);
}

/// Each of 160 threads frees so many objects, and keeps one.
fn threads_are_told_apart(run: &Run, rounds: usize) {
    let said = run.said();
    assert_eq!(said.len(), 160);
    let mut threads = std::collections::BTreeSet::new();
    for (_, address, size) in said {
        let object = run.object(address);
        assert_eq!((object.bytes, object.freed_tsc), (size, None));
        threads.insert(object.tid);
    }
    assert_eq!(threads.len(), 160);
    let freed = run.objects.iter().filter(|object| object.freed_tsc.is_some()).count();
    assert!(freed >= 160 * rounds, "{freed}");
}

#[test]
fn forks_and_execs_have_logs_of_their_own() {
    let (_folder, program) = c_program();
    a_child_inherits(&run(&program, &["fork"], 0));
    an_exec_ends_objects(&run(&program, &["exec"], 0));
}

fn a_child_inherits(forked: &Run) {
    assert_eq!(forked.how.processes, 2);
    let said = forked.said();
    let (child, parent) = (&said[0], &said[1]);
    assert_eq!((child.2, parent.2), (555, 1234));
    let of_child = forked.object(child.1);
    let inherited: Vec<_> = forked.objects.iter().filter(|object| object.bytes == 1234).collect();
    assert_eq!(inherited.len(), 2);
    let freed = |pid_is_childs: bool| {
        let one = inherited.iter().find(|object| (object.pid == of_child.pid) == pid_is_childs);
        one.unwrap().freed_tsc.is_some()
    };
    assert_eq!((freed(true), freed(false)), (true, false), "the child freed its own copy");
}

fn an_exec_ends_objects(executed: &Run) {
    assert_eq!(executed.how.processes, 2);
    let old = executed.objects.iter().find(|object| object.bytes == 99 && object.freed_tsc.is_some());
    assert!(old.is_some(), "an exec ends what was allocated");
}

#[test]
fn what_was_recorded_survives_a_kill() {
    let (_folder, program) = c_program();
    everything_but_the_end_is_there(&run(&program, &["killed"], 0));
}

fn everything_but_the_end_is_there(run: &Run) {
    assert!(!run.succeeded);
    for (_, address, size) in run.said().into_iter().filter(|(name, ..)| name != "free") {
        assert_eq!(run.object(address).bytes, size);
    }
}

/// Fewer rounds than with the library: nobody waits where the rings are full.
const ROUNDS: usize = 50;

#[test]
fn what_cannot_be_preloaded_is_probed() {
    let folder = TempDir::new().unwrap();
    let Some(run) = run_probed(folder.path(), &["ways"]) else { return };
    every_way_is_there(&run);
    for (what, check) in [
        ("fork", a_child_inherits as fn(&Run)),
        ("exec", an_exec_ends_objects),
        ("killed", everything_but_the_end_is_there),
    ] {
        check(&run_probed(folder.path(), &[what]).unwrap());
    }
    threads_are_told_apart(&run_probed(folder.path(), &["threads", &ROUNDS.to_string()]).unwrap(), ROUNDS);
}

#[test]
fn a_stripped_program_is_refused() {
    let folder = TempDir::new().unwrap();
    let program = compile(folder.path(), "cc", "programs.c", &["-static", "-s"]);
    let child = Child::prepare(&[program.to_str().unwrap()]).unwrap();
    let refusal = Probes::of_program(child.pid(), &program).unwrap_err().to_string();
    assert!(refusal.contains("its symbols name no malloc"), "{refusal}");
}

#[test]
fn a_part_is_drawn_by_bytes_and_its_frees_are_known() {
    let (_folder, program) = c_program();
    let run = run(&program, &["threads"], 10_000);
    assert_eq!(run.how.sampled_bytes, 10_000);
    // 160 threads allocate 20,000 objects of 150.5 bytes in the mean: about 48,000 draws.
    let drawn = run.objects.len() as f64;
    let expected = 160.0 * 20_000.0 * 150.5 / 10_000.0;
    assert!((drawn / expected - 1.0).abs() < 0.1, "{drawn}, {expected} expected");
    let living = run.objects.iter().filter(|object| object.freed_tsc.is_none()).count();
    assert!(living < 200, "{living} of {drawn} were not freed");
}

#[test]
fn operators_of_cpp_name_who_called_them() {
    let folder = TempDir::new().unwrap();
    let program = compile(folder.path(), "c++", "operators.cc", &[]);
    let run = run(&program, &[], 0);
    assert!(run.succeeded);
    let said = run.said();
    let (first, second) = (run.object(said[0].1), run.object(said[1].1));
    assert_eq!((first.bytes, second.bytes), (16, 16));
    assert_eq!(first.frames[0], second.frames[0], "both were made by make_node");
    assert!(first.freed_tsc.is_some() && second.freed_tsc.is_none());
    for (name, address, size) in &said[2..] {
        assert!(run.object(*address).bytes >= *size, "{name}");
    }
    assert_ne!(run.object(said[2].1).frames[0], first.frames[0], "an exception ends what operator new noted");
}
