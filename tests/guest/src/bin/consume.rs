//! The least that a consumer of precise samples does: `consume PERIOD PROGRAM...` samples a program's loads, looks at every
//! record where hardware wrote it, and prints how many there were. tests/guest/perf_measure.c does the same by the kernel's perf.

use std::time::Duration;

use libhpm::session::{Options, Session, Target};
use libhpm::sys::child::Child;
use libhpm::sys::device::Driver;
use libhpm::{event, machine};

fn main() -> libhpm::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some((Ok(period), program)) = arguments.split_first().map(|(first, rest)| (first.parse(), rest))
    else {
        eprintln!("usage: consume PERIOD PROGRAM...");
        std::process::exit(2);
    };
    let pmu = machine::pmu_name(&Driver::open_checked()?.1);
    let mut child = Child::prepare(program)?;
    let loads = event::parse("load:u", &pmu)?;
    let options = Options::new(Target::Process(child.pid())).sample(loads, period).start_on_exec(true);
    let mut session = Session::open(&options)?;
    session.start()?;
    child.execute()?;
    let (mut samples, mut sum) = (0, 0);
    while child.try_wait()?.is_none() {
        session.wait(&[], Duration::from_millis(100))?;
        take(&mut session, &mut samples, &mut sum)?;
    }
    session.stop()?;
    take(&mut session, &mut samples, &mut sum)?;
    println!("{samples} samples, sum {sum:#x}, {} lost", session.totals()?.records_lost);
    Ok(())
}

fn take(session: &mut Session, samples: &mut u64, sum: &mut u64) -> libhpm::Result<()> {
    let batch = session.batch()?;
    for quantum in batch.quanta() {
        for sample in quantum?.samples()? {
            *samples += 1;
            *sum = sum.wrapping_add(sample?.record.ip);
        }
    }
    Ok(())
}
