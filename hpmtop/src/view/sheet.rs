//! A table as data: drawn, dumped to JSON and CSV, and printed by `--once`.

use libhpm::export::csv_line;
use libhpm::text;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use serde_json::Value;

use super::text::cut;
use crate::theme::Theme;

/// A column.
#[derive(Clone, Debug, Default)]
pub(crate) struct Head {
    pub(crate) title: String,
    /// Columns of the terminal; 0 takes what is left.
    pub(crate) width: u16,
    /// To the right, as numbers are.
    pub(crate) right: bool,
    /// Drawn only, and not told to other programs.
    pub(crate) picture: bool,
    /// What rows are sorted by: `Some(true)` when the smallest comes first.
    pub(crate) sorted: Option<bool>,
}

impl Head {
    /// A number.
    pub(crate) fn number(title: &str, width: u16) -> Self {
        Self { right: true, ..Self::text(title, width) }
    }

    /// A text.
    pub(crate) fn text(title: &str, width: u16) -> Self {
        Self { title: text::line(title).into_owned(), width, ..Self::default() }
    }

    /// A small picture.
    pub(crate) fn picture(width: u16) -> Self {
        Self { width, picture: true, ..Self::default() }
    }
}

/// A place of the table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cell {
    pub(crate) text: String,
    pub(crate) style: Style,
    /// What other programs are told.
    pub(crate) value: Value,
}

impl Cell {
    /// A text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        // Other programs are told the text as it is.
        Self { text: text::line(&text).into_owned(), value: Value::from(text), style: Style::new() }
    }

    /// A number, and how it is shown; nothing for what is not a number.
    pub(crate) fn number(number: f64, text: String) -> Self {
        let value = serde_json::Number::from_f64(number).map_or(Value::Null, Value::Number);
        Self { text, value, style: Style::new() }
    }

    /// A whole number.
    pub(crate) fn whole(number: u64) -> Self {
        Self { text: number.to_string(), value: Value::from(number), style: Style::new() }
    }

    pub(crate) fn styled(self, style: Style) -> Self {
        Self { style, ..self }
    }
}

/// A table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sheet {
    pub(crate) heads: Vec<Head>,
    pub(crate) rows: Vec<Vec<Cell>>,
    /// Rows above the first one of these.
    pub(crate) offset: usize,
    /// All rows, those included that are not here.
    pub(crate) total: usize,
    /// Place of the selected row among these.
    pub(crate) selected: Option<usize>,
}

impl Sheet {
    /// Where each column begins and how wide it is; those without room are left out.
    pub(crate) fn columns(&self, width: u16) -> Vec<(usize, u16, u16)> {
        let fixed: u16 = self.heads.iter().map(|head| head.width + 1).sum();
        let flexible = self.heads.iter().filter(|head| head.width == 0).count().max(1) as u16;
        let room = width.saturating_sub(fixed) / flexible;
        let mut x = 0;
        let mut found = Vec::new();
        for (place, head) in self.heads.iter().enumerate() {
            let wide = if head.width == 0 { room.max(8) } else { head.width };
            // A number that is cut would be another number.
            if x >= width || (head.width > 0 && x > 0 && x + wide > width) {
                break;
            }
            found.push((place, x, wide.min(width - x)));
            x += wide + 1;
        }
        found
    }

    /// Draws headings and rows.
    pub(crate) fn draw(&self, buffer: &mut Buffer, area: Rect, theme: &Theme) {
        if area.height == 0 || area.width < 2 {
            return;
        }
        let columns = self.columns(area.width - 1);
        for &(place, x, width) in &columns {
            let head = &self.heads[place];
            let arrow = match head.sorted {
                Some(true) => "▴",
                Some(false) => "▾",
                None => "",
            };
            let title = format!("{}{arrow}", head.title);
            let style = if head.sorted.is_some() {
                theme.heading().add_modifier(Modifier::REVERSED)
            } else {
                theme.heading()
            };
            put(buffer, (area.x + x, area.y), &title, width, head.right, style);
        }
        for (line, row) in self.rows.iter().enumerate().take(usize::from(area.height) - 1) {
            let y = area.y + 1 + line as u16;
            for &(place, x, width) in &columns {
                if let Some(cell) = row.get(place) {
                    put(buffer, (area.x + x, y), &cell.text, width, self.heads[place].right, cell.style);
                }
            }
            if self.selected == Some(line) {
                buffer.set_style(Rect { y, height: 1, width: area.width - 1, ..area }, theme.selected());
            }
        }
        self.scroll_bar(buffer, area, theme);
    }

    /// How much of the whole is seen.
    fn scroll_bar(&self, buffer: &mut Buffer, area: Rect, theme: &Theme) {
        let height = usize::from(area.height.saturating_sub(1));
        if self.total <= height || height == 0 {
            return;
        }
        let size = (height * height / self.total).max(1);
        let first = self.offset * (height - size) / (self.total - height).max(1);
        for line in 0..height {
            let sign = if (first..first + size).contains(&line) { "█" } else { "│" };
            let at = (area.right() - 1, area.y + 1 + line as u16);
            buffer.set_string(at.0, at.1, sign, theme.faint());
        }
    }

