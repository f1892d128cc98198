//! Sessions on the driver: configure, start, read quanta and their samples without copying, stop, sum.
//!
//! ```no_run
//! use libhpm::{event, session::{Options, Session, Target}};
//! # fn main() -> libhpm::Result<()> {
//! let misses = event::parse("l1d-load-miss", "skylake")?;
//! let mut session = Session::open(&Options::new(Target::Process(1234)).sample(misses, 10_000))?;
//! session.start()?;
//! session.wait(&[], std::time::Duration::from_millis(100))?;
//! let batch = session.batch()?;
//! for quantum in batch.quanta() {
//!     for sample in quantum?.samples()? {
//!         println!("{:#x}", sample?.record.ip);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod access;
pub mod batch;
pub mod counters;
pub mod options;
pub mod quantum;

#[cfg(test)]
pub(crate) mod fake;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::Duration;

use hpm_abi::Reason;
pub use hpm_abi::{
    BranchFilter, CounterReading, EventMode, EventSpec, Info, Marker, QuantumFlags, RECORD_FORMAT_IBS,
    SessionConfig, SessionFlags, Totals,
};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use self::access::Access;
pub use self::batch::Batch;
pub use self::counters::{OwnCounters, ThreadCounters};
pub use self::options::{Branches, Options, Stack, Target, Windows};
pub use self::quantum::{Quantum, Sample};

use crate::event::{CoreType, Event, type_in_hybrid};
use crate::machine::{Holders, pmu_name};
use crate::refusal::Refusal;
pub use crate::sys::counters::Counted;
use crate::sys::device::{Command, Denied, Device, Driver, ReportStream};
use crate::sys::rings::Rings;
use crate::{Error, Result};

/// A configured session. Dropping it ends the measurement.
#[derive(Debug)]
pub struct Session<D: Device = Driver> {
    device: D,
    info: Info,
    config: SessionConfig,
    events: Vec<Event>,
    rings: Rings,
}

impl Session {
    /// Opens the driver and configures a session on it.
    ///
    /// # Errors
    /// Those of [`Driver::open_checked`] and [`Session::configure`].
    pub fn open(options: &Options) -> Result<Self> {
        Self::configure(Driver::open_checked()?.0, options)
    }

    /// Has the driver report what else happens in the process and those that it makes, once per session.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub(crate) fn follow(&self) -> Result<ReportStream> {
        self.device.follow().map_err(|denied| refuse("follow the process", denied, &self.events))
    }
}

impl<D: Device> Session<D> {
    /// Configures a session on an open device and maps its areas.
    ///
    /// # Errors
    /// [`Error::Refused`] with the driver's reason, [`Error::Windows`], or [`Error::Io`] when an area cannot be mapped or the control
    /// group's directory not opened.
    pub fn configure(device: D, options: &Options) -> Result<Self> {
        options.check()?;
        let events = options.events();
        let info = device.info().map_err(|denied| refuse("say what it is", denied, &events))?;
        let access = Access::of(options.target())?;
        let mut config = options.config_for(&info);
        access.name_in(&mut config);
        configure(&device, &pmu_name(&info), &mut config).map_err(|denied| {
            let refusal = refusal("configure a session", denied, &events);
            Error::Refused(Box::new(Refusal { windows: options.samples_in_windows(), ..refusal }))
        })?;
        let rings = Rings::map(device.memory(), &info, &config)?;
        Ok(Self { device, info, config, events, rings })
    }

