//! `hpmctl record --phase-guided` with the module: samples pause, counting goes on, and what was sampled stands for the rest.

use std::collections::HashMap;

use anyhow::{Context, Result, ensure};
use libhpm::analysis::phase::metrics::Profile;
use libhpm::report::Resolver;
use libhpm::symbol::FileFinder;
use libhpm::trace::{QuantumFlags, QuantumRow, SampleRow, TraceReader};

use super::GuestReport;
use super::programs::{hpmctl, succeed};

/// Two behaviours in turn, each of some intervals of 10 ms: a table that misses the caches, and sums.
const PROGRAM: &str = "for my $r (1 .. 12) { my %h; $h{$_ * 7919 % 99991} .= $_ for 1 .. 40000; \
                       my $s = 0; for my $i (1 .. 200000) { $s += $i * $i % 7 } }";
/// Part of the intervals that is sampled. 36 % are wished for, and the first two of each behaviour.
const SAMPLED: std::ops::Range<f64> = 0.25..0.7;
/// How far the events that samples stand for may be from those counted, as a part of these.
const OFF: f64 = 0.15;
/// Of a whole recording's profile.
const COVERED: f64 = 0.9;

pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let whole = recorded("whole.hpm", &[])?;
    let guided = recorded("guided.hpm", &["--phase-guided=l1d-load-miss"])?;
    report.check("some intervals are sampled, the others are not", || {
        let how = guided.meta().phase_guided.as_ref().context("meta.json does not say so")?;
        let part = how.recorded as f64 / how.intervals as f64;
        ensure!(how.intervals >= 100 && SAMPLED.contains(&part), "{}", how.sentence());
        Ok(how.sentence())
    });
    report.check("counting goes on while samples pause, and nothing is lost", || counted(&guided));
    report.check("what was sampled stands for what was counted", || {
        let totals = guided.meta().totals.clone().context("a trace without totals")?;
        let samples = guided.rows::<SampleRow>().filter(|row| row.event == 0);
        let (sampled, counted) = (samples.map(|row| row.period).sum::<u64>(), totals.counts[0]);
        let text = format!("{sampled} of {counted}");
        ensure!((sampled as f64 / counted as f64 - 1.0).abs() <= OFF, "{text}");
        Ok(text)
    });
    report.check("the profile is that of a whole recording", || {
        let mut numbers = HashMap::new();
        let (whole, guided) = (profile(&whole, &mut numbers), profile(&guided, &mut numbers));
        let covered = guided.coverage(&whole);
        ensure!(covered >= COVERED, "it covers {:.1} %", covered * 100.0);
        Ok(format!("{:.1} %", covered * 100.0))
    });
    Ok(())
}

fn recorded(folder: &str, options: &[&str]) -> Result<TraceReader> {
    let words = [
        "record",
        "-e",
        "load:u",
        "-c",
        "20011",
        "--count",
        "l1d-load-miss:u",
        "--quantum",
        "2",
        "-o",
        folder,
    ];
    succeed(hpmctl(&words)?.args(options).args(["--", "perl", "-e", PROGRAM]))?;
    Ok(TraceReader::open(folder)?)
}

fn counted(trace: &TraceReader) -> Result<String> {
    let totals = trace.meta().totals.clone().context("a trace without totals")?;
    let (mut paused, mut events, mut all) = (0, 0, 0);
    for row in trace.rows::<QuantumRow>() {
        all += 1;
        if row.flags & QuantumFlags::PAUSED != 0 {
            // The mark is also of those in whose course samples paused.
            paused += u64::from(row.records == 0);
            events += row.counts[0];
        }
    }
    let text =
        format!("{paused} of {all} quanta without samples, with {events} of {} events", totals.counts[0]);
    ensure!(paused > 0 && events > totals.counts[0] / 4, "{text}");
    ensure!(totals.records_lost == 0 && totals.quanta_lost == 0, "{} lost; {text}", totals.records_lost);
    Ok(text)
}

fn profile(trace: &TraceReader, numbers: &mut HashMap<String, u64>) -> Profile {
    let mut resolver = Resolver::new(trace, FileFinder::default());
    let mut profile = Profile::default();
    for row in trace.rows::<SampleRow>().filter(|row| row.event == 0) {
        let next = numbers.len() as u64;
        let number = *numbers.entry(crate::phases::function(&mut resolver, &row)).or_insert(next);
        profile.add(number, row.period as f64);
    }
    profile
}
