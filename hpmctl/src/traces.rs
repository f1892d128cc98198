//! `hpmctl info`, `verify` and `merge`: what a trace holds, whether it is whole, and one from several.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use libhpm::export::{dense_places, losses};
use libhpm::trace::{self, HOSTS_MAX, Meta, PhaseGuided, TraceReader, Verdict};
use serde::Serialize;

use crate::measure::tsc_to_ns;
use crate::opened::{how_unfinished, open_trace};
use crate::output::{counted, grouped, print, time, warn};
use crate::report::samples::unfinished;
use crate::report::text::{how, measured, privilege};

/// Tell what a trace holds.
#[derive(Args, Debug)]
pub(crate) struct InfoArgs {
    /// Print meta.json as it is, with what is damaged or not finished as `warnings`
    #[arg(long)]
    json: bool,
    /// The trace that `hpmctl record` wrote
    #[arg(value_name = "NAME.hpm")]
    trace: PathBuf,
}

/// Read all of a trace and tell whether it is whole and does not contradict itself.
///
/// Exits with 0 when it is, else with 1, also when its recording goes on or was killed. What is damaged is named; everything before it can
/// be used.
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    /// The trace that `hpmctl record` wrote
    #[arg(value_name = "NAME.hpm")]
    trace: PathBuf,
    /// Print as JSON
    #[arg(long)]
    json: bool,
}

/// Make one trace of several, in the order of time.
///
/// Traces of one machine since one boot have the same clock and are merged exactly. Those of other hosts are placed by
/// CLOCK_REALTIME, and their CPUs and processes are renumbered; meta.json says how.
#[derive(Args, Debug)]
pub(crate) struct MergeArgs {
    /// Folder to write; it must not exist yet
    #[arg(short, long, value_name = "NAME.hpm")]
    output: PathBuf,
    /// The traces
    #[arg(value_name = "NAME.hpm", required = true, num_args = 1..)]
    traces: Vec<PathBuf>,
}

/// What `verify --json` shows.
#[derive(Serialize)]
struct Verified {
    /// Nothing is missing or wrong in what was written.
    whole: bool,
    /// The recording was ended.
    complete: bool,
    /// It is being written.
    growing: bool,
    /// Rows of each table that could be read.
    rows: BTreeMap<&'static str, u64>,
    /// Tables that end before their end, a sentence each.
    cuts: Vec<String>,
    /// Contradictions, a sentence each.
    problems: Vec<String>,
}

impl Verified {
    fn of(meta: &Meta, verdict: &Verdict, growing: bool) -> Self {
        Self {
            whole: verdict.is_good(),
            complete: meta.complete,
            growing,
            rows: verdict.tables.iter().copied().collect(),
            cuts: verdict.cuts.iter().map(ToString::to_string).collect(),
            problems: verdict.problems.iter().map(ToString::to_string).collect(),
        }
    }
}

/// What `info --json` shows.
#[derive(Serialize)]
struct Known<'a> {
    #[serde(flatten)]
    meta: &'a Meta,
    warnings: Vec<String>,
}

/// What is damaged or not finished.
fn warnings(reader: &TraceReader, verdict: &Verdict) -> Vec<String> {
    let cuts = verdict.cuts.iter().map(ToString::to_string);
    let problems = verdict.problems.iter().map(ToString::to_string);
    cuts.chain(problems).chain(unfinished(reader)).collect()
}

pub(crate) fn info(args: &InfoArgs) -> Result<()> {
    let reader = open_trace(&args.trace)?;
    let verdict = trace::verify(&reader);
    if args.json {
        let known = Known { meta: reader.meta(), warnings: warnings(&reader, &verdict) };
        return print(&serde_json::to_string_pretty(&known)?);
    }
    print(info_text(reader.meta(), &verdict, reader.is_growing(), bytes(&args.trace)).trim_end())
}

