//! Threads that read their own counters around loops of known length, while they are moved from CPU to CPU and take the
//! CPUs from each other: `selfread plain|pebs|turns|revoked ROUNDS`.
//!
//! A loop of N iterations retires a·N + c of each event: a is the loop's, c is what lies between the two reads besides
//! (the reads themselves; about 40 instructions). Both are found from the first rounds and must then hold in every
//! round, exactly. A read that the scheduler interrupts is begun again, which may add some tens of instructions to one
//! round; such rounds are counted, and may be one in a hundred. In turns (multiplexing) only scaled sums can be held
//! to anything: one event several times over must come to the same within 5 %, in the median of [`PARTS`] parts, as time in which
//! the machine below the lab does something else passes for one event's turn. With `revoked` the right to RDPMC is taken
//! from every process while the threads read, and given back afterwards; who asks the driver instead is exact too.
//!
//! What each type of a hybrid processor's cores counts by an event of its own is read as the sum of all. A thread that
//! moves to another type between its two reads has counted more or less of the reads themselves: such sums need not be
//! exact, but as near as a read that is begun again.

use std::hint::black_box;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use libhpm::session::{Counted, Options, OwnCounters, Session, Target};
use libhpm::sys::device::{Device, Driver};
use libhpm::{Error, Result, event, machine};
use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::unistd::{Pid, gettid};

/// Iterations of the shortest loop.
const LOOP: u64 = 20_000;
/// More than the CPUs of the lab, so that they compete.
const THREADS: usize = 4;
/// Of a loop whose events take turns.
const PARTS: usize = 10;
/// Instructions that reading again may add; for a sum of two events, also what a read itself may come to more or less.
const AGAIN: u64 = 400;

/// What a thread saw.
#[derive(Default)]
struct Seen {
    rounds: u64,
    /// Rounds in which a read was begun again.
    again: u64,
    /// Reads that needed the driver.
    asked: u64,
    cpus: u32,
    /// Of scaled counts: the largest median by which one is beside their mean.
    deviation: f64,
    wrong: Vec<String>,
}

/// A loop of `n` iterations that LLVM cannot shorten.
#[inline(never)]
fn spin(n: u64) {
    for i in 0..n {
        black_box(i);
    }
}

/// What is counted of one kind: by the event at one place of the session, or by one for each type of cores.
type Kind = Range<usize>;

#[inline(never)]
fn around<D: Device>(counters: &OwnCounters<'_, D>, kind: &Kind, n: u64) -> Result<u64> {
    let sum = || kind.clone().map(|event| counters.count(event)).sum::<Result<u64>>();
    let before = sum()?;
    spin(n);
    Ok(sum()?.wrapping_sub(before))
}

/// The slope and the constant of a kind: the least of several tries, as a read begun again only adds.
fn line<D: Device>(counters: &OwnCounters<'_, D>, kind: &Kind) -> Result<(u64, u64)> {
    let least = |n| -> Result<u64> {
        let tries = (0..8).map(|_| around(counters, kind, n)).collect::<Result<Vec<_>>>()?;
        Ok(tries.into_iter().min().unwrap_or(0))
    };
    let (one, two) = (least(LOOP)?, least(2 * LOOP)?);
    let slope = (two.saturating_sub(one) + LOOP / 2) / LOOP;
    Ok((slope, one.saturating_sub(slope * LOOP)))
}

/// Whether a kind is read without asking the driver. The event of the other type of cores always is, as it does not count there: a thread
/// that moves between its looks at two events may see only such, but does not move again before it has looked once more.
fn reads_by_itself<D: Device>(counters: &OwnCounters<'_, D>, kind: &Kind) -> bool {
    let look = || kind.clone().all(|event| counters.reads_by_itself(event));
    look() && look()
}

