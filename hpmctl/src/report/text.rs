//! The report as text for people.

use std::borrow::Cow;
use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use libhpm::record::Attribution;
use libhpm::report::{By, Entry, EventSummary, Key, Place};
use libhpm::trace::{Event, EventUse};

use super::{Grouped, Report, Taken};
use crate::output::grouped as grouped_digits;

/// Longest path in a table, in bytes.
const PATH_MAX: usize = 50;

/// The whole text.
pub(super) fn render(report: &Report<'_>) -> String {
    let mut text = String::new();
    head(&mut text, report);
    for (index, event) in report.summary.events.iter().enumerate() {
        let tables: Vec<&Grouped> = report.tables.iter().filter(|table| table.event == index).collect();
        event_head(&mut text, event);
        for table in tables.iter().filter(|table| table.all.samples > 0) {
            grouped(&mut text, table);
        }
    }
    if report.tables.iter().any(|table| table.all.samples > 0) {
        text.push_str("\n± is the 95 % interval that the number of samples alone allows.\n");
        if report.tables.iter().any(|table| table.all.timed > 0) {
            text.push_str(
                "cycles is the mean latency of the samples that have one; each sample counts once.\n",
            );
        }
    }
    if let Some(taken) = &report.branches {
        branches(&mut text, taken);
    }
    for note in &report.notes {
        line(&mut text, format_args!("note: {note}"));
    }
    if let Some(path) = report.svg {
        line(&mut text, format_args!("flame graph: {}", path.display()));
    }
    text
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

fn head(text: &mut String, report: &Report<'_>) {
    let (meta, machine) = (report.meta, &report.meta.machine);
    let command = if meta.command.is_empty() { "(no command)".to_owned() } else { meta.command.join(" ") };
    line(text, format_args!("command   {command}"));
    line(
        text,
        format_args!(
            "machine   {}: {} PMU ({} family {} model {}), {} CPUs, Linux {}; hpm {}, from the {}",
            machine.host_name,
            machine.pmu,
            machine.vendor,
            machine.family,
            machine.model,
            machine.cpus,
            machine.kernel_release,
            meta.hpm_version,
            meta.source
        ),
    );
    if !meta.source_note.is_empty() {
        line(text, format_args!("source    {}", meta.source_note));
    }
    let summary = &report.summary;
    line(
        text,
        format_args!(
            "quanta    {}, {} lost; {} records lost",
            grouped_digits(summary.quanta),
            grouped_digits(summary.quanta_lost),
            grouped_digits(summary.records_lost)
        ),
    );
    if summary.throttled > 0 {
        line(
            text,
            format_args!(
                "throttled samples were held back in {} quanta: they came faster than the driver allows",
                grouped_digits(summary.throttled)
            ),
        );
    }
}

fn event_head(text: &mut String, summary: &EventSummary) {
    let event = &summary.event;
    line(text, format_args!("\nevent     {} in {}, {}", event.name, privilege(event), how(event)));
    line(text, format_args!("counted   {}", grouped_digits(summary.counted)));
    if event.mode == EventUse::Count {
        return;
    }
    let sampled = summary.sampled;
    let of_count = match summary.counted {
        0 => String::new(),
        counted => format!(", {:.2} % of the count", sampled.events as f64 * 100.0 / counted as f64),
    };
    line(
        text,
        format_args!(
            "samples   {}; times their periods: {}{of_count}",
            grouped_digits(sampled.samples),
            grouped_digits(sampled.events)
        ),
    );
    let without = sampled.samples - summary.whole_stacks - summary.truncated_stacks;
    line(
        text,
        format_args!(
            "stacks    {} whole, {} without their outermost calls; {} samples have none",
            grouped_digits(summary.whole_stacks),
            grouped_digits(summary.truncated_stacks),
            grouped_digits(without)
        ),
    );
}

fn privilege(event: &Event) -> &'static str {
    match (event.user, event.kernel) {
        (true, true) => "user and kernel mode",
        (false, true) => "kernel mode",
        _ => "user mode",
    }
}

fn how(event: &Event) -> String {
    let period = period(event);
    match event.mode {
        EventUse::Count => "counted only".to_owned(),
        EventUse::Precise => {
            let of =
                if event.attribution == Attribution::Next { ", naming the next instruction" } else { "" };
            format!("precise by PEBS{of}, {period}")
        }
        EventUse::Interrupt => format!("imprecise by interrupts (with skid), {period}"),
        EventUse::Software => format!("by the kernel's software, {period}"),
    }
}

fn period(event: &Event) -> String {
    let randomised = if event.randomised { ", randomised" } else { "" };
    match event.rate {
        0 => format!("period {}{randomised}", grouped_digits(event.period)),
        rate => format!("period adapted to {} samples/s{randomised}", grouped_digits(rate)),
    }
}

