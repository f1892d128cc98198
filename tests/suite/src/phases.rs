//! Streams on which the detectors of phases are judged: real programs, recorded in the lab and kept as intervals.
//!
//! `libhpm/tests/data/phases` has what came of `suite record-phases`; `cargo run --release -p libhpm --example phase_programs` judges.

mod inputs;
mod programs;

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;
use libhpm::analysis::phase::{Recorded, Subject, SubjectKind, subjects};
use libhpm::report::Resolver;
use libhpm::symbol::FileFinder;
use libhpm::trace::{QuantumRow, SampleRow, ThreadRow, TraceReader};

use self::programs::{PROGRAMS, Program};
use crate::check::Tally;

/// How each is recorded. Loads are sampled, some 20 in an interval; the rest is counted.
const RECORD: &str =
    "record -e load:u -c 1511 --count instructions:u,cycles:u,l1d-load-miss:u,branch-miss:u --quantum 0.2";
/// A clock that passes with instructions, 500 of them in a microsecond, so that the host's load does not show.
const LAB: [&str; 4] = ["run", "--deterministic", "--profile", "skylake"];
/// Time on a CPU that makes an interval: 100,000 instructions.
const INTERVAL_US: u64 = 200;
/// Fewer tell nothing of repetitions.
const INTERVALS_MIN: usize = 500;
/// Enough for any repetition that the detector can know, and small enough to be kept.
const INTERVALS_MAX: usize = 4000;
/// Where a file has no symbols.
const PAGE_SHIFT: u32 = 12;

/// Records programs, all of them unless some are named.
pub(crate) fn run(root: &Path, names: &[String], tally: &mut Tally) {
    for name in names.iter().filter(|name| PROGRAMS.iter().all(|program| program.name != **name)) {
        tally.run(&format!("phases: {name}"), || bail!("there is no such program"));
    }
    let is_chosen = |program: &&Program| names.is_empty() || names.iter().any(|name| name == program.name);
    for program in PROGRAMS.iter().filter(is_chosen) {
        tally.run(&format!("phases: {} is recorded", program.name), || record(root, program));
    }
}

fn record(root: &Path, program: &Program) -> Result<String> {
    let folder = root.join("target/phases").join(program.name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder)?;
    inputs::make(&folder, program.inputs)?;
    let environment = program.environment(root)?;
    let hpmctl = root.join("target/release/hpmctl");
    let line = format!(
        "{environment}SCRIPT='{}'; export SCRIPT; \
         exec '{}' {RECORD} -o trace.hpm -- sh -c 'timeout {} sh -c \"$SCRIPT\"; true'",
        program.script,
        hpmctl.display(),
        program.limit_s,
    );
    let log = File::create(folder.join("log"))?;
    let status = Command::new(root.join("target/release/lab"))
        .args(LAB)
        .args(["--timeout", "3600", "--name", &format!("phases-{}", program.name), "--", "sh", "-c", &line])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .context("target/release/lab cannot be started")?;
    ensure!(status.success(), "the lab ended with {status}: see {}", folder.join("log").display());
    let recorded = shortened(&folder.join("trace.hpm"), program)?;
    let data = root.join("libhpm/tests/data/phases");
    fs::create_dir_all(&data)?;
    let path = data.join(program.name).with_extension("json.gz");
    let mut output = GzEncoder::new(File::create(&path)?, Compression::best());
    serde_json::to_writer(&mut output, &recorded)?;
    output.finish()?;
    let intervals = recorded.intervals();
    Ok(format!("{} intervals, {} functions", intervals.len(), recorded.functions.len()))
}

/// What is kept of a trace.
fn shortened(folder: &Path, program: &Program) -> Result<Recorded> {
    let trace = TraceReader::open(folder)?;
    let meta = trace.meta();
    let totals = meta.totals.clone().context("the recording has no totals")?;
    ensure!(totals.quanta_lost == 0, "{} quanta were lost", totals.quanta_lost);
    let subject = chosen(&trace, program.process)?;
    let mut intervals = subject.intervals.context("its quanta are in no order")?;
    ensure!(intervals.len() >= INTERVALS_MIN, "it gave {} intervals", intervals.len());
    intervals.truncate(INTERVALS_MAX);
    let mut functions = Functions::default();
    let mut profiles = vec![HashMap::<u32, u64>::new(); intervals.len()];
    let mut resolver = Resolver::new(&trace, FileFinder::default());
    for row in trace.rows::<SampleRow>().filter(|row| row.pid == subject.pid) {
        let after = intervals.partition_point(|interval| interval.start <= row.tsc);
        let Some(index) = after.checked_sub(1).filter(|index| row.tsc <= intervals[*index].end) else {
            continue;
        };
        let function = functions.index(self::function(&mut resolver, &row));
        *profiles[index].entry(function).or_default() += 1;
    }
    let mut recorded = Recorded::default();
    recorded.command = program.script.to_owned();
    recorded.kind = program.kind.to_owned();
    recorded.recorded = format!(
        "lab {} -- hpmctl {RECORD}, ended after {} s; {}, {}",
        LAB.join(" "),
        program.limit_s,
        program.process,
        meta.machine.pmu
    );
    recorded.events = meta.events.iter().map(|event| event.name.clone()).collect();
    recorded.functions = functions.names;
    for (interval, profile) in intervals.iter().zip(profiles) {
        let mut samples: Vec<(u32, u64)> = profile.into_iter().collect();
        samples.sort_unstable();
        recorded.push(interval, &samples);
    }
    Ok(recorded)
}

/// The process of this name that was longest on a CPU.
fn chosen(trace: &TraceReader, process: &str) -> Result<Subject> {
    let length = trace.meta().clock.tsc_khz * INTERVAL_US / 1000;
    let named: HashMap<u32, String> =
        trace.rows::<ThreadRow>().filter(|row| row.pid == row.tid).map(|row| (row.pid, row.name)).collect();
    let all = subjects(trace.rows::<QuantumRow>(), SubjectKind::Process, length);
    let is_it = |subject: &Subject| named.get(&subject.pid).is_some_and(|name| name == process);
    all.into_iter().find(is_it).with_context(|| format!("no process {process} ran: {named:?}"))
}

/// The function of a sample; where there is no symbol, the page of the file.
pub(crate) fn function(resolver: &mut Resolver, row: &SampleRow) -> String {
    let chain = resolver.resolve(row).chain;
    let frame = chain.calls.first().and_then(|frames| frames.last());
    match frame.and_then(|frame| frame.function.as_deref()) {
        Some(function) => function.to_owned(),
        None => {
            let module = frame.map_or("?", |frame| frame.module.rsplit('/').next().unwrap_or("?"));
            format!("{module}+{:#x}", chain.linked_address >> PAGE_SHIFT << PAGE_SHIFT)
        }
    }
}

/// Names in the order of their first appearance.
#[derive(Default)]
struct Functions {
    names: Vec<String>,
    indices: HashMap<String, u32>,
}

impl Functions {
    fn index(&mut self, name: String) -> u32 {
        let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        *self.indices.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            next
        })
    }
}
