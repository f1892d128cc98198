//! Sampling by interrupt: a counter's overflow raises a PMI (the INT bit of IA32_PERFEVTSELx), and its handler writes an
//! [`InterruptRecord`] of what it interrupted into the segment.
//!
//! Which counters are due is read from the counters themselves and never from IA32_PERF_GLOBAL_STATUS, which only says
//! whose NMI it is. So it does not matter whether the PMI comes before, in or after the section of a switch, nor whether
//! two overflows raised one PMI or two: a thread whose counter has overflowed and whose record is not written yet has a
//! position of 0 or less, and overflows again as soon as it can.

use super::abi::{InterruptRecord, RECORD_FORMAT_INTERRUPT, SAMPLING_COUNTERS_MAX};
use super::allocate::COUNTERS_MAX;
use super::hardware::Hardware;
use super::ibs::{self, Levels, Sample};
use super::period::LEFT_MIN;
use super::port::{Port, Rings};
use super::program::{Records, SamplingCounter};
use super::quantum::Stay;
use super::session::Session;

/// Words of a record.
const WORDS: usize = core::mem::size_of::<InterruptRecord>() / 8;

/// How the records look.
pub(super) const RECORDS: Records =
    Records { size: core::mem::size_of::<InterruptRecord>() as u16, format: RECORD_FORMAT_INTERRUPT };

/// RFLAGS, RIP, RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP, R8 to R15: the order of a PEBS record (SDM Vol. 3B, table 20-3).
pub type Registers = [u64; 18];
/// Places among [`Registers`].
const RIP: usize = 1;
const RBP: usize = 8;
const RSP: usize = 9;

/// What the handler has done since the last cut. One per CPU and session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Handled {
    /// Records written for each sampling place.
    pub(super) records: [u64; SAMPLING_COUNTERS_MAX],
    /// Records that were due and could not be written.
    pub(super) lost: [u64; SAMPLING_COUNTERS_MAX],
    /// Events that each place's counter counted before it was last set back.
    pub(super) events: [i64; SAMPLING_COUNTERS_MAX],
    /// Samples that were not kept ([`super::abi::CpuStatus::records_withheld`]).
    pub(super) withheld: u64,
    /// RIP of the last record.
    pub(super) rip: u64,
    /// RBP of the last record.
    pub(super) rbp: u64,
    /// RSP of the last record.
    pub(super) rsp: u64,
}

impl Handled {
    /// Nothing.
    pub(super) const NONE: Self = Self {
        records: [0; SAMPLING_COUNTERS_MAX],
        lost: [0; SAMPLING_COUNTERS_MAX],
        events: [0; SAMPLING_COUNTERS_MAX],
        withheld: 0,
        rip: 0,
        rbp: 0,
        rsp: 0,
    };

    /// Notes the registers of the last record that stacks begin with.
    fn note(&mut self, registers: &Registers) {
        (self.rip, self.rbp, self.rsp) = (registers[RIP], registers[RBP], registers[RSP]);
    }

    /// Bytes of the records, which look like these.
    pub(super) fn bytes(&self, look: Records) -> u32 {
        self.records.iter().sum::<u64>() as u32 * u32::from(look.size)
    }
}

