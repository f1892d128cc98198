//! Sessions that measure the same program, and share it.

use std::fs;
use std::process::Child;

use anyhow::{Context, Result, ensure};
use libhpm::event;
use libhpm::session::{Options, Session, Target};
use libhpm::trace::{MarkerRow, TraceReader};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use super::GuestReport;
use super::bad_input::refused;
use super::programs::{built, hpmctl, pid_of, record_with, succeed, wait_at_most};
use super::scopes::{
    EVENTS, LIMIT, ends_well, enter, mount_cgroups, open_to_nobody, record, result, samples, settled, signal,
    stat, stopped_loops,
};

/// The window of the program whose session does not share: the character behind the name is so many behind the digit 0.
pub(crate) const ALONE: &str = "loopsE";
/// The windows of programs that sessions share, and how many do.
pub(crate) const SHARED: [(&str, usize); 2] = [("loopsO", 2), ("loopsP", 3)];
/// The window of the program that two recordings share.
pub(crate) const SAMPLED: &str = "loopsQ";
/// How often a session is refused.
const REFUSALS: u32 = 300;
const GROUP: &str = "/sys/fs/cgroup/shared";

/// Runs every case; what is to be compared with the truth is left as a fact named by the program's window.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    open_to_nobody()?;
    mount_cgroups()?;
    fs::create_dir_all(GROUP)?;
    for (window, what, case) in [
        (ALONE, "a program is measured beside a session of the whole system that shares", alone as fn() -> _),
        (SHARED[0].0, "a process is shared with the whole system", || shared(30, false)),
        (SHARED[1].0, "a process is shared with its group and the whole system", || shared(31, true)),
        (SAMPLED, "a process is recorded by two", recorded),
    ] {
        let mut left = Value::Null;
        report.check(what, || {
            left = case()?;
            Ok(left.to_string())
        });
        report.fact(window, left);
    }
    report.check("both who share a program have its markers", markers);
    report
        .check("of two that share the whole system the one that goes on has all of it", one_after_the_other);
    report.check("one process has one session, also of those that share", || {
        let mut target = stopped_loops(1, 0)?;
        let pid = target.id().to_string();
        let mut first = stat("first", &["--share", "-p", &pid])?.spawn()?;
        settled(&first)?;
        let said = refused(hpmctl(&["stat", "--share", "-e", EVENTS, "-p", &pid])?, "excludes")?;
        signal(&target, Signal::SIGCONT)?;
        ends_well(&mut target)?;
        wait_at_most(&mut first, LIMIT)?;
        Ok(said)
    });
    report.check("who is refused learns nothing of what others wait for", refused_learns_nothing);
    report.check("branch records are not shared", || {
        refused(hpmctl(&["record", "--share", "--branches", "-a", "--", "true"])?, "gaps")
    });
    Ok(())
}

/// Tells a session of no process to end.
fn end(mut session: Child) -> Result<()> {
    signal(&session, Signal::SIGINT)?;
    ends_well(&mut session)
}

/// What a session counted of `loops`, and for which part of its time: by all of it, or by the thread of that name.
fn of_loops(name: &str, by_thread: bool) -> Result<(u64, f64)> {
    let all = result(name)?;
    let mut parts = all["parts"].as_array().into_iter().flatten();
    let part = if by_thread {
        parts.find(|part| part["thread"] == "loops").with_context(|| format!("no thread loops in {all}"))?
    } else {
        &all
    };
    let event = &part["events"][0];
    let [count, enabled, running] = ["count", "enabled_ns", "running_ns"]
        .map(|name| event[name].as_u64().with_context(|| format!("no {name} in {event}")));
    Ok((count?, running? as f64 / enabled?.max(1) as f64))
}

/// The program's own session has it to itself; the other says that it has not seen it.
fn alone() -> Result<Value> {
    let system = stat("system", &["-a", "--share", "--per-thread"])?.spawn()?;
    settled(&system)?;
    let mut own = stat("alone", &["--"])?;
    own.arg(built("loops")?).args(["x"; 20]);
    succeed(&mut own)?;
    end(system)?;
    let ((count, own), (seen, share)) = (of_loops("alone", false)?, of_loops("system", true)?);
    ensure!(own == 1.0, "the session that does not share waited: {own}");
    // Until its session had begun the program was the other's: few instructions, but on a slow machine much of the time.
    ensure!(share < 1.0 && seen < 100_000, "the other saw {seen} instructions in {share:.3} of the time");
    Ok(json!({ "counts": [count], "shares": [own] }))
}

