//! What recording allocations together with samples adds to programs, beside heaptrack.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::overhead::SECOND;
use super::{advice, document};
use crate::check::Tally;
use crate::consumers::tools::debian;
use crate::guest::tracking::{Found, HEAVY, LIGHT, PEER, PEER_LIBRARY, WAYS};
use crate::guest::truth::Sums;
use crate::lab::Boot;

pub(super) const NAME: &str = "tracking";
/// The guest's clock is the number of executed instructions, so that neither the host nor the model's slowness shows.
pub(super) const OPTIONS: &[&str] = super::overhead::OPTIONS;

const HEADING: &str = "## What recording allocations adds to programs";
/// Of a program's instructions, with all its allocations and 1000 samples a second, where it allocates little.
const LIGHT_PERCENT: f64 = 1.0;

/// Puts heaptrack's library and one more program into the guest's folder.
///
/// # Errors
/// apt has no such packages, or a command fails.
pub(super) fn prepare(root: &Path, folder: &Path) -> Result<()> {
    advice::prepare_bc(root, folder)?;
    let unpacked = root.join("target/consumers/debian");
    fs::create_dir_all(&unpacked)?;
    let library = debian(&unpacked, "libheaptrack", &["usr/lib/heaptrack"], PEER_LIBRARY)?;
    let place = folder.join(PEER);
    fs::create_dir_all(&place)?;
    fs::copy(&library, place.join(PEER_LIBRARY))?;
    // What it needs is on this machine, and so in the guest, or was unpacked with it.
    let needed = unpacked.join("usr/lib/x86_64-linux-gnu/libunwind.so.8");
    if needed.exists() {
        fs::copy(needed, place.join("libunwind.so.8"))?;
    }
    Ok(())
}

/// Checks each program and writes the table.
pub(super) fn compare(boot: &Boot, tally: &mut Tally) {
    let mut all = Vec::new();
    for name in LIGHT.into_iter().chain(HEAVY) {
        tally.run(&format!("tracking: {name} went through all runs"), || {
            let value =
                boot.report.facts.get(name).with_context(|| format!("the guest left nothing of {name}"))?;
            all.push((name, serde_json::from_value::<Found>(value.clone())?));
            Ok(String::new())
        });
    }
    for (name, found) in &all {
        tally.run(&format!("tracking: {name}'s allocations were recorded, and no sample was lost"), || {
            for (way, _) in WAYS {
                let run = found.runs.get(way).with_context(|| format!("no run {way}"))?;
                ensure!(run.lost == 0, "{way} lost {} of {} samples", run.lost, run.samples);
            }
            let allocations = found.runs[WAYS[0].0].allocations;
            ensure!(allocations > 0, "there is none");
            Ok(format!("{allocations}"))
        });
        let all = WAYS[0].0;
        tally.run(&format!("tracking: {name} is slowed less than by heaptrack"), || {
            let (own, peer) = (found.added(found.runs[all].sums), found.added(found.peer));
            ensure!(own < peer + found.noise(), "{own:.3} %, heaptrack {peer:.3} %");
            Ok(format!("{own:.3} %, heaptrack {peer:.3} %"))
        });
        if LIGHT.contains(name) {
            tally.run(&format!("tracking: {name} allocates little, and is slowed little"), || {
                let added = found.added(found.runs[all].sums);
                ensure!(added < LIGHT_PERCENT + found.noise(), "{added:.3} % are added");
                Ok(format!("{added:.3} %"))
            });
        }
    }
    tally.run("tracking: the table is written", || {
        let root = boot.folder.ancestors().nth(3).context("no folder above target")?;
        document::replace(root, HEADING, &table(&all)).map(|()| String::new())
    });
}

impl Found {
    fn base(&self) -> f64 {
        (self.without[0].instructions() + self.without[1].instructions()) as f64 / 2.0
    }

    /// Percent of the program's instructions.
    fn added(&self, sums: Sums) -> f64 {
        (sums.instructions() as f64 / self.base() - 1.0) * 100.0
    }

    fn noise(&self) -> f64 {
        let [one, other] = self.without.map(|sums| sums.instructions());
        (one - other).abs() as f64 / 2.0 / self.base() * 100.0
    }
}

fn table(all: &[(&str, Found)]) -> String {
    let mut text = format!(
        "{HEADING}\n\nCommand: `target/release/suite scenario {NAME}`. `hpmctl record -e load:u -c 100000 -F 1000` with `--allocations` \
         (all of them), and with `--allocations=524288` (one in so many bytes), beside heaptrack's preloaded library, whose log goes to a \
         file; on a guest whose clock is the number of executed instructions: a second is {SECOND} of them, and that has no transparent huge pages. Percent of all instructions of \
         the machine, user's and kernel's, from the program's start to its end, that are there besides those of a run without either. What \
         is done with the logs afterwards is not in it, neither hpmctl's part nor heaptrack's. sort, gzip and sha256sum allocate little, \
         perl and bc much.\n\n\
         | program | million instructions | allocations | all % | one in 512 KiB % | heaptrack % | noise % |\n|---|---|---|---|---|---|---|\n"
    );
    for (name, found) in all {
        let added = |way: &str| found.runs.get(way).map_or(f64::NAN, |run: &_| found.added(run.sums));
        let _ = writeln!(
            text,
            "| {name} | {:.0} | {} | {:.3} | {:.3} | {:.3} | {:.3} |",
            found.base() / 1e6,
            found.runs.get(WAYS[0].0).map_or(0, |run| run.allocations),
            added(WAYS[0].0),
            added(WAYS[1].0),
            found.added(found.peer),
            found.noise()
        );
    }
    text
}
