//! Exports opened by the programs that they are for, and the explorer's page used in a browser.
//!
//! A real program is recorded on the host by perf_event's software events. pprof, speedscope in a headless browser, pyarrow and
//! DuckDB then have to find in the exported files what hpm wrote. What is missing of them is fetched into `target/consumers`.

mod firefox;
pub(crate) mod libpfm4;
pub(crate) mod tools;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use self::tools::{Tools, output};
use crate::check::Tally;

/// Tables of a trace, as `hpmctl export --table` names them.
const TABLES: [&str; 7] = ["quanta", "samples", "stacks", "maps", "threads", "kernel-symbols", "markers"];
/// Formats that speedscope opens, with the names by which it knows them.
const OPENED: [(&str, &str); 4] =
    [("pprof", "pb.gz"), ("folded", "txt"), ("chrome", "trace.json"), ("speedscope", "speedscope.json")];
/// A program that computes for some seconds.
const PROGRAM: &str = "[range(2000000)] | map(tostring) | sort | length";

/// Runs all of it.
pub(crate) fn run(root: &Path, tally: &mut Tally) {
    let mut tools = None;
    tally.run("consumers: they are there", || {
        tools = Some(Tools::fetch(root)?);
        Ok(String::new())
    });
    let Some(tools) = tools else { return };
    let mut run = None;
    tally.run("consumers: a program is recorded and exported", || {
        run = Some(Run::record(root, tools)?);
        Ok(String::new())
    });
    let Some(run) = run else { return };
    let mut events = BTreeMap::new();
    tally.run("consumers: pyarrow and DuckDB read every table", || {
        events = run.tables()?;
        Ok(format!("{events:?}"))
    });
    tally.run("consumers: pprof finds the same samples and events", || run.pprof(&events));
    tally.run("consumers: the Firefox Profiler's own code finds the same functions and events", || {
        firefox::check(&run.tools.modules, &run.folder, &events)
    });
    tally.run("consumers: speedscope opens pprof, folded, Chrome and its own format", || run.speedscope());
    tally.run("consumers: the explorer's page zooms, selects and links graph and table", || run.page());
}

/// A recorded and exported trace.
struct Run {
    root: PathBuf,
    folder: PathBuf,
    tools: Tools,
}

