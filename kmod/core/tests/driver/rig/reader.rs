//! What a reader in user space does with quanta and segments, and the rules it holds the driver to.

use std::collections::{HashMap, HashSet};

use hpm_abi::{
    Quantum, QuantumFlags, EVENTS_MAX, NO_EVENT, RECORD_FORMAT_ARCHITECTURAL, RECORD_FORMAT_IBS,
    RECORD_FORMAT_INTERRUPT,
};
use hpm_core::allocate::Counter;
use hpm_core::Program;

use super::core::{word, Shared};
use super::TID_SHIFT;

/// What the reader looks at in a record: its size, and the offsets of its instruction pointer and of the word that names
/// its counters.
struct Layout {
    size: u32,
    rip: u32,
    counters: Option<u32>,
}

/// Where the basic fragment of an architectural record that begins here begins, and where the next record does: a fragment with bit 31 of its
/// header, or without a group, is followed by another.
fn fragments(bytes: &[u8], mut at: u32) -> (u32, u32) {
    let mut basic = None;
    loop {
        let header = word(bytes, at);
        assert!(header & 0xFFFF >= 16, "a fragment has its header");
        if header >> 63 == 1 {
            basic.get_or_insert(at);
        }
        at += (header & 0xFFFF) as u32;
        if header >> 31 & 1 == 0 && header >> 16 != 0 {
            return (basic.expect("a record has its basic group"), at);
        }
    }
}

/// SDM Vol. 3B, table 20-3 and those of later formats; `first` is the first word of the span's first record, in which
/// formats from 4 on say their size, and of which the architectural ones need not be alike.
fn layout(quantum: &Quantum, first: u64) -> Layout {
    match quantum.record_format {
        0 => Layout { size: 0x90, rip: 0x08, counters: None },
        1 => Layout { size: 0xB0, rip: 0x08, counters: Some(0x90) },
        2 => Layout { size: 0xC0, rip: 0x08, counters: Some(0x90) },
        3 => Layout { size: 0xC8, rip: 0x08, counters: Some(0x90) },
        RECORD_FORMAT_INTERRUPT => Layout { size: 160, rip: 0x18, counters: Some(0x00) },
        RECORD_FORMAT_IBS => Layout { size: 224, rip: 0x18, counters: Some(0x00) },
        RECORD_FORMAT_ARCHITECTURAL => {
            Layout { size: (first & 0xFFFF) as u32, rip: 0x10, counters: Some(0x18) }
        }
        _ => Layout { size: (first >> 48) as u32, rip: 0x08, counters: Some(0x10) },
    }
}

/// What a reader has seen of one thread.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub counts: [u64; EVENTS_MAX],
    /// Records by the event that they are for.
    pub records: [u64; EVENTS_MAX],
    /// As `records`, times the periods of their quanta.
    pub weighed: [u64; EVENTS_MAX],
    /// All records, each once.
    pub spans: u64,
    /// Records of formats 1 and 2 that may be for several counters.
    pub unclear: u64,
    pub records_lost: u64,
    pub overflowed: bool,
    pub stacks: u64,
    pub stacks_lost: u64,
    pub stacks_truncated: u64,
    pub stack_bytes: u64,
    /// Quanta in which samples were held back.
    pub throttled: u64,
    /// Quanta without samples by the reader's wish.
    pub paused: u64,
    /// The last quantum's first period.
    pub period: u64,
    /// RIP and counters of each record.
    pub recorded: HashSet<(u64, u64)>,
}

#[derive(Clone, Copy, Default)]
struct Position {
    quanta: u64,
    sequence: u64,
    end_tsc: u64,
    segment: u64,
    segment_end: u32,
}

pub struct Reader {
    segments: u64,
    quanta: u64,
    pebs_enable: Vec<u64>,
    cpus: Vec<Position>,
    pub threads: HashMap<u32, Seen>,
    pub quanta_lost: u64,
    pub empty_quanta: u64,
}

impl Reader {
    /// For a session with this program on each CPU.
    pub fn new(programs: &[Program]) -> Self {
        let (program, cpus) = (&programs[0], programs.len());
        let enabled = |program: &Program| {
            // NetBurst has one bit for all its counters.
            let named = |counter: Counter| counter.as_netburst().is_none();
            let samplers =
                program.sampling_counters().filter(|sampler| program.is_precise() && named(sampler.counter));
            samplers.map(|sampler| 1 << sampler.counter.bit()).sum()
        };
        let pebs_enable = programs.iter().map(enabled).collect();
        Self {
            segments: program.config().segment_count().into(),
            quanta: program.config().quanta.into(),
            pebs_enable,
            cpus: vec![Position::default(); cpus],
            threads: HashMap::new(),
            quanta_lost: 0,
            empty_quanta: 0,
        }
    }

