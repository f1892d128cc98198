//! A `NAME.methods` folder: the profile, the selection, and measured runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use libhpm::analysis::method::{FunctionTimes, Profile, Selection, Thresholds};
use libhpm::call_log::FileFunctions;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Written into a folder by `profile`, and asked for by the other steps.
pub(super) const PROFILE: &str = "profile.json";
pub(super) const SELECTION: &str = "selection.json";
const RUNS: &str = "runs";
const RUN: &str = "run.json";
const VERSION: u32 = 2;

/// Step 1's result.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ProfileFile {
    pub(super) version: u32,
    pub(super) command: Vec<String>,
    pub(super) status: i32,
    /// What times are of, in words.
    pub(super) clock: String,
    /// Units of time in a ms; cycles have no fixed length.
    pub(super) ticks_per_ms: Option<f64>,
    /// Files with functions, and their build IDs in hexadecimal.
    pub(super) modules: Vec<ModuleRow>,
    pub(super) functions: Vec<FunctionRow>,
    pub(super) nodes: Vec<NodeRow>,
    pub(super) threads: Vec<ThreadRow>,
    /// What an event that is logged, and one that is not, costs in units of time.
    pub(super) cost: f64,
    pub(super) skip_cost: f64,
    /// What one costs that step 3 logs with its events.
    pub(super) measured_cost: f64,
    /// The same with the kernel's time and what there is once.
    #[serde(default)]
    pub(super) cpu: CpuRow,
    /// Functions that the filter left out before the run, and its size threshold.
    pub(super) left_out: usize,
    pub(super) least_bytes: Option<u64>,
    /// Entries and exits that were not logged because of the filter.
    pub(super) skipped: u64,
    /// Entries and exits that could not be written.
    pub(super) lost: u64,
    pub(super) unwound: u64,
    pub(super) unfinished: u64,
    pub(super) orphans: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ModuleRow {
    pub(super) path: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) build_id: Option<String>,
}

/// A function, as in the table of Figure 3.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct FunctionRow {
    pub(super) name: String,
    /// Index into the modules, and its first byte in that file.
    pub(super) module: usize,
    pub(super) offset: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) line: Option<u32>,
    pub(super) calls: u64,
    pub(super) total: u64,
    pub(super) own: u64,
    /// The filter (size, backward branch) lets it be a phase.
    pub(super) worth_it: bool,
}

/// Time on CPUs in ns, in user mode and in the kernel; all 0 where it is not known.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(super) struct CpuRow {
    /// All threads of the program, without the shim.
    pub(super) program: f64,
    /// The shim's begin in all processes, its loading and its end included, and how many these are.
    pub(super) set_up: f64,
    pub(super) processes: u64,
    /// What an entry or exit costs that is logged with the events of `measure`.
    pub(super) measured: f64,
}

/// A node of the annotated dynamic call graph.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct NodeRow {
    pub(super) function: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) caller: Option<usize>,
    pub(super) calls: u64,
    pub(super) total: u64,
    pub(super) own: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ThreadRow {
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) name: String,
    pub(super) calls: u64,
    pub(super) total: u64,
}

/// Step 2's result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SelectionFile {
    pub(super) weight: f64,
    pub(super) grain: f64,
    /// Numbers of functions of the profile.
    pub(super) functions: Vec<u32>,
    pub(super) invocations: u64,
    /// As published: the part of all calls; and of the time.
    pub(super) estimated_overhead: f64,
    pub(super) estimated_time_overhead: f64,
}

/// One run of step 3.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RunFile {
    /// Without the shim, for comparison.
    pub(super) baseline: bool,
    pub(super) wall_ms: f64,
    pub(super) status: i32,
    /// Events that were asked for.
    pub(super) events: Vec<String>,
}

