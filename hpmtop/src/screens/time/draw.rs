//! The pictures of time.

use std::collections::BTreeMap;

use libhpm::analysis::explore::{QuantumEnd, Statistics, Timeline};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::Time;
use super::window::{LaneCell, Layout, Window, slot_of};
use crate::model::{Column, Quantum, Subject};
use crate::screens::View;
use crate::view::{Cell, Head, Sheet, amount, eighth, moment, put, time as duration};

/// Characters of CPUs and threads where there are no colours.
const GLYPHS: &str = "0123456789abcdefghijklmnoqrstuvwz#";

pub(super) fn draw(time: &Time, window: &Window<'_>, view: &View<'_>, buffer: &mut Buffer) {
    let layout = Layout::of(view.area);
    let theme = view.theme;
    let Some(column) = metric(time, view) else { return };
    let whose = match (time.focused, view.focus.pid) {
        (true, Some(pid)) => format!("of {} ({pid})", view.model.process_name(pid)),
        _ => "of all".to_owned(),
    };
    let title = format!("{} {whose}, {} seen", column.title, duration(window.until - window.from));
    put(buffer, (layout.title.x, layout.title.y), &title, layout.title.width, false, theme.strong());
    graph(window, view, buffer, layout.graph, column);
    axis(time, window, view, buffer, layout.axis);
    lanes(time, window, view, buffer, layout.lanes);
    words(window, view, buffer, layout.words, column);
    let height = usize::from(layout.table.height.saturating_sub(1));
    let ids = window.ids();
    let offset = time.table.offset(&ids, height);
    let mut sheet = table(time, window, view, offset, height);
    sheet.selected = (!ids.is_empty()).then(|| time.table.place(&ids) - offset);
    sheet.draw(buffer, layout.table, theme);
}

/// The metric that is drawn.
fn metric<'a>(time: &Time, view: &View<'a>) -> Option<&'a Column> {
    view.columns.get(time.metric % view.columns.len().max(1))
}

