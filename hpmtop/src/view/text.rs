//! Numbers and small pictures as text.

use libhpm::source::perf::counts_ns;
use libhpm::text;

/// Eighths of a character's height.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Eighths of a character's width.
const WIDTHS: [char; 9] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// The eighth of a height that a share from 0 to 1 fills; something that is more than nothing is seen.
pub(crate) fn eighth(share: f64) -> char {
    if !share.is_finite() || share <= 0.0 {
        return ' ';
    }
    EIGHTHS[(share * 8.0).round().clamp(1.0, 8.0) as usize]
}

/// Values as a row of small bars, the last one to the right; the greatest of them, or `full`, is a whole one.
pub(crate) fn spark(values: &[f64], full: Option<f64>) -> String {
    let greatest = values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    let full = full.unwrap_or(greatest).max(f64::MIN_POSITIVE);
    values.iter().map(|value| eighth(value / full)).collect()
}

/// A horizontal bar of so many characters for a share from 0 to 1.
pub(crate) fn bar(share: f64, width: usize) -> String {
    let eighths =
        if share.is_finite() { (share.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize } else { 0 };
    let mut text: String = std::iter::repeat_n('█', eighths / 8).collect();
    if eighths % 8 > 0 {
        text.push(WIDTHS[eighths % 8]);
    }
    let missing = width.saturating_sub(text.chars().count());
    text.extend(std::iter::repeat_n(' ', missing));
    text
}

/// `1234567` as `1.23M`, in at most 5 characters; nothing for what is no number.
pub(crate) fn si(number: f64) -> String {
    const SUFFIXES: [&str; 6] = ["", "k", "M", "G", "T", "P"];
    if !number.is_finite() {
        return String::new();
    }
    let (mut value, mut suffix) = (number.abs(), 0);
    while value >= 999.5 && suffix + 1 < SUFFIXES.len() {
        value /= 1000.0;
        suffix += 1;
    }
    let sign = if number < 0.0 { "-" } else { "" };
    let digits = match (suffix, value) {
        (0, value) if value.fract().abs() < 0.005 => format!("{value:.0}"),
        (_, value) if value < 9.995 => format!("{value:.2}"),
        (_, value) if value < 99.95 => format!("{value:.1}"),
        (_, value) => format!("{value:.0}"),
    };
    format!("{sign}{digits}{}", SUFFIXES[suffix])
}

/// A time in the unit in which it is read best.
pub(crate) fn time(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} µs", seconds * 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", seconds * 1e3),
        1_000_000_000..60_000_000_000 => format!("{seconds:.2} s"),
        _ => {
            let whole = ns / 1_000_000_000;
            let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
            if hours > 0 {
                format!("{hours}:{minutes:02}:{seconds:02}")
            } else {
                format!("{minutes}:{seconds:02}")
            }
        }
    }
}

/// So many of an event: of a clock, which counts ns, a time.
pub(crate) fn amount(event: &str, count: u64) -> String {
    if counts_ns(event) { time(count) } else { si(count as f64) }
}

/// A moment since the beginning, always in seconds, so that moments can be compared.
pub(crate) fn moment(ns: u64) -> String {
    format!("{:.3} s", ns as f64 / 1e9)
}

/// The first so many columns of a text, with `…` where something is missing.
pub(crate) fn cut(text: &str, width: usize) -> String {
    use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};
    if text.width() <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for one in text.chars() {
        let columns = one.width().unwrap_or(0);
        if used + columns + 1 > width {
            break;
        }
        used += columns;
        kept.push(one);
    }
    if width > 0 {
        kept.push('…');
    }
    kept
}

/// A text in lines of at most so many columns, parted between words where there are any; at least one line.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};
    let mut lines = Vec::new();
    for paragraph in text::lines(text).split('\n') {
        let mut line = String::new();
        for word in paragraph.split_inclusive(' ') {
            if !line.is_empty() && line.width() + word.trim_end().width() > width {
                lines.push(std::mem::take(&mut line));
            }
            for one in word.chars() {
                // A word that is longer than a line goes on in the next; a space at the end of a line is not seen.
                if one != ' ' && !line.is_empty() && line.width() + one.width().unwrap_or(0) > width {
                    lines.push(std::mem::take(&mut line));
                }
                line.push(one);
            }
        }
        lines.push(line);
    }
    lines.iter().map(|line| line.trim_end().to_owned()).collect()
}

