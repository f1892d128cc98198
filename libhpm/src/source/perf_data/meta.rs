//! What a perf.data file says of its machine and its events, as a trace has it.

use linux_perf_data::linux_perf_event_reader::{
    AttrFlags, ClockId, IpSkidConstraint, PerfClock, PerfEventAttr, PerfEventType, SampleFormat,
    SamplingPolicy, SoftwareCounterType,
};
use linux_perf_data::{AttributeDescription, Feature, PerfFile};

use super::bytes::u32_at;
use super::record::Layout;
use crate::record::Attribution;
use crate::source::perf::quanta::Counted;
use crate::source::perf::stream::TSC_KHZ;
use crate::trace::{Clock, ClockPair, Event, EventUse, Machine, Meta, Within};

/// A trace's samples name their events by a number below this.
pub(super) const EVENTS_MAX: usize = 256;
/// `PERF_FORMAT_LOST`.
const FORMAT_LOST: u64 = 1 << 4;

/// The events of a file.
pub(super) struct Events {
    /// Those of the trace.
    pub(super) events: Vec<Event>,
    /// How the trace's quanta count them.
    pub(super) counted: Vec<Counted>,
    /// For each event of the file its place in the trace, unless it only reports mappings and names.
    pub(super) places: Vec<Option<usize>>,
    /// How the records of each event of the file are laid out.
    pub(super) layouts: Vec<Layout>,
    /// Some event's samples say which CPU they are of.
    pub(super) cpus: bool,
    /// Switches are reported.
    pub(super) switches: bool,
    /// Some samples bring a piece of stack.
    pub(super) stacks: bool,
    /// An event waits for the execution of a program.
    pub(super) on_exec: bool,
}

impl Events {
    pub(super) fn new(attributes: &[AttributeDescription], read_formats: &[u64], vendor: &str) -> Self {
        let flags = |flag: AttrFlags| attributes.iter().any(|of| of.attr.flags.contains(flag));
        let format =
            |format: SampleFormat| attributes.iter().any(|of| of.attr.sample_format.contains(format));
        let mut found = Self {
            events: Vec::new(),
            counted: Vec::new(),
            places: Vec::new(),
            layouts: Vec::new(),
            cpus: format(SampleFormat::CPU),
            switches: flags(AttrFlags::CONTEXT_SWITCH),
            stacks: format(SampleFormat::STACK_USER),
            on_exec: flags(AttrFlags::ENABLE_ON_EXEC),
        };
        for (number, of) in attributes.iter().enumerate() {
            let period = match of.attr.sampling_policy {
                SamplingPolicy::Period(period) => period.get(),
                SamplingPolicy::NoSampling | SamplingPolicy::Frequency(_) => 1,
            };
            let read_lost = read_formats.get(number).is_some_and(|format| format & FORMAT_LOST != 0);
            found.layouts.push(Layout { period, read_lost });
            let dummy = matches!(of.attr.type_, PerfEventType::Software(SoftwareCounterType::Dummy));
            found.places.push((!dummy).then_some(found.events.len()));
            if !dummy {
                let event = event(of, number, vendor);
                found.counted.push(Counted::new(&event, is_clock(&of.attr)));
                found.events.push(event);
            }
        }
        let masks: Vec<u64> = attributes.iter().map(|of| acr_mask(&of.attr)).collect();
        for (place, window) in found.places.iter().zip(windows(&masks)) {
            let of = window.and_then(|window| found.events.get((*found.places.get(window)?)?));
            let within = of.map(|window| Within { event: window.name.clone(), events: window.period });
            if let Some(event) = place.and_then(|place| found.events.get_mut(place)) {
                event.within = within;
            }
        }
        found
    }
}

/// perf's `acr_mask` (auto counter reload): which events of its group set this one's counter back. The only meaning that `config2` has for
/// what is sampled by a core's counters; of events with generic names the reader does not tell it.
const fn acr_mask(attr: &PerfEventAttr) -> u64 {
    match attr.type_ {
        PerfEventType::DynamicPmu(_, _, _, config2) => config2,
        _ => 0,
    }
}

/// For each event the one that measures the windows in which it was sampled: the first other event of its group whose bit is in its
/// mask. Events with masks that follow each other are taken to be a group.
fn windows(masks: &[u64]) -> Vec<Option<usize>> {
    let mut first = 0;
    let mut of = |(place, &mask): (usize, &u64)| {
        if mask == 0 {
            first = place + 1;
        }
        let others = (0..u64::BITS as usize).filter(|bit| mask >> bit & 1 == 1).map(|bit| first + bit);
        others.into_iter().find(|&other| other != place && other < masks.len())
    };
    masks.iter().enumerate().map(&mut of).collect()
}

fn is_clock(attr: &PerfEventAttr) -> bool {
    use SoftwareCounterType::{CpuClock, TaskClock};
    matches!(attr.type_, PerfEventType::Software(CpuClock | TaskClock))
}

