//! Loading and unloading: nothing is left behind, and nothing is torn down under a session.

use std::collections::BTreeMap;
use std::fs::File;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use libhpm::trace::{SampleRow, TraceReader};
use vpmu::Profile;

use super::processor::{self, Sampled};
use super::programs::{built, hpmctl, pid_of, record_each, succeed, wait_at_most};
use super::{GuestReport, is_asked_for};

/// The PMU registers of all profiles (SDM Vol. 4, tables 2-2, 2-3, 2-15, 2-39, 2-52): counters, event selects, fixed
/// counters, control and status, debug store and PEBS, offcore, load latency, branch records, and those from PerfMon
/// version 6 on. A processor has some of them.
const REGISTERS: &[RangeInclusive<u32>] = &[
    0xc1..=0xca,
    0x186..=0x18f,
    0x1a6..=0x1a7,
    0x1c8..=0x1c9,
    0x1d9..=0x1d9,
    0x309..=0x310,
    0x329..=0x329,
    0x345..=0x345,
    0x38d..=0x391,
    0x3f1..=0x3f7,
    0x600..=0x600,
    0x680..=0x69f,
    0x6c0..=0x6df,
    0xdc0..=0xddf,
    0x1200..=0x121f,
    0x14ce..=0x14cf,
    0x1500..=0x151f,
    0x1600..=0x161f,
    0x1900..=0x1927,
    0x1980..=0x198f,
];

/// The same of AMD's (APM Vol. 2, appendix A): counters and event selects at both addresses, global control and status, and the
/// control of IBS, whose other registers hold the last sample.
const AMD_REGISTERS: &[RangeInclusive<u32>] = &[
    0xc000_0300..=0xc000_0302,
    0xc001_0000..=0xc001_0007,
    0xc001_0200..=0xc001_020b,
    0xc001_1030..=0xc001_1030,
    0xc001_1033..=0xc001_1033,
];

/// Registers that every profile of a vendor has: the first counter and its event select, and Intel's fixed counters' and global
/// control.
const COMMON: [u32; 4] = [0xc1, 0x186, 0x38d, 0x38f];
const AMD_COMMON: [u32; 2] = [0xc001_0000, 0xc001_0004];

/// IA32_PEBS_BASE, as [`registers`] names it (SDM Vol. 3B, architectural PEBS).
const PEBS_BASE: &str = " MSR 0x3f4";

/// IA32_PMC0 (SDM Vol. 4); the other general-purpose counters follow.
const FIRST_COUNTER: u32 = 0xc1;
/// Where it is in version 6, too, which has four registers for each.
const FIRST_COUNTER_6: u32 = 0x1900;

/// Where the lab keeps the module in the guest (`lab_init::GUEST_DIR`).
pub(super) const MODULE: &str = "/run/lab/hpm.ko";

/// On the kernel's command line for the short form, in which the module comes and goes less often.
const SHORT: &str = "hpm.lifecycle=short";
const TIMES: u32 = 20;
const TIMES_SHORT: u32 = 3;

/// Checks loading and unloading, bare and with sessions.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let times = if is_asked_for(SHORT)? { TIMES_SHORT } else { TIMES };
    report.check(&format!("insmod and rmmod {times} times leave every PMU register as it was"), || {
        come_and_go(times)
    });
    report.check("rmmod is refused while a session runs, and the session is not disturbed", refused);
    report.check("a session that ends leaves every PMU register as it was", session_restores);
    report.check("the session of a killed hpmctl leaves every PMU register as it was", killed_restores);
    super::module::run(report);
    Ok(())
}

/// Each CPU's registers.
pub(super) fn registers() -> Result<BTreeMap<String, u64>> {
    let (registers, common) = match processor::profile()?.amd() {
        Some(_) => (AMD_REGISTERS, &AMD_COMMON[..]),
        None => (REGISTERS, &COMMON[..]),
    };
    let mut all = BTreeMap::new();
    for cpu in 0.. {
        let path = format!("/dev/cpu/{cpu}/msr");
        let Ok(file) = File::open(&path) else { break };
        for register in registers.iter().cloned().flatten() {
            let mut bytes = [0; 8];
            match file.read_exact_at(&mut bytes, register.into()) {
                // What this processor does not have raises #GP.
                Err(_) if !common.contains(&register) => continue,
                read => read.with_context(|| format!("reading MSR {register:#x} of CPU {cpu}"))?,
            }
            all.insert(format!("CPU {cpu} MSR {register:#x}"), u64::from_le_bytes(bytes));
        }
    }
    ensure!(!all.is_empty(), "there is no /dev/cpu/0/msr in the guest");
    Ok(all)
}

