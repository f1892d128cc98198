//! `hpmtop` in a real terminal: tmux is the terminal, a made-up trace is replayed, every documented key is pressed and what is seen
//! is checked; then the terminal has to be as it was, however the program ended.
//!
//! tmux is taken from this machine, or fetched into `target/consumers` without root.

pub(crate) mod bench;
pub(crate) mod pictures;
pub(crate) mod ribbon;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::check::Tally;
use crate::consumers::tools::{debian, output};

/// Longest time until something is seen.
const PATIENCE: Duration = Duration::from_secs(10);

/// What pressing a key has to bring about.
struct Expected {
    /// The action's place and name.
    action: (&'static str, &'static str),
    /// Keys before it, and behind it.
    before: &'static [&'static str],
    after: &'static [&'static str],
    /// What is seen then; nothing in particular, but something else than before, when empty.
    shows: &'static str,
}

const fn expect(
    place: &'static str,
    name: &'static str,
    before: &'static [&'static str],
    after: &'static [&'static str],
    shows: &'static str,
) -> Expected {
    Expected { action: (place, name), before, after, shows }
}

/// For every action. The replay stands at 1 s; rows are batch, server and cron, slots are 20 ms long.
const EXPECTED: [Expected; 59] = [
    expect("everywhere", "quit", &[], &[], "ended=0"),
    expect("everywhere", "help", &[], &[], "help: j and k scroll"),
    expect("everywhere", "back", &["2"], &[], "off%"),
    expect("everywhere", "palette", &[], &[], " commands "),
    expect("everywhere", "next-screen", &[], &[], "markers"),
    expect("everywhere", "previous-screen", &[], &[], "What it costs"),
    expect("everywhere", "freeze", &[], &[], "frozen"),
    expect("everywhere", "down", &[], &["Enter"], "server (100)"),
    expect("everywhere", "up", &["j", "j"], &["Enter"], "server (100)"),
    expect("everywhere", "page-down", &[], &["Enter"], "cron (300)"),
    expect("everywhere", "page-up", &["G"], &["Enter"], "batch (200)"),
    expect("everywhere", "top", &["G"], &["Enter"], "batch (200)"),
    expect("everywhere", "bottom", &[], &["Enter"], "cron (300)"),
    expect("everywhere", "left", &["2"], &[], "selected:"),
    expect("everywhere", "right", &["2", "h", "h"], &[], "selected:"),
    expect("everywhere", "open", &[], &[], "samples of l1d-load-miss"),
    expect("everywhere", "search", &[], &["c", "r", "o", "n", "Enter", "Enter"], "cron (300)"),
    expect("everywhere", "search-next", &["/", "r", "Enter"], &["Enter"], "cron (300)"),
    expect("everywhere", "search-previous", &["/", "r", "Enter"], &["Enter"], "cron (300)"),
    expect("everywhere", "record", &[], &[], "record to the folder: hpmtop.hpm"),
    expect("everywhere", "screenshot", &[], &[], "write the screen to"),
    expect("everywhere", "dump", &[], &[], "write what is seen to"),
    expect("everywhere", "theme", &[], &[], "colours: colour-blind"),
    expect("everywhere", "save", &[], &[], "saved to"),
    expect("everywhere", "suspend", &[], &[], "Stopped"),
    expect("replay", "pause", &[], &[], "▶"),
    expect("replay", "step", &[], &[], "×1 1.020 s"),
    expect("replay", "step-back", &[], &[], "×1 0.980 s"),
    expect("replay", "faster", &[], &[], "×2 "),
    expect("replay", "slower", &[], &[], "×0.5 "),
    expect("replay", "jump", &[], &["1", "5", "0", "m", "s", "Enter"], "×1 0.150 s"),
    expect("replay", "next-marker", &[], &[], "×1 1.100 s"),
    expect("replay", "previous-marker", &[], &[], "×1 0.700 s"),
    expect("replay", "next-phase", &[], &[], ""),
    expect("processes", "sort-next", &[], &[], "off%▾"),
    expect("processes", "sort-previous", &[">"], &[], "cpu%▾"),
    expect("processes", "reverse", &[], &[], "cpu%▴"),
    expect("processes", "rows", &[], &[], "rows are threads"),
    expect("processes", "fold", &["v", "v", "j"], &[], "+ server"),
    expect("processes", "filter", &[], &["p", "i", "d", ">", "2", "5", "0", "Enter"], "filter: pid>250"),
    expect("processes", "hide-idle", &[], &[], "what did not run is left out"),
    expect("processes", "hide-kernel", &[], &[], "threads of the kernel are left out"),
    expect("processes", "columns", &[], &[], " columns "),
    expect("time", "zoom-in", &[], &[], "300.0 ms seen"),
    expect("time", "zoom-out", &[], &[], "1.20 s seen"),
    expect("time", "range", &["h"], &["h", "h"], " … "),
    expect("time", "lanes", &[], &[], "█ batch"),
    expect("time", "metric", &[], &[], "off% of all"),
    expect("time", "whose", &["1", "Enter", "2"], &[], "of batch (200)"),
    expect("process", "lines", &["1", "Enter"], &[], "line "),
    expect("process", "event", &["1", "Enter"], &[], "samples of l1d-load-miss"),
    expect("process", "zero", &["1", "Enter"], &[], " 0 samples of"),
    expect("locality", "part", &["1", "j", "Enter", "5"], &["v", "v"], "threads and bytes"),
    expect("locality", "event", &["1", "j", "Enter", "5"], &[], "samples in"),
    expect("locality", "zero", &["1", "j", "Enter", "5"], &[], "): 0 samples in"),
    expect(
        "locality",
        "applied",
        &["1", "j", "Enter", "5", "sees=heap", "v", "v", "v", "v", "v"],
        &[],
        "applied ",
    ),
    expect("phases", "zoom-in", &[], &[], ""),
    expect("phases", "zoom-out", &[], &[], ""),
    // It has no keys of its own; its place is kept so that every screen is named.
    expect("machine", "", &[], &[], "What it costs"),
];

