//! Programs of known layout, recorded with their allocations: what hpmctl says of their data.

use anyhow::{Context, Result};

use super::GuestReport;
use super::programs::{PERIOD, c_program, hpmctl, succeed};

/// That program.
pub(crate) const C_PROGRAM: &str = "locality";
/// What it does, with the number of its objects and of its steps.
pub(crate) const MODES: [(&str, &str, &str); 4] = [
    ("db", "20000", "200000"),
    ("table", "60000", "200000"),
    ("tree", "200000", "200000"),
    ("sharing", "1", "2000000"),
];

/// The trace of a mode.
pub(crate) fn trace(mode: &str) -> &'static str {
    MODES
        .iter()
        .zip(["db.hpm", "table.hpm", "tree.hpm", "sharing.hpm"])
        .find(|((name, ..), _)| *name == mode)
        .map_or("", |(_, trace)| trace)
}

/// The program's own log of its objects.
pub(crate) fn log(mode: &str) -> String {
    format!("{mode}.objects")
}

/// Records each mode, and leaves what `hpmctl locality` and `hpmctl coalloc` say of it as facts.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let folder = std::env::current_dir().context("asking for the working folder")?;
    for (mode, objects, steps) in MODES {
        let log = folder.join(log(mode));
        // Of each instruction a reader on a busy host would lose samples at the usual period.
        let (events, period) =
            if mode == "sharing" { ("instructions:u", PERIOD * 20) } else { ("l1d-load-miss:u", PERIOD) };
        let period = period.to_string();
        let mut record =
            vec!["record", "-e", events, "-c", &period, "--no-randomise", "--allocations", "-o", trace(mode)];
        if matches!(mode, "table" | "tree") {
            // Their loops join what the function was given with what it loaded itself.
            record.push("--branches");
        }
        record.push("--");
        let mut command = hpmctl(&record)?;
        succeed(command.arg(c_program(C_PROGRAM)?).args([mode, objects, steps]).arg(log))?;
        let json = |arguments: &[&str]| -> Result<serde_json::Value> {
            let output = succeed(&mut hpmctl(arguments)?)?;
            serde_json::from_slice(&output.stdout).context("hpmctl printed no JSON")
        };
        let by_line = ["locality", "--json", "--by", "line", "--sharing", trace(mode)];
        report.fact(&format!("{mode} lines"), json(&by_line)?);
        if mode != "sharing" {
            report.fact(&format!("{mode} references"), json(&["coalloc", "--json", trace(mode)])?);
        }
    }
    Ok(())
}
