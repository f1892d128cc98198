//! The machine: what measures, which counters are in use, what was lost, and what all this costs.

use libhpm::trace::{Event, EventUse};
use ratatui::buffer::Buffer;
use ratatui::style::Style;

use super::{Reply, Screen, View};
use crate::keys::{Action, Binding};
use crate::view::{Cell, Head, Sheet, amount, bar, put, si, spark, wrapped};

/// Keys of this screen: it has none of its own.
pub(crate) const BINDINGS: &[Binding] = &[];

/// The screen.
#[derive(Default)]
pub(crate) struct Machine {
    /// Lines above the first one that is seen.
    offset: usize,
}

/// A line: its parts, with their styles.
type Line = Vec<(String, Style)>;

impl Screen for Machine {
    fn draw(&self, view: &View<'_>, buffer: &mut Buffer) {
        let lines = lines(view);
        let height = usize::from(view.area.height);
        let offset = self.offset.min(lines.len().saturating_sub(height));
        for (row, line) in lines.iter().skip(offset).take(height).enumerate() {
            let mut x = view.area.x + 1;
            for (text, style) in line {
                let room = view.area.right().saturating_sub(x);
                put(buffer, (x, view.area.y + row as u16), text, room, false, *style);
                x += text.chars().count().min(usize::from(room)) as u16;
            }
        }
    }

    fn act(&mut self, action: Action, view: &View<'_>) -> Reply {
        let height = usize::from(view.area.height);
        let last = lines(view).len().saturating_sub(height);
        self.offset = match action {
            Action::Down => self.offset + 1,
            Action::Up => self.offset.saturating_sub(1),
            Action::PageDown => self.offset + height,
            Action::PageUp => self.offset.saturating_sub(height),
            Action::Top => 0,
            Action::Bottom => last,
            _ => return Reply::Ignored,
        }
        .min(last);
        Reply::Done
    }

    fn search(&mut self, text: &str, forward: bool, view: &View<'_>) -> Reply {
        let lines = lines(view);
        let holds =
            |line: &Line| line.iter().map(|(part, _)| part.to_lowercase()).collect::<String>().contains(text);
        let places: Vec<usize> = (0..lines.len()).filter(|&place| holds(&lines[place])).collect();
        let next = if forward {
            places.iter().find(|&&place| place > self.offset).or(places.first())
        } else {
            places.iter().rev().find(|&&place| place < self.offset).or(places.last())
        };
        super::found(next.inspect(|&&place| self.offset = place).is_some())
    }

    fn sheet(&self, view: &View<'_>) -> Sheet {
        events(view)
    }

    fn hints(&self) -> &'static [(Action, &'static str)] {
        &[(Action::Down, "down"), (Action::Search, "search")]
    }
}

/// How an event is measured, in words.
fn how(event: &Event) -> &'static str {
    match event.mode {
        EventUse::Count => "counted",
        EventUse::Precise => "precise samples",
        EventUse::Interrupt => "samples by interrupt: imprecise",
        EventUse::Software if event.name.contains("clock") => "samples by the kernel's timer",
        EventUse::Software => "each one, by the kernel",
    }
}

/// The column of periods among those of [`events`].
const PERIOD: usize = 2;

