//! Closing a quantum: what the counters did, which records belong to it, and what the next one starts from.

mod describe;

use super::abi::{QuantumEnd, SAMPLING_COUNTERS_MAX};
use super::allocate::{Counter, COUNTERS_MAX};
use super::buffer;
use super::events::Way;
use super::hardware::Hardware;
use super::interrupt::{self, Handled};
use super::layout::{shows_overflows, RecordLayout};
use super::period::Wish;
use super::port::{Port, Rings};
use super::privacy::{self, Moved};
use super::program::Program;
use super::records::{self, Record};
use super::session::{Session, Thread};
use super::stacks::{self, Stack};
use super::threads::{Place, Positions};
use super::turns::Turn;

/// A stay of a thread on this CPU, from the last cut on. Cut where it is: it is too large to be copied at each cut.
#[derive(Debug)]
pub(super) struct Stay {
    pub(super) session: u64,
    pub(super) thread: Thread,
    pub(super) start_tsc: u64,
    /// The thread's place; `None` when the table is full.
    pub(super) place: Option<Place>,
    pub(super) positions: Positions,
    /// Whether records are written; else the sampling counters run on without.
    pub(super) armed: bool,
    /// It is not armed because a ceiling was passed.
    pub(super) throttled: bool,
    /// It is not armed because the reader wants no samples.
    pub(super) paused: bool,
    pub(super) turn: Turn,
    /// Number of the thread's counter page.
    pub(super) page: Option<usize>,
}

impl Stay {
    /// Whether a counter has overflowed and its record is not written yet.
    pub(super) fn is_overdue(&self, program: &Program) -> bool {
        program.sampling_counters().any(|sampler| self.positions.left[usize::from(sampler.place)] <= 0)
    }
}

/// The records that were written since the last cut.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    segment: u64,
    start: u32,
    end: u32,
    /// How many there are, and of these that were moved how many were kept.
    records: u64,
    /// How many there may be behind them that nobody can read.
    unreadable: u64,
    /// The last one, where hardware writes them.
    last: Option<Record>,
    /// How many are for each sampling place; one record may be for several.
    by_counter: [u64; SAMPLING_COUNTERS_MAX],
    /// How many may be for several places, so that nobody can tell for which they are.
    unclear: u64,
    /// What came of moving them to the session's segment, where that is needed.
    moved: Option<Moved>,
}

/// A quantum that is over, and not shown yet.
struct Closed<'a> {
    stay: &'a Stay,
    cpu: u32,
    ending: Ending,
    end_tsc: u64,
    span: &'a Span,
    records_lost: u64,
}

/// How and where the quantum ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ending {
    pub(super) end: QuantumEnd,
    pub(super) last_ip: u64,
}

/// Closes the stay's quantum and publishes it; the stay goes on from here. `values` are the counters' last values, kept
/// up to date. A sampling session's PMU must be stopped, or rest. Returns how many records there were.
pub(super) fn close<P: Port, R: Rings>(
    hardware: &mut Hardware,
    values: &mut [u64; COUNTERS_MAX],
    port: &mut P,
    session: &mut Session<'_, R>,
    stay: &mut Stay,
    cpu: u32,
    ending: Ending,
) -> u64 {
    if stay.armed && session.program.uses_ibs() {
        interrupt::take_samples(hardware, port, session);
    }
    let end_tsc = port.rdtsc();
    let mut span = find_span(port, session, stay);
    let written = span.records + span.unreadable;
    let records_lost = count(hardware, values, port, session, stay, &span);
    // A TSC that was set back must not make the sum overflow.
    let ticks = end_tsc.saturating_sub(stay.start_tsc);
    add_to_totals(session, ticks);
    if session.multiplexes() {
        stay.turn = stay.turn.after(ticks, session.programs.len(), session.turn_tsc);
    }
    if session.program.config().quanta == 0 {
        stay.start_tsc = end_tsc;
        return 0;
    }
    if session.state.quanta.room_for(1).is_none() {
        session.take_back();
    }
    match session.state.quanta.room_for(1) {
        Some(number) => {
            withhold_unreadable(hardware, port, session, &span);
            move_span(port, session, &mut span);
            let withheld = span.unreadable > 0 || span.moved.is_some_and(|moved| moved.last_withheld);
            let stack = if span.records > 0 && !withheld {
                stacks::collect(port, session, span.last, ending.end)
            } else {
                Stack::default()
            };
            put(session, number, &Closed { stay, cpu, ending, end_tsc, span: &span, records_lost }, stack);
        }
        None => drop_quantum(hardware, port, session, &span, records_lost),
    }
    adapt_periods(session, written);
    session.state.periods.note_drain(session.program, written);
    session.state.totals.throttled += u64::from(stay.throttled);
    // Where hardware writes the records, no handler does.
    if session.program.pebs.is_none() && session.program.samples() {
        session.state.totals.records_withheld += session.state.handled.withheld;
        session.state.handled = Handled::NONE;
    }
    session.state.sequence += 1;
    session.publish();
    stay.start_tsc = end_tsc;
    written
}