fn event(of: &AttributeDescription, number: usize, vendor: &str) -> Event {
    let attr = &of.attr;
    let hardware = matches!(
        attr.type_,
        PerfEventType::Hardware(..) | PerfEventType::HwCache(..) | PerfEventType::DynamicPmu(..)
    );
    let precise = attr.flags.ip_skid_constraint();
    let (period, rate) = match attr.sampling_policy {
        SamplingPolicy::Period(period) => (period.get(), 0),
        SamplingPolicy::Frequency(rate) => (0, rate),
        SamplingPolicy::NoSampling => (0, 0),
    };
    let encoding = match attr.type_ {
        PerfEventType::DynamicPmu(_, config, ..) | PerfEventType::Tracepoint(config) => config,
        _ => 0,
    };
    Event {
        name: of.name.clone().unwrap_or_else(|| format!("{}-{number}", kind(attr))),
        encoding,
        mode: match (hardware, precise) {
            _ if (period, rate) == (0, 0) => EventUse::Count,
            (false, _) => EventUse::Software,
            (true, IpSkidConstraint::ArbitrarySkid) => EventUse::Interrupt,
            (true, _) => EventUse::Precise,
        },
        attribution: match (hardware, precise) {
            (true, IpSkidConstraint::ArbitrarySkid) => Attribution::Skid,
            // PEBS itself names the next instruction; with more precision the kernel names the one before.
            (true, IpSkidConstraint::ConstantSkid) if vendor == "GenuineIntel" => Attribution::Next,
            _ if is_clock(attr) => Attribution::Skid,
            _ => Attribution::Cause,
        },
        period,
        rate,
        user: !attr.flags.contains(AttrFlags::EXCLUDE_USER),
        kernel: !attr.flags.contains(AttrFlags::EXCLUDE_KERNEL),
        ..Event::default()
    }
}

/// What to call an event of which the file has no name.
fn kind(attr: &PerfEventAttr) -> &'static str {
    match attr.type_ {
        PerfEventType::Hardware(..) => "hardware",
        PerfEventType::Software(SoftwareCounterType::CpuClock) => "cpu-clock",
        PerfEventType::Software(SoftwareCounterType::TaskClock) => "task-clock",
        PerfEventType::Software(SoftwareCounterType::PageFaults) => "page-faults",
        PerfEventType::Software(_) => "software",
        PerfEventType::Tracepoint(_) => "tracepoint",
        PerfEventType::HwCache(..) => "hardware-cache",
        PerfEventType::Breakpoint(..) => "breakpoint",
        PerfEventType::DynamicPmu(..) => "pmu",
    }
}

/// The file as the trace describes it; the events are added by who knows them.
pub(super) fn meta(file: &PerfFile) -> Meta {
    let text = |found: Result<Option<&str>, linux_perf_data::Error>| {
        found.ok().flatten().unwrap_or_default().to_owned()
    };
    // `vendor,family,model,stepping`
    let cpu_id = text(file.cpu_id());
    let mut words = cpu_id.split(',');
    let vendor = words.next().unwrap_or_default().to_owned();
    let mut number = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let version = text(file.perf_version());
    let by = if version.is_empty() { String::new() } else { format!(" {version}") };
    Meta {
        hpm_version: env!("CARGO_PKG_VERSION").into(),
        source: "perf.data".into(),
        source_note: format!("a perf.data file of perf{by}"),
        machine: Machine {
            pmu: "perf_event".into(),
            vendor,
            family: number(),
            model: number(),
            stepping: number(),
            cpus: file.nr_cpus().ok().flatten().map_or(0, |cpus| cpus.nr_cpus_available),
            kernel_release: text(file.os_release()),
            host_name: text(file.hostname()),
            boot_id: String::new(),
        },
        clock: Clock { tsc_khz: TSC_KHZ.into(), pairs: clock_pair(file).into_iter().collect() },
        command: command(file),
        frame_pointers: file.event_attributes().iter().any(|of| has_frame_pointers(of.attr.sample_format)),
        ..Meta::default()
    }
}

/// Whether the kernel follows the user's calls for samples of this format, which it does by frame pointers. It need not have been asked
/// for those, so that of samples with branch records it is not known.
fn has_frame_pointers(format: SampleFormat) -> bool {
    format.contains(SampleFormat::CALLCHAIN)
        && !format.intersects(SampleFormat::STACK_USER | SampleFormat::BRANCH_STACK)
}

/// The same moment on the file's clock and on that of the wall, where `perf record -k` wrote it down.
fn clock_pair(file: &PerfFile) -> Option<ClockPair> {
    let pair = file.clock_data().ok().flatten()?;
    let raw = file
        .event_attributes()
        .iter()
        .all(|of| matches!(of.attr.clock, PerfClock::ClockId(ClockId::MonotonicRaw)));
    // The clock of the records stands for the TSC.
    let monotonic_raw_ns = if raw { pair.clockid_time_ns } else { 0 };
    Some(ClockPair { tsc: pair.clockid_time_ns, monotonic_raw_ns, realtime_ns: pair.wall_clock_ns })
}

/// What was measured, where it can be told from the options of perf: the words behind `--`, else all of them.
fn command(file: &PerfFile) -> Vec<String> {
    let words = file.feature_section_data(Feature::CMDLINE).map_or_else(Vec::new, words);
    match words.iter().position(|word| word == "--") {
        Some(place) => words[place + 1..].to_vec(),
        None => words,
    }
}

/// A number of texts, each with its length before it. linux-perf-data asks for as much memory as the number says.
fn words(bytes: &[u8]) -> Vec<String> {
    let number = u32_at(bytes, 0).unwrap_or(0);
    let mut place = 4;
    let mut next = || {
        let length = u64::from(u32_at(bytes, place)?);
        let text = bytes.get(place as usize + 4..)?.get(..length as usize)?;
        place += 4 + length;
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        Some(String::from_utf8_lossy(&text[..end]).into_owned())
    };
    (0..number).map_while(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::windows;

    #[test]
    fn an_event_is_sampled_within_what_sets_its_counter_back() {
        // Two set back by the second, which measures windows; two that set back each other and, the second, itself.
        assert_eq!(windows(&[0b10, 0b10]), [Some(1), None]);
        assert_eq!(windows(&[0, 0b10, 0b11, 0]), [None, Some(2), Some(1), None]);
        // A mask that names nothing of the group, and no mask at all.
        assert_eq!(windows(&[1 << 40, 0]), [None, None]);
    }
}