/// [`registers`], once perf has zeroed what its past events, such as the watchdog's, have left in counters. It does when hpm takes the PMU.
pub(super) fn settled_registers() -> Result<BTreeMap<String, u64>> {
    measure()?;
    registers()
}

/// A session of its own, from the PMU's taking to its giving back.
fn measure() -> Result<()> {
    succeed(hpmctl(&["stat", "-e", "instructions", "--", "true"])?.stderr(Stdio::piped()))?;
    Ok(())
}

/// The last general-purpose counter of the E-cores of a hybrid processor, as [`registers`] names it, by both addresses that it may have.
fn last_counter(profile: &Profile) -> Option<[String; 2]> {
    let last = u32::from(profile.hybrid?.efficient?.perfmon()?.general_counters) - 1;
    let addresses = [FIRST_COUNTER + last, FIRST_COUNTER_6 + 4 * last];
    Some(addresses.map(|address| format!(" MSR {address:#x}")))
}

/// The registers after CPUs have gone and come, by which the kernel's perf changes two itself, as without hpm. Where a CPU's records are
/// written by architectural PEBS: it allocates that buffer when the CPU comes. Its size, IA32_PEBS_BASE bits 3:0, stays. And of a
/// hybrid processor, when the first core of a type comes, the last counter there is tried by inverting 16 bits of it
/// (arch/x86/events/core.c, `check_hw_exists`).
pub(super) fn with_perfs_changes(mut before: BTreeMap<String, u64>) -> Result<BTreeMap<String, u64>> {
    let last = last_counter(processor::profile()?);
    for (name, value) in registers()? {
        let Some(was) = before.get_mut(&name).filter(|was| **was != value) else { continue };
        let buffer = name.ends_with(PEBS_BASE) && *was & 0xf == value & 0xf;
        let tried = last.iter().flatten().any(|last| name.ends_with(last)) && *was ^ 0xffff == value;
        if buffer || tried {
            *was = value;
        }
    }
    Ok(before)
}

/// Fails naming the first register that changed.
pub(super) fn unchanged(before: &BTreeMap<String, u64>) -> Result<String> {
    let after = registers()?;
    ensure!(after.len() == before.len(), "{} registers could be read, now {}", before.len(), after.len());
    for (name, value) in after {
        let was = before[&name];
        ensure!(value == was, "{name} was {was:#x} and is {value:#x}");
    }
    Ok(format!("{} registers", before.len()))
}

fn come_and_go(times: u32) -> Result<String> {
    let before = settled_registers()?;
    succeed(Command::new("rmmod").arg("hpm"))?;
    for _ in 0..times {
        succeed(Command::new("insmod").arg(MODULE))?;
        measure()?;
        succeed(Command::new("rmmod").arg("hpm"))?;
        unchanged(&before)?;
    }
    succeed(Command::new("insmod").arg(MODULE))?;
    unchanged(&before)
}

/// `hpmctl record` of what slows no machine down.
fn lightly(trace: &str) -> Result<Command> {
    let Sampled { events, period, options } = processor::sampled_lightly()?;
    record_each(&events, period, trace, options)
}

fn refused() -> Result<String> {
    // Measured until its input ends.
    let mut session = lightly("refused.hpm")?
        .args(["sh", "-c", "\"$@\"; cat", "sh"])
        .arg(built("strides")?)
        .args(["x"; 20])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    pid_of("strides")?;
    let output = Command::new("rmmod").arg("hpm").output()?;
    drop(session.stdin.take());
    let status = wait_at_most(&mut session, Duration::from_secs(120))?;
    if output.status.success() {
        bail!("rmmod succeeded while a session ran");
    }
    ensure!(status.success(), "the session was disturbed: hpmctl ended with {status}");
    Ok(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

fn session_restores() -> Result<String> {
    let before = registers()?;
    succeed(lightly("restores.hpm")?.arg(built("strides")?))?;
    unchanged(&before)
}

fn killed_restores() -> Result<String> {
    let before = registers()?;
    let mut session = lightly("killed.hpm")?
        .arg(built("threads")?)
        .args(["2", "1000000"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let target = pid_of("threads")?;
    wait_for_samples("killed.hpm")?;
    session.kill()?;
    session.wait()?;
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(target), nix::sys::signal::Signal::SIGKILL)?;
    // The descriptor's release runs when the last of the killed process goes.
    std::thread::sleep(Duration::from_millis(300));
    let seen = unchanged(&before)?;
    succeed(hpmctl(&["report", "killed.hpm"])?.stderr(Stdio::piped()))
        .context("what was written before the kill must be readable")?;
    Ok(seen)
}

/// Waits until a recording has written its first samples, as readers see it.
fn wait_for_samples(trace: &str) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(120) {
        if TraceReader::open(trace).is_ok_and(|reader| reader.rows::<SampleRow>().next().is_some()) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("{trace} held no samples after two minutes")
}
