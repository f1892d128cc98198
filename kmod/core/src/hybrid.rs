//! Processors with cores of several types: each type has a PMU and each session a program for it, and which events count on
//! which cores.
//!
//! A sampled event has the same place among the sampling counters in the programs of all types, so that a thread keeps its
//! positions when it moves between them.

use super::abi::{CoreType, EventMode, EventSpec, Reason, SessionConfig, SAMPLING_COUNTERS_MAX};
use super::pmu::architectural::{EVENTS, FIXED_EVENTS};
use super::{Pmu, Refusal};

/// Types of cores that one processor can have. On a processor that is not hybrid its only type is the first.
pub const CORE_TYPES: usize = 3;

/// The place of a type among [`CORE_TYPES`].
#[must_use]
pub const fn place(core_type: CoreType) -> usize {
    match core_type {
        CoreType::Any | CoreType::Core => 0,
        CoreType::Atom => 1,
        CoreType::LowPower => 2,
    }
}

/// The type with this number of [`super::abi::EventSpec::core_type`].
const fn from_number(number: u8) -> Option<CoreType> {
    match number {
        0 => Some(CoreType::Any),
        1 => Some(CoreType::Core),
        2 => Some(CoreType::Atom),
        3 => Some(CoreType::LowPower),
        _ => None,
    }
}

/// Whether the event at `index` counts on cores with this PMU. On a hybrid processor one that does not say for which cores
/// it is must be architectural: the same encoding means another thing on the others.
///
/// # Errors
/// [`Reason::CoreTypeMissing`]; [`Reason::NoCoreType`] for a type on a processor that is not hybrid, or one that does not
/// exist.
pub(super) fn counts_on(pmu: &Pmu, index: usize, encoding: u64, core_type: u8) -> Result<bool, Refusal> {
    let none = Refusal::new(Reason::NoCoreType, [index as u64, core_type.into()]);
    match (pmu.core_type, from_number(core_type).ok_or(none)?) {
        (CoreType::Any, CoreType::Any) => Ok(true),
        (CoreType::Any, _) => Err(none),
        (_, CoreType::Any) if is_architectural(encoding) => Ok(true),
        (_, CoreType::Any) => Err(Refusal::new(Reason::CoreTypeMissing, [index as u64, 0])),
        (of, wanted) => Ok(of == wanted),
    }
}

fn is_architectural(encoding: u64) -> bool {
    let fixed = FIXED_EVENTS.iter().flatten();
    EVENTS.iter().chain(fixed).any(|&event| u64::from(event) == encoding)
}

/// Checks that the machine has the cores that each event is for; `has` says it of a type.
///
/// # Errors
/// [`Reason::NoCoreType`].
pub fn check_types(request: &SessionConfig, has: impl Fn(CoreType) -> bool) -> Result<(), Refusal> {
    for (index, event) in request.events.iter().enumerate().take(request.event_count as usize) {
        let known = from_number(event.core_type);
        if !known.is_some_and(|core_type| core_type == CoreType::Any || has(core_type)) {
            return Err(Refusal::new(Reason::NoCoreType, [index as u64, event.core_type.into()]));
        }
    }
    Ok(())
}

/// The place of a sampled event among the sampling counters of every core type: its number among the sampled events.
pub(super) fn sampling_place(request: &SessionConfig, index: usize) -> usize {
    let counted = EventMode::Count as u8;
    request.events.iter().take(index).filter(|event| event.mode != counted).count()
}

/// The sampled events, on whatever core, in the order of their places.
pub(super) fn sampled(request: &SessionConfig) -> impl Iterator<Item = &EventSpec> {
    let counted = EventMode::Count as u8;
    let events = request.events.iter().take(request.event_count as usize);
    events.filter(move |event| event.mode != counted)
}

/// The period of every sampled event: what is asked for, before anything is adapted or drawn.
pub(super) fn periods(request: &SessionConfig) -> [u64; SAMPLING_COUNTERS_MAX] {
    let mut periods = [0; SAMPLING_COUNTERS_MAX];
    for (period, event) in periods.iter_mut().zip(sampled(request)) {
        *period = event.period;
    }
    periods
}