/// What a person writes for a moment: `1.5s`, `250ms`, `2:30`, `40%` of `whole_ns`, or seconds.
pub(crate) fn parse_moment(text: &str, whole_ns: Option<u64>) -> Option<u64> {
    let text = text.trim();
    let number =
        |text: &str| text.trim().parse::<f64>().ok().filter(|number| *number >= 0.0 && number.is_finite());
    if let Some(percent) = text.strip_suffix('%') {
        return Some((number(percent)?.min(100.0) / 100.0 * whole_ns? as f64) as u64);
    }
    if let Some((minutes, seconds)) = text.split_once(':') {
        return Some(((number(minutes)? * 60.0 + number(seconds)?) * 1e9) as u64);
    }
    let units = [("ms", 1e6), ("us", 1e3), ("µs", 1e3), ("ns", 1.0), ("s", 1e9)];
    let with_unit = units.iter().find_map(|(unit, ns)| Some((number(text.strip_suffix(unit)?)?, *ns)));
    let (number, ns) = with_unit.or_else(|| Some((number(text)?, 1e9)))?;
    Some((number * ns) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_narrow() {
        let shown = [0.0, 1.0, 0.5, 12.34, 999.4, 999.6, 1234.0, 99_950.0, 1.5e9, -2048.0, f64::NAN].map(si);
        assert_eq!(shown, ["0", "1", "0.50", "12.3", "999", "1.00k", "1.23k", "100k", "1.50G", "-2.05k", ""]);
    }

    #[test]
    fn times_have_units() {
        let shown = [5, 1500, 2_500_000, 3_210_000_000, 75_000_000_000, 3_725_000_000_000].map(time);
        assert_eq!(shown, ["5 ns", "1.5 µs", "2.5 ms", "3.21 s", "1:15", "1:02:05"]);
    }

    #[test]
    fn clocks_are_times() {
        assert_eq!([amount("cpu-clock:u", 1_240_000), amount("task-clock", 0)], ["1.2 ms", "0 ns"]);
        assert_eq!(amount("page-faults", 1_240_000), "1.24M");
    }

    #[test]
    fn small_pictures() {
        assert_eq!(spark(&[0.0, 1.0, 4.0, 8.0, f64::NAN], None), " ▁▄█ ");
        assert_eq!(spark(&[0.01], Some(1.0)), "▁", "more than nothing is seen");
        assert_eq!(bar(0.5, 5), "██▌  ");
        assert_eq!((bar(2.0, 2), bar(f64::NAN, 2)), ("██".into(), "  ".into()));
    }

    #[test]
    fn texts_are_cut_by_columns() {
        assert_eq!(cut("hpmtop", 6), "hpmtop");
        assert_eq!(cut("hpmtop", 4), "hpm…");
        assert_eq!(cut("漢字", 3), "漢…");
        assert_eq!(cut("x", 0), "");
    }

    #[test]
    fn long_texts_go_on_in_further_lines() {
        assert_eq!(wrapped("the source is lost", 10), ["the source", "is lost"]);
        assert_eq!(wrapped("the source is lost", 80), ["the source is lost"]);
        assert_eq!(wrapped("a\nabcdefg 漢字", 3), ["a", "abc", "def", "g", "漢", "字"]);
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(wrapped("ab", 0).concat(), "ab", "no width is no reason to hang");
    }

    #[test]
    fn names_command_no_terminal() {}

    #[test]
    fn moments_are_written_as_people_do() {
        let parsed =
            ["1.5s", "250ms", "2:30", "40%", "3", "x", "-1"].map(|text| parse_moment(text, Some(1000)));
        let (s, ms) = (1_000_000_000, 1_000_000);
        assert_eq!(
            parsed,
            [Some(3 * s / 2), Some(250 * ms), Some(150 * s), Some(400), Some(3 * s), None, None]
        );
        assert_eq!(parse_moment("40%", None), None);
    }
}
