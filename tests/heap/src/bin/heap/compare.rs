//! The heap beside libgc, in the cache model.

use anyhow::{Result, ensure};
use heap::Collector;
use heap::workload::Workload;

use crate::measure::{Done, Plan, minimum, which};
use crate::tables::{heap_bytes, label, percent, print, table};
use crate::{ModelArgs, Runs, What};

/// `heap simulate --libgc`.
///
/// # Errors
/// There is no libgc, or it has changed what a program computes.
pub(crate) fn simulate(what: &What, model: &ModelArgs, runs: &Runs, library: &'static str) -> Result<()> {
    label(model);
    println!(
        "The program's accesses only, {}: what libgc itself reads and writes is not seen, nor are its marks and free lists. \
         Differences to the mark-sweep collector without advice in a heap of the same size; of libgc also in a heap of so many \
         times its own smallest.",
        which(runs.iterations)
    );
    let mut table =
        table(&["workload", "heap", "KiB", "collector", "GCs", "L1 misses", "L1", "walks", "program"]);
    for workload in what.workloads() {
        let smallest = minimum(workload, what.scale, Collector::MarkSweep)?;
        let smallest_of_libgc = minimum(workload, what.scale, Collector::Libgc(library))?;
        for &times in &runs.times {
            let (limit, own) = (heap_bytes(smallest, times), heap_bytes(smallest_of_libgc, times));
            let plan = |collector, limit| {
                Plan::new(workload, what.scale, collector, limit).repeated(runs.iterations)
            };
            let Some(base) = plan(Collector::MarkSweep, limit).run(model)? else {
                table.add_row([workload.name(), &format!("{times}×"), "", "mark-sweep", "no room"]);
                continue;
            };
            let ways = [
                ("advised", plan(Collector::MarkSweep, limit).advised(model)),
                ("copying", plan(Collector::Copying, limit)),
                ("libgc", plan(Collector::Libgc(library), limit)),
                ("libgc, its own", plan(Collector::Libgc(library), own)),
            ];
            table.add_row(row(workload, times, limit, "mark-sweep", &base, None)?);
            for (name, plan) in ways {
                let Some(done) = plan.run(model)? else {
                    let kib = (plan.limit_bytes >> 10).to_string();
                    table.add_row([workload.name(), &format!("{times}×"), &kib, name, "no room"]);
                    continue;
                };
                table.add_row(row(workload, times, plan.limit_bytes, name, &done, Some(&base))?);
            }
        }
    }
    print(&table);
    Ok(())
}

/// What came of one run, with its differences to another.
fn row(
    workload: Workload,
    times: f64,
    limit: u32,
    name: &str,
    done: &Done,
    base: Option<&Done>,
) -> Result<Vec<String>> {
    let new = done.last.program();
    let (nursery, full) = done.collections;
    let mut row = vec![
        workload.name().to_owned(),
        format!("{times}×"),
        (limit >> 10).to_string(),
        name.to_owned(),
        format!("{nursery}+{full}"),
        new.l1_misses.to_string(),
    ];
    if let Some(base) = base {
        ensure!(base.checksum == done.checksum, "{name} has changed what {} computes", workload.name());
        let old = base.last.program();
        ensure!(old.accesses == new.accesses, "{name} has changed what {} accesses", workload.name());
        row.extend([
            percent(new.l1_misses, old.l1_misses),
            percent(new.page_walks, old.page_walks),
            percent(new.cycles(1), old.cycles(1)),
        ]);
    }
    Ok(row)
}