/// Which events are measured, and how much of each.
fn events(view: &View<'_>) -> Sheet {
    let model = view.model;
    let seconds = (model.now_ns as f64 / 1e9).max(1e-9);
    let on_cpu = model.totals.on_cpu_tsc;
    let row = |(place, event): (usize, &Event)| {
        let count = model.total.counts.get(place).copied().unwrap_or(0);
        let samples = model.samples.get(place).copied().unwrap_or(0);
        let running = model.totals.running_tsc.get(place).filter(|_| on_cpu > 0);
        let share = running.map_or(f64::NAN, |&running| running as f64 * 100.0 / on_cpu as f64);
        let period = match (event.period, event.rate) {
            (0, 0) => "-".to_owned(),
            (period, 0) => match &event.within {
                Some(within) => {
                    format!("{} in {} {}", amount(&event.name, period), within.events, within.event)
                }
                None => amount(&event.name, period),
            },
            (_, rate) => format!("{}/s", si(rate as f64)),
        };
        let mode = match (event.user, event.kernel) {
            (true, true) => "user+kernel",
            (true, false) => "user",
            (false, true) => "kernel",
            (false, false) => "-",
        };
        let style = if share < 99.5 { view.theme.warning() } else { Style::new() };
        vec![
            Cell::text(event.name.clone()),
            Cell::text(mode),
            Cell { value: event.period.into(), ..Cell::text(period) },
            Cell::number(samples as f64 / seconds, si(samples as f64 / seconds)),
            Cell::number(count as f64, amount(&event.name, count)),
            Cell::number(share, if share.is_finite() { format!("{share:.0} %") } else { "-".into() })
                .styled(style),
            Cell::text(how(event)).styled(view.theme.faint()),
        ]
    };
    let rows: Vec<Vec<Cell>> = model.source.meta.events.iter().enumerate().map(row).collect();
    // Windows take more room than a number, which those that have none keep.
    let period = rows.iter().map(|row| row[PERIOD].text.chars().count()).max().unwrap_or(0);
    Sheet {
        heads: vec![
            Head::text("event", 22),
            Head::text("mode", 11),
            Head::number("period", u16::try_from(period).unwrap_or(u16::MAX).clamp(8, 40)),
            Head::number("samples/s", 9),
            Head::number("count", 8),
            Head::number("on", 6),
            Head::text("how", 0),
        ],
        rows,
        ..Sheet::default()
    }
}

/// Everything that the screen says.
fn lines(view: &View<'_>) -> Vec<Line> {
    let mut lines = Vec::new();
    source(view, &mut lines);
    table(view, &mut lines);
    losses(view, &mut lines);
    cost(view, &mut lines);
    cpus(view, &mut lines);
    lines
}

fn heading(view: &View<'_>, lines: &mut Vec<Line>, title: &str) {
    if !lines.is_empty() {
        lines.push(Vec::new());
    }
    lines.push(vec![(title.to_owned(), view.theme.heading())]);
}

/// A name and what belongs to it, on as many lines as it needs.
fn named(view: &View<'_>, lines: &mut Vec<Line>, name: &str, text: &str) {
    let width = usize::from(view.area.width).saturating_sub(14).max(20);
    for (row, text) in wrapped(text, width).into_iter().enumerate() {
        let name = if row == 0 { name } else { "" };
        lines.push(vec![(format!("{name:<12}"), view.theme.faint()), (text, Style::new())]);
    }
}

fn source(view: &View<'_>, lines: &mut Vec<Line>) {
    let facts = &view.model.source;
    let machine = &facts.meta.machine;
    heading(view, lines, "Source");
    named(view, lines, "source", &facts.line);
    named(view, lines, "target", &facts.target);
    let processor = format!(
        "{} family {} model {} stepping {}, {} CPUs, PMU {}",
        machine.vendor, machine.family, machine.model, machine.stepping, machine.cpus, machine.pmu
    );
    named(view, lines, "processor", &processor);
    named(view, lines, "host", &format!("{}, Linux {}", machine.host_name, machine.kernel_release));
    let watched = match &facts.phase_signal {
        Some(signal) => format!("{signal}, in intervals of {} ms on a CPU", facts.phase_interval_ms),
        None => {
            "nothing: only clocks are measured, which always tell the same (name an event with -e)".to_owned()
        }
    };
    named(view, lines, "phases by", &watched);
    if !view.model.holders.is_empty() {
        named(view, lines, "also counting", &view.model.holders.join(", "));
    }
}

fn table(view: &View<'_>, lines: &mut Vec<Line>) {
    let sheet = events(view);
    heading(view, lines, "Events");
    let columns = sheet.columns(view.area.width.saturating_sub(2));
    let text = |cell: &str, place: usize, width: u16| {
        let width = usize::from(width);
        let cut = crate::view::cut(cell, width);
        if sheet.heads[place].right { format!("{cut:>width$} ") } else { format!("{cut:<width$} ") }
    };
    let head = columns
        .iter()
        .map(|&(place, _, width)| (text(&sheet.heads[place].title, place, width), view.theme.faint()));
    lines.push(head.collect());
    for row in &sheet.rows {
        let cells =
            columns.iter().map(|&(place, _, width)| (text(&row[place].text, place, width), row[place].style));
        lines.push(cells.collect());
    }
    let left_out = sheet.rows.len().saturating_sub(crate::model::EVENTS);
    if left_out > 0 {
        let text =
            format!("only the first {} events are shown by thread; {left_out} are not", crate::model::EVENTS);
        lines.push(vec![(text, view.theme.warning())]);
    }
    if view.model.source.estimated() {
        let text = "counts of hardware events are estimates by perf_event: samples times periods; only the hpm module reads \
                    counters at each switch";
        named(view, lines, "estimated", text);
    }
}