    /// As a list of objects.
    pub(crate) fn json(&self) -> Value {
        let heads = || self.heads.iter().enumerate().filter(|(_, head)| !head.picture);
        let row = |row: &Vec<Cell>| {
            let value = |place: usize| row.get(place).map_or(Value::Null, |cell| cell.value.clone());
            heads().map(|(place, head)| (head.title.clone(), value(place))).collect()
        };
        Value::Array(self.rows.iter().map(|cells| Value::Object(row(cells))).collect())
    }

    /// As comma-separated values (RFC 4180, with line feeds): the headings, and the rows, with the time of both in front. People read
    /// them on terminals, too, and so names are as they are printed.
    pub(crate) fn csv(&self, now_ns: u64) -> (String, String) {
        let heads: Vec<usize> = (0..self.heads.len()).filter(|&place| !self.heads[place].picture).collect();
        let line = |first: String, cells: Vec<String>| csv_line([first].into_iter().chain(cells));
        let titles = heads.iter().map(|&place| self.heads[place].title.clone()).collect();
        let row = |row: &Vec<Cell>| {
            let cell = |place: &usize| match row.get(*place).map(|cell| &cell.value) {
                None | Some(Value::Null) => String::new(),
                Some(Value::String(text)) => text::line(text).to_string(),
                Some(other) => other.to_string(),
            };
            line(format!("{:.6}", now_ns as f64 / 1e9), heads.iter().map(cell).collect())
        };
        (line("time_s".to_owned(), titles), self.rows.iter().map(row).collect())
    }

    /// As text for people, without pictures; long texts are cut.
    pub(crate) fn plain(&self) -> String {
        const LONGEST: usize = 80;
        let heads: Vec<usize> = (0..self.heads.len()).filter(|&place| !self.heads[place].picture).collect();
        let shown = |row: &Vec<Cell>, place: usize| {
            row.get(place).map_or_else(String::new, |cell| cut(&cell.text, LONGEST))
        };
        let wide = |place: usize| {
            let cells = self.rows.iter().map(|row| shown(row, place).chars().count());
            cells.max().unwrap_or(0).max(self.heads[place].title.chars().count())
        };
        let widths: Vec<usize> = heads.iter().map(|&place| wide(place)).collect();
        let pad = |(place, width): (usize, usize), text: &str| match self.heads[place].right {
            true => format!("{text:>width$}"),
            false => format!("{text:<width$}"),
        };
        let places = || heads.iter().copied().zip(widths.iter().copied());
        let title: Vec<String> = places().map(|at| pad(at, &self.heads[at.0].title)).collect();
        let mut lines = vec![title.join("  ")];
        for row in &self.rows {
            let cells: Vec<String> = places().map(|at| pad(at, &shown(row, at.0))).collect();
            lines.push(cells.join("  "));
        }
        let mut text = String::new();
        for line in lines {
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Whether each character of a text takes one column: ASCII, lines and blocks do, and most texts have nothing else.
fn is_plain(text: &str) -> bool {
    text.chars().all(|one| matches!(one, ' '..='~' | '\u{2500}'..='\u{259f}'))
}

/// Writes a text into so many columns.
pub(crate) fn put(
    buffer: &mut Buffer,
    (x, y): (u16, u16),
    text: &str,
    width: u16,
    right: bool,
    style: Style,
) {
    use unicode_width::UnicodeWidthStr as _;
    if y >= buffer.area.bottom() || x >= buffer.area.right() {
        return;
    }
    let width = width.min(buffer.area.right() - x);
    if is_plain(text) && text.chars().count() <= usize::from(width) {
        // Finding the boundaries of what people take for characters is most of the time of a frame.
        let shift = if right { width - text.chars().count() as u16 } else { 0 };
        for (column, one) in (x + shift..).zip(text.chars()) {
            buffer[(column, y)].set_char(one).set_style(style);
        }
        return;
    }
    let text = cut(&text::line(text), usize::from(width));
    let shift = if right { width.saturating_sub(text.width() as u16) } else { 0 };
    buffer.set_stringn(x + shift, y, &text, usize::from(width - shift), style);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sheet() -> Sheet {
        Sheet {
            heads: vec![Head::number("tid", 6), Head::picture(4), Head::text("name, if any", 0)],
            rows: vec![
                vec![Cell::whole(7), Cell::text("▁█"), Cell::text("say \"a\"")],
                vec![Cell::number(f64::NAN, String::new()), Cell::default(), Cell::text("b")],
            ],
            total: 2,
            ..Sheet::default()
        }
    }

    #[test]
    fn pictures_are_for_people() {
        let (headings, rows) = sheet().csv(2_300_000_000);
        assert_eq!(headings, "time_s,tid,\"name, if any\"\n");
        assert_eq!(rows, "2.300000,7,\"say \"\"a\"\"\"\n2.300000,,b\n");
        assert_eq!(sheet().json()[0], serde_json::json!({"tid": 7, "name, if any": "say \"a\""}));
        assert_eq!(sheet().json()[1]["tid"], Value::Null);
        assert_eq!(sheet().plain(), "tid  name, if any\n  7  say \"a\"\n     b\n");
    }

    #[test]
    fn columns_without_room_are_left_out() {
        assert_eq!(sheet().columns(40), [(0, 0, 6), (1, 7, 4), (2, 12, 27)]);
        assert_eq!(sheet().columns(8), [(0, 0, 6)]);
    }
}
