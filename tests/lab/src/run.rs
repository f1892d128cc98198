//! One run, from the command line to the exit status.

use crate::cli::Options;
use crate::qemu::{self, Machine, RunFiles};
use crate::ready::{Ready, ready};
use crate::rundir::RunDir;
use crate::tree::{Tree, discard};
use crate::watch::{self, Ended};
use crate::{clock, console, initramfs, paths, profile, sandbox};
use anyhow::{Context, Result, bail};
use lab_init::{GUEST_DIR, Outcome, RunSpec, Share, Tool};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Programs of the tree that the guest finds under these names: perf, and kmod under its many names.
const TOOLS: [(&str, &str); 6] = [
    ("perf", "usr/bin/perf"),
    ("insmod", "usr/bin/kmod"),
    ("rmmod", "usr/bin/kmod"),
    ("lsmod", "usr/bin/kmod"),
    ("modinfo", "usr/bin/kmod"),
    ("modprobe", "usr/bin/kmod"),
];

/// Files of a run that go when it ends.
const INITRAMFS: &str = "initramfs.cpio";
const PLUGIN: &str = "plugin.so";
const DISK: &str = "disk.img";

/// Exit status after a time-out, as timeout(1) has it.
const STATUS_TIMEOUT: u8 = 124;

/// Runs `argv` (or, without one, a shell on the terminal); returns the lab's exit status.
///
/// # Errors
/// When a step fails, the guest dies or its kernel complains: the message names the log.
pub(crate) fn run(options: &Options, argv: Option<&[String]>) -> Result<u8> {
    let cache = paths::cache()?;
    let cpus = options.cpus()?;
    let (cpu, threads) = profile::cpu(&options.profile, cpus)?;
    let tsc_khz = clock::measure_tsc_khz();
    let terminal = if argv.is_none() { Some(terminal_size()?) } else { None };
    let Ready { tree, kernel, init, plugin, hpm, build_lock, tree_lock: _tree_lock } =
        ready(&cache, options)?;
    let dir = RunDir::create(&cache, options.name.as_deref())?;
    let spec = RunSpec {
        argv: argv.map_or_else(shell, <[String]>::to_vec),
        env: environment(),
        cwd: std::env::current_dir().context("asking for the working folder")?,
        shares: shares(&options.out)?,
        modules: initramfs::module_names(&kernel.loaded())?,
        hpm_params: hpm.as_ref().map(|_| options.module_param.join(" ")),
        tools: tools(&tree),
        module_tree: kernel.module_tree(&tree),
        terminal,
    };
    initramfs::write(&dir.file(INITRAMFS), &kernel.loaded(), &init, hpm.as_deref(), &spec)?;
    let plugin = plugin.map(|file| copy_plugin(&file, options, &dir)).transpose()?;
    drop(build_lock);
    let machine = Machine {
        kernel: kernel.vmlinux(),
        cpu,
        cpus,
        threads,
        memory_mib: options.memory,
        instruction_ns: options.instruction_ns(),
        // A panic there has been printed; the guest then measures by itself.
        tsc_khz: tsc_khz.join().unwrap_or_default(),
        append: options.append.clone(),
        plugin,
        disk: options.disk.map(|mib| make_disk(&dir, mib)).transpose()?,
        shares: spec.shares,
        terminal: terminal.is_some(),
    };
    boot(&tree, &machine, options, &dir)
}

/// Boots the machine, waits for its end and keeps what it leaves.
fn boot(tree: &Tree, machine: &Machine, options: &Options, dir: &RunDir) -> Result<u8> {
    let (archive, console, status) = (dir.file(INITRAMFS), dir.file("console.log"), dir.file("status.json"));
    let files = RunFiles { initramfs: &archive, console: &console, status: &status };
    let run = || {
        let mut command = qemu::command(tree, machine, &files);
        watch::watch(&mut command, machine.terminal, &dir.file("qemu.log"), options.timeout)
    };
    let mut ended = run();
    if matches!(ended, Ok(Ended::Exited)) && console::died_of_patching(&read(&console)) {
        eprintln!(
            "lab: the guest's kernel met a breakpoint of its own while it patched its code, before anything of hpm ran; booting again"
        );
        ended = run();
    }
    discard(&archive)?;
    discard(&dir.file(PLUGIN))?;
    discard(&dir.file(DISK))?;
    dir.publish()?;
    let verdict = ended.and_then(|ended| verdict(&ended, options, dir));
    let kept = keep(&console, options.keep_log.as_deref())
        .and_then(|()| keep(&dir.file("truth.json"), options.truth.as_deref()));
    // A failed run is worth more words than the files it did not leave.
    verdict.and_then(|status| kept.map(|()| status))
}

