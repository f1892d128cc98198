//! `suite bench`: hpm against the kernel's perf on the same work in the same guest, as ratios.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::document;
use crate::check::Tally;
use crate::guest::bench::C_PROGRAMS;
use crate::guest::programs::PERIOD;
use crate::guest::truth::Sums;
use crate::lab::{self, Boot};
use crate::machine::Machine;

const HEADING: &str = "## hpm against the kernel's perf";

/// What a comparison left: each round's cost by tool.
#[derive(Deserialize)]
struct Comparison {
    /// Units of work that this was for; `None` where they are the PEBS records that each tool's rounds had.
    units: Option<f64>,
    costs: BTreeMap<String, Vec<Sums>>,
}

/// User instructions, kernel instructions, all instructions, MSR accesses, those with reads of counters by RDPMC, and PMIs per unit of
/// work.
type Cost = [f64; 6];

/// What hpm may cost at most, as a part of what perf costs for the same.
struct Target {
    what: &'static str,
    /// The comparison.
    fact: &'static str,
    ours: &'static str,
    theirs: &'static str,
    /// Of [`Cost`].
    kind: usize,
    most: f64,
}

const USER: usize = 0;
const KERNEL: usize = 1;
const ALL: usize = 2;
const MSRS: usize = 3;
const WITH_RDPMC: usize = 4;
const PMIS: usize = 5;

const fn target(
    what: &'static str,
    fact: &'static str,
    (ours, theirs): (&'static str, &'static str),
    kind: usize,
    most: f64,
) -> Target {
    Target { what, fact, ours, theirs, kind, most }
}

const TARGETS: [Target; 8] = [
    target(
        "a switch between threads adds half of perf's kernel instructions",
        SWITCHES[0].0,
        ("hpm", "perf"),
        KERNEL,
        0.5,
    ),
    target(
        "a switch between processes adds half of perf's kernel instructions",
        SWITCHES[1].0,
        ("hpm", "perf"),
        KERNEL,
        0.5,
    ),
    target(
        "a precise sample adds a tenth of perf's kernel instructions",
        "sample",
        ("hpm", "perf"),
        KERNEL,
        0.1,
    ),
    target("a precise sample adds a tenth of perf's PMIs", "sample", ("hpm", "perf"), PMIS, 0.1),
    target("a precise sample adds a tenth of perf's MSR accesses", "sample", ("hpm", "perf"), MSRS, 0.1),
    target(
        "a precise sample adds a tenth of perf's MSR accesses and reads by RDPMC where quanta are not cut",
        "sample",
        ("hpm, quanta of 1 s", "perf"),
        WITH_RDPMC,
        0.1,
    ),
    // Neither enters the kernel: what it does meanwhile is as much as they differ by.
    target("a read takes no more instructions than perf's by RDPMC", "read", ("hpm", "perf"), USER, 1.0),
    target(
        "a read of what PEBS samples takes half of the instructions of perf's system call",
        "read",
        ("hpm, sampled", "perf, large PEBS"),
        ALL,
        0.5,
    ),
];

/// Facts of the guest, and who switches in them.
const SWITCHES: [(&str, &str); 2] =
    [("switch threads", "threads of one process"), ("switch processes", "processes")];

/// Runs the comparison in the lab, prints the tables, puts them into the documentation, and holds them against the targets.
pub(crate) fn run(root: &Path, tally: &mut Tally) {
    let mut compared = None;
    tally.run("bench: the lab compares hpm and perf", || {
        let boot = boot(root)?;
        let text = tables(&boot)?;
        print!("{text}");
        document::replace(root, HEADING, &text)?;
        compared = Some(boot);
        Ok(String::new())
    });
    for target in TARGETS.iter().filter(|_| compared.is_some()) {
        tally.run(&format!("bench: {}, at most", target.what), || {
            target.holds(compared.as_ref().context("no comparison")?)
        });
    }
}

fn boot(root: &Path) -> Result<Boot> {
    let machine = Machine { cpus: 1, ..Machine::plain() };
    let options = ["--deterministic", "--plugin-arg", "truth-level=basic"];
    lab::boot_prepared(root, "bench", &machine, &options, |folder| {
        C_PROGRAMS.iter().try_for_each(|name| lab::compile(root, folder, name))
    })
}

