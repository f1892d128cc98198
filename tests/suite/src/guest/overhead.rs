//! What recording adds to eight programs (Schneider, thesis, figures 3.6 and 3.9), in instructions of the whole machine from the
//! program's start to its end, and what memory it takes (table 3.1).

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use libhpm::trace::{AllocationRow, TraceReader};
use serde::{Deserialize, Serialize};

use super::programs::{hpmctl, succeed};
use super::truth::Sums;
use super::{GuestReport, is_asked_for, tracking};

/// The programs, as a shell runs them in the folder of [`write_inputs`]. All but jaq are of every Debian machine with gcc.
pub(crate) const PROGRAMS: [(&str, &str); 8] = [
    ("sort", "LC_ALL=C sort --parallel=1 long"),
    ("gzip", "gzip -9c text text"),
    ("awk", "awk '{ n[substr($0, 1, 4)]++ } END { for (k in n) s += n[k] * n[k]; print s }' long"),
    // Its hashes have a random seed unless it is told one.
    (
        "perl",
        "PERL_HASH_SEED=0 perl -ne '$n{substr $_, 0, 5} .= $_; END { print length $n{$_} for sort keys %n }' text",
    ),
    ("sed", "sed -E 's/([0-9a-f])([0-9])/\\2\\1/g' short"),
    ("sha256sum", "sha256sum text text text text text text text text"),
    ("gcc", "gcc -O2 -S -o /dev/null program.c"),
    (
        "jaq",
        "\"$JAQ\" 'group_by(.k) | map({k: .[0].k, n: length, s: map(.v) | add}) | sort_by(.s)' data.json",
    ),
];

/// What a program costs once: one that does nothing.
pub(crate) const NOTHING: (&str, &str) = ("nothing", "/bin/true");

/// The period that an adapted one begins with.
pub(super) const FIRST: &str = "100000";

/// How the programs are recorded: a name, and hpmctl's words for it.
pub(crate) const WAYS: [(&str, &[&str]); 12] = [
    // As long a period as there can be: no sample comes.
    ("0/s", &["-c", "2000000000"]),
    ("1000/s", &["-c", FIRST, "-F", "1000"]),
    ("1000/s, 1 s", &["-c", FIRST, "-F", "1000", "--quantum", "1000"]),
    ("2000/s", &["-c", FIRST, "-F", "2000"]),
    ("4000/s", &["-c", FIRST, "-F", "4000"]),
    ("8000/s", &["-c", FIRST, "-F", "8000"]),
    ("16000/s", &["-c", FIRST, "-F", "16000"]),
    ("32000/s", &["-c", FIRST, "-F", "32000"]),
    ("25K", &["-c", "25000"]),
    ("50K", &["-c", "50000"]),
    ("100K", &["-c", "100000"]),
    ("adaptive", &["-c", FIRST, "-F", "400"]),
];

/// The first so many of [`WAYS`] are run where the kernel's command line has [`AT_TARGET`]: the one without samples, and those that the
/// target is of.
pub(crate) const WAYS_AT_TARGET: usize = 3;
pub(crate) const AT_TARGET: &str = "hpm.overhead=target";

/// What one run left.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    /// What the machine did from the program's start to its end.
    pub(crate) sums: Sums,
    /// Samples in the trace, and those that were lost.
    pub(crate) samples: u64,
    pub(crate) lost: u64,
    /// Objects whose allocation was recorded, where that was asked for.
    pub(crate) allocations: u64,
    /// Bytes of the trace.
    pub(crate) trace_bytes: u64,
    /// hpmctl's memory when the program had ended.
    pub(crate) memory: Memory,
}

/// A process' memory.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// The most that was resident, in KiB.
    pub(crate) resident_kib: u64,
    /// Of the driver's, mapped, in bytes.
    pub(crate) driver_bytes: u64,
}

/// What [`one`] leaves.
#[derive(Serialize, Deserialize)]
struct One {
    sums: Sums,
    /// Of the process that started it.
    memory: Memory,
}

/// Name of the program that [`one`] is to run, what the shell does before, and where it leaves [`One`].
const WHICH: &str = "HPM_OVERHEAD_PROGRAM";
const BEFORE: &str = "HPM_OVERHEAD_BEFORE";
const LEFT: &str = "one.json";

