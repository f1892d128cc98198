//! The tables of the thesis, of the cache model.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table};
use heap::layout::FieldId;
use heap::simulate::Counts;
use heap::workload::{TYPES, Workload};
use heap::{Collector, Space};

use crate::measure::{Done, Plan, minimum as smallest, which};
use crate::run::together;
use crate::{ModelArgs, Runs, What};

/// Says what a table rests on.
pub(crate) fn label(model: &ModelArgs) {
    println!(
        "Accesses through the heap's accessors, cache model ({}); one of {} misses sampled.",
        model.profile.name, model.interval
    );
}

/// An empty table; numbers stand right.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// Prints a table without what alignment leaves at the ends of lines.
pub(crate) fn print(table: &Table) {
    table.lines().for_each(|line| println!("{}", line.trim_end()));
}

/// `heap minimum`.
pub(crate) fn minimum(workloads: &[Workload], scale: u32, libgc: Option<&'static str>) -> Result<()> {
    let mut header = vec!["workload", "mark-sweep KiB", "copying KiB"];
    header.extend(libgc.map(|_| "libgc KiB"));
    let mut table = table(&header);
    for &workload in workloads {
        let of =
            |collector| -> Result<String> { Ok((smallest(workload, scale, collector)? >> 10).to_string()) };
        let mut row = vec![workload.name().to_owned(), of(Collector::MarkSweep)?, of(Collector::Copying)?];
        row.extend(libgc.map(|library| of(Collector::Libgc(library))).transpose()?);
        table.add_row(row);
    }
    print(&table);
    Ok(())
}

/// A difference in percent, as the thesis plots them.
pub(crate) fn percent(new: u64, old: u64) -> String {
    format!("{:+.1} %", (new as f64 / old as f64 - 1.0) * 100.0)
}

/// So many times the smallest heap.
pub(crate) fn heap_bytes(minimum: u32, times: f64) -> u32 {
    (f64::from(minimum) * times) as u32
}

/// What `heap simulate` tells of each run.
const HEADER: [&str; 17] = [
    "workload",
    "heap",
    "accesses",
    "L1 misses",
    "GCs",
    "pairs",
    "advised: L1",
    "walks",
    "program",
    "cycles",
    "half",
    "copying: L1",
    "walks",
    "program",
    "cycles",
    "half",
    "to it",
];

/// `heap simulate`.
pub(crate) fn simulate(what: &What, model: &ModelArgs, runs: &Runs, advice: &[FieldId]) -> Result<()> {
    label(model);
    println!(
        "Differences to the mark-sweep collector without advice, {}. Cycles: one for each access, and what loads stall; program: \
         without the collector's; half: all with half the miss latencies. to it: cycles advised, to those of copying.",
        which(runs.iterations)
    );
    let mut table = table(&HEADER);
    for workload in what.workloads() {
        let minimum = smallest(workload, what.scale, runs.of)?;
        for &times in &runs.times {
            let limit = heap_bytes(minimum, times);
            let plan =
                |collector| Plan::new(workload, what.scale, collector, limit).repeated(runs.iterations);
            let base = plan(Collector::MarkSweep).run(model)?;
            let advised = if advice.is_empty() {
                plan(Collector::MarkSweep).advised(model)
            } else {
                Plan { advice: together(advice), ..plan(Collector::MarkSweep) }
            };
            let advised = advised.run(model)?;
            let copying = plan(Collector::Copying).run(model)?;
            let Some(base) = base else {
                table.add_row([workload.name(), &format!("{times}×"), "no room"]);
                continue;
            };
            let mut row = vec![
                workload.name().to_owned(),
                format!("{times}×"),
                base.last.program().accesses.to_string(),
                base.last.program().l1_misses.to_string(),
                format!("{}+{}", base.collections.0, base.collections.1),
                advised
                    .as_ref()
                    .map_or_else(String::new, |done| done.statistics.co_allocated_pairs.to_string()),
            ];
            row.extend(differences(&base, advised.as_ref())?);
            row.extend(differences(&base, copying.as_ref())?);
            if let (Some(advised), Some(copying)) = (&advised, &copying) {
                row.push(percent(advised.last.cycles(1), copying.last.cycles(1)));
            }
            table.add_row(row);
        }
    }
    print(&table);
    Ok(())
}

