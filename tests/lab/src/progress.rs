//! Steps: commands that may take long, whose output goes to a log file and whose progress is shown.

use anyhow::{Context, Result, bail};
use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::statvfs::{Statvfs, statvfs};
use std::fs::{self, File};
use std::io::{IsTerminal, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(20);

/// Steps shorter than this are silent: most are there to find out that nothing has to be done.
const QUIET: Duration = Duration::from_millis(700);

/// Runs `command` as the step `title`; its output goes to `log`.
///
/// # Errors
/// When it cannot be started or fails: the message names the step and the log, and ends with the log's tail.
pub(crate) fn step(title: &str, log: &Path, command: &mut Command) -> Result<()> {
    let mut shown = Shown { title, start: Instant::now(), bar: None, announced: false };
    let result = watch(title, log, command, &mut shown);
    shown.finish(result.is_ok());
    result
}

fn watch(title: &str, log: &Path, command: &mut Command, shown: &mut Shown<'_>) -> Result<()> {
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    }
    let out = File::create(log).with_context(|| format!("creating the log {}", log.display()))?;
    let err = out.try_clone().context("sharing the log")?;
    let mut child = command
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()
        .with_context(|| format!("{title}: cannot start {}", command.get_program().display()))?;
    let status = loop {
        if let Some(status) = child.try_wait().with_context(|| format!("{title}: waiting"))? {
            break status;
        }
        shown.tick(log);
        std::thread::sleep(TICK);
    };
    if !status.success() {
        let tail = tail(log, 8000);
        let lines: Vec<&str> = tail.lines().rev().take(40).collect();
        let last: Vec<&str> = lines.into_iter().rev().collect();
        let room = shortage(log);
        bail!(
            "{title} failed ({status}).{room} The log is {}; it ends with:\n{}",
            log.display(),
            last.join("\n")
        );
    }
    Ok(())
}

/// A sentence about a full disk, on which a log has no room for the reason either; else nothing.
fn shortage(log: &Path) -> String {
    const LITTLE: u64 = 512 << 20;
    let free = |disk: Statvfs| disk.blocks_available().saturating_mul(disk.fragment_size());
    match log.parent().and_then(|folder| statvfs(folder).ok()).map(free) {
        Some(bytes) if bytes < LITTLE => {
            format!(" The disk has {} MiB left: free some gigabytes and try again.", bytes >> 20)
        }
        _ => String::new(),
    }
}

/// The last `length` bytes of a file, as far as they can be read: only ever shown to people.
fn tail(path: &Path, length: u64) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = File::open(path)
        && let Ok(size) = file.metadata().map(|m| m.len())
        && file.seek(SeekFrom::Start(size.saturating_sub(length))).is_ok()
        && file.read_to_end(&mut bytes).is_err()
    {
        bytes.clear();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A spinner on a terminal, two plain lines elsewhere.
struct Shown<'a> {
    title: &'a str,
    start: Instant,
    bar: Option<ProgressBar>,
    announced: bool,
}

impl Shown<'_> {
    fn tick(&mut self, log: &Path) {
        if !self.announced && self.start.elapsed() > QUIET {
            self.announce();
        }
        if let Some(bar) = &self.bar {
            let tail = tail(log, 400);
            bar.set_message(tail.lines().last().unwrap_or_default().trim().to_owned());
            bar.tick();
        }
    }

    fn announce(&mut self) {
        self.announced = true;
        if !std::io::stderr().is_terminal() {
            eprintln!("lab: {} ...", self.title);
            return;
        }
        let bar =
            ProgressBar::new_spinner().with_prefix(self.title.to_owned()).with_elapsed(self.start.elapsed());
        if let Ok(style) = ProgressStyle::with_template("{spinner} lab: {prefix} [{elapsed}] {wide_msg:.dim}")
        {
            bar.set_style(style);
        }
        self.bar = Some(bar);
    }

    fn finish(&self, done: bool) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if done && self.announced {
            eprintln!("lab: {}: {:.1} s", self.title, self.start.elapsed().as_secs_f64());
        }
    }
}