/// How many times larger the inputs are here than where more is asked of each program: a program of less than a second is mostly its
/// own beginning, and nobody records that.
const LONGER: usize = 8;

/// Runs every program without hpmctl and in each of [`WAYS`], or of the first.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let folder = folder(LONGER)?;
    mount_disk(&folder.join(TRACES))?;
    let ways = if is_asked_for(AT_TARGET)? { &WAYS[..WAYS_AT_TARGET] } else { &WAYS };
    once(report, &folder)?;
    for (name, _) in PROGRAMS {
        // Once each for the caches of the file system.
        plain(&folder, name)?;
        recorded(&folder, name, WAYS[0].1)?;
        let without = plain(&folder, name)?;
        let mut runs = serde_json::Map::new();
        for (way, words) in ways {
            let run = recorded(&folder, name, words).with_context(|| format!("{name}, {way}"))?;
            runs.insert((*way).to_owned(), serde_json::to_value(run)?);
        }
        let again = plain(&folder, name)?;
        report.fact(name, serde_json::json!({ "without": [without, again], "runs": runs }));
    }
    Ok(())
}

/// What recording a program costs once, at [`WAYS`]' lowest rate that has samples.
fn once(report: &mut GuestReport, folder: &Path) -> Result<()> {
    let (name, words) = (NOTHING.0, WAYS[1].1);
    plain(folder, name)?;
    recorded(folder, name, words)?;
    let (without, with) = (plain(folder, name)?, recorded(folder, name, words)?.sums);
    report.fact(name, serde_json::json!({ "without": without, "with": with }));
    Ok(())
}

/// Where in the programs' folder traces are written, on a disk as those of people are: the memory that is this machine's root keeps all in
/// its page cache.
const TRACES: &str = "traces";

/// Makes a file system on the machine's disk (`lab run --disk`), and shows it as this folder.
fn mount_disk(at: &Path) -> Result<()> {
    const DEVICE: &str = "/dev/vda";
    fs::create_dir_all(at)?;
    succeed(Command::new("modprobe").args(["-a", "virtio_blk", "ext4"]))?;
    // Nothing of it is left to be done while something is measured.
    let at_once = "lazy_itable_init=0,lazy_journal_init=0";
    succeed(Command::new("mkfs.ext4").args(["-q", "-E", at_once, DEVICE]))?;
    succeed(Command::new("mount").args(["-t", "ext4", DEVICE]).arg(at)).map(drop)
}

/// Where the programs find their inputs, which are so many times as large as the smallest.
pub(super) fn folder(times: usize) -> Result<PathBuf> {
    let folder = std::env::temp_dir().join("overhead");
    fs::create_dir_all(&folder)?;
    write_inputs(&folder, times)?;
    Ok(folder)
}

/// The child's part: runs one program and leaves what the machine did meanwhile, so that neither hpmctl's start nor the
/// completion of its trace is in it.
pub(super) fn one() -> Result<()> {
    let which = std::env::var(WHICH).with_context(|| format!("{WHICH} names the program"))?;
    let mut all = PROGRAMS.iter().chain([&tracking::BC, &NOTHING]);
    let (_, line) = all.find(|(name, _)| *name == which).context("no such program")?;
    let before = std::env::var(BEFORE).unwrap_or_default();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("{before}{line}")]).stdin(Stdio::null()).stdout(Stdio::null());
    let before = Sums::now()?;
    let ended = command.status();
    let sums = Sums::now()? - before;
    let ended = ended.context("starting a shell")?;
    anyhow::ensure!(ended.success(), "{line} ended with {ended}");
    let one = One { sums, memory: Memory::of(std::os::unix::process::parent_id())? };
    fs::write(LEFT, serde_json::to_vec(&one)?).context("writing the sums")
}

