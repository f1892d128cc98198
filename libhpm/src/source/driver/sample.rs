//! Samples as rows of the trace.

use crate::event::{Event, core_pmus};
use crate::record::{Attribution, Branch, MemoryDecoder};
use crate::session::{EventMode, Quantum, RECORD_FORMAT_IBS, Sample};
use crate::trace::{Registers, SampleRow, SampleSpan};

/// What is known of the samples.
pub(super) struct SampleRows {
    /// Each event's.
    events: Vec<(Event, Option<MemoryDecoder>)>,
    /// Their branch records are architectural.
    architectural: bool,
}

impl SampleRows {
    /// For these events on a PMU, or on those of a hybrid processor.
    pub(super) fn new(events: &[Event], pmu: &str) -> Self {
        let decoder = |event: &Event| {
            let (_, pmu) = core_pmus(pmu).find(|(core_type, _)| event.is_for(*core_type))?;
            MemoryDecoder::new(pmu)
        };
        Self {
            events: events.iter().map(|event| (event.clone(), decoder(event))).collect(),
            architectural: core_pmus(pmu).any(|(_, pmu)| Branch::are_architectural(pmu)),
        }
    }

    /// The samples all at once, where that is possible; `common` becomes what they have in common. The quantum's calls are not wanted.
    pub(super) fn span<'a>(
        &self,
        quantum: &Quantum<'a>,
        common: &'a mut SampleRow,
    ) -> Option<SampleSpan<'a>> {
        let alike = quantum.alike()?;
        if self.events.get(alike.event).is_none_or(|(event, _)| MemoryDecoder::tells(event.sampling)) {
            return None;
        }
        common.tsc = quantum.raw().end_tsc;
        (common.event, common.period) = (alike.event as u8, alike.period);
        Some(SampleSpan::new(common, alike.records, alike.places))
    }

    /// Puts everything into the row of a sample's quantum but event, period, stack and memory access. A row serves for all samples of the
    /// quantum, because making and moving one of 400 bytes costs more than what is in it.
    pub(super) fn set_sample(&self, row: &mut SampleRow, quantum: &Quantum<'_>, sample: &Sample<'_>) {
        let (raw, record) = (quantum.raw(), &sample.record);
        let branches = sample.branches();
        let told = |branch: &Branch| branch.told(self.architectural);
        let words =
            || branches.iter().map(told).flat_map(|branch| [branch.from, branch.to, branch.info]).collect();
        row.tsc = record.tsc.unwrap_or(raw.end_tsc);
        row.ip = record.ip;
        // The registers of IBS are those of the interrupt, some instructions later.
        let next = record.registers.filter(|_| raw.record_format != RECORD_FORMAT_IBS);
        row.next_ip = next.map(crate::record::Registers::rip);
        row.retire_latency_cycles = record.retire_latency_cycles;
        row.branches = (!branches.is_empty()).then(words);
        row.registers = record.registers.map(|registers| Registers(registers.to_array()));
    }

    /// Puts into the row what the sample's record says of this event's memory access, in place of what it said of another's.
    pub(super) fn set_memory(&self, row: &mut SampleRow, sample: &Sample<'_>, event: usize) {
        // An event without a data address leaves the field 0.
        let access = sample.record.memory.filter(|access| access.address != 0);
        let decoded = access.zip(self.events.get(event)).and_then(|(access, (event, decoder))| {
            let (decoder, sampling) = (decoder.as_ref()?, event.sampling);
            Some((decoder.latency(access, sampling), decoder.source(access, sampling)))
        });
        let (latency, source) = decoded.unwrap_or_default();
        row.data_address = access.map(|access| access.address);
        row.data_source = access.map(|access| access.source);
        row.latency_cycles = latency.access_cycles;
        row.instruction_latency_cycles = latency.instruction_cycles;
        row.level = source.map(|source| source.level as u8);
        row.snoop = source.and_then(|source| source.snoop).map(|snoop| snoop as u8);
        row.stlb_miss = source.and_then(|source| source.stlb_miss);
        row.locked = source.and_then(|source| source.locked);
        row.blocked = source.and_then(|source| source.blocked);
    }
}

