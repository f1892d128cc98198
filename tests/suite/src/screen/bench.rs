//! `suite bench-screen`: what hpmtop costs while it shows a program of 500 threads, and what other live screens cost for the same.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Pane, pid};
use crate::consumers::tools::{debian, output};
use crate::scenario::document;

const HEADING: &str = "## hpmtop against other live screens";
/// Threads of the program, and how long each sleeps: ten wakes a second.
const LOAD: [&str; 2] = ["500", "100"];
/// How long each tool runs before it is measured, and how long it is measured.
const WARM: Duration = Duration::from_secs(10);
const MEASURED: Duration = Duration::from_secs(10);
/// Sizes of the terminal.
const SIZES: [(&str, &str); 2] = [("80", "24"), ("200", "60")];
/// Ticks of `/proc/PID/stat` in a second (`getconf CLK_TCK`, 100 on every Linux).
const TICKS: f64 = 100.0;

/// A program that is ended when nobody needs it any more.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Measures all, prints the table and puts it into docs/measurements.md.
///
/// # Errors
/// A tool cannot be started, or is not seen.
pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let pane = Pane::open(root)?;
    let unpacked = root.join("target/consumers/debian");
    let btop = debian(&unpacked, "btop", &["usr/bin"], "btop")?;
    let perf = debian(&unpacked, "linux-perf", &["usr/bin"], "perf")?;
    let load = Command::new(root.join("target/release/wakers")).args(LOAD).stdout(Stdio::null()).spawn();
    let load = Running(load.context("target/release/wakers cannot be started; `make tools` builds it")?);
    let watched = load.0.id();
    let hpmtop = pane.hpmtop.display().to_string();
    let tools = [
        (format!("{hpmtop} -i 100 -p {watched}"), "10", "its threads: quanta, counts, samples", "hpmtop "),
        (format!("{hpmtop} -i 1000 -p {watched}"), "1", "the same", "hpmtop "),
        (format!("{}", btop.display()), "10", "all processes, from /proc", "cpu"),
        (format!("{}", btop.display()), "1", "the same", "cpu"),
        (
            format!("{} top -e cpu-clock -F 499 -d 1 -p {watched}", perf.display()),
            "1",
            "its functions, by samples",
            "cpu-clock",
        ),
    ];
    let mut text = format!(
        "{HEADING}\n\nCommand: `target/release/suite bench-screen`: each tool in a terminal of tmux, in one run, while `wakers {} {}` runs (tests/guest: \
         {} threads, each of which wakes ten times a second and does next to nothing). CPU time of the tool's process \
         (`/proc/PID/stat`, user and system) over {} s, after {} s; events of software, because this machine has no PMU. btop and perf top show less \
         of it, so that only the order of magnitude can be compared; perf top cannot be updated more often than once a second.\n\n\
         | tool | updates/s | shows | 80×24 | 200×60 |\n|---|---|---|---|---|\n",
        LOAD[0],
        LOAD[1],
        LOAD[0],
        MEASURED.as_secs(),
        WARM.as_secs()
    );
    for (command, rate, what, seen) in tools {
        // btop has no option for it; it reads this below XDG_CONFIG_HOME, which is the folder of the terminal.
        let each = if rate == "10" { 100 } else { 1000 };
        fs::create_dir_all(pane.folder.join("btop"))?;
        fs::write(pane.folder.join("btop/btop.conf"), format!("update_ms = {each}\n"))?;
        let costs = SIZES
            .iter()
            .map(|size| Ok(format!("{:.2} %", measure(&pane, &command, *size, seen)?)))
            .collect::<Result<Vec<String>>>()?;
        let words: Vec<&str> = command.split(' ').collect();
        let name = words[0].rsplit('/').next().unwrap_or_default();
        let shown = format!("{name} {}", words[1..].join(" ")).replace(&watched.to_string(), "PID");
        let shown = shown.trim_end();
        println!("{shown}: {}", costs.join(", "));
        let _ = writeln!(text, "| `{shown}` | {rate} | {what} | {} |", costs.join(" | "));
    }
    document::replace(root, HEADING, &text)?;
    Ok(ExitCode::SUCCESS)
}

/// CPU time of a tool in a terminal of this size, in percent of one CPU.
fn measure(pane: &Pane, command: &str, (width, height): (&str, &str), seen: &str) -> Result<f64> {
    pane.begin()?;
    pane.tmux(&["resize-window", "-x", width, "-y", height])?;
    pane.types(&format!("env TERM=screen-256color {command}"))?;
    pane.sees(seen)?;
    sleep(WARM);
    let process = pid(pane)?;
    let (begun, before) = (Instant::now(), cpu_seconds(&process)?);
    sleep(MEASURED);
    let cost = (cpu_seconds(&process)? - before) / begun.elapsed().as_secs_f64() * 100.0;
    output(Command::new("kill").args(["-TERM", &process]))?;
    Ok(cost)
}

/// User and system time of a process with all its threads (proc_pid_stat(5), fields 14 and 15).
fn cpu_seconds(process: &str) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).context("the tool has ended")?;
    let Some((_, fields)) = stat.rsplit_once(')') else { bail!("`{stat}`") };
    let ticks = |place: usize| fields.split_whitespace().nth(place)?.parse::<f64>().ok();
    let sum = ticks(11).zip(ticks(12)).map(|(user, system)| user + system);
    Ok(sum.context("no times")? / TICKS)
}
