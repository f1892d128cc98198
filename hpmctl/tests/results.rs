//! What becomes of a measurement, of the measured program and of an earlier result when the result cannot be written, or there is none.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use libhpm::trace::TraceReader;

use self::common::said;

fn stat(folder: &Path, options: &[&str], script: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hpmctl"));
    command.args(["stat", "--source", "perf", "-e", "task-clock"]).args(options);
    command.args(["--", "sh", "-c", script]).current_dir(folder);
    command
}

fn hpmctl(folder: &Path, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_hpmctl")).args(words).current_dir(folder).output().unwrap()
}

fn perf_is_here() -> bool {
    libhpm::source::perf::software().is_ok()
}

const LASTS: &str = "sleep 0.2; echo done > mark; exit";

#[test]
fn a_program_outlives_the_reader_of_its_intervals() {
    if !perf_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for options in [&["-I", "10"][..], &["-I", "10", "--per-thread", "--csv"], &[]] {
        let mut child =
            stat(folder.path(), options, &format!("{LASTS} 4")).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stderr.take());
        assert_eq!(child.wait().unwrap().code(), Some(4), "{options:?}");
        fs::remove_file(folder.path().join("mark")).unwrap();
    }
}

#[test]
fn a_result_that_its_file_cannot_take_is_shown() {
    if !perf_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let begin = ["-o", "/dev/full"];
    for options in [&[][..], &["-I", "10"], &["--csv", "-I", "10"], &["-r", "3"]] {
        for (status, shown) in [("0", 1), ("7", 7)] {
            let options = [&begin, options].concat();
            let output = stat(folder.path(), &options, &format!("{LASTS} {status}")).output().unwrap();
            let text = said(&output.stderr);
            assert_eq!(output.status.code(), Some(shown), "{options:?}: {text}");
            assert_eq!(
                text.matches("cannot write /dev/full, so that the result is shown here").count(),
                1,
                "{text}"
            );
            assert!(
                text.contains("task-clock") && folder.path().join("mark").exists(),
                "{options:?}: {text}"
            );
        }
    }
}

#[test]
fn a_file_is_replaced_only_by_a_result() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.txt");
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hpmctl"));
        command
            .args(["stat", "--source", "perf", "-o", "out.txt"])
            .args(words)
            .current_dir(&folder)
            .output()
            .unwrap()
    };
    let wrong: [&[&str]; 3] =
        [&["--", "/nonexist"], &["-e", "nonsense", "--", "true"], &["-r", "2", "--", "/nonexist"]];
    for words in wrong {
        assert!(!run(words).status.success());
        assert!(!path.exists(), "{words:?}");
        fs::write(&path, "precious").unwrap();
        assert!(!run(words).status.success());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious", "{words:?}");
        fs::remove_file(&path).unwrap();
    }
    if perf_is_here() {
        fs::write(&path, "precious".repeat(1000)).unwrap();
        let output = stat(folder.path(), &["-o", "out.txt"], "exit 0").output().unwrap();
        let kept = fs::read_to_string(&path).unwrap();
        assert!(
            output.status.success() && kept.contains("task-clock") && !kept.contains("precious"),
            "{kept}"
        );
    }
}

#[test]
fn a_reader_of_completions_may_go_at_any_time() {
    for shell in ["bash", "zsh"] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hpmctl"));
        command.args(["completions", shell]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{shell}: {}", said(&output.stderr));
    }
}

/// Of runs that signals of their own ended, which are runs that failed; a code above 128 is no signal.
#[test]
fn a_run_that_a_signal_ended_passes_on_its_status() {
    if !perf_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = stat(folder.path(), &["-r", "3"], "kill -TERM $$").output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{}", said(&output.stderr));
    let text = said(&output.stderr);
    assert!(text.contains("3 of the runs ended with a failure, by SIGTERM"), "{text}");
    let output = stat(folder.path(), &["-r", "3"], "exit 200").output().unwrap();
    let text = said(&output.stderr);
    assert_eq!(output.status.code(), Some(200), "{text}");
    assert!(text.contains("in 3 runs") && text.contains("3 of the runs ended with a failure."), "{text}");
}

#[test]
fn comma_separated_values_have_their_source_beside_them() {
    if !perf_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for options in [&["--csv"][..], &["--csv", "-r", "2"]] {
        let output = stat(folder.path(), &[options, &["-o", "out.csv"]].concat(), "exit 0").output().unwrap();
        assert!(
            said(&output.stderr).contains("hpmctl: note: source: "),
            "{options:?}: {}",
            said(&output.stderr)
        );
        let kept = fs::read_to_string(folder.path().join("out.csv")).unwrap();
        assert!(kept.contains("task-clock") && !kept.contains("hpmctl"), "{kept}");
    }
    let output = stat(folder.path(), &["--csv"], "exit 0").output().unwrap();
    assert!(
        said(&output.stderr).starts_with("interval_end_s,"),
        "nothing stands among the values: {}",
        said(&output.stderr)
    );
    assert!(!said(&output.stderr).contains("hpmctl"), "{}", said(&output.stderr));
}

