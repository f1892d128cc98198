//! Choosing the source of a measurement: the module where it can be used, else perf_event; which it is, and why.
//!
//! Everything that measures asks here, so that `hpmctl` and `hpmtop` make the same choice and say the same of it.

use std::fmt;
use std::str::FromStr;

use super::perf::{self, PerfName, PerfOptions, PerfSource};
use crate::event::{self, Event};
use crate::machine::pmu_name;
use crate::refusal::{Reason, Refusal};
use crate::session::{Options, Session, Target};
use crate::sideband::{self, Sideband};
use crate::sys::device::Driver;
use crate::{Error, Result};

/// Which source is wished for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// The module where it can be used, else perf_event.
    #[default]
    Best,
    /// The module, or nothing.
    Driver,
    /// The kernel's perf_event.
    Perf,
}

impl Wish {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Best, Self::Driver, Self::Perf];

    /// Its name on a command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Best => "auto",
            Self::Driver => "driver",
            Self::Perf => "perf",
        }
    }

    /// What it means, for the help of a command line.
    #[must_use]
    pub fn help(self) -> &'static str {
        match self {
            Self::Best => "The hpm module where it can be used, else perf_event",
            Self::Driver => "The hpm module",
            Self::Perf => {
                "The kernel's perf_event: the PMU's counters if it has a driver for them, else what software counts"
            }
        }
    }
}

/// By its name.
impl FromStr for Wish {
    type Err = String;

    fn from_str(name: &str) -> std::result::Result<Self, String> {
        let found = Self::ALL.into_iter().find(|wish| wish.name() == name);
        found.ok_or_else(|| format!("`{name}` is no source: name auto, driver or perf"))
    }
}

/// Its name, so that it can be a default.
impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The source that was chosen.
#[derive(Clone, Debug)]
pub enum Chosen {
    /// The module.
    Driver {
        /// One line that says so.
        line: String,
    },
    /// The kernel's perf_event.
    Perf(PerfFacts),
}

/// What perf_event can do here.
#[derive(Clone, Debug)]
pub struct PerfFacts {
    /// Which source this is, and why, in one line.
    pub line: String,
    /// Why the module is not used.
    pub why: String,
    /// Hardware counters can be used.
    pub hardware: bool,
}

/// Chooses the source: the module if it can be used.
///
/// # Errors
/// When what was wished for cannot be used, or [`Error::NothingMeasures`].
pub fn choose(wish: Wish) -> Result<Chosen> {
    let driver = match wish {
        Wish::Perf => Err("--source perf was asked for".to_owned()),
        Wish::Driver => Ok(usable_pmu()?),
        Wish::Best => usable_pmu().map_err(|error| error.to_string()),
    };
    let why = match driver {
        Ok(pmu) => return Ok(Chosen::Driver { line: format!("the hpm module, on the {pmu} PMU") }),
        Err(why) => why,
    };
    if let Err(refusal) = perf::software() {
        return Err(Error::NothingMeasures { driver: why, perf: refusal.to_string() });
    }
    let (line, hardware) = match perf::hardware() {
        Ok(()) => (format!("the kernel's perf_event with the PMU's counters, because {why}"), true),
        Err(refusal) => (
            format!(
                "the kernel's perf_event with software events only, because {why}; and of hardware events {refusal}"
            ),
            false,
        ),
    };
    Ok(Chosen::Perf(PerfFacts { line, why, hardware }))
}

impl PerfFacts {
    /// Understands event names.
    ///
    /// # Errors
    /// [`Error::WithoutModule`] when perf_event has no such events; the module may have.
    pub fn parse(&self, lists: &[String]) -> Result<Vec<PerfName>> {
        perf::parse(lists).map_err(|error| {
            // For which the module would be of no help.
            let is_none = matches!(&error, Error::UnknownEvent { name, .. } if name.is_empty());
            if is_none || matches!(&error, Error::Tracepoint(_)) {
                return error;
            }
            let sentence = error.to_string();
            let but = if sentence.ends_with('?') { " Other" } else { "; other" };
            self.without_module(format!("{sentence}{but} events need the hpm module, which is not used here"))
        })
    }