pub(crate) fn verify(args: &VerifyArgs) -> Result<ExitCode> {
    let reader = open_trace(&args.trace)?;
    let verdict = trace::verify(&reader);
    if args.json {
        print(&serde_json::to_string_pretty(&Verified::of(reader.meta(), &verdict, reader.is_growing()))?)?;
    } else {
        print(verify_text(reader.meta(), &verdict, reader.is_growing()).trim_end())?;
    }
    Ok(if verdict.is_good() && reader.meta().complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

pub(crate) fn merge(args: &MergeArgs) -> Result<()> {
    if args.traces.len() > HOSTS_MAX {
        bail!("more than {HOSTS_MAX} traces cannot be merged at once: merge some first");
    }
    let readers = args.traces.iter().map(|trace| open_trace(trace)).collect::<Result<Vec<_>>>()?;
    let outcome = trace::merge(&readers.iter().map(|opened| &**opened).collect::<Vec<_>>(), &args.output)?;
    warn(&outcome.notes);
    let (quanta, samples) = outcome.rows;
    let mut text =
        format!("{}: {} quanta, {}\n", args.output.display(), grouped(quanta), counted(samples, "sample"));
    for (merged, trace) in outcome.merged.iter().zip(&args.traces) {
        let clock = match merged.uncertainty_ns {
            0 if merged.pid_offset == 0 => "same clock".to_owned(),
            ns => format!(
                "placed by CLOCK_REALTIME, which scatters by {} within the traces; how well the hosts' clocks agreed is \
                 not known; CPUs from {}, processes from {}",
                time(ns),
                merged.cpu_offset,
                merged.pid_offset
            ),
        };
        let _ = writeln!(text, "  {} of {}: {clock}", trace.display(), merged.host_name);
    }
    print(text.trim_end())
}

/// Bytes of a folder's files, or of a file of `perf record`.
fn bytes(trace: &Path) -> u64 {
    if trace.is_file() {
        return trace.metadata().map_or(0, |file| file.len());
    }
    let files = trace.read_dir().into_iter().flatten().flatten();
    files.filter_map(|file| file.metadata().ok()).map(|file| file.len()).sum()
}

fn info_text(meta: &Meta, verdict: &Verdict, grows: bool, bytes: u64) -> String {
    let mut text = String::new();
    let machine = &meta.machine;
    let mut field = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<9} {value}");
    };
    let (label, what) = measured(meta);
    field(label, what);
    field("source", source(meta));
    field(
        "machine",
        format!(
            "{}: {} PMU ({} family {} model {} stepping {}), {}, Linux {}",
            machine.host_name,
            machine.pmu,
            machine.vendor,
            machine.family,
            machine.model,
            machine.stepping,
            counted(machine.cpus.into(), "CPU"),
            machine.kernel_release
        ),
    );
    for event in &meta.events {
        field("event", format!("{} in {}, {}", event.name, privilege(event), how(event, machine)));
    }
    let span = verdict.span.map_or(0, |(first, last)| tsc_to_ns(last - first, meta.clock.tsc_khz));
    // Without quanta nobody knows how long threads ran.
    let (rows, on_cpu) = match verdict.sums.quanta {
        0 => ("sample", String::new()),
        _ => ("quantum", time(tsc_to_ns(verdict.sums.on_cpu_tsc, meta.clock.tsc_khz)) + " "),
    };
    field(
        "time",
        format!(
            "{} from the first {rows} to the last, {on_cpu}on {} by {}",
            time(span),
            counted(verdict.cpus as u64, "CPU"),
            counted(verdict.threads as u64, "thread")
        ),
    );
    let tables: Vec<String> = verdict.tables.iter().map(|(table, rows)| rows_of(table, *rows)).collect();
    field("rows", tables.join(", "));
    let guided = meta.phase_guided.iter().map(PhaseGuided::sentence);
    for remark in guided.chain(dense_places(meta)).chain(losses(meta)) {
        field("remark", remark);
    }
    origins(&mut field, meta);
    field("size", format!("{}, format {}, hpm {}", size(bytes), meta.format, meta.hpm_version));
    field("state", state(meta, verdict, grows));
    text
}

