//! Data addresses, references and advice against the truth's addresses and the programs' own logs of their objects.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use libhpm::report::{Locator, Resolver};
use libhpm::symbol::FileFinder;
use libhpm::trace::{AllocationRow, MapRow, SampleRow, TraceReader};
use serde_json::Value;
use vpmu::truth::Report;

use super::records::{open, pairs};
use crate::check::Tally;
use crate::guest::locality::{MODES, Mode, RUST_PROGRAM, SHARING, STATIC, STATIC_PROGRAM};
use crate::lab::{self, Boot};

/// Options of `lab run`.
pub(super) const OPTIONS: &[&str] = &["--plugin-arg", "pebs-log=on"];

/// Least share of samples whose address must be known.
const KNOWN_MIN: f64 = 0.9;
/// How far a field's weight may be from the truth's share of misses.
const WEIGHT_OFF_MAX: f64 = 0.05;

/// Fields, with `|` between several, and the kind of objects that they refer to in the program's log. `*` stands for what a library
/// calls its own, or for itself.
type Fields = &'static [(&'static str, &'static str)];

/// Of db's chain in C.
const CHAIN: Fields = &[
    ("entry*[]::[]", "entry"),
    ("entry::items", "vector"),
    ("vector::elements", "elements"),
    ("string*[]::[]", "string"),
    ("string::value", "characters"),
];

/// Of each mode.
const FIELDS: [(&str, Fields); 6] = [
    ("db", CHAIN),
    (STATIC, CHAIN),
    (
        "C++",
        &[
            ("entry::items*", "vector"),
            ("vector<std::__cxx11::basic_string*::_M_impl._M_start", "elements"),
            ("basic_string<*::_M_dataplus._M_p", "characters"),
        ],
    ),
    ("Rust", &[("Vec<alloc::string::String*pointer", "elements"), ("String::vec.buf*pointer", "characters")]),
    ("table", &[("node::next|node*[]::[]", "node")]),
    ("tree", &[("page::children[]", "page")]),
];

/// The programs of all modes, in the lab's working folder.
///
/// # Errors
/// There is no compiler, or it fails; or cargo has not built the program in Rust.
pub(super) fn prepare(root: &Path, folder: &Path) -> Result<()> {
    lab::compile(root, folder, "locality")?;
    lab::compile_as(root, folder, "locality", STATIC_PROGRAM, &["-static"])?;
    lab::compile(root, folder, "locality_db")?;
    let built = root.join("target/release/locality_db");
    std::fs::copy(&built, folder.join(RUST_PROGRAM))
        .with_context(|| format!("copying {}", built.display()))?;
    Ok(())
}

/// Compares every mode.
pub(super) fn compare(boot: &Boot, tally: &mut Tally) {
    let truth = serde_json::from_value::<Report>(boot.truth.clone()).unwrap_or_default();
    tally.run("locality: computed addresses are the true ones", || addresses(boot, &truth));
    for (mode, fields) in FIELDS {
        tally.run(&format!("locality: weights of {mode} agree with its own log"), || {
            weights(boot, &truth, mode, fields)
        });
    }
    tally.run("locality: probes saw every object of the static program", || probed(boot));
    tally.run("locality: db's chain is advised, its array is not", || advice(boot));
    tally.run("locality: two threads' counters in one line are found", || sharing(boot));
}

