//! What an unprivileged user's counter page shows while others run on the same CPU.

use std::mem::offset_of;
use std::os::fd::AsFd;
use std::process::Command;
use std::time::Instant;

use anyhow::{Result, ensure};
use hpm_abi::{CounterEvent, CounterPage, PAGE_BYTES, counters_offset};
use libhpm::event;
use libhpm::session::{Options, Target};
use libhpm::sys::child::Child;
use libhpm::sys::device::{Command as DeviceCommand, Device, Driver};
use libhpm::sys::probe::Mapping;

use super::processor::every_cpu;
use super::programs::built;
use super::proof::{denied, proof_of, prove};
use super::scopes::pin;

/// Sleeps most of the time, so that others run on its CPU.
const SLEEPER: [&str; 3] = ["sh", "-c", "while :; do sleep 0.02; done"];
/// More than the shell executes between two sleeps, and a fraction of what `loops` executes meanwhile.
const OWN: u64 = 1_000_000;
/// What it executes at most in a microsecond: this process may be kept from looking for a while. `loops` executes 300 and more.
const OWN_PER_US: u64 = 10;
/// The bits of a general-purpose or fixed counter.
const MASK: u64 = (1 << 48) - 1;

/// As nobody: watches from another CPU where the counter of a program that sleeps stands when it leaves its CPU and when it comes back,
/// while `loops` runs there.
pub(super) fn others_counts() -> Result<String> {
    pin(&[0])?;
    let mut sleeper = Child::prepare(&SLEEPER)?;
    let driver = measured(&sleeper)?;
    sleeper.execute()?;
    let page = driver.counters(sleeper.pid()).map_err(denied)?;
    let page = Mapping::new(driver.as_fd(), counters_offset(page), PAGE_BYTES, false)?;
    let mut other = Command::new(built("loops")?).args(["x"; 16]).spawn()?;
    pin(&[1])?;
    let word = (offset_of!(CounterPage, events) + offset_of!(CounterEvent, start)) / size_of::<u64>();
    let (mut last, mut moves, mut largest) = (page.read(word), 0, 0);
    let mut looked = Instant::now();
    while other.try_wait()?.is_none() {
        let now = page.read(word);
        let unseen = std::mem::replace(&mut looked, Instant::now()).elapsed();
        let moved = now.wrapping_sub(last) & MASK;
        if moved != 0 && moved <= MASK / 2 {
            moves += 1;
            largest = largest.max(moved.saturating_sub(OWN_PER_US * unseen.as_micros() as u64));
        }
        last = now;
    }
    pin(&every_cpu()?)?;
    ensure!(moves > 5, "the program that sleeps was on its CPU {moves} times only");
    ensure!(largest < OWN, "{largest} instructions of others show in the counter page");
    Ok(format!(
        "it moved {moves} times, by at most {largest} instructions more than it can have executed since the last look"
    ))
}

/// A session that counts the child and has counter pages, started.
fn measured(child: &Child) -> Result<Driver> {
    let (driver, info) = Driver::open_checked()?;
    let instructions = event::parse("instructions:u", &libhpm::machine::pmu_name(&info))?;
    let options = Options::new(Target::Process(child.pid())).count(instructions).counter_pages(true);
    let (proof, mut config) = (proof_of(child)?, options.config());
    prove(&mut config, &proof);
    driver.configure(&mut config).map_err(denied)?;
    driver.command(DeviceCommand::Start).map_err(denied)?;
    Ok(driver)
}
