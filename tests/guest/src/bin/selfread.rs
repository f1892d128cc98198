//! Threads that read their own counters around loops of known length, while they are moved from CPU to CPU and take the
//! CPUs from each other: `selfread plain|pebs|turns|revoked ROUNDS`.
//!
//! A loop of N iterations retires a·N + c of each event: a is the loop's, c is what lies between the two reads besides
//! (the reads themselves; about 40 instructions). Both are found from the first rounds and must then hold in every
//! round, exactly. A read that the scheduler interrupts is begun again, which may add some tens of instructions to one
//! round; such rounds are counted, and may be one in a hundred. In turns (multiplexing) only scaled sums can be held
//! to anything: one event several times over must come to the same within 5 %. With `revoked` the right to RDPMC is taken
//! from every process while the threads read, and given back afterwards; who asks the driver instead is exact too.

use std::hint::black_box;
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
const THREADS: usize = 3;
/// Instructions that reading again may add.
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
    wrong: Vec<String>,
}

/// A loop of `n` iterations that LLVM cannot shorten.
#[inline(never)]
fn spin(n: u64) {
    for i in 0..n {
        black_box(i);
    }
}

#[inline(never)]
fn around<D: Device>(counters: &OwnCounters<'_, D>, event: usize, n: u64) -> Result<u64> {
    let before = counters.count(event)?;
    spin(n);
    Ok(counters.count(event)?.wrapping_sub(before))
}

/// The slope and the constant of an event: the least of several tries, as a read begun again only adds.
fn line<D: Device>(counters: &OwnCounters<'_, D>, event: usize) -> Result<(u64, u64)> {
    let least = |n| -> Result<u64> {
        let tries = (0..8).map(|_| around(counters, event, n)).collect::<Result<Vec<_>>>()?;
        Ok(tries.into_iter().min().unwrap_or(0))
    };
    let (one, two) = (least(LOOP)?, least(2 * LOOP)?);
    let slope = two.saturating_sub(one) / LOOP;
    Ok((slope, one.saturating_sub(slope * LOOP)))
}

