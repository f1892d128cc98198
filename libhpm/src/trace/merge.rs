//! One trace from several: of the CPUs of a machine, of recordings after each other, or of several hosts.

mod check;
mod turns;

use std::collections::HashMap;
use std::path::PathBuf;

use self::turns::Turns;
use super::error::TraceError;
use super::meta::{Allocations, Clock, ClockPair, Machine, Merged, Meta, PhaseGuided};
use super::reader::TraceReader;
use super::row::{
    AllocationRow, KernelSymbolRow, MapRow, MarkerRow, QuantumRow, Row, SampleRow, StackRow, ThreadRow,
};
use super::totals::{Totals, share};
use super::writer::TraceWriter;
use crate::record::BranchType;

/// Process and thread numbers of each further host begin here: Linux gives none above (PID_MAX_LIMIT).
const PIDS_PER_HOST: u32 = 1 << 22;
/// Hosts whose numbers then still fit.
pub const HOSTS_MAX: usize = (u32::MAX / PIDS_PER_HOST) as usize;
/// Two traces have the same clock when their pairs of TSC and CLOCK_MONOTONIC_RAW agree so well.
const SAME_CLOCK_NS: u64 = 1_000_000;
/// And when CLOCK_REALTIME has gone away from CLOCK_MONOTONIC_RAW by less than this, which somebody who sets the date makes more: then
/// times are converted though they need not be. Another boot is further away.
const SAME_BOOT_NS: u64 = 60_000_000_000;

/// What came of a merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// One for each trace, in the order in which they were given.
    pub merged: Vec<Merged>,
    /// What the merged trace lacks, as sentences.
    pub notes: Vec<String>,
    /// Rows of quanta and samples.
    pub rows: (u64, u64),
}

/// How the rows of one trace change.
struct Input<'a> {
    reader: &'a TraceReader,
    merged: Merged,
    /// Place of each event in the merged trace.
    events: Vec<usize>,
    /// Events of the merged trace.
    event_count: usize,
    /// Converts times; `None` for the clock of the first trace.
    times: Option<Conversion>,
    stacks: HashMap<u32, u32>,
}

/// From one TSC by CLOCK_REALTIME to another.
#[derive(Clone, Copy, Debug)]
struct Conversion {
    from: ClockPair,
    from_khz: u64,
    to: ClockPair,
    to_khz: u64,
}

impl Conversion {
    fn convert(&self, tsc: u64) -> u64 {
        let ticks = i128::from(tsc) - i128::from(self.from.tsc);
        let ns = ticks * 1_000_000 / i128::from(self.from_khz.max(1));
        let realtime = i128::from(self.from.realtime_ns) + ns - i128::from(self.to.realtime_ns);
        let there = i128::from(self.to.tsc) + realtime * i128::from(self.to_khz) / 1_000_000;
        u64::try_from(there).unwrap_or(0)
    }
}

/// Writes the rows of all traces into a new one, quanta and samples in the order of time. Holds the quanta and samples in
/// memory meanwhile. What the traces lack, the new one says in [`Meta::missing`].
///
/// # Errors
/// [`TraceError`] when a trace stands twice among them, one does not tell how its clock stands to the others', nothing can be read
/// of one or there is nothing in any, or the new trace cannot be written; nothing of it is left then.
pub fn merge(readers: &[&TraceReader], folder: impl Into<PathBuf>) -> Result<Outcome, TraceError> {
    check::check(readers)?;
    let (meta, inputs) = plan(readers);
    TraceWriter::whole(&folder.into(), meta.clone(), |writer| write(readers, &meta, inputs, writer))
}