/// Every address that is given is the truth's, also those that are computed as if hardware had said nothing; with what it says, most are.
fn addresses(boot: &Boot, truth: &Report) -> Result<String> {
    let paired = pairs(boot, &MODES.map(|mode| mode.trace), truth)?;
    let mut summary = Vec::new();
    for Mode { trace: name, program, .. } in MODES.iter().filter(|mode| mode.name != SHARING) {
        let reader = open(boot, name)?;
        let finder = FileFinder { symfs: Some(files(boot, &reader, program)?), ..FileFinder::default() };
        let resolver = Resolver::new(&reader, finder.clone());
        let mut locator = Locator::new(&reader.meta().events, finder);
        reader.rows::<SampleRow>().for_each(|row| locator.note(&row));
        let (mut known, mut computed, mut all) = (0, 0, 0);
        for pair in paired.iter().filter(|pair| pair.trace == *name) {
            let without = SampleRow { data_address: None, ..pair.sample.clone() };
            let [given, own] =
                [&pair.sample, &without].map(|row| locator.locate(&resolver, row, |_| None).access.address);
            all += 1;
            known += i32::from(given.is_ok());
            computed += i32::from(own.is_ok());
            for address in [given, own].into_iter().flatten() {
                ensure!(
                    Some(address) == pair.truth.load,
                    "{name}: {address:#x} at {:#x}, in truth {:x?}",
                    pair.sample.ip,
                    pair.truth.load
                );
            }
        }
        ensure!(f64::from(known) >= KNOWN_MIN * f64::from(all), "{name}: {known} of {all} samples have one");
        summary.push(format!("{name} {known} of {all}, {computed} computed"));
    }
    Ok(summary.join(", "))
}

/// A folder with the program where it was in the lab. What else was executed there is not here, and is left unknown.
fn files(boot: &Boot, reader: &TraceReader, program: &str) -> Result<PathBuf> {
    let name = format!("/{program}");
    let recorded = reader.rows::<MapRow>().map(|row| row.path).find(|path| path.ends_with(&name));
    let recorded = recorded.context("the program was mapped nowhere")?;
    let root = boot.folder.join("files");
    let place = root.join(recorded.trim_start_matches('/'));
    std::fs::create_dir_all(place.parent().unwrap_or(&root))?;
    std::fs::copy(boot.folder.join(program), &place).context("copying the program")?;
    Ok(root)
}

/// Objects by the program's own log: kind, first byte, bytes.
fn logged(boot: &Boot, mode: &Mode) -> Result<Vec<(String, u64, u64)>> {
    let text = std::fs::read_to_string(boot.folder.join(mode.log()))
        .with_context(|| format!("{} left no log", mode.name))?;
    let object = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let address = u64::from_str_radix(words.get(1)?.strip_prefix("0x")?, 16).ok()?;
        Some((words[0].to_owned(), address, words.get(2)?.parse().ok()?))
    };
    let mut objects: Vec<_> = text.lines().filter_map(object).collect();
    objects.sort_by_key(|(_, address, _)| *address);
    Ok(objects)
}

/// Each object of the program's own log lies in an allocation, but for as many as may be missing, which are few.
fn probed(boot: &Boot) -> Result<String> {
    let mode = the(STATIC)?;
    let reader = open(boot, mode.trace)?;
    let lost = reader.meta().allocations.as_ref().context("no allocations were recorded")?.lost;
    let mut recorded: Vec<(u64, u64)> = reader
        .rows::<AllocationRow>()
        .filter(|row| row.freed_tsc.is_none())
        .map(|row| (row.address, row.bytes))
        .collect();
    recorded.sort_unstable();
    let objects = logged(boot, mode)?;
    ensure!(objects.len() > 10_000, "the program logged {} objects", objects.len());
    let is_there = |address: u64, bytes: u64| {
        let after = recorded.partition_point(|(start, _)| *start <= address);
        let found = after.checked_sub(1).map(|place| recorded[place]);
        found.is_some_and(|(start, length)| address + bytes <= start + length)
    };
    let missing = objects.iter().filter(|(_, address, bytes)| !is_there(*address, *bytes)).count();
    ensure!(missing == 0 && lost == 0, "{missing} objects were not recorded, and {lost} said to be lost");
    Ok(format!("{} objects in {} allocations", objects.len(), recorded.len()))
}