    /// Opens events on perf_event. What may not be measured in kernel mode is measured in user mode alone, as the events'
    /// names then say.
    ///
    /// # Errors
    /// Those of [`PerfSource::open`]; [`Error::WithoutModule`] for one of perf_event's.
    pub fn open(
        &self,
        events: &[PerfName],
        options: impl Fn(Vec<PerfName>) -> PerfOptions,
    ) -> Result<PerfSource> {
        let opened = match PerfSource::open(options(events.to_vec())) {
            Err(Error::PerfEvent { reason, .. })
                if reason.kind() == std::io::ErrorKind::PermissionDenied
                    && events.iter().any(|event| event.kernel) =>
            {
                PerfSource::open(options(events.to_vec()).user_only())
            }
            result => result,
        };
        opened.map_err(|error| match error {
            Error::PerfEvent { .. } => {
                self.without_module(format!("{error}; the hpm module is not used here"))
            }
            other => other,
        })
    }

    fn without_module(&self, problem: String) -> Error {
        Error::WithoutModule { problem, why: self.why.clone() }
    }
}

/// Events encoded for the PMU of the loaded driver, each for every type of its cores ([`event::parse_each`]).
///
/// # Errors
/// When the driver cannot be used, or an event is unknown to its PMU.
pub fn parse_events(lists: &[String]) -> Result<Vec<Event>> {
    let pmu = usable_pmu()?;
    let names = lists.iter().flat_map(|list| event::split_list(list));
    let events = names.map(|name| event::parse_each(name, &pmu)).collect::<Result<Vec<_>>>()?;
    Ok(events.concat())
}

/// The event that has to be counted beside these, or some of these never occur.
///
/// # Errors
/// When the driver cannot be used.
pub fn companion(events: &[Event]) -> Result<Option<Event>> {
    let pmu = usable_pmu()?;
    Ok(events.iter().find_map(|event| event::companion(event, &pmu)))
}

/// Those of these events that the PMU of the loaded driver has, for events that nobody asked for, as [`parse_events`] has them.
///
/// # Errors
/// When the driver cannot be used.
pub fn events_at_hand(names: &[&str]) -> Result<Vec<Event>> {
    let pmu = usable_pmu()?;
    Ok(names.iter().filter_map(|name| event::parse_each(name, &pmu).ok()).flatten().collect())
}

/// The first of these names of which the PMU of the loaded driver has an event that is `usable`, on every type of its cores that has one;
/// none where there is no such name.
///
/// # Errors
/// When the driver cannot be used.
pub fn first_at_hand(names: &[&str], usable: impl Fn(&Event) -> bool) -> Result<Vec<Event>> {
    let pmu = usable_pmu()?;
    let mut each = names.iter().filter_map(|name| event::parse_each(name, &pmu).ok());
    Ok(each.find(|events| events.iter().all(&usable)).unwrap_or_default())
}

/// What reports the mappings and threads of whom a session measures, and the processes that were there before. `process` is the
/// process that is measured, whole or in one of its threads, if it is one; `is_program` says that it has yet to be executed. Of a process
/// the driver reports where perf_event refuses: there the distribution keeps it from everybody, and who may open the device may do this.
///
/// # Errors
/// When the kernel refuses, and of a process the driver as well.
pub fn sideband(session: &Session, process: Option<i32>, is_program: bool) -> Result<(Sideband, Vec<u32>)> {
    let Some(pid) = process else { return Ok((Sideband::of_system()?, sideband::processes())) };
    let by_perf = if is_program { Sideband::of_child(pid) } else { Sideband::of_process(pid) };
    let sideband = match by_perf {
        Err(refused @ Error::Sideband { .. }) => match Sideband::of_session(session) {
            // What can be helped is why perf_event refuses.
            Err(error) if refused_for(&error, Reason::NoReports) => Err(refused),
            other => other,
        },
        other => other,
    }?;
    let present = if is_program { vec![] } else { vec![pid as u32] };
    Ok((sideband, present))
}