fn source(meta: &Meta) -> String {
    match (&*meta.source, &*meta.source_note) {
        (source, "") => source.to_owned(),
        ("driver", note) => format!("driver; {note}"),
        // The other sources' notes begin with what they are.
        (_, note) => note.to_owned(),
    }
}

/// `1 thread`, `2 threads`: a table's name is a plural.
fn rows_of(table: &str, rows: u64) -> String {
    match (rows, table) {
        (1, "quanta") => "1 quantum".to_owned(),
        (1, table) => format!("1 {}", table.trim_end_matches('s')),
        (rows, table) => format!("{} {table}", grouped(rows)),
    }
}

fn size(bytes: u64) -> String {
    match bytes as f64 / 1024.0 {
        kib @ ..1024.0 => format!("{kib:.1} KiB"),
        kib => format!("{:.1} MiB", kib / 1024.0),
    }
}

/// The traces that this one was made of, and what they lacked.
fn origins(field: &mut impl FnMut(&str, String), meta: &Meta) {
    for merged in &meta.merged {
        field("merged", format!("{} of {}", merged.folder, merged.host_name));
    }
    for missing in &meta.missing {
        field("missing", missing.clone());
    }
}

fn state(meta: &Meta, verdict: &Verdict, grows: bool) -> String {
    match (meta.complete, verdict.is_good()) {
        (_, false) => "damaged: see `hpmctl verify`".into(),
        (true, true) => "complete".into(),
        (false, true) if grows => "it is being recorded".into(),
        (false, true) => "not finished: its recording was killed, or could not be written".into(),
    }
}

fn verify_text(meta: &Meta, verdict: &Verdict, grows: bool) -> String {
    let mut text = String::new();
    for (table, rows) in &verdict.tables {
        let cut = verdict.cuts.iter().find(|cut| cut.table == *table);
        let _ = match cut {
            None => writeln!(text, "{table:<15} {:>12} rows", grouped(*rows)),
            Some(cut) => writeln!(text, "{table:<15} {:>12} rows; {cut}", grouped(*rows)),
        };
    }
    for problem in &verdict.problems {
        let _ = writeln!(text, "problem: {problem}");
    }
    let found = verdict.cuts.len() + verdict.problems.len();
    let _ = match (found, meta.complete) {
        (0, true) => writeln!(text, "the trace is whole"),
        (0, false) => writeln!(text, "{}; what was written is whole", how_unfinished(grows)),
        (1, _) => writeln!(text, "1 thing is wrong"),
        (found, _) => writeln!(text, "{found} things are wrong"),
    };
    text
}

#[cfg(test)]
mod tests {
    use libhpm::trace::{ClockPair, Event, Machine, QuantumRow, SampleRow, Totals, TraceReader, TraceWriter};
    use tempfile::TempDir;

    use super::*;

    /// Two quanta of CPU 0 and 1 that interleave with those of another trace with another `start`.
    fn write(temp: &TempDir, name: &str, host: &str, start: u64, damage: fn(&mut QuantumRow)) -> PathBuf {
        let folder = temp.path().join(name);
        let mut meta = Meta {
            hpm_version: "0.1.0".into(),
            source: "driver".into(),
            machine: Machine { host_name: host.into(), cpus: 2, pmu: "skylake".into(), ..Machine::default() },
            events: vec![Event { name: "instructions".into(), ..Event::default() }],
            command: vec!["sort".into()],
            ..Meta::default()
        };
        meta.clock.tsc_khz = 1_000_000;
        meta.clock.pairs = vec![ClockPair { tsc: 1000, monotonic_raw_ns: 1000, realtime_ns: 5000 }];
        let mut writer = TraceWriter::create(&folder, meta).unwrap();
        for number in 0..4 {
            let (cpu, start_tsc) = ((number % 2) as u32, start + number * 1000);
            let mut row = QuantumRow {
                sequence: number / 2,
                cpu,
                pid: 7,
                tid: 7 + cpu,
                start_tsc,
                end_tsc: start_tsc + 400,
                counts: vec![10],
                periods: vec![5],
                records: 1,
                ..QuantumRow::default()
            };
            let sample = SampleRow {
                tsc: start_tsc + 100,
                cpu,
                quantum: number / 2,
                pid: 7,
                tid: 7 + cpu,
                ..SampleRow::default()
            };
            writer.sample(&sample).unwrap();
            damage(&mut row);
            writer.quantum(&row).unwrap();
        }
        writer.finish(Totals { counts: vec![40], ..Totals::default() }).unwrap();
        folder
    }

