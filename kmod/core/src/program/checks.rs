//! What a session's sampled events must have in common.

use core::mem::offset_of;

use super::super::abi::{EventMode, EventSpec, Reason, SessionConfig, SAMPLING_COUNTERS_MAX};
use super::super::allocate::Assignment;
use super::super::config::event_field;
use super::super::events::{Event, Way};
use super::super::hybrid;
use super::super::layout::{shows_overflows, RecordLayout, GPRS};
use super::super::lbr::Branches;
use super::super::pmu::Pebs;
use super::super::{Pmu, Refusal};

/// How events are sampled, if any is: all records of a session look alike.
pub(super) fn check_sampling(events: &[Event]) -> Result<Option<Way>, Refusal> {
    let mut first: Option<Way> = None;
    for (index, event) in events.iter().enumerate() {
        match (first, event.sampling) {
            (Some(first), Some(other)) if first != other.way => {
                return Err(Refusal::field(event_field(index, offset_of!(EventSpec, mode))));
            }
            (None, Some(how)) => first = Some(how.way),
            _ => {}
        }
    }
    Ok(first)
}

/// The layout of the records; stacks are found by registers in the record.
pub(super) fn checked_layout(
    pebs: &Pebs,
    config: &SessionConfig,
    branches: Option<&Branches>,
) -> Result<RecordLayout, Refusal> {
    let in_record = branches.filter(|branches| branches.in_records).map_or(0, |branches| branches.entries);
    let layout = RecordLayout::new(pebs, config.record_groups, in_record)?;
    if layout.frame.is_none() && (config.stack_bytes > 0 || config.frames > 0) {
        return Err(Refusal::new(Reason::RecordGroups, [GPRS, pebs.groups]));
    }
    Ok(layout)
}

/// Refuses groups of records where hardware does not write these into memory.
pub(super) fn check_groups(config: &SessionConfig, way: Option<Way>) -> Result<(), Refusal> {
    // On a hybrid processor those of another type of core may be precise.
    let precise = |event: &EventSpec| event.mode == EventMode::Precise as u8;
    let written =
        config.events.iter().take(config.event_count as usize).any(precise) && way != Some(Way::Ibs);
    if config.record_groups != 0 && !written {
        return Err(Refusal::new(Reason::RecordGroups, [config.record_groups.into(), 0]));
    }
    Ok(())
}

/// Refuses sampled events that a quantum has no place for.
pub(super) fn check_places(config: &SessionConfig, events: &[Event]) -> Result<(), Refusal> {
    let mut sampled = events.iter().enumerate().filter(|(_, event)| event.sampling.is_some());
    match sampled.find(|(index, _)| hybrid::sampling_place(config, *index) >= SAMPLING_COUNTERS_MAX) {
        Some((index, _)) => Err(Refusal::new(Reason::NoCounter, [index as u64, 0])),
        None => Ok(()),
    }
}

/// Refuses precise events whose records could not be told apart. Those of format 0 name no counter. Before format 3 a record has
/// IA32_PERF_GLOBAL_STATUS where later ones name their counters, which also shows counters that have overflowed and will write a
/// record of their own (SDM Vol. 3B 20.3.8.1.1): one that shows several is nobody's (Linux drops it, too), so that records do not
/// tell how often an event occurred that nothing else can count.
pub(super) fn check_told_apart(pebs: &Pebs, events: &[Event]) -> Result<(), Refusal> {
    let mut precise = events.iter().enumerate().filter(|(_, event)| event.sampling.is_some());
    let Some((second, _)) = precise.clone().nth(1) else { return Ok(()) };
    let uncounted = precise.find(|(_, event)| event.counters.is_empty());
    match (pebs.format, uncounted) {
        (0, _) => Err(Refusal::new(Reason::OnePrecise, [second as u64, 0])),
        (format, Some((index, _))) if shows_overflows(format) => {
            Err(Refusal::new(Reason::OnePrecise, [index as u64, 1]))
        }
        _ => Ok(()),
    }
}

/// Refuses several precise events of which not each has a second counter, where records do not tell the count: as
/// [`check_told_apart`].
pub(super) fn check_counted_apart(
    pmu: &Pmu,
    events: &[Event],
    active: u32,
    assignments: &[Assignment],
) -> Result<(), Refusal> {
    let told_by_status = pmu.pebs.is_ok_and(|pebs| shows_overflows(pebs.format));
    let precise = |event: &Event| event.is_sampled(Way::Pebs);
    if !told_by_status || events.iter().filter(|event| precise(event)).count() < 2 {
        return Ok(());
    }
    let lacking = events.iter().zip(assignments).enumerate().find(|(index, (event, assignment))| {
        active >> index & 1 == 1 && precise(event) && assignment.counting.is_none()
    });
    lacking.map_or(Ok(()), |(index, _)| Err(Refusal::new(Reason::NoCounter, [index as u64, 0])))
}
