//! Method-level phases of three of Debian's programs: what was estimated against what measuring them adds in the guest's instructions, and
//! what the counters say of them.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::document;
use crate::check::Tally;
use crate::consumers::tools::output;
use crate::guest::methods::{Found, OVERHEAD, PROFILE, PROFILE_FILE, PROGRAMS, profile_folder};
use crate::guest::truth::Sums;
use crate::lab::{Boot, boot_prepared};
use crate::machine::Machine;
use crate::sources::{Source, unpacked};

pub(super) const NAME: &str = "methods";
/// The guest's clock is the number of executed instructions.
pub(super) const OPTIONS: &[&str] = &["--deterministic", "--plugin-arg", "truth-level=basic"];

const HEADING: &str = "## Methods of three programs";
/// Of the program's instructions, when 1 % is asked for.
const MOST_PERCENT: f64 = 1.0;
/// Means of phases differ by chance once in so many times at most.
const CHANCE: f64 = 0.01;

const SOURCES: [Source; 3] = [
    Source {
        name: "bzip2",
        package: "bzip2",
        folders: &["."],
        without: &["bzip2recover.c", "unzcrash.c", "spewG.c", "mk251.c", "dlltest.c"],
        with: &[],
        includes: &[],
        flags: &["-D_FILE_OFFSET_BITS=64"],
    },
    Source {
        name: "minigzip",
        package: "zlib",
        folders: &["."],
        without: &[],
        with: &["test/minigzip.c"],
        includes: &[],
        flags: &["-DHAVE_UNISTD_H", "-D_LARGEFILE64_SOURCE"],
    },
    Source {
        name: "lua",
        package: "lua5.4",
        folders: &["src"],
        without: &["luac.c"],
        with: &[],
        includes: &[],
        flags: &["-DLUA_USE_POSIX"],
    },
];

/// What lua runs: a round fills a table, sorts it, joins strings and looks for patterns in them.
const ROUNDS: &str = include_str!("../../methods/rounds.lua");
/// Bytes that are compressed: text, and stretches that repeat.
const INPUT_BYTES: usize = 2_000_000;
/// Of these for bzip2, which takes ten times as many instructions for a byte.
const SHORT_BYTES: usize = 200_000;
const SEED: u64 = 20_040_715;

/// Compiles the programs in three ways into the guest's folder. Which functions are phases is found by a boot of its own.
///
/// # Errors
/// apt has no sources, a command fails, or the lab cannot run.
pub(super) fn prepare(root: &Path, machine: &Machine, folder: &Path) -> Result<()> {
    let profiled =
        boot_prepared(root, PROFILE, machine, OPTIONS, |folder| instrumented(root, folder))?.folder;
    let (there, here) = (profiled.display().to_string(), folder.display().to_string());
    for (source, (name, _)) in SOURCES.iter().zip(PROGRAMS) {
        let unpacked = unpacked(root, source.package)?;
        source.compile(&unpacked, &folder.join(format!("{name}.plain")), &[])?;
        let profile = profile_folder(name);
        let step = |words: &[&str]| {
            let mut command = Command::new(root.join("target/release/hpmctl"));
            output(command.arg("methods").args(words).arg(&profile).current_dir(&profiled))
        };
        step(&["select", "--overhead", OVERHEAD])?;
        let option = step(&["exclude"])?;
        let flags = ["-finstrument-functions", option.trim_end()];
        source.compile(&unpacked, &folder.join(format!("{name}.phases")), &flags)?;
        let all = format!("{name}.all");
        fs::copy(profiled.join(&all), folder.join(&all))?;
        fs::create_dir(folder.join(&profile))?;
        // It names the program by its path.
        let text = fs::read_to_string(profiled.join(&profile).join(PROFILE_FILE))?;
        fs::write(folder.join(&profile).join(PROFILE_FILE), text.replace(&there, &here))?;
    }
    inputs(folder)
}

/// What the programs work on.
fn inputs(folder: &Path) -> Result<()> {
    fs::write(folder.join("rounds.lua"), ROUNDS)?;
    let input = input();
    fs::write(folder.join("short"), &input[..SHORT_BYTES])?;
    fs::write(folder.join("input"), input).context("writing what is compressed")
}

/// The programs with every function instrumented, and what they work on.
fn instrumented(root: &Path, folder: &Path) -> Result<()> {
    inputs(folder)?;
    for (source, (name, _)) in SOURCES.iter().zip(PROGRAMS) {
        ensure!(source.name == name, "the programs are in another order");
        let unpacked = unpacked(root, source.package)?;
        source.compile(&unpacked, &folder.join(format!("{name}.all")), &["-finstrument-functions"])?;
    }
    Ok(())
}

fn input() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut text = String::with_capacity(INPUT_BYTES + 100);
    while text.len() < INPUT_BYTES {
        match random.u32(..40) {
            0 => text.push_str(&"all work and no play ".repeat(random.usize(1..30))),
            _ => {
                let bits = random.u32(4..28);
                let _ = write!(text, "{:x} ", random.u32(..1 << bits));
            }
        }
    }
    text.into_bytes()
}

