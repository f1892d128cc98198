//! `hpmctl report --off-cpu` and `--wall-clock`: where threads waited, and where all their time went.

mod lives;

use std::collections::HashMap;
use std::path::Path;

use anyhow::{Result, bail};
use libhpm::export::{is_clock_of_one_mode, losses, remarks};
use libhpm::flame::FoldedStacks;
use libhpm::report::{
    By, CallChain, Extent, Filter, Grouping, Resolver, Sample, SharedChain, Sum, Tally, ThreadTimes, Wait,
    WaitKind, Waits, WallClock, WallClockEntry,
};
use libhpm::symbol::Frame;
use libhpm::trace::{Event, Meta, QuantumRow, SampleRow, TraceReader};
use serde::Serialize;

use self::lives::Lives;
use super::samples::{draw, unfinished};
use super::{ReportArgs, table, text};
use crate::filters::lacking;
use crate::measure::tsc_to_ns;
use crate::opened::open_trace;
use crate::output::{grouped, time};

/// Everything that the text and the JSON show; times in TSC ticks become ns.
#[derive(Serialize)]
struct TimeReport<'a> {
    meta: &'a Meta,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    /// The event whose samples say where threads were on a CPU; absent of waits alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    clock: Option<&'a str>,
    /// What the clock says of the mode in which it takes no samples.
    #[serde(skip_serializing_if = "str::is_empty")]
    other_mode: &'static str,
    /// The event whose samples say where threads left their CPUs, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    switches: Option<&'a str>,
    threads: Vec<ThreadNs>,
    /// How many threads there are.
    thread_count: usize,
    /// On a CPU, blocked, pre-empted, not told.
    all_ns: [u64; 4],
    /// Time on a CPU of threads without a sample of the clock.
    unplaced_ns: u64,
    /// The filter chooses code, so that the threads' times are of more than the tables of places.
    #[serde(skip)]
    threads_exceed: bool,
    tables: Vec<Places>,
    warnings: Vec<String>,
    remarks: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    picture: Option<&'a Path>,
}

/// One thread; times in ns.
#[derive(Serialize)]
struct ThreadNs {
    thread: String,
    pid: u32,
    tid: u32,
    wall_clock_ns: u64,
    on_cpu_ns: u64,
    blocked_ns: u64,
    preempted_ns: u64,
    unknown_ns: u64,
    stays: u64,
    migrations: u64,
}

/// A table, cut to the number of rows asked for.
#[derive(Serialize)]
struct Places {
    by: Grouping,
    groups: usize,
    entries: Vec<WallClockEntry>,
}

/// What is to be printed, and what is to be warned of.
pub(super) fn output(args: &ReportArgs) -> Result<(String, Vec<String>)> {
    let reader = open_trace(&args.trace)?;
    let mut resolver = Resolver::new(&reader, args.files.finder());
    let filter = args.filters.of(&reader)?;
    let mut collected = Collected::new(args, reader.meta(), &filter)?;
    let mut quanta = reader.rows::<QuantumRow>();
    let name = |row: &QuantumRow| resolver.name_at(row.tid, row.end_tsc);
    let waits = Waits::of(quanta.by_ref(), filter.times(), |row| filter.takes_at_some_time(row, &name(row)));
    if waits.threads.is_empty() && !filter.is_empty() {
        bail!("{} holds no quantum {}", args.trace.display(), lacking(&filter));
    }
    if waits.threads.is_empty() {
        bail!(reader.lacks_quanta("that can be read"));
    }
    collected.read(&reader, &mut resolver, &waits);
    if filter.chooses_code_or_data() && collected.stacks.is_empty() {
        bail!(
            "{} holds no wait{} {}",
            args.trace.display(),
            if args.wall_clock { " and no sample" } else { "" },
            lacking(&filter)
        );
    }
    let warnings = resolver.cuts().iter().cloned().chain(quanta.cut()).map(|cut| cut.to_string());
    let warnings: Vec<String> = warnings.chain(unfinished(&reader)).collect();
    if let Some(path) = &args.picture {
        let what = if args.wall_clock { "wall-clock time" } else { "off-CPU time" };
        draw(path, &collected.stacks, reader.meta(), what, "ns")?;
    }
    let report = collected.report(args, &reader, &resolver, &waits, warnings);
    let output = if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { render(&report) };
    Ok((output, report.warnings))
}

/// A thread's samples of the clock.
#[derive(Default)]
struct Running {
    /// Events of all that its thread, CPU and time let be taken.
    events: u64,
    /// Those whose code is taken, too.
    taken: Tally,
}

