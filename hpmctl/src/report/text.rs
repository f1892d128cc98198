//! The report as text for people.

use std::fmt::Write as _;

use libhpm::export::counts_remarks;
use libhpm::record::Attribution;
use libhpm::report::{EventSummary, Summary};
use libhpm::trace::{Event, EventUse, Machine, Meta};

use super::samples::{Calls, Grouped, Report};
use super::{table, tree};
use crate::output::{amount, counted as number_of, grouped as grouped_digits};

/// The whole text.
pub(super) fn render(report: &Report<'_>) -> String {
    let mut text = String::new();
    head(&mut text, report.meta, report.filter.as_deref());
    losses(&mut text, report.meta, &report.summary, report.quanta_chosen);
    remarks(&mut text, &counts_remarks(report.meta, report.quanta_chosen));
    for (index, event) in report.summary.events.iter().enumerate() {
        let of_event = |of: usize, samples: u64| of == index && samples > 0;
        let tables = |table: &&Grouped| of_event(table.event, table.all.samples);
        let trees = |tree: &&Calls| of_event(tree.event, tree.all.samples);
        event_head(&mut text, event, report.meta, report.counts_exceed);
        report.tables.iter().filter(tables).for_each(|grouped| table::grouped(&mut text, grouped));
        report.trees.iter().filter(trees).for_each(|calls| tree::calls(&mut text, calls));
    }
    if report
        .tables
        .iter()
        .map(|table| table.all)
        .chain(report.trees.iter().map(|tree| tree.all))
        .any(|all| all.samples > 0)
    {
        text.push_str("\n± is the 95 % interval that the number of samples alone allows.\n");
        if report.tables.iter().any(|table| table.all.timed > 0) {
            text.push_str(
                "cycles is the mean latency of the samples that have one; each sample counts once.\n",
            );
        }
    }
    if let Some(taken) = &report.branches {
        table::branches(&mut text, taken);
    }
    for note in &report.notes {
        line(&mut text, format_args!("note: {note}"));
    }
    if let Some(path) = report.picture {
        line(&mut text, format_args!("flame graph: {}", path.display()));
    }
    text
}

pub(crate) fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

/// What was measured, in one line, after the word for it.
pub(crate) fn measured(meta: &Meta) -> (&'static str, String) {
    let (commands, subjects) = (meta.commands(), meta.subjects());
    let label = if subjects.is_empty() { "command" } else { "measured" };
    let commands = commands.iter().map(|command| command.join(" "));
    let all: Vec<String> = commands.chain(subjects).collect();
    (label, if all.is_empty() { "(no command)".to_owned() } else { all.join("; ") })
}

/// What was recorded where, and what of it is looked at.
pub(crate) fn head(text: &mut String, meta: &Meta, filter: Option<&str>) {
    let machine = &meta.machine;
    let (label, what) = measured(meta);
    line(text, format_args!("{label:<9} {what}"));
    line(
        text,
        format_args!(
            "machine   {}: {} PMU ({} family {} model {}), {}, Linux {}; hpm {}, from {}",
            machine.host_name,
            machine.pmu,
            machine.vendor,
            machine.family,
            machine.model,
            number_of(machine.cpus.into(), "CPU"),
            machine.kernel_release,
            meta.hpm_version,
            match meta.source.as_str() {
                "driver" => "the driver",
                "perf.data" => "a file of perf record",
                other => other,
            }
        ),
    );
    if !meta.source_note.is_empty() {
        line(text, format_args!("source    {}", meta.source_note));
    }
    for missing in &meta.missing {
        line(text, format_args!("missing   {missing}"));
    }
    if let Some(guided) = &meta.phase_guided {
        line(text, format_args!("replayed  {}", guided.sentence()));
    }
    if let Some(filter) = filter {
        line(text, format_args!("only      {filter}"));
    }
}

/// What has to be known before the numbers are believed.
pub(crate) fn remarks(text: &mut String, remarks: &[String]) {
    for remark in remarks {
        line(text, format_args!("remark    {remark}"));
    }
}

/// How many records were lost, as far as that is known.
fn lost_records(meta: &Meta, lost: u64) -> String {
    // Said after quanta: none of what has to be told.
    let of_what = if lost == 0 && !meta.losses_known() { "of records " } else { "" };
    format!("{of_what}{}", meta.lost(lost, &number_of(lost, "record")))
}

