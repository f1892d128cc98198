//! Reads a counter again and again, as tests/guest/perf_read.c does by the kernel's perf: `reads page|sampled|other COUNT`.
//!
//! `page`: its own, from its counter page. `sampled`: the same while the event is sampled by PEBS. `other`: that of a thread
//! that sleeps, by asking the driver.

use std::hint::black_box;
use std::sync::mpsc;

use libhpm::event::Event;
use libhpm::session::{Options, Session, Target};
use libhpm::sys::device::Driver;
use libhpm::{event, machine};
use nix::unistd::gettid;

/// Of the sampled event: so long that hardly a record is written.
const PERIOD: u64 = 1_000_003;

fn main() -> libhpm::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (mode, count) = (arguments.next(), arguments.next().and_then(|count| count.parse::<u64>().ok()));
    let (Some(mode), Some(count)) = (mode, count) else { usage() };
    let pmu = machine::pmu_name(&Driver::open_checked()?.1);
    let loads = event::parse("load:u", &pmu)?;
    match mode.as_str() {
        "page" => read_own(|options| options.count(loads), count),
        "sampled" => read_own(|options| options.sample(loads, PERIOD), count),
        "other" => read_other(loads, count),
        _ => usage(),
    }
}

fn usage() -> ! {
    eprintln!("usage: reads page|sampled|other COUNT");
    std::process::exit(2);
}

/// A started session of this process whose threads can be read.
fn started(options: impl FnOnce(Options) -> Options) -> libhpm::Result<Session> {
    let target = Target::Process(std::process::id() as i32);
    let session = Session::open(&options(Options::new(target)).counter_pages(true))?;
    session.start()?;
    Ok(session)
}

fn read_own(options: impl FnOnce(Options) -> Options, count: u64) -> libhpm::Result<()> {
    let session = started(options)?;
    let counters = session.own_counters()?;
    assert!(counters.reads_by_itself(0), "the driver has not granted RDPMC");
    for _ in 0..count {
        black_box(counters.count(0)?);
    }
    Ok(())
}

fn read_other(event: Event, count: u64) -> libhpm::Result<()> {
    let session = started(|options| options.count(event))?;
    let (say_tid, tid) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // Both ends fail only when the reader has gone.
            let _ = say_tid.send(gettid().as_raw());
            let _ = ended.recv();
        });
        let tid = tid.recv().unwrap_or_default();
        let counters = session.counters_of(tid)?;
        for _ in 0..count {
            black_box(counters.read()?);
        }
        drop(end);
        Ok(())
    })
}