    /// Reads and gives back all there is.
    pub fn read(&mut self, cpu: usize, shared: &mut Shared) {
        while self.cpus[cpu].quanta < shared.status.quanta_produced {
            let slot = self.cpus[cpu].quanta % self.quanta;
            let quantum = shared.quanta[slot as usize].take().expect("a published quantum was written");
            self.check_order(cpu, &quantum);
            self.check_records(cpu, shared, &quantum);
            self.cpus[cpu].quanta += 1;
        }
        shared.control.quanta_consumed = self.cpus[cpu].quanta;
        // Every segment before the newest is complete, and all its quanta have been read.
        shared.control.segments_consumed = shared.status.segments_begun.saturating_sub(1);
        shared.control.stack_consumed = shared.status.stack_produced;
    }

    fn check_order(&mut self, cpu: usize, quantum: &Quantum) {
        let position = &mut self.cpus[cpu];
        assert_eq!(quantum.cpu as usize, cpu);
        assert!(quantum.start_tsc <= quantum.end_tsc);
        assert!(quantum.sequence >= position.sequence, "quanta come in order");
        let skipped = quantum.sequence - position.sequence;
        self.quanta_lost += skipped;
        assert_eq!(skipped > 0, quantum.flags & QuantumFlags::QUANTA_LOST_BEFORE != 0);
        assert!(quantum.start_tsc >= position.end_tsc, "quanta of a CPU do not overlap");
        position.sequence = quantum.sequence + 1;
        position.end_tsc = quantum.end_tsc;
        let seen = self.threads.entry(quantum.tid).or_default();
        for (sum, count) in seen.counts.iter_mut().zip(quantum.counts) {
            *sum += count;
        }
        seen.records_lost += quantum.records_lost;
        assert_eq!(quantum.records_lost > 0, quantum.flags & QuantumFlags::RECORDS_LOST != 0);
        seen.overflowed |= quantum.flags & QuantumFlags::THREAD_OVERFLOW != 0;
        seen.throttled += u64::from(quantum.flags & QuantumFlags::THROTTLED != 0);
        seen.paused += u64::from(quantum.flags & QuantumFlags::PAUSED != 0);
        [seen.period, ..] = quantum.periods;
        seen.stacks += u64::from(quantum.stack_bytes > 0);
        seen.stack_bytes += u64::from(quantum.stack_bytes);
        seen.stacks_truncated += u64::from(quantum.flags & QuantumFlags::STACK_TRUNCATED != 0);
        seen.stacks_lost += u64::from(quantum.flags & QuantumFlags::STACK_LOST != 0);
        self.empty_quanta += u64::from(quantum.span_bytes == 0);
    }

    fn check_records(&mut self, cpu: usize, shared: &Shared, quantum: &Quantum) {
        if quantum.span_bytes == 0 {
            return;
        }
        assert_eq!(quantum.pebs_enable & self.pebs_enable[cpu], self.pebs_enable[cpu]);
        let position = &mut self.cpus[cpu];
        // Spans of a segment follow each other without gap or overlap; a new segment is filled from its start.
        if quantum.segment != position.segment {
            assert!(quantum.segment > position.segment);
            (position.segment, position.segment_end) = (quantum.segment, 0);
        }
        assert_eq!(quantum.span_offset, position.segment_end);
        position.segment_end += quantum.span_bytes;
        let bytes = &shared.segments[(quantum.segment % self.segments) as usize];
        let layout = layout(quantum, word(bytes, quantum.span_offset));
        let fixed = quantum.record_format != RECORD_FORMAT_ARCHITECTURAL;
        assert!(!fixed || quantum.span_bytes % layout.size == 0);
        assert_eq!(u32::from(quantum.record_size), if fixed { layout.size } else { 0 });
        let seen = self.threads.get_mut(&quantum.tid).expect("its counts were seen");
        let mut last = 0;
        let (mut next, end) = (quantum.span_offset, quantum.span_offset + quantum.span_bytes);
        while next < end {
            let record;
            (record, next) = if fixed { (next, next + layout.size) } else { fragments(bytes, next) };
            assert!(next <= end, "a span holds whole records");
            let rip = word(bytes, record + layout.rip);
            assert_eq!(rip >> TID_SHIFT, u64::from(quantum.tid), "a record of another thread");
            // Without a word for it, one counter writes all records.
            let counters = layout.counters.map_or(u64::MAX, |at| word(bytes, record + at));
            let several = self.pebs_enable[cpu].count_ones() > 1;
            let unclear = matches!(quantum.record_format, 1 | 2)
                && several
                && !(counters & self.pebs_enable[cpu]).is_power_of_two();
            seen.unclear += u64::from(unclear);
            assert!(seen.recorded.insert((rip, counters)), "a record is published once");
            let interrupt = quantum.record_format == RECORD_FORMAT_INTERRUPT;
            assert!(rip > last || interrupt && rip == last, "records of a span come in order");
            last = rip;
            seen.spans += 1;
            let samplers =
                quantum.sampler_counter.into_iter().zip(quantum.counter_event).zip(quantum.periods);
            let named =
                samplers.filter(|((bit, _), _)| !unclear && *bit != NO_EVENT && counters >> bit & 1 == 1);
            for ((_, event), period) in named {
                seen.records[usize::from(event)] += 1;
                seen.weighed[usize::from(event)] += period;
            }
        }
    }
}
