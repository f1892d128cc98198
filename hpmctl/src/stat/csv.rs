//! Counts as comma-separated values (RFC 4180, with line feeds): one line for each count, empty fields for what is not known.

use libhpm::export::csv_line;

use super::breakdown::Who;
use super::{Counted, EventCount, Slice};

const COLUMNS: [&str; 13] = [
    "interval_end_s",
    "cpu",
    "pid",
    "tid",
    "thread",
    "event",
    "count",
    "scaled",
    "unit",
    "enabled_ns",
    "running_ns",
    "metric",
    "metric_unit",
];

/// The names of the columns.
pub(super) fn header() -> String {
    csv_line(COLUMNS)
}

/// The counts of a part or an interval. Shares of issue slots are lines with their name as event.
pub(super) fn slice(slice: &Slice) -> String {
    let at = slice.until_ns.map_or_else(String::new, |ns| format!("{:.6}", ns as f64 / 1e9));
    let who = match &slice.who {
        None => [String::new(), String::new(), String::new(), String::new()],
        Some(Who::Cpu { cpu }) => [cpu.to_string(), String::new(), String::new(), String::new()],
        Some(Who::Thread { pid, tid, thread, .. }) => {
            [String::new(), pid.to_string(), tid.to_string(), thread.clone()]
        }
    };
    let begin = || std::iter::once(at.clone()).chain(who.clone());
    let counts = slice.events.iter().map(|event| csv_line(begin().chain(count(event))));
    let shares = slice.topdown.iter().map(|share| {
        let percent = format!("{:.3}", share.share * 100.0);
        let empty = || [const { String::new() }; 5];
        csv_line(begin().chain([share.label()]).chain(empty()).chain([percent, "%".to_owned()]))
    });
    counts.chain(shares).collect()
}

/// All counts, then those of each part.
pub(super) fn whole(counted: &Counted) -> String {
    let all = Slice {
        who: None,
        until_ns: None,
        on_cpu_ns: counted.on_cpu_ns,
        events: counted.events.clone(),
        topdown: counted.topdown.clone(),
    };
    std::iter::once(&all).chain(&counted.parts).map(slice).collect()
}

fn count(event: &EventCount) -> [String; 8] {
    let metric = event.metric.as_ref();
    [
        event.name.clone(),
        event.count.to_string(),
        event.scaled.map_or_else(String::new, |scaled| scaled.to_string()),
        event.unit.unwrap_or_default().to_owned(),
        event.enabled_ns.to_string(),
        event.running_ns.to_string(),
        metric.map_or_else(String::new, |metric| metric.value.to_string()),
        metric.map_or_else(String::new, |metric| metric.unit.to_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::text::tests::{counted, event};

    #[test]
    fn every_count_has_a_line_with_every_column() {
        let mut all = counted(vec![event("cycles", 4_500_000, true), event("instructions", 9_000_000, true)]);
        all.parts = vec![Slice {
            who: Some(Who::Thread { pid: 7, tid: 8, thread: "a,b".into(), earlier: 0 }),
            until_ns: Some(1_500_000_000),
            on_cpu_ns: 5,
            events: vec![event("cycles", 5, true)],
            topdown: vec![],
        }];
        all.parts.push(Slice {
            who: None,
            until_ns: None,
            events: vec![event("task-clock", 6, true)],
            ..all.parts[0].clone()
        });
        let text = header() + &whole(&all);
        let expected = "interval_end_s,cpu,pid,tid,thread,event,count,scaled,unit,enabled_ns,running_ns,metric,metric_unit\n\
            ,,,,,cycles,4500000,4500000,,1500000,1500000,3,GHz\n\
            ,,,,,instructions,9000000,9000000,,1500000,1500000,2,per cycle\n\
            1.500000,,7,8,\"a,b\",cycles,5,5,,1500000,1500000,,\n\
            ,,,,,task-clock,6,6,ns,1500000,1500000,,\n";
        assert_eq!(text, expected);
    }
}
