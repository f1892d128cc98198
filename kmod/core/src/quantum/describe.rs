//! A quantum as its ring shows it.

use super::super::abi::{Quantum, QuantumFlags};
use super::super::layout::RecordLayout;
use super::super::program::{Program, Records};
use super::super::session::CpuSession;
use super::super::stacks::Stack;
use super::Closed;

/// Writes what the ring shows of a quantum: member by member, because all at once takes twice as many instructions.
pub(super) fn describe(
    shown: &mut Quantum,
    program: &Program,
    state: &CpuSession,
    closed: &Closed<'_>,
    stack: Stack,
) {
    let Closed { stay, span, .. } = closed;
    let records = program.records.unwrap_or(Records { size: 0, format: 0 });
    let own_sizes = program.pebs.as_ref().is_some_and(RecordLayout::is_architectural);
    // None is left out.
    let Quantum {
        sequence,
        start_tsc,
        end_tsc,
        pid,
        tid,
        cpu,
        end,
        flags,
        last_ip,
        segment,
        span_offset,
        span_bytes,
        record_size,
        record_format,
        count_len,
        pebs_enable,
        pebs_data_cfg,
        records_lost,
        stack_offset,
        stack_bytes,
        active,
        absent,
        counter_event,
        sampler_counter,
        counts,
        periods,
    } = shown;
    *sequence = state.sequence;
    (*start_tsc, *end_tsc) = (stay.start_tsc, closed.end_tsc);
    (*pid, *tid, *cpu) = (stay.thread.pid, stay.thread.tid, closed.cpu);
    (*end, *last_ip) = (closed.ending.end as u16, closed.ending.last_ip);
    *flags = flags_of(program, state, closed) | stack.flags;
    (*segment, *span_offset, *span_bytes) = (span.segment, span.start, span.end - span.start);
    *record_size = if own_sizes { 0 } else { records.size };
    *record_format = records.format;
    *count_len = program.event_count() as u32;
    *pebs_enable = if stay.armed { program.pebs_enable } else { 0 };
    *pebs_data_cfg = program.pebs.as_ref().map_or(0, |pebs| pebs.pebs_data_cfg);
    *records_lost = closed.records_lost;
    (*stack_offset, *stack_bytes) = (stack.offset, stack.bytes);
    (*active, *absent) = (program.complete(), program.absent());
    (*counter_event, *sampler_counter) = program.samplers();
    // The others of the ring's memory are zero, and stay so: a session's number of events does not change.
    for (shown, count) in counts.iter_mut().zip(&state.counts).take(program.event_count()) {
        *shown = *count;
    }
    program.show(state.periods.in_use(), periods);
}

/// [`QuantumFlags`] of a quantum, without those of its stack.
fn flags_of(program: &Program, state: &CpuSession, closed: &Closed<'_>) -> u16 {
    let Closed { stay, span, .. } = closed;
    let withheld = span.unreadable > 0
        || span.moved.is_some_and(|moved| moved.withheld > 0)
        || state.handled.withheld > 0;
    let mut flags = 0;
    for (set, flag) in [
        (closed.records_lost > 0, QuantumFlags::RECORDS_LOST),
        (state.lost_before, QuantumFlags::QUANTA_LOST_BEFORE),
        (withheld, QuantumFlags::RECORDS_WITHHELD),
        (span.moved.is_some_and(|moved| moved.scrubbed), QuantumFlags::RECORDS_SCRUBBED),
        (program.samples() && stay.place.is_none(), QuantumFlags::THREAD_OVERFLOW),
        (stay.throttled, QuantumFlags::THROTTLED),
        (stay.paused, QuantumFlags::PAUSED),
    ] {
        flags |= if set { flag } else { 0 };
    }
    flags
}
