//! `suite bench`: hpm against the kernel's perf on the same work in the same guest, as ratios.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::guest::bench::{PERF_READ, SNAPSHOT};
use crate::lab::{self, Boot};
use crate::machine::Machine;

const DOCUMENT: &str = "docs/measurements.md";
const HEADING: &str = "## hpm against the kernel's perf";

/// User instructions, kernel instructions, accesses to PMU registers and PMIs, per unit of work.
type Cost = [f64; 4];

/// Runs the comparison in the lab, prints the table and puts it into the documentation.
///
/// # Errors
/// The lab or a step failed; the message names it.
pub(crate) fn run(root: &Path) -> Result<ExitCode> {
    let machine = Machine { cpus: 1, ..Machine::plain() };
    let folder = root.join("target/suite").join(format!("bench.{}", machine.label()));
    let truth = format!("truth={}", folder.join(SNAPSHOT).display());
    let options = ["--plugin-arg", "truth-level=basic", "--plugin-arg", &truth];
    let boot = lab::boot_prepared(root, "bench", &machine, &options, |folder| {
        let compiled = Command::new("cc")
            .args(["-O2", "-o"])
            .arg(folder.join(PERF_READ))
            .arg(root.join("tests/guest/perf_read.c"))
            .status()
            .context("cc cannot be started: install a C compiler")?;
        ensure!(compiled.success(), "cc ended with {compiled}");
        Ok(())
    })?;
    let text = tables(&boot)?;
    print!("{text}");
    write(&root.join(DOCUMENT), &text)?;
    Ok(ExitCode::SUCCESS)
}

fn tables(boot: &Boot) -> Result<String> {
    let mut text = format!(
        "{HEADING}\n\nCommand: `make bench` (`target/release/suite bench`), one run in one guest with one CPU. All figures are the PMU model's counts of the whole machine per unit of work, as the difference \
         between much and little of the same work, so that starting and ending costs nothing. *Added* is the run with the \
         tool minus the run without.\n"
    );
    for (fact, title, note) in [
        ("switch threads", "Per context switch between two threads of one process, four counters", ""),
        ("switch processes", "Per context switch between two processes, four counters", ""),
        (
            "sample",
            "Per precise sample, period 1009, until the record is in the consumer's hands",
            "perf with its large PEBS writes to /dev/null; hpm's consumer looks at every record.",
        ),
    ] {
        let [plain, hpm, perf] = ["plain", "hpm", "perf"].map(|tool| cost(boot, fact, tool));
        let plain = plain?;
        section(&mut text, title, note, &[("hpm", added(hpm?, plain)), ("perf", added(perf?, plain))]);
    }
    let rows = ["hpm", "perf", "hpm by the driver", "perf by read(2)"]
        .map(|tool| cost(boot, "read", tool).map(|cost| (tool, cost)));
    let rows = rows.into_iter().collect::<Result<Vec<_>>>()?;
    let note = "All instructions of the loop around it included. perf by the sequence of linux/perf_event.h.";
    section(&mut text, "Per counter read from user space", note, &rows);
    Ok(text)
}

fn cost(boot: &Boot, fact: &str, tool: &str) -> Result<Cost> {
    let value = boot.report.facts.get(fact).with_context(|| format!("the guest left no {fact}"))?;
    serde_json::from_value(value[tool].clone()).with_context(|| format!("{fact} of {tool}"))
}

fn added(with: Cost, without: Cost) -> Cost {
    std::array::from_fn(|place| with[place] - without[place])
}

/// A table of costs, each row with its ratio to the row `perf`.
fn section(text: &mut String, title: &str, note: &str, rows: &[(&str, Cost)]) {
    let _ = write!(text, "\n### {title}\n\n");
    if !note.is_empty() {
        let _ = write!(text, "{note}\n\n");
    }
    text.push_str("| | user instructions | kernel instructions | all instructions | MSR accesses | PMIs |\n|---|---|---|---|---|---|\n");
    let all = |cost: &Cost| [cost[0], cost[1], cost[0] + cost[1], cost[2], cost[3]];
    for (name, cost) in rows {
        let cells = all(cost).map(|number| format!("{number:.3}"));
        let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
    }
    let of = |name: &str| rows.iter().find(|row| row.0 == name).map(|row| all(&row.1));
    for (one, other) in
        [("hpm", "perf"), ("hpm", "perf by read(2)"), ("hpm by the driver", "perf by read(2)")]
    {
        let (Some(one_cost), Some(other_cost)) = (of(one), of(other)) else { continue };
        let ratios: Vec<String> =
            one_cost.iter().zip(other_cost).map(|(one, other)| ratio(*one, other)).collect();
        let _ = writeln!(text, "| **{one} / {other}** | {} |", ratios.join(" | "));
    }
}

/// A quotient of two costs; none where there is hardly anything to divide by.
fn ratio(one: f64, other: f64) -> String {
    if other.abs() < 0.001 { "–".to_owned() } else { format!("**{:.3}**", one / other) }
}

/// Puts the section in the place of its predecessor, or at the end.
fn write(document: &Path, section: &str) -> Result<()> {
    let old = fs::read_to_string(document).unwrap_or_else(|_| "# Measurements\n\n".to_owned());
    let start = old.find(HEADING).unwrap_or(old.len());
    let rest = &old[start..];
    let end = rest.get(1..).and_then(|rest| rest.find("\n## ")).map_or(old.len(), |next| start + 1 + next);
    let new = format!("{}{section}{}", &old[..start], &old[end..]);
    fs::write(document, new).with_context(|| format!("writing {}", document.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_replaces_its_predecessor_only() {
        let file = std::env::temp_dir().join(format!("measurements-{}.md", std::process::id()));
        fs::write(&file, format!("# M\n\n## A\n\na\n\n{HEADING}\n\nold\n\n## Z\n\nz\n")).unwrap();
        write(&file, &format!("{HEADING}\n\nnew\n")).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        fs::remove_file(&file).unwrap();
        assert_eq!(text, format!("# M\n\n## A\n\na\n\n{HEADING}\n\nnew\n\n## Z\n\nz\n"));
    }
}
