//! Who holds the PMU: hpm against the kernel's perf, both ways round.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use vpmu::Profile;

use super::lifecycle::MODULE;
use super::processor::{self, LOADS};
use super::programs::{built, hpmctl, pid_of, succeed};
use super::{GuestReport, others};

const LOCKDOWN: &str = "/sys/kernel/security/lockdown";
const WATCHDOG: &str = "/proc/sys/kernel/nmi_watchdog";

/// Checks that each side refuses while the other holds the counters, and says who.
pub(super) fn run(report: &mut GuestReport) {
    let version = processor::profile().ok().and_then(Profile::perfmon).map(|pmu| pmu.version);
    if version >= Some(UNRESERVED) {
        report.check(
            "a recording gives up when perf begins to count, which nothing keeps out, and perf counts on",
            perf_disturbs,
        );
    } else {
        report.check("perf gets EBUSY while hpm holds the PMU", perf_is_refused);
    }
    report.check("perf schedules events of software beside a session, and its counters stay", perf_schedules);
    report.check("perf counts again after hpm has gone", perf_counts_again);
    report.check("hpm names the process that holds perf events", hpm_names_the_holder);
    report.check("hpm names the NMI watchdog", hpm_names_the_watchdog);
    report.check(
        "records can be had after the watchdog that ran when the module was loaded",
        loaded_under_watchdog,
    );
    // The kernel can be locked down, and not be opened again.
    report.check(
        "a kernel that is locked down lets records of memory be had by nobody, and counts",
        locked_down,
    );
}

/// The version of architectural performance monitoring from which on Linux uses counters that its table of reserved ones does not have
/// (docs/generations.md).
const UNRESERVED: u8 = 6;

/// hpm's program runs before perf, beside it, and after it; perf counts what it counts alone.
fn perf_disturbs() -> Result<String> {
    let (trace, program) = ("disturbed.hpm", built("strides")?);
    let program = program.display();
    // On one CPU: perf scales what it counts on each type of a hybrid processor's cores by the time that the program was on them.
    let counting =
        |file: &str| format!("taskset -c 0 perf stat -x, -o {file} -e instructions:u {program} xxx");
    let script = format!("{program} x; {}; {program} x", counting("beside.csv"));
    let mut recorder = hpmctl(&["record", "-e", "instructions:u", "-o", trace, "--", "sh", "-c", &script])?
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    let said = others::gave_up(&mut recorder, trace)?;
    succeed(Command::new("sh").args(["-c", &counting("alone.csv")]).stdout(Stdio::null()))?;
    let (beside, alone) = (counted_by_perf("beside.csv")?, counted_by_perf("alone.csv")?);
    ensure!(beside.abs_diff(alone) * 1000 <= alone, "beside hpm perf counted {beside}, and alone {alone}");
    Ok(format!("{said} perf counted {beside}, and alone {alone}"))
}

/// The count in a file of `perf stat -x,`.
fn counted_by_perf(file: &str) -> Result<u64> {
    counted_in(&std::fs::read_to_string(file).with_context(|| format!("reading {file}"))?)
}

/// The instructions that `perf stat -x,` tells of: on a hybrid processor a line for each type of core, of which it may have run on one only.
fn counted_in(text: &str) -> Result<u64> {
    let lines = text.lines().filter(|line| line.contains("instructions"));
    let counts: Vec<u64> = lines.filter_map(|line| line.split(',').next()?.trim().parse().ok()).collect();
    ensure!(counts.iter().sum::<u64>() > 0, "perf did not count: {text}");
    Ok(counts.iter().sum())
}

/// perf on one hardware event, through the syscall that says why it failed.
fn perf() -> Result<std::process::Output> {
    Ok(Command::new("perf").args(["stat", "-x,", "-e", "instructions:u", "--", "true"]).output()?)
}

