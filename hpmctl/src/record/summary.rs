//! What a recording has become, in one line.

use libhpm::trace::{Event, EventUse, Meta, Totals, Written};

/// Samples and losses, and where the trace is. `missing` is what a replayed trace lacked, `gave_up` that the driver measured a part alone.
pub(super) fn summary(
    totals: &Totals,
    written: &Written,
    meta: &Meta,
    missing: &[String],
    gave_up: bool,
) -> String {
    let sampled = || meta.events.iter().filter(|event| event.mode != EventUse::Count);
    let name = |event: &Event| match &event.within {
        Some(within) => format!("{} within {} {}", event.name, within.events, within.event),
        None => event.name.clone(),
    };
    let names: Vec<String> = sampled().map(name).collect();
    let kind = match sampled().map(|event| event.mode).next() {
        Some(EventUse::Interrupt) => "imprecise samples (with skid)",
        Some(EventUse::Software) => "samples by software",
        _ => "samples",
    };
    let mut text = format!("{} {kind} of {}", written.samples, names.join(", "));
    let lost = [
        (totals.records_lost, "samples lost"),
        (totals.quanta_lost, "quanta lost with theirs"),
        (totals.records_withheld, "samples withheld that show the kernel or cannot be read"),
        (totals.processes_left_out, "processes left out"),
        (totals.records_unattributed, "records that do not say which event they are of left out"),
        (totals.stacks_lost, "stacks lost for want of room"),
        (totals.markers_lost, "markers lost"),
        (totals.sideband_lost, "reports of mappings and threads lost"),
    ];
    for (count, what) in lost.into_iter().filter(|(count, _)| *count > 0) {
        text += &format!(", {count} {what}");
    }
    let left_out = totals.records_unattributed;
    if totals.records_lost + left_out + totals.quanta_lost + totals.throttled + totals.stacks_lost == 0 {
        text += &match missing {
            [] => format!(", {}", meta.lost(0, "none")),
            _ => ", but the trace they come from is not whole".to_owned(),
        };
    }
    if totals.throttled > 0 {
        let (how_often, who) = meta.held_back(&totals.throttled.to_string());
        text += &format!(" (samples came faster than {who} allows, and were held back {how_often})");
    }
    if gave_up {
        text += ", until the driver gave up";
    }
    if written.folders.len() + written.removed > 1 {
        let (all, removed) = (written.folders.len() + written.removed, written.removed);
        text += &format!(", in {all} traces");
        if removed > 0 {
            text += &format!(
                ", of which the oldest {removed} {} removed",
                if removed == 1 { "was" } else { "were" }
            );
        }
    }
    let newest = written.folders.last().map_or_else(String::new, |folder| folder.display().to_string());
    format!("{text}; see `hpmctl report {newest}`")
}

#[cfg(test)]
mod tests {
    use libhpm::trace::Within;

    use super::*;

    #[test]
    fn losses_are_told() {
        let event = |name: &str, mode| Event { name: name.into(), mode, ..Event::default() };
        let events = vec![event("l1d-load-miss", EventUse::Precise), event("instructions", EventUse::Count)];
        let meta = Meta { events, ..Meta::default() };
        let line = |records_lost, quanta_lost, missing: &[String]| {
            let totals = Totals { records_lost, quanta_lost, ..Totals::default() };
            let written = Written { folders: vec!["a.hpm".into()], removed: 0, samples: 5 };
            summary(&totals, &written, &meta, missing, false)
        };
        assert_eq!(line(0, 0, &[]), "5 samples of l1d-load-miss, none lost; see `hpmctl report a.hpm`");
        assert_eq!(
            line(0, 0, &["the table `samples` is cut off".into()]),
            "5 samples of l1d-load-miss, but the trace they come from is not whole; see `hpmctl report a.hpm`"
        );
        assert_eq!(
            line(7, 2, &[]),
            "5 samples of l1d-load-miss, 7 samples lost, 2 quanta lost with theirs; see `hpmctl report a.hpm`"
        );
    }

    /// The driver cannot count what a window would have had.
    #[test]
    fn of_samples_within_windows_no_more_is_told_than_is_known() {
        let within = Some(Within { event: "instructions:u".into(), events: 2000 });
        let event =
            Event { name: "branch-miss:u".into(), mode: EventUse::Precise, within, ..Event::default() };
        let meta = Meta { events: vec![event], ..Meta::default() };
        let written = Written { folders: vec!["a.hpm".into()], removed: 0, samples: 5 };
        assert_eq!(
            summary(&Totals::default(), &written, &meta, &[], false),
            "5 samples of branch-miss:u within 2000 instructions:u, none known to be lost; see `hpmctl report a.hpm`"
        );
    }

    #[test]
    fn traces_of_a_rotated_recording_are_counted() {
        let line = |removed| {
            let folders = vec!["a-2.hpm".into(), "a-3.hpm".into()];
            summary(
                &Totals::default(),
                &Written { folders, removed, samples: 5 },
                &Meta::default(),
                &[],
                false,
            )
        };
        assert!(line(0).contains(", in 2 traces; see"), "{}", line(0));
        assert!(line(1).contains(", in 3 traces, of which the oldest 1 was removed; see"), "{}", line(1));
        assert!(line(2).contains(", in 4 traces, of which the oldest 2 were removed; see"), "{}", line(2));
    }

    #[test]
    fn who_held_samples_back_is_told() {
        let line = |source: &str| {
            let event = Event { name: "cpu-clock".into(), mode: EventUse::Software, ..Event::default() };
            let meta = Meta { source: source.into(), events: vec![event], ..Meta::default() };
            let totals = Totals { throttled: 3, ..Totals::default() };
            summary(&totals, &Written { folders: vec![], removed: 0, samples: 5 }, &meta, &[], true)
        };
        let kernels = line("perf_event");
        assert!(!kernels.contains("none lost"), "{kernels}");
        assert!(kernels.contains("faster than the kernel allows, and were held back 3 times)"), "{kernels}");
        assert!(kernels.contains("), until the driver gave up; see"), "{kernels}");
        let drivers = line("driver");
        assert!(
            drivers.contains("faster than the driver allows, and were held back in 3 quanta)"),
            "{drivers}"
        );
    }
}