/// Writes the rows of all traces, as planned, into the new one.
fn write(
    readers: &[&TraceReader],
    meta: &Meta,
    mut inputs: Vec<Input<'_>>,
    mut writer: TraceWriter,
) -> Result<Outcome, TraceError> {
    let (mut notes, mut missing) = (Vec::new(), meta.missing.clone());
    let (mut totals, mut turns) = (Totals::default(), Turns::new(meta.events.len()));
    kernel_symbols(readers, &mut writer, &mut notes)?;
    let (mut quanta, mut samples) = (Vec::new(), Vec::new());
    for (place, input) in inputs.iter_mut().enumerate() {
        let mut cuts = Vec::new();
        for row in all::<MapRow>(input.reader, &mut cuts) {
            writer.map(&MapRow { tsc: input.tsc(row.tsc), pid: input.pid(row.pid), ..row })?;
        }
        for row in all::<ThreadRow>(input.reader, &mut cuts) {
            writer.thread(&input.thread(row))?;
        }
        for row in all::<MarkerRow>(input.reader, &mut cuts) {
            writer.marker(&input.marker(row))?;
        }
        for row in all::<StackRow>(input.reader, &mut cuts) {
            let number = writer.stack(&row.frames, row.truncated)?;
            input.stacks.insert(row.id, number);
        }
        if input.reader.has::<AllocationRow>() {
            for row in all::<AllocationRow>(input.reader, &mut cuts) {
                writer.allocation(&input.allocation(row))?;
            }
        }
        let own_quanta: Vec<_> = all(input.reader, &mut cuts).map(|row| input.quantum(row)).collect();
        let before = samples.len();
        samples.extend(all(input.reader, &mut cuts).map(|row| (place, input.sample(row))));
        missing.extend(cuts.into_iter().map(|cut| format!("{}: {cut}", input.merged.folder)));
        if own_quanta.is_empty() && samples.len() == before {
            notes.push(format!("{} holds nothing: no quantum and no sample", input.merged.folder));
        }
        let own = input.totals(&own_quanta);
        turns.add(&input.events, &own);
        totals.add(&own);
        quanta.extend(Quantum::all(place, own_quanta));
    }
    totals.running_tsc = turns.of(totals.on_cpu_tsc);
    quanta.sort_by_key(|Quantum { row, input, .. }| (row.end_tsc, row.cpu, *input, row.sequence));
    number_by_time(&mut quanta, &mut samples);
    samples.sort_by_key(|(_, row)| (row.tsc, row.cpu, row.quantum));
    quanta.iter().try_for_each(|quantum| writer.quantum(&quantum.row))?;
    samples.iter().try_for_each(|(_, row)| writer.sample(row))?;
    writer.missing(&missing);
    writer.finish(totals)?;
    let notes = missing.into_iter().chain(notes).collect();
    let merged = inputs.into_iter().map(|input| input.merged).collect();
    Ok(Outcome { merged, notes, rows: (quanta.len() as u64, samples.len() as u64) })
}

/// Of two traces together. Their events are the same, or the trace would not be merged.
fn phase_guided(all: PhaseGuided, own: PhaseGuided) -> PhaseGuided {
    PhaseGuided {
        intervals: all.intervals + own.intervals,
        recorded: all.recorded + own.recorded,
        behaviours: all.behaviours + own.behaviours,
        ..all
    }
}

