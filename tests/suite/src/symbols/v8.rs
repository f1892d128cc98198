//! Where V8 itself says that the code which it made comes from: what `--print-opt-code` prints.

use std::collections::{BTreeMap, HashMap};

use anyhow::{Result, ensure};
use libhpm::symbol::Frame;

use super::Resolved;

/// Functions that V8 optimised.
pub(super) struct Listing {
    /// By first address the bytes of code, and offsets of instructions with the script's offsets.
    functions: BTreeMap<u64, (u64, Vec<(u64, usize)>)>,
    /// Where each line of the script begins.
    lines: Vec<usize>,
}

impl Listing {
    /// Reads what V8 printed of a script.
    pub(super) fn parse(printed: &str, script: &str) -> Self {
        let mut functions = BTreeMap::new();
        let mut printed = printed.lines();
        while let Some(size) = printed.find_map(|line| line.strip_prefix("Instructions (size = ")) {
            let size = size.trim_end_matches(')').parse().unwrap_or(0);
            let start = printed.next().and_then(|line| number(line.split_whitespace().next()?));
            printed.by_ref().find(|line| line.starts_with("Source positions:"));
            let positions = printed.by_ref().skip(1).map_while(|line| {
                let mut words = line.split_whitespace();
                Some((u64::from_str_radix(words.next()?, 16).ok()?, words.next()?.parse().ok()?))
            });
            let positions = positions.collect();
            if let Some(start) = start {
                functions.insert(start, (size, positions));
            }
        }
        let ends = script.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { functions, lines: std::iter::once(0).chain(ends).collect() }
    }

    /// Compares the lines of the samples in optimised functions of the script.
    pub(super) fn compare(&self, samples: &[Resolved], script: &str) -> Result<String> {
        let mut same = 0;
        let mut others = HashMap::new();
        for sample in samples {
            // The star is V8's mark of optimised code.
            let is_optimised = |frame: &&Frame| {
                frame
                    .function
                    .as_deref()
                    .is_some_and(|name| name.starts_with("JS:*") && name.contains(script))
            };
            let Some(frame) = sample.frames.first().filter(is_optimised) else { continue };
            let Some(line) = self.line(sample.address) else { continue };
            if frame.line == Some(line) && frame.file.as_deref() == Some(script) {
                same += 1;
            } else {
                let name = frame.function.as_deref().unwrap_or("??");
                *others
                    .entry(format!("{name}: hpm {:?}, V8 {line}", (&frame.file, frame.line)))
                    .or_insert(0) += 1;
            }
        }
        ensure!(others.is_empty(), "{same} lines as V8 says, but {others:?}");
        ensure!(same >= 1000, "only {same} samples have a line in an optimised function");
        Ok(format!("{same} lines of optimised functions as V8 prints them"))
    }

    fn line(&self, address: u64) -> Option<u32> {
        let (start, (size, positions)) = self.functions.range(..=address).next_back()?;
        if address - start >= *size {
            return None;
        }
        let after = positions.partition_point(|(offset, _)| *offset <= address - start);
        let (_, at) = positions.get(after.checked_sub(1)?)?;
        u32::try_from(self.lines.partition_point(|line| line <= at)).ok()
    }
}

fn number(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}