/// Checks each program and writes the tables.
pub(super) fn compare(boot: &Boot, tally: &mut Tally) {
    let mut all = Vec::new();
    for (name, _) in PROGRAMS {
        tally.run(&format!("methods: {name} went through all steps"), || {
            let value =
                boot.report.facts.get(name).with_context(|| format!("the guest left nothing of {name}"))?;
            let found = serde_json::from_value::<Found>(value.clone())?;
            let counting = found.report["measured"]["counting"].as_str().unwrap_or_default().to_owned();
            ensure!(counting.contains("the hpm module"), "its events: {counting}");
            all.push((name, found));
            Ok(counting)
        });
    }
    for (name, found) in &all {
        tally.run(&format!("methods: measuring the phases of {name} adds at most {MOST_PERCENT} %"), || {
            let added = found.added(found.phases);
            ensure!(added <= MOST_PERCENT + found.noise(), "it adds {added:.3} %");
            Ok(format!("{added:.3} %"))
        });
        tally.run(&format!("methods: the phases of {name} differ by more than chance"), || {
            let (metric, p) = found.least_p().context("there is no analysis of variance")?;
            ensure!(p < CHANCE, "{metric}: p = {p}");
            Ok(format!("{metric}: p = {p:.1e}"))
        });
    }
    tally.run("methods: the tables are written", || {
        let root = boot.folder.ancestors().nth(3).context("no folder above target")?;
        document::replace(root, HEADING, &tables(&all)).map(|()| String::new())
    });
}

impl Found {
    fn base(&self) -> f64 {
        (self.plain[0].instructions() + self.plain[1].instructions()) as f64 / 2.0
    }

    /// Percent of the plain program's instructions.
    fn added(&self, sums: Sums) -> f64 {
        (sums.instructions() as f64 / self.base() - 1.0) * 100.0
    }

    fn noise(&self) -> f64 {
        let [one, other] = self.plain.map(|sums| sums.instructions());
        (one - other).abs() as f64 / 2.0 / self.base() * 100.0
    }

    fn variability(&self) -> &[Value] {
        self.report["measured"]["variability"].as_array().map_or(&[], Vec::as_slice)
    }

    fn least_p(&self) -> Option<(&str, f64)> {
        let p = |value: &'_ Value| value["anova"]["p"].as_f64();
        let least = self.variability().iter().filter(|value| p(value).is_some());
        let least = least.min_by(|a, b| p(a).unwrap_or(1.0).total_cmp(&p(b).unwrap_or(1.0)))?;
        Some((least["metric"].as_str()?, p(least)?))
    }
}

fn tables(all: &[(&str, Found)]) -> String {
    let mut text = format!(
        "{HEADING}\n\nCommand: `target/release/suite scenario {NAME}`. Three programs of Debian source packages, compiled by gcc -O2 \
         with -finstrument-functions, on a guest whose clock is the number of executed instructions. Phases are chosen for an overhead \
         of {OVERHEAD}; what is added is in percent of all instructions that the machine executes for the program compiled without \
         instrumentation, user's and kernel's.\n\n\
         | program | phases | estimated, of calls % | estimated, of time % | phases alone instrumented, measured % | all instrumented, \
         not measured % | all instrumented, phases measured % | noise % |\n|---|---|---|---|---|---|---|---|\n"
    );
    for (name, found) in all {
        let selection = &found.selection["selection"];
        let percent = |key: &str| selection[key].as_f64().unwrap_or(f64::NAN) * 100.0;
        let names: Vec<&str> =
            found.selection["names"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let _ = writeln!(
            text,
            "| {name} | {} | {:.3} | {:.3} | {:.3} | {:.2} | {:.2} | {:.3} |",
            names.join(", "),
            percent("estimated_overhead"),
            percent("estimated_time_overhead"),
            found.added(found.phases),
            found.added(found.instrumented),
            found.added(found.filtered),
            found.noise()
        );
    }
    text.push_str(
        "\n### How far phases vary (tables 4 and 5)\n\n| program | metric | CoV within phases % | left out, of their time % | F | p |\n\
         |---|---|---|---|---|---|\n",
    );
    for (name, found) in all {
        for value in found.variability() {
            let number = |value: &Value, digits: usize| {
                value.as_f64().map_or_else(|| "–".to_owned(), |number| format!("{number:.digits$}"))
            };
            let p = value["anova"]["p"].as_f64().map_or_else(|| "–".to_owned(), |p| format!("{p:.1e}"));
            let percent = |value: &Value| {
                value.as_f64().map_or_else(|| "–".to_owned(), |part| format!("{:.2}", part * 100.0))
            };
            let (cov, left_out) = (percent(&value["cov_within"]), percent(&value["left_out"]));
            let metric = value["metric"].as_str().unwrap_or("?");
            let _ = writeln!(
                text,
                "| {name} | {metric} | {cov} | {left_out} | {} | {p} |",
                number(&value["anova"]["f"], 1)
            );
        }
    }
    text.push_str(
        "\n### Bottlenecks (table 6)\n\n| program | phase | time % | CPI | conspicuous |\n|---|---|---|---|---|\n",
    );
    for (name, found) in all {
        bottlenecks(&mut text, name, &found.report["measured"]);
    }
    text
}

fn bottlenecks(text: &mut String, name: &str, measured: &Value) {
    let table = &measured["bottlenecks"];
    let rows = table["rows"].as_array().into_iter().flatten();
    for row in rows.chain([&table["whole"]]) {
        let phase = &measured["names"][row["function"].to_string()];
        let phase = phase.as_str().unwrap_or("(whole program)");
        let cause = row["cause"].as_array().map_or_else(
            || "–".to_owned(),
            |cause| {
                let event = cause[0].as_u64().and_then(|index| table["events"][index as usize].as_str());
                format!(
                    "{}, {:.1} times the program's",
                    event.unwrap_or("?"),
                    cause[1].as_f64().unwrap_or(f64::NAN)
                )
            },
        );
        let share = row["share"].as_f64().unwrap_or(f64::NAN) * 100.0;
        let cpi = row["cpi"].as_f64().map_or_else(|| "–".to_owned(), |cpi| format!("{cpi:.2}"));
        let _ = writeln!(text, "| {name} | {phase} | {share:.1} | {cpi} | {cause} |");
    }
}
