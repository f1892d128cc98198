//! What hpmtop does on a terminal: one that `script` of util-linux makes, whose output is all that is seen there.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

/// What is written when the screen is opened, and when it is closed.
const OPENED: &str = "\x1b[?1049h";
const CLOSED: &str = "\x1b[?1049l";

/// Runs hpmtop with these words of a shell on a terminal of 80×24, and types `q` once the screen is open; what is seen there, what
/// comes on its standard error output, and its exit status.
fn on_terminal(folder: &Path, words: &str) -> (String, String, i32) {
    let errors = folder.join("errors");
    let line = format!(
        "stty cols 80 rows 24; exec timeout 60 {} {words} 2> {}",
        env!("CARGO_BIN_EXE_hpmtop"),
        errors.display()
    );
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &line, "/dev/null"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    script.env("XDG_CONFIG_HOME", folder).env("SHELL", "/bin/sh").env("TERM", "xterm-256color");
    let mut script = script.spawn().unwrap();
    let (mut keys, mut screen) = (script.stdin.take(), script.stdout.take().unwrap());
    let (mut seen, mut part) = (Vec::new(), [0; 4096]);
    loop {
        match screen.read(&mut part).unwrap() {
            0 => break,
            read => seen.extend_from_slice(&part[..read]),
        }
        if String::from_utf8_lossy(&seen).contains(OPENED)
            && let Some(mut keys) = keys.take()
        {
            keys.write_all(b"q").unwrap();
        }
    }
    let status = script.wait().unwrap().code().unwrap();
    (String::from_utf8_lossy(&seen).into_owned(), fs::read_to_string(errors).unwrap(), status)
}

#[test]
fn a_program_that_cannot_be_run_is_told_where_no_screen_hides_it() {
    if libhpm::source::perf::software().is_err() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let words = "--source perf -e cpu-clock:u -- /no/such/program";
    let (seen, errors, status) = on_terminal(temp.path(), words);
    assert_eq!(status, 1, "{errors}");
    assert!(
        errors.starts_with("hpmtop: cannot run `/no/such/program`: ") && errors.lines().count() == 1,
        "{errors}"
    );
    assert_eq!(seen.matches(OPENED).count(), seen.matches(CLOSED).count(), "{seen:?}");
    let once = Command::new(env!("CARGO_BIN_EXE_hpmtop"))
        .args(["--once", "--source", "perf", "-e", "cpu-clock:u", "/no/such/program"])
        .output()
        .unwrap();
    assert_eq!((String::from_utf8(once.stderr).unwrap(), once.status.code()), (errors, Some(1)));
}

/// A file of `perf record` of libhpm's tests.
fn perf_data(name: &str) -> String {
    format!("{}/../libhpm/tests/data/perf/{name}.data", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_file_of_perf_record_is_replayed_and_leaves_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let for_now = temp.path().join("tmp");
    fs::create_dir(&for_now).unwrap();
    let replay = |name: &str, screen: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_hpmtop"))
            .args(["--replay", &perf_data(name), "--once", "--format", "json", "--screen", screen])
            .env("XDG_CONFIG_HOME", temp.path())
            .env("TMPDIR", &for_now)
            .output()
            .unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::read_dir(&for_now).unwrap().count(), 0, "{name}: its trace is gone");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let lacks_quanta = |seen: &serde_json::Value| seen["remarks"].to_string().contains("--switch-events");
    let with = replay("plain", "processes");
    assert_eq!(with["target"], "the trace plain.data");
    assert!(with["rows"].to_string().contains("tiny") && !lacks_quanta(&with), "{with}");
    let without = replay("two", "process");
    assert!(without["rows"].to_string().contains("\"function\"") && lacks_quanta(&without), "{without}");
}

#[test]
fn notes_are_told_before_the_screen_is_opened() {
    let temp = tempfile::tempdir().unwrap();
    // Cut off, so that there is something to say.
    let bytes = fs::read(perf_data("two")).unwrap();
    let file = temp.path().join("cut.data");
    fs::write(&file, &bytes[..bytes.len() * 3 / 4]).unwrap();
    let (seen, errors, status) = on_terminal(temp.path(), &format!("--replay {}", file.display()));
    assert_eq!(status, 0, "{seen} {errors}");
    assert!(seen.contains(OPENED) && seen.contains(CLOSED) && !seen.contains("note: "), "{seen}");
    assert!(errors.starts_with(&format!("hpmtop: note: {}: ", file.display())), "{errors}");
}

#[test]
fn where_nothing_can_be_written_the_status_tells() {
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let status = |words: &[&str], out: Stdio, errors: Stdio| {
        let mut hpmtop = Command::new(env!("CARGO_BIN_EXE_hpmtop"));
        hpmtop.args(words).stdout(out).stderr(errors).status().unwrap().code()
    };
    let (lost, keys) = (["--once", "--replay", "/no/such/trace"], ["--list-keys", "--config", "/dev/null"]);
    assert_eq!(status(&lost, Stdio::null(), full().into()), Some(1), "and no panic");
    assert_eq!(status(&keys, full().into(), full().into()), Some(1));
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    assert_eq!(status(&keys, write.into(), Stdio::null()), Some(0), "a reader that has seen enough");
    let temp = tempfile::tempdir().unwrap();
    let mut hpmtop = Command::new(env!("CARGO_BIN_EXE_hpmtop"));
    // A folder cannot be read as a file, also by root.
    fs::create_dir_all(temp.path().join("hpmtop/config.toml")).unwrap();
    hpmtop.arg("--list-keys").env("XDG_CONFIG_HOME", temp.path()).stdout(Stdio::null());
    assert_eq!(hpmtop.stderr(full()).status().unwrap().code(), Some(0), "a note that nobody can read");
}

#[test]
fn a_thread_that_gives_itself_a_name_commands_no_terminal() {
    if libhpm::source::perf::software().is_err() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let hpmtop = |program: &str| {
        let mut hpmtop = Command::new(env!("CARGO_BIN_EXE_hpmtop"));
        hpmtop.args([
            "--source",
            "perf",
            "-e",
            "cpu-clock:u",
            "--interval",
            "1000",
            "--once",
            "sh",
            "-c",
            program,
        ]);
        hpmtop.env("XDG_CONFIG_HOME", temp.path()).output().unwrap()
    };
    let output = hpmtop("printf 'a\\n\\033[31mX' > /proc/$$/comm; while :; do :; done");
    let seen = String::from_utf8(output.stdout).unwrap();
    assert!(seen.contains("[31mX") && !seen.contains('\x1b') && seen.lines().count() == 3, "{seen:?}");
    let output = hpmtop("printf '\\033[31mX' >&2; exit 0");
    assert!(output.stderr.ends_with(b"\x1b[31mX"), "what the program prints itself is passed on as it is");
}

#[test]
fn a_program_is_seen_in_the_first_interval_however_long_it_takes_to_begin() {
    if libhpm::source::perf::software().is_err() {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    // A program takes longer than this until it executes.
    let words = ["--source", "perf", "-e", "cpu-clock:u", "--interval", "1", "--once", "sleep", "100"];
    let mut hpmtop = Command::new(env!("CARGO_BIN_EXE_hpmtop"));
    let output = hpmtop.args(words).env("XDG_CONFIG_HOME", temp.path()).output().unwrap();
    let seen = String::from_utf8(output.stdout).unwrap();
    assert!(seen.lines().count() == 3 && seen.contains("sleep"), "{seen}");
}