fn perf_is_refused() -> Result<String> {
    let mut session = hpmctl(&["stat", "-e", "instructions:u", "--", "sleep", "600"])?
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    pid_of("sleep")?;
    let output = perf();
    end_sleep()?;
    session.wait()?;
    let output = output?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    // perf shows an event that the kernel refused as "<not supported>" or gives up with the error's text.
    let refused = text.contains("<not supported>") || text.contains("busy");
    ensure!(refused, "perf was not refused: {text}");
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The NMI watchdog has run, so that perf would stop and start all of a CPU's counters at each switch of a program whose events of software it
/// counts. That program has CPU 0 by turns with one that hpm samples.
fn perf_schedules() -> Result<String> {
    let running = others::read(others::STARTS)?;
    ensure!(
        running != 0,
        "perf has not started the counters of CPU 0, to which no event of hardware's was bound"
    );
    let alone = samples_on_cpu_0()?;
    let strides = built("strides")?;
    let script = format!(
        "exec perf stat -e context-switches -- {}{} 2>/dev/null",
        strides.display(),
        " x".repeat(2000)
    );
    others::beside(&script, "perf", |_| {
        // What executes perf has its name, too, before perf counts anything.
        let program = pid_of("strides")?;
        let before = preempted(program)?;
        let beside = samples_on_cpu_0()?;
        let switches = preempted(program)? - before;
        ensure!(
            alone > 100 && alone.abs_diff(beside) <= 1,
            "alone there were {alone} samples, and then {beside}"
        );
        ensure!(switches > 3, "the program that perf counts was pre-empted {switches} times meanwhile");
        Ok(format!("{alone} samples alone, {beside} beside it, which was pre-empted {switches} times"))
    })
}

/// How often a process lost its CPU to another.
fn preempted(pid: i32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:"));
    line.and_then(|count| count.trim().parse().ok()).context("no number of switches")
}

/// Samples of a program with a fixed period.
fn samples_on_cpu_0() -> Result<u64> {
    let words = ["record", "-e", LOADS, "-c", "1009", "--no-randomise", "-f", "-o", "turns.hpm", "--"];
    let recorded = succeed(hpmctl(&words)?.args(["taskset", "-c", "0"]).arg(built("strides")?).arg("x"))?;
    let said = String::from_utf8_lossy(&recorded.stderr);
    let count = said.split_once(" samples of").and_then(|(before, _)| before.split_whitespace().last());
    count.and_then(|count| count.parse().ok()).with_context(|| format!("hpmctl said: {said}"))
}

fn perf_counts_again() -> Result<String> {
    let output = perf()?;
    let count = counted_in(&String::from_utf8_lossy(&output.stderr))?;
    Ok(format!("{count} instructions"))
}

/// Runs `hpmctl stat`, which must fail, and returns what it said.
fn refusal() -> Result<String> {
    let output = hpmctl(&["stat", "-e", "instructions:u", "--", "true"])?.output()?;
    ensure!(!output.status.success(), "hpmctl stat succeeded beside another holder");
    Ok(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

fn hpm_names_the_holder() -> Result<String> {
    let mut holder = Command::new("perf")
        .args(["stat", "-e", "instructions", "-a", "--", "sleep", "600"])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()?;
    pid_of("sleep")?;
    std::thread::sleep(Duration::from_millis(200));
    let said = refusal();
    stop(&mut holder)?;
    let (said, pid) = (said?, holder.id().to_string());
    ensure!(said.contains("perf") && said.contains(&pid), "it does not name perf ({pid}): {said}");
    Ok(said)
}

fn hpm_names_the_watchdog() -> Result<String> {
    std::fs::write(WATCHDOG, "1")?;
    let said = refusal();
    std::fs::write(WATCHDOG, "0")?;
    let said = said?;
    ensure!(said.contains("nmi_watchdog"), "it does not name the NMI watchdog: {said}");
    Ok(said)
}

/// The NMI watchdog, which most machines run, keeps the kernel's PEBS buffers mapped.
fn loaded_under_watchdog() -> Result<String> {
    succeed(Command::new("rmmod").arg("hpm"))?;
    std::fs::write(WATCHDOG, "1")?;
    let loaded = succeed(Command::new("insmod").arg(MODULE));
    let said = sampled();
    std::fs::write(WATCHDOG, "0")?;
    loaded?;
    let said = String::from_utf8_lossy(&said?.stderr).into_owned();
    ensure!(said.contains("nmi_watchdog"), "under the NMI watchdog it says: {said}");
    let output = sampled()?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    ensure!(output.status.success(), "without the NMI watchdog it says: {said}");
    Ok(said)
}

fn sampled() -> Result<Output> {
    Ok(hpmctl(&["record", "-e", LOADS, "-f", "-o", "owned.hpm", "--", "true"])?.output()?)
}

/// What `kernel_lockdown(7)` calls confidentiality forbids what shows the kernel's memory.
fn locked_down() -> Result<String> {
    if !std::fs::read_to_string("/proc/filesystems")?.contains("securityfs") {
        // The debug kernel: lockdown wants signed modules, for whose keys the lab would need OpenSSL.
        return Ok("this kernel cannot be locked down".to_owned());
    }
    if !Path::new(LOCKDOWN).exists() {
        succeed(Command::new("mount").args(["-t", "securityfs", "securityfs", "/sys/kernel/security"]))?;
    }
    std::fs::write(LOCKDOWN, "confidentiality").context("this kernel cannot be locked down")?;
    let precise = sampled()?;
    let kernel = by_interrupts("instructions", "kernel.hpm")?;
    for output in [&precise, &kernel] {
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && said.contains("locked down"), "it says: {said}");
    }
    let user = by_interrupts("instructions:u", "user.hpm")?;
    let counts = hpmctl(&["stat", "-e", "instructions", "--", "true"])?.output()?;
    for output in [&user, &counts] {
        ensure!(output.status.success(), "it says: {}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(String::from_utf8_lossy(&precise.stderr).trim().to_owned())
}

fn by_interrupts(event: &str, trace: &str) -> Result<Output> {
    Ok(hpmctl(&["record", "--imprecise", "-e", event, "-o", trace, "--", "true"])?.output()?)
}

fn stop(child: &mut Child) -> Result<()> {
    child.kill()?;
    child.wait()?;
    end_sleep()
}

/// Ends the program that keeps a measurement open.
fn end_sleep() -> Result<()> {
    let sleep = nix::unistd::Pid::from_raw(pid_of("sleep")?);
    Ok(nix::sys::signal::kill(sleep, nix::sys::signal::Signal::SIGKILL)?)
}
