//! Periods that adapt to a wished rate, and the ceilings of the driver, on a program whose event rate changes.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::GuestReport;
use super::programs::{built, hpmctl, pid_of, succeed, wait_at_most};

/// Samples per second that are wished for, and the trace of each.
pub(crate) const RATES: [(u64, &str); 2] = [(1000, "thousand.hpm"), (5000, "five-thousand.hpm")];
/// The trace that begins with a thousand samples a second wished for, and what is wished for while it is recorded.
pub(crate) const STEERED: (&str, u64) = ("steered.hpm", 4000);
/// The trace of more records than the ceiling allows, and the ceiling in records per second.
pub(crate) const RECORDS: (&str, u64) = ("records.hpm", 5000);
/// The same in quanta that are longer than the ceiling's window.
pub(crate) const LONG_QUANTA: (&str, u64) = ("long-quanta.hpm", 5000);
/// The trace of more interrupts than the ceiling allows, and the ceiling in interrupts per second.
pub(crate) const PMIS: (&str, u64) = ("pmis.hpm", 2000);

/// Records the traces for the host part, and looks at what hpmctl says.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    for (rate, trace) in RATES {
        succeed(
            hpmctl(&["record", "-e", "load:u", "-F", &rate.to_string(), "-o", trace, "--"])?
                .arg(built("phases")?),
        )?;
    }
    steered()?;
    let often = ["-c", "1009", "--no-randomise"];
    with_ceiling("max_record_rate", RECORDS.1, || record_loops(RECORDS.0, &often))?;
    let in_long_quanta = ["-c", "1009", "--no-randomise", "--quantum", "1000"];
    with_ceiling("max_record_rate", LONG_QUANTA.1, || record_loops(LONG_QUANTA.0, &in_long_quanta))?;
    let by_interrupts = ["-c", "1009", "--no-randomise", "--imprecise"];
    with_ceiling("max_pmi_rate", PMIS.1, || record_loops(PMIS.0, &by_interrupts))?;
    for trace in [RECORDS.0, LONG_QUANTA.0, PMIS.0] {
        report.check(&format!("the report of {trace} says that samples were held back"), || {
            let text = succeed(&mut hpmctl(&["report", trace])?)?.stdout;
            let text = String::from_utf8_lossy(&text);
            ensure!(text.contains("held back"), "it says: {text}");
            Ok(String::new())
        });
    }
    Ok(())
}

/// Within the first of the program's phases, each of which lasts for seconds.
fn steered() -> Result<()> {
    let (trace, rate) = STEERED;
    let mut command = hpmctl(&["record", "-e", "load:u", "-F", "1000", "--control", "-o", trace, "--"])?;
    let mut recorder = command.arg(built("phases")?).spawn()?;
    pid_of("phases")?;
    std::thread::sleep(Duration::from_secs(1));
    succeed(&mut hpmctl(&["control", "rate", &recorder.id().to_string(), &rate.to_string()])?)?;
    let status = wait_at_most(&mut recorder, Duration::from_mins(10))?;
    ensure!(status.success(), "hpmctl ended with {status}");
    Ok(())
}

/// Some 400 million branches in 1150 million instructions, everywhere in the program.
fn record_loops(trace: &str, options: &[&str]) -> Result<()> {
    let mut command = hpmctl(&["record", "-e", "branch:u", "-o", trace])?;
    succeed(command.args(options).arg("--").arg(built("loops")?).args(vec!["x"; 99]))?;
    Ok(())
}

/// Does something while a parameter of the module has another value.
pub(super) fn with_ceiling<T>(
    parameter: &str,
    ceiling: u64,
    action: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let path = format!("/sys/module/hpm/parameters/{parameter}");
    let found = fs::read_to_string(&path).with_context(|| format!("reading {path}"))?;
    fs::write(&path, ceiling.to_string()).with_context(|| format!("writing {path}"))?;
    let done = action();
    fs::write(&path, found.trim()).with_context(|| format!("restoring {path}"))?;
    done
}