/// A process that several sessions measure, its group's among them if wanted.
fn shared(arguments: usize, grouped: bool) -> Result<Value> {
    let mut target = stopped_loops(arguments, 0)?;
    if grouped {
        enter(&target, GROUP)?;
    }
    let mut process = stat("process", &["--share", "-p", &target.id().to_string()])?.spawn()?;
    let mut others = vec![("system", stat("system", &["-a", "--share", "--per-thread"])?.spawn()?)];
    if grouped {
        others.push(("group", stat("group", &["--share", "--per-thread", "--cgroup", GROUP])?.spawn()?));
    }
    settled(&process)?;
    others.iter().try_for_each(|(_, session)| settled(session))?;
    signal(&target, Signal::SIGCONT)?;
    ends_well(&mut target)?;
    ends_well(&mut process)?;
    let mut all = vec![of_loops("process", false)?];
    for (name, session) in others {
        end(session)?;
        all.push(of_loops(name, true)?);
    }
    let (counts, shares): (Vec<u64>, Vec<f64>) = all.into_iter().unzip();
    Ok(json!({ "counts": counts, "shares": shares }))
}

fn recorded() -> Result<Value> {
    let mut target = stopped_loops(32, 0)?;
    let mut process = record("process.hpm", &["--share", "-p", &target.id().to_string()])?.spawn()?;
    let system = record("system.hpm", &["--share", "-a"])?.spawn()?;
    settled(&process)?;
    settled(&system)?;
    signal(&target, Signal::SIGCONT)?;
    ends_well(&mut target)?;
    ends_well(&mut process)?;
    end(system)?;
    Ok(json!([samples("process.hpm")?, samples("system.hpm")?]))
}

/// A program that marks is recorded by its own session, and by one of the whole system.
fn markers() -> Result<String> {
    let system = record("marked.system.hpm", &["--share", "-a"])?.spawn()?;
    settled(&system)?;
    succeed(record_with("marked.hpm", &["--share"])?.arg(built("marks")?))?;
    end(system)?;
    let set = |trace: &str| -> Result<usize> { Ok(TraceReader::open(trace)?.rows::<MarkerRow>().count()) };
    let (own, others) = (set("marked.hpm")?, set("marked.system.hpm")?);
    ensure!(own == 602 && others == own, "{own} and {others} markers of 602");
    Ok(format!("{own} markers each"))
}

/// Beside a session of the whole system that waits for another one of it, one of this process that is refused again and again.
fn refused_learns_nothing() -> Result<String> {
    let (waits, excludes) =
        (stat("waits", &["-a", "--share"])?.spawn()?, stat("excludes", &["-a"])?.spawn()?);
    settled(&waits)?;
    settled(&excludes)?;
    let event = event::parse(EVENTS, &libhpm::source::choice::usable_pmu()?)?;
    let own = Target::Process(std::process::id() as i32);
    let mut session = Session::open(&Options::new(own).count(event).quanta(true))?;
    for _ in 0..REFUSALS {
        ensure!(session.start().is_err(), "it was started beside a session of the whole system");
    }
    let seen = session.batch()?.quanta().count();
    ensure!(seen == 0, "a session that was never started has {seen} quanta");
    drop(session);
    end(excludes)?;
    end(waits)?;
    let (_, share) = of_loops("waits", false)?;
    ensure!(share < 0.9, "the one that waited says that it had {share:.3} of the time");
    Ok(format!("refused {REFUSALS} times; the one that waited had {share:.3} of the time"))
}

/// The one that ends leaves the PMU to the other at once, whosever turn it is.
fn one_after_the_other() -> Result<String> {
    let sessions = ["one", "two"].map(|name| stat(name, &["-a", "--share", "--per-thread"]));
    let [one, two] = sessions.map(|session| Ok::<_, anyhow::Error>(session?.spawn()?));
    let (one, two) = (one?, two?);
    settled(&one)?;
    settled(&two)?;
    let mut target = std::process::Command::new(built("loops")?).args(["x"; 20]).spawn()?;
    pid_of("loops")?;
    end(one)?;
    wait_at_most(&mut target, LIMIT)?;
    end(two)?;
    let ((first, _), (second, share)) = (of_loops("one", true)?, of_loops("two", true)?);
    ensure!(share > 0.5, "the one that went on had the program in {share:.3} of the time");
    Ok(format!("{first} and {second} instructions, {share:.3} of the time of the second"))
}
