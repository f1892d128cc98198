//! What happens around a session: CPUs that go, sleep, a consumer that scribbles or stalls, somebody else at the PMU.

mod sleep;

use std::fs;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hpm_abi::{CONTROL_OFFSET, control_bytes};
use libhpm::event;
use libhpm::session::{Options, Session, Target, Totals};
use libhpm::sideband::Sideband;
use libhpm::sys::child::Child;
use libhpm::sys::device::{Command as DeviceCommand, Device, Driver};
use libhpm::sys::probe::Mapping;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::GuestReport;
use super::counting::pin;
use super::processor::{LOADS, counted_events};
use super::programs::{built, hpmctl, left_in, pid_of, wait_at_most};
use super::proof::denied;

const LIMIT: Duration = Duration::from_secs(240);
/// Windows of `loops` (the character behind its name is that many behind the digit 0) that runs long enough for what is done meanwhile.
pub(crate) const PLUGGED: &str = "loopsW";
pub(crate) const ASLEEP: &str = "loopsX";
pub(crate) const PLUGGED_SYSTEM: &str = "loopsY";
/// Period of the sessions whose consumer misbehaves: a prime, so that no loop length divides it.
pub(crate) const PERIOD: u64 = 1009;

/// How often CPU 1 must have gone while the program was there.
const MOVES_MIN: usize = 2;

/// Runs every case.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    report.fact(PLUGGED, counted(&[], 38, MOVES_MIN, unplug_under)?);
    report.fact(ASLEEP, counted(&[], 39, sleep::SLEEPS, sleep::sleep)?);
    report.fact(PLUGGED_SYSTEM, counted(&["-a"], 40, MOVES_MIN, unplug_under)?);
    report.check("the device was told each time that the machine slept, and woke", sleep::was_told);
    for (window, arguments, consumer) in
        [("loops3", 2, scribble as fn(&Mapping, u64)), ("loops4", 3, stall as fn(&Mapping, u64))]
    {
        let totals = misread(arguments, consumer)?;
        let counted: u64 = totals.counts.iter().sum();
        let sums = [counted, totals.records, totals.records_lost, totals.quanta_lost];
        report.fact(window, json!(sums));
    }
    report.check("who polls sleeps until told, however often threads switch", sleeps_until_told);
    super::others::run(report);
    Ok(())
}

/// `hpmctl stat` with these words of `loops`, while `disturb` runs again and again, from when the program has begun; so often it must have
/// done its work.
fn counted(
    words: &[&str],
    arguments: usize,
    least: usize,
    disturb: impl Fn(usize, Pid) -> Result<bool>,
) -> Result<Value> {
    let file = "disturbed.json";
    let words = [&["stat", "--json", "-o", file, "-e", counted_events()?][..], words, &["--"]].concat();
    let mut command = hpmctl(&words)?;
    let mut session = command.arg(built("loops")?).args(vec!["x"; arguments]).spawn()?;
    let program = Pid::from_raw(pid_of("loops")?);
    let (mut turn, mut done) = (0, 0);
    while session.try_wait()?.is_none() {
        done += usize::from(disturb(turn, program)?);
        turn += 1;
    }
    let status = wait_at_most(&mut session, LIMIT)?;
    ensure!(status.success(), "hpmctl stat ended with {status}");
    ensure!(done >= least, "the program ended after {done} disturbances of {turn}");
    left_in(file)
}

/// Takes CPU 1 away while the program executes there, and brings it back; false if the program has ended. Either takes seconds on a debug
/// kernel, so that the program waits meanwhile once it has been driven from the CPU: it would come to its end.
fn unplug_under(_turn: usize, program: Pid) -> Result<bool> {
    let there = runs_on(program, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while cpu_of(program) == Some(1) {
                std::thread::sleep(Duration::from_millis(1));
            }
            tell(program, Signal::SIGSTOP);
        });
        plug(false)
    })?;
    tell(program, Signal::SIGCONT);
    std::thread::sleep(Duration::from_millis(20));
    tell(program, Signal::SIGSTOP);
    // Whatever comes next finds both CPUs.
    plug(true)?;
    tell(program, Signal::SIGCONT);
    Ok(there)
}

/// Has the program wait, or go on; if it has ended, nobody can tell it.
fn tell(program: Pid, what: Signal) {
    let _ = kill(program, what);
}