impl Memory {
    fn of(pid: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let resident = most.and_then(|text| text.trim().strip_suffix(" kB")).context("no VmHWM")?;
        let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
        let driver = maps.lines().filter(|line| line.ends_with("/dev/hpm")).filter_map(|line| {
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            Some(u64::from_str_radix(end, 16).ok()? - u64::from_str_radix(start, 16).ok()?)
        });
        Ok(Self { resident_kib: resident.trim().parse()?, driver_bytes: driver.sum() })
    }
}

pub(super) fn plain(folder: &Path, name: &str) -> Result<Sums> {
    plain_after(folder, name, "")
}

/// As [`plain`], after the shell has executed something.
pub(super) fn plain_after(folder: &Path, name: &str, before: &str) -> Result<Sums> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["guest", "overhead_one"]);
    measured(command, folder, name, before).map(|one| one.sums)
}

/// The environment has the same variables in all runs: it lies on the program's stack, whose place some programs' instructions depend on.
fn measured(mut command: Command, folder: &Path, name: &str, before: &str) -> Result<One> {
    command.current_dir(folder).env(WHICH, name).env(BEFORE, before).env("JAQ", jaq()?);
    succeed(command.stdin(Stdio::null()))?;
    Ok(serde_json::from_slice(&fs::read(folder.join(LEFT))?)?)
}

pub(super) fn recorded(folder: &Path, name: &str, words: &[&str]) -> Result<Run> {
    let disk = Some(folder.join(TRACES)).filter(|disk| disk.is_dir());
    let trace = disk.as_deref().unwrap_or(folder).join("trace.hpm");
    let mut command = hpmctl(&["record", "-e", "load:u"])?;
    command.args(words).arg("-o").arg(&trace).arg("--").arg(std::env::current_exe()?);
    command.args(["guest", "overhead_one"]);
    let One { sums, memory } = measured(command, folder, name, "")?;
    let reader = TraceReader::open(&trace)?;
    let totals = reader.meta().totals.clone().context("a trace without totals")?;
    let run = Run {
        sums,
        samples: totals.records,
        lost: totals.records_lost,
        allocations: reader.rows::<AllocationRow>().count() as u64,
        trace_bytes: bytes_below(&trace)?,
        memory,
    };
    fs::remove_dir_all(&trace)?;
    // Nothing is left for the kernel to write while something else is measured.
    nix::unistd::sync();
    Ok(run)
}

fn bytes_below(folder: &Path) -> Result<u64> {
    let entries = fs::read_dir(folder)?;
    entries.map(|entry| Ok(entry?.metadata()?.len())).sum()
}

/// The JSON processor that `make demo` builds, beside the folder of this program.
fn jaq() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let target = here.ancestors().nth(2).context("this program is in no target folder")?;
    Ok(target.join("demo/bin/jaq"))
}

/// Lines of the three texts, at their smallest: each program executes some hundred millions of instructions.
const LONG: usize = 250_000;
const LINES: usize = 50_000;
const SHORT: usize = 8_000;

/// The same in every run.
fn write_inputs(folder: &Path, times: usize) -> Result<()> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 16
    };
    let (mut long, mut json, mut program) = (String::new(), "[".to_owned(), String::new());
    for _ in 0..LONG * times {
        writeln!(long, "{:012x} {}", next(), next() % 1000)?;
    }
    let first = |lines: usize| -> String { long.lines().take(lines).flat_map(|line| [line, "\n"]).collect() };
    fs::write(folder.join("text"), first(LINES * times))?;
    fs::write(folder.join("short"), first(SHORT * times))?;
    for i in 0..15_000 * times {
        write!(
            json,
            "{}{{\"k\": {}, \"v\": {}}}",
            if i == 0 { "" } else { "," },
            next() % 500,
            next() % 10_000
        )?;
    }
    json += "]";
    for i in 0..15 * times {
        writeln!(
            program,
            "int f{i}(const int *a, int n) {{ int s = {}; for (int i = 0; i < n; i++) {{ if (a[i] > {}) s += a[i] * {i}; else s ^= a[n - 1 - i] << {}; }} return s; }}",
            next() % 1000,
            next() % 100,
            next() % 8
        )?;
    }
    fs::write(folder.join("long"), long)?;
    fs::write(folder.join("data.json"), json)?;
    fs::write(folder.join("program.c"), program).context("writing the inputs")
}