/// A program without `--` before it, which is measured for a part of its time.
#[test]
fn a_duration_ends_the_measurement_and_not_the_program() {
    if !perf_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hpmctl"));
        command.args(["stat", "--source", "perf", "-e", "task-clock", "--json", "-o", "out.json"]);
        let output = command.args(words).current_dir(&folder).output().unwrap();
        let json: serde_json::Value =
            serde_json::from_slice(&fs::read(folder.path().join("out.json")).unwrap()).unwrap();
        let seconds = json["elapsed_ns"].as_u64().unwrap() as f64 / 1e9;
        (output.status.code(), seconds, json)
    };
    let (status, seconds, json) =
        run(&["--duration", "0.2", "sh", "-c", "sleep 2; echo done > mark; exit 3"]);
    assert!((0.2..2.0).contains(&seconds) && folder.path().join("mark").exists(), "{seconds}");
    assert_eq!((status, &json["exit_status"]), (Some(3), &serde_json::Value::Null));
    assert_eq!(json["events"][0]["unit"], "ns");
    let own = std::process::id().to_string();
    let (status, seconds, _) = run(&["--duration", "0.1", "-p", &own]);
    assert!((0.1..60.0).contains(&seconds) && status == Some(0), "{seconds}");
}

#[test]
fn a_forced_recording_replaces_a_trace() {
    if !perf_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let record = |script: &str| {
        let begin = ["record", "--source", "perf", "-e", "cpu-clock:u", "-f", "-o", "t.hpm"];
        let output = hpmctl(folder.path(), &[&begin[..], &["sh", "-c", script]].concat());
        assert!(output.status.success(), "{}", said(&output.stderr));
        fs::read_to_string(folder.path().join("t.hpm/meta.json")).unwrap()
    };
    assert!(record("true first").contains("true first"));
    let second = record("true second");
    assert!(second.contains("true second") && !second.contains("true first"), "{second}");
    assert_eq!(folder.path().read_dir().unwrap().count(), 1, "nothing else is left");
    fs::write(folder.path().join("t.hpm/notes"), "precious").unwrap();
    let begin = ["record", "--source", "perf", "-e", "cpu-clock:u", "-f", "-o", "t.hpm", "true"];
    let output = hpmctl(folder.path(), &begin);
    assert!(
        said(&output.stderr).contains("t.hpm holds `notes`, too, which --force would remove"),
        "{}",
        said(&output.stderr)
    );
    assert_eq!(fs::read_to_string(folder.path().join("t.hpm/notes")).unwrap(), "precious");
}

/// hpmctl where nobody may write files of more than so many blocks of 512 bytes.
fn limited(folder: &Path, blocks: u32, words: &str) -> Command {
    // Writing then fails, as on a full disk, although a signal is sent, too.
    let begin = format!("ulimit -f {blocks}; exec \"$0\" {words}");
    let mut command = Command::new("dash");
    command.args(["-c", &begin, env!("CARGO_BIN_EXE_hpmctl")]).current_dir(folder);
    command
}

/// `hpmctl record` of a script, there.
fn record(folder: &Path, options: &str, blocks: u32, script: &str) -> Command {
    limited(folder, blocks, &format!("record --source perf -o a.hpm {options} sh -c '{script}'"))
}

#[test]
fn a_program_outlives_the_readers_of_its_recording() {
    if !perf_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = record(folder.path(), "-e cpu-clock:u", 1 << 20, &format!("{LASTS} 4"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(4));
    assert!(folder.path().join("mark").exists());
    assert!(TraceReader::open(folder.path().join("a.hpm")).unwrap().meta().complete);
}

/// The limit of a file's size ends the program as without hpmctl, which itself goes on.
#[test]
fn a_program_finds_the_signals_that_it_would_find_alone() {
    if !perf_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "exec head -c 1000000 /dev/zero > big";
    let output = record(folder.path(), "-e page-faults:u", 128, script).output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 25), "{}", said(&output.stderr));
}

#[test]
fn a_program_outlives_a_recording_that_finds_no_room() {
    if !perf_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script =
        "i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done; sleep 1.5; echo done > mark; exit 4";
    let output = record(folder.path(), "-e page-faults:u", 128, script).output().unwrap();
    let text = said(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("the program runs on without being recorded"), "{text}");
    assert!(text.contains("a.hpm is not complete") && folder.path().join("mark").exists(), "{text}");
    assert!(!TraceReader::open(folder.path().join("a.hpm")).unwrap().meta().complete);
}

