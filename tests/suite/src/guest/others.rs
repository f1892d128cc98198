//! Somebody else who programs the PMU, or traces, while hpm measures: sessions give up and say why, or do not begin.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;

use super::GuestReport;
use super::lifecycle::MODULE;
use super::processor::{self, every_cpu};
use super::programs::{built, hpmctl, succeed, wait_at_most};
use super::robust::plug;
use super::scopes::{pin, settled};
use super::torture::LOOPS;

const LIMIT: Duration = Duration::from_secs(240);
/// A register, and the value that somebody else writes into it (SDM Vol. 4, table 2-2).
type Write = (u64, u64);
/// IA32_PERF_GLOBAL_CTRL.
pub(super) const STARTS: u64 = 0x38f;
/// Every counter stops.
const STOP: Write = (STARTS, 0);
/// IA32_FIXED_CTR_CTRL: the counter of instructions counts in no mode.
const TAKE: Write = (0x38d, 0);
/// IA32_RTIT_CTL: TraceEn.
const TRACE: Write = (0x570, 1);
const NO_TRACE: Write = (0x570, 0);
/// IA32_PERFEVTSEL0 and IA32_PERF_GLOBAL_CTRL: a counter runs.
const RUN: [Write; 2] = [(0x186, 0x41_00c0), (STARTS, 1)];
/// IA32_PERFEVTSEL2, for instructions of user and kernel, and IA32_PERF_GLOBAL_CTRL; the counter is IA32_PMC2.
const COUNT: [Write; 2] = [(0x188, 0x43_00c0), (STARTS, 1 << 2)];
const IA32_PMC2: u64 = 0xc3;
/// An interval within which a session has long given up: what it did to the registers then is still there to be seen.
const RARELY: Duration = Duration::from_secs(20);

/// What a session tells that gave up because of such writes.
const WRITTEN: &str = "somebody else changed which counters run";

/// Runs every case.
pub(super) fn run(report: &mut GuestReport) {
    for (who, write, told) in
        [("somebody else writes the PMU", STOP, WRITTEN), ("somebody else traces", TRACE, "Processor Trace")]
    {
        let gives_up = |whom: &[&str]| gives_up(whom, told, |session| write_meanwhile(session, write));
        report.check(&format!("a session gives up when {who}, and says so"), || {
            beside_threads(|pid| gives_up(&["-p", &pid.to_string()]))
        });
        report.check(&format!("also where no quantum lasts long enough to be cut, when {who}"), || {
            beside("yes | cat", "sh", |_| gives_up(&["--per-thread", "-C", "0"]))
        });
        report.check(&format!("also where a thread sleeps whenever the timer expires, when {who}"), || {
            let sleeps = "exec perl -e 'while (1) { select undef, undef, undef, 0.015 }'";
            beside(sleeps, "perl", |pid| gives_up(&["--per-thread", "-p", &pid.to_string()]))
        });
    }
    report.check(
        "a session gives up when somebody else takes a counter from it, which starts and stops none",
        || {
            beside_threads(|pid| {
                gives_up(&["-p", &pid.to_string()], WRITTEN, |session| write_until_over(session, TAKE))
            })
        },
    );
    report.check("one on another CPU goes on when somebody writes the PMU of this one", other_cpu_goes_on);
    report
        .check("a recording that gives up ends with its program, and its trace says so", recording_gives_up);
    report.check("what somebody else counts is counted on after a session gave up", || {
        let said = beside_threads(|pid| {
            gives_up(&["-p", &pid.to_string()], WRITTEN, |session| {
                write_all_until_over(session, &COUNT, RARELY)
            })
        });
        let counts_on = counts_on();
        COUNT.into_iter().try_for_each(|(register, _)| write((register, 0)))?;
        said.and(counts_on)
    });
    report.check("no session begins while somebody traces, and one does afterwards", refused_beside_trace);
    report.check(
        "a session gives up when a CPU comes whose counters run, and none begins until they stand",
        || {
            RUN.into_iter().try_for_each(|what| write_on(1, what))?;
            plug(false)?;
            let said = comes_running();
            // It may not have come.
            plug(true)?;
            RUN.into_iter().try_for_each(|(register, _)| write_on(1, (register, 0)))?;
            let alone = stat_of_true()?;
            ensure!(alone.status.success(), "hpmctl said: {}", String::from_utf8_lossy(&alone.stderr));
            said
        },
    );
    if processor::profile().is_ok_and(|profile| profile.hybrid.is_some()) {
        report.check("a session gives up when a core comes of a type that none had", comes_of_another_type);
    }
}

