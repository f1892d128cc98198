//! Pictures of every screen of hpmtop while it measures a program with phases.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::GuestReport;
use super::programs::{built, c_program, succeed};

/// The program, which is compiled into the working folder.
pub(crate) const C_PROGRAM: &str = "screens";
/// What the lab's processor counts for it.
const EVENTS: &str = "l1d-load-miss,cycles,instructions";
/// Options of `lab run`: time passes with instructions, or the screen would be minutes behind what it measures.
pub(crate) const OPTIONS: &[&str] = &["--deterministic"];
/// How long the program runs at most; hpmtop ends it before.
const SECONDS: &str = "60";

/// A screen, the keys that lead to it, and what has to be seen.
pub(crate) struct Shown {
    pub(crate) name: &'static str,
    keys: &'static str,
    words: &'static [&'static str],
}

const fn shown(name: &'static str, keys: &'static str, words: &'static [&'static str]) -> Shown {
    Shown { name, keys, words }
}

/// Every screen. A screen that asks for names waits for them.
pub(crate) const SHOWN: [Shown; 6] = [
    shown("processes", "wait=800 1 v", &["screens"]),
    shown("time", "wait=800 2 wait=300", &["screens", "seen"]),
    shown("process", "wait=800 1 Enter wait=500", &["screens (", "walk"]),
    shown("phases", "wait=1500 1 Enter 4 wait=300", &["screens"]),
    shown("locality", "wait=800 1 Enter 5 wait=700", &["screens (", "space"]),
    shown("machine", "wait=800 6", &["What it costs"]),
];

/// Takes them in the lab, by the module.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let (hpmtop, program) = (built("hpmtop")?, c_program(C_PROGRAM)?);
    for shown in &SHOWN {
        report.check(&format!("hpmtop shows {}", shown.name), || {
            let options = ["--source", "driver", "-e", EVENTS];
            take(&hpmtop, &program, &options, Path::new("."), shown)
        });
    }
    Ok(())
}

/// Takes pictures of a screen, as text and as SVG, and looks at the text.
///
/// # Errors
/// hpmtop failed, or does not show what it should.
pub(crate) fn take(
    hpmtop: &Path,
    program: &Path,
    options: &[&str],
    folder: &Path,
    shown: &Shown,
) -> Result<String> {
    let config = folder.join("config.toml");
    std::fs::write(&config, "").context("writing an empty configuration")?;
    let mut command = Command::new(hpmtop);
    command
        .args(["--interval", "100", "--size", "110x32", "--theme", "default", "--keys", shown.keys])
        .args(options)
        .arg("--config")
        .arg(&config);
    for ending in ["svg", "txt"] {
        command.arg("--screenshot").arg(folder.join(format!("hpmtop-{}.{ending}", shown.name)));
    }
    succeed(command.arg("--").arg(program).arg(SECONDS).stdin(Stdio::null()))?;
    let text = std::fs::read_to_string(folder.join(format!("hpmtop-{}.txt", shown.name)))?;
    for word in shown.words {
        ensure!(text.contains(word), "`{word}` is not seen, but\n{text}");
    }
    Ok(String::new())
}