    fn verified(folder: &Path) -> (String, bool) {
        let reader = TraceReader::open(folder).unwrap();
        let verdict = trace::verify(&reader);
        (verify_text(reader.meta(), &verdict, reader.is_growing()), verdict.is_good())
    }

    #[test]
    fn what_is_wrong_is_told_to_programs_too() {
        let temp = TempDir::new().unwrap();
        let told = |folder: &Path| {
            let reader = TraceReader::open(folder).unwrap();
            let verdict = trace::verify(&reader);
            serde_json::to_value(Verified::of(reader.meta(), &verdict, reader.is_growing())).unwrap()
        };
        let whole = told(&write(&temp, "a.hpm", "lab", 0, |_| {}));
        assert_eq!(
            (&whole["whole"], &whole["complete"], &whole["growing"]),
            (&true.into(), &true.into(), &false.into())
        );
        assert_eq!((&whole["rows"]["quanta"], &whole["problems"]), (&4.into(), &serde_json::json!([])));
        let wrong = told(&write(&temp, "b.hpm", "lab", 0, |row| row.tid = 99));
        assert_eq!(wrong["whole"], false);
        assert!(wrong["problems"][0].is_string(), "{wrong}");
    }

    #[test]
    fn a_whole_trace_is_told_in_figures() {
        let temp = TempDir::new().unwrap();
        let folder = write(&temp, "a.hpm", "lab", 0, |_| {});
        let reader = TraceReader::open(&folder).unwrap();
        insta::assert_snapshot!(info_text(reader.meta(), &trace::verify(&reader), false, 5 << 19));
        assert!(verified(&folder).1, "{}", verified(&folder).0);
    }

    #[test]
    fn what_is_lost_is_told() {
        let temp = TempDir::new().unwrap();
        let reader = TraceReader::open(write(&temp, "a.hpm", "lab", 0, |_| {})).unwrap();
        let told = |meta: &Meta| info_text(meta, &trace::verify(&reader), false, 1);
        assert!(!told(reader.meta()).contains("remark"));
        let mut meta = reader.meta().clone();
        meta.totals = Some(Totals { records_lost: 5, throttled: 2, ..Totals::default() });
        let text = told(&meta);
        assert!(text.contains("remark    5 samples could not be written or were held back\n"), "{text}");
        assert!(text.contains("remark    samples were held back in 2 quanta"), "{text}");
    }

    #[test]
    fn one_is_no_plural_and_small_files_have_a_size() {
        let tables = ["quanta", "threads", "kernel_symbols"].map(|table| rows_of(table, 1));
        assert_eq!(tables, ["1 quantum", "1 thread", "1 kernel_symbol"]);
        assert_eq!([rows_of("stacks", 0), rows_of("maps", 1200)], ["0 stacks", "1,200 maps"]);
        assert_eq!([22_100, 1 << 20, 5 << 19].map(size), ["21.6 KiB", "1.0 MiB", "2.5 MiB"]);
    }

    #[test]
    fn contradictions_are_named() {
        let temp = TempDir::new().unwrap();
        type Damage = fn(&mut QuantumRow);
        let cases: [(&str, Damage); 5] = [
            ("ends before it starts", |row| row.end_tsc = row.start_tsc - 1),
            ("has 2 counts for 1 events", |row| row.counts.push(0)),
            ("and the session 40", |row| row.counts[0] += 1),
            ("comes after quantum", |row| row.sequence = 0),
            ("which is thread 99's", |row| row.tid = 99),
        ];
        for (number, (sentence, damage)) in cases.into_iter().enumerate() {
            let (text, good) = verified(&write(&temp, &number.to_string(), "lab", 5000, damage));
            assert!(!good && text.contains(sentence), "{sentence}: {text}");
        }
    }

