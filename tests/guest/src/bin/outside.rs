//! One thread's count, read by another while it runs on another CPU: `outside ROUNDS`.
//!
//! The thread stores some ten thousand times, reads its own count, tells it, and then runs on for a while without storing. Whoever
//! asks the driver meanwhile must be told that count: one that the driver knows from the thread's last quantum lacks thousands.
//! On a hybrid processor stores are one event for each type of cores; only the one of the core where the thread stays counts.

use std::hint::{black_box, spin_loop};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use libhpm::session::{Options, Session, Target, ThreadCounters};
use libhpm::sys::device::Driver;
use libhpm::{Result, event, machine};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid};

/// Stores of a round.
const STORES: u64 = 10_000;
/// Turns of a loop without memory, which the other thread needs to see the number and to ask: some milliseconds.
const QUIET: u64 = 1_000_000;
/// Stores between the thread's reading and its silence.
const TELLING: u64 = 100;

/// Of the round in which the thread stands, what it has counted; 0 while it stores.
static TOLD: AtomicU64 = AtomicU64::new(0);

fn pin(thread: Pid, cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    let pinned = set.set(cpu).and_then(|()| sched_setaffinity(thread, &set));
    pinned.map_err(|errno| libhpm::Error::io("pin a thread")(errno.into()))
}

/// The thread that is measured.
fn run(session: &Session<Driver>, rounds: u64) -> Result<()> {
    let counters = session.own_counters()?;
    let store = || {
        (0..STORES).for_each(|store| {
            black_box(store);
        })
    };
    store();
    let mut counts = (0..session.config().event_count as usize)
        .map(|event| counters.count(event).map(|count| (count, event)));
    let (_, event) = counts.try_fold((0, 0), |most, one| one.map(|one| most.max(one)))?;
    for _ in 0..rounds {
        TOLD.store(0, Ordering::Relaxed);
        store();
        TOLD.store(counters.count(event)?, Ordering::Release);
        for _ in 0..QUIET {
            spin_loop();
        }
    }
    Ok(())
}

/// What the thread told whenever it was asked in time, and what the driver said then.
fn ask(counters: &ThreadCounters<'_, Driver>, has_ended: impl Fn() -> bool) -> Result<Vec<(u64, u64)>> {
    let (mut last, mut answers) = (0, Vec::new());
    while !has_ended() {
        let told = TOLD.load(Ordering::Acquire);
        if told == 0 || told == last {
            spin_loop();
            continue;
        }
        let read = counters.read()?.counts.into_iter().max().unwrap_or(0);
        // Else it has begun to store again.
        if TOLD.load(Ordering::Acquire) == told {
            answers.push((told, read));
        }
        last = told;
    }
    Ok(answers)
}

fn main() -> ExitCode {
    let Some(rounds) = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()) else {
        eprintln!("usage: outside ROUNDS");
        return ExitCode::from(2);
    };
    match measured(rounds) {
        Ok(answers) => {
            println!("{} of {rounds} rounds: the thread was asked in time", answers.len());
            let is_wrong = |&&(told, read): &&(u64, u64)| !(told..=told + TELLING).contains(&read);
            let wrong: Vec<_> = answers.iter().filter(is_wrong).collect();
            wrong.iter().take(10).for_each(|(told, read)| {
                eprintln!("the thread had counted {told}, and was said to have counted {read}");
            });
            let enough = answers.len() as u64 * 2 > rounds;
            if wrong.is_empty() && enough { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("outside: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measured(rounds: u64) -> Result<Vec<(u64, u64)>> {
    let pmu = machine::pmu_name(&Driver::open_checked()?.1);
    let target = Target::Process(std::process::id() as i32);
    let stores = event::parse_each("store:u", &pmu)?;
    let options = stores.into_iter().fold(Options::new(target).counter_pages(true), Options::count);
    let session = Session::open(&options)?;
    session.start()?;
    pin(Pid::from_raw(0), 0)?;
    thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
        let session = &session;
        let worker = scope.spawn(move || {
            let _ = tell.send(gettid());
            pin(Pid::from_raw(0), 1)?;
            run(session, rounds)
        });
        let thread = told.recv().expect("the worker tells its number first");
        let asked =
            session.counters_of(thread.as_raw()).and_then(|counters| ask(&counters, || worker.is_finished()));
        worker.join().expect("the worker panicked")?;
        asked
    })
}