/// Runs all of it.
pub(crate) fn check(root: &Path, tally: &mut Tally) {
    let mut pane = None;
    tally.run("hpmtop: tmux and a made-up trace", || {
        pane = Some(Pane::open(root)?);
        Ok(String::new())
    });
    let Some(pane) = pane else { return };
    tally.run("hpmtop: every documented key does what it says", || every_key(&pane));
    tally.run("hpmtop: the terminal is as it was after a signal", || restored(&pane));
    tally.run("hpmtop: the terminal is as it was after a panic", || panics(&pane, root));
    tally.run("hpmtop: it goes on after it was stopped", || goes_on(&pane));
    tally.run("hpmtop: a terminal that changes its size", || resizes(&pane));
    tally.run("hpmtop: what cannot be shown is told in a sentence", || bad_input(&pane));
}

/// A terminal.
struct Pane {
    tmux: PathBuf,
    libraries: PathBuf,
    hpmtop: PathBuf,
    folder: PathBuf,
}

/// An example of hpmtop. Of the whole workspace, whose examples the unit tests have built already; no other package has one of this name.
fn example(root: &Path, name: &str) -> Result<PathBuf> {
    let build = ["build", "--quiet", "--release", "--workspace", "--example", name];
    output(Command::new("cargo").args(build).current_dir(root))?;
    Ok(root.join("target/release/examples").join(name))
}

impl Pane {
    fn open(root: &Path) -> Result<Self> {
        let unpacked = root.join("target/consumers/debian");
        fs::create_dir_all(&unpacked)?;
        let tmux = debian(&unpacked, "tmux", &["usr/bin"], "tmux")?;
        let folder = root.join("target/suite/screen");
        if folder.exists() {
            fs::remove_dir_all(&folder).context("removing what an earlier check left")?;
        }
        fs::create_dir_all(&folder)?;
        output(Command::new(example(root, "made")?).arg(folder.join("made.hpm")))?;
        let libraries = unpacked.join("usr/lib/x86_64-linux-gnu");
        let pane = Self { tmux, libraries, hpmtop: root.join("target/release/hpmtop"), folder };
        pane.begin()?;
        Ok(pane)
    }

