//! Graphs as text: points on a grid of characters.

use std::fmt::Write as _;

/// A point, and the character that stands for it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
    /// What is drawn; where points of different kinds meet it is `*`.
    pub(super) glyph: char,
}

/// A graph of points.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plot<'a> {
    /// What is to the right.
    pub(super) x_label: &'a str,
    /// What is upwards.
    pub(super) y_label: &'a str,
    /// Characters of the grid's width; at least 10.
    pub(super) width: usize,
    /// Lines of the grid's height; at least 3.
    pub(super) height: usize,
    /// Places on the x axis that get a dotted line.
    pub(super) marks: &'a [f64],
}

impl Plot<'_> {
    /// Draws the points that have two numbers. Says so when there is none.
    pub(super) fn draw(&self, points: impl IntoIterator<Item = Point>) -> String {
        let points: Vec<Point> =
            points.into_iter().filter(|point| point.x.is_finite() && point.y.is_finite()).collect();
        if points.is_empty() {
            return format!("no record has both {} and {}\n", self.x_label, self.y_label);
        }
        let (width, height) = (self.width.max(10), self.height.max(3));
        let (x_min, x_max) = range(points.iter().map(|point| point.x));
        let (y_min, y_max) = range(points.iter().map(|point| point.y));
        let mut grid = vec![vec![' '; width]; height];
        for &mark in self.marks.iter().filter(|mark| (x_min..=x_max).contains(*mark)) {
            let column = place(mark, x_min, x_max, width);
            grid.iter_mut().for_each(|line| line[column] = ':');
        }
        for point in points {
            let column = place(point.x, x_min, x_max, width);
            let line = height - 1 - place(point.y, y_min, y_max, height);
            let cell = &mut grid[line][column];
            *cell = if matches!(*cell, ' ' | ':') || *cell == point.glyph { point.glyph } else { '*' };
        }
        let mut text = format!("{}\n", self.y_label);
        for (number, line) in grid.iter().enumerate() {
            let label = match number {
                0 => short(y_max),
                _ if number == height - 1 => short(y_min),
                _ => String::new(),
            };
            let line: String = line.iter().collect();
            let _ = writeln!(text, "{label:>10} |{}", line.trim_end());
        }
        let _ = writeln!(text, "{:>10} +{}", "", "-".repeat(width));
        let (left, right) = (short(x_min), short(x_max));
        let middle = width.saturating_sub(left.len() + right.len());
        let _ = writeln!(text, "{:>11} {left}{:^middle$}{right}", "", self.x_label);
        text
    }
}

/// Least and greatest.
pub(super) fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), value| (min.min(value), max.max(value)))
}

/// Which of so many places a value has.
fn place(value: f64, min: f64, max: f64, places: usize) -> usize {
    let share = if max > min { (value - min) / (max - min) } else { 0.5 };
    ((share * places as f64) as usize).min(places - 1)
}

/// A number in at most nine characters.
pub(super) fn short(number: f64) -> String {
    let size = number.abs();
    match size {
        _ if number == 0.0 => "0".into(),
        1e12.. => format!("{number:.2e}"),
        1e9.. => format!("{:.2}G", number / 1e9),
        1e6.. => format!("{:.2}M", number / 1e6),
        1e4.. => format!("{:.2}k", number / 1e3),
        0.001.. => format!("{number:.3}"),
        _ => format!("{number:.1e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plots_put_points_where_they_belong() {
        let points =
            [(0.0, 0.0, 'a'), (10.0, 100.0, 'a'), (10.0, 100.0, 'b'), (5.0, 50.0, 'b'), (f64::NAN, 1.0, 'a')];
        let points = points.map(|(x, y, glyph)| Point { x, y, glyph });
        let plot = Plot { x_label: "x", y_label: "y", width: 21, height: 5, marks: &[2.0, 11.0] };
        insta::assert_snapshot!(plot.draw(points));
        assert_eq!(plot.draw([]), "no record has both x and y\n");
    }

    #[test]
    fn numbers_stay_short() {
        for number in [0.0, -0.5, 1e-9, -123_456.0, 9999.9, 123_456_789.0, -9.99e11, 1e300, f64::MAX] {
            assert!(short(number).len() <= 9, "{}", short(number));
        }
    }
}
