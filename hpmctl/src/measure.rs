//! From a wished source and event names to something that measures: what `stat` and `record` have in common.

use anyhow::{Result, bail};
use clap::ValueEnum;
use libhpm::event::{self, Event};
use libhpm::machine::pmu_name;
use libhpm::refusal::{Reason, Refusal};
use libhpm::session::{Options, Session};
use libhpm::sideband::{self, Sideband};
use libhpm::source::perf::{self, PerfName, PerfOptions, PerfSource};
use libhpm::sys::device::Driver;
use libhpm::{Error, Result as HpmResult};

use crate::workload::Workload;

/// Values of `--source`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum SourceArg {
    /// The hpm module where it can be used, else perf_event
    #[default]
    Auto,
    /// The hpm module
    Driver,
    /// The kernel's perf_event: the PMU's counters if it has a driver for them, else what software counts
    Perf,
}

/// The source that was chosen.
pub(crate) enum Chosen {
    /// The module, and one line that says so.
    Driver { line: String },
    /// The kernel's perf_event.
    Perf(PerfFacts),
}

/// What perf_event can do here.
pub(crate) struct PerfFacts {
    /// Which source this is, and why, in one line.
    pub(crate) line: String,
    /// Why the module is not used.
    pub(crate) why: String,
    /// Hardware counters can be used.
    pub(crate) hardware: bool,
}

/// Chooses the source: the module if it can be used.
///
/// # Errors
/// When what was asked for cannot be used, or nothing can.
pub(crate) fn choose(source: SourceArg) -> Result<Chosen> {
    let driver = match source {
        SourceArg::Perf => Err("--source perf was asked for".to_owned()),
        SourceArg::Driver => Ok(usable_pmu()?),
        SourceArg::Auto => usable_pmu().map_err(|error| error.to_string()),
    };
    let why = match driver {
        Ok(pmu) => return Ok(Chosen::Driver { line: format!("the hpm module, on the {pmu} PMU") }),
        Err(why) => why,
    };
    if let Err(refusal) = perf::software() {
        bail!("nothing can measure here: {why}; and {refusal}");
    }
    let (line, hardware) = match perf::hardware() {
        Ok(()) => (format!("the kernel's perf_event with the PMU's counters, because {why}"), true),
        Err(refusal) => (
            format!("the kernel's perf_event with software events only, because {why}; and {refusal}"),
            false,
        ),
    };
    Ok(Chosen::Perf(PerfFacts { line, why, hardware }))
}

impl PerfFacts {
    /// Understands event names.
    ///
    /// # Errors
    /// When perf_event has no such events; the module may have.
    pub(crate) fn parse(&self, lists: &[String]) -> Result<Vec<PerfName>> {
        match perf::parse(lists) {
            Ok(names) => Ok(names),
            Err(error) => {
                bail!("{error}; other events need the hpm module, which is not used here: {}", self.why)
            }
        }
    }
}

/// Opens events on perf_event. What may not be measured in kernel mode is measured in user mode alone, as the events' names
/// then say.
///
/// # Errors
/// Those of [`PerfSource::open`], with why the module is not used.
pub(crate) fn open_perf(
    facts: &PerfFacts,
    events: &[PerfName],
    options: impl Fn(Vec<PerfName>) -> PerfOptions,
) -> Result<PerfSource> {
    let opened = match PerfSource::open(options(events.to_vec())) {
        Err(Error::PerfEvent { reason, .. })
            if reason.kind() == std::io::ErrorKind::PermissionDenied
                && events.iter().any(|event| event.kernel) =>
        {
            PerfSource::open(options(events.iter().cloned().map(PerfName::user_only).collect()))
        }
        result => result,
    };
    match opened {
        Err(error @ Error::PerfEvent { .. }) => {
            bail!("{error}; the hpm module is not used here: {}", facts.why)
        }
        result => Ok(result?),
    }
}

/// Events encoded for the PMU of the loaded driver.
///
/// # Errors
/// When the driver cannot be used, or an event is unknown to its PMU.
pub(crate) fn parse_events(lists: &[String]) -> Result<Vec<Event>> {
    let pmu = usable_pmu()?;
    let names = lists.iter().flat_map(|list| event::split_list(list));
    Ok(names.map(|name| event::parse(name, &pmu)).collect::<HpmResult<_>>()?)
}

/// The event that has to be counted beside these, or some of these never occur.
///
/// # Errors
/// When the driver cannot be used.
pub(crate) fn companion(events: &[Event]) -> Result<Option<Event>> {
    let pmu = usable_pmu()?;
    Ok(events.iter().find_map(|event| event::companion(event, &pmu)))
}

/// Those of these events that the PMU of the loaded driver has, for events that nobody asked for.
///
/// # Errors
/// When the driver cannot be used.
pub(crate) fn events_at_hand(names: &[&str]) -> Result<Vec<Event>> {
    let pmu = usable_pmu()?;
    Ok(names.iter().filter_map(|name| event::parse(name, &pmu).ok()).collect())
}

/// What reports a workload's mappings and threads, and the processes that were there before.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn sideband(workload: &Workload) -> Result<(Sideband, Vec<u32>)> {
    Ok(match workload.process()? {
        None => (Sideband::of_system()?, sideband::processes()),
        Some(pid) if workload.is_program() => (Sideband::of_child(pid)?, vec![]),
        Some(pid) => (Sideband::of_process(pid)?, vec![pid as u32]),
    })
}

/// The name of the PMU that the loaded driver can use.
///
/// # Errors
/// When there is no driver, or it can use none.
pub(crate) fn usable_pmu() -> Result<String> {
    let (_, info) = Driver::open_checked()?;
    match Refusal::of_machine(&info) {
        Some(refusal) => Err(Error::Refused(Box::new(refusal)).into()),
        None => Ok(pmu_name(&info)),
    }
}

/// A session for these events, as `options` wants them. What may not be measured in kernel mode is measured in user mode
/// alone, as the events' names then say.
///
/// # Errors
/// Those of [`Session::open`].
pub(crate) fn open(
    mut events: Vec<Event>,
    options: impl Fn(&[Event]) -> Options,
) -> HpmResult<(Session, Vec<Event>)> {
    match Session::open(&options(&events)) {
        Err(error)
            if refused_for(&error, Reason::NeedKernelRight) && events.iter().any(Event::any_privilege) =>
        {
            let user_only = |event: Event| if event.any_privilege() { event.user_only() } else { event };
            events = events.into_iter().map(user_only).collect();
            Ok((Session::open(&options(&events))?, events))
        }
        result => Ok((result?, events)),
    }
}

/// Whether the driver refused for this reason.
pub(crate) fn refused_for(error: &Error, reason: Reason) -> bool {
    matches!(error, Error::Refused(refusal) if refusal.reason() == Some(reason))
}

/// TSC ticks as nanoseconds; 0 for a source that does not tell the frequency.
pub(crate) fn tsc_to_ns(ticks: u64, tsc_khz: u64) -> u64 {
    let ns = (u128::from(ticks) * 1_000_000).checked_div(u128::from(tsc_khz));
    ns.unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_a_3_ghz_clock() {
        assert_eq!(tsc_to_ns(3_000_000_000, 3_000_000), 1_000_000_000);
        assert_eq!(tsc_to_ns(u64::MAX, 4_000_000), u64::MAX / 4);
        assert_eq!(tsc_to_ns(1, 0), 0);
    }
}