fn exact<D: Device>(session: &Session<D>, kinds: &[Kind], rounds: u64) -> Result<Seen> {
    let counters = session.own_counters()?;
    let lines = kinds.iter().map(|kind| line(&counters, kind)).collect::<Result<Vec<_>>>()?;
    let mut seen = Seen::default();
    let mut cpus = 0_u64;
    for round in 0..rounds {
        cpus |= 1 << sched_getcpu().unwrap_or(0);
        let place = round as usize % kinds.len();
        let (kind, (slope, constant)) = (&kinds[place], lines[place]);
        let n = LOOP * (1 + round % 3);
        seen.asked += u64::from(!reads_by_itself(&counters, kind));
        let (expected, got) = (slope * n + constant, around(&counters, kind, n)?);
        let is_sum = kind.len() > 1;
        let least = expected.saturating_sub(if is_sum { AGAIN } else { 0 });
        seen.rounds += 1;
        seen.again += u64::from(!is_sum && got != expected);
        if got < least || got > expected + AGAIN {
            seen.wrong.push(format!("round {round}, events {kind:?}: {got} instead of {expected}"));
        }
    }
    if seen.again * 100 > seen.rounds {
        seen.wrong.push(format!("{} of {} rounds were not exact", seen.again, seen.rounds));
    }
    if lines[..3].iter().any(|line| line.0 == 0) {
        seen.wrong.push(format!("the loop's instructions, branches or stores were not counted: {lines:?}"));
    }
    seen.cpus = cpus.count_ones();
    Ok(seen)
}

/// What perf's past events have left in the counters is not counted: it is zeroed when this process is allowed to use
/// RDPMC, and the sums must not fall by it.
fn sums_grow<D: Device>(session: &Session<D>) -> Result<()> {
    let sums = || session.flush().and_then(|()| session.totals());
    let before = sums()?;
    session.own_counters()?;
    let after = sums()?;
    for (event, (before, after)) in before.counts.iter().zip(&after.counts).enumerate() {
        assert!(before <= after, "the sum of event {event} fell from {before} to {after}");
    }
    Ok(())
}

/// One event several times over: all scaled counts of a long loop must come to the same.
fn turns<D: Device>(session: &Session<D>, kinds: &[Kind], rounds: u64) -> Result<Seen> {
    let counters = session.own_counters()?;
    let mut seen = Seen { rounds, ..Seen::default() };
    let mut cpus = 0_u64;
    let counted = || (0..kinds.len()).map(|event| counters.counted(event)).collect::<Result<Vec<Counted>>>();
    let mut deviations = vec![vec![]; kinds.len()];
    let mut before = counted()?;
    for _ in 0..PARTS {
        for _ in 0..rounds * 50 / PARTS as u64 {
            cpus |= 1 << sched_getcpu().unwrap_or(0);
            spin(LOOP);
        }
        let after = counted()?;
        let scaled: Vec<f64> =
            before.iter().zip(&after).map(|(before, after)| scaled(before, after)).collect();
        let mean = scaled.iter().sum::<f64>() / scaled.len() as f64;
        deviations.iter_mut().zip(scaled).for_each(|(all, scaled)| all.push(scaled / mean - 1.0));
        before = after;
    }
    for (event, (one, mut deviations)) in before.iter().zip(deviations).enumerate() {
        seen.asked += u64::from(!counters.reads_by_itself(event));
        deviations.sort_by(f64::total_cmp);
        let median = deviations[PARTS / 2];
        seen.deviation = seen.deviation.max(median.abs());
        if median.abs() > 0.05 || one.running_tsc >= one.enabled_tsc {
            seen.wrong.push(format!("event {event}, {one:?}, is beside the mean by {deviations:?}"));
        }
    }
    seen.cpus = cpus.count_ones();
    Ok(seen)
}

/// What was counted between two readings, for all of the time.
fn scaled(before: &Counted, after: &Counted) -> f64 {
    let (enabled, running) = (after.enabled_tsc - before.enabled_tsc, after.running_tsc - before.running_tsc);
    (after.count - before.count) as f64 * enabled as f64 / running.max(1) as f64
}

