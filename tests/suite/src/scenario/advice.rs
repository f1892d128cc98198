//! Advice for programs that nobody here wrote, followed in their source: it was among the first that was given, and the truth's misses
//! are fewer.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::document;
use crate::check::Tally;
use crate::consumers::tools::output;
use crate::guest::advice::{BUILDS, Found, PROGRAMS};
use crate::guest::truth::Sums;
use crate::lab::{Boot, TRUTH_OF_ALL};
use crate::sources::{Source, unpacked};

pub(super) const NAME: &str = "advice";
/// Misses of every run are counted by the model, also of those that nobody samples.
pub(super) const OPTIONS: &[&str] = &["--plugin-arg", TRUTH_OF_ALL];

const HEADING: &str = "## Advice for two programs, followed";
/// The advice that was followed is among so many.
const RANK_MAX: usize = 3;

/// A program, and the advice that its patch follows.
struct Subject {
    source: Source,
    /// The field whose object is allocated with the one that has the field.
    field: &'static str,
    /// tests/suite/advice.
    patch: &'static str,
    /// Files that configuring would make.
    made: &'static [(&'static str, &'static str)],
    /// Files that it reads, of its package.
    reads: &'static [&'static str],
}

/// In the order of [`PROGRAMS`].
const SUBJECTS: [Subject; 2] = [
    Subject {
        source: Source {
            name: "units",
            package: "units",
            folders: &["."],
            without: &[],
            with: &[],
            includes: &[],
            flags: &["-DUNITSFILE=\"definitions.units\"", "-DLOCALEMAP=\"locale_map.txt\"", "-DSUPPORT_UTF8"],
        },
        field: "unitlist::name",
        patch: include_str!("../../advice/units.patch"),
        made: &[],
        reads: &["definitions.units", "currency.units", "locale_map.txt"],
    },
    Subject {
        source: Source {
            name: "bc",
            package: "bc",
            folders: &["bc", "lib"],
            without: &["testmul.c", "vfprintf.c"],
            with: &[],
            includes: &["h", "bc"],
            flags: &[],
        },
        field: "bc_struct::n_value",
        patch: include_str!("../../advice/bc.patch"),
        // Without the library of functions, which bc itself would compile.
        made: &[("config.h", include_str!("../../advice/bc-config.h")), ("bc/libmath.h", "{0}\n")],
        reads: &[],
    },
];
/// What bc runs.
const SORT: &str = include_str!("../../advice/sort.bc");

/// Compiles each program as it is and as advised into the guest's folder.
///
/// # Errors
/// apt has no sources, a patch does not fit, or a command fails.
pub(super) fn prepare(root: &Path, folder: &Path) -> Result<()> {
    fs::write(folder.join("sort.bc"), SORT)?;
    SUBJECTS
        .iter()
        .try_for_each(|subject| BUILDS.iter().try_for_each(|build| subject.build(root, folder, build)))
}

/// As [`prepare`], of bc as it is alone.
pub(super) fn prepare_bc(root: &Path, folder: &Path) -> Result<()> {
    fs::write(folder.join("sort.bc"), SORT)?;
    let [_, bc] = &SUBJECTS;
    bc.build(root, folder, BUILDS[0])
}

impl Subject {
    fn build(&self, root: &Path, folder: &Path, build: &str) -> Result<()> {
        let name = self.source.name;
        let authors = unpacked(root, self.source.package)?;
        for file in self.reads {
            fs::copy(authors.join(file), folder.join(file)).with_context(|| format!("copying {file}"))?;
        }
        let copy = folder.join(format!("{name}.{build}.source"));
        output(Command::new("cp").arg("--recursive").arg(&authors).arg(&copy))?;
        for (file, text) in self.made {
            fs::write(copy.join(file), text)?;
        }
        if build == BUILDS[1] {
            let patch = copy.join("advice.patch");
            fs::write(&patch, self.patch)?;
            let mut command = Command::new("patch");
            output(command.args(["-p1", "-i"]).arg(&patch).current_dir(&copy).stdin(Stdio::null()))?;
        }
        self.source.compile(&copy, &folder.join(format!("{name}.{build}")), &[])
    }
}