/// Writes a record for each counter of the stay that has overflowed, and sets it back. True when the segment is full. The
/// PMU must be stopped, and the stay armed.
pub(super) fn handle<P: Port, R: Rings>(
    hardware: &mut Hardware,
    values: &mut [u64; COUNTERS_MAX],
    port: &mut P,
    session: &mut Session<'_, R>,
    stay: &Stay,
) -> bool {
    let Some((segment, start)) = session.state.segments.current() else { return false };
    if session.program.uses_ibs() {
        take_samples(hardware, port, session);
        return is_full(session, start, ibs::RECORDS);
    }
    for sampler in session.program.sampling_counters() {
        let (number, counter) = (usize::from(sampler.place), sampler.counter);
        let period = session.state.periods.in_use()[number] as i64;
        let now = hardware.read(port, counter);
        let handled = &mut session.state.handled;
        let written = handled.records[number] + handled.lost[number];
        let events = handled.events[number] + hardware.difference(counter, values[counter.place()], now);
        let left = stay.positions.left[number] + written as i64 * period - events;
        if left > 0 {
            continue;
        }
        handled.events[number] = events;
        let place = start + handled.bytes(RECORDS);
        let slot = session.state.segments.slot(segment);
        let wrote = write(port, session, sampler, slot, place);
        let handled = &mut session.state.handled;
        handled.records[number] += u64::from(wrote);
        // Whole periods that passed before the handler ran have no record of their own.
        let missed = (-left).checked_div(period).unwrap_or(0);
        handled.lost[number] += missed as u64 + u64::from(!wrote);
        let value = (left + (1 + missed) * period).max(LEFT_MIN).wrapping_neg() as u64;
        hardware.write(port, counter, value);
        hardware.note_served_overflow(port);
        values[counter.place()] = value;
    }
    is_full(session, start, RECORDS)
}

/// Whether the segment, filled up to `start` at the last cut, has no room for more of these records.
fn is_full<R: Rings>(session: &Session<'_, R>, start: u32, look: Records) -> bool {
    start + session.state.handled.bytes(look) >= session.state.segments.full_at(look.size)
}

/// False when there are no registers that the session may see.
fn write<P: Port, R: Rings>(
    port: &mut P,
    session: &mut Session<'_, R>,
    sampler: &SamplingCounter,
    slot: u32,
    place: u32,
) -> bool {
    let user_only = !session.program.event_sees_kernel(sampler.event.into());
    let Some(registers) = port.registers(user_only) else { return false };
    let mut words = [0; WORDS];
    let head = [1 << sampler.counter.bit(), port.rdtsc()];
    for (word, value) in words.iter_mut().zip(head.into_iter().chain(registers)) {
        *word = value;
    }
    session.rings.write_record(slot, place, &words);
    session.state.handled.note(&registers);
    true
}

/// Writes a record of each sample that waits in the registers of IBS, and has it count a period anew. The PMU must be stopped,
/// and the stay armed.
pub(super) fn take_samples<P: Port, R: Rings>(
    hardware: &mut Hardware,
    port: &mut P,
    session: &mut Session<'_, R>,
) {
    let Some((segment, start)) = session.state.segments.current() else { return };
    let slot = session.state.segments.slot(segment);
    let (program, Some(ibs)) = (session.program, hardware.ibs_mut()) else { return };
    for sampler in program.sampling_counters() {
        let place = usize::from(sampler.place);
        let (user, kernel) = program.levels(sampler.event.into());
        let Some(sample) = ibs.take(port, sampler.counter, Levels { user, kernel }) else { continue };
        let offset = start + session.state.handled.bytes(ibs::RECORDS);
        match sample {
            Sample::Taken(own) => {
                write_sample(port, session, &own, !kernel, (slot, offset));
                session.state.handled.records[place] += 1;
            }
            Sample::Withheld => session.state.handled.withheld += 1,
            Sample::Unknown => session.state.handled.lost[place] += 1,
        }
        let period = session.state.periods.in_use()[place];
        ibs.set_next(sampler.counter, program.ibs_control(sampler.counter), period);
    }
}

/// Writes a sample with the time and what the interrupt met.
fn write_sample<P: Port, R: Rings>(
    port: &mut P,
    session: &mut Session<'_, R>,
    own: &[u64; ibs::OWN_WORDS],
    user_only: bool,
    (slot, offset): (u32, u32),
) {
    let registers = port.registers(user_only).unwrap_or_default();
    let mut words = [0; ibs::WORDS];
    for (word, value) in words.iter_mut().zip(own.iter().chain(&registers)) {
        *word = *value;
    }
    // The second of an IbsRecord.
    words[1] = port.rdtsc();
    session.rings.write_record(slot, offset, &words);
    session.state.handled.note(&registers);
}