/// The PMUs as the kernel names them, one for each type of cores.
const PMUS: [&str; 4] = ["cpu", "cpu_core", "cpu_atom", "cpu_lowpower"];
/// A thread has failed: the others need not wait for it.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Says who may use RDPMC: 0 for nobody.
fn allow(value: &str) -> Result<()> {
    let attributes = PMUS.map(|pmu| format!("/sys/bus/event_source/devices/{pmu}/rdpmc"));
    let mut found = attributes.iter().filter(|attribute| Path::new(attribute).exists()).peekable();
    if found.peek().is_none() {
        return Err(Error::io("find the kernel's PMUs")(ErrorKind::NotFound.into()));
    }
    for attribute in found {
        std::fs::write(attribute, value).map_err(Error::io(format!("write {attribute}")))?;
    }
    Ok(())
}

/// Reads exactly before, while and after nobody may use RDPMC.
fn revoked<D: Device>(session: &Session<D>, kinds: &[Kind], rounds: u64) -> Result<Seen> {
    /// Threads that have come to each change of the attribute; the last one makes it.
    static READY: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    let change = |stage: usize, value: &str| -> Result<()> {
        if READY[stage].fetch_add(1, Ordering::Relaxed) + 1 == THREADS {
            allow(value)?;
            READY[stage].fetch_add(1, Ordering::Release);
        }
        Ok(())
    };
    let is_changed =
        |stage: usize| READY[stage].load(Ordering::Acquire) > THREADS || FAILED.load(Ordering::Relaxed);
    let before = exact(session, kinds, rounds)?;
    let counters = session.own_counters()?;
    let (mut last, mut wrong) = (0, vec![]);
    change(0, "0")?;
    // Whoever reads meanwhile faults, and must neither die nor see a count fall.
    let mut late = false;
    while !late {
        late = is_changed(0);
        let now = counters.count(0)?;
        if now < last {
            wrong.push(format!("a count fell from {last} to {now}"));
        }
        last = now;
    }
    if counters.reads_by_itself(0) {
        wrong.push("it reads by RDPMC, which is forbidden".to_owned());
    }
    let without = exact(session, kinds, rounds)?;
    if without.asked != rounds {
        wrong.push(format!(
            "of {rounds} rounds {} needed the driver while RDPMC was forbidden",
            without.asked
        ));
    }
    change(1, "1")?;
    while !is_changed(1) {
        thread::yield_now();
    }
    let after = exact(session, kinds, rounds)?;
    if before.asked + after.asked > 0 {
        wrong.push(format!("{} rounds needed the driver without need", before.asked + after.asked));
    }
    let mut seen = Seen { wrong, ..Seen::default() };
    for part in [before, without, after] {
        seen.rounds += part.rounds;
        seen.again += part.again;
        seen.asked += part.asked;
        seen.cpus = seen.cpus.max(part.cpus);
        seen.wrong.extend(part.wrong);
    }
    Ok(seen)
}

/// Moves every thread but itself from CPU to CPU.
fn move_about(threads: &[Pid], done: &AtomicBool) {
    let cpus = thread::available_parallelism().map_or(1, usize::from);
    for round in 0.. {
        for (number, &thread) in threads.iter().enumerate() {
            let mut cpu = CpuSet::new();
            if cpu.set((round + number) % cpus).is_ok() {
                // A thread that has ended cannot be moved.
                let _ = sched_setaffinity(thread, &cpu);
            }
        }
        thread::sleep(Duration::from_millis(3));
        if done.load(Ordering::Relaxed) {
            return;
        }
    }
}

fn options(mode: &str, pmu: &str) -> Result<(Options, Vec<Kind>)> {
    let target = Target::Process(std::process::id() as i32);
    let mut options = Options::new(target).counter_pages(true).multiplex(mode == "turns");
    let others: &[&str] = match mode {
        // More than there are counters.
        "turns" => &["cpu/event=0xc0/u"; 12],
        "pebs" => &["branch:u", "store:u", "load:u"],
        _ => &["branch:u", "store:u"],
    };
    let (mut kinds, mut count) = (vec![], 0);
    for &name in ["instructions:u"].iter().chain(others) {
        for event in event::parse_each(name, pmu)? {
            options = match name {
                "load:u" => options.sample(event, 1009),
                _ => options.count(event),
            };
            count += 1;
        }
        let first = kinds.last().map_or(0, |kind: &Kind| kind.end);
        kinds.push(first..count);
    }
    Ok((options, kinds))
}

