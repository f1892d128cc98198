//! Windows (`EventSpec::WINDOWED`): an event is sampled where its period passes within so many occurrences of another one.
//!
//! Hardware does it (auto counter reload, CPUID.23H.2): a counter's CFG_B has a bit for each counter whose overflow sets it to the value
//! in its CFG_C. One counter measures windows: it overflows at the end of each and sets back itself, to the next, and the sampling
//! counters, to their periods. Neither tells a count then, so that both events are counted by a second counter each.
//!
//! How far a window has come is no thread's to keep: one begins where a thread comes to a CPU (unless it alone was measured there and one
//! event alone is sampled), and where it is sampled again after a time in which nothing could be written. What would have been sampled
//! meanwhile is not known either and not counted as lost.

use core::mem::offset_of;

use super::abi::{EventMode, EventSpec, Reason, SessionConfig, SessionFlags};
use super::allocate::{Assignment, Counter, CounterSet};
use super::cfg_c;
use super::config::event_field;
use super::events::{Event, PERIOD_MIN};
use super::period::Grid;
use super::{Pmu, Refusal};

/// Least period of an event that is sampled in windows. Ceilings bound what its records cost, as ever; a floor like
/// [`PERIOD_MIN`] would rule out what windows are for, as ten misses in a thousand instructions.
const WINDOWED_MIN: u64 = 10;

/// The counter that measures a session's windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) counter: Counter,
    /// Events from one window to the next.
    pub(super) length: u64,
    /// The counters that it sets back: itself and those that sample.
    pub(super) reloaded: CounterSet,
}

impl Window {
    /// CFG_B of a counter.
    pub(super) fn cfg_b(&self, of: Counter) -> u64 {
        u64::from(self.reloaded.contains(of)) << self.counter.bit()
    }
}

/// Whether events are sampled in windows of what this one counts.
pub(super) fn is_window(spec: &EventSpec) -> bool {
    spec.mode == EventMode::Count as u8 && spec.period != 0
}

/// Whether this event is sampled in windows.
pub(super) const fn is_windowed(spec: &EventSpec) -> bool {
    spec.flags & EventSpec::WINDOWED != 0
}

/// The periods of an event that is sampled in windows, of those that it could have without.
pub(super) fn grid(plain: Grid) -> Grid {
    Grid { least: WINDOWED_MIN, most: plain.most.min(cfg_c::PERIOD_MAX), ..plain }
}

/// Checks what a request says of windows, whatever the PMU is.
///
/// # Errors
/// [`Reason::Field`], or [`Reason::PeriodTooSmall`] for the length of a window.
pub(super) fn check(request: &SessionConfig) -> Result<(), Refusal> {
    let events = || request.events.iter().enumerate().take(request.event_count as usize);
    let windowed = events().any(|(_, event)| is_windowed(event));
    if windowed && request.flags & SessionFlags::MULTIPLEX != 0 {
        return Err(Refusal::field(offset_of!(SessionConfig, flags)));
    }
    for (index, event) in events() {
        let at = |inside: usize| Refusal::field(event_field(index, inside));
        if is_windowed(event) {
            if event.mode != EventMode::Precise as u8 || event.flags != EventSpec::WINDOWED {
                return Err(at(offset_of!(EventSpec, flags)));
            }
            if event.rate != 0 {
                return Err(at(offset_of!(EventSpec, rate)));
            }
        }
        if is_window(event) {
            if !windowed || event.period > cfg_c::PERIOD_MAX {
                return Err(at(offset_of!(EventSpec, period)));
            }
            if event.period < PERIOD_MIN {
                return Err(Refusal::new(Reason::PeriodTooSmall, [index as u64, PERIOD_MIN]));
            }
        }
    }
    Ok(())
}

/// Leaves to the events that count on this PMU the counters that can be set back, and to the one that measures windows those that can do
/// it. Without an event that is sampled in windows here nothing measures any.
///
/// # Errors
/// [`Reason::NoReload`]; [`Reason::Field`] where no event measures windows, or several do.
pub(super) fn choose(pmu: &Pmu, specs: &[EventSpec], events: &mut [Event]) -> Result<(), Refusal> {
    let none = |index: usize| Refusal::new(Reason::NoReload, [index as u64, 0]);
    let mut first = None;
    for (index, event) in events.iter_mut().enumerate().filter(|(_, event)| event.windowed) {
        first.get_or_insert(index);
        if let Some(how) = &mut event.sampling {
            how.counters = how.counters.intersection(pmu.reload.reloaded);
            // What only records count cannot be counted beside them.
            if how.counters.is_empty() || event.counters.is_empty() {
                return Err(none(index));
            }
        }
    }
    let Some(first) = first else { return Ok(()) };
    let mut window = None;
    let measuring = events.iter_mut().zip(specs).enumerate();
    for (index, (event, _)) in measuring.filter(|(_, (event, spec))| is_window(spec) && !event.is_none()) {
        if window.replace(index).is_some() {
            return Err(Refusal::field(event_field(index, offset_of!(EventSpec, period))));
        }
        event.window = event.counters.intersection(pmu.reload.windows);
        if event.window.is_empty() {
            return Err(none(index));
        }
    }
    match window {
        Some(_) => Ok(()),
        None => Err(Refusal::field(event_field(first, offset_of!(EventSpec, flags)))),
    }
}

/// The counter that measures windows, if one of these assignments has one.
pub(super) fn of(specs: &[EventSpec], events: &[Event], assignments: &[Assignment]) -> Option<Window> {
    let (spec, counter) = specs.iter().zip(assignments).find_map(|(spec, has)| Some((spec, has.window?)))?;
    let windowed = events.iter().zip(assignments).filter(|(event, _)| event.windowed);
    let reloaded = windowed.filter_map(|(_, has)| has.sampling).map(CounterSet::one);
    let reloaded = reloaded.fold(CounterSet::one(counter), CounterSet::union);
    Some(Window { counter, length: spec.period, reloaded })
}
