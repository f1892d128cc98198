//! Method-level phases of three programs that nobody here wrote, with the module's counters, and what measuring them really adds.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use libhpm::call_log::{CONFIG, FOLDER_VARIABLE, Functions, logs};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::GuestReport;
use super::programs::{hpmctl, succeed};
use super::truth::Sums;

/// The programs with their arguments, in the folder that the host has prepared.
pub(crate) const PROGRAMS: [(&str, &[&str]); 3] =
    [("bzip2", &["-kc", "short"]), ("minigzip", &["-9", "-c", "input"]), ("lua", &["rounds.lua"])];
/// How each was compiled: as it is, with every function instrumented, and with only those that are phases.
pub(crate) const BUILDS: [&str; 3] = ["plain", "all", "phases"];
/// What may be added.
pub(crate) const OVERHEAD: &str = "1%";
/// The guest's part of the first boot.
pub(crate) const PROFILE: &str = "methods_profile";

/// The guest's memory: logs and the shim are there, because the shared folder costs some 50,000 instructions for each page that is
/// written or mapped.
const MEMORY: &str = "/dev/shm";
const SHIM: &str = "libhpm_methods.so";
/// What `hpmctl methods profile` leaves, and what it and `select` do.
pub(crate) const PROFILE_FILE: &str = "profile.json";
const STEPS: [&str; 2] = [PROFILE_FILE, "selection.json"];

/// The program that [`one`] is to run, and where it leaves what the machine did.
const WHICH: &str = "HPM_METHODS_PROGRAM";
const LEFT: &str = "one.json";

/// What came of a program.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Found {
    /// What `hpmctl methods select --json` chose of all functions.
    pub(crate) selection: Value,
    /// `hpmctl methods report --json` of these.
    pub(crate) report: Value,
    /// Without hpmctl, before and after everything else.
    pub(crate) plain: [Sums; 2],
    /// Every function instrumented, without the shim.
    pub(crate) instrumented: Sums,
    /// Every function instrumented, the chosen ones measured.
    pub(crate) filtered: Sums,
    /// The chosen functions alone instrumented, and measured.
    pub(crate) phases: Sums,
}

/// Each program leaves a fact. What [`profile_all`] left is here.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    for (name, arguments) in PROGRAMS {
        let found = found(name, arguments).with_context(|| format!("methods of {name}"))?;
        report.fact(name, serde_json::to_value(found)?);
    }
    report.check("methods: a full disk loses events, and says how many, but not the program", full_disk);
    Ok(())
}

