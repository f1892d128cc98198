//! Reads a counter of its own again and again: `reads page|driver COUNT`, from its counter page or by asking the driver.

use std::hint::black_box;

use libhpm::session::{Options, OwnCounters, Session, Target};
use libhpm::sys::device::{Device, Driver};
use libhpm::{event, machine};

fn main() -> libhpm::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (mode, count) = (arguments.next(), arguments.next().and_then(|count| count.parse::<u64>().ok()));
    let (Some(mode), Some(count)) = (mode.filter(|mode| mode == "page" || mode == "driver"), count) else {
        eprintln!("usage: reads page|driver COUNT");
        std::process::exit(2);
    };
    let pmu = machine::pmu_name(&Driver::open_checked()?.1);
    let target = Target::Process(std::process::id() as i32);
    let options = Options::new(target).count(event::parse("load:u", &pmu)?).counter_pages(true);
    let session = Session::open(&options)?;
    session.start()?;
    let counters = session.own_counters()?;
    if mode == "page" {
        assert!(counters.reads_by_itself(0), "the driver has not granted RDPMC");
        read_page(&counters, count)
    } else {
        for _ in 0..count {
            black_box(counters.ask(0)?);
        }
        Ok(())
    }
}

fn read_page<D: Device>(counters: &OwnCounters<'_, D>, count: u64) -> libhpm::Result<()> {
    for _ in 0..count {
        black_box(counters.count(0)?);
    }
    Ok(())
}