fn exact<D: Device>(session: &Session<D>, rounds: u64) -> Result<Seen> {
    let counters = session.own_counters()?;
    let events = session.config().event_count as usize;
    let lines = (0..events).map(|event| line(&counters, event)).collect::<Result<Vec<_>>>()?;
    let mut seen = Seen::default();
    let mut cpus = 0_u64;
    for round in 0..rounds {
        cpus |= 1 << sched_getcpu().unwrap_or(0);
        let event = round as usize % events;
        let n = LOOP * (1 + round % 3);
        seen.asked += u64::from(!counters.reads_by_itself(event));
        let (slope, constant) = lines[event];
        let (expected, got) = (slope * n + constant, around(&counters, event, n)?);
        seen.rounds += 1;
        seen.again += u64::from(got != expected);
        if got < expected || got > expected + AGAIN {
            seen.wrong.push(format!("round {round}, event {event}: {got} instead of {expected}"));
        }
    }
    if seen.again * 100 > seen.rounds {
        seen.wrong.push(format!("{} of {} rounds were not exact", seen.again, seen.rounds));
    }
    if lines[0].0 == 0 {
        seen.wrong.push("the loop's instructions were not counted".to_owned());
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
fn turns<D: Device>(session: &Session<D>, rounds: u64) -> Result<Seen> {
    let counters = session.own_counters()?;
    let events = session.config().event_count as usize;
    let mut seen = Seen { rounds, ..Seen::default() };
    let mut cpus = 0_u64;
    for _ in 0..rounds * 50 {
        cpus |= 1 << sched_getcpu().unwrap_or(0);
        spin(LOOP);
    }
    let counted = (0..events).map(|event| counters.counted(event)).collect::<Result<Vec<_>>>()?;
    let scaled = |one: &Counted| one.count as f64 * one.enabled_tsc as f64 / one.running_tsc.max(1) as f64;
    let mean = counted.iter().map(scaled).sum::<f64>() / events as f64;
    for (event, one) in counted.iter().enumerate() {
        seen.asked += u64::from(!counters.reads_by_itself(event));
        if (scaled(one) - mean).abs() > mean * 0.05 || one.running_tsc >= one.enabled_tsc {
            seen.wrong.push(format!("event {event}: {one:?} is scaled {}, the mean {mean}", scaled(one)));
        }
    }
    seen.cpus = cpus.count_ones();
    Ok(seen)
}

/// Who may use RDPMC: 0 for nobody.
const ATTRIBUTE: &str = "/sys/bus/event_source/devices/cpu/rdpmc";

/// Reads exactly before, while and after nobody may use RDPMC.
fn revoked<D: Device>(session: &Session<D>, rounds: u64) -> Result<Seen> {
    /// Threads that have come to each change of the attribute; the last one makes it.
    static READY: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
    let change = |stage: usize, value: &str| -> Result<()> {
        if READY[stage].fetch_add(1, Ordering::Relaxed) + 1 == THREADS {
            std::fs::write(ATTRIBUTE, value).map_err(Error::io(format!("write {ATTRIBUTE}")))?;
            READY[stage].fetch_add(1, Ordering::Release);
        }
        Ok(())
    };
    let is_changed = |stage: usize| READY[stage].load(Ordering::Acquire) > THREADS;
    let before = exact(session, rounds)?;
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
    let without = exact(session, rounds)?;
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
    let after = exact(session, rounds)?;
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
    for round in 0.. {
        for (number, &thread) in threads.iter().enumerate() {
            let mut cpu = CpuSet::new();
            if cpu.set((round + number) % 2).is_ok() {
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

fn options(mode: &str, pmu: &str) -> Result<Options> {
    let target = Target::Process(std::process::id() as i32);
    let mut options = Options::new(target).counter_pages(true).count(event::parse("instructions:u", pmu)?);
    let others: &[&str] = match mode {
        // More than there are counters.
        "turns" => &["cpu/event=0xc0/u"; 12],
        _ => &["branch:u", "store:u"],
    };
    for name in others {
        options = options.count(event::parse(name, pmu)?);
    }
    if mode == "pebs" {
        options = options.sample(event::parse("load:u", pmu)?, 1009);
    }
    Ok(options.multiplex(mode == "turns"))
}

fn run(mode: &str, rounds: u64) -> Result<Vec<Seen>> {
    let pmu = machine::pmu_name(&Driver::open_checked()?.1);
    let session = Session::open(&options(mode, &pmu)?)?;
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
                let (tell, session) = (tell.clone(), &session);
                scope.spawn(move || {
                    let _ = tell.send(gettid());
                    judge(session, rounds)
                })
            })
            .collect();
        let pids: Vec<Pid> = told.iter().take(THREADS).collect();
        let (moved, done) = (pids.clone(), &done);
        let mover = scope.spawn(move || move_about(&moved, done));
        watch(&session, &pids)?;
        let seen = workers.into_iter().map(|worker| worker.join().expect("a worker panicked")).collect();
        done.store(true, Ordering::Relaxed);
        mover.join().expect("the mover panicked");
        seen
    })
}

/// Reads the threads from outside while they run: what one has counted never falls.
fn watch<D: Device>(session: &Session<D>, threads: &[Pid]) -> Result<()> {
    let all = threads.iter().map(|pid| session.counters_of(pid.as_raw())).collect::<Result<Vec<_>>>()?;
    let mut last = vec![0; all.len()];
    for _ in 0..100 {
        for (last, counters) in last.iter_mut().zip(&all) {
            let (known, now) = (counters.last_known(0), counters.read()?);
            let fell = now.counts[0] < *last || known.is_none_or(|(count, _)| count > now.counts[0]);
            assert!(!fell, "a count fell from {last} to {} (last known {known:?})", now.counts[0]);
            *last = now.counts[0];
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
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
    println!(
        "{} rounds, {} read again, {} asked, on up to {} CPUs",
        sum(|seen| seen.rounds),
        sum(|seen| seen.again),
        sum(|seen| seen.asked),
        seen.iter().map(|seen| seen.cpus).max().unwrap_or(0)
    );
    let wrong: Vec<&String> = seen.iter().flat_map(|seen| &seen.wrong).collect();
    wrong.iter().take(10).for_each(|wrong| eprintln!("{wrong}"));
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