/// The process of a target: itself, or that of the thread; `None` for a target that is not one process.
///
/// # Errors
/// [`Error::NoProcess`] when the thread has ended.
pub fn process_of(target: &Target) -> Result<Option<i32>> {
    match target {
        Target::Process(pid) => Ok(Some(*pid)),
        Target::Thread(tid) => {
            let status = std::fs::read_to_string(format!("/proc/{tid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
            let pid = line.and_then(|number| number.trim().parse().ok());
            pid.map(Some).ok_or(Error::NoProcess { pid: *tid })
        }
        Target::Cgroup(_) | Target::System | Target::Cpu(_) => Ok(None),
    }
}

/// The name of the PMU that the loaded driver can use.
///
/// # Errors
/// When there is no driver, or it can use none.
pub fn usable_pmu() -> Result<String> {
    let (_, info) = Driver::open_checked()?;
    match Refusal::of_machine(&info) {
        Some(refusal) => Err(Error::Refused(Box::new(refusal))),
        None => Ok(pmu_name(&info)),
    }
}

/// A session as the options want it. What may not be measured in kernel mode is measured in user mode alone, as the names of its
/// events ([`Session::events`]) then say.
///
/// # Errors
/// Those of [`Session::open`].
pub fn open_session(options: Options) -> Result<Session> {
    opened(options, Session::open)
}

/// What `open` makes of the options, or of those of user mode alone.
fn opened<T>(options: Options, open: impl Fn(&Options) -> Result<T>) -> Result<T> {
    match open(&options) {
        Err(error)
            if refused_for(&error, Reason::NeedKernelRight)
                && options.events().iter().any(Event::any_privilege) =>
        {
            open(&options.user_only())
        }
        result => result,
    }
}

/// Whether the driver refused for this reason.
#[must_use]
pub fn refused_for(error: &Error, reason: Reason) -> bool {
    matches!(error, Error::Refused(refusal) if refusal.reason() == Some(reason))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::parse;
    use crate::machine::Holders;
    use crate::session::Windows;

    /// A driver for a user who may not measure the kernel; the names of what it would measure.
    fn unprivileged(options: &Options) -> Result<Vec<String>> {
        if !options.events().iter().any(|event| event.kernel) {
            return Ok(options.names());
        }
        Err(Error::Refused(Box::new(Refusal {
            doing: "configure a session",
            errno: libc::EACCES,
            reason: Reason::NeedKernelRight as u32,
            detail: [0; 2],
            events: options.names(),
            windows: false,
            holders: Holders::default(),
        })))
    }

    #[test]
    fn who_may_not_measure_the_kernel_measures_user_mode_also_in_windows() {
        let event = |name: &str| parse(name, "skymont").unwrap();
        let windows = |name| Some(Windows { events: vec![event(name)], length: 1000 });
        let sampled = || Options::new(Target::System).sample(event("branch-miss"), 100);
        let opened = |options| opened(options, unprivileged).map_err(|error| error.to_string());
        let both = ["branch-miss:u", "instructions:u"].map(str::to_owned);
        for name in ["instructions", "instructions:u"] {
            assert_eq!(opened(sampled().windows(windows(name))), Ok(both.to_vec()));
        }
        let counted = sampled().count(event("instructions"));
        assert_eq!(opened(counted.windows(windows("instructions"))), Ok(both.to_vec()));
        let of_user = Options::new(Target::System).sample(event("branch-miss:u"), 100);
        assert_eq!(opened(of_user.windows(windows("instructions"))), Ok(both.to_vec()), "the window alone");
        let of_kernel = opened(sampled().windows(windows("instructions:k"))).unwrap_err();
        assert!(of_kernel.starts_with("events in kernel mode may not be measured"), "{of_kernel}");
    }
}
