//! Quanta without what their neighbours have too, and what nobody asks of them later.
//!
//! A quantum has 320 bytes, most of them places for events and samplers that a session does not have. Where a quantum follows another one
//! of its CPU it has [`OWN`] words, and one for each event and each sampler. What all of them have in common is written once:
//!
//! | common, [`COMMON`] words of 8 bytes |
//! |---|
//! | the first one's sequence; the others' are the numbers that follow |
//! | CPU |
//! | record size (16 bits), record format (16), events in use of the counts (32) |
//! | IA32_PEBS_ENABLE |
//! | MSR_PEBS_DATA_CFG |
//! | records lost |
//! | for each sampling place the event that it serves (8 bits each) |
//! | for each sampling place its counter (8 bits each) |
//!
//! | each quantum's own words |
//! |---|
//! | TSC at the start |
//! | TSC at the end |
//! | process (32 bits), thread (32) |
//! | how it ended (16 bits), flags (16), bytes of records (32) |
//! | last instruction pointer |
//! | bytes of stack (32 bits), events of which nothing was missed (32) |
//! | the count of each event in use |
//! | the period of each sampling place that serves an event |
//!
//! Where records and stacks were in the rings is left out: they are behind the quanta, in the same order.

use hpm_abi::{EVENTS_MAX, NO_EVENT, Quantum, SAMPLING_COUNTERS_MAX};

/// Words that every quantum has.
const OWN: usize = 6;
/// Words of what a frame's quanta have in common.
const COMMON: usize = 8;

/// Whether a quantum can stand behind another one, which is the one before it in the ring.
pub(super) fn goes_on(before: &Quantum, next: &Quantum) -> bool {
    next.sequence == before.sequence.wrapping_add(1)
        && next.cpu == before.cpu
        && (next.record_size, next.record_format) == (before.record_size, before.record_format)
        && next.count_len == before.count_len
        && next.pebs_enable == before.pebs_enable
        && next.pebs_data_cfg == before.pebs_data_cfg
        && next.records_lost == before.records_lost
        && next.counter_event == before.counter_event
        && next.sampler_counter == before.sampler_counter
}

/// Which words of counts and periods are in use.
#[derive(Clone, Copy)]
struct InUse {
    counts: usize,
    /// The first `periods` of them.
    places: [u8; SAMPLING_COUNTERS_MAX],
    periods: usize,
}

impl InUse {
    fn of(count_len: u32, counter_event: [u8; SAMPLING_COUNTERS_MAX]) -> Self {
        let (mut places, mut periods) = ([0; SAMPLING_COUNTERS_MAX], 0);
        for (place, _) in counter_event.iter().enumerate().filter(|(_, event)| **event != NO_EVENT) {
            places[periods] = place as u8;
            periods += 1;
        }
        Self { counts: EVENTS_MAX.min(count_len as usize), places, periods }
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        self.places[..self.periods].iter().map(|place| usize::from(*place))
    }

    /// Words of a quantum.
    fn words(&self) -> usize {
        OWN + self.counts + self.periods
    }
}

/// Puts quanta of which each [`goes_on`] the one before into words.
pub(super) fn pack(quanta: &[Quantum], words: &mut Vec<u64>) {
    let Some(first) = quanta.first() else { return };
    let in_use = InUse::of(first.count_len, first.counter_event);
    words.extend_from_slice(&common(first));
    let begin = words.len();
    // Room for all at once: to ask for it word by word takes as long as to write them.
    words.resize(begin + quanta.len() * in_use.words(), 0);
    for (quantum, words) in quanta.iter().zip(words[begin..].chunks_exact_mut(in_use.words())) {
        let (own, rest) = words.split_first_chunk_mut::<OWN>().expect("a chunk has more");
        *own = own_words(quantum);
        let (counts, periods) = rest.split_at_mut(in_use.counts);
        counts.copy_from_slice(&quantum.counts[..in_use.counts]);
        in_use.places().zip(periods).for_each(|(place, period)| *period = quantum.periods[place]);
    }
}

fn own_words(quantum: &Quantum) -> [u64; OWN] {
    let ends = pair(u32::from(quantum.end) | u32::from(quantum.flags) << 16, quantum.span_bytes);
    let thread = pair(quantum.pid, quantum.tid);
    let stack = pair(quantum.stack_bytes, u32::from(quantum.active) | u32::from(quantum.absent) << 16);
    [quantum.start_tsc, quantum.end_tsc, thread, ends, quantum.last_ip, stack]
}

fn common(first: &Quantum) -> [u64; COMMON] {
    let sizes = u32::from(first.record_size) | u32::from(first.record_format) << 16;
    [
        first.sequence,
        first.cpu.into(),
        pair(sizes, first.count_len),
        first.pebs_enable,
        first.pebs_data_cfg,
        first.records_lost,
        u64::from_le_bytes(first.counter_event),
        u64::from_le_bytes(first.sampler_counter),
    ]
}

/// The quanta that these words are, with 0 where something was left out; `None` where they are none.
pub(super) fn unpack(words: &[u64]) -> Option<impl Iterator<Item = Quantum>> {
    let (common, rest) = words.split_first_chunk::<COMMON>()?;
    let like = common_to(common);
    let in_use = InUse::of(like.count_len, like.counter_event);
    let quanta = rest.chunks_exact(in_use.words());
    let whole = quanta.remainder().is_empty();
    whole.then(|| {
        quanta.enumerate().map(move |(number, words)| {
            let (own, rest) = words.split_first_chunk::<OWN>().expect("a chunk has more");
            let mut quantum = like;
            quantum.sequence = like.sequence.wrapping_add(number as u64);
            set_own(&mut quantum, own);
            let (counts, periods) = rest.split_at(in_use.counts);
            quantum.counts[..in_use.counts].copy_from_slice(counts);
            in_use.places().zip(periods).for_each(|(place, period)| quantum.periods[place] = *period);
            quantum
        })
    })
}

fn set_own(quantum: &mut Quantum, own: &[u64; OWN]) {
    let [start_tsc, end_tsc, thread, ends, last_ip, stack] = *own;
    (quantum.start_tsc, quantum.end_tsc, quantum.last_ip) = (start_tsc, end_tsc, last_ip);
    (quantum.pid, quantum.tid) = halves(thread);
    (quantum.end, quantum.flags) = (ends as u16, (ends >> 16) as u16);
    (_, quantum.span_bytes) = halves(ends);
    (quantum.stack_bytes, _) = halves(stack);
    (quantum.active, quantum.absent) = ((stack >> 32) as u16, (stack >> 48) as u16);
}

/// A quantum of which only what is common to its frame is known.
fn common_to(common: &[u64; COMMON]) -> Quantum {
    let [sequence, cpu, sizes, pebs_enable, pebs_data_cfg, records_lost, events, counters] = *common;
    Quantum {
        sequence,
        cpu: cpu as u32,
        record_size: sizes as u16,
        record_format: (sizes >> 16) as u16,
        count_len: (sizes >> 32) as u32,
        pebs_enable,
        pebs_data_cfg,
        records_lost,
        counter_event: events.to_le_bytes(),
        sampler_counter: counters.to_le_bytes(),
        ..Quantum::EMPTY
    }
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

fn halves(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

#[cfg(test)]
pub(super) mod tests;
