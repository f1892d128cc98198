//! Runs of the lab machine, through the command people use. Each boots a machine, so they run on request only:
//! `cargo test -p lab -- --ignored`.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn lab(folder: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lab"));
    command.args(["run", "--no-module", "--no-plugin"]).args(options).current_dir(folder);
    command
}

fn sh(folder: &Path, options: &[&str], script: &str) -> Output {
    lab(folder, options).args(["--", "sh", "-c", script]).output().expect("the lab starts")
}

/// A folder whose name holds what option parsers and shells trip over.
fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::Builder::new().prefix("lab, test ").tempdir().expect("a temporary folder");
    let path = folder.path().canonicalize().expect("it exists");
    (folder, path)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
#[ignore = "boots the lab machine"]
fn output_streams_and_status_come_back_apart() {
    let (_keep, here) = folder();
    let run = sh(&here, &[], "echo out; echo err > /dev/stderr; pwd; exit 7");
    assert_eq!(text(&run.stdout), format!("out\n{}\n", here.display()));
    assert!(text(&run.stderr).ends_with("err\n"), "{}", text(&run.stderr));
    assert_eq!(run.status.code(), Some(7));
}

#[test]
#[ignore = "boots the lab machine"]
fn large_output_arrives_whole_and_background_processes_do_not_hold_it() {
    let (_keep, here) = folder();
    let run = sh(&here, &[], "sleep 1000 & head -c 3000000 /dev/zero; kill -KILL $$");
    assert_eq!(run.stdout.len(), 3_000_000);
    assert!(run.stdout.iter().all(|byte| *byte == 0));
    assert_eq!(run.status.code(), Some(137));
}

#[test]
#[ignore = "boots the lab machine"]
fn files_come_back_from_the_working_folder_and_from_out_only() {
    let (_keep, here) = folder();
    let (_keep_too, out) = folder();
    fs::write(here.join("given"), "from the host").expect("written");
    let stray = out.with_extension("stray");
    let script = format!(
        "mkdir -p deep/er && cat given > deep/er/copy && mv given renamed && seq 300000 > big && \
         echo more > '{}/named' && echo lost > '{}' && cat '{}'",
        out.display(),
        stray.display(),
        stray.display()
    );
    let run = sh(&here, &["--out", &out.to_string_lossy()], &script);
    assert!(run.status.success(), "{}", text(&run.stderr));
    assert_eq!(text(&run.stdout), "lost\n");
    assert_eq!(fs::read_to_string(here.join("deep/er/copy")).expect("there"), "from the host");
    assert!(here.join("renamed").exists() && !here.join("given").exists());
    let big = fs::read_to_string(here.join("big")).expect("there");
    assert!(big.lines().eq((1..=300_000).map(|n| n.to_string())), "every line in its place");
    assert_eq!(fs::read_to_string(out.join("named")).expect("there"), "more\n");
    assert!(!stray.exists(), "the rest of the host is out of reach");
}

#[test]
#[ignore = "boots the lab machine"]
fn a_kernel_panic_is_an_error_that_names_the_log() {
    let (_keep, here) = folder();
    let run = sh(&here, &["--timeout", "120"], "echo before; echo c > /proc/sysrq-trigger; sleep 100");
    assert_eq!(run.status.code(), Some(125));
    assert_eq!(text(&run.stdout), "before\n");
    let error = text(&run.stderr);
    assert!(error.contains("sysrq triggered crash") && error.contains("console.log"), "{error}");
}

#[test]
#[ignore = "boots the lab machine"]
fn a_missing_program_is_one_clear_sentence() {
    let (_keep, here) = folder();
    let run = lab(&here, &[]).args(["--", "no-such-program"]).output().expect("the lab starts");
    assert_eq!(run.status.code(), Some(125));
    assert!(text(&run.stderr).contains("starting no-such-program: No such file"), "{}", text(&run.stderr));
}