impl Run {
    fn record(root: &Path, tools: Tools) -> Result<Self> {
        let folder = root.join("target/consumers/run");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("tables"))?;
        let run = Self { root: root.to_owned(), folder, tools };
        let jaq = root.join("target/demo/bin/jaq");
        let jaq = jaq.to_str().context("the path is not UTF-8")?;
        let record = ["record", "--source", "perf", "--stacks", "-o", "trace.hpm", "--", jaq, "-n", PROGRAM];
        run.hpmctl(&record)?;
        for (format, suffix) in OPENED {
            run.hpmctl(&["export", "--format", format, "-o", &format!("export.{suffix}"), "trace.hpm"])?;
        }
        run.hpmctl(&["export", "--format", "firefox", "-o", "export.firefox.json", "trace.hpm"])?;
        for table in TABLES {
            for format in ["parquet", "csv"] {
                let file = format!("tables/{}.{format}", table.replace('-', "_"));
                run.hpmctl(&["export", "--format", format, "--table", table, "-o", &file, "trace.hpm"])?;
            }
        }
        run.hpmctl(&["explore", "trace.hpm", "--html", "page.html"])?;
        Ok(run)
    }

    fn hpmctl(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(self.root.join("target/release/hpmctl"));
        output(command.args(arguments).current_dir(&self.folder).stdin(Stdio::null()))
    }

    /// A script of `tests/suite/consumers`.
    fn script(&self, name: &str) -> PathBuf {
        self.root.join("tests/suite/consumers").join(name)
    }

    /// Samples and sum of periods of each event, if all readers agree on every table.
    fn tables(&self) -> Result<BTreeMap<String, (u64, u64)>> {
        let mut python = Command::new(&self.tools.python);
        let text = output(python.arg(self.script("tables.py")).arg(self.folder.join("tables")))?;
        let tables: BTreeMap<String, Value> = serde_json::from_str(&text)?;
        ensure!(tables.len() == TABLES.len(), "{} tables were read", tables.len());
        for (name, table) in &tables {
            for reader in ["rows_in_meta", "rows_duckdb", "rows_csv"] {
                ensure!(
                    table[reader] == table["rows"],
                    "{name}: {reader} {} of {}",
                    table[reader],
                    table["rows"]
                );
            }
        }
        let quanta = &tables["quanta"];
        ensure!(quanta["counts"] == quanta["counts_csv"], "the counts of Parquet and CSV differ: {quanta}");
        let events: BTreeMap<String, (u64, u64)> =
            serde_json::from_value(tables["samples"]["events"].clone())?;
        ensure!(!events.is_empty(), "there are no samples");
        Ok(events)
    }

    /// pprof's sums over all stacks against those of the table of samples.
    fn pprof(&self, events: &BTreeMap<String, (u64, u64)>) -> Result<String> {
        let mut pprof = Command::new(&self.tools.pprof);
        let raw = output(pprof.args(["-raw", "export.pb.gz"]).current_dir(&self.folder))?;
        let samples = raw.split_once("Samples:\n").context("it lists no samples")?.1;
        let mut lines = samples.lines();
        let names: Vec<&str> = lines.next().context("it names no values")?.split_whitespace().collect();
        let mut sums = vec![0_u64; names.len()];
        // "   3   3000: 1 2 3", and below it lines with labels.
        for line in lines.take_while(|line| *line != "Locations") {
            let Some((values, _)) = line.split_once(": ") else { continue };
            let values: Result<Vec<u64>, _> = values.split_whitespace().map(str::parse).collect();
            if let Ok(values) = values {
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
        }
        for (event, &(count, total)) in events {
            let sum = |name: String| {
                let place = names.iter().position(|of| of.split('/').next() == Some(&name));
                place.map(|place| sums[place]).with_context(|| format!("pprof has no value {name}"))
            };
            let found = (sum(format!("{event}_samples"))?, sum(event.clone())?);
            ensure!(found == (count, total), "{event}: pprof has {found:?}, the table {:?}", (count, total));
        }
        Ok(names.join(" "))
    }

    fn node(&self, script: &str, arguments: &[&str]) -> Result<Vec<Value>> {
        let mut node = Command::new("node");
        node.arg(self.script(script)).arg(&self.tools.chromium).arg(&self.tools.modules);
        self.tools.libraries(&mut node);
        let text = output(node.args(arguments).current_dir(&self.folder))?;
        fs::write(self.folder.join(format!("{script}.json")), &text)?;
        text.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    fn speedscope(&self) -> Result<String> {
        let files: Vec<String> = OPENED.iter().map(|(_, suffix)| format!("export.{suffix}")).collect();
        let arguments: Vec<&str> = std::iter::once(".").chain(files.iter().map(String::as_str)).collect();
        let opened = self.node("speedscope.js", &arguments)?;
        ensure!(opened.len() == files.len(), "it looked at {} files", opened.len());
        for file in &opened {
            let text = file["text"].to_string();
            ensure!(
                file["opened"] == true && text.contains("Left Heavy"),
                "{}: {}",
                file["file"],
                file["said"]
            );
        }
        Ok(String::new())
    }

    fn page(&self) -> Result<String> {
        let steps = self.node("page.js", &["page.png", "page.html"])?;
        let names = ["opened", "zoomed", "selected", "row clicked", "lane clicked"];
        ensure!(steps.len() == names.len(), "it took {} steps", steps.len());
        for (step, name) in steps.iter().zip(names) {
            ensure!(step["step"] == name && step["errors"] == serde_json::json!([]), "{step}");
            let painted = step["painted"].as_array().context("nothing is told of canvases")?;
            ensure!(
                painted.iter().all(|pixels| pixels.as_u64() > Some(100)),
                "{name}: a canvas is empty: {step}"
            );
        }
        // The records that each step is about.
        let about =
            |step: usize| -> Option<u64> { steps[step]["whose"].as_str()?.split(' ').next()?.parse().ok() };
        let all: Value = serde_json::from_str(&self.hpmctl(&["explore", "trace.hpm", "--json"])?)?;
        ensure!(about(0) == all["rows"][0]["records"].as_u64(), "it shows {:?} records", about(0));
        ensure!(about(1) < about(0), "zooming left {:?} of {:?} records in view", about(1), about(0));
        ensure!(
            about(2) > Some(0) && about(2) < about(1),
            "dragging selected {:?} of {:?}",
            about(2),
            about(1)
        );
        for step in [3, 4] {
            ensure!(
                steps[step]["found"].as_array().map(Vec::len) == Some(1),
                "no row is marked: {}",
                steps[step]
            );
        }
        // The page computes its statistics itself, and shows thousands in groups.
        let sum = all["rows"][0]["statistics"]["sum"].as_f64().context("there is no sum")?;
        let shown = steps[0]["statistics"][0][3].as_str().unwrap_or_default().replace(',', "");
        ensure!(shown == format!("{sum:.0}"), "the page's sum is {shown}, hpmctl's {sum:.0}");
        Ok(format!("{:?} records, {:?} after zooming, {:?} selected", about(0), about(1), about(2)))
    }
}

/// Keeps a file that was fetched or made only when making it succeeded.
pub(crate) fn stamp(path: &Path, make: impl FnOnce() -> Result<()>) -> Result<()> {
    if !path.exists() {
        make()?;
        File::create(path)?;
    }
    Ok(())
}
