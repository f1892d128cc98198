//! Writing results to standard output, what is said beside them, and how numbers are written.

use std::fmt::Display;
use std::io::{self, Write as _};

use anyhow::{Context, Result};
use libhpm::source::perf::counts_ns;
use libhpm::text;

/// Writes a result and a line end. A reader that has seen enough, as `head`, is no error.
///
/// # Errors
/// Any other failure to write.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut output = io::stdout().lock();
    // What is left in the buffer would be written when nobody can tell of a failure.
    match writeln!(output, "{}", text::lines(text)).and_then(|()| output.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the result")
        }
        _ => Ok(()),
    }
}

/// Says something beside the result, if anybody listens: where standard error is closed or full, a program that is being measured runs on.
pub(crate) fn say(what: impl Display) {
    let line = format!("hpmctl: {what}");
    let _ = writeln!(io::stderr(), "{}", text::lines(&line));
}

/// Says what has to be known of a result beside it.
pub(crate) fn warn(warnings: &[String]) {
    warnings.iter().for_each(|warning| say(format_args!("warning: {warning}")));
}

/// Says what is good to know of a result beside it.
pub(crate) fn note(notes: &[String]) {
    notes.iter().for_each(|note| say(format_args!("note: {note}")));
}

/// Digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| str::from_utf8(group).expect("digits")).collect();
    groups.join(",")
}

/// A number of things.
pub(crate) fn counted(number: u64, thing: &str) -> String {
    format!("{} {thing}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// A time in the unit that leaves one to three digits before the point.
pub(crate) fn time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        ..1e3 => format!("{ns} ns"),
        ..1e6 => format!("{:.3} µs", ns / 1e3),
        ..1e9 => format!("{:.3} ms", ns / 1e6),
        _ => format!("{:.3} s", ns / 1e9),
    }
}

/// The unit of an event's counts, if they are of time.
pub(crate) fn unit(event: &str) -> Option<&'static str> {
    counts_ns(event).then_some("ns")
}

/// So many of an event, for people: digits in threes, or a time.
pub(crate) fn amount(event: &str, count: u64) -> String {
    if unit(event).is_some() { time(count) } else { grouped(count) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_are_times_whatever_their_modifiers() {
        assert_eq!(amount("cpu-clock:u", 46_026_985), "46.027 ms");
        assert_eq!(amount("cycles:u", 46_026_985), "46,026,985");
    }

    #[test]
    fn digits_are_grouped_from_the_right() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn times_have_a_fitting_unit() {
        assert_eq!(
            [7, 7_000, 12_345_678, 60_000_000_000].map(time),
            ["7 ns", "7.000 µs", "12.346 ms", "60.000 s"]
        );
    }
}