/// What one pass over a trace gathers.
struct Collected<'a> {
    filter: &'a Filter,
    tsc_khz: u64,
    clock: Option<usize>,
    switches: Option<usize>,
    tables: Vec<WallClock>,
    stacks: FoldedStacks,
    all_ns: [u64; 4],
    unplaced_ns: u64,
    /// The place of waits of which none is known.
    nowhere: SharedChain,
    /// The place of what a clock that counts ns does not sample: the other mode.
    other_mode: Option<SharedChain>,
}

/// Events that come at a steady pace while a thread runs, the best first.
const CLOCKS: [&str; 4] = ["task-clock", "cpu-clock", "ref-cycles", "cycles"];

/// What stands for the place of a wait that has none: its thread has no user mode, as the kernel's own; or its quantum had no sample,
/// where only samples tell places.
fn nowhere(source: &str) -> SharedChain {
    unknown(if source == "driver" { "[no user code]" } else { "[not sampled]" })
}

/// A place that is not known but for this.
fn unknown(name: &str) -> SharedChain {
    let frame = Frame { function: Some(name.into()), module: "[unknown]".into(), ..Frame::default() };
    CallChain { calls: vec![[frame].into()], linked_address: 0, extent: Extent::AddressOnly }.into()
}

impl<'a> Collected<'a> {
    fn new(args: &ReportArgs, meta: &Meta, filter: &'a Filter) -> Result<Self> {
        let named = |name: &str| {
            let base = |event: &str| event.split(':').next() == Some(name);
            // Samples of dense places are no share of the time.
            let is_clock = |event: &Event| event.period > 0 && event.within.is_none();
            meta.events.iter().position(|event| base(&event.name) && is_clock(event))
        };
        let clock = CLOCKS.iter().find_map(|name| named(name));
        if args.wall_clock && clock.is_none() {
            let is_dense = |event: &&Event| {
                event.within.is_some()
                    && event.name.split(':').next().is_some_and(|base| CLOCKS.contains(&base))
            };
            if let Some(dense) = meta.events.iter().find(is_dense) {
                bail!(
                    "{} was sampled only where it is dense (record --window), which does not tell where threads were on a CPU: record it \
                     without windows; --off-cpu needs no such event",
                    dense.name
                );
            }
            bail!(
                "nothing in {} says where threads were on a CPU: record one of {} as well; --off-cpu needs none",
                args.trace.display(),
                CLOCKS.join(", ")
            );
        }
        let by = if args.by.is_empty() { vec![By::Function.into()] } else { args.tables() };
        Ok(Self {
            filter,
            tsc_khz: meta.clock.tsc_khz,
            clock: clock.filter(|_| args.wall_clock),
            switches: named("context-switches"),
            tables: by.into_iter().map(WallClock::new).collect(),
            stacks: FoldedStacks::default(),
            all_ns: [0; 4],
            unplaced_ns: 0,
            nowhere: nowhere(&meta.source),
            other_mode: clock
                .map(|clock| &meta.events[clock])
                .filter(|clock| is_clock_of_one_mode(clock))
                .map(|clock| unknown(if clock.user { "[kernel mode]" } else { "[user mode]" })),
        })
    }

    fn read(&mut self, reader: &TraceReader, resolver: &mut Resolver, waits: &Waits) {
        let lives = Lives::new(waits);
        let mut running: HashMap<(u32, u32, u64), Running> = HashMap::new();
        let mut leaving: HashMap<(u32, u64, u32), SampleRow> = HashMap::new();
        for row in reader.rows::<SampleRow>() {
            let event = Some(usize::from(row.event));
            if event == self.switches {
                leaving.insert((row.cpu, row.quantum, row.tid), row);
            } else if event == self.clock {
                let sample = resolver.resolve(&row);
                if self.filter.takes_with_any_code(&row, &sample) {
                    let of = running.entry(lives.of(&row)).or_default();
                    of.events += row.period;
                    if self.filter.takes(&row, &sample) {
                        of.taken.add(sample, row.period, None);
                    }
                }
            }
        }
        for wait in &waits.waits {
            self.wait(resolver, leaving.get(&(wait.cpu, wait.quantum, wait.tid)), wait);
        }
        if self.clock.is_some() {
            for thread in &waits.threads {
                self.on_cpu(running.get(&(thread.pid, thread.tid, thread.until_tsc)), thread);
            }
        }
    }

