//! pprof's profile.proto, compressed as it has to be: one profile with the samples of all events.

mod proto;

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

pub(super) use self::proto::Profile;
use self::proto::{Function, Label, Line, Location, Mapping, Sample, ValueType};
use super::stacks::{Shown, counts_ns, weight_name};
use super::{StackSample, Stacks};
use crate::report::{Extent, SharedChain};
use crate::symbol::Frame;

/// Writes the stacks for pprof. Each event has two values: its samples, and the events that they stand for.
///
/// # Errors
/// The output cannot be written.
pub fn write_pprof(stacks: &Stacks<'_>, output: &mut dyn Write) -> io::Result<()> {
    let mut compressed = GzEncoder::new(output, Compression::default());
    compressed.write_all(&Builder::new(stacks).profile().encode_to_vec())?;
    compressed.finish().map(drop)
}

/// What makes samples equal: their locations, process and thread.
type Key = (Vec<u64>, u32, u32);

struct Builder<'a> {
    stacks: &'a Stacks<'a>,
    profile: Profile,
    /// Places of strings in their table; place 0 is the empty one.
    strings: HashMap<String, i64>,
    mappings: HashMap<&'a str, u64>,
    functions: HashMap<(i64, i64), u64>,
    locations: HashMap<&'a [Frame], u64>,
    chains: HashMap<&'a SharedChain, Vec<u64>>,
    truncated: Option<u64>,
}

impl<'a> Builder<'a> {
    fn new(stacks: &'a Stacks<'a>) -> Self {
        let mut builder = Self {
            stacks,
            profile: Profile::default(),
            strings: HashMap::new(),
            mappings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
            chains: HashMap::new(),
            truncated: None,
        };
        builder.string("");
        builder
    }

    fn profile(mut self) -> Profile {
        self.head();
        let keys = ["thread", "tid", "pid"].map(|key| self.string(key));
        let mut known: HashMap<Key, usize> = HashMap::new();
        for sample in &self.stacks.samples {
            let key = (self.chain(&sample.sample.chain), sample.sample.pid, sample.sample.tid);
            let place = *known.entry(key).or_insert_with_key(|key| {
                let label = self.labels(keys, sample);
                let value = vec![0; self.profile.sample_type.len()];
                self.profile.sample.push(Sample { location_id: key.0.clone(), value, label });
                self.profile.sample.len() - 1
            });
            let event =
                self.stacks.events.iter().position(|&event| event == usize::from(sample.sample.event));
            let Some(event) = event else { continue };
            let value = &mut self.profile.sample[place].value[2 * event..];
            value[0] += 1;
            value[1] = value[1].saturating_add(i64::try_from(sample.period).unwrap_or(i64::MAX));
        }
        self.profile
    }

    /// What the values are, when and how they were taken, and what has to be known of them.
    fn head(&mut self) {
        let stacks = self.stacks;
        for &index in &stacks.events {
            let event = stacks.event(index);
            let unit = self.string(if counts_ns(event) { "nanoseconds" } else { "count" });
            let samples = ValueType {
                kind: self.string(&format!("{}_samples", event.name)),
                unit: self.string("count"),
            };
            let events = ValueType { kind: self.string(&weight_name(event)), unit };
            self.profile.sample_type.extend([samples, events]);
        }
        let first = stacks.events.first().map(|&index| stacks.event(index));
        self.profile.default_sample_type = first.map_or(0, |event| self.string(&weight_name(event)));
        self.profile.period_type = self.profile.sample_type.get(1).copied();
        self.profile.period = first.map_or(0, |event| event.weight(event.period) as i64);
        self.profile.time_nanos = stacks.meta().clock.pairs.first().map_or(0, |pair| pair.realtime_ns as i64);
        self.profile.duration_nanos = stacks.samples.last().map_or(0, |sample| sample.time_ns as i64);
        let command = stacks.meta().command.join(" ");
        let comments = std::iter::once(&command).chain(&stacks.remarks).filter(|text| !text.is_empty());
        self.profile.comment = comments.map(|text| self.string(text)).collect();
        // pprof takes the first mapping for the program, so that it comes before those of libraries.
        if let Some(program) = stacks.meta().command.first() {
            let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
            let frames = stacks.samples.iter().flat_map(|sample| &sample.sample.chain.calls);
            let own =
                frames.flat_map(|frames| frames.iter()).find(|frame| name(&frame.module) == name(program));
            own.map(|frame| self.mapping(&frame.module));
        }
    }

    fn string(&mut self, text: &str) -> i64 {
        if let Some(&place) = self.strings.get(text) {
            return place;
        }
        let place = self.profile.string_table.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), place);
        place
    }

    fn labels(&mut self, [thread, tid, pid]: [i64; 3], sample: &StackSample) -> Vec<Label> {
        let name = self.string(&sample.sample.thread_name);
        let number = |key, num: u32| Label { key, str: 0, num: num.into() };
        vec![
            Label { key: thread, str: name, num: 0 },
            number(tid, sample.sample.tid),
            number(pid, sample.sample.pid),
        ]
    }

    /// The locations of a stack, innermost first.
    fn chain(&mut self, chain: &'a SharedChain) -> Vec<u64> {
        if let Some(known) = self.chains.get(chain) {
            return known.clone();
        }
        let mut locations: Vec<u64> = chain.calls.iter().map(|frames| self.location(frames)).collect();
        if chain.extent == Extent::Truncated {
            locations.push(self.truncated());
        }
        self.chains.insert(chain, locations.clone());
        locations
    }

    fn location(&mut self, frames: &'a [Frame]) -> u64 {
        if let Some(&known) = self.locations.get(frames) {
            return known;
        }
        let line = frames.iter().map(|frame| self.line(Shown::Frame(frame))).collect();
        let mapping_id = frames.last().map_or(0, |frame| self.mapping(&frame.module));
        let id = self.add_location(mapping_id, line);
        self.locations.insert(frames, id);
        id
    }

    fn truncated(&mut self) -> u64 {
        if let Some(known) = self.truncated {
            return known;
        }
        let line = self.line(Shown::Truncated);
        let id = self.add_location(0, vec![line]);
        self.truncated = Some(id);
        id
    }

    fn add_location(&mut self, mapping_id: u64, line: Vec<Line>) -> u64 {
        let id = self.profile.location.len() as u64 + 1;
        self.profile.location.push(Location { id, mapping_id, line });
        id
    }

    fn line(&mut self, shown: Shown<'_>) -> Line {
        let (name, filename) = (self.string(&shown.name()), self.string(shown.file().unwrap_or_default()));
        let next = self.profile.function.len() as u64 + 1;
        let id = *self.functions.entry((name, filename)).or_insert(next);
        if id == next {
            self.profile.function.push(Function { id, name, filename });
        }
        Line { function_id: id, line: shown.line().unwrap_or(0).into() }
    }

    fn mapping(&mut self, module: &'a str) -> u64 {
        if let Some(&known) = self.mappings.get(module) {
            return known;
        }
        let (id, filename) = (self.profile.mapping.len() as u64 + 1, self.string(module));
        let (has_functions, has_filenames, has_line_numbers, has_inline_frames) = (true, true, true, true);
        self.profile.mapping.push(Mapping {
            id,
            filename,
            has_functions,
            has_filenames,
            has_line_numbers,
            has_inline_frames,
        });
        self.mappings.insert(module, id);
        id
    }
}