fn run(mode: &str, rounds: u64) -> Result<Vec<Seen>> {
    let pmu = machine::pmu_name(&Driver::open_checked()?.1);
    let (options, kinds) = options(mode, &pmu)?;
    let session = Session::open(&options)?;
    session.start()?;
    sums_grow(&session)?;
    let done = AtomicBool::new(false);
    let judge = match mode {
        "turns" => turns,
        "revoked" => revoked,
        _ => exact,
    };
    thread::scope(|scope| {
        let (tell, told) = std::sync::mpsc::channel();
        let workers: Vec<_> = (0..THREADS)
            .map(|_| {
                let (tell, session, kinds) = (tell.clone(), &session, &kinds);
                scope.spawn(move || {
                    let _ = tell.send(gettid());
                    judge(session, kinds, rounds).inspect_err(|_| FAILED.store(true, Ordering::Relaxed))
                })
            })
            .collect();
        let pids: Vec<Pid> = told.iter().take(THREADS).collect();
        let (moved, done) = (pids.clone(), &done);
        let mover = scope.spawn(move || move_about(&moved, done));
        let watched = watch(&session, &pids);
        let seen: Result<Vec<Seen>> =
            workers.into_iter().map(|worker| worker.join().expect("a worker panicked")).collect();
        // The mover ends whatever has failed.
        done.store(true, Ordering::Relaxed);
        mover.join().expect("the mover panicked");
        let mut seen = seen?;
        let mut wrong = watched?;
        if seen.iter().any(|one| one.cpus < 2) {
            wrong.push("a thread was on one CPU only".to_owned());
        }
        if mode == "pebs" && session.totals()?.records == 0 {
            wrong.push("PEBS wrote no record".to_owned());
        }
        seen.push(Seen { wrong, ..Seen::default() });
        Ok(seen)
    })
}

/// Reads the threads from outside while they run: what one has counted never falls. Tells where it did.
fn watch<D: Device>(session: &Session<D>, threads: &[Pid]) -> Result<Vec<String>> {
    let mut wrong = vec![];
    let all = threads.iter().map(|pid| session.counters_of(pid.as_raw())).collect::<Result<Vec<_>>>()?;
    let mut last = vec![0; all.len()];
    for _ in 0..100 {
        for (last, counters) in last.iter_mut().zip(&all) {
            let (known, now) = (counters.last_known(0), counters.read()?);
            let fell = now.counts[0] < *last || known.is_none_or(|(count, _)| count > now.counts[0]);
            if fell {
                wrong.push(format!("a count fell from {last} to {} (last known {known:?})", now.counts[0]));
            }
            *last = now.counts[0];
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(wrong)
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mode, rounds) = (arguments.next(), arguments.next().and_then(|rounds| rounds.parse().ok()));
    let (Some(mode @ ("plain" | "pebs" | "turns" | "revoked")), Some(rounds)) = (mode.as_deref(), rounds)
    else {
        eprintln!("usage: selfread plain|pebs|turns|revoked ROUNDS");
        return ExitCode::from(2);
    };
    let seen = match run(mode, rounds) {
        Ok(seen) => seen,
        Err(error) => {
            eprintln!("selfread: {error}");
            return ExitCode::FAILURE;
        }
    };
    let sum = |of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
    let deviation = seen.iter().map(|seen| seen.deviation).fold(0.0, f64::max);
    let scaled =
        if deviation > 0.0 { format!(", {:.1} % off when scaled", deviation * 100.0) } else { String::new() };
    println!(
        "{} rounds, {} read again, {} asked, on up to {} CPUs{scaled}",
        sum(|seen| seen.rounds),
        sum(|seen| seen.again),
        sum(|seen| seen.asked),
        seen.iter().map(|seen| seen.cpus).max().unwrap_or(0)
    );
    let wrong: Vec<&String> = seen.iter().flat_map(|seen| &seen.wrong).collect();
    wrong.iter().take(10).for_each(|wrong| eprintln!("{wrong}"));
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