    /// Adds a wait, at the place where its thread left the CPU.
    fn wait(&mut self, resolver: &mut Resolver, sampled: Option<&SampleRow>, wait: &Wait) {
        let row = SampleRow {
            tsc: wait.start_tsc,
            cpu: wait.cpu,
            pid: wait.pid,
            tid: wait.tid,
            ip: sampled.map_or(wait.last_ip.unwrap_or(0), |row| row.ip),
            stack: sampled.and_then(|row| row.stack),
            // Of no event: the address is the one that the thread goes on from.
            event: u8::MAX,
            ..SampleRow::default()
        };
        let mut place = resolver.resolve_entry(&row);
        if sampled.is_none() && wait.last_ip.is_none() {
            place.chain = self.nowhere.clone();
        }
        if !self.filter.takes(&row, &place) {
            return;
        }
        let ns = tsc_to_ns(wait.ticks(), self.tsc_khz);
        self.tables.iter_mut().for_each(|table| table.wait(wait.kind, &place, ns));
        let whole = if sampled.is_some() { resolver.resolve(&row) } else { place };
        self.stacks.add(&whole, Sum::sample(ns, None));
        let kind = match wait.kind {
            WaitKind::Blocked => 1,
            WaitKind::Preempted => 2,
            WaitKind::Unknown => 3,
        };
        self.all_ns[kind] += ns;
    }

    /// Shares a thread's time on CPUs out to its samples. A choice of code takes its samples' part of the time.
    fn on_cpu(&mut self, running: Option<&Running>, thread: &ThreadTimes) {
        let taken = running.into_iter().flat_map(|running| running.taken.iter());
        let mut samples: Vec<(Sample, Sum)> = taken.map(|(sample, sum)| (sample.clone(), sum)).collect();
        let (known, mut all) = (samples.len(), running.map_or(0, |running| running.events));
        let whole_ns = tsc_to_ns(thread.times.on_cpu, self.tsc_khz);
        if let (Some(chain), Some(rest), Some((sample, _))) =
            (&self.other_mode, whole_ns.checked_sub(all), samples.first())
        {
            all = whole_ns;
            if !self.filter.chooses_code_or_data() {
                let sample = Sample { ip: 0, chain: chain.clone(), ..sample.clone() };
                samples.push((sample, Sum { events: rest, ..Sum::default() }));
            }
        }
        let events: u64 = samples.iter().map(|(_, sum)| sum.events).sum();
        // Of a thread without samples it is not known whether it was there.
        let ns = (u128::from(whole_ns) * u128::from(events))
            .checked_div(all.into())
            .map_or(whole_ns, |part| part as u64);
        let mut left = 0;
        for table in &mut self.tables {
            // On which CPU the other mode's time was the samples' shares tell best.
            let placed = if table.by().has(By::Cpu) { &samples[..known] } else { &samples };
            left = table.on_cpu(placed, ns);
        }
        self.unplaced_ns += left;
        self.all_ns[0] += ns - left;
        for (sample, sum) in &samples {
            let share =
                (u128::from(ns) * u128::from(sum.events)).checked_div(events.into()).unwrap_or(0) as u64;
            self.stacks.add(sample, Sum { events: share, ..*sum });
        }
    }

    fn report<'r>(
        &self,
        args: &'r ReportArgs,
        reader: &'r TraceReader,
        resolver: &Resolver,
        waits: &Waits,
        warnings: Vec<String>,
    ) -> TimeReport<'r> {
        let meta = reader.meta();
        let name = |event: Option<usize>| event.map(|event| meta.events[event].name.as_str());
        let place = |table: &WallClock| {
            let mut entries = table.entries();
            let groups = entries.len();
            entries.truncate(args.limit);
            Places { by: table.by().clone(), groups, entries }
        };
        let ns = |ticks| tsc_to_ns(ticks, self.tsc_khz);
        let thread = |thread: &ThreadTimes| ThreadNs {
            thread: resolver.name_at(thread.tid, thread.until_tsc).to_string(),
            pid: thread.pid,
            tid: thread.tid,
            wall_clock_ns: ns(thread.times.wall_clock()),
            on_cpu_ns: ns(thread.times.on_cpu),
            blocked_ns: ns(thread.times.blocked),
            preempted_ns: ns(thread.times.preempted),
            unknown_ns: ns(thread.times.unknown),
            stays: thread.stays,
            migrations: thread.migrations,
        };
        TimeReport {
            meta,
            filter: args.filters.words(),
            clock: name(self.clock),
            other_mode: self.clock.map_or("", |clock| other_mode(&meta.events[clock])),
            switches: name(self.switches),
            threads: waits.threads.iter().take(args.limit).map(thread).collect(),
            thread_count: waits.threads.len(),
            all_ns: self.all_ns,
            unplaced_ns: self.unplaced_ns,
            threads_exceed: self.filter.chooses_code_or_data(),
            tables: self.tables.iter().map(place).collect(),
            warnings,
            remarks: remarks(meta),
            picture: args.picture.as_deref(),
        }
    }
}

