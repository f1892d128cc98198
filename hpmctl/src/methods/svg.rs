//! Box plots of each metric by phase (Figure 6), and each metric over time.

use libhpm::analysis::method::statistics::FiveNumbers;

use super::report::{Measured, Phase, PhaseMetric};
use crate::svg::{COLOURS, escaped, picture, put};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 220.0;
const ROW: f64 = 22.0;
const BOX: f64 = 12.0;
const CURVE: f64 = 140.0;
/// Whiskers reach to the last value within so many times the box's height (Tukey).
const WHISKER: f64 = 1.5;

/// The picture.
pub(super) fn draw(command: &[String], measured: &Measured) -> String {
    let mut svg = String::new();
    let head = format!("method-level phases of {}", command.join(" "));
    put(&mut svg, format_args!("<text x=\"10\" y=\"22\" font-size=\"14\">{}</text>", escaped(&head)));
    let mut top = 40.0;
    for variability in &measured.variability {
        let phases: Vec<(usize, &Phase, &PhaseMetric)> = measured
            .phases
            .iter()
            .enumerate()
            .filter_map(|(place, phase)| {
                let metric = phase.metrics.iter().find(|metric| metric.metric == variability.metric)?;
                Some((place, phase, metric))
            })
            .collect();
        put(
            &mut svg,
            format_args!("<text x=\"10\" y=\"{}\">{}</text>", top + 12.0, escaped(&variability.metric)),
        );
        top = boxes(&mut svg, &phases, top + 24.0);
        top = over_time(&mut svg, &phases, top + 8.0) + 24.0;
    }
    picture((LEFT + WIDTH) as usize + 20, top as usize + 10, &svg)
}

fn colour(place: usize) -> &'static str {
    COLOURS[place % COLOURS.len()]
}

/// The highest value, or 1 where there is none above 0.
fn highest(phases: &[(usize, &Phase, &PhaseMetric)]) -> f64 {
    let highest = phases.iter().map(|(.., metric)| metric.numbers.max).fold(0.0, f64::max);
    if highest > 0.0 { highest } else { 1.0 }
}

fn boxes(svg: &mut String, phases: &[(usize, &Phase, &PhaseMetric)], top: f64) -> f64 {
    let x = |value: f64| LEFT + WIDTH * value.max(0.0) / highest(phases);
    let mut y = top;
    for (place, phase, metric) in phases {
        let short: String = phase.name.chars().take(32).collect();
        put(
            svg,
            format_args!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + BOX,
                escaped(&short)
            ),
        );
        one_box(svg, metric, (y, colour(*place)), x);
        y += ROW;
    }
    for part in 0..=4 {
        let value = highest(phases) * f64::from(part) / 4.0;
        put(
            svg,
            format_args!(
                "<path d=\"M{0:.1} {y:.1}v4\" stroke=\"black\"/>\n<text x=\"{0:.1}\" y=\"{1:.1}\" text-anchor=\"middle\">{value:.3}</text>",
                x(value),
                y + 16.0
            ),
        );
    }
    y + 20.0
}

fn one_box(svg: &mut String, metric: &PhaseMetric, (top, colour): (f64, &str), x: impl Fn(f64) -> f64) {
    let FiveNumbers { lower_quartile, median, upper_quartile, .. } = metric.numbers;
    let reach = WHISKER * (upper_quartile - lower_quartile);
    let within = |value: &f64| (lower_quartile - reach..=upper_quartile + reach).contains(value);
    let values = || metric.over_time.iter().map(|(_, value)| *value);
    let (least, most) = values()
        .filter(within)
        .fold((median, median), |(least, most), value| (least.min(value), most.max(value)));
    let middle = top + BOX / 2.0;
    put(svg, format_args!("<path d=\"M{:.1} {middle:.1}H{:.1}\" stroke=\"black\"/>", x(least), x(most)));
    put(
        svg,
        format_args!(
            "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{BOX}\" fill=\"{colour}\" stroke=\"black\"/>",
            x(lower_quartile),
            (x(upper_quartile) - x(lower_quartile)).max(0.5)
        ),
    );
    put(
        svg,
        format_args!("<path d=\"M{:.1} {top:.1}v{BOX}\" stroke=\"black\" stroke-width=\"2\"/>", x(median)),
    );
    for value in values().filter(|value| !within(value)) {
        put(svg, format_args!("<circle cx=\"{:.1}\" cy=\"{middle:.1}\" r=\"1.5\"/>", x(value)));
    }
}

/// When the bottleneck occurs (§5.3.2): each invocation as a point at its begin.
fn over_time(svg: &mut String, phases: &[(usize, &Phase, &PhaseMetric)], top: f64) -> f64 {
    let points = || {
        phases.iter().flat_map(|(place, _, metric)| metric.over_time.iter().map(move |point| (*place, point)))
    };
    let end = points().map(|(_, (ms, _))| *ms).fold(0.0, f64::max).max(1e-9);
    let highest = highest(phases);
    let bottom = top + CURVE;
    put(
        svg,
        format_args!(
            "<path d=\"M{LEFT} {top:.1}V{bottom:.1}H{:.1}\" fill=\"none\" stroke=\"black\"/>",
            LEFT + WIDTH
        ),
    );
    for (place, (ms, value)) in points() {
        put(
            svg,
            format_args!(
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2\" fill=\"{}\"/>",
                LEFT + WIDTH * ms / end,
                bottom - CURVE * value / highest,
                colour(place)
            ),
        );
    }
    put(
        svg,
        format_args!(
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{end:.1} ms since the begin</text>",
            LEFT + WIDTH,
            bottom + 14.0
        ),
    );
    bottom + 16.0
}
