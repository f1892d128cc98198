//! The XMM registers of records, which traces do not keep: `vectors PROGRAM` samples the loads of `registers`, whose registers are
//! known, has XMM0 to XMM15 in each record, holds every one of them against what it is there, and prints how many records there were.

use std::process::ExitCode;
use std::time::Duration;

use libhpm::record::Xmm;
use libhpm::session::{Options, Session, Target};
use libhpm::sys::child::Child;
use libhpm::sys::device::Driver;
use libhpm::{Result, event, machine};

/// Odd, so that both loads of the loop are sampled.
const PERIOD: u64 = 1009;
/// Fewer records than that show too little.
const LEAST: usize = 100;

/// What `registers` has in XMMn.
fn known() -> Xmm {
    let bytes = |byte: usize| 0x0101_0101_0101_0101 * byte as u64;
    std::array::from_fn(|n| [bytes(0x20 + n), bytes(0x40 + n)])
}

fn main() -> ExitCode {
    let Some(program) = std::env::args().nth(1) else {
        eprintln!("usage: vectors PROGRAM");
        return ExitCode::from(2);
    };
    match sampled(program) {
        Ok((samples, wrong)) => {
            println!("{samples}");
            wrong.iter().take(10).for_each(|wrong| eprintln!("{wrong}"));
            let all_right = wrong.is_empty() && samples >= LEAST;
            if all_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("vectors: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How many samples there were, and what is wrong with them.
fn sampled(program: String) -> Result<(usize, Vec<String>)> {
    let pmu = machine::pmu_name(&Driver::open_checked()?.1);
    let mut child = Child::prepare(&[program])?;
    let options = Options::new(Target::Process(child.pid())).xmm(true).start_on_exec(true);
    let loads = event::parse_each("load:u", &pmu)?;
    let options = loads.into_iter().fold(options, |options, load| options.sample(load, PERIOD));
    let mut session = Session::open(&options)?;
    session.start()?;
    child.execute()?;
    let (mut samples, mut wrong) = (0, vec![]);
    while child.try_wait()?.is_none() {
        session.wait(&[], Duration::from_millis(100))?;
        take(&mut session, &mut samples, &mut wrong)?;
    }
    session.stop()?;
    take(&mut session, &mut samples, &mut wrong)?;
    Ok((samples, wrong))
}

fn take(session: &mut Session, samples: &mut usize, wrong: &mut Vec<String>) -> Result<()> {
    let known = known();
    for quantum in session.batch()?.quanta() {
        for sample in quantum?.samples()? {
            let record = sample?.record;
            *samples += 1;
            match record.xmm {
                None => wrong.push(format!("the sample at {:#x} has no XMM registers", record.ip)),
                Some(xmm) => wrong.extend(
                    xmm.iter().zip(&known).enumerate().filter(|(_, (found, right))| found != right).map(
                        |(n, (found, right))| {
                            format!("XMM{n} at {:#x} is {found:x?}, truly {right:x?}", record.ip)
                        },
                    ),
                ),
            }
        }
    }
    Ok(())
}
