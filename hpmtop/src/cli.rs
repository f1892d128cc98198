//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Parser};
use libhpm::source::choice::Wish;

use crate::output::{Format, screenshot_file};
use crate::screens::ALL;
use crate::theme::ThemeName;

/// Watch what the hardware does while programs run: counters of each thread, functions, quanta through time, and phases.
///
/// Measures the whole system by the hpm module where it can be used, else by the kernel's perf_event, and says which and why.
/// ? shows all keys. What is measured stops with this program; nothing is written unless it is asked for.
#[derive(Parser, Debug)]
#[command(name = "hpmtop", version, group(ArgGroup::new("target").args(["pid", "cgroup", "replay", "command", "completions", "man", "list_keys"])))]
pub(crate) struct Cli {
    /// Measure this running process and all its threads
    #[arg(short, long, value_name = "PID")]
    pub(crate) pid: Option<i32>,
    /// Measure the control group with this directory, and those below it
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<PathBuf>,
    /// Instead of measuring, replay this trace, or a file of `perf record`
    #[arg(long, value_name = "NAME.hpm|perf.data")]
    pub(crate) replay: Option<PathBuf>,
    /// Replay so many times as fast as it was recorded
    #[arg(long, value_name = "TIMES", requires = "replay", default_value_t = 1.0, value_parser = times,
        conflicts_with_all = ["pid", "cgroup", "command"])]
    pub(crate) speed: f64,
    /// Begin the replay at this time (1.5s, 250ms, 40%), and paused
    #[arg(long, value_name = "TIME", requires = "replay", conflicts_with_all = ["pid", "cgroup", "command"])]
    pub(crate) at: Option<String>,
    /// Record to this trace from the beginning, beside showing it
    #[arg(long, value_name = "NAME.hpm", conflicts_with = "replay")]
    pub(crate) record: Option<PathBuf>,
    /// Where the data comes from
    #[arg(long, default_value_t, value_parser = sources(), conflicts_with = "replay")]
    pub(crate) source: Wish,
    /// Events to measure, separated by commas (see `hpmctl list`)
    #[arg(short, long = "event", value_name = "EVENTS", conflicts_with = "replay")]
    pub(crate) events: Vec<String>,
    /// Samples per second of time on a CPU
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 499, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(crate) frequency: u64,
    /// Length of the interval that numbers are of [default: 1000; of a short trace less]
    #[arg(short, long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub(crate) interval: Option<u64>,
    /// Watch this event for phases [default: instructions per cycle, or the first event that is no clock]
    #[arg(long, value_name = "EVENT")]
    pub(crate) phase_event: Option<String>,
    /// Relate it to this event, instead of to time on a CPU
    #[arg(long, value_name = "EVENT")]
    pub(crate) phase_per: Option<String>,
    /// Time on a CPU that makes an interval of phases, where quanta are cut then, too [default: 1; by perf_event 10]
    #[arg(long, value_name = "MS")]
    pub(crate) phase_interval: Option<f64>,
    /// Folder with the recorded machine's files, when it is another machine
    #[arg(long, value_name = "DIR", value_parser = folder)]
    pub(crate) symfs: Option<PathBuf>,
    /// Folder with separate debug information, searched before /usr/lib/debug (can be given several times)
    #[arg(long = "debug-dir", value_name = "DIR", value_parser = folder)]
    pub(crate) debug_dirs: Vec<PathBuf>,
    /// Show this screen first
    #[arg(long, value_name = "NAME", value_parser = screens())]
    pub(crate) screen: Option<String>,
    /// Colours
    #[arg(long, value_enum)]
    pub(crate) theme: Option<ThemeName>,
    /// Leave the mouse to the terminal
    #[arg(long)]
    pub(crate) no_mouse: bool,
    /// Read this configuration [default: ~/.config/hpmtop/config.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print what is seen after one interval, or at a replay's end, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Print what is seen after each interval, N times, or until what is measured ends
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "0", conflicts_with = "once")]
    pub(crate) batch: Option<u64>,
    /// How --once and --batch print
    #[arg(long, value_enum, default_value_t)]
    pub(crate) format: Format,
    /// Write the screen to a file, .svg or text (.txt), and end; can be given several times
    #[arg(long, value_name = "FILE", value_parser = screenshot_file, conflicts_with_all = ["once", "batch"])]
    pub(crate) screenshot: Vec<PathBuf>,
    /// Size of the terminal for --screenshot
    #[arg(long, value_name = "COLUMNSxROWS", default_value = "120x40", value_parser = size)]
    pub(crate) size: (u16, u16),
    /// Keys that are pressed before --screenshot, --once or --batch, separated by spaces: `2 + + Left`, `: zoom-in Enter`;
    /// wait=MS waits, sees=TEXT until that is seen, a minute at most
    #[arg(long, value_name = "KEYS", default_value = "")]
    pub(crate) keys: String,
    /// Print every key: the screen, the action, its keys, and what it does, separated by tabs
    #[arg(long)]
    pub(crate) list_keys: bool,
    /// Print the completions of a shell
    #[arg(long, value_enum, value_name = "SHELL")]
    pub(crate) completions: Option<clap_complete::Shell>,
    /// Write the manual page to this folder
    #[arg(long, value_name = "DIR")]
    pub(crate) man: Option<PathBuf>,
    /// Run this program, with what follows as its arguments, and measure it; what it prints is shown when the screen is closed. `--` may
    /// stand before it
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

