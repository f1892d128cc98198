//! What has to be known of a trace before its tables can be believed.

use hpm_abi::QuantumFlags;
use serde::Serialize;

use super::{Extent, Filter, Resolver, Sample, Sum};
use crate::trace::{Cut, Event, QuantumRow, TraceReader};

/// Sums over a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// One for each event of `meta.json`.
    pub events: Vec<EventSummary>,
    /// Quanta in the trace.
    pub quanta: u64,
    /// Quanta of the whole trace that are missing because the rings were full, as far as known: whose they were is not, whatever
    /// the filter chooses.
    pub quanta_lost: u64,
    /// Records that could not be written or were held back, as far as known.
    pub records_lost: u64,
    /// Records of the whole trace that do not say which event they are of, and are no samples
    /// ([`crate::trace::Totals::records_unattributed`]).
    pub records_unattributed: u64,
    /// Quanta in which the driver held samples back ([`hpm_abi::QuantumFlags::THROTTLED`]), as far as known.
    pub throttled: u64,
}

/// Sums over a trace for one event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventSummary {
    /// The event.
    pub event: Event,
    /// Its samples; `events` estimates the count, but where they come only where the event is dense ([`Event::within`]).
    pub sampled: Sum,
    /// What was counted: by the driver over the whole session, or, when the trace is not complete or quanta are chosen, the sum
    /// of its quanta.
    pub counted: u64,
    /// Share of the time in which it was counted, when it had to take turns with others: `counted` is not scaled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_share: Option<f64>,
    /// Samples whose stack reaches to the thread's first function.
    pub whole_stacks: u64,
    /// Samples whose stack lacks its outermost calls.
    pub truncated_stacks: u64,
}

impl Summary {
    /// From `meta.json` and the quanta that the filter takes; samples are added by [`Summary::add`]. The cut is that of the table
    /// of quanta.
    #[must_use]
    pub fn new(reader: &TraceReader, filter: &Filter, names: &Resolver) -> (Self, Option<Cut>) {
        let meta = reader.meta();
        let event = |event: &Event| EventSummary {
            event: event.clone(),
            sampled: Sum::default(),
            counted: 0,
            counted_share: None,
            whole_stacks: 0,
            truncated_stacks: 0,
        };
        let events = meta.events.iter().map(event).collect();
        let mut summary = Self {
            events,
            quanta: 0,
            quanta_lost: 0,
            records_lost: 0,
            records_unattributed: 0,
            throttled: 0,
        };
        let mut rows = reader.rows::<QuantumRow>();
        let taken = |row: &QuantumRow| filter.takes_quantum(row, &names.name_at(row.tid, row.end_tsc));
        rows.by_ref().filter(taken).for_each(|row| summary.add_quantum(&row));
        if let Some(totals) = &meta.totals {
            for (event, &running) in summary.events.iter_mut().zip(&totals.running_tsc) {
                let share = running as f64 / totals.on_cpu_tsc.max(1) as f64;
                event.counted_share = (running < totals.on_cpu_tsc).then_some(share);
            }
        }
        if let Some(totals) = &meta.totals {
            summary.quanta_lost = totals.quanta_lost;
            summary.records_unattributed = totals.records_unattributed;
        }
        if let Some(totals) = meta.totals.as_ref().filter(|_| !filter.chooses_quanta()) {
            summary.records_lost = totals.records_lost;
            summary.throttled = totals.throttled;
            for (event, &count) in summary.events.iter_mut().zip(&totals.counts) {
                event.counted = count;
            }
        }
        (summary, rows.cut())
    }

    fn add_quantum(&mut self, row: &QuantumRow) {
        self.quanta += 1;
        self.records_lost = self.records_lost.saturating_add(row.records_lost);
        self.throttled += u64::from(row.flags & QuantumFlags::THROTTLED != 0);
        for (event, &count) in self.events.iter_mut().zip(&row.counts) {
            event.counted = event.counted.saturating_add(count);
        }
    }

    /// Takes samples that say the same into account. Those of an event that `meta.json` does not have are left out.
    pub fn add(&mut self, sample: &Sample, sum: Sum) {
        let Some(event) = self.events.get_mut(usize::from(sample.event)) else { return };
        event.sampled.add(sum);
        match sample.chain.extent {
            Extent::Whole => event.whole_stacks += sum.samples,
            Extent::Truncated => event.truncated_stacks += sum.samples,
            Extent::AddressOnly => {}
        }
    }
}