/// Adds what was counted in so many TSC ticks to the session's sums.
fn add_to_totals<R: Rings>(session: &mut Session<'_, R>, ticks: u64) {
    let (program, state) = (session.program, &mut *session.state);
    let totals = &mut state.totals;
    for (sum, count) in totals.counts.iter_mut().zip(&state.counts).take(program.event_count()) {
        *sum += count;
    }
    totals.on_cpu_tsc += ticks;
    if program.misses() {
        for (event, waiting) in totals.waiting_tsc.iter_mut().enumerate() {
            *waiting += if program.is_complete(event) { 0 } else { ticks };
        }
    }
}

/// Adapts the periods of events that have a rate to what they have counted, now and then; so many more records have come.
fn adapt_periods<R: Rings>(session: &mut Session<'_, R>, records: u64) {
    let (program, state, tsc_khz) = (session.program, &mut *session.state, session.limits.tsc_khz.into());
    if !program.adapts() {
        return;
    }
    // A sampled event has no turns: it is counted for as long as the session runs.
    let Some(passed) = state.periods.look(program, state.totals.on_cpu_tsc, records, tsc_khz) else { return };
    let wished = session.rings.rate();
    for sampler in program.sampling_counters().filter(|sampler| sampler.rate != 0) {
        let wish = Wish { rate: if wished == 0 { sampler.rate } else { wished }, tsc_khz };
        let counted = state.totals.counts[usize::from(sampler.event)];
        state.periods.adapt(sampler.place.into(), counted, passed, wish, sampler.grid.most);
    }
}

/// The records that were written since the last cut.
fn find_span<P: Port, R: Rings>(port: &mut P, session: &Session<'_, R>, stay: &Stay) -> Span {
    let mut span = Span::default();
    let (Some((segment, start)), true) = (session.state.segments.current(), stay.armed) else { return span };
    (span.segment, span.start) = (segment, start);
    match &session.program.pebs {
        Some(pebs) => find_records(port, session, pebs, &mut span),
        None => {
            let handled = &session.state.handled;
            span.end = start + session.program.records.map_or(0, |look| handled.bytes(look));
            span.records = handled.records.iter().sum();
            span.by_counter = handled.records;
        }
    }
    span
}

