//! What the driver reports of processes, against what perf_event reports of the same ones.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use libhpm::refusal::Reason;
use libhpm::session::{Options, Session, Target};
use libhpm::sideband::{Change, Entry, FileId, Sideband};
use libhpm::source::choice::refused_for;
use libhpm::sys::child::Child;
use libhpm::sys::device::Driver;
use libhpm::trace::{MapRow, TraceReader};
use libhpm::{Error, event};
use nix::sys::prctl;

use super::GuestReport;
use super::programs::{built, hpmctl, succeed};
use super::scopes::as_nobody;

/// The kernel's list of kprobes.
const PROBES: &str = "/sys/kernel/debug/kprobes/list";
const SWITCH: &str = "/sys/kernel/debug/kprobes/enabled";
/// What root lets everybody execute, with its own rights or without.
const SECURE: &str = "/tmp/nobody/secure-threads";
const PLAIN: &str = "/tmp/nobody/plain-threads";
/// Names that a thread gives itself: more than the driver has room for reports of.
const NAMES: usize = 20_000;

/// Runs every case. `/tmp/nobody` is nobody's ([`super::scopes::open_to_nobody`]).
pub(super) fn run(report: &mut GuestReport) {
    report.check("reports: the driver tells of a program what perf_event tells", || {
        let (said, probes) = (as_perf_tells()?, fs::read_to_string(PROBES)?);
        ensure!(probes.trim().is_empty(), "left behind: {probes}");
        Ok(said)
    });
    report.check("reports: a program with another's rights is not told of", || {
        for (program, mode) in [(SECURE, 0o4755), (PLAIN, 0o755)] {
            fs::copy(built("threads")?, program)?;
            fs::set_permissions(program, fs::Permissions::from_mode(mode))?;
        }
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["guest", "secure_reports"]).current_dir("/tmp/nobody");
        succeed(&mut as_nobody(command)).map(|_| String::new())
    });
    report.check("reports: what finds no room is counted", overflow);
    report.check("reports: where root has switched kprobes off perf_event tells", || {
        fs::write(SWITCH, "0")?;
        let said = without_probes();
        fs::write(SWITCH, "1")?;
        said
    });
    report.check("reports: a session of the whole system has none", || {
        no_reports(Sideband::of_session(&session(Target::System, false)?))
    });
    report.check("reports: a session has them once", || {
        let session = session(Target::Process(std::process::id() as i32), false)?;
        let _first = Sideband::of_session(&session)?;
        match Sideband::of_session(&session) {
            Err(Error::Refused(refusal)) if refusal.errno == nix::errno::Errno::EALREADY as i32 => {
                Ok(refusal.to_string())
            }
            other => anyhow::bail!("{other:?}"),
        }
    });
}

/// That there are none, and what is said.
fn no_reports(reports: libhpm::Result<Sideband>) -> Result<String> {
    match reports {
        Err(error) if refused_for(&error, Reason::NoReports) => Ok(error.to_string()),
        other => anyhow::bail!("{other:?}"),
    }
}

/// A session that counts: the reports are what matters.
fn session(target: Target, on_exec: bool) -> Result<Session> {
    let pmu = libhpm::machine::pmu_name(&Driver::open_checked()?.1);
    let instructions = event::parse("instructions:u", &pmu)?;
    Ok(Session::open(&Options::new(target).count(instructions).start_on_exec(on_exec))?)
}

