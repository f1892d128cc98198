//! Markers that a program sets in its own threads.

use anyhow::Result;

use super::programs::{built, c_program, hpmctl, record, succeed};

/// Traces, each with the rounds that each of two threads marks, and what the program is told.
pub(crate) const TRACES: [(&str, u64, &[&str]); 2] = [("slow.hpm", 300, &[]), ("fast.hpm", 2000, &["fast"])];
/// The same by the program in C, which uses hpm_mark.h.
pub(crate) const C_TRACE: (&str, u64) = ("c.hpm", 2000);
/// That program.
pub(crate) const C_PROGRAM: &str = "mark_header";

/// Records programs that mark, and a script.
pub(super) fn run() -> Result<()> {
    for (trace, _, arguments) in TRACES {
        succeed(record(trace)?.arg(built("marks")?).args(arguments))?;
    }
    let (trace, rounds) = C_TRACE;
    succeed(record(trace)?.arg(c_program(C_PROGRAM)?).arg(rounds.to_string()))?;
    let hpmctl = hpmctl(&[])?;
    let script = format!("{0:?} mark begin 1 && {0:?} mark end 2", hpmctl.get_program());
    succeed(record("script.hpm")?.args(["sh", "-c", &script]))?;
    Ok(())
}