/// The program with the most calls, with a log that has no room.
fn full_disk() -> Result<String> {
    let (name, arguments) = PROGRAMS.last().context("no programs")?;
    let folder = format!("{MEMORY}/full");
    fs::create_dir(&folder).with_context(|| format!("making {folder}"))?;
    succeed(Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs", &folder]))?;
    let measured = PathBuf::from(format!("{MEMORY}/measured-{}", profile_folder(name)));
    fs::copy(run_folder(&measured)?.join(CONFIG), format!("{folder}/{CONFIG}"))
        .context("what the shim is told")?;
    let mut program = Command::new(path(name, "all"));
    program.args(*arguments).env("LD_PRELOAD", shim()?).env(FOLDER_VARIABLE, &folder);
    succeed(&mut program)?;
    let (mut read, mut lost, mut functions) = (0, 0, Functions::default());
    for log in logs(Path::new(&folder))?.threads() {
        let mut log = log?;
        lost += log.lost;
        while log.next(&mut functions).is_some() {
            read += 1;
        }
    }
    anyhow::ensure!(read > 0 && lost > 0, "{read} events, {lost} lost");
    Ok(format!("{read} events, {lost} lost"))
}

fn run_folder(measured: &Path) -> Result<PathBuf> {
    let runs = fs::read_dir(measured.join("runs")).context("no runs")?;
    let runs = runs.filter_map(|entry| Some(entry.ok()?.path()).filter(|path| path.join(CONFIG).exists()));
    runs.last().context("no run was measured")
}

/// Step 1 of each program alone.
pub(super) fn profile_all() -> Result<()> {
    PROGRAMS.iter().try_for_each(|(name, arguments)| {
        profile(name, "all", arguments).map(drop).with_context(|| format!("profile of {name}"))
    })
}

/// The folder that [`profile_all`] leaves of a program.
pub(crate) fn profile_folder(name: &str) -> String {
    format!("{name}-all.methods")
}

fn found(name: &str, arguments: &[&str]) -> Result<Found> {
    // Once for the caches of the file system.
    plain(name, "plain")?;
    let first = plain(name, "plain")?;
    let all = profile_folder(name);
    let selected = methods(&["select", &all, "--overhead", OVERHEAD, "--json"])?;
    // Once each: where time is the number of executed instructions, one run is as the other.
    methods(&["measure", &all, "--source", "driver", "--repeat", "1"])?;
    let report = methods(&["report", &all, "--json"])?;
    let filtered = measured(name, "all", &all)?;
    let phases = profile(name, "phases", arguments)?;
    // Nothing else is instrumented, so that all of it is measured.
    methods(&["select", &phases, "--weight", "0", "--grain", "0"])?;
    Ok(Found {
        selection: serde_json::from_str(&selected).context("what was selected")?,
        report: serde_json::from_str(&report).context("the report")?,
        filtered,
        phases: measured(name, "phases", &phases)?,
        instrumented: plain(name, "all")?,
        plain: [first, plain(name, "plain")?],
    })
}

fn path(name: &str, build: &str) -> String {
    format!("./{name}.{build}")
}

/// Step 1; the folder with the profile.
fn profile(name: &str, build: &str, arguments: &[&str]) -> Result<String> {
    let folder = if build == "all" { profile_folder(name) } else { format!("{name}-{build}.methods") };
    let program = path(name, build);
    let logged = format!("{MEMORY}/{folder}");
    methods(&[&["profile", "--shim", &shim()?, "-o", &logged, "--", &program], arguments].concat())?;
    copy(&logged, &folder, &[PROFILE_FILE])?;
    Ok(folder)
}

/// The shim, as a local file.
fn shim() -> Result<String> {
    let here = std::env::current_exe().context("cannot tell where the suite is")?;
    let (built, local) = (here.with_file_name(SHIM), format!("{MEMORY}/{SHIM}"));
    if fs::metadata(&local).is_err() {
        fs::copy(&built, &local).with_context(|| format!("copying {}", built.display()))?;
    }
    Ok(local)
}

fn copy(from: &str, to: &str, files: &[&str]) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("making {to}"))?;
    files.iter().try_for_each(|file| {
        fs::copy(format!("{from}/{file}"), format!("{to}/{file}"))
            .map(drop)
            .with_context(|| format!("copying {from}/{file}"))
    })
}

fn methods(words: &[&str]) -> Result<String> {
    let output = succeed(hpmctl(&["methods"])?.args(words))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What the machine does while the program runs, measured by the shim but without what hpmctl does before and after.
fn measured(name: &str, build: &str, folder: &str) -> Result<Sums> {
    let logged = format!("{MEMORY}/measured-{folder}");
    copy(folder, &logged, &STEPS)?;
    let mut command = hpmctl(&["methods", "measure", &logged, "--source", "driver", "--repeat", "1"])?;
    command.args(["--shim", &shim()?]);
    command.args(["--event", "instructions,cycles", "--"]).arg(std::env::current_exe()?);
    ran(command.args(["guest", "methods_one"]), name, build)
}

/// The same without hpmctl.
fn plain(name: &str, build: &str) -> Result<Sums> {
    ran(Command::new(std::env::current_exe()?).args(["guest", "methods_one"]), name, build)
}

fn ran(command: &mut Command, name: &str, build: &str) -> Result<Sums> {
    succeed(command.env(WHICH, path(name, build)).stdin(Stdio::null()))?;
    Ok(serde_json::from_slice(&fs::read(LEFT)?)?)
}

/// The child's part.
pub(super) fn one() -> Result<()> {
    let program = std::env::var(WHICH).with_context(|| format!("{WHICH} names the program"))?;
    let known = |(name, _): &&(&str, &[&str])| BUILDS.iter().any(|build| path(name, build) == program);
    let (_, arguments) = PROGRAMS.iter().find(known).context("no such program")?;
    let mut command = Command::new(&program);
    command.args(*arguments).stdin(Stdio::null()).stdout(Stdio::null());
    let before = Sums::now()?;
    let ended = command.status();
    let sums = Sums::now()? - before;
    let ended = ended.with_context(|| format!("starting {program}"))?;
    anyhow::ensure!(ended.success(), "{program} ended with {ended}");
    fs::write(LEFT, serde_json::to_vec(&sums)?).context("writing the sums")
}
