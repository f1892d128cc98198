//! Samples as rows of the trace.

use crate::event::{CoreType, Event, core_pmus};
use crate::record::{Attribution, MemoryDecoder};
use crate::session::{EventMode, Quantum, RECORD_FORMAT_IBS, Sample};
use crate::trace::{Registers, SampleRow};

/// What is known of each event's samples.
pub(super) struct SampleRows(Vec<(Event, Option<MemoryDecoder>)>);

impl SampleRows {
    /// For these events on a PMU, or on the two of a hybrid processor.
    pub(super) fn new(events: &[Event], pmu: &str) -> Self {
        let decoder = |event: &Event| {
            let wanted =
                |core_type: CoreType| event.core_type == CoreType::Any || event.core_type == core_type;
            let (_, pmu) = core_pmus(pmu).find(|(core_type, _)| wanted(*core_type))?;
            MemoryDecoder::new(pmu)
        };
        Self(events.iter().map(|event| (event.clone(), decoder(event))).collect())
    }

    /// Puts into the row what the sample's record says of this event's memory access, in place of what it said of another's.
    pub(super) fn set_memory(&self, row: &mut SampleRow, sample: &Sample<'_>, event: usize) {
        // An event without a data address leaves the field 0.
        let access = sample.record.memory.filter(|access| access.address != 0);
        let decoded = access.zip(self.0.get(event)).and_then(|(access, (event, decoder))| {
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

/// Puts everything into the row of a sample's quantum but event, period, stack and memory access. A row serves for all samples of the
/// quantum, because making and moving one of 400 bytes costs more than what is in it.
pub(super) fn set_sample(row: &mut SampleRow, quantum: &Quantum<'_>, sample: &Sample<'_>) {
    let (raw, record) = (quantum.raw(), &sample.record);
    let branches = sample.branches();
    let words = || branches.iter().flat_map(|branch| [branch.from, branch.to, branch.info]).collect();
    row.tsc = record.tsc.unwrap_or(raw.end_tsc);
    row.ip = record.ip;
    // The registers of IBS are those of the interrupt, some instructions later.
    let next = record.registers.filter(|_| raw.record_format != RECORD_FORMAT_IBS);
    row.next_ip = next.map(crate::record::Registers::rip);
    row.retire_latency_cycles = record.retire_latency_cycles;
    row.branches = (!branches.is_empty()).then(words);
    row.registers = record.registers.map(|registers| Registers(registers.to_array()));
}

/// Which instruction an event's samples name, by its mode and the format of PEBS records; `u32::MAX` is no format.
pub(super) fn attribution(mode: u8, pebs_format: u32) -> Attribution {
    if mode == EventMode::Interrupt as u8 {
        return Attribution::Skid;
    }
    // Formats 0 and 1 have no EventingIP (SDM Vol. 3B 20.3.6.2).
    if pebs_format <= 1 { Attribution::Next } else { Attribution::Cause }
}
