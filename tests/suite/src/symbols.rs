//! Symbols against those that other tools find: addr2line of binutils and of elfutils, and perf.
//!
//! Programs of `tests/suite/symbols` are recorded on the host by `perf record`. For every sample hpm's functions, source lines and
//! inlined calls have to be the others'; a difference has to be one of those named in [`witness::Difference`], which the others
//! themselves show to be none.

pub(crate) mod bench;
mod programs;
mod v8;
mod witness;

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Result, ensure};
use libhpm::report::Resolver;
use libhpm::source::perf_data;
use libhpm::symbol::{FileFinder, Frames};
use libhpm::trace::{SampleRow, TraceReader};

use self::programs::Programs;
use self::witness::{Lines, Perf, Seen};
use crate::check::Tally;

/// Samples that each program has to give.
const SAMPLES: usize = 10_000;

/// Runs all of it.
pub(crate) fn run(root: &Path, tally: &mut Tally) {
    let mut programs = None;
    tally.run("symbols: perf, elfutils and the programs are there", || {
        programs = Some(Programs::make(root)?);
        Ok(String::new())
    });
    let Some(programs) = programs else { return };
    for (name, what) in [("shapes", "a stripped C++ program with a debug file"), ("words", "a Rust program")]
    {
        tally.run(&format!("symbols: {what}: functions, lines and inlined calls as addr2line"), || {
            compiled(&programs, name)
        });
    }
    tally.run(
        "symbols: JavaScript that V8 compiled: functions as perf inject and perf script, lines as V8",
        || made(&programs),
    );
}

/// A sample as hpm sees it.
struct Resolved {
    module: String,
    address: u64,
    linked_address: u64,
    frames: Frames,
}

/// The samples of a recording, in the order of time.
fn resolved(programs: &Programs, data: &Path) -> Result<Vec<Resolved>> {
    let trace = programs.fresh("trace.hpm")?;
    perf_data::import(data, &trace)?;
    let reader = TraceReader::open(&trace)?;
    let mut resolver = Resolver::new(&reader, FileFinder::default());
    let resolve = |row: SampleRow| {
        let chain = resolver.resolve(&row).chain;
        let frames = chain.calls[0].clone();
        Resolved {
            module: frames[0].module.to_string(),
            address: row.ip,
            linked_address: chain.linked_address,
            frames,
        }
    };
    Ok(reader.rows().map(resolve).collect())
}

/// Everything about a program that is on disk: the chains of its own code by addr2line, and the functions of all code by perf.
fn compiled(programs: &Programs, name: &str) -> Result<String> {
    let (program, data) = programs.record(name, SAMPLES)?;
    let samples = resolved(programs, &data)?;
    let own: Vec<&Resolved> = samples.iter().filter(|sample| Path::new(&sample.module) == program).collect();
    ensure!(own.len() >= SAMPLES / 2, "only {} samples are of the program itself", own.len());
    let mut addresses: Vec<u64> = own.iter().map(|sample| sample.linked_address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    let binutils = Lines::of_binutils(&program, &addresses)?;
    let elfutils = Lines::of_elfutils(&programs.elfutils, &program, &addresses)?;
    let mut seen = Seen::default();
    for sample in own {
        seen.chain(sample.linked_address, &sample.frames, &binutils, &elfutils);
    }
    let chains = seen.verdict("addr2line")?;
    let functions = by_perf(&samples, &Perf::script(&programs.perf, &data)?)?;
    Ok(format!("{chains}; {functions}"))
}

/// Code that was made at run time.
fn made(programs: &Programs) -> Result<String> {
    let (script, data, printed) = programs.record_script(SAMPLES)?;
    let samples = resolved(programs, &data)?;
    let made = samples
        .iter()
        .filter(|sample| sample.module == "//anon" || sample.module.starts_with("[anon"))
        .count();
    ensure!(made >= SAMPLES / 4, "only {made} samples are of code that was made at run time");
    let injected = programs.inject(&data)?;
    let text = by_perf(&samples, &Perf::script(&programs.perf, &injected)?)?;
    let lines = v8::Listing::parse(&printed, &std::fs::read_to_string(&script)?);
    let lines = lines.compare(&samples, script.to_str().unwrap_or_default())?;
    Ok(format!("{text}; {made} of code made at run time; {lines}"))
}

/// The functions of samples against those of perf, one by one.
fn by_perf(samples: &[Resolved], perf: &Perf) -> Result<String> {
    ensure!(
        samples.len() >= SAMPLES && samples.len() == perf.functions.len(),
        "{} samples, and perf shows {}",
        samples.len(),
        perf.functions.len()
    );
    let mut seen = Seen::default();
    let mut aliases = HashMap::new();
    for (sample, (linked, other)) in samples.iter().zip(&perf.functions) {
        let own = sample.frames.last().and_then(|frame| frame.function.as_deref()).unwrap_or("[unknown]");
        seen.function(own, linked, other, || {
            let names =
                aliases.entry(sample.module.clone()).or_insert_with(|| witness::Names::of(&sample.module));
            names.relation(own, other)
        });
    }
    seen.verdict("perf")
}