/// Finds where the records of a span that begins here end, and whose they are. Each is looked at where it says its size, and where it says whose it
/// is. Where what should be a record is none, nobody knows where the next one begins: the span ends there.
fn find_records<P: Port, R: Rings>(
    port: &mut P,
    session: &Session<'_, R>,
    pebs: &RecordLayout,
    span: &mut Span,
) {
    span.end = buffer::filled(port, pebs, &session.state.segments).max(span.start);
    let size = u32::from(pebs.record_size);
    let several = session.program.has_several_samplers();
    if several || pebs.is_architectural() {
        let (mut at, samplers) = (span.start, session.program.sampling_bits());
        while at < span.end {
            let Some(record) = records::next(port, pebs, at, span.end) else { break };
            let mut counters = if several { record.counters(port, pebs) & samplers } else { 0 };
            if shows_overflows(pebs.format) && !counters.is_power_of_two() {
                (span.unclear, counters) = (span.unclear + 1, 0);
            }
            for sampler in session.program.sampling_counters() {
                span.by_counter[usize::from(sampler.place)] += counters >> sampler.counter.bit() & 1;
            }
            (span.records, span.last, at) = (span.records + 1, Some(record), record.end);
        }
        span.unreadable = (span.end - at).div_ceil(size).into();
        span.end = at;
    } else if span.end > span.start {
        span.records = ((span.end - span.start) / size).into();
        span.last = Some(Record::usual(pebs, span.end - size));
    }
    if let (false, Some(only)) = (several, session.program.sampling_counters().next()) {
        span.by_counter[usize::from(only.place)] = span.records + span.unreadable;
    }
}

/// Hardware goes on where what nobody can read begins, so that it is in no span, and it is counted.
fn withhold_unreadable<P: Port, R: Rings>(
    hardware: &mut Hardware,
    port: &mut P,
    session: &mut Session<'_, R>,
    span: &Span,
) {
    if let (Some(layout), true) = (session.program.pebs, span.unreadable > 0) {
        hardware.set_global_ctrl(port, 0);
        buffer::set_index(port, &layout, span.end);
        session.state.totals.records_withheld += span.unreadable;
    }
}

/// Moves the records of a session that may see user mode only out of the memory that hardware writes. Hardware goes on
/// behind those that were kept.
fn move_span<P: Port, R: Rings>(port: &mut P, session: &mut Session<'_, R>, span: &mut Span) {
    let Some(layout) = session.program.pebs.filter(|_| session.program.hides) else { return };
    if span.end == span.start {
        return;
    }
    let slot = session.state.segments.slot(span.segment);
    let moved = privacy::move_records(port, session.rings, &layout, slot, (span.start, span.end));
    if moved.withheld > 0 {
        buffer::set_index(port, &layout, moved.end);
        session.state.totals.records_withheld += moved.withheld;
    }
    span.end = moved.end;
    span.records -= moved.withheld;
    span.moved = Some(moved);
}

