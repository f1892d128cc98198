//! A picture of the screen, from what was drawn: SVG, or text.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Error, Result};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

use crate::state::State;
use crate::view::draw;

/// Width and height of a character in the picture.
const CELL: (f64, f64) = (8.4, 17.0);
/// The colours of a terminal that has none of its own.
const GROUND: Rgb = (16, 20, 24);
const INK: Rgb = (212, 212, 212);

type Rgb = (u8, u8, u8);

/// The 16 colours, as xterm has them.
const NAMED: [Rgb; 16] = [
    (0, 0, 0),
    (205, 0, 0),
    (0, 205, 0),
    (205, 205, 0),
    (60, 100, 238),
    (205, 0, 205),
    (0, 205, 205),
    (229, 229, 229),
    (127, 127, 127),
    (255, 0, 0),
    (0, 255, 0),
    (255, 255, 0),
    (92, 92, 255),
    (255, 0, 255),
    (0, 255, 255),
    (255, 255, 255),
];

/// Everything that is drawn on a terminal of this size.
fn drawn(state: &State, width: u16, height: u16) -> Buffer {
    let area = Rect::new(0, 0, width, height);
    let mut buffer = Buffer::empty(area);
    draw(state, area, &mut buffer);
    buffer
}

/// As text: the characters alone.
pub(crate) fn text(state: &State, width: u16, height: u16) -> String {
    let buffer = drawn(state, width, height);
    let mut text = String::new();
    for y in 0..height {
        let line: String = (0..width).filter_map(|x| buffer.cell((x, y))).map(Cell::symbol).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// As SVG.
pub(crate) fn svg(state: &State, width: u16, height: u16) -> String {
    let buffer = drawn(state, width, height);
    let (wide, high) = (f64::from(width) * CELL.0, f64::from(height) * CELL.1);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {wide:.1} {high:.1}\" width=\"{wide:.0}\" height=\"{high:.0}\" \
         font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"14\" xml:space=\"preserve\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"{}\"/>\n",
        hex(GROUND)
    );
    for y in 0..height {
        let mut x = 0;
        while x < width {
            x = run(&buffer, x, y, &mut svg);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Draws the characters from `x` on that look alike; the first column after them.
fn run(buffer: &Buffer, x: u16, y: u16, svg: &mut String) -> u16 {
    let Some(first) = buffer.cell((x, y)) else { return x + 1 };
    let same = |cell: &Cell| (cell.fg, cell.bg, cell.modifier) == (first.fg, first.bg, first.modifier);
    let mut text = String::new();
    let mut end = x;
    while let Some(cell) = buffer.cell((end, y)).filter(|cell| same(cell)) {
        text.push_str(cell.symbol());
        end += 1;
    }
    let (left, top, wide) = (f64::from(x) * CELL.0, f64::from(y) * CELL.1, f64::from(end - x) * CELL.0);
    let (mut ink, mut ground) = (rgb(first.fg).unwrap_or(INK), rgb(first.bg));
    if first.modifier.contains(Modifier::REVERSED) {
        (ink, ground) = (ground.unwrap_or(GROUND), Some(ink));
    }
    // Writing to a string cannot fail.
    if let Some(ground) = ground {
        let _ = writeln!(
            svg,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{wide:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
            CELL.1,
            hex(ground)
        );
    }
    if !text.trim().is_empty() {
        let weight = if first.modifier.contains(Modifier::BOLD) { " font-weight=\"bold\"" } else { "" };
        let faint = if first.modifier.contains(Modifier::DIM) { " opacity=\"0.6\"" } else { "" };
        let line =
            if first.modifier.contains(Modifier::UNDERLINED) { " text-decoration=\"underline\"" } else { "" };
        let _ = writeln!(
            svg,
            "<text x=\"{left:.1}\" y=\"{:.1}\" textLength=\"{wide:.1}\" lengthAdjust=\"spacingAndGlyphs\" fill=\"{}\"{weight}{faint}{line}>{}</text>",
            top + 13.0,
            hex(ink),
            escaped(&text)
        );
    }
    end
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn hex((red, green, blue): Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// A colour as the terminals of most people show it; `None` for the terminal's own.
fn rgb(colour: Color) -> Option<Rgb> {
    let named = |place: usize| Some(NAMED[place]);
    match colour {
        Color::Reset => None,
        Color::Rgb(red, green, blue) => Some((red, green, blue)),
        Color::Black => named(0),
        Color::Red => named(1),
        Color::Green => named(2),
        Color::Yellow => named(3),
        Color::Blue => named(4),
        Color::Magenta => named(5),
        Color::Cyan => named(6),
        Color::Gray => named(7),
        Color::DarkGray => named(8),
        Color::LightRed => named(9),
        Color::LightGreen => named(10),
        Color::LightYellow => named(11),
        Color::LightBlue => named(12),
        Color::LightMagenta => named(13),
        Color::LightCyan => named(14),
        Color::White => named(15),
        Color::Indexed(number @ 0..=15) => named(number.into()),
        // A cube of 6 × 6 × 6 colours, then 24 greys.
        Color::Indexed(number @ 16..=231) => {
            let level = |part: u8| if part == 0 { 0 } else { 55 + 40 * part };
            let number = number - 16;
            Some((level(number / 36), level(number / 6 % 6), level(number % 6)))
        }
        Color::Indexed(number) => {
            let grey = 8 + 10 * (number - 232);
            Some((grey, grey, grey))
        }
    }
}

/// Whether a picture is SVG or text, by the file's ending.
///
/// # Errors
/// It is to be something else, in words.
fn is_svg(path: &Path) -> Result<bool, String> {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    match ending.as_deref() {
        Some("svg") => Ok(true),
        None | Some("txt") => Ok(false),
        Some(_) => Err("a picture's name ends in .svg, or for text in .txt".to_owned()),
    }
}

/// A picture file of the command line.
///
/// # Errors
/// It is to be what is not written.
pub(crate) fn file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    is_svg(&path).map(|_| path)
}

/// Writes the screen as it is on a terminal of this size to a file: SVG or text, as its ending says.
///
/// # Errors
/// The file cannot be written, or is to be something else.
pub(crate) fn write(state: &State, path: &Path, (width, height): (u16, u16)) -> Result<()> {
    let is_svg = is_svg(path).map_err(Error::msg)?;
    let picture = if is_svg { svg(state, width, height) } else { text(state, width, height) };
    fs::write(path, picture).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endings_say_what_is_written() {
        assert_eq!(
            ["a.SVG", "a.txt", "/dev/stdout"].map(|name| is_svg(Path::new(name))),
            [Ok(true), Ok(false), Ok(false)]
        );
        assert!(file("a.png").unwrap_err().contains(".svg"));
    }

    #[test]
    fn colours_are_those_of_xterm() {
        assert_eq!(rgb(Color::Indexed(75)), Some((95, 175, 255)));
        assert_eq!(rgb(Color::Indexed(236)), Some((48, 48, 48)));
        assert_eq!(rgb(Color::Indexed(15)), Some((255, 255, 255)));
        assert_eq!((rgb(Color::Reset), rgb(Color::Red)), (None, Some((205, 0, 0))));
    }
}