fn losses(view: &View<'_>, lines: &mut Vec<Line>) {
    let totals = &view.model.totals;
    heading(view, lines, "Lost and held back");
    let by_kernel = view.model.source.meta.source == "perf_event";
    let throttled = if by_kernel { "times throttled (kernel)" } else { "quanta throttled" };
    let all = [
        ("quanta without room", totals.quanta_lost),
        ("samples lost", totals.records_lost),
        ("samples withheld", totals.records_withheld),
        ("samples of no event", totals.records_unattributed),
        ("stacks without room", totals.stacks_lost),
        (throttled, totals.throttled),
        ("threads without a place", totals.threads_overflowed),
        ("processes left out", totals.processes_left_out),
        ("markers lost", totals.markers_lost),
        ("reports lost", totals.sideband_lost),
        ("samples not named in time", view.profile.map_or(0, |profile| profile.left_out)),
    ];
    if all.iter().all(|(_, count)| *count == 0) {
        // Of windows nobody knows what they would have had.
        let known = view.model.source.meta.losses_known();
        let nothing = if known { "nothing" } else { "none known to be lost" };
        lines.push(vec![(nothing.to_owned(), Style::new())]);
        return;
    }
    for (name, count) in all.into_iter().filter(|(_, count)| *count > 0) {
        lines.push(vec![
            (format!("{name:<27}"), view.theme.faint()),
            (format!("{count:>10}"), view.theme.warning()),
        ]);
    }
}

fn cost(view: &View<'_>, lines: &mut Vec<Line>) {
    let totals = &view.model.totals;
    heading(view, lines, "What it costs");
    if let Some(cost) = view.model.cost {
        let share = cost.cpu_ns as f64 * 100.0 / (cost.wall_ns as f64).max(1.0);
        let text =
            format!("{share:.2} % of one CPU since the start, {:.1} MiB", cost.memory as f64 / 1_048_576.0);
        named(view, lines, "hpmtop", &text);
    }
    if totals.pmis + totals.msr_reads + totals.msr_writes > 0 {
        let seconds = (view.model.now_ns as f64 / 1e9).max(1e-9);
        let rate = |count: u64| si(count as f64 / seconds);
        let text = format!(
            "{} interrupts/s, {} counter reads/s, {} register writes/s",
            rate(totals.pmis),
            rate(totals.msr_reads),
            rate(totals.msr_writes)
        );
        named(view, lines, "the module", &text);
    }
}

fn cpus(view: &View<'_>, lines: &mut Vec<Line>) {
    let (slot, interval_ns) = view.model.shown_slot();
    heading(view, lines, "CPUs");
    let width = usize::from(view.area.width.saturating_sub(58)).clamp(8, 100);
    for (cpu, series) in &view.model.cpus {
        let now = series.at(slot);
        let share = now.on_cpu_ns as f64 / interval_ns as f64;
        let first = (slot + 1).saturating_sub(width as u64);
        let past: Vec<f64> =
            (first..=slot).map(|slot| series.at(slot).on_cpu_ns as f64 / interval_ns as f64).collect();
        let rate = |count: u32| si(f64::from(count) * 1e9 / interval_ns as f64);
        lines.push(vec![
            (format!("{cpu:>4} "), Style::new()),
            (bar(share, 10), view.theme.load(share)),
            (format!(" {:>5.1} %  ", share * 100.0), Style::new()),
            (
                format!("{:>6} yld/s {:>6} pre/s  ", rate(now.yields), rate(now.preemptions)),
                view.theme.faint(),
            ),
            (format!("{:>width$}", spark(&past, Some(1.0))), view.theme.series(0)),
        ]);
    }
}