/// Whether a process, which is moved to this CPU, has come there.
fn runs_on(program: Pid, cpu: usize) -> bool {
    if pin(program, &[cpu]).is_err() {
        return false;
    }
    while let Some(now) = cpu_of(program) {
        if now == cpu {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// The CPU that a process is or was last on; `None` if it has ended.
fn cpu_of(program: Pid) -> Option<usize> {
    let stat = fs::read_to_string(format!("/proc/{program}/stat")).ok()?;
    // Fields 3 (the state) and 39 (proc(5)); the name before them has no parenthesis.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    (fields[0] != "Z").then(|| fields[36].parse().ok()).flatten()
}

/// Brings CPU 1 online or takes it offline.
pub(super) fn plug(online: bool) -> Result<()> {
    let path = "/sys/devices/system/cpu/cpu1/online";
    fs::write(path, if online { "1" } else { "0" }).with_context(|| format!("writing {path}"))
}

/// Samples `loops` with a consumer that does this to the control area until the program ends.
fn misread(arguments: usize, consumer: fn(&Mapping, u64)) -> Result<Totals> {
    let path = built("loops")?.into_os_string();
    let mut words = vec![path];
    words.extend(std::iter::repeat_n("x".into(), arguments));
    let mut child = Child::prepare(&words)?;
    let (driver, info) = Driver::open_checked()?;
    let loads = event::parse_each(LOADS, &libhpm::machine::pmu_name(&info))?;
    let options = Options::new(Target::Process(child.pid())).start_on_exec(true);
    let mut config = loads.into_iter().fold(options, |options, load| options.sample(load, PERIOD)).config();
    // As little memory as can be, which is full long before the program ends.
    config.segments = 2;
    driver.configure(&mut config).map_err(denied)?;
    let control = Mapping::new(driver.as_fd(), CONTROL_OFFSET, control_bytes(info.cpus), true)?;
    driver.command(DeviceCommand::Start).map_err(denied)?;
    child.execute()?;
    let mut turn = 0;
    while child.try_wait()?.is_none() {
        consumer(&control, turn);
        turn += 1;
    }
    driver.command(DeviceCommand::Stop).map_err(denied)?;
    driver.totals().map_err(denied)
}

fn scribble(control: &Mapping, turn: u64) {
    let mut random = fastrand::Rng::with_seed(turn);
    for word in 0..control.words() {
        control.write(word, random.u64(..));
    }
}

fn stall(_control: &Mapping, _turn: u64) {
    std::thread::sleep(Duration::from_millis(5));
}

/// How long readers may be left without being told.
const WAKE_WITHIN: Duration = Duration::from_millis(800);

/// A reader that takes all that is published each time it is woken is woken once in [`WAKE_WITHIN`] at most, though a switch publishes a
/// quantum each few ms and threads exit, which wakes whoever polls the side band's rings.
fn sleeps_until_told() -> Result<String> {
    let script = "i=0; while [ $i -lt 50 ]; do sleep 0.005; i=$((i+1)); done";
    let mut child = Child::prepare(&["sh", "-c", script])?;
    let instructions =
        event::parse("instructions:u", &libhpm::machine::pmu_name(&Driver::open_checked()?.1))?;
    let options = Options::new(Target::Process(child.pid()))
        .count(instructions)
        .quanta(true)
        .start_on_exec(true)
        .wake_within(Some(WAKE_WITHIN));
    let (mut sideband, mut session) = (Sideband::of_child(child.pid())?, Session::open(&options)?);
    session.start()?;
    child.execute()?;
    let (begun, mut wakings, mut quanta) = (Instant::now(), 0_u32, 0);
    while child.try_wait()?.is_none() {
        let waited = Instant::now();
        let reports: Vec<_> = sideband.descriptors().collect();
        let crowded = session.wait(&reports, Duration::from_secs(60))?.contains(&true);
        ensure!(waited.elapsed() < Duration::from_secs(50), "not woken for {:?}", waited.elapsed());
        if session.is_over() {
            // It stays readable until the program has gone, too.
            std::thread::sleep(Duration::from_millis(5));
        } else if !crowded {
            // Not for the kernel's reports, of which a ring is half full sooner or later.
            wakings += 1;
        }
        quanta += session.batch()?.quanta().count();
        drop(reports);
        sideband.drain()?;
    }
    // Told a quarter sooner where that shares an interrupt with the scheduler's tick; the rest is room for CPUs whose timers meet.
    let most = (begun.elapsed().as_secs_f64() / (0.5 * WAKE_WITHIN.as_secs_f64())) as u32 + 2;
    ensure!(quanta > 200, "{quanta} quanta were published");
    ensure!(wakings <= most, "woken {wakings} times in {:?}, which is enough for {most}", begun.elapsed());
    Ok(format!("{wakings} wakings for {quanta} quanta"))
}