impl ProfileFile {
    /// What step 2 works on: functions that the filter lets be phases.
    pub(super) fn profile(&self) -> Profile {
        let times = |(number, row): (usize, &FunctionRow)| FunctionTimes {
            function: number as u32,
            calls: row.calls,
            total: row.total,
            own: row.own,
        };
        let rows = || self.functions.iter().enumerate();
        Profile {
            total: self.total(),
            functions: rows().filter(|(_, row)| row.worth_it).map(times).collect(),
            other_calls: rows().filter(|(_, row)| !row.worth_it).map(|(_, row)| row.calls).sum::<u64>()
                + self.skipped / 2,
        }
    }

    /// The program's time over all threads.
    pub(super) fn total(&self) -> u64 {
        self.nodes.iter().filter(|node| node.caller.is_none()).map(|node| node.total).sum()
    }

    /// What measuring these calls would take of the program's time: an entry and an exit for each, and what every process begins with. By
    /// the clock of the profile or by the time on CPUs with the kernel's, of which it is more.
    pub(super) fn time_overhead(&self, invocations: u64) -> f64 {
        let events = 2.0 * invocations as f64;
        let with_kernel = self.part_of_cpu_time(self.cpu.set_up + self.cpu.measured * events);
        self.part_of_time(self.measured_cost * events).max(with_kernel)
    }

    /// What the shim takes of the program's time before it logs anything.
    pub(super) fn set_up_overhead(&self) -> f64 {
        self.part_of_cpu_time(self.cpu.set_up)
    }

    fn part_of_cpu_time(&self, ns: f64) -> f64 {
        if self.cpu.program > 0.0 { ns / self.cpu.program } else { 0.0 }
    }

    /// What the calls of the shim for the other functions take.
    pub(super) fn skip_overhead(&self, invocations: u64) -> f64 {
        let others = self.profile().calls().saturating_sub(invocations);
        self.part_of_time(2.0 * self.skip_cost * others as f64)
    }

    fn part_of_time(&self, cost: f64) -> f64 {
        if self.total() == 0 { 0.0 } else { cost / self.total() as f64 }
    }

    /// A time in words.
    pub(super) fn time(&self, ticks: u64) -> String {
        match self.ticks_per_ms {
            Some(per_ms) => crate::output::time((ticks as f64 / per_ms * 1e6) as u64),
            None => format!("{} cycles", crate::output::grouped(ticks)),
        }
    }

    /// Functions of the profile as the shim is told of them.
    pub(super) fn places(&self, functions: &[u32]) -> Vec<FileFunctions> {
        let of = |(number, module): (usize, &ModuleRow)| {
            let rows = functions.iter().filter_map(|&function| self.functions.get(function as usize));
            let mut offsets: Vec<u64> =
                rows.filter(|row| row.module == number).map(|row| row.offset).collect();
            offsets.sort_unstable();
            FileFunctions { path: module.path.clone(), offsets }
        };
        self.modules.iter().enumerate().map(of).filter(|file| !file.offsets.is_empty()).collect()
    }

    /// Numbers of functions by their place.
    pub(super) fn number(&self, module: &str, offset: u64) -> Option<u32> {
        let place = self.functions.iter().position(|row| {
            row.offset == offset && self.modules.get(row.module).is_some_and(|row| row.path == module)
        })?;
        Some(place as u32)
    }

    /// Says which files are no longer those that were profiled.
    ///
    /// # Errors
    /// One is another.
    pub(super) fn check_modules(&self) -> Result<()> {
        for module in &self.modules {
            let now = libhpm::symbol::build_id(Path::new(&module.path)).map(|id| hexadecimal(&id));
            if let (Some(then), Some(now)) = (&module.build_id, now)
                && *then != now
            {
                bail!("{} was compiled anew since it was profiled: profile it again", module.path);
            }
        }
        Ok(())
    }
}