/// Runs a program to its end, and takes what each of these reports of it.
fn told_of<const N: usize>(mut child: Child, mut each: [Sideband; N]) -> Result<[Vec<Entry>; N]> {
    let mut told = [const { Vec::new() }; N];
    child.execute()?;
    loop {
        // What is reported before it has ended is there afterwards.
        let ended = child.try_wait()?.is_some();
        for (sideband, told) in each.iter_mut().zip(&mut told) {
            told.extend(sideband.drain()?);
        }
        if ended {
            return Ok(told);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Forks, threads, names, and programs that map libraries: by both at once, each thread's in the same order. perf_event tells of a file's
/// build ID what the driver tells of its inode.
fn as_perf_tells() -> Result<String> {
    let threads = built("threads")?;
    let script = format!(
        "ls -l /etc | sort | tail -n 1; {0} 2 1 & {0} 3 1 > /dev/null; wait; exec sort /etc/services",
        threads.display()
    );
    let child = Child::prepare(&["sh", "-c", &script])?;
    let perf = Sideband::of_child(child.pid())?;
    let session = session(Target::Process(child.pid()), true)?;
    let driver = Sideband::of_session(&session)?;
    let probes = fs::read_to_string(PROBES)?;
    ensure!(probes.lines().filter(|line| line.contains("[FTRACE]")).count() == 2, "probes: {probes:?}");
    session.start()?;
    let [perf, driver] = told_of(child, [perf, driver])?.map(by_thread);
    for (thread, told) in &perf {
        let also = driver.get(thread).map_or(&[][..], |told| &told[..]);
        let differs = told.iter().zip(also).position(|(one, other)| one != other);
        ensure!(
            differs.is_none() && told.len() == also.len(),
            "of thread {thread:?} perf tells {} times, the driver {}; first different: {:?} and {:?}",
            told.len(),
            also.len(),
            differs.map(|place| &told[place]),
            differs.map(|place| &also[place])
        );
    }
    ensure!(perf.len() == driver.len(), "{} and {} threads", perf.len(), driver.len());
    let count = |kind: fn(&Change) -> bool| driver.values().flatten().filter(|change| kind(change)).count();
    let maps = count(|change| matches!(change, Change::Map(map) if map.executable));
    let execs = count(|change| matches!(change, Change::Name { exec: true, .. }));
    let forks = count(|change| matches!(change, Change::Fork { .. }));
    ensure!(maps > 20 && execs == 7 && forks == 10, "{maps} mappings of code, {execs} execs, {forks} forks");
    Ok(format!("{} threads, {maps} mappings of code, {execs} execs, {forks} forks", driver.len()))
}

/// What each thread was told to do, in the order of time, without what the two tell differently.
fn by_thread(told: Vec<Entry>) -> BTreeMap<(u32, u32), Vec<Change>> {
    let mut threads: BTreeMap<_, Vec<Change>> = BTreeMap::new();
    for mut entry in told {
        if let Change::Map(mapping) = &mut entry.change {
            mapping.file = FileId::Untold;
        }
        threads.entry((entry.pid, entry.tid)).or_default().push(entry.change);
    }
    threads
}

/// As nobody: nothing is told of root's program from its execve on, and all of the same program without root's rights; what this process
/// maps is told also while nobody may look into it, as perf_event tells it.
pub(super) fn of_secure_program() -> Result<()> {
    for (program, is_told) in [(SECURE, false), (PLAIN, true)] {
        let child = Child::prepare(&["sh", "-c", &format!("{program} 2 1; true")])?;
        let session = session(Target::Process(child.pid()), true)?;
        let driver = Sideband::of_session(&session)?;
        session.start()?;
        let [told] = told_of(child, [driver])?;
        let name = Path::new(program).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // `comm` has 15 letters.
        let of_program = |entry: &&Entry| match &entry.change {
            Change::Map(mapping) => mapping.path == program,
            Change::Name { name: comm, .. } => name.starts_with(comm.as_str()),
            _ => false,
        };
        let found: Vec<_> = told.iter().filter(of_program).collect();
        ensure!(found.is_empty() != is_told, "{program}: {found:?} of {told:?}");
        let threads = told.iter().filter(|entry| matches!(entry.change, Change::Fork { .. })).count();
        ensure!(threads == if is_told { 3 } else { 1 }, "{threads} forks of {program}: {told:?}");
    }
    let session = session(Target::Process(std::process::id() as i32), false)?;
    let mut driver = Sideband::of_session(&session)?;
    prctl::set_dumpable(false)?;
    // Its stack is mapped.
    ensure!(std::thread::spawn(|| ()).join().is_ok(), "a thread panicked");
    let told = driver.drain()?;
    ensure!(told.iter().any(|entry| matches!(entry.change, Change::Map(_))), "not dumpable: {told:?}");
    Ok(())
}

/// The driver says that it cannot, and a recording knows what is mapped where all the same.
fn without_probes() -> Result<String> {
    let own = Target::Process(std::process::id() as i32);
    let said = no_reports(Sideband::of_session(&session(own, false)?))?;
    let trace = "without-probes.hpm";
    let mut command = hpmctl(&["record", "-e", "branch:u", "-c", "20011", "-o", trace, "--"])?;
    succeed(command.arg(built("loops")?))?;
    let maps: Vec<MapRow> = TraceReader::open(trace)?.rows().collect();
    ensure!(maps.iter().any(|map| map.path.ends_with("/loops")), "{maps:?}");
    Ok(said)
}

/// Nobody reads while this thread names itself more often than there is room for.
fn overflow() -> Result<String> {
    let session = session(Target::Process(std::process::id() as i32), false)?;
    let mut driver = Sideband::of_session(&session)?;
    for number in 0..NAMES {
        fs::write("/proc/thread-self/comm", format!("name-{number}"))?;
    }
    let told = driver.drain()?;
    let numbers: Vec<usize> = told
        .iter()
        .filter_map(|entry| match &entry.change {
            Change::Name { name, exec: false } => name.strip_prefix("name-")?.parse().ok(),
            _ => None,
        })
        .collect();
    let lost: u64 =
        told.iter().map(|entry| if let Change::Lost(lost) = entry.change { lost } else { 0 }).sum();
    ensure!(numbers.iter().copied().eq(0..numbers.len()), "not in order, or with gaps: {numbers:?}");
    let (seen, lost) = (numbers.len(), lost as usize);
    // This program maps memory meanwhile, too.
    ensure!(lost > 0 && (NAMES..NAMES + 100).contains(&(seen + lost)), "{seen} seen, {lost} lost of {NAMES}");
    fs::write("/proc/thread-self/comm", "again")?;
    let after = driver.drain()?;
    let again = |entry: &&Entry| matches!(&entry.change, Change::Name { name, .. } if name == "again");
    ensure!(after.iter().filter(again).count() == 1, "afterwards: {after:?}");
    Ok(format!("{seen} seen and {lost} lost of {NAMES}"))
}
