//! A session of an unprivileged user whose records come late enough to show the kernel: nothing of it may ever stand in
//! memory that the user maps. And who may measure what.

use std::fs;
use std::mem::offset_of;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use hpm_abi::{
    CONTROL_OFFSET, CpuControl, CpuStatus, Quantum, SEGMENT_BYTES, STATUS_OFFSET, StatusHead, control_bytes,
    quanta_offset, segments_offset, status_bytes, whole_pages,
};
use libhpm::event;
use libhpm::session::{Info, Options, SessionConfig, Target, Totals};
use libhpm::sys::child::Child;
use libhpm::sys::device::{Command as DeviceCommand, Device, Driver};
use libhpm::sys::probe::Mapping;
use serde_json::json;

use super::proof::{denied, proof_of, prove};
use super::scopes::{NOBODY, open_to_nobody};
use super::{GuestReport, REPORT};

/// Of [`Mapping`]'s words.
const WORD_BYTES: usize = size_of::<u64>();
/// A hundred thousand times two system calls, each between a few user instructions.
const WORK: [&str; 5] = ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", "count=100000"];

/// Lets the reader run as nobody, and takes over what it saw.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    open_to_nobody()?;
    let mut reader = Command::new(std::env::current_exe()?);
    reader.args(["guest", "privacy_reader"]).uid(NOBODY).gid(NOBODY).current_dir("/tmp/nobody");
    let status = reader.status()?;
    ensure!(status.success(), "the reader ended with {status}");
    let seen: GuestReport = serde_json::from_slice(&fs::read(format!("/tmp/nobody/{REPORT}"))?)?;
    report.checks.extend(seen.checks);
    report.facts.extend(seen.facts);
    super::rights::run(report)
}

/// As nobody: samples a child, while a thread polls everything that is mapped.
pub(super) fn read(report: &mut GuestReport) {
    let mut totals = None;
    report.check("no kernel address ever stands in the mapped memory", || {
        let (swept, sums) = poll_while_sampling()?;
        totals = Some(sums);
        Ok(format!("{swept} sweeps over all segments and quanta"))
    });
    report.check("a counter page shows nothing that others have counted", super::glimpse::others_counts);
    if let Some(totals) = totals {
        report.fact("records", json!(totals.records));
        report.fact("withheld", json!(totals.records_withheld));
        report.fact("lost", json!(totals.records_lost));
    }
}

struct Mapped {
    quanta: Vec<Mapping>,
    segments: Vec<Mapping>,
    control: Mapping,
    status: Mapping,
}

fn poll_while_sampling() -> Result<(u64, Totals)> {
    let mut child = Child::prepare(&WORK)?;
    let (driver, info) = Driver::open_checked()?;
    let config = configure(&driver, &info, &child)?;
    let mapped = map(&driver, &info, &config)?;
    driver.command(DeviceCommand::Start).map_err(denied)?;
    child.execute()?;
    let (done, found, sweeps) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| -> Result<()> {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if let Some(word) = mapped.quanta.iter().chain(&mapped.segments).find_map(kernel_word) {
                    found.store(word, Ordering::Relaxed);
                }
                sweeps.fetch_add(1, Ordering::Relaxed);
            }
        });
        while child.try_wait()?.is_none() {
            give_back(&mapped, info.cpus as usize);
            std::thread::sleep(Duration::from_millis(1));
        }
        done.store(true, Ordering::Relaxed);
        Ok(())
    })?;
    driver.command(DeviceCommand::Stop).map_err(denied)?;
    let word = mapped.quanta.iter().chain(&mapped.segments).find_map(kernel_word);
    let word = word.unwrap_or(found.into_inner());
    ensure!(word == 0, "the kernel address {word:#x} was seen");
    Ok((sweeps.into_inner(), driver.totals().map_err(denied)?))
}

fn configure(driver: &Driver, info: &Info, child: &Child) -> Result<SessionConfig> {
    let load = event::parse("load:u", &libhpm::machine::pmu_name(info))?;
    let options = Options::new(Target::Process(child.pid())).sample(load, 101).start_on_exec(true);
    let (proof, mut config) = (proof_of(child)?, options.config());
    prove(&mut config, &proof);
    config.segments = 4;
    driver.configure(&mut config).map_err(denied)?;
    Ok(config)
}

fn map(driver: &Driver, info: &Info, config: &SessionConfig) -> Result<Mapped> {
    let each = |offset: fn(u32) -> u64, bytes: usize| -> std::io::Result<Vec<Mapping>> {
        (0..info.cpus).map(|cpu| Mapping::new(driver.as_fd(), offset(cpu), bytes, false)).collect()
    };
    Ok(Mapped {
        quanta: each(quanta_offset, whole_pages(config.quanta as usize * size_of::<Quantum>()))?,
        segments: each(segments_offset, config.segments as usize * SEGMENT_BYTES as usize)?,
        control: Mapping::new(driver.as_fd(), CONTROL_OFFSET, control_bytes(info.cpus), true)?,
        status: Mapping::new(driver.as_fd(), STATUS_OFFSET, status_bytes(info.cpus), false)?,
    })
}

/// Gives back every quantum and every segment but the newest.
fn give_back(mapped: &Mapped, cpus: usize) {
    for cpu in 0..cpus {
        let produced = |field| {
            mapped.status.read((size_of::<StatusHead>() + cpu * size_of::<CpuStatus>() + field) / WORD_BYTES)
        };
        let consume = |field, value| {
            mapped.control.write((cpu * size_of::<CpuControl>() + field) / WORD_BYTES, value);
        };
        consume(offset_of!(CpuControl, quanta_consumed), produced(offset_of!(CpuStatus, quanta_produced)));
        let begun = produced(offset_of!(CpuStatus, segments_begun));
        consume(offset_of!(CpuControl, segments_consumed), begun.saturating_sub(1));
    }
}

/// A word that is a kernel address, if there is one.
fn kernel_word(mapping: &Mapping) -> Option<u64> {
    let kernel = 0xffff_8000_0000_0000..0xffff_ffff_ffff_f000_u64;
    (0..mapping.words()).map(|number| mapping.read(number)).find(|word| kernel.contains(word))
}
