//! What has to be known of a trace before its numbers are believed, in sentences that an export carries with it.

use super::stacks::counts_ns;
use crate::trace::{Event, EventUse, Meta, NO_PROPER_END, PhaseGuided};

/// One sentence for each thing that is lost, scaled or uncertain; none for a trace of which all is well.
#[must_use]
pub fn remarks(meta: &Meta) -> Vec<String> {
    let mut remarks = Vec::new();
    if !meta.complete {
        remarks.push(NO_PROPER_END.to_owned());
    }
    remarks.extend(meta.missing.iter().cloned());
    if !meta.source_note.is_empty() {
        remarks.push(meta.source_note.clone());
    }
    remarks.extend(meta.phase_guided.as_ref().map(PhaseGuided::sentence));
    remarks.extend(dense_places(meta));
    remarks.extend(losses(meta));
    remarks
}

/// The same, and what has to be known of the counts of quanta: by perf_event, and in its files, only samples tell of an event.
#[must_use]
pub fn quanta_remarks(meta: &Meta) -> Vec<String> {
    remarks(meta).into_iter().chain(counts_remarks(meta, true)).collect()
}

/// What has to be known of counts by perf_event, and in its files: what clocks count and, `of_quanta`, that counts of threads, CPUs or
/// times are estimated, which those of a whole recording are not.
#[must_use]
pub fn counts_remarks(meta: &Meta, of_quanta: bool) -> Vec<String> {
    if !matches!(meta.source.as_str(), "perf_event" | "perf.data") {
        return Vec::new();
    }
    let names = |which: &dyn Fn(&Event) -> bool| {
        let names: Vec<&str> =
            meta.events.iter().filter(|event| which(event)).map(|event| event.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    };
    let clocks = names(&is_clock_of_one_mode).map(|clocks| {
        format!(
            "counts of {clocks} are the time on CPUs in user and kernel mode; samples alone are of one mode"
        )
    });
    let sums = |event: &Event| {
        event.mode != EventUse::Count && !counts_ns(event) && (event.period != 1 || event.rate != 0)
    };
    let estimates = names(&sums).filter(|_| of_quanta).map(|events| {
        format!("counts of {events} are estimates: the sums of the periods of the samples in each quantum")
    });
    clocks.into_iter().chain(estimates).collect()
}

/// Whether the event's samples are of one mode, but its count of both, because the kernel's clocks go on in the other.
#[must_use]
pub fn is_clock_of_one_mode(event: &Event) -> bool {
    counts_ns(event) && event.user != event.kernel
}

/// Those of them that tell of events that were sampled only where they are dense.
#[must_use]
pub fn dense_places(meta: &Meta) -> Vec<String> {
    let all = meta.events.iter().enumerate();
    all.filter_map(|(place, event)| event.dense_places(&meta.event_name(place))).collect()
}

/// Those of them that the trace's totals tell: what is lost, held back, or was measured in turns.
#[must_use]
pub fn losses(meta: &Meta) -> Vec<String> {
    let mut remarks = Vec::new();
    let Some(totals) = &meta.totals else { return remarks };
    let counted = [
        (totals.records_lost, "samples could not be written or were held back"),
        (
            totals.records_withheld,
            "samples are withheld, because the kernel showed in them or they could not be read",
        ),
        (totals.records_unattributed, "records do not say which sampled event they are of, and are left out"),
        (totals.stacks_lost, "samples have no stack, because there was no room for it"),
        (totals.quanta_lost, "quanta were lost with their samples"),
        (totals.markers_lost, "markers were lost"),
        (totals.sideband_lost, "reports of mappings and threads were lost; symbols may be wrong"),
    ];
    remarks.extend(
        counted.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")),
    );
    if totals.throttled > 0 {
        let (how_often, who) = meta.held_back(&totals.throttled.to_string());
        remarks.push(format!("samples were held back {how_often}: they came faster than {who} allows"));
    }
    for (event, &running) in meta.events.iter().zip(&totals.running_tsc) {
        if running < totals.on_cpu_tsc {
            let share = running as f64 * 100.0 / totals.on_cpu_tsc as f64;
            remarks.push(format!(
                "{} took turns with other events, or the PMU was another hpm session's: it was measured in {share:.1} % of the time, and nothing is scaled",
                event.name
            ));
        }
    }
    remarks
}