/// What `meta.json` says, and how each trace's rows change.
fn plan<'a>(readers: &[&'a TraceReader]) -> (Meta, Vec<Input<'a>>) {
    let first = readers[0].meta();
    let mut meta = Meta { merged: vec![], missing: vec![], rows: [].into(), totals: None, ..first.clone() };
    meta.phase_guided =
        readers.iter().filter_map(|reader| reader.meta().phase_guided.clone()).reduce(phase_guided);
    // Hosts by name and clock, with the offsets of their numbers.
    let mut hosts: Vec<(&Meta, u32, u32)> = Vec::new();
    let mut inputs: Vec<Input<'a>> = Vec::new();
    for &reader in readers {
        let own = reader.meta();
        let known = hosts.iter().find(|(host, ..)| same_clock(host, own)).copied();
        let (_, cpu_offset, pid_offset) = known.unwrap_or_else(|| {
            let cpus = hosts.iter().map(|(host, ..)| host.machine.cpus.max(1)).sum();
            let host = (own, cpus, PIDS_PER_HOST * hosts.len() as u32);
            hosts.push(host);
            host
        });
        let times = (!same_clock(first, own)).then(|| conversion(own, first));
        let uncertainty_ns = if times.is_some() { scatter_ns(own) + scatter_ns(first) } else { 0 };
        let merged = Merged {
            folder: reader.name().display().to_string(),
            commands: own.commands(),
            subjects: own.subjects(),
            host_name: own.machine.host_name.clone(),
            cpu_offset,
            pid_offset,
            uncertainty_ns,
        };
        let events = own.events.iter().map(|event| place_of(event, &mut meta)).collect();
        let lacking = reader.lacking().into_iter();
        meta.missing.extend(lacking.map(|sentence| format!("{}: {sentence}", merged.folder)));
        inputs.push(Input { reader, merged, events, event_count: 0, times, stacks: HashMap::new() });
    }
    inputs.iter_mut().for_each(|input| input.event_count = meta.events.len());
    meta.machine.cpus = hosts.iter().map(|(host, ..)| host.machine.cpus.max(1)).sum();
    let allocations = readers.iter().filter_map(|reader| reader.meta().allocations);
    meta.allocations = allocations.reduce(Allocations::with);
    meta.branches = branches(readers);
    meta.frame_pointers = readers.iter().any(|reader| reader.meta().frame_pointers);
    meta.merged = inputs.iter().map(|input| input.merged.clone()).collect();
    meta.clock = Clock { tsc_khz: first.clock.tsc_khz, pairs: first.clock.pairs.clone() };
    (meta, inputs)
}

/// Types that the branch records of all these traces have; `None` where one does not say it.
fn branches(readers: &[&TraceReader]) -> Option<Vec<BranchType>> {
    let metas = || readers.iter().map(|reader| reader.meta());
    if metas().any(|meta| meta.branches.is_none() && meta.source == "driver") {
        return None;
    }
    metas().filter_map(|meta| meta.branches.clone()).reduce(|mut all, own| {
        match (all.is_empty(), own.is_empty()) {
            // One of them has no branch records.
            (true, _) => own,
            (_, true) => all,
            _ => {
                all.retain(|kind| own.contains(kind));
                all
            }
        }
    })
}

/// Place of an event in the merged trace, which has the events of all.
fn place_of(event: &super::Event, meta: &mut Meta) -> usize {
    match meta.events.iter().position(|other| other == event) {
        Some(place) => place,
        None => {
            meta.events.push(event.clone());
            meta.events.len() - 1
        }
    }
}

/// A quantum of one of the traces, with that one's number until all are there.
struct Quantum {
    input: usize,
    row: QuantumRow,
    /// Numbers of lost quanta between the one before it on its CPU and its own.
    lost_before: u64,
}

impl Quantum {
    /// Those of one trace, in its order.
    fn all(input: usize, rows: Vec<QuantumRow>) -> impl Iterator<Item = Self> {
        let mut next: HashMap<u32, u64> = HashMap::new();
        rows.into_iter().map(move |row| {
            let next = next.entry(row.cpu).or_default();
            let lost_before = row.sequence.saturating_sub(*next);
            *next = row.sequence.saturating_add(1);
            Self { input, row, lost_before }
        })
    }
}

/// Numbers the quanta, sorted by their ends, anew on each CPU, where traces may have been recorded at one time or be given in another
/// order than theirs. A gap, which lost quanta leave, stays before the quantum that follows it. Samples, each with the trace that it is
/// of, name quanta by the new numbers.
fn number_by_time(quanta: &mut [Quantum], samples: &mut [(usize, SampleRow)]) {
    let (mut next, mut anew) = (HashMap::<u32, u64>::new(), HashMap::new());
    for Quantum { input, row, lost_before } in quanta {
        let next = next.entry(row.cpu).or_default();
        let number = *next + *lost_before;
        anew.insert((*input, row.cpu, row.sequence), number);
        (row.sequence, *next) = (number, number + 1);
    }
    for (input, row) in samples {
        // One whose quantum is missing names a number that none has.
        row.quantum = anew.get(&(*input, row.cpu, row.quantum)).copied().unwrap_or(u64::MAX);
    }
}