/// What becomes of the time in the mode in which the clock takes no samples; a part of a sentence.
fn other_mode(clock: &Event) -> &'static str {
    match (is_clock_of_one_mode(clock), clock.user, clock.kernel) {
        (true, true, _) => {
            "of user mode alone: what they leave is [kernel mode], with up to a period for each thread and what was lost"
        }
        (true, ..) => {
            "of kernel mode alone: what they leave is [user mode], with up to a period for each thread and what was lost"
        }
        (false, true, false) => "of user mode alone, which have the time in kernel mode, too",
        (false, false, true) => "of kernel mode alone, which have the time in user mode, too",
        _ => "",
    }
}

fn render(report: &TimeReport<'_>) -> String {
    let mut text = String::new();
    text::head(&mut text, report.meta, report.filter.as_deref());
    text::remarks(&mut text, &losses(report.meta));
    threads(&mut text, report);
    for places in &report.tables {
        rows(&mut text, places, report.clock.is_some());
    }
    let [on_cpu, blocked, preempted, unknown] = report.all_ns.map(time);
    let on_cpu = if report.clock.is_some() { format!("{on_cpu} on a CPU, ") } else { String::new() };
    text::line(
        &mut text,
        format_args!("\nAll: {on_cpu}{blocked} blocked, {preempted} pre-empted, {unknown} not told."),
    );
    text.push_str(match report.switches {
        Some(_) => "A wait's place is where its switch was sampled, with its callers: where the program entered the kernel, as far as its stack tells.\n",
        None if report.meta.source == "driver" => {
            "A wait's place is the user-mode instruction that the thread goes on from, [no user code] of a thread without any; its \
             callers are not recorded.\n"
        }
        None => {
            "A wait's place is that of its quantum's last sample, which can be far from it, or [not sampled] where there was none: \
             record context-switches with --stacks to see the place itself and its callers.\n"
        }
    });
    if let Some(clock) = report.clock {
        text::line(
            &mut text,
            format_args!(
                "Time on a CPU is exact for each thread; its places are those of the samples of {clock}{}{}.",
                if report.other_mode.is_empty() { "" } else { ", " },
                report.other_mode
            ),
        );
    }
    if report.unplaced_ns > 0 {
        text::line(
            &mut text,
            format_args!(
                "{} on a CPU is of threads without a sample of it, and in no row.",
                time(report.unplaced_ns)
            ),
        );
    }
    if report.all_ns[3] > 0 {
        text.push_str("Not told: quanta were lost meanwhile, or the thread ran on unseen.\n");
    }
    if let Some(path) = report.picture {
        text::line(&mut text, format_args!("flame graph: {}", path.display()));
    }
    text
}

/// The threads with their time, whatever the filter says of code.
fn threads(text: &mut String, report: &TimeReport<'_>) {
    let mut table = table::plain();
    table.set_header([
        "wall-clock",
        "on a CPU",
        "blocked",
        "pre-empted",
        "not told",
        "stays",
        "migrations",
        "pid",
        "tid",
        "thread",
    ]);
    for thread in &report.threads {
        let times = [
            thread.wall_clock_ns,
            thread.on_cpu_ns,
            thread.blocked_ns,
            thread.preempted_ns,
            thread.unknown_ns,
        ];
        let numbers = [thread.stays, thread.migrations].map(grouped);
        let who = [thread.pid.to_string(), thread.tid.to_string(), thread.thread.clone()];
        table.add_row(times.map(shown).into_iter().chain(numbers).chain(who));
    }
    text.push('\n');
    table::finish(text, table, 9);
    if report.thread_count > report.threads.len() {
        text::line(
            text,
            format_args!(" … and {} more (--limit)", report.thread_count - report.threads.len()),
        );
    }
    if report.threads_exceed {
        text.push_str("Threads' times are of all code; what follows is at the places that were asked for.\n");
    }
}

fn rows(text: &mut String, places: &Places, on_cpu: bool) {
    let mut table = table::plain();
    let first: &[&str] = if on_cpu { &["time", "total", "on a CPU"] } else { &["time", "total"] };
    let numbers: Vec<&str> =
        first.iter().chain(&["blocked", "pre-empted", "not told", "waits"]).copied().collect();
    table.set_header(numbers.iter().copied().chain(table::names(&places.by)));
    for entry in &places.entries {
        let mut cells = vec![shown(entry.own_ns()), shown(entry.total_ns)];
        if on_cpu {
            cells.push(shown(entry.on_cpu_ns));
        }
        cells.extend([entry.blocked_ns, entry.preempted_ns, entry.unknown_ns].map(shown));
        cells.push(grouped(entry.waits));
        cells.extend(table::name(&places.by, &entry.key));
        table.add_row(cells);
    }
    text.push('\n');
    table::finish(text, table, numbers.len());
    if places.groups > places.entries.len() {
        text::line(text, format_args!(" … and {} more (--limit)", places.groups - places.entries.len()));
    }
}

/// A time; nothing for none.
fn shown(ns: u64) -> String {
    if ns == 0 { String::new() } else { time(ns) }
}