/// Turns how QEMU ended and what PID 1 reported into an exit status.
fn verdict(ended: &Ended, options: &Options, dir: &RunDir) -> Result<u8> {
    let console = dir.file("console.log");
    let log = read(&console);
    let complaint = console::first_complaint(&log);
    let hint = || complaint.map(|line| format!(" The guest's kernel said: {line}")).unwrap_or_default();
    match ended {
        Ended::Interrupted(signal) => return Ok(u8::try_from(128 + signal).unwrap_or(u8::MAX)),
        Ended::TimedOut => {
            eprintln!(
                "lab: the machine was killed after {} s (--timeout).{} Its kernel log is {}",
                options.timeout,
                hint(),
                console.display()
            );
            return Ok(STATUS_TIMEOUT);
        }
        Ended::Failed(status) => {
            let text = fs::read_to_string(dir.file("qemu.log")).unwrap_or_default();
            bail!("QEMU failed ({status}); see {}:\n{}", dir.file("qemu.log").display(), text.trim());
        }
        Ended::Exited => {}
    }
    let report = fs::read(dir.file("status.json")).unwrap_or_default();
    let Ok(outcome) = serde_json::from_slice::<Outcome>(&report) else {
        bail!("the guest died before the command ended.{} Its kernel log is {}", hint(), console.display());
    };
    if let (Some(line), false) = (complaint, options.allow_kernel_warnings) {
        bail!("the guest's kernel complained: {line}\nIts log is {}", console.display());
    }
    Ok(match outcome {
        Outcome::Exited(status) => u8::try_from(status & 0xff).unwrap_or(u8::MAX),
        Outcome::Signalled(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        Outcome::Failed(reason) => bail!("in the guest: {reason}. Its kernel log is {}", console.display()),
    })
}

fn read(log: &Path) -> String {
    fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn copy_plugin(plugin: &Path, options: &Options, dir: &RunDir) -> Result<(PathBuf, Vec<String>)> {
    // A copy, because a later build may replace the file before QEMU opens it.
    let copy = dir.file(PLUGIN);
    fs::copy(plugin, &copy).with_context(|| format!("copying the plugin {}", plugin.display()))?;
    let truth = dir.file("truth.json").to_string_lossy().into_owned();
    let mut args = vec![format!("profile={}", options.profile), format!("truth={truth}")];
    args.extend(options.plugin_arg.iter().cloned());
    Ok((copy, args))
}

/// An empty file, which takes no room before the guest writes to it.
fn make_disk(dir: &RunDir, mib: u32) -> Result<PathBuf> {
    let path = dir.file(DISK);
    let made = fs::File::create(&path).and_then(|file| file.set_len(u64::from(mib) << 20));
    made.with_context(|| format!("creating {}", path.display()))?;
    Ok(path)
}

fn keep(from: &Path, to: Option<&Path>) -> Result<()> {
    if let Some(to) = to {
        fs::copy(from, to).with_context(|| format!("copying {} to {}", from.display(), to.display()))?;
    }
    Ok(())
}

fn shell() -> Vec<String> {
    vec![std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".to_owned())]
}

/// The lab's environment, with the lab's tools first in PATH. Variables that are not UTF-8 are left out.
fn environment() -> Vec<(String, String)> {
    let utf8 = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    let mut env: Vec<(String, String)> =
        std::env::vars_os().filter_map(utf8).filter(|(name, _)| name != "PATH").collect();
    let path = std::env::var("PATH").unwrap_or_else(|_| "/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
    env.push(("PATH".to_owned(), format!("{GUEST_DIR}/bin:{path}")));
    env
}

fn tools(tree: &Tree) -> Vec<Tool> {
    let tool = |(name, path): (&str, &str)| Tool {
        name: name.to_owned(),
        script: sandbox::script(&tree.dir, path, name),
    };
    TOOLS.into_iter().map(tool).collect()
}

/// The folders the guest may write to: the working folder and `out`, without those that lie in another.
fn shares(out: &[PathBuf]) -> Result<Vec<Share>> {
    let mut paths = vec![std::env::current_dir().context("asking for the working folder")?];
    for path in out {
        fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))?;
        paths.push(path.canonicalize().with_context(|| format!("resolving {}", path.display()))?);
    }
    Ok(outermost(paths))
}

/// The root itself is left out: sharing it would give the guest the whole machine to write to.
fn outermost(mut paths: Vec<PathBuf>) -> Vec<Share> {
    paths.retain(|path| path != Path::new("/"));
    paths.sort();
    paths.dedup();
    let all = paths.clone();
    paths.retain(|path| !all.iter().any(|other| other != path && path.starts_with(other)));
    let share = |(number, path)| Share { tag: format!("share{number}"), path };
    paths.into_iter().enumerate().map(share).collect()
}

fn terminal_size() -> Result<(u16, u16)> {
    let output = Command::new("stty").arg("size").stdin(std::process::Stdio::inherit()).output();
    let output = output.context("running stty size")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace().filter_map(|number| number.parse().ok());
    let size = numbers.next().zip(numbers.next());
    size.context("lab shell needs a terminal: use `lab run -- COMMAND` otherwise")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_outermost_folders_are_shared_and_never_the_root() {
        let shares = outermost(["/", "/a/b", "/a", "/ab", "/a"].map(PathBuf::from).to_vec());
        let paths: Vec<&str> = shares.iter().filter_map(|share| share.path.to_str()).collect();
        assert_eq!(paths, ["/a", "/ab"]);
        assert_ne!(shares[0].tag, shares[1].tag);
    }
}
