//! How long threads have been on a CPU, from their quanta.

use std::collections::HashMap;

use super::ticks_to_ns;
use crate::trace::{QuantumRow, TraceReader};

/// The stays of each thread on a CPU.
pub(super) struct OnCpu(HashMap<u32, Vec<Stay>>);

/// One stay, and how long the earlier ones of its thread were together, in ns.
struct Stay {
    start_ns: u64,
    end_ns: u64,
    before_ns: u64,
}

impl OnCpu {
    /// Of all quanta of a trace; times count from `first_tsc`.
    pub(super) fn read(reader: &TraceReader, first_tsc: u64) -> Self {
        let khz = reader.meta().clock.tsc_khz;
        let ns = |tsc: u64| ticks_to_ns(tsc.saturating_sub(first_tsc), khz);
        let mut threads: HashMap<u32, Vec<Stay>> = HashMap::new();
        for row in reader.rows::<QuantumRow>() {
            let stay = Stay { start_ns: ns(row.start_tsc), end_ns: ns(row.end_tsc), before_ns: 0 };
            threads.entry(row.tid).or_default().push(stay);
        }
        for stays in threads.values_mut() {
            stays.sort_by_key(|stay| stay.start_ns);
            let mut before_ns = 0;
            for stay in stays {
                stay.before_ns = before_ns;
                before_ns += stay.end_ns.saturating_sub(stay.start_ns);
            }
        }
        Self(threads)
    }

    /// Time that a thread has been on a CPU until then, in ns.
    pub(super) fn until(&self, tid: u32, time_ns: u64) -> u64 {
        let Some(stays) = self.0.get(&tid) else { return 0 };
        let begun = stays.partition_point(|stay| stay.start_ns <= time_ns);
        let Some(last) = begun.checked_sub(1).map(|last| &stays[last]) else { return 0 };
        last.before_ns + time_ns.min(last.end_ns).saturating_sub(last.start_ns)
    }
}
