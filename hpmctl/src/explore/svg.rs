//! Graphs and timelines as pictures.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use libhpm::analysis::explore::{QuantumEnd, Record, Timeline};

use super::plot::{range, short};
use super::timeline::lane_name;
use super::{Show, View};
use crate::svg::{COLOURS, escaped, picture, put};

/// Size of the area with the data.
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 360.0;
/// Where it begins: beside the labels, below the title.
const LEFT: f64 = 90.0;
const TOP: f64 = 40.0;
/// Height of a timeline's lane, with the space below it.
const LANE: f64 = 26.0;
const BAR: f64 = 16.0;

/// The picture of what is shown.
pub(super) fn draw(show: Show, view: &View<'_>) -> Result<String> {
    match show {
        Show::Scatter => {
            let (x, y) = view.scatter()?;
            let points = view.chosen.iter().map(|record| {
                let x = view.value(x, record);
                Mark { record, from: x, until: x, y: view.value(y, record) }
            });
            Ok(graph(view, (&x.text, &y.text), &points.collect::<Vec<_>>(), false))
        }
        Show::Time => {
            let y = view.time()?;
            let ms = |ns: u64| ns as f64 / 1e6;
            let lines = view.chosen.iter().map(|record| Mark {
                record,
                from: ms(record.start_ns),
                until: ms(record.end_ns),
                y: view.value(y, record),
            });
            Ok(graph(view, ("ms", &y.text), &lines.collect::<Vec<_>>(), true))
        }
        Show::Threads => Ok(timeline(view, Timeline::Threads)),
        Show::Cpus => Ok(timeline(view, Timeline::Cpus)),
        _ => bail!("--picture draws a graph or a timeline: give --show scatter, time, threads or cpus"),
    }
}

/// A record in a graph: a line from one place to another, or a point.
struct Mark<'a> {
    record: &'a Record,
    from: f64,
    until: f64,
    y: f64,
}

/// The colours of numbered things, in the order of their appearance.
struct Palette(BTreeMap<u32, &'static str>);

impl Palette {
    fn of(ids: impl Iterator<Item = u32>) -> Self {
        let mut colours = BTreeMap::new();
        for id in ids {
            let next = COLOURS[colours.len() % COLOURS.len()];
            colours.entry(id).or_insert(next);
        }
        Self(colours)
    }
}

/// From values to places.
struct Scale {
    min: f64,
    span: f64,
}

impl Scale {
    fn new((min, max): (f64, f64)) -> Self {
        // One value alone stands in the middle.
        if max > min { Self { min, span: max - min } } else { Self { min: min - 0.5, span: 1.0 } }
    }

    fn x(&self, value: f64) -> f64 {
        LEFT + (value - self.min) / self.span * WIDTH
    }

    fn y(&self, value: f64) -> f64 {
        TOP + HEIGHT - (value - self.min) / self.span * HEIGHT
    }

    /// Values for labels.
    fn ticks(&self) -> impl Iterator<Item = f64> {
        (0..=4).map(|part| self.min + self.span * f64::from(part) / 4.0)
    }
}

fn graph(view: &View<'_>, (x_label, y_label): (&str, &str), marks: &[Mark<'_>], timed: bool) -> String {
    let drawn: Vec<&Mark<'_>> =
        marks.iter().filter(|mark| mark.from.is_finite() && mark.y.is_finite()).collect();
    let mut svg = title(&format!("{y_label} against {x_label}"));
    if drawn.is_empty() {
        text(&mut svg, (LEFT, TOP + 20.0), "start", "no record has both");
        return picture((LEFT + WIDTH) as usize + 20, (TOP + HEIGHT) as usize, &svg);
    }
    let x = Scale::new(range(drawn.iter().flat_map(|mark| [mark.from, mark.until])));
    let y = Scale::new(range(drawn.iter().map(|mark| mark.y)));
    axes(&mut svg, &x, &y);
    if timed {
        markers(&mut svg, view, &x);
    }
    let palette = Palette::of(view.chosen.iter().map(|record| record.tid));
    for mark in drawn {
        let (from, until, y, colour) =
            (x.x(mark.from), x.x(mark.until), y.y(mark.y), palette.0[&mark.record.tid]);
        // A round cap makes a point of a line without length.
        put(
            &mut svg,
            format_args!(
                "<path d=\"M{from:.1} {y:.1}H{until:.1}\" stroke=\"{colour}\" stroke-width=\"3\" stroke-linecap=\"round\"/>"
            ),
        );
    }
    let names = view.threads().into_iter().map(|(tid, name)| (palette.0[&tid], name));
    let bottom = legend(&mut svg, names, TOP + HEIGHT + 50.0);
    text(&mut svg, (LEFT + WIDTH / 2.0, TOP + HEIGHT + 34.0), "middle", x_label);
    picture((LEFT + WIDTH) as usize + 20, bottom as usize, &svg)
}

