//! The cache model against Valgrind's Cachegrind itself: the same program, the same geometry.
//!
//! Valgrind's Lackey writes down every access of a program; the model replays them, and Cachegrind simulates
//! the same program. Slow and in need of Valgrind, hence only on demand: `cargo test -p vpmu --release --test
//! cachegrind -- --ignored`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use vpmu::profile::SKYLAKE;
use vpmu::{Core, Event, Geometry, Indexing, MicroEvents, SharedCache};

/// The columns of Cachegrind's summary, in its order: Ir I1mr ILmr Dr D1mr DLmr Dw D1mw DLmw.
const COLUMNS: [Event; 9] = [
    Event::L1iRead,
    Event::L1iMiss,
    Event::LlcInstructionMiss,
    Event::L1dRead,
    Event::L1dReadMiss,
    Event::LlcReadMiss,
    Event::L1dWrite,
    Event::L1dWriteMiss,
    Event::LlcWriteMiss,
];

/// A program that every Debian has, with some work in it. Its input is the same for both tools.
const PROGRAM: [&str; 3] = ["/usr/bin/sort", "--parallel=1", "/usr/share/common-licenses/GPL-3"];

fn geometry() -> Geometry {
    let small = "8192:2:64".parse().expect("a geometry");
    let llc = "131072:4:64".parse().expect("a geometry");
    Geometry { l1i: small, l1d: small, l2: None, llc, indexing: Indexing::Linear }
}

fn valgrind(tool: &str, log: &Path) -> Command {
    let mut command = Command::new("valgrind");
    command.arg(format!("--tool={tool}")).arg(format!("--log-file={}", log.display()));
    command.env_clear().stdout(Stdio::null()).stderr(Stdio::null());
    command
}

fn run(mut command: Command) {
    let status = command.args(PROGRAM).status().expect("valgrind is installed (Debian package valgrind)");
    assert!(status.success(), "{command:?}: {status}");
}

/// What Cachegrind counts.
fn cachegrind(folder: &Path) -> [u64; 9] {
    let out = folder.join("cachegrind.out");
    let mut command = valgrind("cachegrind", &folder.join("cachegrind.log"));
    command.args(["--cache-sim=yes", "--I1=8192,2,64", "--D1=8192,2,64", "--LL=131072,4,64"]);
    command.arg(format!("--cachegrind-out-file={}", out.display()));
    run(command);
    let text = fs::read_to_string(out).expect("Cachegrind's output");
    let summary = text.lines().find_map(|line| line.strip_prefix("summary:")).expect("a summary");
    let numbers: Vec<u64> = summary.split_whitespace().map(|n| n.parse().expect("a number")).collect();
    numbers.try_into().expect("nine columns")
}

/// What the model counts for the accesses that Lackey saw.
fn model(folder: &Path) -> [u64; 9] {
    let log = folder.join("lackey.log");
    let mut command = valgrind("lackey", &log);
    command.arg("--trace-mem=yes");
    run(command);
    let geometry = geometry();
    let llc = SharedCache::new(&geometry.llc).expect("a cache");
    let mut core = Core::new(&SKYLAKE, &geometry, llc).expect("caches");
    let mut counts = [0; 9];
    for line in BufReader::new(fs::File::open(log).expect("Lackey's trace")).lines() {
        replay(&mut core, &line.expect("a line"), |events| {
            for (count, event) in counts.iter_mut().zip(COLUMNS) {
                *count += u64::from(events.once.contains(event));
            }
        });
    }
    counts
}

/// One line of the trace: `I  address,size`, ` L address,size`, ` S …`, ` M …` (modify: a load, and a store
/// that hits).
fn replay(core: &mut Core, line: &str, mut count: impl FnMut(MicroEvents)) {
    let Some((kind, access)) = line.trim_start().split_once(' ') else { return };
    let Some((address, size)) = access.trim().split_once(',') else { return };
    let (Ok(address), Ok(size)) = (u64::from_str_radix(address, 16), size.parse()) else { return };
    match kind {
        "I" => count(core.fetch(0, address, size)),
        // Cachegrind counts a modification as one read.
        "L" | "M" => count(core.data(0, address, size, false).0),
        "S" => count(core.data(0, address, size, true).0),
        _ => {}
    }
}

#[test]
#[ignore = "runs Valgrind for some seconds"]
fn misses_are_cachegrinds() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (expected, counted) = (cachegrind(folder), model(folder));
    for ((event, expected), counted) in COLUMNS.into_iter().zip(expected).zip(counted) {
        let error = counted.abs_diff(expected) as f64 / expected as f64;
        println!("{event:?}: {counted}, Cachegrind {expected}, {:.3} %", 100.0 * error);
        assert!(error < 0.01, "{event:?}: {counted} instead of {expected}");
    }
}