#[test]
fn a_recording_that_never_began_leaves_nothing_and_its_program_is_not_run() {
    if !perf_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let output = record(folder.path(), "-e cpu-clock:u", 0, LASTS).output().unwrap();
    let text = said(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.starts_with("hpmctl: cannot ") && text.lines().count() == 1, "{text}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "{text}");
}

#[test]
fn a_merge_that_finds_no_room_leaves_nothing() {
    if !perf_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = "i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done";
    let recorded = record(folder.path(), "-e page-faults:u", 1 << 20, script).output().unwrap();
    assert!(recorded.status.success(), "{}", said(&recorded.stderr));
    let output = limited(folder.path(), 128, "merge -o m.hpm a.hpm").output().unwrap();
    assert!(
        said(&output.stderr).starts_with("hpmctl: cannot write m.hpm") && !output.status.success(),
        "{}",
        said(&output.stderr)
    );
    assert!(!folder.path().join("m.hpm").exists());
    let output = limited(folder.path(), 1 << 20, "merge -o m.hpm a.hpm").output().unwrap();
    assert!(output.status.success(), "{}", said(&output.stderr));
}

#[test]
fn an_import_that_finds_no_room_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let import =
        concat!("import -o m.hpm '", env!("CARGO_MANIFEST_DIR"), "/../libhpm/tests/data/perf/plain.data'");
    let output = limited(folder.path(), 8, import).output().unwrap();
    assert!(said(&output.stderr).starts_with("hpmctl: cannot write m.hpm"), "{}", said(&output.stderr));
    assert!(!output.status.success() && fs::read_dir(&folder).unwrap().next().is_none());
    let output = limited(folder.path(), 1 << 20, import).output().unwrap();
    assert!(output.status.success(), "{}", said(&output.stderr));
}

#[test]
fn a_delay_leaves_out_what_comes_before_its_end() {
    if !perf_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let counted = |options: &[&str], script: &str| {
        let output = stat(folder.path(), options, script).output().unwrap();
        let text = said(&output.stderr);
        assert_eq!(output.status.code(), Some(4), "{text}");
        let values = serde_json::Deserializer::from_str(&text).into_iter().map(Result::unwrap);
        values.collect::<Vec<serde_json::Value>>()
    };
    // Busy for a second, idle for another.
    let script = "timeout 1 sh -c 'while :; do :; done'; sleep 1; exit 4";
    let json = ["--json", "--per-thread"];
    let whole = &counted(&json, script)[0];
    let rest = &counted(&[&json[..], &["--delay", "1500ms"]].concat(), script)[0];
    let busy = |counted: &serde_json::Value| counted["events"][0]["count"].as_u64().unwrap();
    let in_parts =
        |counted: &serde_json::Value| -> u64 { counted["parts"].as_array().unwrap().iter().map(busy).sum() };
    assert!(busy(whole) > 10 * busy(rest) && in_parts(whole) > 10 * in_parts(rest), "{whole} {rest}");
    assert!(rest["elapsed_ns"].as_u64().unwrap() + 1_000_000_000 < whole["elapsed_ns"].as_u64().unwrap());
    let lines = counted(&["--json", "-I", "100", "--delay", "1500ms"], script);
    assert!(
        lines[0]["until_ns"].as_u64().unwrap() < 1_000_000_000,
        "intervals begin when it is over: {}",
        lines[0]
    );
    let early = &counted(&["--json", "--per-thread", "--delay", "10m"], "exit 4")[0];
    let words = "nothing was counted: the measurement ended before its delay of 600s was over";
    assert!(early["warnings"].to_string().contains(words), "{early}");
    assert!(busy(early) == 0 && early.get("parts").is_none(), "{early}");
}

#[test]
fn no_result_is_written_into_a_trace_and_no_clock_sampled_faster_than_the_kernel_does() {
    if !perf_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &str| hpmctl(folder.path(), &words.split(' ').collect::<Vec<_>>());
    assert!(run("record --source perf -e page-faults:u -o a.hpm true").status.success());
    let output = run("export -f folded -o a.hpm/samples.arrows a.hpm");
    assert!(
        said(&output.stderr).contains("its folder is a trace") && !output.status.success(),
        "{}",
        said(&output.stderr)
    );
    assert!(run("verify a.hpm").status.success());
    for (asked, most) in [("-c 1000", "-c 10000"), ("-F 200000", "-F 100000")] {
        let output = run(&format!("record --source perf -e page-faults,cpu-clock:u {asked} -o b.hpm true"));
        let sentence = format!("the kernel samples cpu-clock:u each 10000 ns at the most, which is {most}");
        assert!(said(&output.stderr).contains(&sentence), "{}", said(&output.stderr));
    }
    assert!(!folder.path().join("b.hpm").exists());
}

#[test]
fn no_control_character_of_a_name_reaches_the_terminal() {
    if !perf_is_here() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("a\u{1b}[31m\nb");
    // Not by this process, of which another test's program has the file open for writing until it is executed.
    assert!(Command::new("cp").arg("/bin/sleep").arg(&program).status().unwrap().success());
    let begin = ["record", "--source", "perf", "-e", "page-faults", "-o", "a.hpm"];
    let program = program.to_str().unwrap();
    let recorded = hpmctl(folder.path(), &[&begin[..], &[program, "0.01"]].concat());
    assert!(recorded.status.success(), "{}", said(&recorded.stderr));
    for words in [&["report", "--by", "thread", "a.hpm"][..], &["report", "a.hpm"], &["info", "a.hpm"]] {
        let output = hpmctl(folder.path(), words);
        let text = String::from_utf8(output.stdout.clone()).unwrap() + &said(&output.stderr);
        assert!(output.status.success() && text.contains("␛[31m"), "{words:?}: {text}");
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{words:?}: {text:?}");
    }
}
