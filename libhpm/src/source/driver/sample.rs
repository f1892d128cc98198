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
        let (Some(access), Some((event, decoder))) = (access, self.0.get(event)) else { return };
        let latency = decoder.map(|decoder| decoder.latency(access, event.sampling)).unwrap_or_default();
        let source = decoder.and_then(|decoder| decoder.source(access, event.sampling));
        row.data_address = Some(access.address);
        row.data_source = Some(access.source);
        row.latency_cycles = latency.access_cycles;
        row.instruction_latency_cycles = latency.instruction_cycles;
        row.level = source.map(|source| source.level as u8);
        row.snoop = source.and_then(|source| source.snoop).map(|snoop| snoop as u8);
        row.stlb_miss = source.and_then(|source| source.stlb_miss);
        row.locked = source.and_then(|source| source.locked);
        row.blocked = source.and_then(|source| source.blocked);
    }
}

/// Everything but event, period, stack and memory access.
pub(super) fn common(quantum: &Quantum<'_>, sample: &Sample<'_>) -> SampleRow {
    let (raw, record) = (quantum.raw(), &sample.record);
    let branches = sample.branches();
    let words = || branches.iter().flat_map(|branch| [branch.from, branch.to, branch.info]).collect();
    SampleRow {
        tsc: record.tsc.unwrap_or(raw.end_tsc),
        cpu: raw.cpu,
        pid: raw.pid,
        tid: raw.tid,
        quantum: raw.sequence,
        ip: record.ip,
        // The registers of IBS are those of the interrupt, some instructions later.
        next_ip: record
            .registers
            .filter(|_| raw.record_format != RECORD_FORMAT_IBS)
            .map(|registers| registers.rip()),
        retire_latency_cycles: record.retire_latency_cycles,
        branches: (!branches.is_empty()).then(words),
        registers: record.registers.map(|registers| Registers(registers.to_array())),
        ..SampleRow::default()
    }
}

/// Which instruction an event's samples name, by its mode and the format of PEBS records; `u32::MAX` is no format.
pub(super) fn attribution(mode: u8, pebs_format: u32) -> Attribution {
    if mode == EventMode::Interrupt as u8 {
        return Attribution::Skid;
    }
    // Formats 0 and 1 have no EventingIP (SDM Vol. 3B 20.3.6.2).
    if pebs_format <= 1 { Attribution::Next } else { Attribution::Cause }
}