/// What all samples of a quantum have in common.
pub(super) fn of_quantum(quantum: &Quantum<'_>) -> SampleRow {
    let raw = quantum.raw();
    SampleRow { cpu: raw.cpu, pid: raw.pid, tid: raw.tid, quantum: raw.sequence, ..SampleRow::default() }
}

/// Which instruction an event's samples name, by its mode and the format of PEBS records; `u32::MAX` is no format.
pub(super) fn attribution(mode: u8, pebs_format: u32) -> Attribution {
    if mode == EventMode::Interrupt as u8 {
        return Attribution::Skid;
    }
    // Formats 0 and 1 have no EventingIP (SDM Vol. 3B 20.3.6.2).
    if pebs_format <= 1 { Attribution::Next } else { Attribution::Cause }
}

#[cfg(test)]
mod tests {
    use hpm_abi::{EVENTS_MAX, NO_EVENT, SAMPLING_COUNTERS_MAX};
    use proptest::prelude::*;
    use zerocopy::IntoBytes as _;

    use super::*;
    use crate::event::parse;
    use crate::sys::rings::Published;

    /// A quantum in which counter 2 samples event 1 once in 99.
    fn quantum(record_format: u16, records: &[u64]) -> hpm_abi::Quantum {
        let at_one = |value: u8| std::array::from_fn(|place| if place == 1 { value } else { NO_EVENT });
        hpm_abi::Quantum {
            sequence: 7,
            start_tsc: 100,
            end_tsc: 200,
            pid: 3,
            tid: 4,
            cpu: 1,
            end: 3,
            flags: 0,
            last_ip: 0,
            segment: 0,
            span_offset: 0,
            span_bytes: size_of_val(records) as u32,
            record_size: [0x90, 0xb0, 0xc0, 0xc8, 26 * 8][usize::from(record_format)],
            record_format,
            count_len: 2,
            pebs_enable: 0b100,
            pebs_data_cfg: 0,
            records_lost: 0,
            stack_offset: 0,
            stack_bytes: 0,
            active: 0b11,
            absent: 0,
            counter_event: at_one(1),
            sampler_counter: at_one(2),
            counts: [0; EVENTS_MAX],
            periods: [99; SAMPLING_COUNTERS_MAX],
        }
    }

    /// One by one, as other records are read.
    fn rows(samples_of: &SampleRows, quantum: &Quantum<'_>) -> Vec<SampleRow> {
        let mut row = of_quantum(quantum);
        let mut rows = Vec::new();
        for sample in quantum.samples().unwrap().map(Result::unwrap) {
            samples_of.set_sample(&mut row, quantum, &sample);
            for (event, period) in sample.events() {
                (row.event, row.period) = (event as u8, period);
                samples_of.set_memory(&mut row, &sample, event);
                rows.push(row.clone());
            }
        }
        rows
    }

    proptest! {
        /// All at once they are what they are one by one, of every format that hpm takes so; and nothing else is taken so.
        #[test]
        fn a_span_has_the_samples_of_its_records(
            record_format in 0..=4_u16,
            seeds in prop::collection::vec(any::<[u64; 26]>(), 1..9),
            named in prop::bool::weighted(0.8),
            addressed in any::<bool>(),
            event in prop::sample::select(vec!["load:u", "mem-loads", "cycles"]),
        ) {
            let words = usize::from(quantum(record_format, &[]).record_size) / 8;
            let mut records: Vec<u64> = seeds.iter().flat_map(|seed| seed[..words].to_vec()).collect();
            let (counters, address) = if record_format == 4 { (2, 4) } else { (18, 19) };
            if record_format > 0 {
                records.chunks_exact_mut(words).for_each(|record| record[counters] |= 0b100);
                records[counters] &= if named { u64::MAX } else { !0b100 };
                records[address] *= u64::from(addressed);
            }
            if record_format == 4 {
                // Memory access and registers.
                records.chunks_exact_mut(words).for_each(|record| record[0] = (26 * 8) << 48 | 0b11);
            }
            let raw = quantum(record_format, &records);
            let published = Published { quantum: &raw, records: records.as_bytes(), stack: &[] };
            let quantum = Quantum::new(published);
            let sampled = parse(event, "skylake").unwrap();
            let told = MemoryDecoder::tells(sampled.sampling);
            let samples_of = SampleRows::new(&[parse("cycles", "skylake").unwrap(), sampled], "skylake");
            let mut common = of_quantum(&quantum);
            let span = samples_of.span(&quantum, &mut common);
            prop_assert_eq!(span.is_some(), record_format > 0 && named && !told);
            if let Some(span) = span {
                prop_assert_eq!(span.rows().collect::<Vec<_>>(), rows(&samples_of, &quantum));
                prop_assert_eq!(span.len(), seeds.len());
            }
        }
    }

