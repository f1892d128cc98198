//! speedscope's own format (file-format-schema.json of speedscope.app): one sampled profile for each
//! event in each thread.

use std::collections::HashMap;
use std::io::{self, Write};

use serde::Serialize;

use super::Stacks;
use super::stacks::{Shown, Track, counts_ns, outermost_first};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    name: String,
    exporter: &'static str,
    active_profile_index: usize,
    shared: Shared<'a>,
    profiles: Vec<Profile>,
}

#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<FrameOf<'a>>,
}

#[derive(Serialize)]
struct FrameOf<'a> {
    name: std::borrow::Cow<'a, str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// Places of frames, outermost first.
    samples: Vec<Vec<usize>>,
    weights: Vec<u64>,
}

/// Writes the stacks for speedscope. Values are events, the times that they count, or samples of an event that was sampled
/// only where it is dense ([`crate::trace::Event::weight`]).
///
/// # Errors
/// The output cannot be written.
pub fn write_speedscope(stacks: &Stacks<'_>, output: &mut dyn Write) -> io::Result<()> {
    let mut frames = Frames::default();
    let profiles = stacks.tracks().iter().map(|track| profile(track, &mut frames)).collect();
    let file = File {
        schema: "https://www.speedscope.app/file-format-schema.json",
        name: stacks.title(),
        exporter: concat!("hpm ", env!("CARGO_PKG_VERSION")),
        active_profile_index: 0,
        shared: Shared { frames: frames.all },
        profiles,
    };
    serde_json::to_writer(output, &file).map_err(io::Error::from)
}

/// All frames, each once.
#[derive(Default)]
struct Frames<'a> {
    places: HashMap<Shown<'a>, usize>,
    all: Vec<FrameOf<'a>>,
}

impl<'a> Frames<'a> {
    fn place(&mut self, shown: Shown<'a>) -> usize {
        *self.places.entry(shown).or_insert_with(|| {
            self.all.push(FrameOf { name: shown.name(), file: shown.file(), line: shown.line() });
            self.all.len() - 1
        })
    }
}

fn profile<'a>(track: &Track<'a>, frames: &mut Frames<'a>) -> Profile {
    let weights: Vec<u64> = track.samples.iter().map(|sample| sample.period).collect();
    Profile {
        kind: "sampled",
        name: format!("{} {}: {}", track.thread, track.tid, track.event.name),
        unit: if counts_ns(track.event) { "nanoseconds" } else { "none" },
        start_value: 0,
        end_value: weights.iter().sum(),
        samples: track
            .samples
            .iter()
            .map(|sample| outermost_first(&sample.sample).map(|shown| frames.place(shown)).collect())
            .collect(),
        weights,
    }
}
