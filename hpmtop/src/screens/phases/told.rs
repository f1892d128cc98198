//! The phases of a process for other programs: the ribbon as segments, and how far the detector has come.

use libhpm::analysis::phase::PatternKey;
use serde_json::{Value, json};

use crate::model::{Ribbon, Stretch};

/// A stretch of the ribbon that is drawn in one colour.
struct Segment {
    start_ns: u64,
    end_ns: u64,
    pattern: Option<PatternKey>,
    predicted: bool,
}

fn segments(ribbon: &Ribbon) -> Vec<Segment> {
    let mut segments: Vec<Segment> = Vec::new();
    for stretch in &ribbon.stretches {
        let Stretch { start_ns, end_ns, pattern, predicted, begins, .. } = *stretch;
        match segments.last_mut() {
            Some(last) if !begins && last.pattern == pattern => last.end_ns = end_ns,
            _ => segments.push(Segment { start_ns, end_ns, pattern, predicted }),
        }
    }
    segments
}

/// `intervals` that the detector has taken, and the `changes` that it found in them: each is a pattern that is complete. The last
/// interval ended at `end_ns`.
pub(super) fn ribbon(pid: u32, ribbon: &Ribbon) -> Value {
    let segment = |segment: Segment| {
        json!({
            "start_ns": segment.start_ns,
            "end_ns": segment.end_ns,
            "pattern": segment.pattern.map(|key| key.to_string()),
            "predicted": segment.predicted,
        })
    };
    json!({
        "pid": pid,
        "intervals": ribbon.intervals,
        "changes": ribbon.changes,
        "current": ribbon.current.map(|key| key.to_string()),
        "end_ns": ribbon.stretches.back().map(|stretch| stretch.end_ns),
        "segments": segments(ribbon).into_iter().map(segment).collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_of_one_pattern_are_one_segment_until_the_next_begins() {
        let stretch = |n: u64, begins| Stretch {
            start_ns: n * 10,
            end_ns: n * 10 + 10,
            density: None,
            pattern: None,
            predicted: false,
            begins,
        };
        let mut made = Ribbon::default();
        made.stretches = [stretch(0, false), stretch(1, false), stretch(2, true), stretch(3, false)].into();
        made.changes = 1;
        let told = ribbon(7, &made);
        let ends: Vec<_> = told["segments"].as_array().unwrap().iter().map(|one| &one["end_ns"]).collect();
        assert_eq!(ends, [20, 40]);
        assert_eq!(
            (&told["end_ns"], &told["changes"], &told["current"]),
            (&json!(40), &json!(1), &Value::Null)
        );
    }
}