#[test]
#[ignore = "boots the lab machine"]
fn a_hanging_command_is_killed_and_leaves_nothing() {
    let (_keep, here) = folder();
    let name = format!("hang-{}", std::process::id());
    let start = Instant::now();
    let run = sh(&here, &["--timeout", "20", "--name", &name], "echo started; sleep 1000");
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!(run.status.code(), Some(124));
    assert!(text(&run.stderr).contains("--timeout"), "{}", text(&run.stderr));
    assert_eq!(machines(&name), 0);
}

#[test]
#[ignore = "boots the lab machine"]
fn the_machine_dies_with_the_lab() {
    let (_keep, here) = folder();
    for signal in ["INT", "KILL"] {
        let name = format!("die-{signal}-{}", std::process::id());
        let mut command = lab(&here, &["--name", &name]);
        let mut lab = command.args(["--", "sleep", "1000"]).stderr(Stdio::null()).spawn().expect("started");
        wait_until(&format!("QEMU of {name} to start"), || machines(&name) == 1);
        let kill =
            Command::new("kill").args(["-s", signal, &lab.id().to_string()]).status().expect("kill runs");
        assert!(kill.success());
        let status = lab.wait().expect("ends");
        assert_eq!(status.code(), (signal == "INT").then_some(130));
        wait_until(&format!("QEMU of {name} to end"), || machines(&name) == 0);
    }
}

#[test]
#[ignore = "boots the lab machine"]
fn a_run_whose_output_nobody_reads_ends() {
    let (_keep, here) = folder();
    let mut command = lab(&here, &[]);
    let mut lab =
        command.args(["--", "yes"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("started");
    let mut first = [0; 2];
    lab.stdout.take().expect("piped").read_exact(&mut first).expect("output");
    assert_eq!(&first, b"y\n");
    assert_eq!(lab.wait().expect("ends").code(), Some(141));
}

#[test]
#[ignore = "boots the lab machine"]
fn two_machines_run_side_by_side() {
    let (_keep, here) = folder();
    let start = |word: &str| {
        let mut command = lab(&here, &[]);
        command.args(["--", "sh", "-c", &format!("echo {word} > {word}; sleep 1; cat {word}")]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started")
    };
    let both = [start("one"), start("two")];
    for (lab, word) in both.into_iter().zip(["one", "two"]) {
        let run = lab.wait_with_output().expect("ends");
        assert!(run.status.success(), "{}", text(&run.stderr));
        assert_eq!(text(&run.stdout), format!("{word}\n"));
    }
}

#[test]
#[ignore = "boots the lab machine"]
fn a_deterministic_machine_boots_alike_to_the_microsecond() {
    let (_keep, here) = folder();
    let boots = ["first", "second"].map(|name| {
        let log = here.join(name);
        let options = ["--deterministic", "--keep-log", &log.to_string_lossy()];
        let run = sh(&here, &options, "cat /proc/sys/kernel/randomize_va_space");
        assert_eq!(text(&run.stdout), "0\n", "{}", text(&run.stderr));
        let log = fs::read(&log).expect("kept");
        let lines: Vec<String> = text(&log).lines().take(100).map(str::to_owned).collect();
        assert_eq!(lines.len(), 100);
        lines
    });
    assert_eq!(boots[0], boots[1]);
}

#[test]
#[ignore = "boots the lab machine"]
fn page_table_isolation_is_on_unless_asked_otherwise() {
    let (_keep, here) = folder();
    let isolated = |options: &[&str]| {
        let run = sh(&here, options, "dmesg | grep -c 'isolation: enabled'");
        text(&run.stdout).trim() == "1"
    };
    assert!(isolated(&[]));
    assert!(!isolated(&["--append", "pti=off"]));
}

/// QEMU processes of the run `name`: their command lines name files in its folder.
fn machines(name: &str) -> usize {
    let folder = format!("runs/{name}/");
    fs::read_dir("/proc")
        .expect("/proc is there")
        .filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok())
        .filter(|line| text(line).contains("qemu-system-x86_64") && text(line).contains(&folder))
        .count()
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
