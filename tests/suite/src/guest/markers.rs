//! Markers that a program sets in its own threads.

use anyhow::Result;

use super::programs::{built, hpmctl, record, succeed};

/// Traces, each with the rounds that each of two threads marks, and what the program is told.
pub(crate) const TRACES: [(&str, u64, &[&str]); 2] = [("slow.hpm", 300, &[]), ("fast.hpm", 2000, &["fast"])];

/// Records programs that mark, and a script.
pub(super) fn run() -> Result<()> {
    for (trace, _, arguments) in TRACES {
        succeed(record(trace)?.arg(built("marks")?).args(arguments))?;
    }
    let hpmctl = hpmctl(&[])?;
    let script = format!("{0:?} mark begin 1 && {0:?} mark end 2", hpmctl.get_program());
    succeed(record("script.hpm")?.args(["sh", "-c", &script]))?;
    Ok(())
}
