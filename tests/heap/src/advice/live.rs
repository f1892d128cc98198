//! Samples of this process, from hpm's driver: the program watches its own cache misses.

use std::time::{Duration, Instant};

use libhpm::event;
use libhpm::machine::pmu_name;
use libhpm::session::{Options, Session, Target};
use libhpm::sys::device::Driver;

use super::{Sample, Samples};

/// A session on the driver that samples this process's loads that miss the first-level data cache.
#[derive(Debug)]
pub struct Live {
    session: Session,
    /// Where the heap is in the process.
    base: u64,
    bytes: u64,
    interval: u64,
    started: Instant,
    /// Instructions that the process had executed when the last quantum ended.
    instructions: u64,
}

/// Place of the counted instructions among the session's events.
const INSTRUCTIONS: usize = 1;

impl Live {
    /// Samples one of `interval` misses of the heap's `bytes` at `base`.
    ///
    /// # Errors
    /// In one sentence: there is no driver, or it refuses.
    pub fn open(base: u64, bytes: u64, interval: u64) -> libhpm::Result<Self> {
        let (driver, info) = Driver::open_checked()?;
        let pmu = pmu_name(&info);
        let options = Options::new(Target::Process(std::process::id() as i32))
            .sample(event::parse("l1d-load-miss:u", &pmu)?, interval)
            .count(event::parse("instructions:u", &pmu)?)
            .randomise(true);
        let session = Session::configure(driver, &options)?;
        session.start()?;
        Ok(Self { session, base, bytes, interval, started: Instant::now(), instructions: 0 })
    }

    fn read(&mut self, all: bool) -> libhpm::Result<Vec<Sample>> {
        self.session.check()?;
        if all {
            self.session.flush()?;
        }
        let mut taken = Vec::new();
        for quantum in self.session.batch()?.quanta() {
            let quantum = quantum?;
            self.instructions += quantum.counts().get(INSTRUCTIONS).copied().unwrap_or(0);
            for sample in quantum.samples()? {
                // Of a processor whose records have no data address there are no samples, which the log shows.
                let address = sample?.record.memory.map_or(0, |memory| memory.address);
                let offset = address.wrapping_sub(self.base);
                if offset < self.bytes {
                    taken.push(Sample { address: offset as u32, field: None });
                }
            }
        }
        Ok(taken)
    }
}

impl Samples for Live {
    fn take(&mut self, all: bool) -> Result<Vec<Sample>, String> {
        self.read(all).map_err(|error| error.to_string())
    }

    fn now(&self) -> u64 {
        self.instructions
    }

    fn interval(&self) -> u64 {
        self.interval
    }

    fn collector_share(&self, collecting: Duration) -> f64 {
        let all = self.started.elapsed().max(Duration::from_nanos(1));
        collecting.div_duration_f64(all).min(1.0)
    }
}
