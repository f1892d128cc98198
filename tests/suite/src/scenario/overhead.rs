//! What recording adds to eight programs, as tables (Schneider, thesis, figures 3.6 and 3.9 and table 3.1).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::document;
use crate::check::Tally;
use crate::guest::overhead::{AT_TARGET, NOTHING, PROGRAMS, Run, WAYS, WAYS_AT_TARGET};
use crate::guest::truth::Sums;
use crate::lab::Boot;

/// The guest's clock is the number of executed instructions, so that neither the host nor the model's slowness shows. Whether a huge page is
/// to be had depends on what ran before, and each that is not costs some hundred page faults: there are none.
pub(super) const OPTIONS: &[&str] =
    &["--deterministic", "--disk", DISK_MIB, "--append", NO_HUGE_PAGES, "--plugin-arg", "truth-level=basic"];
/// What the longest recording writes fits ten times.
const DISK_MIB: &str = "4096";
const NO_HUGE_PAGES: &str = "transparent_hugepage=never";

/// The same on a guest that executes twice as many instructions in a second, at the target's rate.
pub(super) const BILLION: &str = "overhead.billion";
pub(super) const OPTIONS_BILLION: &[&str] = &[
    "--deterministic",
    "--instruction-ns",
    "1",
    "--disk",
    DISK_MIB,
    "--append",
    NO_HUGE_PAGES,
    "--append",
    AT_TARGET,
    "--plugin-arg",
    "truth-level=basic",
];

const HEADING: &str = "## What recording adds to programs";
const HEADING_BILLION: &str = "## What recording adds where a second is a billion instructions";
/// Of a program's instructions, at 1000 samples a second: with quanta as they are unless asked for, and with none that the timer cuts.
const TARGET_PERCENT: f64 = 0.1;

/// Sums without hpmctl and with it, of a program that does nothing.
#[derive(Deserialize)]
struct Once {
    without: Sums,
    with: Sums,
}

/// One program's runs.
#[derive(Deserialize)]
struct Program {
    /// Before and after all others.
    without: [Sums; 2],
    runs: BTreeMap<String, Run>,
}

impl Once {
    /// What a program costs that is over before there is a sample.
    fn sentence(&self) -> String {
        let thousands = |of: fn(&Sums) -> i64| (of(&self.with) - of(&self.without)) / 1000;
        format!(
            "Once for a program, at its beginning and its end, {} thousand instructions are added in user mode and {} thousand in \
             the kernel: those of `{}`, which are in each program's percentages too.",
            thousands(|sums| sums.user),
            thousands(|sums| sums.kernel),
            NOTHING.1
        )
    }
}

impl Program {
    fn plain(&self) -> f64 {
        (self.without[0].instructions() + self.without[1].instructions()) as f64 / 2.0
    }

    /// Percent of the program's instructions that recording in this way adds.
    fn added(&self, way: &str) -> Result<f64> {
        let run = self.run(way)?;
        Ok((run.sums.instructions() as f64 / self.plain() - 1.0) * 100.0)
    }

    /// Half of what two runs without recording differ by, in percent.
    fn noise(&self) -> f64 {
        let [one, other] = self.without.map(|sums| sums.instructions());
        (one - other).abs() as f64 / 2.0 / self.plain() * 100.0
    }

    fn run(&self, way: &str) -> Result<&Run> {
        self.runs.get(way).with_context(|| format!("no run {way}"))
    }
}

/// One of the programs is installed by cargo; half an hour later would be too late to say that it is not.
///
/// # Errors
/// It is not there.
pub(super) fn prepare(root: &Path) -> Result<()> {
    let jaq = root.join("target/demo/bin/jaq");
    ensure!(jaq.is_file(), "{} is not there: `make target/demo/bin/jaq` installs it", jaq.display());
    Ok(())
}

/// Checks the target and writes the tables.
pub(super) fn compare(boot: &Boot, tally: &mut Tally) {
    check_and_write(boot, tally, HEADING, |programs| tables(programs, &fact(boot, NOTHING.0)?));
}

/// As [`compare`], of [`BILLION`].
pub(super) fn compare_billion(boot: &Boot, tally: &mut Tally) {
    check_and_write(boot, tally, HEADING_BILLION, table_of_billion);
}

fn check_and_write(
    boot: &Boot,
    tally: &mut Tally,
    heading: &str,
    tables: impl Fn(&[(&str, Program)]) -> Result<String>,
) {
    let programs = match programs(boot) {
        Ok(programs) => programs,
        Err(error) => return tally.run("overhead: every program ran", || Err(error)),
    };
    let targets =
        programs.iter().flat_map(|program| WAYS[1..WAYS_AT_TARGET].iter().map(move |way| (program, way.0)));
    for ((name, program), way) in targets {
        tally.run(&format!("overhead: {name} at {way}"), || {
            let added = program.added(way)?;
            ensure!(
                added < TARGET_PERCENT + program.noise(),
                "{added:.3} % of its instructions are added; the target is {TARGET_PERCENT} %"
            );
            Ok(format!("adds {added:.3} %"))
        });
    }
    for (way, ..) in &WAYS[1..WAYS_AT_TARGET] {
        tally.run(&format!("overhead: the mean of all programs at {way}"), || {
            let added = programs.iter().map(|(_, program)| program.added(way)).sum::<Result<f64>>()?;
            let mean = added / programs.len() as f64;
            ensure!(mean < TARGET_PERCENT, "{mean:.3} % are added; the target is {TARGET_PERCENT} %");
            Ok(format!("{mean:.3} %"))
        });
    }
    tally.run("overhead: nothing was lost", || {
        for (name, program) in &programs {
            for (way, run) in &program.runs {
                ensure!(run.lost == 0, "{name} at {way} lost {} of {} samples", run.lost, run.samples);
            }
        }
        Ok(String::new())
    });
    tally.run("overhead: the tables are written", || {
        let root = boot.folder.ancestors().nth(3).context("no folder above target")?;
        document::replace(root, heading, &tables(&programs)?).map(|()| String::new())
    });
}