    #[test]
    fn traces_of_one_machine_interleave_exactly() {
        let temp = TempDir::new().unwrap();
        let a = write(&temp, "a.hpm", "lab", 10_000, |_| {});
        let b = write(&temp, "b.hpm", "lab", 10_500, |_| {});
        let readers = [&a, &b].map(|folder| TraceReader::open(folder).unwrap());
        let merged = temp.path().join("m.hpm");
        let outcome = trace::merge(&readers.each_ref(), &merged).unwrap();
        assert_eq!((outcome.rows, outcome.notes.len()), ((8, 8), 0));
        assert!(outcome.merged.iter().all(|merged| (merged.uncertainty_ns, merged.pid_offset) == (0, 0)));
        let reader = TraceReader::open(&merged).unwrap();
        let starts: Vec<u64> = reader.rows::<QuantumRow>().map(|row| row.start_tsc).collect();
        assert_eq!(starts, (0..8).map(|number| 10_000 + number * 500).collect::<Vec<_>>());
        assert_eq!(reader.meta().totals.as_ref().unwrap().counts, [80]);
        let quanta: Vec<QuantumRow> = reader.rows().collect();
        for sample in reader.rows::<SampleRow>() {
            let of =
                quanta.iter().find(|row| (row.cpu, row.sequence) == (sample.cpu, sample.quantum)).unwrap();
            assert!(
                of.tid == sample.tid && (of.start_tsc..of.end_tsc).contains(&sample.tsc),
                "{of:?} {sample:?}"
            );
        }
    }

    #[test]
    fn each_program_of_a_merged_trace_is_named_once() {
        let words = |command: &str| command.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let merged = ["sort -n", "uniq", "uniq"]
            .map(|command| trace::Merged { commands: vec![words(command)], ..trace::Merged::default() });
        let mut meta = Meta { command: words("sort -n"), merged: merged.into(), ..Meta::default() };
        assert_eq!(measured(&meta), ("command", "sort -n; uniq".to_owned()));
        meta.merged[2].subjects = vec!["CPU 1".into()];
        assert_eq!(measured(&meta), ("measured", "sort -n; uniq; CPU 1".to_owned()));
        meta.merged[2].subjects.clear();
        // By hpm before it kept them, and of no merged trace.
        meta.merged.iter_mut().for_each(|merged| merged.commands.clear());
        assert_eq!(measured(&meta).1, "sort -n");
        assert_eq!(measured(&Meta::default()).1, "(no command)");
    }

    #[test]
    fn other_hosts_get_numbers_of_their_own() {
        let temp = TempDir::new().unwrap();
        let a = write(&temp, "a.hpm", "one", 10_000, |_| {});
        let b = write(&temp, "b.hpm", "two", 10_000, |_| {});
        let readers = [&a, &b].map(|folder| TraceReader::open(folder).unwrap());
        let merged = temp.path().join("m.hpm");
        let outcome = trace::merge(&readers.each_ref(), &merged).unwrap();
        let other = &outcome.merged[1];
        assert_eq!((other.cpu_offset, other.pid_offset), (2, 1 << 22));
        assert_eq!(other.commands, [["sort"]]);
        let again = temp.path().join("again.hpm");
        let of_merged = TraceReader::open(&merged).unwrap();
        assert_eq!(trace::merge(&[&of_merged], &again).unwrap().merged[0].commands, [["sort"]]);
        assert!(verified(&merged).1, "{}", verified(&merged).0);
        let reader = TraceReader::open(&merged).unwrap();
        assert_eq!(reader.meta().machine.cpus, 4);
        assert_eq!(reader.rows::<QuantumRow>().filter(|row| row.pid == 7 + (1 << 22)).count(), 4);
    }
}