impl Cli {
    /// Whether it prints or writes pictures, without a terminal.
    pub(crate) fn prints(&self) -> bool {
        self.once || self.batch.is_some() || !self.screenshot.is_empty()
    }
}

/// Values of `--source`.
fn sources() -> impl TypedValueParser<Value = Wish> {
    let values = Wish::ALL.map(|wish| PossibleValue::new(wish.name()).help(wish.help()));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<Wish>())
}

fn screens() -> PossibleValuesParser {
    PossibleValuesParser::new(ALL.map(|(name, ..)| name))
}

/// A folder that is there.
fn folder(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_dir() { Ok(path) } else { Err("there is no such folder".into()) }
}

fn times(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(times) if times > 0.0 && f64::is_finite(times) => Ok(times),
        _ => Err("not a number above 0".into()),
    }
}

fn size(text: &str) -> Result<(u16, u16), String> {
    let parsed =
        text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    match parsed {
        Some((width @ 1..=500, height @ 1..=300)) => Ok((width, height)),
        _ => Err("write columns and rows as 80x24, at most 500x300".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sizes_are_columns_and_rows() {
        assert_eq!(size("80x24"), Ok((80, 24)));
        assert!(["80", "0x5", "9999x1", "axb"].into_iter().all(|text| size(text).is_err()));
    }

    #[test]
    fn a_command_begins_with_the_first_word_that_is_no_option() {
        let command = |words: &[&str]| {
            Cli::try_parse_from([&["hpmtop"], words].concat()).map_or(vec![], |cli| cli.command)
        };
        assert_eq!(command(&["-F", "99", "ls", "-p", "1"]), ["ls", "-p", "1"]);
        assert_eq!(command(&["--batch", "--", "ls", "--", "-l"]), ["ls", "--", "-l"]);
        assert!(command(&["--no-such-option", "ls"]).is_empty());
    }

    #[test]
    fn one_target_at_most() {
        let parse = |words: &[&str]| Cli::try_parse_from([&["hpmtop"], words].concat()).is_ok();
        assert!(
            parse(&[]) && parse(&["-p", "1"]) && parse(&["--", "ls", "-l"]) && parse(&["--replay", "a.hpm"])
        );
        assert!(!parse(&["-p", "1", "--", "ls"]) && !parse(&["--replay", "a", "-e", "x"]));
        assert!(!parse(&["--speed", "2", "ls"]) && !parse(&["-p", "1", "--at", "1s"]));
        assert!(parse(&["--screen", "time"]) && !parse(&["--screen", "tyme"]));
    }
}
