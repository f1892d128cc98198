//! Pictures of every screen of hpmtop while it measures a program with phases, and what its ribbon of phases showed when.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::GuestReport;
use super::programs::{built, c_program, wait_at_most};

/// The program, which is compiled into the working folder.
pub(crate) const C_PROGRAM: &str = "screens";
/// How it is compiled: with everything in it, so that no library's debug information has to be read, which in the lab takes minutes.
pub(crate) const C_OPTIONS: &[&str] = &["-static"];
/// Options of `lab run`: time passes with instructions, or the screen would be minutes behind what it measures.
pub(crate) const OPTIONS: &[&str] = &["--deterministic"];
/// The trace that hpmtop records while its ribbon is watched, and what it printed then.
pub(crate) const RIBBON_TRACE: &str = "ribbon.hpm";
pub(crate) const RIBBON_SEEN: &str = "ribbon.jsonl";
/// Longest time for one of them, by the clock of the machine that takes it.
const LIMIT: Duration = Duration::from_secs(20);

/// What is measured, and in which times. In the lab a second is 500 million instructions, each of which the emulator takes its time for.
pub(crate) struct Way {
    /// Options of hpmtop.
    pub(crate) options: &'static [&'static str],
    /// The event whose phases are watched, as `--phase-event` has it.
    pub(crate) event: &'static str,
    /// Milliseconds of an interval of the screen, of an interval of phases, and of a phase of the program.
    pub(crate) interval_ms: u32,
    pub(crate) phase_interval_ms: u32,
    pub(crate) phase_ms: u32,
    /// How long the ribbon is watched.
    pub(crate) seconds: &'static str,
    /// How much the program lets others go first: where there is one CPU, hpmtop would else be behind it.
    pub(crate) nice: &'static str,
}

/// In the lab, by the module: user mode alone, so that nobody reads the kernel's hundreds of thousands of symbols.
pub(crate) const LAB: Way = Way {
    options: &["--source", "driver", "-e", "l1d-load-miss:u,cycles:u,instructions:u"],
    event: "l1d-load-miss",
    interval_ms: 20,
    phase_interval_ms: 4,
    phase_ms: 24,
    seconds: "1.5",
    nice: "19",
};

/// On any machine, by what software counts. Quanta are up to 10 ms long there.
pub(crate) const HOST: Way = Way {
    options: &["--source", "perf", "-e", "cpu-clock,page-faults"],
    event: "page-faults",
    interval_ms: 100,
    phase_interval_ms: 20,
    phase_ms: 120,
    seconds: "6",
    nice: "0",
};

/// A screen, the keys that lead to it, and what has to be seen.
pub(crate) struct Shown {
    pub(crate) name: &'static str,
    keys: &'static str,
    words: &'static [&'static str],
}

const fn shown(name: &'static str, keys: &'static str, words: &'static [&'static str]) -> Shown {
    Shown { name, keys, words }
}

/// Every screen, once it has something to show.
pub(crate) const SHOWN: [Shown; 6] = [
    shown("processes", "wait=300 1 v sees=screens", &["screens"]),
    shown("time", "wait=300 2 sees=screens", &["screens", "seen"]),
    shown("process", "wait=300 1 Enter sees=walk", &["screens (", "walk"]),
    shown("phases", "wait=400 1 Enter 4 sees=▒", &["screens"]),
    shown("locality", "wait=300 1 Enter 5 sees=space", &["screens (", "space"]),
    shown("machine", "wait=300 6", &["What it costs"]),
];

/// Takes them in the lab, by the module. What fails or takes too long leaves the others as they are.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let (hpmtop, program) = (built("hpmtop")?, c_program(C_PROGRAM)?);
    for shown in &SHOWN {
        let name = format!("hpmtop shows {}", shown.name);
        report.check(&name, || take(&hpmtop, &program, &LAB, Path::new("."), shown));
        // For who waits, and if the machine is ended before its time.
        println!(
            "{name}: {}",
            if report.checks.last().is_some_and(|check| check.verdict.is_ok()) { "yes" } else { "no" }
        );
    }
    report.check("hpmtop tells its ribbon while it records", || {
        follow(&hpmtop, &program, &LAB, Path::new("."))
    });
    Ok(())
}

/// Takes pictures of a screen, as text and as SVG, and looks at the text.
///
/// # Errors
/// hpmtop failed, took too long, or does not show what it should.
pub(crate) fn take(hpmtop: &Path, program: &Path, way: &Way, folder: &Path, shown: &Shown) -> Result<String> {
    let mut command = hpmtop_with(hpmtop, way, folder)?;
    command.args(["--size", "110x32", "--theme", "default", "--keys", shown.keys]);
    for ending in ["svg", "txt"] {
        command.arg("--screenshot").arg(folder.join(format!("hpmtop-{}.{ending}", shown.name)));
    }
    let (endless, phase) = (LIMIT.as_secs().to_string(), way.phase_ms.to_string());
    command.arg("--").arg(program).args([endless.as_str(), &phase, way.nice]);
    finish(command, folder, shown.name)?;
    let text = std::fs::read_to_string(folder.join(format!("hpmtop-{}.txt", shown.name)))?;
    for word in shown.words {
        ensure!(text.contains(word), "`{word}` is not seen, but\n{text}");
    }
    Ok(String::new())
}

/// Lets hpmtop tell its ribbon again and again, while it records what it makes the ribbon of.
///
/// # Errors
/// hpmtop failed, or took too long.
pub(crate) fn follow(hpmtop: &Path, program: &Path, way: &Way, folder: &Path) -> Result<String> {
    let seen = File::create(folder.join(RIBBON_SEEN)).context("creating a file for what hpmtop prints")?;
    let mut command = hpmtop_with(hpmtop, way, folder)?;
    command
        .args(["--screen", "phases", "--batch", "--format", "json", "--record"])
        .arg(folder.join(RIBBON_TRACE));
    command.arg("--").arg(program).args([way.seconds, &way.phase_ms.to_string(), way.nice]).stdout(seen);
    finish(command, folder, "ribbon")?;
    Ok(String::new())
}

/// hpmtop with the options of a way, and without anybody's configuration.
fn hpmtop_with(hpmtop: &Path, way: &Way, folder: &Path) -> Result<Command> {
    let config = folder.join("config.toml");
    std::fs::write(&config, "").context("writing an empty configuration")?;
    let mut command = Command::new(hpmtop);
    command.args(way.options).args(["--interval", &way.interval_ms.to_string()]);
    command.args(["--phase-event", way.event, "--phase-interval", &way.phase_interval_ms.to_string()]);
    command.arg("--config").arg(config).stdin(Stdio::null());
    Ok(command)
}

/// Runs it to its end, but not for longer than [`LIMIT`].
fn finish(mut command: Command, folder: &Path, name: &str) -> Result<()> {
    let errors = folder.join(format!("hpmtop-{name}.err"));
    command.stderr(File::create(&errors).context("creating a file for errors")?);
    let mut child = command.spawn().context("hpmtop cannot be started")?;
    let said = || std::fs::read_to_string(&errors).unwrap_or_default();
    let ended =
        wait_at_most(&mut child, LIMIT).with_context(|| format!("hpmtop, which said: {}", said().trim()))?;
    if !ended.success() {
        bail!("hpmtop ended with {ended}: {}", said().trim());
    }
    Ok(())
}
