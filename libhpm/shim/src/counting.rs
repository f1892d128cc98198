//! Events that are read at each entry and exit.

use libhpm::call_log::{Config, Counting, Encoded};
use libhpm::session::{Options, OwnCounters, Session, Target};
use libhpm::source::perf::{self, PerfName};
use libhpm::sys::device::Driver;
use libhpm::sys::perf::{Attach, Attributes, Inherit, PerfEvent, Sampling};
use libhpm::{Error, Result};

/// Where a process's counts come from.
pub(crate) enum Source {
    /// Nothing is counted.
    None,
    /// The hpm module: a session that is never closed, because threads read by it up to their end.
    Driver(&'static Session),
    /// perf_event.
    Perf(Vec<PerfName>),
}

/// What a thread reads.
pub(crate) enum ThreadCounts {
    None,
    Driver(OwnCounters<'static, Driver>),
    Perf(Vec<PerfEvent>),
}

/// The module in words.
pub(crate) const DRIVER: &str = "the hpm module's self-read counters";

impl Source {
    /// A source for these events, which are those of the configuration, and in words what it is.
    ///
    /// # Errors
    /// Why none has these events, in words.
    pub(crate) fn open(events: &[String], config: &Config) -> std::result::Result<(Self, String), String> {
        let driver = || {
            let session = driver(config.encoded.as_deref().map_err(String::clone)?)?;
            Ok((Self::Driver(session), DRIVER.to_owned()))
        };
        let perf = |why: &str| {
            let names = perf::parse(events).map_err(|error| error.to_string())?;
            let names = match open(&names) {
                Err(_) => names.into_iter().map(|name| name.user_only(false)).collect(),
                Ok(_) => names,
            };
            open(&names).map_err(|error| error.to_string())?;
            Ok((Self::Perf(names), format!("perf_event, by a system call for each event{why}")))
        };
        match config.counting {
            _ if events.is_empty() => Ok((Self::None, "nothing is counted".to_owned())),
            Counting::Driver => driver(),
            Counting::Perf => perf(""),
            Counting::Auto => driver().or_else(|error| perf(&format!(", because {error}"))),
        }
    }

    /// Names of what is counted.
    pub(crate) fn names(&self, asked: &[String]) -> Vec<String> {
        match self {
            Self::None => vec![],
            Self::Driver(..) => asked.to_vec(),
            Self::Perf(names) => names.iter().map(|name| name.name.clone()).collect(),
        }
    }

    /// What the calling thread reads.
    ///
    /// # Errors
    /// When the source refuses.
    pub(crate) fn of_thread(&self) -> Result<ThreadCounts> {
        Ok(match self {
            Self::None => ThreadCounts::None,
            Self::Driver(session) => ThreadCounts::Driver(session.own_counters()?),
            Self::Perf(names) => ThreadCounts::Perf(open(names)?),
        })
    }
}

/// A session that counts these events in the calling process.
///
/// # Errors
/// Why it does not, in words.
pub(crate) fn driver(events: &[Encoded]) -> std::result::Result<&'static Session, String> {
    let process = Target::Process(std::process::id() as i32);
    let options = Options::new(process).counter_pages(true).inherit(false);
    let options = events.iter().fold(options, |options, event| options.count(event.into()));
    let open = || -> Result<Session> {
        let (device, _) = Driver::open_checked()?;
        let session = Session::configure(device, &options)?;
        session.start()?;
        Ok(session)
    };
    let session = open().map_err(|error| error.to_string())?;
    Ok(Box::leak(Box::new(session)))
}

fn open(names: &[PerfName]) -> Result<Vec<PerfEvent>> {
    let one = |name: &PerfName| {
        let attributes = Attributes {
            event: name.id,
            sampling: Sampling::Never,
            sample_type: 0,
            stack_bytes: 0,
            user_chain: false,
            user: name.user,
            kernel: name.opens_kernel(false),
            inherit: Inherit::Nothing,
            disabled: false,
            sideband: false,
            switches: false,
        };
        let refused = |reason| Error::PerfEvent { event: name.name.clone(), reason };
        PerfEvent::open(&attributes, Attach::Thread(0), None, None).map_err(refused)
    };
    names.iter().map(one).collect()
}

impl ThreadCounts {
    /// Reads as many events as there are counts. What cannot be read (because the program closed a descriptor that it did not open) reads as before.
    #[inline]
    pub(crate) fn read(&self, counts: &mut [u64]) {
        match self {
            Self::None => {}
            Self::Driver(counters) => {
                let _ = counters.counts(0, counts);
            }
            Self::Perf(events) => {
                for (event, count) in events.iter().zip(counts) {
                    *count = event.read().map_or(*count, |reading| reading.count);
                }
            }
        }
    }
}