    fn tmux(&self, arguments: &[&str]) -> Result<String> {
        // A server of its own, that knows nothing of the user's configuration.
        let socket = self.folder.join("tmux.socket");
        let mut command = Command::new(&self.tmux);
        command.arg("-S").arg(socket).args(["-f", "/dev/null"]).args(arguments);
        command
            .env("LD_LIBRARY_PATH", &self.libraries)
            .env_remove("TMUX")
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null());
        output(&mut command)
    }

    /// An interactive shell in a new terminal, or anew in the same one.
    fn begin(&self) -> Result<()> {
        let folder = self.folder.to_string_lossy().into_owned();
        let shell = "env PS1='$ ' HOME=. XDG_CONFIG_HOME=. NO_COLOR= bash --norc --noprofile -i";
        if self.tmux(&["has-session"]).is_ok() {
            self.tmux(&["resize-window", "-x", "100", "-y", "30"])?;
            self.tmux(&["respawn-pane", "-k", "-c", &folder, shell])?;
        } else {
            self.tmux(&["new-session", "-d", "-x", "100", "-y", "30", "-c", &folder, shell])?;
        }
        self.waits("an empty screen with a prompt", |seen| seen.trim() == "$").map(drop)
    }

    /// Presses keys; `sees=TEXT` among them waits until that is seen.
    fn press(&self, keys: &[&str]) -> Result<()> {
        for key in keys {
            if let Some(text) = key.strip_prefix("sees=") {
                self.sees(text)?;
                continue;
            }
            let name = match *key {
                "Shift-Tab" => "BTab",
                "Esc" => "Escape",
                "Backspace" => "BSpace",
                other => other,
            };
            match name.strip_prefix("Ctrl-") {
                Some(letter) => self.tmux(&["send-keys", &format!("C-{letter}")])?,
                None if name.chars().count() == 1 => self.tmux(&["send-keys", "-l", name])?,
                None => self.tmux(&["send-keys", name])?,
            };
        }
        Ok(())
    }

    fn seen(&self) -> Result<String> {
        self.tmux(&["capture-pane", "-p"])
    }

    /// Waits until something is seen.
    fn waits(&self, what: &str, holds: impl Fn(&str) -> bool) -> Result<String> {
        let begun = Instant::now();
        loop {
            let seen = self.seen()?;
            if holds(&seen) {
                return Ok(seen);
            }
            if begun.elapsed() > PATIENCE {
                bail!("{what} was not seen, but\n{seen}");
            }
            sleep(Duration::from_millis(30));
        }
    }

    fn sees(&self, text: &str) -> Result<String> {
        self.waits(&format!("`{text}`"), |seen| seen.contains(text))
    }

    /// Types a command line.
    fn types(&self, line: &str) -> Result<()> {
        self.tmux(&["send-keys", "-l", line])?;
        self.press(&["Enter"])
    }

    /// The replay at 1 s, in a new terminal.
    fn replay(&self) -> Result<()> {
        self.begin()?;
        let _ = fs::remove_dir_all(self.folder.join("hpmtop"));
        self.types(&format!("{} --replay made.hpm --at 1s; echo ended=$?", self.hpmtop.display()))?;
        self.sees("paused ×1 1.000 s").map(drop)
    }
}

impl Drop for Pane {
    fn drop(&mut self) {
        let _ = self.tmux(&["kill-server"]);
    }
}

/// Presses every key that `hpmtop --list-keys` tells.
fn every_key(pane: &Pane) -> Result<String> {
    let listed = output(Command::new(&pane.hpmtop).arg("--list-keys").env("XDG_CONFIG_HOME", &pane.folder))?;
    let screens = ["processes", "time", "process", "phases", "locality", "machine"];
    let mut known: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut pressed = 0;
    for line in listed.lines() {
        let [place, name, keys, _] = line.split('\t').collect::<Vec<_>>()[..] else { bail!("`{line}`") };
        let expected = EXPECTED.iter().find(|expected| expected.action == (place, name));
        let expected = expected.with_context(|| format!("nobody has said what {name} does ({place})"))?;
        known.insert(expected.action);
        let number = screens.iter().position(|screen| *screen == place).map_or(1, |at| at + 1).to_string();
        for key in keys.split(' ') {
            pane.replay()?;
            pane.press(&[&number])?;
            pane.press(expected.before)?;
            sleep(Duration::from_millis(150));
            let before = pane.seen()?;
            pane.press(&[key])?;
            pane.press(expected.after)?;
            let holds = |seen: &str| {
                if expected.shows.is_empty() { seen != before } else { seen.contains(expected.shows) }
            };
            pane.waits(&format!("`{}` after {key} ({name})", expected.shows), holds)?;
            pressed += 1;
        }
    }
    let missing: Vec<_> = EXPECTED
        .iter()
        .filter(|expected| !expected.action.1.is_empty() && !known.contains(&expected.action))
        .collect();
    ensure!(missing.is_empty(), "{} is no action any more", missing[0].action.1);
    Ok(format!("{pressed} keys of {} actions", known.len()))
}