impl SelectionFile {
    /// The selection with what it would cost.
    pub(super) fn new(profile: &ProfileFile, selection: &Selection) -> Self {
        Self {
            weight: selection.thresholds.weight,
            grain: selection.thresholds.grain,
            functions: selection.functions.clone(),
            invocations: selection.invocations,
            estimated_overhead: selection.estimated_overhead,
            estimated_time_overhead: profile.time_overhead(selection.invocations),
        }
    }

    /// Its thresholds.
    pub(super) fn thresholds(&self) -> Thresholds {
        Thresholds { weight: self.weight, grain: self.grain }
    }
}

/// Bytes as text.
pub(super) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes a profile.
///
/// # Errors
/// The system's.
pub(super) fn write_profile(folder: &Path, profile: &ProfileFile) -> Result<()> {
    write(&folder.join(PROFILE), &ProfileFile { version: VERSION, ..profile.clone() })
}

/// Reads a profile.
///
/// # Errors
/// The folder has none, or one of another version.
pub(super) fn read_profile(folder: &Path) -> Result<ProfileFile> {
    let path = folder.join(PROFILE);
    if !path.exists() {
        bail!(
            "{} has no profile of methods: make one with `hpmctl methods profile -o {0} -- COMMAND`",
            folder.display()
        );
    }
    let profile: ProfileFile = read(&path)?;
    if profile.version != VERSION {
        bail!(
            "{} is of version {}, and this hpmctl reads version {VERSION}: profile again",
            path.display(),
            profile.version
        );
    }
    Ok(profile)
}

/// Writes a selection; what was measured of another one goes.
///
/// # Errors
/// The system's.
pub(super) fn write_selection(folder: &Path, selection: &SelectionFile) -> Result<()> {
    clear_runs(folder)?;
    write(&folder.join(SELECTION), selection)
}

/// Reads the selection; `None` when nothing was selected.
///
/// # Errors
/// It is damaged.
pub(super) fn read_selection(folder: &Path) -> Result<Option<SelectionFile>> {
    let path = folder.join(SELECTION);
    path.exists().then(|| read(&path)).transpose()
}

/// Removes measured runs.
///
/// # Errors
/// The system's.
pub(super) fn clear_runs(folder: &Path) -> Result<()> {
    let runs = folder.join(RUNS);
    if runs.exists() {
        fs::remove_dir_all(&runs).with_context(|| format!("cannot remove {}", runs.display()))?;
    }
    Ok(())
}

/// Puts the runs of another folder, which must be in the same file system, in place of a folder's own.
///
/// # Errors
/// The system's.
pub(super) fn replace_runs(folder: &Path, from: &Path) -> Result<()> {
    clear_runs(folder)?;
    fs::rename(from.join(RUNS), folder.join(RUNS))
        .with_context(|| format!("cannot replace the runs in {}", folder.display()))
}

/// Makes the folder of a run.
///
/// # Errors
/// The system's.
pub(super) fn begin_run(folder: &Path, number: usize) -> Result<PathBuf> {
    let path = folder.join(RUNS).join(format!("{number:04}"));
    fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
    Ok(path)
}

/// Writes what is known of a run once it has ended.
///
/// # Errors
/// The system's.
pub(super) fn write_run(run: &Path, file: &RunFile) -> Result<()> {
    write(&run.join(RUN), file)
}

/// The runs that have ended, in their order.
///
/// # Errors
/// One is damaged.
pub(super) fn runs(folder: &Path) -> Result<Vec<(PathBuf, RunFile)>> {
    let Ok(entries) = fs::read_dir(folder.join(RUNS)) else { return Ok(vec![]) };
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let ended = paths.into_iter().filter(|path| path.join(RUN).exists());
    ended.map(|path| read(&path.join(RUN)).map(|run| (path, run))).collect()
}

fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(value)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&bytes).with_context(|| format!("{} is damaged: measure again", path.display()))
}

/// A path as text that can be shared.
pub(super) fn shared(path: &str) -> Arc<str> {
    path.into()
}
