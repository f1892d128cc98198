//! The machine sleeps under a session, as far as one can that has its files from 9p, whose driver does not come back from it: all programs
//! are frozen and hpm's device is suspended, and then another device refuses (that of alarms, which lets no machine sleep for less than two
//! seconds), so that those that come after it, 9p's among them, never are, and the machine wakes again.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use libhpm::event;
use libhpm::session::{Options, Target};
use libhpm::sys::device::{Device, Driver};
use nix::sys::signal::Signal;
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::Pid;

use super::{cpu_of, tell};
use crate::guest::programs::succeed;
use crate::guest::proof::denied;

const TRACING: &str = "/sys/kernel/tracing";
/// How often it sleeps.
pub(super) const SLEEPS: usize = 3;
/// How long the program runs before and after each.
const SHORTLY: Duration = Duration::from_millis(20);
/// For so many seconds there is an alarm in each.
const ALARMS: u64 = 300;

/// Sleeps, the first few times; false if the program has ended. The program runs before and after, but waits while that is prepared, which takes seconds on a debug kernel: it
/// would come to its end.
pub(super) fn sleep(turn: usize, program: Pid) -> Result<bool> {
    if turn >= SLEEPS {
        std::thread::sleep(SHORTLY);
        return Ok(false);
    }
    tell(program, Signal::SIGSTOP);
    if turn == 0 {
        prepare()?;
    }
    let alarms = alarms()?;
    tell(program, Signal::SIGCONT);
    std::thread::sleep(SHORTLY);
    let slept = sleep_beside_requests();
    std::thread::sleep(SHORTLY);
    tell(program, Signal::SIGSTOP);
    drop(alarms);
    tell(program, Signal::SIGCONT);
    slept.map(|()| cpu_of(program).is_some())
}

/// Sleeps while another thread configures sessions.
fn sleep_beside_requests() -> Result<()> {
    let awake = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            while !awake.load(Ordering::Relaxed) {
                configure().context("while the machine went to sleep")?;
            }
            Ok(())
        });
        let slept = fs::write("/sys/power/state", "mem");
        awake.store(true, Ordering::Relaxed);
        let asked = asking.join().expect("who asks panicked");
        match slept {
            Err(error) if error.kind() == ErrorKind::ResourceBusy => asked,
            other => bail!("the machine went to sleep so: {other:?}"),
        }
    })
}

/// Devices are suspended one after the other, and the kernel tells of each. Nobody would wake the machine without the device that refuses.
fn prepare() -> Result<()> {
    let devices = fs::read_dir("/sys/bus/platform/devices")?.collect::<std::io::Result<Vec<_>>>()?;
    let refuses =
        devices.iter().any(|device| device.file_name().as_encoded_bytes().starts_with(b"alarmtimer"));
    ensure!(refuses, "this machine has no device of alarms (CONFIG_RTC_CLASS)");
    fs::write("/sys/power/pm_async", "0").context("this kernel cannot sleep")?;
    if !Path::new(TRACING).join("trace").exists() {
        succeed(Command::new("mount").args(["-t", "tracefs", "tracefs", TRACING]))?;
    }
    let event = format!("{TRACING}/events/power/device_pm_callback_start/enable");
    fs::write(&event, "1").with_context(|| format!("writing {event}"))
}

/// Alarms, of which one is always due within two seconds.
fn alarms() -> Result<Vec<TimerFd>> {
    let alarm = |seconds| -> nix::Result<TimerFd> {
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME_ALARM, TimerFlags::empty())?;
        let after = TimeSpec::from_duration(Duration::from_secs(seconds));
        timer.set(Expiration::OneShot(after), TimerSetTimeFlags::empty())?;
        Ok(timer)
    };
    (1..=ALARMS).map(alarm).collect::<nix::Result<_>>().context("setting an alarm")
}

/// Configures a session of this process, which is not started.
fn configure() -> Result<()> {
    let (driver, info) = Driver::open_checked()?;
    let instructions = event::parse("instructions:u", &libhpm::machine::pmu_name(&info))?;
    let options = Options::new(Target::Process(i32::try_from(std::process::id())?));
    driver.configure(&mut options.count(instructions).config()).map_err(denied)
}

/// The kernel called hpm before and after each sleep, and suspended none of the devices that could not come back.
pub(super) fn was_told() -> Result<String> {
    let trace = fs::read_to_string(format!("{TRACING}/trace"))?;
    let calls = |device: &str, when: &str| {
        trace.lines().filter(|line| line.contains(device) && line.contains(when)).count()
    };
    let told = [calls("misc hpm,", "power domain [suspend]"), calls("misc hpm,", "power domain [resume]")];
    ensure!(told == [SLEEPS; 2], "it was told {told:?} times of {SLEEPS}");
    let others = calls("virtio-pci", "bus [suspend]");
    ensure!(others == 0, "{others} devices of the lab were suspended");
    Ok(format!("{SLEEPS} times"))
}