fn programs(boot: &Boot) -> Result<Vec<(&'static str, Program)>> {
    PROGRAMS.iter().map(|&(name, _)| Ok((name, fact(boot, name)?))).collect()
}

/// What the guest found of a program.
fn fact<T: for<'a> Deserialize<'a>>(boot: &Boot, name: &str) -> Result<T> {
    let value = boot.report.facts.get(name).with_context(|| format!("the guest left nothing of {name}"))?;
    serde_json::from_value(value.clone()).with_context(|| format!("the guest's {name}"))
}

fn table_of_billion(programs: &[(&str, Program)]) -> Result<String> {
    let mut text = format!(
        "{HEADING_BILLION}\n\nCommand: `target/release/suite scenario {BILLION}` (part of `make test-full`). As above, but an instruction \
         takes 1 ns instead of 2, which is nearer to what processors do; a second has as many samples, quanta and looks as there, and \
         they weigh half as much.\n\n"
    );
    let ways: Vec<&str> = WAYS[..WAYS_AT_TARGET].iter().map(|(way, _)| *way).collect();
    by_way(&mut text, programs, &ways)?;
    Ok(text)
}

fn tables(programs: &[(&str, Program)], once: &Once) -> Result<String> {
    let mut text = format!(
        "{HEADING}\n\nCommand: `target/release/suite scenario overhead` (part of `make test-full`). `hpmctl record -e load:u` of eight \
         programs, on a guest whose clock is the number of executed instructions, a second is {} of them, and that has no transparent huge pages, whose number depends on what ran before; traces lie on ext4 on a disk, past whose page cache they are written unless samples come fast (not from 2000 a second on). Percent of all \
         instructions of the machine, user's and kernel's, from the program's start to its end, that are there besides those of \
         a run without hpmctl: hpmctl's own and the driver's, not those of hpmctl's start and of the trace's completion. *Noise* is \
         half the difference of two runs without hpmctl.\n\n{}\n",
        SECOND,
        once.sentence()
    );
    let (rates, periods): (Vec<&str>, Vec<&str>) =
        WAYS.iter().map(|(way, _)| *way).partition(|way| way.contains("/s"));
    text.push_str(
        "\n### By samples per second (figure 3.9)\n\n`-c 100000 -F N`: the period is adapted from 100,000 on; 0 is a period that is never reached. Quanta are cut after 10 ms, in the third column after 1 s (`--quantum 1000`).\n\n",
    );
    by_way(&mut text, programs, &rates)?;
    text.push_str(
        "\n### By period (figure 3.6)\n\n`-c N`, and adaptive (`-c 100000 -F 400`, the thesis' rate).\n\n",
    );
    by_way(&mut text, programs, &periods)?;
    text.push_str("\n### Samples\n\n");
    samples(&mut text, programs)?;
    text.push_str("\n### Memory (table 3.1)\n\n");
    memory(&mut text, programs)?;
    Ok(text)
}

/// Executed instructions in a second of `lab run --deterministic`.
pub(super) const SECOND: &str = "500,000,000";

fn header(text: &mut String, first: &str, columns: &[&str]) {
    let _ = writeln!(text, "| {first} | {} |", columns.join(" | "));
    let _ = writeln!(text, "|{}", "---|".repeat(columns.len() + 1));
}

fn by_way(text: &mut String, programs: &[(&str, Program)], ways: &[&str]) -> Result<()> {
    let mut columns = vec!["million instructions"];
    columns.extend(ways);
    columns.push("noise");
    header(text, "program", &columns);
    let mut sums = vec![0.0; ways.len()];
    for (name, program) in programs {
        let _ = write!(text, "| {name} | {:.0} |", program.plain() / 1e6);
        for (way, sum) in ways.iter().zip(&mut sums) {
            let added = program.added(way)?;
            *sum += added / programs.len() as f64;
            let _ = write!(text, " {added:.3} |");
        }
        let _ = writeln!(text, " {:.3} |", program.noise());
    }
    let means: Vec<String> = sums.iter().map(|mean| format!("**{mean:.3}**")).collect();
    let _ = writeln!(text, "| **mean** | | {} | |", means.join(" | "));
    Ok(())
}

fn samples(text: &mut String, programs: &[(&str, Program)]) -> Result<()> {
    let ways: Vec<&str> = WAYS.iter().map(|(way, _)| *way).collect();
    header(text, "program", &ways);
    for (name, program) in programs {
        let counts: Vec<String> = ways
            .iter()
            .map(|way| program.run(way).map(|run| run.samples.to_string()))
            .collect::<Result<_>>()?;
        let _ = writeln!(text, "| {name} | {} |", counts.join(" | "));
    }
    Ok(())
}

fn memory(text: &mut String, programs: &[(&str, Program)]) -> Result<()> {
    text.push_str(
        "Of the recording at 32000/s: what the driver holds for it on each CPU and user space maps, hpmctl's largest resident set \
         (which contains what it has touched of the driver's), and the trace.\n\n",
    );
    header(text, "program", &["driver, KiB", "hpmctl, KiB", "trace, KiB", "bytes per sample"]);
    for (name, program) in programs {
        let run = program.run("32000/s")?;
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {:.1} |",
            run.memory.driver_bytes / 1024,
            run.memory.resident_kib,
            run.trace_bytes / 1024,
            run.trace_bytes as f64 / run.samples.max(1) as f64
        );
    }
    Ok(())
}
