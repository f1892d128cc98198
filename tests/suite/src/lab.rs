//! Booting the lab for one scenario and collecting what it left.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::guest::GuestReport;
use crate::guest::torture::LONG as TORTURE_LONG;
use crate::machine::{DEBUG_KERNEL, Machine};

/// What one boot produced.
#[derive(Debug)]
pub(crate) struct Boot {
    /// The machine that was booted.
    pub(crate) machine: Machine,
    /// The folder that was the guest's working folder.
    pub(crate) folder: PathBuf,
    /// What the guest part of the scenario reported.
    pub(crate) report: GuestReport,
    /// The PMU model's truth; null when the lab had no PMU.
    pub(crate) truth: Value,
    /// The guest's kernel log.
    pub(crate) kernel_log: String,
}

/// The model's argument by which it follows every access, whatever is measured.
pub(crate) const TRUTH_OF_ALL: &str = "truth-level=micro";

/// Seconds after which a machine is ended. The debug kernel is slower by a factor that grows with the load of this machine; where
/// time is the number of executed instructions, or every access is followed, long programs are run.
fn timeout(machine: &Machine, options: &[&str]) -> &'static str {
    let is_long =
        ["--deterministic", TRUTH_OF_ALL, TORTURE_LONG].iter().any(|option| options.contains(option));
    match machine.kernel.as_str() {
        DEBUG_KERNEL => "7200",
        _ if is_long => "7200",
        _ => "1800",
    }
}

/// Begins to fetch and build one of the lab's kernels and what is made for it, beside other work and with what that leaves of the processor.
///
/// # Errors
/// There is no lab.
pub(crate) fn begin_to_build(root: &Path, kernel: &str) -> Result<Child> {
    Command::new("nice")
        .args(["-n", "19"])
        .arg(root.join("target/release/lab"))
        .args(["build", "--kernel", kernel])
        .current_dir(root)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("target/release/lab cannot be started; `make tools` builds it")
}

/// Waits for what [`begin_to_build`] began.
///
/// # Errors
/// What the lab said.
pub(crate) fn wait_until_built(building: Result<Child>) -> Result<String> {
    let output = building?.wait_with_output().context("waiting for the lab")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::new())
}

/// Where the lab keeps what it has fetched and built.
pub(crate) fn cache(root: &Path) -> PathBuf {
    std::env::var_os("HPM_LAB_DIR").map_or_else(|| root.join("target/lab"), PathBuf::from)
}

/// The folder that is the guest's working folder.
pub(crate) fn folder(root: &Path, name: &str, machine: &Machine) -> PathBuf {
    root.join("target/suite").join(format!("{name}.{}", machine.label()))
}

/// Boots a lab with `options`, runs the guest part `name` in it, and reads what it left.
///
/// # Errors
/// The lab or the guest part could not run to its end; the message holds what was printed.
pub(crate) fn boot(root: &Path, name: &str, machine: &Machine, options: &[&str]) -> Result<Boot> {
    boot_prepared(root, name, machine, options, |_| Ok(()))
}

/// As [`boot`], after `prepare` has put into the guest's working folder what the guest part needs. Options may have the
/// truth written elsewhere; it is then null here.
///
/// # Errors
/// As [`boot`], and those of `prepare`.
pub(crate) fn boot_prepared(
    root: &Path,
    name: &str,
    machine: &Machine,
    options: &[&str],
    prepare: impl FnOnce(&Path) -> Result<()>,
) -> Result<Boot> {
    let folder = folder(root, name, machine);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    prepare(&folder)?;
    let truth = folder.join("truth.json");
    let log = folder.join("kernel.log");
    let mut command = Command::new(root.join("target/release/lab"));
    let has_pmu = !options.contains(&"--no-plugin");
    command.args(["run", "--timeout", timeout(machine, options)]).args(machine.options(has_pmu));
    let keeps_truth = has_pmu && !options.iter().any(|option| option.starts_with("truth="));
    if keeps_truth {
        command.arg("--truth").arg(&truth);
    }
    let output = command
        .arg("--keep-log")
        .arg(&log)
        .args(options)
        .arg("--")
        .arg(root.join("target/release/suite"))
        .args(["guest", guest_part(name)])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .output()
        .context("target/release/lab cannot be started; `make tools` builds it")?;
    fs::write(folder.join("stdout"), &output.stdout)?;
    fs::write(folder.join("stderr"), &output.stderr)?;
    if !output.status.success() {
        bail!("the lab ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    let report = fs::read(folder.join(crate::guest::REPORT)).context("the guest left no report")?;
    Ok(Boot {
        machine: machine.clone(),
        report: serde_json::from_slice(&report).context("the guest's report")?,
        truth: if keeps_truth {
            serde_json::from_slice(&fs::read(&truth).context("the plugin left no truth")?)?
        } else {
            Value::Null
        },
        kernel_log: fs::read_to_string(&log).unwrap_or_default(),
        folder,
    })
}

/// A scenario's name may say more than the guest part's, after a dot: `torture.million`.
fn guest_part(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// Compiles a program in C or C++ of tests/guest into the guest's working folder.
///
/// # Errors
/// There is no compiler, or it fails.
pub(crate) fn compile(root: &Path, folder: &Path, name: &str) -> Result<()> {
    compile_with(root, folder, name, &[])
}

/// As [`compile`], with further options of the compiler.
///
/// # Errors
/// As [`compile`].
pub(crate) fn compile_with(root: &Path, folder: &Path, name: &str, options: &[&str]) -> Result<()> {
    compile_as(root, folder, name, name, options)
}

/// As [`compile_with`], into a program of another name.
///
/// # Errors
/// As [`compile`].
pub(crate) fn compile_as(
    root: &Path,
    folder: &Path,
    name: &str,
    program: &str,
    options: &[&str],
) -> Result<()> {
    let c = root.join(format!("tests/guest/{name}.c"));
    let (compiler, source) = if c.exists() { ("cc", c) } else { ("c++", c.with_extension("cpp")) };
    let compiled = Command::new(compiler)
        .args(["-O2", "-g", "-pthread"])
        .args(options)
        .arg("-I")
        .arg(root.join("libhpm/include"))
        .arg("-o")
        .arg(folder.join(program))
        .arg(source)
        .status()
        .with_context(|| format!("{compiler} cannot be started: install compilers of C and C++"))?;
    ensure!(compiled.success(), "{compiler} ended with {compiled}");
    Ok(())
}