/// Reads the counters, says what they did in the session's `counts`, and moves the sampling positions of the stay on. Returns how many
/// records were lost.
fn count<P: Port, R: Rings>(
    hardware: &Hardware,
    values: &mut [u64; COUNTERS_MAX],
    port: &mut P,
    session: &mut Session<'_, R>,
    stay: &mut Stay,
    span: &Span,
) -> u64 {
    let (program, state) = (session.program, &mut *session.state);
    let (counts, handled) = (&mut state.counts, &state.handled);
    // Counters that set themselves back tell by how much they did how many records are theirs.
    let by_reloads = program.has_several_samplers()
        && program.pebs.is_some_and(|pebs| shows_overflows(pebs.format))
        && !hardware.has_ceded();
    let (mut records_lost, mut reloads) = (0, 0);
    let mut since_last = |port: &mut P, counter: Counter| {
        let now = hardware.read(port, counter);
        let last = core::mem::replace(&mut values[counter.place()], now);
        hardware.difference(counter, last, now)
    };
    for (event, count) in counts.iter_mut().enumerate().take(program.event_count()) {
        *count = match program.counting_counter(event) {
            Some(counter) => since_last(port, counter).max(0) as u64,
            None => 0,
        };
    }
    for sampler in program.sampling_counters() {
        let place = usize::from(sampler.place);
        let period = state.periods.in_use()[place];
        let mut records = span.by_counter[place];
        let count = &mut counts[usize::from(sampler.event)];
        if sampler.windowed {
            // It is counted apart, and its position is the window's, but for a record that is due.
            let due = stay.armed && hardware.has_overflowed(port, sampler.counter);
            stay.positions.left[place] = if due { 0 } else { period as i64 };
            continue;
        }
        let counted_apart = program.counting_counter(sampler.event.into()).is_some();
        let own = if counted_apart && !by_reloads { 0 } else { since_last(port, sampler.counter) };
        if let (true, true, Some(ibs)) = (program.uses_ibs(), stay.armed, hardware.ibs()) {
            // IBS tells by itself how far it is: it counts all privilege levels, and stands still while a sample waits.
            stay.positions.left[place] = ibs.left(sampler.counter) as i64;
            records_lost += handled.lost[place];
            continue;
        }
        let events = if counted_apart {
            *count as i64
        } else if program.is_precise() {
            // Each record has set the counter back by a period.
            records as i64 * period as i64 + own
        } else {
            handled.events[place] + own
        };
        *count = events.max(0) as u64;
        if by_reloads {
            // `check_counted_apart` has seen that it is. The nearest number: two counters may be an event or two apart.
            let (set_back, period) = ((events - own).max(0), period as i64);
            records = (set_back + period / 2).checked_div(period).unwrap_or(0) as u64;
            reloads += records;
        }
        let missed = handled.lost[place];
        let due = records + missed;
        let overdue = advance(&mut stay.positions.left[place], period, due, events, stay.armed);
        records_lost += missed + if stay.paused { 0 } else { overdue };
        if stay.armed && program.way == Some(Way::Interrupt) && stay.positions.left[place] <= 0 {
            // The counter is set anew before its interrupt has come.
            hardware.note_served_overflow(port);
        }
    }
    if by_reloads {
        // One record of several counters, or one that found no room.
        let written = span.by_counter.iter().sum::<u64>() + span.unclear;
        records_lost += reloads.saturating_sub(written);
    }
    records_lost
}

/// Moves a sampling position on by `events`, of which `records` were written, and returns how many were due but will not
/// come: unarmed every one that was due; armed those a whole period overdue, since one may still be on its way.
fn advance(left: &mut i64, period: u64, records: u64, events: i64, armed: bool) -> u64 {
    let period = period as i64;
    *left += records as i64 * period - events;
    let tolerated = if armed { period } else { 0 };
    let overdue = -tolerated - *left;
    if overdue < 0 {
        return 0;
    }
    let lost = 1 + overdue.checked_div(period).unwrap_or(0);
    *left += lost * period;
    lost as u64
}

fn put<R: Rings>(session: &mut Session<'_, R>, number: u64, closed: &Closed<'_>, stack: Stack) {
    let (program, state, span) = (session.program, &mut *session.state, closed.span);
    session.rings.write_quantum(state.quanta.place(number), |quantum| {
        describe::describe(quantum, program, state, closed, stack)
    });
    state.quanta.produce_to(number + 1);
    state.lost_before = false;
    if let Some(records) = program.records {
        // A stay that is not armed has an empty span, which says nothing of the segment.
        if state.segments.current().is_some() && span.end > span.start {
            let full_at = state.segments.full_at(records.size);
            state.segments.publish_to(span.end, full_at);
        }
        state.totals.records += span.records;
    }
    state.totals.records_lost += closed.records_lost;
}

/// There is no room for the quantum: its records are overwritten and counted as lost.
fn drop_quantum<P: Port, R: Rings>(
    hardware: &mut Hardware,
    port: &mut P,
    session: &mut Session<'_, R>,
    span: &Span,
    mut records_lost: u64,
) {
    let records = span.records + span.unreadable;
    if let (Some(layout), true) = (session.program.pebs, records > 0) {
        hardware.set_global_ctrl(port, 0);
        buffer::set_index(port, &layout, span.start);
    }
    records_lost += records;
    session.state.totals.quanta_lost += 1;
    session.state.totals.records_lost += records_lost;
    session.state.lost_before = true;
}
