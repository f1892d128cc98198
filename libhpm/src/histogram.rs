//! Histograms as an SVG picture that opens in any browser: panels above one another that share both axes.

use std::fmt::Write as _;
use std::io::{self, Write};

/// One bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its place on the horizontal axis.
    pub at: i64,
    /// Its height, from 0 to 1.
    pub share: f64,
    /// How far the share can be off, either way.
    pub error: f64,
    /// What is shown when the pointer rests on it.
    pub label: String,
}

/// One histogram of the picture.
#[derive(Clone, Debug)]
pub struct Panel {
    /// What it shows.
    pub title: String,
    /// Its bars.
    pub bars: Vec<Bar>,
}

const WIDTH: f64 = 1000.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 50.0;
const PANEL: f64 = 200.0;
const GAP: f64 = 60.0;
/// Room for what the horizontal axis shows.
const BOTTOM: f64 = 10.0;

/// From values to pixels.
struct Scale {
    first: f64,
    per_unit: f64,
    /// The greatest height of a bar.
    highest: f64,
}

impl Scale {
    fn of(panels: &[Panel]) -> Self {
        let bars = || panels.iter().flat_map(|panel| &panel.bars);
        // The origin is always seen, and some room beside the outermost bars.
        let (first, last) = bars().fold((0, 0), |(low, high), bar| (bar.at.min(low), bar.at.max(high)));
        let margin = ((last - first) as f64 * 0.03).max(1.0);
        let highest = bars().map(|bar| bar.share + bar.error).fold(0.01, f64::max).min(1.0);
        let units = (last - first) as f64 + 2.0 * margin;
        Self { first: first as f64 - margin, per_unit: (WIDTH - LEFT - RIGHT) / units, highest }
    }

    fn x(&self, at: f64) -> f64 {
        LEFT + (at - self.first) * self.per_unit
    }

    fn height(&self, share: f64) -> f64 {
        (share / self.highest).min(1.0) * PANEL
    }

    fn last(&self) -> f64 {
        self.first + (WIDTH - LEFT - RIGHT) / self.per_unit
    }
}

/// The least of 1, 2, 5, 10, 20, 50, … that divides the span into at most ten parts.
fn step(span: f64) -> f64 {
    let decade = 10_f64.powf((span / 10.0).log10().floor());
    let fits = |factor: &&f64| span / (**factor * decade) <= 10.0;
    [1.0, 2.0, 5.0, 10.0].iter().find(fits).copied().unwrap_or(10.0) * decade
}

/// Draws the panels. `axis` says what the horizontal axis shows; heights are in percent.
///
/// # Errors
/// The output cannot be written.
pub fn write_svg(title: &str, axis: &str, panels: &[Panel], mut output: impl Write) -> io::Result<()> {
    let scale = Scale::of(panels);
    let height = TOP + panels.len() as f64 * (PANEL + GAP) + BOTTOM;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}</text>\n",
        escaped(title)
    );
    for (number, panel) in panels.iter().enumerate() {
        let bottom = TOP + GAP / 2.0 + number as f64 * (PANEL + GAP) + PANEL;
        draw(&mut svg, panel, &scale, bottom);
    }
    // Writing to a string cannot fail.
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n</svg>",
        WIDTH / 2.0,
        height - 4.0,
        escaped(axis)
    );
    output.write_all(svg.as_bytes())
}

fn draw(svg: &mut String, panel: &Panel, scale: &Scale, bottom: f64) {
    let top = bottom - PANEL;
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"{}\" font-weight=\"bold\">{}</text>",
        top - 8.0,
        escaped(&panel.title)
    );
    let percent = step(scale.highest * 100.0);
    let mut mark = 0.0;
    while mark <= scale.highest * 100.0 + 1e-9 {
        let y = bottom - scale.height(mark / 100.0);
        let _ = writeln!(
            svg,
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{} %</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            y + 4.0,
            round(mark)
        );
        mark += percent;
    }
    let apart = step(scale.last() - scale.first).max(1.0);
    let mut tick = (scale.first / apart).ceil() * apart;
    while tick <= scale.last() {
        let x = scale.x(tick);
        let stroke = if tick == 0.0 { "#c33" } else { "#eee" };
        let _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\" stroke=\"{stroke}\"/>\
             <text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 15.0,
            round(tick)
        );
        tick += apart;
    }
    let width = (scale.per_unit * 0.8).clamp(2.0, 40.0);
    for bar in &panel.bars {
        let (x, height) = (scale.x(bar.at as f64), scale.height(bar.share));
        let (high, low) =
            (scale.height(bar.share + bar.error), scale.height((bar.share - bar.error).max(0.0)));
        let _ = writeln!(
            svg,
            "<g><title>{}</title><rect x=\"{:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             fill=\"#3a76b8\"/><line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{:.1}\" stroke=\"black\"/></g>",
            escaped(&bar.label),
            x - width / 2.0,
            bottom - height,
            bottom - high,
            bottom - low
        );
    }
}

/// A mark's number without the rounding error of its sum.
fn round(number: f64) -> f64 {
    let rounded = (number * 1000.0).round() / 1000.0;
    if rounded == 0.0 { 0.0 } else { rounded }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(at: i64, share: f64) -> Bar {
        Bar { at, share, error: 0.01, label: format!("{at} <here>") }
    }

    #[test]
    fn every_bar_is_drawn_at_its_place_with_its_height() {
        let panels = [
            Panel { title: "a & b".into(), bars: vec![bar(42, 0.75), bar(43, 0.25)] },
            Panel { title: "c".into(), bars: vec![bar(0, 1.0)] },
        ];
        let mut svg = Vec::new();
        write_svg("title", "instructions", &panels, &mut svg).unwrap();
        let svg = String::from_utf8(svg).unwrap();
        assert_eq!(svg.matches("<rect").count(), 1 + 3, "the background and the bars");
        assert!(svg.contains("a &amp; b") && svg.contains("42 &lt;here&gt;"), "{svg}");
        let attribute = |name: &str| -> Vec<f64> {
            let bars = svg.lines().filter(|line| line.starts_with("<g>"));
            let value =
                |line: &str| line.split(&format!(" {name}=\"")).nth(1)?.split('"').next()?.parse().ok();
            bars.map(|line| value(line.split("<rect").nth(1).unwrap()).unwrap()).collect()
        };
        assert_eq!(attribute("height"), [150.0, 50.0, 200.0]);
        let places = attribute("x");
        assert!(places[0] < places[1] && places[2] < places[0], "{places:?}");
    }

    #[test]
    fn marks_are_round_numbers() {
        assert_eq!([step(100.0), step(46.0), step(7.0), step(3.0)], [10.0, 5.0, 1.0, 0.5]);
    }
}