impl Target {
    fn holds(&self, boot: &Boot) -> Result<String> {
        let compared = comparison(boot, self.fact)?;
        let rows = if compared.costs.contains_key("plain") { compared.added()? } else { compared.rows() };
        let cost = |name: &str| {
            let row =
                rows.iter().find(|row| row.name == name).with_context(|| format!("no row of {name}"))?;
            Ok::<_, anyhow::Error>((row.cost[self.kind], row.spread))
        };
        let ((ours, spread), (theirs, other)) = (cost(self.ours)?, cost(self.theirs)?);
        let told = format!(
            "{ours:.4} against {theirs:.4} (spreads of kernel instructions {spread:.2} and {other:.2})"
        );
        ensure!(ours <= self.most * theirs, "{told}");
        Ok(told)
    }
}

fn tables(boot: &Boot) -> Result<String> {
    let mut text = format!(
        "{HEADING}\n\nCommand: `target/release/suite bench` (the first half of `make bench`): one boot with one CPU whose clock is the number of \
         executed instructions (`lab run --deterministic`). All figures are the PMU model's counts of the whole machine per \
         unit of work: the difference between much and little of the same work, so that starting and ending costs nothing, \
         as the median of three rounds in which the tools take turns. *Added* is the run with the tool minus the run without. \
         *MSR accesses* are RDMSR and WRMSR of the PMU's registers, and *and RDPMC* those with the reads of counters by RDPMC, which is not \
         an access to a model-specific register, but takes its time. The largest distance of a round's kernel instructions from the median is told as *spread*: what an idle guest's timers do \
         while it waits for this machine's files, which on a busy machine is much.\n"
    );
    for (fact, subjects) in SWITCHES {
        let title = format!("Added per context switch between two {subjects}, four counters");
        let compared = comparison(boot, fact)?;
        section(
            &mut text,
            &title,
            "`hpmctl stat` and the same four events opened as `perf stat` opens them (tests/guest/perf_measure.c).",
            &compared.added()?,
        );
    }
    let note = format!(
        "A sample of the loads of `strides` at the fixed period {PERIOD}, until the record is in the consumer's hands: \
         tests/guest/src/bin/consume.rs and perf_measure.c look at every sample in the mapped memory. perf uses its large PEBS \
         (fixed period, 512 KiB of buffer, its throttling off), with samples of the instruction pointer alone, the least that it can write, and \
         with thread, time and data address, which hpm's records always have. hpm cuts quanta after 10 ms, its default, which perf has nothing \
         like, and after 1 s."
    );
    section(&mut text, "Added per precise sample", &note, &comparison(boot, "sample")?.added()?);
    let note = "All instructions of the loop around it included. A count's own page by the sequence of linux/perf_event.h; an event \
                that is being sampled by PEBS, which under perf's large PEBS read(2) must read; a sleeping thread's count by \
                IOCTL_READ and by read(2).";
    section(&mut text, "Per counter read", note, &comparison(boot, "read")?.rows());
    Ok(text)
}

fn comparison(boot: &Boot, fact: &str) -> Result<Comparison> {
    let value = boot.report.facts.get(fact).with_context(|| format!("the guest left no {fact}"))?;
    serde_json::from_value(value.clone()).with_context(|| format!("the guest's {fact}"))
}

/// A tool's name, its cost, and the spread of its kernel instructions.
#[derive(Default)]
struct Row {
    name: String,
    cost: Cost,
    spread: f64,
}

impl Comparison {
    /// Each tool's cost per unit.
    fn rows(&self) -> Vec<Row> {
        self.costs.iter().map(|(name, rounds)| self.row(name, rounds, &Row::default())).collect()
    }

    /// Each tool's cost per unit beyond the work's own, which the row `plain` has.
    fn added(&self) -> Result<Vec<Row>> {
        let plain = self.costs.get("plain").context("no run without a tool")?;
        let plain = Self::medians("plain", plain);
        let tools = self.costs.iter().filter(|(name, _)| *name != "plain");
        Ok(tools.map(|(name, rounds)| self.row(name, rounds, &plain)).collect())
    }

