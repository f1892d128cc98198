//! The example heap on libgc, the public collector that it is compared with: taken from this machine, or fetched into
//! `target/consumers` without root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::check::Tally;
use crate::consumers::tools::{debian, output};

/// The library.
pub(crate) const NAME: &str = "libgc.so.1";
/// A heap in KiB in which every workload runs, whatever collects.
const LIMIT: &str = "8192";
/// The workloads; each checksum is that of the heap's own collector.
const WORKLOADS: [&str; 8] = ["db", "hash", "btree", "trees", "graph", "strings", "lru", "matrix"];
/// What the heap's test of libgc says of each check, when it has a libgc.
const TESTS: [&str; 5] = [
    "every_workload_computes_the_same",
    "graphs_survive_any_sequence_of_collections",
    "more_references_than_the_mark_stack_holds",
    "a_full_heap_says_so_and_goes_on",
    "a_process_has_one",
];

/// Where libgc is.
///
/// # Errors
/// This machine has none, and apt does not fetch it.
pub(crate) fn library(root: &Path) -> Result<PathBuf> {
    let unpacked = root.join("target/consumers/debian");
    fs::create_dir_all(&unpacked)?;
    debian(&unpacked, "libgc1", &["usr/lib", "usr/lib/x86_64-linux-gnu"], NAME)
}

/// Runs the heap's tests of libgc, which `cargo test` alone leaves out where nobody names a library, and every workload as large as it is
/// measured.
pub(crate) fn check(root: &Path, tally: &mut Tally) {
    let mut found = None;
    tally.run("heap: libgc is there", || {
        let library = library(root)?;
        let said = library.display().to_string();
        found = Some(library);
        Ok(said)
    });
    let Some(library) = found else { return };
    tally.run("heap: objects survive on libgc", || tests(root, &library));
    tally.run("heap: the workloads compute the same on libgc", || workloads(root, &library));
}

fn tests(root: &Path, library: &Path) -> Result<String> {
    let mut cargo = Command::new("cargo");
    // Of the whole workspace, whose tests are built already; no other package has a test of this name.
    cargo.args(["test", "--release", "--workspace", "--test", "libgc"]).current_dir(root);
    let said = output(cargo.env("HPM_LIBGC", library))?;
    let missing = TESTS.iter().find(|name| !said.contains(&format!("test {name} ... ok")));
    ensure!(missing.is_none(), "{} was not run: {said}", missing.copied().unwrap_or_default());
    Ok(format!("{} checks", TESTS.len()))
}

fn workloads(root: &Path, library: &Path) -> Result<String> {
    let mut collections = 0;
    for workload in WORKLOADS {
        let run = |options: &[&str]| -> Result<Value> {
            let mut heap = Command::new(root.join("target/release/heap"));
            heap.args(["run", workload, "--json", "--iterations", "2", "--limit", LIMIT]).args(options);
            let said = output(&mut heap).context("`make tools` builds target/release/heap")?;
            serde_json::from_str(&said).context("what heap run printed")
        };
        let own = run(&[])?;
        let mut options = vec!["--collector", "libgc", "--libgc"];
        options.push(library.to_str().context("the path of libgc is no text")?);
        let on_libgc = run(&options)?;
        ensure!(own["checksum"].is_u64(), "{workload}: heap run says no checksum: {own}");
        ensure!(on_libgc["checksum"] == own["checksum"], "{workload}: {on_libgc} on libgc, {own} else");
        collections += on_libgc["full_collections"].as_u64().context("it counts no collections")?;
    }
    ensure!(collections > 0, "libgc has not collected once");
    Ok(format!("{} workloads, {collections} collections", WORKLOADS.len()))
}