/// How many quanta there are, and what is missing. Whether lost quanta were of the chosen ones nobody knows.
fn losses(text: &mut String, meta: &Meta, summary: &Summary, chosen: bool) {
    let whose = if chosen && summary.quanta_lost > 0 { ", which could be anybody's" } else { "" };
    line(
        text,
        format_args!(
            "quanta    {}, {} lost{whose}; {}",
            grouped_digits(summary.quanta),
            grouped_digits(summary.quanta_lost),
            lost_records(meta, summary.records_lost)
        ),
    );
    if summary.records_unattributed > 0 {
        let records = number_of(summary.records_unattributed, "record");
        line(
            text,
            format_args!("left out  {records} of the whole trace: they do not say which event they are of"),
        );
    }
    if summary.throttled > 0 {
        let (how_often, who) = meta.held_back(&grouped_digits(summary.throttled));
        line(
            text,
            format_args!("throttled samples were held back {how_often}: they came faster than {who} allows"),
        );
    }
}

/// Whether an event was counted. Of a file of `perf record` there are samples only.
fn is_counted(counted: u64, sampled: u64) -> bool {
    counted > 0 || sampled == 0
}

/// An event's count, of which `sampled` are known by samples.
pub(crate) fn counted(event: &str, counted: u64, sampled: u64) -> String {
    if is_counted(counted, sampled) { amount(event, counted) } else { "not known".to_owned() }
}

fn event_head(text: &mut String, summary: &EventSummary, meta: &Meta, counts_exceed: bool) {
    let (event, machine) = (&summary.event, &meta.machine);
    let by_ibs = event.mode == EventUse::Precise && machine.samples_by_ibs();
    let how = how(event, machine);
    line(text, format_args!("\nevent     {} in {}, {}", event.name, privilege(event), how));
    let turns = summary.counted_share.map_or_else(String::new, |share| {
        format!(" in {:.1} % of the time, not scaled: the event took turns", share * 100.0)
    });
    let whole = if counts_exceed { "; counts are of all code and data" } else { "" };
    let turns = if is_counted(summary.counted, summary.sampled.events) { turns } else { String::new() };
    let counted = counted(&event.name, summary.counted, summary.sampled.events);
    line(text, format_args!("counted   {counted}{turns}{whole}"));
    if event.mode == EventUse::Count {
        return;
    }
    line(text, format_args!("samples   {}", samples(summary, by_ibs, counts_exceed)));
    stacks(text, summary, meta);
}

/// How many samples there are, and how many events they stand for.
fn samples(summary: &EventSummary, by_ibs: bool, counts_exceed: bool) -> String {
    let (event, sampled) = (&summary.event, summary.sampled);
    let number = grouped_digits(sampled.samples);
    if event.within.is_some() {
        return format!("{number}; shares are of the dense places only, not of the event's count");
    }
    let of_count = match summary.counted {
        0 => String::new(),
        _ if counts_exceed => String::new(),
        counted => format!(
            ", {:.2} % of the count{}",
            sampled.events as f64 * 100.0 / counted as f64,
            if by_ibs { ", because IBS counts all privilege levels towards a sample" } else { "" }
        ),
    };
    format!("{number}; times their periods: {}{of_count}", amount(&event.name, sampled.events))
}

fn stacks(text: &mut String, summary: &EventSummary, meta: &Meta) {
    let without = summary.sampled.samples - summary.whole_stacks - summary.truncated_stacks;
    let whole = if meta.frame_pointers { "by frame pointers, less callers that keep none" } else { "whole" };
    line(
        text,
        format_args!(
            "stacks    {} {whole}, {} without their outermost calls; {} without any",
            grouped_digits(summary.whole_stacks),
            grouped_digits(summary.truncated_stacks),
            grouped_digits(without)
        ),
    );
}

/// Where it was counted.
pub(crate) fn privilege(event: &Event) -> &'static str {
    match (event.user, event.kernel) {
        (true, true) => "user and kernel mode",
        (false, true) => "kernel mode",
        _ => "user mode",
    }
}

/// How it was measured, on this machine.
pub(crate) fn how(event: &Event, machine: &Machine) -> String {
    let period = period(event);
    match event.mode {
        EventUse::Count => "counted only".to_owned(),
        EventUse::Precise => {
            let of = if event.attribution == Attribution::Next {
                ", which names the next instruction: shown is the one before"
            } else {
                ""
            };
            let by = if machine.samples_by_ibs() { "IBS" } else { "PEBS" };
            format!("precise by {by}{of}, {period}")
        }
        EventUse::Interrupt => format!("imprecise by interrupts (with skid), {period}"),
        EventUse::Software => format!("by the kernel's software, {period}"),
    }
}

fn period(event: &Event) -> String {
    let randomised = if event.randomised { ", randomised" } else { "" };
    let within = event
        .within
        .as_ref()
        .map_or_else(String::new, |of| format!(" within {} {}", amount(&of.event, of.events), of.event));
    match event.rate {
        0 => format!("period {}{within}{randomised}", amount(&event.name, event.period)),
        rate => format!("period adapted to {} samples/s{randomised}", grouped_digits(rate)),
    }
}
