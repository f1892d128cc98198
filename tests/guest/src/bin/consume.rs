//! The least that a consumer of precise samples does: `consume PERIOD QUANTUM_MS PROGRAM...` samples a program's loads in quanta of so
//! many ms at most, looks at every record where hardware wrote it, and prints how many there were. tests/guest/perf_measure.c does the same by the kernel's perf.

use std::time::Duration;

use libhpm::session::{Options, Session, Target};
use libhpm::sys::child::Child;
use libhpm::sys::device::Driver;
use libhpm::{event, machine};

fn main() -> libhpm::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers = arguments.first().zip(arguments.get(1)).map(|(period, ms)| (period.parse(), ms.parse()));
    let Some((Ok(period), Ok(quantum_ms))) = numbers else {
        eprintln!("usage: consume PERIOD QUANTUM_MS PROGRAM...");
        std::process::exit(2);
    };
    let pmu = machine::pmu_name(&Driver::open_checked()?.1);
    let mut child = Child::prepare(&arguments[2..])?;
    let loads = event::parse("load:u", &pmu)?;
    let options = Options::new(Target::Process(child.pid()))
        .sample(loads, period)
        .longest_quantum(Some(Duration::from_millis(quantum_ms)))
        .start_on_exec(true);
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