fn grouped(text: &mut String, grouped: &Grouped) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let has_callers = matches!(grouped.by, By::Function | By::Line);
    let mut numbers =
        if has_callers { vec!["samples", "self", "±", "total"] } else { vec!["samples", "share", "±"] };
    let has_latency = grouped.all.timed > 0;
    if has_latency {
        numbers.push("cycles");
    }
    let names: &[&str] = match grouped.by {
        By::Function => &["function", "module"],
        By::Line => &["line", "function"],
        By::Thread => &["thread", "pid", "tid"],
        By::Cpu => &["cpu"],
        By::Address => &["address", "function", "line", "module"],
        By::Level => &["level"],
        By::Source => &["level", "snoop", "TLB", "lock"],
    };
    table.set_header(numbers.iter().chain(names));
    for entry in &grouped.entries {
        table.add_row(cells(grouped.by, entry, has_callers, has_latency));
    }
    for column in table.column_iter_mut().take(numbers.len()) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    text.push('\n');
    for row in table.lines() {
        line(text, format_args!("{}", row.trim_end()));
    }
    if grouped.groups > grouped.entries.len() {
        line(text, format_args!(" … and {} more (--limit)", grouped.groups - grouped.entries.len()));
    }
}

fn branches(text: &mut String, taken: &Taken) {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let has_cycles = taken.entries.iter().any(|entry| entry.mean_cycles.is_some());
    let mut numbers = vec!["taken", "share", "mispredicted"];
    if has_cycles {
        numbers.push("cycles");
    }
    table.set_header(numbers.iter().chain(&["from", "to"]));
    for entry in &taken.entries {
        let percent = |part: u64, all: u64| format!("{:.1} %", part as f64 * 100.0 / all as f64);
        let mut cells = vec![
            grouped_digits(entry.count),
            percent(entry.count, taken.all),
            percent(entry.mispredicted, entry.count),
        ];
        if has_cycles {
            cells.push(entry.mean_cycles.map_or_else(String::new, |cycles| format!("{cycles:.1}")));
        }
        cells.extend([place(&entry.from), place(&entry.to)]);
        table.add_row(cells);
    }
    for column in table.column_iter_mut().take(numbers.len()) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    line(text, format_args!("\nbranches  {} in the samples' branch records\n", grouped_digits(taken.all)));
    for row in table.lines() {
        line(text, format_args!("{}", row.trim_end()));
    }
    if taken.groups > taken.entries.len() {
        line(text, format_args!(" … and {} more (--limit)", taken.groups - taken.entries.len()));
    }
}

fn place(place: &Place) -> String {
    let function = place.function.as_deref().unwrap_or("[no symbol]");
    format!("{:#x} {function}", place.address)
}

fn cells(by: By, entry: &Entry, has_callers: bool, has_latency: bool) -> Vec<String> {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let own = entry.own_share;
    let mut cells =
        vec![grouped_digits(entry.own.samples), percent(own.share), format!("{:.1}", own.error * 100.0)];
    if has_callers {
        cells.push(percent(entry.total_share.share));
    }
    if has_latency {
        cells.push(entry.own.mean_latency().map_or_else(String::new, |cycles| format!("{cycles:.1}")));
    }
    let key = &entry.key;
    let number = |number: Option<u32>| number.map_or_else(String::new, |number| number.to_string());
    let module = || key.module.as_deref().unwrap_or_default().to_owned();
    match by {
        By::Function => cells.extend([function(key), module()]),
        By::Line => cells.extend([source_line(key), function(key)]),
        By::Thread => {
            cells.extend([
                key.thread.as_deref().unwrap_or_default().to_owned(),
                number(key.pid),
                number(key.tid),
            ]);
        }
        By::Cpu => cells.push(number(key.cpu)),
        By::Address => {
            let address = key.address.map_or_else(String::new, |address| format!("{address:#x}"));
            cells.extend([address, function(key), source_line(key), module()]);
        }
        By::Level => cells.push(level(key)),
        By::Source => cells.extend(source(key)),
    }
    cells
}

fn level(key: &Key) -> String {
    key.level.unwrap_or("[not told]").to_owned()
}

/// Level, snoop, TLB and lock; empty where the record does not tell.
fn source(key: &Key) -> [String; 4] {
    let told = |flag: Option<bool>, yes: &str, no: &str| match flag {
        Some(true) => yes.to_owned(),
        Some(false) => no.to_owned(),
        None => String::new(),
    };
    [
        level(key),
        key.snoop.unwrap_or_default().to_owned(),
        told(key.stlb_miss, "second level missed", "hit"),
        told(key.locked, "locked", ""),
    ]
}

fn function(key: &Key) -> String {
    key.function.as_deref().unwrap_or("[no symbol]").to_owned()
}

fn source_line(key: &Key) -> String {
    match (&key.file, key.line) {
        (Some(file), Some(line)) => format!("{}:{line}", shortened(file)),
        (Some(file), None) => format!("{}:?", shortened(file)),
        (None, _) => format!("[no line] {}", key.module.as_deref().unwrap_or_default()),
    }
}

/// A path that is longer than a table bears loses its first folders; JSON has all of it.
fn shortened(path: &str) -> Cow<'_, str> {
    if path.len() <= PATH_MAX {
        return path.into();
    }
    let mut starts = path.match_indices('/').map(|(start, _)| start);
    let tail = starts.find(|&start| path.len() - start < PATH_MAX).map(|start| &path[start..]);
    tail.map_or(path.into(), |tail| format!("…{tail}").into())
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn long_paths_lose_whole_folders() {
        assert_eq!(shortened("./elf/do-rel.h"), "./elf/do-rel.h");
        let long = "/home/user/.cargo/registry/src/crates/mimalloc-sys-0.1/c_src/mimalloc/src/alloc.c";
        assert_eq!(shortened(long), "…/mimalloc-sys-0.1/c_src/mimalloc/src/alloc.c");
        let no_folder = "x".repeat(60);
        assert_eq!(shortened(&no_folder), no_folder);
    }
}
