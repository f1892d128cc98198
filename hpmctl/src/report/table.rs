//! Tables of samples as text.

use std::borrow::Cow;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use libhpm::report::{By, Entry, Grouping, Key, Place};

use super::samples::{Grouped, Taken};
use super::text::line;
use crate::output::grouped as grouped_digits;

/// Longest path in a table, in bytes.
const PATH_MAX: usize = 50;

/// An empty table without lines, as wide as it needs.
pub(crate) fn plain() -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table
}

/// Writes a table whose first columns are numbers.
pub(crate) fn finish(text: &mut String, mut table: Table, numbers: usize) {
    for column in table.column_iter_mut().take(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for row in table.lines() {
        line(text, format_args!("{}", row.trim_end()));
    }
}

/// Groups of samples, with the numbers first.
pub(super) fn grouped(text: &mut String, grouped: &Grouped) {
    let mut table = plain();
    let has_callers = grouped.by.has_callers();
    let mut numbers =
        if has_callers { vec!["samples", "self", "±", "total"] } else { vec!["samples", "share", "±"] };
    let has_latency = grouped.all.timed > 0;
    if has_latency {
        numbers.push("cycles");
    }
    table.set_header(numbers.iter().copied().chain(names(&grouped.by)));
    for entry in &grouped.entries {
        table.add_row(cells(&grouped.by, entry, has_callers, has_latency));
    }
    text.push('\n');
    finish(text, table, numbers.len());
    if grouped.groups > grouped.entries.len() {
        line(text, format_args!(" … and {} more (--limit)", grouped.groups - grouped.entries.len()));
    }
}

/// The branches of branch records.
pub(super) fn branches(text: &mut String, taken: &Taken) {
    let mut table = plain();
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
    line(text, format_args!("\nbranches  {} in the samples' branch records\n", grouped_digits(taken.all)));
    finish(text, table, numbers.len());
    if taken.groups > taken.entries.len() {
        line(text, format_args!(" … and {} more (--limit)", taken.groups - taken.entries.len()));
    }
}

fn place(place: &Place) -> String {
    let function = place.function.as_deref().unwrap_or("[no symbol]");
    format!("{:#x} {function}", place.address)
}

fn cells(by: &Grouping, entry: &Entry, has_callers: bool, has_latency: bool) -> Vec<String> {
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
    cells.extend(name(by, &entry.key));
    cells
}

/// A column that tells groups apart: its title, and what it says of one.
type Column = (&'static str, fn(&Key) -> String);

const FUNCTION: Column = ("function", function);
const MODULE: Column = ("module", |key| key.module.as_deref().unwrap_or_default().to_owned());
const LINE: Column = ("line", source_line);
const PID: Column = ("pid", |key| number(key.pid));
const LEVEL: Column = ("level", |key| key.level.unwrap_or("[not told]").to_owned());

const fn columns_of(by: By) -> &'static [Column] {
    match by {
        By::Function => &[FUNCTION, MODULE],
        By::Line => &[LINE, FUNCTION],
        By::Module => &[MODULE],
        By::Thread => &[
            ("thread", |key| key.thread.as_deref().unwrap_or_default().to_owned()),
            PID,
            ("tid", |key| number(key.tid)),
        ],
        By::Process => &[("process", |key| key.process.as_deref().unwrap_or_default().to_owned()), PID],
        By::Cpu => &[("cpu", |key| number(key.cpu))],
        By::Instruction => &[
            ("address", |key| key.address.map_or_else(String::new, |address| format!("{address:#x}"))),
            FUNCTION,
            LINE,
            MODULE,
        ],
        By::Region => &[("region", |key| key.region.as_deref().unwrap_or("[no data address]").to_owned())],
        By::Level => &[LEVEL],
        By::Source => &[
            LEVEL,
            ("snoop", |key| key.snoop.unwrap_or_default().to_owned()),
            ("TLB", |key| told(key.stlb_miss, "second level missed", "hit")),
            ("lock", |key| told(key.locked, "locked", "")),
        ],
    }
}

/// The columns of a grouping, each once.
fn columns(by: &Grouping) -> Vec<Column> {
    let mut columns: Vec<Column> = Vec::new();
    for column in by.parts().iter().flat_map(|by| columns_of(*by)) {
        if columns.iter().all(|(title, _)| *title != column.0) {
            columns.push(*column);
        }
    }
    columns
}

/// What the columns are called that tell groups apart.
pub(crate) fn names(by: &Grouping) -> Vec<&'static str> {
    columns(by).into_iter().map(|(title, _)| title).collect()
}

/// What these columns say of a group.
pub(crate) fn name(by: &Grouping, key: &Key) -> Vec<String> {
    columns(by).into_iter().map(|(_, of)| of(key)).collect()
}

fn number(number: Option<u32>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

/// What a flag says; nothing where the record does not tell.
fn told(flag: Option<bool>, yes: &str, no: &str) -> String {
    match flag {
        Some(true) => yes.to_owned(),
        Some(false) => no.to_owned(),
        None => String::new(),
    }
}

pub(super) fn function(key: &Key) -> String {
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
pub(crate) fn shortened(path: &str) -> Cow<'_, str> {
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