/// The number of the program's process: the last one below the terminal's shell.
fn pid(pane: &Pane) -> Result<String> {
    let shell = pane.tmux(&["display-message", "-p", "#{pane_pid}"])?;
    let mut last = shell.trim().to_owned();
    loop {
        let children = fs::read_to_string(format!("/proc/{last}/task/{last}/children"))?;
        match children.split_whitespace().last() {
            Some(child) => last = child.to_owned(),
            None => return Ok(last),
        }
    }
}

/// What `stty` says before and after.
fn restored(pane: &Pane) -> Result<String> {
    for signal in ["TERM", "INT", "HUP"] {
        pane.begin()?;
        // What is typed is not what is printed.
        pane.types("stty -a > before; echo marked$((1))")?;
        pane.sees("marked1")?;
        pane.types(&format!(
            "{} --replay made.hpm --at 1s; stty -a > after; echo over$((1))",
            pane.hpmtop.display()
        ))?;
        pane.sees("paused ×1 1.000 s")?;
        output(Command::new("kill").args([&format!("-{signal}"), &pid(pane)?]))?;
        let seen = pane.sees("over1")?;
        ensure!(seen.contains("marked1"), "after {signal} the screen is not the one before:\n{seen}");
        let [before, after] = ["before", "after"].map(|name| fs::read_to_string(pane.folder.join(name)));
        ensure!(before? == after?, "after {signal} the terminal is set otherwise");
    }
    Ok("TERM, INT, HUP".to_owned())
}

fn panics(pane: &Pane, root: &Path) -> Result<String> {
    let program = example(root, "panics")?;
    pane.begin()?;
    pane.types(&format!(
        "stty -a > before; {}; echo ended=$?; stty -a > after; echo over$((1))",
        program.display()
    ))?;
    let seen = pane.sees("over1")?;
    ensure!(
        seen.contains("ended=101") && seen.contains("this was asked for"),
        "the panic is not told:\n{seen}"
    );
    let [before, after] = ["before", "after"].map(|name| fs::read_to_string(pane.folder.join(name)));
    ensure!(before? == after?, "the terminal is set otherwise");
    Ok(String::new())
}

fn goes_on(pane: &Pane) -> Result<String> {
    for stop in ["key", "TSTP"] {
        pane.replay()?;
        if stop == "key" {
            pane.press(&["Ctrl-z"])?;
        } else {
            output(Command::new("kill").args(["-TSTP", &pid(pane)?]))?;
        }
        pane.sees("Stopped")?;
        pane.types("fg")?;
        pane.sees("paused ×1 1.000 s")?;
        pane.press(&["."])?;
        pane.sees("×1 1.020 s")?;
    }
    Ok("by Ctrl-z and by SIGTSTP".to_owned())
}

fn resizes(pane: &Pane) -> Result<String> {
    pane.replay()?;
    for (width, height, shows) in
        [("200", "60", "1 processes"), ("40", "10", "too small: 40×10"), ("80", "24", "1 processes")]
    {
        pane.tmux(&["resize-window", "-x", width, "-y", height])?;
        pane.sees(shows)?;
    }
    Ok(String::new())
}

fn bad_input(pane: &Pane) -> Result<String> {
    let refused = |arguments: &[&str], sentence: &str| -> Result<()> {
        let output = Command::new(&pane.hpmtop).args(arguments).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!output.status.success() && said.contains(sentence), "{arguments:?} said {said}");
        Ok(())
    };
    refused(&[], "this is not a terminal")?;
    refused(&["-p", "4194000", "--once"], "4194000")?;
    refused(&["--replay", "/etc", "--once"], "/etc")?;
    refused(&["--once", "--cgroup", "/no/such/group"], "there is no control group /no/such/group")?;
    refused(&["--once", "-e", "no-such-event"], "no-such-event")?;
    refused(&["--once", "--", "/no/such/program"], "/no/such/program")?;
    Ok(String::new())
}