/// The system as a subject of columns: its threads are its CPUs.
fn whole(view: &View<'_>) -> Subject<'static> {
    Subject {
        pid: 0,
        tid: 0,
        cpu: None,
        threads: view.model.cpus.len().max(1),
        name: "",
        process: "",
        command: "",
        cgroup: "",
        ended: false,
    }
}

fn graph(window: &Window<'_>, view: &View<'_>, buffer: &mut Buffer, area: Rect, column: &Column) {
    if area.height == 0 || area.width == 0 {
        return;
    }
    let subject = whole(view);
    let interval = window.column_ns();
    let values: Vec<f64> = window.slots().iter().map(|slot| column.value(&subject, slot, interval)).collect();
    let greatest = values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    let label = |value: f64| column.shown(value);
    let left = view.area.x;
    put(buffer, (left, area.y), &label(greatest), area.x - left - 1, true, view.theme.faint());
    if area.height > 2 {
        put(buffer, (left, area.bottom() - 1), &label(0.0), area.x - left - 1, true, view.theme.faint());
    }
    let range =
        window.range.map(|(from, until)| (window.column_of(from), window.column_of(until.saturating_sub(1))));
    for (place, value) in values.iter().enumerate().take(area.width.into()) {
        let rows = value / greatest.max(f64::MIN_POSITIVE) * f64::from(area.height);
        let chosen = range.is_some_and(|(first, last)| (first..=last).contains(&(place as u16)));
        for line in 0..area.height {
            let sign = eighth((rows - f64::from(line)).clamp(0.0, 1.0));
            if let Some(cell) = buffer.cell_mut((area.x + place as u16, area.bottom() - 1 - line)) {
                let style = view.theme.series(0);
                cell.set_char(sign).set_style(if chosen {
                    style.add_modifier(Modifier::REVERSED)
                } else {
                    style
                });
            }
        }
    }
}

/// Times, the cursor, and markers.
fn axis(time: &Time, window: &Window<'_>, view: &View<'_>, buffer: &mut Buffer, area: Rect) {
    if area.height < 2 {
        return;
    }
    let faint = view.theme.faint();
    put(buffer, (area.x, area.y), &moment(window.from), area.width, false, faint);
    put(buffer, (area.x, area.y), &moment(window.until), area.width, true, faint);
    if let Some(cursor) = time.cursor_ns {
        let text = match time.anchor_ns {
            Some(anchor) => format!("{} … {}", moment(anchor.min(cursor)), moment(anchor.max(cursor))),
            None => moment(cursor),
        };
        let wide = text.chars().count() as u16;
        let at = window.column_of(cursor).saturating_sub(wide / 2).min(area.width.saturating_sub(wide));
        put(buffer, (area.x + at, area.y), &text, wide, false, view.theme.strong());
    }
    put(buffer, (view.area.x, area.y + 1), "markers", area.x - view.area.x - 1, true, faint);
    let inside = view.model.markers.iter().filter(|marker| (window.from..window.until).contains(&marker.ns));
    let mut free = 0;
    for marker in inside {
        let at = window.column_of(marker.ns);
        if let Some(cell) = buffer.cell_mut((area.x + at, area.y + 1)) {
            cell.set_char('▼').set_style(view.theme.warning());
        }
        // Its name, where there is room for it.
        if at + 1 >= free {
            let value = marker.value.map_or(String::new(), |value| format!(" {value}"));
            let text = format!("{}{value}", marker.text);
            put(
                buffer,
                (area.x + at + 1, area.y + 1),
                &text,
                area.width.saturating_sub(at + 1).min(20),
                false,
                faint,
            );
            free = at + 2 + text.chars().count().min(20) as u16;
        }
    }
}

/// What a letter says of how a stay ended.
fn end_glyph(end: Option<QuantumEnd>) -> Option<char> {
    match end {
        Some(QuantumEnd::Yielded) => Some('y'),
        Some(QuantumEnd::Preempted) => Some('p'),
        Some(QuantumEnd::Exit) => Some('x'),
        _ => None,
    }
}

fn lanes(time: &Time, window: &Window<'_>, view: &View<'_>, buffer: &mut Buffer, area: Rect) {
    if area.height < 2 {
        return;
    }
    let (lanes, count) = window.lanes(time.lanes, usize::from(area.height) - 1);
    // Places of what lanes have in them: the number of a CPU; of threads, in the order in which they are met.
    let mut places: BTreeMap<u32, usize> = BTreeMap::new();
    for content in lanes.iter().flat_map(|lane| &lane.cells).filter_map(|cell| cell.content) {
        let next = if time.lanes == Timeline::Threads { content.0 as usize } else { places.len() };
        places.entry(content.0).or_insert(next);
    }
    for (row, lane) in lanes.iter().enumerate() {
        let y = area.y + row as u16;
        let name = match time.lanes {
            Timeline::Threads => {
                let name = view.model.thread_name(lane.id);
                if name.is_empty() { lane.id.to_string() } else { format!("{name} {}", lane.id) }
            }
            Timeline::Cpus => format!("CPU {}", lane.id),
        };
        put(buffer, (view.area.x, y), &name, area.x - view.area.x - 1, true, Style::new());
        for (place, cell) in lane.cells.iter().enumerate().take(area.width.into()) {
            let (sign, style) = lane_cell(cell, &places, view);
            if let Some(cell) = buffer.cell_mut((area.x + place as u16, y)) {
                cell.set_char(sign).set_style(style);
            }
        }
    }
    let named = |(id, place): (&u32, &usize)| {
        let glyph = GLYPHS.chars().nth(*place).unwrap_or('#');
        let name = match time.lanes {
            Timeline::Threads => format!("CPU {id}"),
            Timeline::Cpus => view.model.thread_name(*id).to_owned(),
        };
        (glyph, *place, name)
    };
    let y = area.bottom() - 1;
    let more =
        if count > lanes.len() { format!("{} more lanes; ", count - lanes.len()) } else { String::new() };
    let text = format!("{more}y yielded, p pre-empted, x exited;");
    put(buffer, (area.x, y), &text, area.width, false, view.theme.faint());
    let mut x = area.x + text.chars().count() as u16 + 1;
    for (glyph, place, name) in places.iter().map(named).take(12) {
        let text = if view.theme.coloured { format!("█ {name} ") } else { format!("{glyph} {name} ") };
        let wide = text.chars().count() as u16;
        if x + wide > area.right() {
            break;
        }
        put(buffer, (x, y), &text, wide, false, view.theme.series(place));
        x += wide;
    }
}

fn lane_cell(cell: &LaneCell, places: &BTreeMap<u32, usize>, view: &View<'_>) -> (char, Style) {
    let Some((content, _)) = cell.content else { return ('·', view.theme.faint()) };
    let place = places.get(&content).copied().unwrap_or(0);
    let style = view.theme.series(place);
    match (end_glyph(cell.end), view.theme.coloured) {
        (None, true) => ('█', style),
        (Some(glyph), true) => {
            let colour = style.fg.unwrap_or(Color::Reset);
            (glyph, Style::new().fg(Color::Black).bg(colour))
        }
        (None, false) => (GLYPHS.chars().nth(place).unwrap_or('#'), Style::new()),
        (Some(glyph), false) => (glyph, Style::new().add_modifier(Modifier::BOLD)),
    }
}

/// What the selected quanta come to.
fn words(window: &Window<'_>, view: &View<'_>, buffer: &mut Buffer, area: Rect, column: &Column) {
    let values = window.chosen.iter().map(|quantum| value(column, quantum, view));
    let all = Statistics::of(values);
    let on_cpu: u64 = window.chosen.iter().map(|quantum| quantum.duration_ns()).sum();
    let which = match window.range {
        Some((from, until)) => format!("{} selected", duration(until - from)),
        None => "the last ones".to_owned(),
    };
    let text = format!(
        "{which}: {} quanta, {} on CPUs; {} of each: min {}, mean {}, max {}, sd {}",
        window.chosen.len(),
        duration(on_cpu),
        column.title,
        column.shown(all.min),
        column.shown(all.mean),
        column.shown(all.max),
        column.shown(all.sd)
    );
    put(buffer, (area.x, area.y), &text, area.width, false, view.theme.strong());
}

fn value(column: &Column, quantum: &Quantum, view: &View<'_>) -> f64 {
    let subject =
        Subject { pid: quantum.pid, tid: quantum.tid, cpu: Some(quantum.cpu), threads: 1, ..whole(view) };
    column.value(&subject, &slot_of(quantum), quantum.duration_ns().max(1))
}

/// The function in which a quantum ended: its address where no symbol covers that.
fn last_function(quantum: &Quantum, view: &View<'_>) -> Cell {
    let Some(address) = quantum.last_ip else { return Cell::default() };
    match view.names.get(&(quantum.pid, address)) {
        Some(Some(name)) => Cell::text(&**name),
        _ => Cell::text(format!("{address:#x}")).styled(view.theme.faint()),
    }
}

/// The table of quanta.
pub(super) fn table(
    time: &Time,
    window: &Window<'_>,
    view: &View<'_>,
    offset: usize,
    height: usize,
) -> Sheet {
    let events = view.model.event_names();
    let shown = metric(time, view).filter(|column| column.of_counts);
    let mut heads = vec![
        Head::number("start", 12),
        Head::number("length", 9),
        Head::number("cpu", 3),
        Head::number("tid", 7),
        Head::text("thread", 15),
        Head::text("end", 9),
    ];
    heads.extend(shown.map(|column| Head::number(&column.title, 7)));
    // A clock's time has up to eight characters, as its name does at least.
    heads.extend(events.iter().map(|event| Head::number(event, event.chars().count().clamp(6, 16) as u16)));
    let has_ends = window.chosen.iter().any(|quantum| quantum.last_ip.is_some());
    heads.extend(has_ends.then(|| Head::text("last function", 0)));
    let row = |quantum: &&Quantum| {
        let end = match quantum.end {
            Some(QuantumEnd::Yielded) => "yielded",
            Some(QuantumEnd::Preempted) => "preempted",
            Some(QuantumEnd::Exit) => "exited",
            Some(_) => "cut",
            None => "",
        };
        let mut cells = vec![
            Cell { value: quantum.start_ns.into(), ..Cell::text(moment(quantum.start_ns)) },
            Cell { value: quantum.duration_ns().into(), ..Cell::text(duration(quantum.duration_ns())) },
            Cell::whole(quantum.cpu.into()),
            Cell::whole(quantum.tid.into()),
            Cell::text(view.model.thread_name(quantum.tid)),
            Cell::text(end),
        ];
        cells.extend(shown.map(|column| {
            let value = value(column, quantum, view);
            Cell::number(value, column.shown(value))
        }));
        cells.extend(
            events
                .iter()
                .zip(quantum.counts)
                .map(|(event, count)| Cell { value: count.into(), ..Cell::text(amount(event, count)) }),
        );
        cells.extend(has_ends.then(|| last_function(quantum, view)));
        cells
    };
    let rows = window.chosen.iter().skip(offset).take(height).map(row).collect();
    Sheet { heads, rows, offset, total: window.chosen.len(), selected: None }
}