fn title(head: &str) -> String {
    let mut svg = String::new();
    put(&mut svg, format_args!("<text x=\"10\" y=\"20\" font-size=\"14\">{}</text>", escaped(head)));
    svg
}

fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    put(
        svg,
        format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escaped(words)),
    );
}

fn axes(svg: &mut String, x: &Scale, y: &Scale) {
    let (right, bottom) = (LEFT + WIDTH, TOP + HEIGHT);
    put(svg, format_args!("<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"black\"/>"));
    for tick in x.ticks() {
        put(svg, format_args!("<path d=\"M{:.1} {bottom}v4\" stroke=\"black\"/>", x.x(tick)));
        text(svg, (x.x(tick), bottom + 18.0), "middle", &short(tick));
    }
    for tick in y.ticks() {
        put(svg, format_args!("<path d=\"M{LEFT} {:.1}h-4\" stroke=\"black\"/>", y.y(tick)));
        text(svg, (LEFT - 8.0, y.y(tick) + 4.0), "end", &short(tick));
    }
}

/// A dotted line with its name for each marker within the time that is shown.
fn markers(svg: &mut String, view: &View<'_>, x: &Scale) {
    for marker in view.records.markers() {
        let ms = marker.time_ns as f64 / 1e6;
        if (x.min..=x.min + x.span).contains(&ms) {
            let place = x.x(ms);
            let bottom = TOP + HEIGHT;
            put(
                svg,
                format_args!(
                    "<path d=\"M{place:.1} {TOP}V{bottom}\" stroke=\"#888\" stroke-dasharray=\"2 3\"/>"
                ),
            );
            text(svg, (place + 3.0, TOP + 10.0), "start", &marker.text);
        }
    }
}

/// A colour and a name in each line; returns where it ends.
fn legend(svg: &mut String, names: impl Iterator<Item = (&'static str, String)>, top: f64) -> f64 {
    let mut y = top;
    for (colour, name) in names {
        put(svg, format_args!("<rect x=\"{LEFT}\" y=\"{y}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>"));
        text(svg, (LEFT + 16.0, y + 9.0), "start", &name);
        y += 16.0;
    }
    y + 10.0
}

fn timeline(view: &View<'_>, timeline: Timeline) -> String {
    let ms = |ns: u64| ns as f64 / 1e6;
    let x = Scale::new(range(view.chosen.iter().flat_map(|record| [ms(record.start_ns), ms(record.end_ns)])));
    let mut lanes: BTreeMap<u32, Vec<&Record>> = BTreeMap::new();
    for &record in view.chosen {
        lanes.entry(timeline.lane(record)).or_default().push(record);
    }
    let palette = Palette::of(view.chosen.iter().map(|record| timeline.content(record)));
    let what =
        if timeline == Timeline::Threads { "threads, coloured by CPU" } else { "CPUs, coloured by thread" };
    let mut svg = title(&format!("{what}; a triangle is a pre-emption, a dot a yield, a cross an exit"));
    let mut top = TOP;
    for (id, records) in lanes {
        text(&mut svg, (LEFT - 8.0, top + 12.0), "end", &lane_name(view, timeline, id));
        for record in records {
            let (from, until) = (x.x(ms(record.start_ns)), x.x(ms(record.end_ns)));
            let (width, colour) = ((until - from).max(0.3), palette.0[&timeline.content(record)]);
            put(
                &mut svg,
                format_args!(
                    "<rect x=\"{from:.1}\" y=\"{top}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>"
                ),
            );
            end_mark(&mut svg, record.end, (until, top + BAR + 4.0));
        }
        top += LANE;
    }
    for tick in x.ticks() {
        text(&mut svg, (x.x(tick), top + 10.0), "middle", &format!("{} ms", short(tick)));
    }
    let name = |id: u32| match timeline {
        Timeline::Threads => format!("CPU {id}"),
        Timeline::Cpus => lane_name(view, Timeline::Threads, id),
    };
    let bottom = legend(&mut svg, palette.0.iter().map(|(id, colour)| (*colour, name(*id))), top + 24.0);
    picture((LEFT + WIDTH) as usize + 40, bottom as usize, &svg)
}

/// How a record ended, below its end.
fn end_mark(svg: &mut String, end: Option<QuantumEnd>, (x, y): (f64, f64)) {
    match end {
        Some(QuantumEnd::Yielded) => put(svg, format_args!("<circle cx=\"{x:.1}\" cy=\"{y}\" r=\"1.5\"/>")),
        Some(QuantumEnd::Preempted) => {
            put(svg, format_args!("<path d=\"M{x:.1} {y}l-3 4h6z\" fill=\"#d00000\"/>"));
        }
        Some(QuantumEnd::Exit) => put(
            svg,
            format_args!("<path d=\"M{x:.1} {y}m-2 -2l4 4m0 -4l-4 4\" stroke=\"black\" fill=\"none\"/>"),
        ),
        _ => {}
    }
}
