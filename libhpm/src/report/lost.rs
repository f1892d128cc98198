//! When quanta were lost: then nobody knows whose they were.

use std::collections::HashMap;
use std::ops::Range;

use hpm_abi::QuantumFlags;

use crate::trace::QuantumRow;

/// What the quanta of each CPU tell of losses: (sequence, start, end, flag of losses).
#[derive(Debug, Default)]
pub(crate) struct Losses {
    cpus: HashMap<u32, Vec<(u64, u64, u64, bool)>>,
}

impl Losses {
    /// Takes a quantum; they may come in any order.
    pub(crate) fn see(&mut self, row: &QuantumRow) {
        let lost = row.flags & QuantumFlags::QUANTA_LOST_BEFORE != 0;
        self.cpus.entry(row.cpu).or_default().push((row.sequence, row.start_tsc, row.end_tsc, lost));
    }

    /// The times between two quanta of a CPU where others are missing.
    pub(crate) fn spans(self) -> LostSpans {
        let mut spans = Vec::new();
        for mut quanta in self.cpus.into_values() {
            quanta.sort_unstable();
            let mut before: Option<(u64, u64)> = None;
            for (sequence, start, end, flagged) in quanta {
                let (expected, since) = before.map_or((sequence, 0), |(last, end)| (last + 1, end));
                if (flagged || sequence != expected) && since < start {
                    spans.push(since..start);
                }
                before = Some((sequence, end));
            }
        }
        spans.sort_unstable_by_key(|span| span.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for span in spans {
            match merged.last_mut() {
                Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
                _ => merged.push(span),
            }
        }
        LostSpans(merged)
    }
}

/// When quanta were lost on some CPU: in order, without overlaps.
#[derive(Debug)]
pub(crate) struct LostSpans(Vec<Range<u64>>);

impl LostSpans {
    /// Whether quanta were lost on some CPU between these times.
    pub(crate) fn overlap(&self, from: u64, until: u64) -> bool {
        let place = self.0.partition_point(|lost| lost.end <= from);
        from < until && self.0.get(place).is_some_and(|lost| lost.start < until)
    }
}
