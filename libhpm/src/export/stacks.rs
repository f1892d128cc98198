//! The samples of a trace with their functions, as all formats of stacks need them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{first_tsc, remarks, ticks_to_ns};
use crate::report::{Extent, Resolver, Sample};
use crate::source::perf;
use crate::symbol::Frame;
use crate::trace::{Cut, Event, EventUse, Meta, SampleRow, TraceReader};

/// The samples of some events with their functions, in the order of time.
pub struct Stacks<'a> {
    pub(super) reader: &'a TraceReader,
    /// TSC of time 0.
    pub(super) first_tsc: u64,
    /// Indices of the events, ascending.
    pub events: Vec<usize>,
    /// The samples.
    pub samples: Vec<StackSample>,
    /// What has to be known of them: see [`remarks()`].
    pub remarks: Vec<String>,
}

/// A sample with its functions.
#[derive(Clone, Debug)]
pub struct StackSample {
    /// Time in ns since the trace's first quantum began.
    pub time_ns: u64,
    /// Events that it stands for ([`Event::weight`]).
    pub period: u64,
    /// Who and where.
    pub sample: Sample,
}

/// The samples of one event in one thread.
pub(super) struct Track<'a> {
    pub(super) event: &'a Event,
    pub(super) pid: u32,
    pub(super) tid: u32,
    /// The thread's last name.
    pub(super) thread: Arc<str>,
    /// In the order of time.
    pub(super) samples: Vec<&'a StackSample>,
}

impl<'a> Stacks<'a> {
    /// Reads and resolves the samples of the events with these indices. The cut is that of the table of samples.
    #[must_use]
    pub fn read(reader: &'a TraceReader, resolver: &mut Resolver, events: &[usize]) -> (Self, Option<Cut>) {
        let (khz, first_tsc) = (reader.meta().clock.tsc_khz, first_tsc(reader));
        let mut rows = reader.rows::<SampleRow>();
        let wanted = |row: &SampleRow| events.contains(&row.event.into());
        let of = |row: &SampleRow| reader.meta().events.get(usize::from(row.event));
        let mut samples: Vec<StackSample> = rows
            .by_ref()
            .filter(wanted)
            .map(|row| StackSample {
                time_ns: ticks_to_ns(row.tsc.saturating_sub(first_tsc), khz),
                period: of(&row).map_or(row.period, |event| event.weight(row.period)),
                sample: resolver.resolve(&row),
            })
            .collect();
        // A batch of a trace holds one CPU's samples after another's.
        samples.sort_by_key(|sample| sample.time_ns);
        let events = events.to_vec();
        (Self { reader, first_tsc, events, samples, remarks: remarks(reader.meta()) }, rows.cut())
    }

    pub(super) fn meta(&self) -> &'a Meta {
        self.reader.meta()
    }

    /// An event by its index in `meta.json`, which must have it.
    pub(super) fn event(&self, index: usize) -> &'a Event {
        &self.meta().events[index]
    }

    /// The names of the events.
    pub(super) fn event_names(&self) -> String {
        self.events.iter().map(|&index| self.event(index).name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// What was measured, and what has to be known of it.
    pub(super) fn title(&self) -> String {
        let what = match self.meta().command.first() {
            Some(program) => program.rsplit('/').next().unwrap_or(program),
            None => &self.meta().machine.host_name,
        };
        let remarks: Vec<&str> =
            std::iter::once(what).chain(self.remarks.iter().map(String::as_str)).collect();
        remarks.join("; ")
    }

    /// The samples of each event in each thread, in the order of their numbers.
    pub(super) fn tracks(&self) -> Vec<Track<'_>> {
        let mut tracks: BTreeMap<(u8, u32, u32), Track<'_>> = BTreeMap::new();
        for sample in &self.samples {
            let Sample { event, pid, tid, last_thread_name, .. } = &sample.sample;
            let track = tracks.entry((*event, *pid, *tid)).or_insert_with(|| Track {
                event: self.event((*event).into()),
                pid: *pid,
                tid: *tid,
                thread: Arc::clone(last_thread_name),
                samples: Vec::new(),
            });
            track.thread = Arc::clone(last_thread_name);
            track.samples.push(sample);
        }
        tracks.into_values().collect()
    }
}

/// Whether an event counts ns, as the kernel's clocks do.
pub(super) fn counts_ns(event: &Event) -> bool {
    event.mode == EventUse::Software && perf::counts_ns(&event.name)
}

/// What the sum of an event's weights is called: the event, or its samples where that is all that they count.
pub(super) fn weight_name(event: &Event) -> String {
    if event.within.is_some() { format!("{}_dense_samples", event.name) } else { event.name.clone() }
}

/// A sample's frames, outermost first; what is missing at the outer end is a frame of its own.
pub(super) fn outermost_first(sample: &Sample) -> impl Iterator<Item = Shown<'_>> {
    let missing = (sample.chain.extent == Extent::Truncated).then_some(Shown::Truncated);
    let frames = sample.chain.calls.iter().rev().flat_map(|frames| frames.iter().rev()).map(Shown::Frame);
    missing.into_iter().chain(frames)
}

/// A frame as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shown<'a> {
    Frame(&'a Frame),
    Truncated,
}

impl<'a> Shown<'a> {
    /// The function, or the file that has the code.
    pub(super) fn name(self) -> Cow<'a, str> {
        match self {
            Self::Truncated => "[truncated]".into(),
            Self::Frame(frame) => match &frame.function {
                Some(function) => (&**function).into(),
                None => format!("[{}]", frame.module.trim_matches(['[', ']'])).into(),
            },
        }
    }

    pub(super) fn file(self) -> Option<&'a str> {
        match self {
            Self::Frame(frame) => frame.file.as_deref(),
            Self::Truncated => None,
        }
    }

    pub(super) fn line(self) -> Option<u32> {
        match self {
            Self::Frame(frame) => frame.line,
            Self::Truncated => None,
        }
    }
}