/// Each field's share of the samples is that of true misses on what it refers to.
fn weights(boot: &Boot, truth: &Report, name: &str, fields: Fields) -> Result<String> {
    let mode = the(name)?;
    let objects = logged(boot, mode)?;
    let mut misses: BTreeMap<&str, f64> = BTreeMap::new();
    let mut all = 0.0;
    for pair in
        pairs(boot, &MODES.map(|mode| mode.trace), truth)?.iter().filter(|pair| pair.trace == mode.trace)
    {
        all += 1.0;
        let Some(address) = pair.truth.load else { continue };
        let after = objects.partition_point(|(_, start, _)| *start <= address);
        if let Some((kind, start, bytes)) = after.checked_sub(1).map(|place| &objects[place])
            && address - start < *bytes
        {
            *misses.entry(kind).or_default() += 1.0;
        }
    }
    ensure!(all > 0.0, "{name} has no samples");
    let found = reference(boot, name)?;
    let samples = found["all"]["samples"].as_f64().context("no sum")?;
    let rows = found["fields"].as_array().context("no fields")?;
    let mut summary = Vec::new();
    for (field, kind) in fields {
        let named = |row: &&Value| {
            let name = format!("{}::{}", text(&row["parent"]), text(&row["name"]));
            field.split('|').any(|one| is_like(&name, one))
        };
        let weight =
            rows.iter().filter(named).filter_map(|row| row["samples"].as_f64()).sum::<f64>() / samples;
        let share = misses.get(kind).copied().unwrap_or(0.0) / all;
        ensure!((weight - share).abs() <= WEIGHT_OFF_MAX, "{field} has {weight:.3}, {kind} truly {share:.3}");
        summary.push(format!("{field} {:.1} % (truly {:.1} %)", weight * 100.0, share * 100.0));
    }
    Ok(summary.join(", "))
}

fn the(name: &str) -> Result<&'static Mode> {
    const { &MODES }.iter().find(|mode| mode.name == name).with_context(|| format!("there is no mode {name}"))
}

fn is_like(field: &str, wanted: &str) -> bool {
    match wanted.split_once('*') {
        Some((first, last)) => field.starts_with(first) && field.ends_with(last),
        None => field == wanted,
    }
}

fn reference<'a>(boot: &'a Boot, mode: &str) -> Result<&'a Value> {
    boot.report
        .facts
        .get(&format!("{mode} references"))
        .with_context(|| format!("the guest said nothing of {mode}"))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn advice(boot: &Boot) -> Result<String> {
    let advice = reference(boot, "db")?["advice"].as_array().context("no advice")?;
    let field = |one: &Value| {
        let field = &one["candidate"]["pair"]["field"];
        format!("{}::{}", text(&field["parent"]), text(&field["name"]))
    };
    let together: Vec<String> =
        advice.iter().filter(|one| one["verdict"] == "co-allocate").map(field).collect();
    for wanted in ["entry::items", "vector::elements", "string::value"] {
        ensure!(together.iter().any(|one| one == wanted), "{wanted} is not among {together:?}");
    }
    ensure!(!together.iter().any(|one| one.contains("[]")), "an array's elements are: {together:?}");
    Ok(together.join(", "))
}

/// The line of both counters is a candidate for false sharing.
fn sharing(boot: &Boot) -> Result<String> {
    let text =
        std::fs::read_to_string(boot.folder.join(the(SHARING)?.log())).context("sharing left no log")?;
    let Some(line) = text.lines().find_map(|line| {
        let address = line.strip_prefix("thread 0 0x")?;
        u64::from_str_radix(address, 16).ok().map(|address| address / 64 * 64)
    }) else {
        bail!("no thread in {text:?}")
    };
    let lines = boot.report.facts.get("sharing lines").context("the guest left no lines")?;
    let entries = lines["entries"].as_array().context("no lines")?;
    let found = entries.iter().find(|entry| entry["address"] == line).context("the line is not there")?;
    ensure!(found["sharing"] == "false", "it is {}", found["sharing"]);
    Ok(format!("{line:#x}"))
}