    fn row(&self, name: &str, rounds: &[Sums], without: &Row) -> Row {
        let records = median(rounds.iter().map(|sums| sums.records as f64).collect());
        let units = self.units.unwrap_or(records);
        let mut row = Self::medians(name, rounds);
        row.cost.iter_mut().zip(without.cost).for_each(|(cost, without)| *cost = (*cost - without) / units);
        row.spread = (row.spread + without.spread) / units;
        row
    }

    fn medians(name: &str, rounds: &[Sums]) -> Row {
        let costs: Vec<Cost> = rounds
            .iter()
            .map(|sums| {
                let msrs = sums.accesses - sums.rdpmc;
                [sums.user, sums.kernel, sums.instructions(), msrs, sums.accesses, sums.pmis]
                    .map(|n| n as f64)
            })
            .collect();
        let cost: Cost = std::array::from_fn(|i| median(costs.iter().map(|cost| cost[i]).collect()));
        let away = costs.iter().map(|other| (other[1] - cost[1]).abs());
        Row { name: name.to_owned(), cost, spread: away.fold(0.0, f64::max) }
    }
}

fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().unwrap_or_default()
}

/// A table of costs, and each row of hpm's with its ratio to the rows of perf's that it is compared with.
fn section(text: &mut String, title: &str, note: &str, rows: &[Row]) {
    let _ = write!(text, "\n### {title}\n\n{note}\n\n");
    text.push_str(
        "| | user instructions | kernel instructions | all instructions | MSR accesses | and RDPMC | PMIs | spread |\n|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let [user, kernel, all, msrs, with_rdpmc, pmis] = row.cost;
        let _ = writeln!(
            text,
            "| {} | {user:.3} | {kernel:.3} | {all:.3} | {msrs:.5} | {with_rdpmc:.5} | {pmis:.5} | {:.3} |",
            row.name, row.spread
        );
    }
    let of = |name: &str| rows.iter().find(|row| row.name == name);
    for (one, other) in PAIRS {
        let (Some(ours), Some(theirs)) = (of(one), of(other)) else { continue };
        let ratios: Vec<String> =
            ours.cost.iter().zip(theirs.cost).map(|(one, other)| ratio(*one, other)).collect();
        let _ = writeln!(text, "| **{one} / {other}** | {} | |", ratios.join(" | "));
    }
}

/// What is compared with what.
const PAIRS: [(&str, &str); 5] = [
    ("hpm", "perf"),
    ("hpm, quanta of 1 s", "perf"),
    ("hpm", "perf with addresses"),
    ("hpm, sampled", "perf, large PEBS"),
    ("hpm, another thread", "perf, another thread"),
];

/// A quotient of two costs; none where there is hardly anything to divide, or to divide by: what is less than nothing is a spread.
fn ratio(one: f64, other: f64) -> String {
    match () {
        () if other < 0.001 => "–".to_owned(),
        () if one < 0.0 => "**≤ 0**".to_owned(),
        () => format!("**{:.3}**", one / other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_the_median_per_unit_and_what_the_work_alone_costs_is_taken_off() {
        let sums = |kernel| Sums { kernel, ..Sums::default() };
        let costs = [("plain", [10, 12, 14]), ("hpm", [40, 90, 30])]
            .map(|(name, rounds)| (name.to_owned(), rounds.map(sums).to_vec()));
        let rows = Comparison { units: Some(2.0), costs: costs.into() }.added().unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].cost[1], rows[0].spread), (20.0 - 6.0, 25.0 + 1.0));
    }

    #[test]
    fn a_quotient_needs_something_to_divide() {
        let cells = [(1.0, 4.0), (-2.0, 4.0), (1.0, -0.01), (0.0, 0.0)].map(|(one, other)| ratio(one, other));
        assert_eq!(cells, ["**0.250**", "**≤ 0**", "–", "–"]);
    }

    #[test]
    fn where_records_are_the_units_each_tool_has_its_own() {
        let sums = |kernel, records| Sums { kernel, records, ..Sums::default() };
        let costs = [("plain", sums(100, 0)), ("hpm", sums(120, 10)), ("perf", sums(150, 5))]
            .map(|(name, sums)| (name.to_owned(), vec![sums]));
        let rows = Comparison { units: None, costs: costs.into() }.added().unwrap();
        assert_eq!((rows[0].cost[1], rows[1].cost[1]), (2.0, 10.0));
    }
}