    #[test]
    fn a_rows_branches_have_cycles_where_hardware_calls_them_valid() {
        // An adaptive record of two branches; bit 60 of the second calls its cycles valid.
        let record = [(10 * 8) << 48 | 1 << 24 | 1 << 3, 8, 0b100, 9, 1, 2, 40, 3, 4, 1 << 60 | 50];
        let raw = hpm_abi::Quantum { record_size: 80, ..quantum(4, &record) };
        let cycles = |pmu| {
            let published = Published { quantum: &raw, records: record.as_bytes(), stack: &[] };
            let quantum = Quantum::new(published);
            let row =
                rows(&SampleRows::new(&vec![parse("cycles", pmu).unwrap(); 2], pmu), &quantum).remove(0);
            let (branches, _) = row.branches.as_deref().unwrap().as_chunks::<3>();
            branches.iter().map(|&[_, _, info]| info as u16).collect::<Vec<_>>()
        };
        assert_eq!(cycles("icelake"), [40, 50]);
        assert_eq!(cycles("goldencove"), [0, 50]);
    }

    /// The events of a record whose word of counters is this, where the counters in `able` sample: counter 1 event 0, counter 2 event 1.
    fn events_of(record_format: u16, able: u64, word: u64) -> Vec<usize> {
        let mut record = [0_u64; 25];
        record[18] = word;
        let mut raw = quantum(record_format, &record);
        // LL_EN of counter 2 is the bit of fixed counter 2 in IA32_PERF_GLOBAL_STATUS.
        raw.pebs_enable = able | 1 << 34;
        (raw.counter_event[0], raw.sampler_counter[0]) = (0, 1);
        let record = &record[..usize::from(raw.record_size) / 8];
        raw.span_bytes = size_of_val(record) as u32;
        let quantum = Quantum::new(Published { quantum: &raw, records: record.as_bytes(), stack: &[] });
        let sample = quantum.samples().unwrap().next().unwrap().unwrap();
        sample.events().map(|(event, _)| event).collect()
    }

    #[test]
    fn a_record_that_shows_several_overflows_is_of_no_event_where_it_need_not_be_of_all() {
        for format in [1, 2] {
            assert_eq!(events_of(format, 0b110, 0b010), [0]);
            assert_eq!(events_of(format, 0b110, 1 << 34 | 0b101), [1], "others have overflowed, too");
            assert_eq!(events_of(format, 0b110, 0b110), [0; 0]);
            assert_eq!(events_of(format, 0b110, 0), [0; 0]);
            assert_eq!(events_of(format, 0b100, 0), [1], "only one writes records");
        }
        assert_eq!(events_of(3, 0b110, 0b110), [0, 1]);
    }

    #[test]
    fn what_has_a_stack_or_two_samplers_is_taken_one_by_one() {
        let mut record = [0_u64; 25];
        record[18] = 0b100;
        let raw = quantum(3, &record);
        let taken = |raw: &hpm_abi::Quantum, stack: &[u8]| {
            let published = Published { quantum: raw, records: record.as_bytes(), stack };
            Quantum::new(published).alike().is_some()
        };
        assert!(taken(&raw, &[]));
        assert!(!taken(&raw, &[0; 8]));
        let mut two = raw;
        two.counter_event[0] = 0;
        assert!(!taken(&two, &[]));
        assert!(!taken(&hpm_abi::Quantum { pebs_enable: 0b10, ..raw }, &[]), "another counter's record");
    }
}
