//! Flame graphs: call stacks as an SVG picture that opens in any browser.

use std::collections::BTreeMap;
use std::io::{self, Write};

use inferno::flamegraph::{self, Options};

use crate::report::{Extent, Sample, Sum};

/// Stacks folded into lines `thread;outermost;…;innermost EVENTS`, as flame graph tools exchange them.
#[derive(Debug, Default)]
pub struct FoldedStacks(BTreeMap<String, u64>);

impl FoldedStacks {
    /// Counts samples that say the same. A stack without its outermost calls hangs below `[truncated]`.
    pub fn add(&mut self, sample: &Sample, sum: Sum) {
        let mut line = name(&sample.thread_name);
        if sample.chain.extent == Extent::Truncated {
            line.push_str(";[truncated]");
        }
        for frame in sample.chain.calls.iter().rev().flat_map(|frames| frames.iter().rev()) {
            line.push(';');
            match &frame.function {
                Some(function) => line.push_str(&name(function)),
                None => line.push_str(&name(&format!("[{}]", file_name(&frame.module)))),
            }
        }
        let events = self.0.entry(line).or_default();
        *events = events.saturating_add(sum.events);
    }

    /// Whether there is nothing to draw.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lines.
    pub fn lines(&self) -> impl Iterator<Item = String> {
        self.0.iter().map(|(stack, events)| format!("{stack} {events}"))
    }

    /// Draws the flame graph; `unit` says what widths are.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn write_svg(&self, title: &str, unit: &str, output: impl Write) -> io::Result<()> {
        let mut options = Options::default();
        options.title = title.to_owned();
        options.count_name = unit.to_owned();
        // The same function has the same colour in every picture.
        options.hash = true;
        let lines: Vec<String> = self.lines().collect();
        flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), output)
            .map_err(io::Error::other)
    }
}

/// A name without the characters that separate functions and end a line.
fn name(name: &str) -> String {
    if name.is_empty() { "[unknown]".to_owned() } else { name.replace(';', ":").replace(['\n', '\r'], " ") }
}

fn file_name(path: &str) -> &str {
    path.trim_matches(['[', ']']).rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::CallChain;
    use crate::symbol::Frame;

    const SUM: Sum = Sum { samples: 1, events: 7, timed: 0, latency_cycles: 0, squares: 49 };

    fn sample(extent: Extent) -> Sample {
        let frame = |function: Option<&str>, inlined| Frame {
            function: function.map(Into::into),
            module: "/usr/lib/libm.so.6".into(),
            inlined,
            ..Frame::default()
        };
        let calls = vec![
            [frame(Some("inlined"), true), frame(Some("operator;(int)"), false)].into(),
            [frame(None, false)].into(),
            [frame(Some("_start"), false)].into(),
        ];
        Sample {
            event: 0,
            cpu: 0,
            pid: 1,
            tid: 1,
            thread_name: "worker".into(),
            last_thread_name: "worker".into(),
            process_name: "program".into(),
            ip: 0,
            chain: CallChain { calls, linked_address: 0, extent }.into(),
            source: None,
            region: None,
        }
    }

    #[test]
    fn stacks_fold_from_the_outermost_call() {
        let mut stacks = FoldedStacks::default();
        stacks.add(&sample(Extent::Whole), SUM);
        stacks.add(&sample(Extent::Truncated), SUM);
        stacks.add(&sample(Extent::Whole), SUM);
        assert_eq!(
            stacks.lines().collect::<Vec<_>>(),
            [
                "worker;[truncated];_start;[libm.so.6];operator:(int);inlined 7",
                "worker;_start;[libm.so.6];operator:(int);inlined 14",
            ]
        );
    }

    #[test]
    fn the_picture_names_functions_and_the_event() {
        let mut stacks = FoldedStacks::default();
        stacks.add(&sample(Extent::Whole), SUM);
        let mut svg = Vec::new();
        stacks.write_svg("program", "l1d-load-miss (estimated)", &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        assert!(svg.contains("<svg") && svg.contains("_start") && svg.contains("l1d-load-miss (estimated)"));
    }
}
