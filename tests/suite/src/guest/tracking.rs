//! What recording allocations with samples adds to programs, and what another tool adds that records allocations.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::GuestReport;
use super::overhead::{FIRST, Run, folder, plain, plain_after, recorded};
use super::programs::c_program;
use super::truth::Sums;

/// Programs of [`super::overhead`] that allocate little, and such that do little else.
pub(crate) const LIGHT: [&str; 3] = ["sort", "gzip", "sha256sum"];
pub(crate) const HEAVY: [&str; 2] = ["perl", BC.0];
/// A program, which the host has compiled, that allocates for every number it computes.
pub(super) const BC: (&str, &str) = ("bc", "./bc.plain -q sort.bc");

/// How they are recorded: a name, and hpmctl's words for it.
pub(crate) const WAYS: [(&str, &[&str]); 2] = [
    ("all", &["-c", FIRST, "-F", "1000", "--allocations"]),
    ("one in 512 KiB", &["-c", FIRST, "-F", "1000", "--allocations=524288"]),
];

/// The folder with heaptrack's library and what it needs, in the working folder.
pub(crate) const PEER: &str = "heaptrack";
pub(crate) const PEER_LIBRARY: &str = "libheaptrack_preload.so";

/// What came of a program.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Found {
    /// Without anything, before and after all others.
    pub(crate) without: [Sums; 2],
    /// By [`WAYS`].
    pub(crate) runs: BTreeMap<String, Run>,
    /// With heaptrack's library, whose log goes to a file and is not looked at.
    pub(crate) peer: Sums,
    /// Bytes of that log.
    pub(crate) peer_bytes: u64,
}

/// Each program leaves a fact.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let inputs = folder(1)?;
    for file in ["bc.plain", "sort.bc"] {
        fs::copy(file, inputs.join(file)).with_context(|| format!("copying {file}"))?;
    }
    for name in LIGHT.into_iter().chain(HEAVY) {
        let found = found(&inputs, name).with_context(|| format!("what tracking adds to {name}"))?;
        report.fact(name, serde_json::to_value(found)?);
    }
    Ok(())
}

fn found(inputs: &Path, name: &str) -> Result<Found> {
    // Once each for the caches of the file system.
    plain(inputs, name)?;
    recorded(inputs, name, WAYS[0].1)?;
    let before = plain(inputs, name)?;
    let mut runs = BTreeMap::new();
    for (way, words) in WAYS {
        let run = recorded(inputs, name, words).with_context(|| format!("{name}, {way}"))?;
        runs.insert(way.to_owned(), run);
    }
    let log = inputs.join("heaptrack.log");
    let library = c_program(&format!("{PEER}/{PEER_LIBRARY}"))?;
    let needed = library.parent().context("the library is in no folder")?;
    // It takes itself out of the environment of what the program starts, so that the shell must not have it.
    let preload = format!(
        "export LD_LIBRARY_PATH={} LD_PRELOAD={} DUMP_HEAPTRACK_OUTPUT={}; ",
        needed.display(),
        library.display(),
        log.display()
    );
    plain_after(inputs, name, &preload)?;
    let peer = plain_after(inputs, name, &preload)?;
    let peer_bytes = fs::metadata(&log).context("heaptrack left no log")?.len();
    fs::remove_file(&log)?;
    // A library that was not loaded would cost nothing.
    ensure!(peer_bytes > 0, "heaptrack's log is empty");
    Ok(Found { without: [before, plain(inputs, name)?], runs, peer, peer_bytes })
}