/// Of a run against the one without advice: first-level misses, page walks, the program's cycles, all cycles, and these at half
/// the latencies.
fn differences(base: &Done, other: Option<&Done>) -> Result<[String; 5]> {
    let Some(other) = other else { return Ok(["no room", "", "", "", ""].map(str::to_owned)) };
    ensure!(base.checksum == other.checksum, "advice or collector have changed the program's result");
    let (old, new) = (base.last.program(), other.last.program());
    Ok([
        percent(new.l1_misses, old.l1_misses),
        percent(new.page_walks, old.page_walks),
        percent(new.cycles(1), old.cycles(1)),
        percent(other.last.cycles(1), base.last.cycles(1)),
        percent(other.last.cycles(2), base.last.cycles(2)),
    ])
}

/// `heap intervals`.
pub(crate) fn intervals(
    workloads: &[Workload],
    scale: u32,
    model: &ModelArgs,
    intervals: &[u64],
) -> Result<()> {
    let mut header = vec!["co-allocated objects at one of".to_owned()];
    header.extend(intervals.iter().map(u64::to_string));
    let mut table = table(&header.iter().map(String::as_str).collect::<Vec<_>>());
    for &workload in workloads {
        let limit = heap_bytes(smallest(workload, scale, Collector::MarkSweep)?, 4.0);
        let mut row = vec![workload.name().to_owned()];
        for &interval in intervals {
            let model = ModelArgs { interval, ..*model };
            let plan = Plan::new(workload, scale, Collector::MarkSweep, limit).advised(&model);
            let done = plan.run(&model)?.context("a workload runs in four times its smallest heap")?;
            let objects = done.statistics.co_allocated_pairs + done.statistics.co_allocated_rows;
            row.push(objects.to_string());
        }
        table.add_row(row);
    }
    println!(
        "Accesses through the heap's accessors, cache model ({}); three iterations.",
        model.profile.name
    );
    print(&table);
    Ok(())
}

/// `heap weights`.
pub(crate) fn weights(workloads: &[Workload], scale: u32, model: &ModelArgs) -> Result<()> {
    label(model);
    for &workload in workloads {
        let limit = heap_bytes(smallest(workload, scale, Collector::MarkSweep)?, 4.0);
        let mut plan = Plan::new(workload, scale, Collector::MarkSweep, limit).advised(model);
        // It only looks on.
        plan.rules.iter_mut().for_each(|rules| rules.advice.hot_samples = f64::INFINITY);
        let done = plan.run(model)?.context("a workload runs in four times its smallest heap")?;
        let log = done.log.context("there was an advisor")?;
        let log = log.borrow();
        println!("\n{}: {} samples, {} of young or freed objects", workload.name(), log.samples, log.young);
        let mut table = table(&["field", "by the heap", "by the program"]);
        let fields: BTreeSet<_> = log.weights.keys().chain(log.told.keys()).copied().collect();
        let of = |field| {
            let by_heap = log.weights.get(field).map_or(0.0, |weight| weight.samples);
            (by_heap, log.told.get(field).copied().unwrap_or(0.0))
        };
        let mut rows: Vec<_> = fields.iter().map(|field| (field.name(TYPES), of(field))).collect();
        rows.sort_by(|(_, (one, _)), (_, (other, _))| other.total_cmp(one));
        for (name, (by_heap, told)) in rows {
            table.add_row([name, format!("{by_heap:.0}"), format!("{told:.0}")]);
        }
        print(&table);
    }
    Ok(())
}

/// An event of those that are counted.
type Event = (&'static str, fn(&Counts) -> u64);

/// What the thesis's §4.4 compares.
const EVENTS: [Event; 2] = [("L1", |counts| counts.l1_misses), ("DTLB", |counts| counts.page_walks)];

/// `heap spaces`.
pub(crate) fn spaces(workloads: &[Workload], scale: u32, model: &ModelArgs) -> Result<()> {
    label(model);
    let mut table = table(&["workload", "collector", "misses", "nursery", "mature", "large", "all"]);
    for &workload in workloads {
        let limit = heap_bytes(smallest(workload, scale, Collector::MarkSweep)?, 4.0);
        for (collector, name) in [(Collector::MarkSweep, "mark-sweep"), (Collector::Copying, "copying")] {
            let done = Plan::new(workload, scale, collector, limit).run(model)?;
            let done = done.context("a workload runs in four times its smallest heap")?;
            for (event, count) in EVENTS {
                let of = |space| count(&done.last.space(space)).to_string();
                let spaces = [Space::Nursery, Space::Mature, Space::Large].map(of);
                let [nursery, mature, large] = spaces;
                let all = count(&done.last.program()).to_string();
                table.add_row([
                    workload.name().to_owned(),
                    name.into(),
                    event.into(),
                    nursery,
                    mature,
                    large,
                    all,
                ]);
            }
        }
    }
    print(&table);
    Ok(())
}