/// Checks each program and writes the table.
pub(super) fn compare(boot: &Boot, tally: &mut Tally) {
    let mut rows = String::new();
    for (subject, program) in SUBJECTS.iter().zip(&PROGRAMS) {
        let name = subject.source.name;
        let mut found = None;
        tally.run(&format!("advice: {name} went through all steps"), || {
            ensure!(program.name == name, "the programs are in another order");
            let value =
                boot.report.facts.get(name).with_context(|| format!("the guest left nothing of {name}"))?;
            found = Some(serde_json::from_value::<Found>(value.clone())?);
            Ok(String::new())
        });
        let Some(found) = found else { continue };
        tally.run(&format!("advice: {} is among the first of {name}", subject.field), || {
            let (rank, saves) = given(&found, subject.field)?;
            ensure!(rank <= RANK_MAX, "it is number {rank}");
            Ok(format!("number {rank}, to save {saves}"))
        });
        tally.run(&format!("advice: {name} computes the same when it is followed"), || {
            ensure!(found.same_output, "the programs printed something else");
            Ok(String::new())
        });
        tally.run(&format!("advice: {name} misses less when it is followed"), || {
            let [plain, advised] = &found.runs;
            let misses = |runs: &[Sums]| runs.iter().map(|sums| sums.misses).collect::<Vec<i64>>();
            let (plain, advised) = (misses(plain), misses(advised));
            ensure!(plain.iter().all(|&misses| misses > 0), "the model counted no misses: {plain:?}");
            ensure!(advised.iter().max() < plain.iter().min(), "{plain:?} before, {advised:?} after");
            Ok(format!("{plain:?} before, {advised:?} after"))
        });
        tally.run(&format!("advice: {name} has its row"), || {
            rows += &row(subject, &found)?;
            Ok(String::new())
        });
    }
    tally.run("advice: the table is written", || {
        let root = boot.folder.ancestors().nth(3).context("no folder above target")?;
        document::replace(root, HEADING, &table(&rows)).map(|()| String::new())
    });
}

/// Which number the advice to allocate with a field's object has, and what it is said to save of all misses.
fn given(found: &Found, field: &str) -> Result<(usize, String)> {
    let all = found.report["advice"].as_array().context("no advice")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let names: Vec<String> = all
        .iter()
        .map(|one| &one["candidate"]["pair"]["field"])
        .map(|field| format!("{}::{}", text(&field["parent"]), text(&field["name"])))
        .collect();
    let at =
        names.iter().position(|name| name == field).with_context(|| format!("it is not in {names:?}"))?;
    ensure!(all[at]["verdict"] == "co-allocate", "{}", all[at]["against"]);
    let percent = |key: &str| all[at]["benefit"][key].as_f64().unwrap_or(f64::NAN) * 100.0;
    Ok((at + 1, format!("{:.1} % ({:.1} to {:.1} %)", percent("expected"), percent("low"), percent("high"))))
}

fn row(subject: &Subject, found: &Found) -> Result<String> {
    let (rank, saves) = given(found, subject.field)?;
    let [plain, advised] = &found.runs;
    let mean = |runs: &[Sums], of: fn(&Sums) -> i64| {
        runs.iter().map(|sums| of(sums) as f64).sum::<f64>() / runs.len().max(1) as f64
    };
    let misses: fn(&Sums) -> i64 = |sums| sums.misses;
    let instructions: fn(&Sums) -> i64 = |sums| sums.user;
    let (before, after) = (mean(plain, misses), mean(advised, misses));
    let mut text = String::new();
    let _ = writeln!(
        text,
        "| {} | `{}` | {rank} | {} | {saves} | {before:.0} | {after:.0} | {:+.1} | {:+.2} |",
        subject.source.name,
        subject.field,
        found.report["all"]["samples"],
        (after / before - 1.0) * 100.0,
        (mean(advised, instructions) / mean(plain, instructions) - 1.0) * 100.0,
    );
    Ok(text)
}

fn table(rows: &str) -> String {
    format!(
        "{HEADING}\n\nCommand: `target/release/suite scenario {NAME}`. Two programs of Debian source packages, compiled by gcc -O2, recorded \
         with `--allocations --branches -e l1d-load-miss:u`; each patch in tests/suite/advice allocates the object that the field refers to \
         together with the one that has the field, as `hpmctl coalloc` says. Misses are the loads in user mode that missed the first-level \
         data cache by the PMU model's own count, the mean of two runs without hpmctl, before and after; *saves* is what was foretold, with \
         its interval.\n\n\
         | program | field | number of the advice | samples | saves | misses before | misses after | misses % | instructions % |\n\
         |---|---|---|---|---|---|---|---|---|\n{rows}"
    )
}