/// Whether two traces are of one machine since the same boot, so that their TSC values are of one clock.
fn same_clock(a: &Meta, b: &Meta) -> bool {
    let (Some(first), Some(other)) = (a.clock.pairs.first(), b.clock.pairs.first()) else { return false };
    let anywhen = |meta: &Meta| Machine { boot_id: String::new(), ..meta.machine.clone() };
    if anywhen(a) != anywhen(b) || a.clock.tsc_khz != b.clock.tsc_khz || a.clock.tsc_khz == 0 {
        return false;
    }
    let ticks = i128::from(other.tsc) - i128::from(first.tsc);
    let ns = ticks * 1_000_000 / i128::from(a.clock.tsc_khz);
    let raw = i128::from(other.monotonic_raw_ns) - i128::from(first.monotonic_raw_ns);
    let real = i128::from(other.realtime_ns) - i128::from(first.realtime_ns);
    // Where TSC and CLOCK_MONOTONIC_RAW are one clock, as perf_event has it, they agree in any boot.
    let [one, another] = [a, b].map(|meta| &meta.machine.boot_id);
    let same_boot = match one.is_empty() || another.is_empty() {
        true => (real - raw).unsigned_abs() < SAME_BOOT_NS.into(),
        false => one == another,
    };
    same_boot && (ns - raw).unsigned_abs() < SAME_CLOCK_NS.into()
}

fn conversion(from: &Meta, to: &Meta) -> Conversion {
    let pair = |meta: &Meta| meta.clock.pairs.first().copied().unwrap_or_default();
    Conversion { from: pair(from), from_khz: from.clock.tsc_khz, to: pair(to), to_khz: to.clock.tsc_khz }
}

/// How far the pairs of a trace are from what the first one and the TSC's frequency foretell of CLOCK_REALTIME, at most.
fn scatter_ns(meta: &Meta) -> u64 {
    let Some(first) = meta.clock.pairs.first() else { return 0 };
    let off = |pair: &ClockPair| {
        let ticks = i128::from(pair.tsc) - i128::from(first.tsc);
        let foretold = ticks * 1_000_000 / i128::from(meta.clock.tsc_khz.max(1));
        (i128::from(pair.realtime_ns) - i128::from(first.realtime_ns) - foretold).unsigned_abs()
    };
    meta.clock.pairs.iter().map(off).max().unwrap_or(0) as u64
}

/// Kernel functions are of one kernel: those of several hosts would name each other's addresses wrongly.
fn kernel_symbols(
    readers: &[&TraceReader],
    writer: &mut TraceWriter,
    notes: &mut Vec<String>,
) -> Result<(), TraceError> {
    let mut first: Option<Vec<KernelSymbolRow>> = None;
    for &reader in readers {
        let rows: Vec<KernelSymbolRow> = reader.rows().collect();
        match &first {
            _ if rows.is_empty() => {}
            None => first = Some(rows),
            Some(known) if *known == rows => {}
            Some(_) => {
                notes.push(
                    "the kernels have their functions at different addresses; their names are left out"
                        .into(),
                );
                return Ok(());
            }
        }
    }
    first.unwrap_or_default().iter().try_for_each(|row| writer.kernel_symbol(row))
}

/// The rows of a table that can be read; one that is cut off is noted.
fn all<R: Row>(reader: &TraceReader, cuts: &mut Vec<super::Cut>) -> std::vec::IntoIter<R> {
    let mut rows = reader.rows::<R>();
    let read: Vec<R> = rows.by_ref().collect();
    cuts.extend(rows.cut());
    read.into_iter()
}

