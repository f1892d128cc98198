//! Running the program, with the shim or without.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use libhpm::call_log::{CONFIG, Config, Counting, FOLDER_VARIABLE, REHEARSAL_VARIABLE, logs};
use libhpm::session::{Options, Session, Target};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

use crate::cli::TargetArgs;
use crate::workload::{End, Workload, program_file};

/// The shim's file.
const SHIM: &str = "libhpm_methods.so";
/// Where `make install` puts it, seen from hpmctl.
const INSTALLED: &str = "../lib/hpm";

/// The shim: the file that was asked for, or the one beside hpmctl or where it is installed.
///
/// # Errors
/// There is none.
pub(super) fn shim(asked: Option<&Path>) -> Result<PathBuf> {
    if let Some(path) = asked {
        return fs::canonicalize(path).with_context(|| format!("there is no {}", path.display()));
    }
    let here = env::current_exe().context("cannot tell where hpmctl is")?;
    let folder = here.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(SHIM), folder.join(INSTALLED).join(SHIM), folder.join("deps").join(SHIM)];
    match places.iter().find_map(|path| fs::canonicalize(path).ok()) {
        Some(path) => Ok(path),
        None => bail!(
            "{SHIM} is neither beside hpmctl nor in {}: run `make tools`, or name it with --shim",
            folder.join(INSTALLED).display()
        ),
    }
}

/// The end is told by a signal; in a process with several threads another one may take it.
const LOOK_AFTER: Duration = Duration::from_millis(50);

/// How a run went.
pub(super) struct Ran {
    pub(super) status: i32,
    /// A signal ended the program, or asked for its end.
    pub(super) interrupted: bool,
    pub(super) wall_ms: f64,
}

/// A session that counts nothing: a first one takes the PMU from the kernel's perf and a last one gives it back, which would be part of
/// what the program is seen to do. None where perf is to count.
fn held(config: &Config) -> Option<Session> {
    let (Ok(_), Ok(cycles)) = (&config.encoded, &config.cycles) else { return None };
    let target = Target::Process(std::process::id() as i32);
    let options = Options::new(target).count(cycles.into()).inherit(false);
    (config.counting != Counting::Perf).then(|| Session::open(&options).ok())?
}

/// How often a program is run to see what it takes; the least counts.
const RUNS: usize = 5;

/// Time on a CPU in ns that the shim adds to a process in which it logs, in user mode and in the kernel, beside what it sees itself: its loading,
/// and the end of its session and of its mappings. By `env` with the shim and without, in an empty folder.
///
/// # Errors
/// There is no `env`, or the folder cannot be written to.
pub(super) fn around_set_up(shim: &Path, folder: &Path, config: &Config) -> Result<f64> {
    let _held = held(config);
    let folder = &with_config(folder, config)?;
    let mut least = [i64::MAX; 2];
    for _ in 0..RUNS {
        for (least, rehearse) in least.iter_mut().zip([false, true]) {
            let mut command = Command::new("env");
            command.stdin(Stdio::null()).stdout(Stdio::null()).env_remove(FOLDER_VARIABLE);
            if rehearse {
                command.env("LD_PRELOAD", shim).env(FOLDER_VARIABLE, folder).env(REHEARSAL_VARIABLE, "1");
            }
            let before = children_took()?;
            command.status().context("cannot run env")?;
            *least = (*least).min(children_took()? - before);
        }
    }
    let [without, with] = least.map(|microseconds| microseconds as f64 * 1e3);
    let mut seen = f64::INFINITY;
    for log in logs(folder)?.threads() {
        seen = seen.min(log?.header.cpu.set_up);
    }
    Ok((with - without - if seen.is_finite() { seen } else { 0.0 }).max(0.0))
}

/// Time on a CPU in µs of all processes that have ended.
fn children_took() -> Result<i64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot tell what children took")?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds())
}

/// The folder as the shim is told of it, with what the shim is to do.
fn with_config(folder: &Path, config: &Config) -> Result<PathBuf> {
    fs::write(folder.join(CONFIG), serde_json::to_vec(config)?)
        .with_context(|| format!("cannot write into {}", folder.display()))?;
    Ok(fs::canonicalize(folder)?)
}

/// Runs a command to its end; with a shim and a folder, its functions are logged there.
///
/// # Errors
/// It cannot be run.
pub(super) fn run(command: &[OsString], shim: Option<(&Path, &Path, &Config)>) -> Result<Ran> {
    program_file(command)?;
    let _held = shim.and_then(|(_, _, config)| held(config));
    let mut words: Vec<OsString> = Vec::new();
    if let Some((shim, folder, config)) = shim {
        let folder = with_config(folder, config)?;
        let mut preload = OsString::from("LD_PRELOAD=");
        preload.push(shim);
        if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
            preload.push(":");
            preload.push(others);
        }
        let mut variable = OsString::from(format!("{FOLDER_VARIABLE}="));
        variable.push(folder);
        // Of the program alone: hpmctl's own environment stays as it is.
        words.extend(["env".into(), preload, variable]);
    }
    words.extend(command.iter().cloned());
    let target = TargetArgs {
        pid: None,
        tid: None,
        cgroup: None,
        cpu: None,
        all: false,
        trace: None,
        speed: None,
        duration: None,
        no_inherit: false,
        share: false,
        command: words,
    };
    let mut workload = Workload::new(&target)?;
    let begin = Instant::now();
    workload.begin()?;
    loop {
        if let Some(end) = workload.wait(Some(LOOK_AFTER))? {
            let status = end.of_program().context("the program was stopped")?;
            let (interrupted, wall_ms) =
                (matches!(end, End::Interrupted(_) | End::Killed(_)), begin.elapsed().as_secs_f64() * 1e3);
            return Ok(Ran { status, interrupted, wall_ms });
        }
    }
}