fn other_cpu_goes_on() -> Result<String> {
    let words = ["stat", "--json", "-e", "instructions:u", "-C", "1"];
    let mut other = hpmctl(&words)?.stderr(Stdio::piped()).spawn()?;
    settled(&other)?;
    let said = beside("yes | cat", "sh", |_| {
        gives_up(&["-C", "0"], WRITTEN, |session| write_until_over(session, STOP))
    });
    pin(&[1])?;
    let ran = succeed(&mut Command::new(built("loops")?));
    pin(&every_cpu()?)?;
    kill(Pid::from_raw(i32::try_from(other.id())?), Signal::SIGINT)?;
    let status = wait_at_most(&mut other, LIMIT)?;
    ran?;
    let counts = stderr_of(&mut other)?;
    ensure!(status.success() && !counts.contains(WRITTEN), "it ended with {status}: {counts}");
    let count = serde_json::from_str::<Value>(&counts)?["events"][0]["count"].as_u64().context("no count")?;
    ensure!(count >= LOOPS, "it counted {count} instructions, although {LOOPS} were executed afterwards");
    said
}

fn recording_gives_up() -> Result<String> {
    let mut recorder = hpmctl(&["record", "-e", "instructions:u", "--imprecise", "-o", GAVE_UP, "--"])?
        .arg(built("threads")?)
        .args(["2", "30000"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    settled(&recorder)?;
    write_until_over(&mut recorder, STOP)?;
    gave_up(&mut recorder, GAVE_UP)
}

/// Whether the counter of [`COUNT`] runs as it was programmed.
fn counts_on() -> Result<String> {
    for (register, value) in COUNT {
        let found = read(register)?;
        ensure!(found & value == value, "MSR {register:#x} reads {found:#x}, not {value:#x}");
    }
    let (before, after) = (read(IA32_PMC2)?, read(IA32_PMC2)?);
    ensure!(after > before, "IA32_PMC2 stands still at {before}");
    Ok(format!("{} instructions between two reads", after - before))
}

/// A session that knew cores of one type alone.
fn comes_of_another_type() -> Result<String> {
    succeed(Command::new("rmmod").arg("hpm"))?;
    plug(false)?;
    succeed(Command::new("insmod").arg(MODULE))?;
    let told = "whose type of core none had";
    let said = beside_threads(|pid| gives_up(&["-p", &pid.to_string()], told, |_| plug(true)));
    plug(true)?;
    let next = stat_of_true()?;
    ensure!(next.status.success(), "the next session was told: {}", String::from_utf8_lossy(&next.stderr));
    said
}

fn comes_running() -> Result<String> {
    beside_threads(|pid| gives_up(&["-p", &pid.to_string()], WRITTEN, |_| plug(true)))?;
    let next = stat_of_true()?;
    let said = String::from_utf8_lossy(&next.stderr).trim().to_owned();
    // IA32_PERFEVTSEL0; from PerfMon version 6 on by its other address (IA32_PMC_GP0_CFG_A).
    let other = processor::profile()?.perfmon().is_some_and(|pmu| pmu.version >= 6);
    let named = said.contains(if other { "0x1901" } else { "0x186" });
    ensure!(!next.status.success() && named, "the next session was told: {said}");
    Ok(said)
}

fn stat_of_true() -> Result<Output> {
    Ok(hpmctl(&["stat", "-e", "instructions:u", "--", "true"])?.output()?)
}

const GAVE_UP: &str = "gave-up.hpm";

/// What a recording said that gave up: in its report it says so, too.
pub(super) fn gave_up(recorder: &mut Child, trace: &str) -> Result<String> {
    let status = wait_at_most(recorder, LIMIT)?;
    let said = stderr_of(recorder)?;
    let told = said.contains("until the driver gave up") && said.contains(WRITTEN);
    ensure!(!status.success() && told, "hpmctl ended with {status}: {said}");
    let report = succeed(&mut hpmctl(&["report", trace])?)?;
    let report = String::from_utf8_lossy(&report.stdout);
    ensure!(report.contains("as the driver gave up"), "the report says {report}");
    Ok(said.lines().last().unwrap_or_default().to_owned())
}

fn stderr_of(ended: &mut Child) -> Result<String> {
    let mut said = String::new();
    std::io::Read::read_to_string(&mut ended.stderr.take().context("no standard error")?, &mut said)?;
    Ok(said)
}

/// Does this beside a program of two threads, of whose process ID it is told, and which does not end first.
fn beside_threads(what: impl FnOnce(u32) -> Result<String>) -> Result<String> {
    let mut target = Command::new(built("threads")?).args(["2", "5000000"]).stdout(Stdio::null()).spawn()?;
    let said = what(target.id());
    ensure!(target.try_wait()?.is_none(), "the target ended first");
    target.kill()?;
    target.wait()?;
    said
}

/// Does this beside a shell's script on CPU 0, of whose process ID it is told, once that executes a program of this name, and which does not
/// end first.
pub(super) fn beside(script: &str, name: &str, what: impl FnOnce(u32) -> Result<String>) -> Result<String> {
    let mut target = Command::new("taskset");
    target.args(["-c", "0", "sh", "-c", script]).stdout(Stdio::null()).process_group(0);
    let mut target = target.spawn()?;
    // hpmctl would take that for another program otherwise.
    let executes = executes(target.id(), name);
    let said = executes.and_then(|()| what(target.id()));
    ensure!(target.try_wait()?.is_none(), "the target ended first");
    killpg(Pid::from_raw(i32::try_from(target.id())?), Signal::SIGKILL)?;
    target.wait()?;
    said
}

/// Waits until a process executes the program of this name.
fn executes(pid: u32, name: &str) -> Result<()> {
    let start = Instant::now();
    while std::fs::read_to_string(format!("/proc/{pid}/comm"))?.trim_end() != name {
        ensure!(start.elapsed() < LIMIT, "process {pid} did not execute {name} within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Writes a register of CPU 0 behind hpm's back.
fn write(what: Write) -> Result<()> {
    write_on(0, what)
}

/// What a register of CPU 0 reads.
pub(super) fn read(register: u64) -> Result<u64> {
    let msr = File::open("/dev/cpu/0/msr").context("opening /dev/cpu/0/msr")?;
    let mut value = [0; 8];
    msr.read_exact_at(&mut value, register).with_context(|| format!("reading MSR {register:#x}"))?;
    Ok(u64::from_le_bytes(value))
}

fn write_on(cpu: u32, (register, value): Write) -> Result<()> {
    let path = format!("/dev/cpu/{cpu}/msr");
    let msr = OpenOptions::new().write(true).open(&path).with_context(|| format!("opening {path}"))?;
    msr.write_all_at(&value.to_le_bytes(), register).with_context(|| format!("writing MSR {register:#x}"))
}

/// What `hpmctl stat` says when it is disturbed so; it is to tell this.
fn gives_up(whom: &[&str], told: &str, disturb: impl FnOnce(&mut Child) -> Result<()>) -> Result<String> {
    let words = [&["stat", "-e", "instructions:u"], whom].concat();
    let mut session = hpmctl(&words)?.stderr(Stdio::piped()).spawn()?;
    settled(&session)?;
    disturb(&mut session)?;
    let status = wait_at_most(&mut session, LIMIT)?;
    let said = stderr_of(&mut session)?;
    ensure!(!status.success() && said.contains(told), "hpmctl ended with {status}: {said}");
    Ok(said.lines().last().unwrap_or_default().to_owned())
}

/// As [`write_until_over`], and nobody traces afterwards.
fn write_meanwhile(session: &mut Child, other: Write) -> Result<()> {
    let written = write_until_over(session, other);
    write(NO_TRACE)?;
    written
}

/// A write to the PMU that comes while the target is not on CPU 0 disturbs nobody: this thread leaves that CPU alone.
fn write_until_over(session: &mut Child, other: Write) -> Result<()> {
    write_all_until_over(session, &[other], Duration::from_millis(20))
}

/// Writes these registers again and again at this interval.
fn write_all_until_over(session: &mut Child, others: &[Write], interval: Duration) -> Result<()> {
    pin(&[1])?;
    let written = write_all_again(session, others, interval);
    pin(&every_cpu()?)?;
    written
}

fn write_all_again(session: &mut Child, others: &[Write], interval: Duration) -> Result<()> {
    let (start, mut next) = (Instant::now(), Instant::now());
    while session.try_wait()?.is_none() && start.elapsed() < LIMIT {
        if next <= Instant::now() {
            others.iter().try_for_each(|&other| write(other))?;
            next += interval;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn refused_beside_trace() -> Result<String> {
    let beside = write(TRACE).and_then(|()| stat_of_true());
    write(NO_TRACE)?;
    let (beside, alone) = (beside?, stat_of_true()?);
    let said = String::from_utf8_lossy(&beside.stderr).trim().to_owned();
    ensure!(!beside.status.success() && said.contains("Processor Trace"), "hpmctl said: {said}");
    ensure!(alone.status.success(), "hpmctl said: {}", String::from_utf8_lossy(&alone.stderr));
    Ok(said)
}
