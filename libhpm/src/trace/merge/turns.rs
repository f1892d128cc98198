//! In how much of the time each event was counted, over several traces.

use crate::trace::totals::{Totals, share};

/// How long each event of the merged trace was counted, and how long somebody was on a CPU, in the traces that have it: in the others it
/// took no turns.
pub(super) struct Turns(Vec<(u64, u64)>);

impl Turns {
    pub(super) fn new(events: usize) -> Self {
        Self(vec![(0, 0); events])
    }

    /// Adds a trace with these totals, whose events have these places in the merged one.
    pub(super) fn add(&mut self, places: &[usize], own: &Totals) {
        for (event, &place) in places.iter().enumerate() {
            let (running, on_cpu) = &mut self.0[place];
            *running = running.saturating_add(own.running(event));
            *on_cpu = on_cpu.saturating_add(own.on_cpu_tsc);
        }
    }

    /// The same shares of all the time on CPUs, as ticks for each event.
    pub(super) fn of(&self, on_cpu_tsc: u64) -> Vec<u64> {
        let ticks = |&(running, on_cpu): &(u64, u64)| match on_cpu {
            0 => on_cpu_tsc,
            on_cpu => share(on_cpu_tsc, running, on_cpu),
        };
        self.0.iter().map(ticks).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::trace::{Clock, ClockPair, Event, Meta, QuantumRow, TraceReader, TraceWriter, merge};

    /// A trace of a quantum, which has counted 5 of each event; with these totals, or killed.
    fn write(folder: &Path, name: &str, events: &[&str], totals: Option<Totals>) -> TraceReader {
        let counts = vec![5; events.len()];
        let events = events.iter().map(|name| Event { name: (*name).into(), ..Event::default() }).collect();
        let clock = Clock { tsc_khz: 1000, pairs: vec![ClockPair::default()] };
        let meta = Meta { events, clock, command: vec![name.into()], ..Meta::default() };
        let mut writer = TraceWriter::create(folder.join(name), meta).unwrap();
        writer
            .quantum(&QuantumRow { counts, end_tsc: 100, records_lost: 1, ..QuantumRow::default() })
            .unwrap();
        writer.flush().unwrap();
        if let Some(totals) = totals {
            writer.finish(totals).unwrap();
        }
        TraceReader::open(folder.join(name)).unwrap()
    }

    #[test]
    fn losses_and_turns_of_all_traces_are_told() {
        let temp = tempfile::tempdir().unwrap();
        let lost = |count: u64, running_tsc: Vec<u64>| {
            let counts = vec![7; 2];
            let (records_lost, throttled) = (10 * count, count);
            Totals { counts, records_lost, throttled, running_tsc, on_cpu_tsc: 100, ..Totals::default() }
        };
        let traces = [
            write(temp.path(), "a", &["cycles", "loads"], Some(lost(1, vec![100, 50]))),
            write(temp.path(), "b", &["cycles", "stores"], Some(lost(2, vec![]))),
            write(temp.path(), "c", &["cycles", "loads"], None),
        ];
        let folder = temp.path().join("m.hpm");
        merge(&traces.each_ref(), &folder).unwrap();
        let merged = TraceReader::open(&folder).unwrap().meta().clone();
        let names: Vec<&str> = merged.events.iter().map(|event| event.name.as_str()).collect();
        assert_eq!(names, ["cycles", "loads", "stores"]);
        let totals = merged.totals.unwrap();
        assert_eq!(totals.counts, [7 + 7 + 5, 7 + 5, 7]);
        assert_eq!((totals.records_lost, totals.throttled), (10 + 20 + 1, 3));
        assert_eq!(totals.on_cpu_tsc, 300);
        assert_eq!(totals.running_tsc, [300, 225, 300], "of the loads' 200 ticks 150 were counted");
    }
}