    /// The driver and its PMU.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// The events that it measures, in the order of all that is counted ([`Options::events`]).
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// What the driver was asked for, with the segments that it made; its descriptors are closed by now.
    #[must_use]
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// Begins to monitor, or with [`Options::start_on_exec`] to wait for the target's execve.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn start(&self) -> Result<()> {
        self.command(Command::Start, "start the session")
    }

    /// Ends monitoring: afterwards every quantum is published and no CPU counts for the session.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn stop(&self) -> Result<()> {
        self.command(Command::Stop, "stop the session")
    }

    /// Publishes what the CPUs hold of the running quanta.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn flush(&self) -> Result<()> {
        self.command(Command::Flush, "flush the session")
    }

    /// Takes no samples, or takes them again, from each CPU's next quantum on; counters count on. Quanta without samples for that
    /// reason have [`QuantumFlags::PAUSED`].
    pub fn pause_samples(&self, paused: bool) {
        self.rings.pause_samples(paused);
    }

    /// Wishes for so many samples a second of each event whose period adapts ([`Options::rate`]), instead of what was asked for when the
    /// session was made; 0 for that again. The driver reads it when it looks at rates, some 50 times a second, and keeps to its own limits.
    pub fn wish_rate(&self, per_second: u64) {
        self.rings.wish_rate(per_second);
    }

    /// Sums since the start; exact once stopped.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn totals(&self) -> Result<Totals> {
        self.device.totals().map_err(|denied| refuse("sum up the session", denied, &self.events))
    }

    /// Whether the target has exited, or become something the session may not see.
    #[must_use]
    pub fn target_gone(&self) -> bool {
        self.rings.target_gone()
    }

    /// Whether nothing will be measured any more: the target has gone, or the driver has given the session up
    /// ([`Session::check`] says why).
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.target_gone() || self.rings.gave_up() != 0
    }

    /// Whether the driver still stands by the session. What was published before it gave up is good; the totals may
    /// contain what somebody else let the counters count.
    ///
    /// # Errors
    /// [`Error::Refused`] with the reason why it has given up.
    pub fn check(&self) -> Result<()> {
        match self.rings.gave_up() {
            0 => Ok(()),
            reason => {
                let denied = Denied { errno: libc::EBUSY, reason, detail: [0; 2] };
                Err(refuse("go on with the session", denied, &self.events))
            }
        }
    }

    /// Waits until the driver tells of published quanta ([`Options::wake_within`]), one of `others` becomes readable, the time has passed or a signal arrives; says
    /// which of `others` are readable.
    ///
    /// # Errors
    /// [`Error::Io`] when poll fails.
    pub fn wait(&self, others: &[BorrowedFd<'_>], timeout: Duration) -> Result<Vec<bool>> {
        let mut fds: Vec<PollFd<'_>> = std::iter::once(self.device.as_fd())
            .chain(others.iter().copied())
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        // Rounded up, so that a wait of less than 1 ms is not a busy loop.
        let timeout =
            PollTimeout::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(_) => Ok(fds[1..].iter().map(|fd| fd.any().unwrap_or(false)).collect()),
            Err(Errno::EINTR) => Ok(vec![false; others.len()]),
            Err(errno) => Err(Error::io("wait for the driver")(io::Error::from(errno))),
        }
    }

    /// Borrows what is published now on every CPU. Dropping the batch gives all of it back to the driver.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the driver's numbers contradict the interface.
    pub fn batch(&mut self) -> Result<Batch<'_>> {
        Batch::new(&mut self.rings)
    }

    /// Takes the markers that are published now, CPU after CPU, on each CPU in the order in which the driver found them.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the driver's numbers contradict the interface.
    pub fn markers(&mut self) -> Result<Vec<Marker>> {
        let mut markers = Vec::new();
        (0..self.rings.cpus()).try_for_each(|cpu| self.rings.take_markers(cpu, &mut markers))?;
        Ok(markers)
    }

    fn command(&self, command: Command, doing: &'static str) -> Result<()> {
        self.device.command(command).map_err(|denied| refuse(doing, denied, &self.events))
    }
}

/// Configures a session on this PMU, with less memory where there is not as much.
fn configure<D: Device>(device: &D, pmu: &str, config: &mut SessionConfig) -> Result<(), Denied> {
    let mut wanted = *config;
    loop {
        let Err(denied) = configure_for_cores(device, pmu, config) else { return Ok(()) };
        let memory =
            [Reason::NoMemory, Reason::MemoryLimit, Reason::MemoryCeiling].map(|reason| reason as u32);
        let less = options::with_less_memory(&wanted).filter(|_| memory.contains(&denied.reason));
        wanted = less.ok_or(denied)?;
        *config = wanted;
    }
}

/// Configures a session whose events are for the cores that there are. Where cores of one type only of a hybrid processor are online, its
/// PMU's name does not tell that it is hybrid, and events of that name do not say for which cores they are. The driver knows that cores of
/// another type may come online, and asks for it: they are for these.
fn configure_for_cores<D: Device>(device: &D, pmu: &str, config: &mut SessionConfig) -> Result<(), Denied> {
    let mut wanted = *config;
    loop {
        let Err(denied) = device.configure(config) else { return Ok(()) };
        let untyped = usize::try_from(denied.detail[0])
            .ok()
            .filter(|_| denied.reason == Reason::CoreTypeMissing as u32)
            .and_then(|index| wanted.events.get_mut(index))
            .filter(|event| event.core_type == CoreType::Any as u8);
        let (Some(event), of_cores @ (CoreType::Core | CoreType::Atom)) = (untyped, type_in_hybrid(pmu))
        else {
            return Err(denied);
        };
        event.core_type = of_cores as u8;
        *config = wanted;
    }
}

/// A denied request as an error; looks up the likely holders when counters are taken.
fn refuse(doing: &'static str, denied: Denied, events: &[Event]) -> Error {
    Error::Refused(Box::new(refusal(doing, denied, events)))
}

fn refusal(doing: &'static str, denied: Denied, events: &[Event]) -> Refusal {
    // The kernel's table of what is reserved does not have all counters: who holds those is only seen to count.
    let taken = matches!(
        Reason::from_number(denied.reason),
        Some(Reason::CountersReserved | Reason::CountersRunning)
    );
    let holders = if taken { Holders::find(Path::new("/")) } else { Holders::default() };
    let Denied { errno, reason, detail } = denied;
    let events = events.iter().map(|event| event.name.clone()).collect();
    Refusal { doing, errno, reason, detail, events, windows: false, holders }
}
