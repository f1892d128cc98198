//! The same comparison as `phase_predictors`, on real programs: the recordings of `suite record-phases` in `tests/data/phases`. The
//! table in `docs/phases.md`. Densities are missing loads per time, whose clock passes with instructions.
//!
//! `cargo run --release -p libhpm --example phase_programs`

mod phase_judge;

use std::error::Error;
use std::fs::{self, File};
use std::path::Path;

use flate2::read::GzDecoder;
use libhpm::analysis::phase::synthetic::Stream;
use libhpm::analysis::phase::{
    Base, Interval, MAX_EVENTS, Phases, Recorded, Rules, Signal, find_phases, replay,
};

use self::phase_judge::{HEADER, HOW, Mean, Row, canonical, print, skipping};

/// What densities are of.
const EVENT: &str = "l1d-load-miss:u";
/// The programs on which parameters were chosen; the others judge.
const TUNED_ON: [&str; 4] = ["gzip", "sqlite3", "python3", "gcc"];

fn main() -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/phases");
    let mut files: Vec<_> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_, std::io::Error>>()?;
    files.sort();
    println!("| program {HEADER}");
    let mut means = HOW.map(|_| Row::default());
    let mut simple = Mean::default();
    let mut answers = String::from("\n| program | phases |\n|---|---|\n");
    for file in files {
        let recorded: Recorded = serde_json::from_reader(GzDecoder::new(File::open(&file)?))?;
        let stream = stream(&recorded)?;
        let name =
            file.file_name().and_then(|name| name.to_str()?.split('.').next()).unwrap_or("?").to_owned();
        answers += &format!("| {name} | {} |\n", answer(&stream));
        let judges = !TUNED_ON.contains(&name.as_str());
        let tuned_on = if judges { "" } else { ", tuned on" };
        let name = format!("{name} ({}, {} intervals{tuned_on})", recorded.kind, stream.intervals.len());
        for ((how, judge), mean) in HOW.iter().zip(&mut means) {
            let mut row = Row::default();
            judge(&stream, &mut row);
            print(&name, how, &row);
            if judges {
                judge(&stream, mean);
            }
        }
        if judges {
            let skipped = replay(&skipping(0.5, stream.intervals.len()), &stream.profiles);
            simple.add(skipped.coverage(&canonical(&stream)));
        }
    }
    for ((how, _), mean) in HOW.iter().zip(&means) {
        print("**mean of those not tuned on**", how, mean);
    }
    println!(
        "| **mean of those not tuned on** | simple 50 % | – | – | – | 50.0 | {} | – | – |",
        simple.percent()
    );
    print!("{answers}");
    Ok(())
}

/// What `hpmctl phases` would say.
fn answer(stream: &Stream) -> String {
    match find_phases(Rules::NoiseGated, Signal::new(&[0], Base::Time), &stream.intervals) {
        Ok(Phases { repeating, by_chance, .. }) => format!("{repeating}, in random order {by_chance}"),
        Err(none) => format!("none: {none}"),
    }
}

/// The intervals with one event, which comes first; nobody knows their behaviours.
fn stream(recorded: &Recorded) -> Result<Stream, String> {
    let event = recorded.events.iter().position(|event| event == EVENT);
    let event = event.ok_or_else(|| format!("`{}` was recorded without {EVENT}", recorded.command))?;
    let only = |interval: Interval| {
        let mut counts = [0; MAX_EVENTS];
        counts[0] = interval.counts[event];
        Interval { counts, ..interval }
    };
    let intervals = recorded.intervals().into_iter().map(only).collect();
    Ok(Stream { intervals, labels: vec![], changes: vec![], profiles: recorded.profiles() })
}
