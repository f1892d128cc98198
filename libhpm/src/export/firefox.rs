//! The processed profile format of the Firefox Profiler.

use std::collections::HashMap;
use std::io::{self, Write};

use fxprof_processed_profile::{
    CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerFieldFlags, MarkerFieldFormat,
    MarkerTiming, ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StaticSchemaMarker,
    StaticSchemaMarkerField, StringHandle, ThreadHandle, Timestamp, WeightType,
};

use super::on_cpu::OnCpu;
use super::stacks::{Track, outermost_first};
use super::{Stacks, ticks_to_ns};
use crate::trace::MarkerRow;

/// Writes the samples for the Firefox Profiler: a track for each thread and event, whose weights are events, or
/// samples of an event that was sampled only where it is dense ([`crate::trace::Event::weight`]), with the time
/// that the thread was on a CPU. A frame has its function's name; the format has no place for lines of inlined functions.
///
/// # Errors
/// The output cannot be written.
pub fn write_firefox(stacks: &Stacks<'_>, output: &mut dyn Write) -> io::Result<()> {
    let title = format!("{} ({})", stacks.title(), stacks.event_names());
    let start = ReferenceTimestamp::from_millis_since_unix_epoch(start_ms(stacks));
    let mut profile = Profile::new(&title, start, SamplingInterval::from_millis(1));
    profile.set_os_name(&format!("Linux {}", stacks.meta().machine.kernel_release));
    let on_cpu = OnCpu::read(stacks.reader, stacks.first_tsc);
    let mut processes = HashMap::new();
    let mut threads = Vec::new();
    for track in stacks.tracks() {
        let thread = add_thread(stacks, &mut profile, &mut processes, &track);
        add_samples(&mut profile, thread, &track, &on_cpu);
        threads.push((track.tid, thread));
    }
    add_markers(stacks, &mut profile, &threads);
    // Every frame is a name already.
    profile.set_symbolicated(true);
    serde_json::to_writer(output, &profile).map_err(io::Error::from)
}

/// When the first quantum began, in ms since 1970.
fn start_ms(stacks: &Stacks<'_>) -> f64 {
    let clock = &stacks.meta().clock;
    let Some(pair) = clock.pairs.first() else { return 0.0 };
    let ns = |later: u64, earlier: u64| ticks_to_ns(later.saturating_sub(earlier), clock.tsc_khz) as f64;
    (pair.realtime_ns as f64 + ns(stacks.first_tsc, pair.tsc) - ns(pair.tsc, stacks.first_tsc)) / 1e6
}

fn add_thread(
    stacks: &Stacks<'_>,
    profile: &mut Profile,
    processes: &mut HashMap<u32, ProcessHandle>,
    track: &Track<'_>,
) -> ThreadHandle {
    let begin = Timestamp::from_nanos_since_reference(0);
    let process =
        *processes.entry(track.pid).or_insert_with(|| profile.add_process(&track.thread, track.pid, begin));
    let one = stacks.events.len() == 1;
    // A main thread is shown by its process's name, which does not tell events apart.
    let thread = profile.add_thread(process, track.tid, begin, one && track.pid == track.tid);
    let name =
        if one { track.thread.to_string() } else { format!("{} ({})", track.thread, track.event.name) };
    profile.set_thread_name(thread, &name);
    profile.set_thread_samples_weight_type(thread, WeightType::Samples);
    thread
}

fn add_samples(profile: &mut Profile, thread: ThreadHandle, track: &Track<'_>, on_cpu: &OnCpu) {
    let mut before_ns = 0;
    for sample in &track.samples {
        let label = |name: &str, profile: &mut Profile| FrameInfo {
            frame: Frame::Label(profile.intern_string(name)),
            category_pair: CategoryHandle::OTHER.into(),
            flags: FrameFlags::empty(),
        };
        let frames: Vec<FrameInfo> =
            outermost_first(&sample.sample).map(|shown| label(&shown.name(), profile)).collect();
        let stack = profile.intern_stack_frames(thread, frames.into_iter());
        // The format has whole µs; what is cut off now comes with a later sample.
        let until_ns = on_cpu.until(track.tid, sample.time_ns) / 1000 * 1000;
        let cpu = CpuDelta::from_nanos(until_ns.saturating_sub(before_ns));
        before_ns = until_ns;
        let weight = i32::try_from(sample.period).unwrap_or(i32::MAX);
        profile.add_sample(thread, Timestamp::from_nanos_since_reference(sample.time_ns), stack, cpu, weight);
    }
}

/// A moment that somebody named.
struct Named {
    name: StringHandle,
    value: StringHandle,
}

impl StaticSchemaMarker for Named {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "hpm-marker";
    const TABLE_LABEL: Option<&'static str> = Some("{marker.name} {marker.data.value}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[StaticSchemaMarkerField {
        key: "value",
        label: "Value",
        format: MarkerFieldFormat::String,
        flags: MarkerFieldFlags::empty(),
    }];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        CategoryHandle::OTHER
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        self.value
    }

    fn number_field_value(&self, _: u32) -> f64 {
        f64::NAN
    }
}

/// Puts each marker on its thread's first track; on the first track of all where it has none.
fn add_markers(stacks: &Stacks<'_>, profile: &mut Profile, threads: &[(u32, ThreadHandle)]) {
    let khz = stacks.meta().clock.tsc_khz;
    for row in stacks.reader.rows::<MarkerRow>() {
        let own = threads.iter().find(|(tid, _)| Some(*tid) == row.tid);
        let Some(&(_, thread)) = own.or(threads.first()) else { return };
        let time_ns = ticks_to_ns(row.tsc.saturating_sub(stacks.first_tsc), khz);
        let value = row.value.map_or_else(String::new, |value| value.to_string());
        let marker = Named { name: profile.intern_string(&row.text), value: profile.intern_string(&value) };
        profile.add_marker(
            thread,
            MarkerTiming::Instant(Timestamp::from_nanos_since_reference(time_ns)),
            marker,
        );
    }
}