impl Input<'_> {
    fn tsc(&self, tsc: u64) -> u64 {
        self.times.map_or(tsc, |times| times.convert(tsc))
    }

    /// A length of time.
    fn ticks(&self, ticks: u64) -> u64 {
        self.times.map_or(ticks, |times| share(ticks, times.to_khz, times.from_khz.max(1)))
    }

    /// A process or thread; 0 is each CPU's idle thread.
    fn pid(&self, pid: u32) -> u32 {
        if pid == 0 { 0 } else { pid.wrapping_add(self.merged.pid_offset) }
    }

    /// Numbers of each event at their places in the merged trace.
    fn placed(&self, numbers: &[u64]) -> Vec<u64> {
        let mut placed = vec![0; self.event_count];
        for (&place, &number) in self.events.iter().zip(numbers) {
            placed[place] = number;
        }
        placed
    }

    /// What the trace says of itself; sums of its quanta, which are already those of the merged trace, where its recording did not
    /// come to its end.
    fn totals(&self, quanta: &[QuantumRow]) -> Totals {
        match &self.reader.meta().totals {
            Some(own) => Totals {
                // A file of `perf record` has none.
                counts: if own.counts.is_empty() { vec![] } else { self.placed(&own.counts) },
                running_tsc: own.running_tsc.iter().map(|&ticks| self.ticks(ticks)).collect(),
                on_cpu_tsc: self.ticks(own.on_cpu_tsc),
                ..own.clone()
            },
            None => {
                let mut sums = Totals::default();
                quanta.iter().for_each(|row| sums.add_quantum(row));
                sums
            }
        }
    }

    fn quantum(&self, row: QuantumRow) -> QuantumRow {
        QuantumRow {
            cpu: row.cpu + self.merged.cpu_offset,
            pid: self.pid(row.pid),
            tid: self.pid(row.tid),
            start_tsc: self.tsc(row.start_tsc),
            end_tsc: self.tsc(row.end_tsc),
            counts: self.placed(&row.counts),
            periods: self.placed(&row.periods),
            ..row
        }
    }

    fn sample(&self, row: SampleRow) -> SampleRow {
        SampleRow {
            tsc: self.tsc(row.tsc),
            cpu: row.cpu + self.merged.cpu_offset,
            pid: self.pid(row.pid),
            tid: self.pid(row.tid),
            event: self.events.get(usize::from(row.event)).map_or(u8::MAX, |&place| place as u8),
            stack: row.stack.and_then(|stack| self.stacks.get(&stack).copied()),
            ..row
        }
    }

    fn thread(&self, row: ThreadRow) -> ThreadRow {
        ThreadRow {
            tsc: self.tsc(row.tsc),
            pid: self.pid(row.pid),
            tid: self.pid(row.tid),
            parent_pid: row.parent_pid.map(|pid| self.pid(pid)),
            ..row
        }
    }

    fn allocation(&self, row: AllocationRow) -> AllocationRow {
        AllocationRow {
            tsc: self.tsc(row.tsc),
            freed_tsc: row.freed_tsc.map(|tsc| self.tsc(tsc)),
            pid: self.pid(row.pid),
            tid: self.pid(row.tid),
            stack: row.stack.and_then(|stack| self.stacks.get(&stack).copied()),
            ..row
        }
    }

    fn marker(&self, row: MarkerRow) -> MarkerRow {
        MarkerRow {
            tsc: self.tsc(row.tsc),
            pid: row.pid.map(|pid| self.pid(pid)),
            tid: row.tid.map(|tid| self.pid(tid)),
            ..row
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// As perf_event records it: the TSC is CLOCK_MONOTONIC_RAW.
    fn at(raw: u64, realtime: u64, boot: &str) -> Meta {
        let mut meta = Meta::default();
        meta.machine.boot_id = boot.into();
        meta.clock.tsc_khz = 1_000_000;
        meta.clock.pairs = vec![ClockPair { tsc: raw, monotonic_raw_ns: raw, realtime_ns: realtime }];
        meta
    }

    #[test]
    fn another_boot_has_another_clock() {
        let day = 86_400 * SECOND;
        let first = at(100 * SECOND, 10 * day, "");
        assert!(same_clock(&first, &at(150 * SECOND, 10 * day + 51 * SECOND, "")));
        assert!(same_clock(&first, &at(150 * SECOND, 10 * day + 51 * SECOND, "one")), "not known of both");
        assert!(!same_clock(&first, &at(50 * SECOND, 11 * day, "")), "of perf.data files");
        let first = at(100 * SECOND, 10 * day, "one");
        assert!(same_clock(&first, &at(150 * SECOND, 12 * day, "one")), "the date was set");
        assert!(!same_clock(&first, &at(50 * SECOND, 10 * day + 60 * SECOND, "other")));
    }
}
