//! Programs of known layout, recorded with their allocations: what hpmctl says of their data.

use anyhow::{Context, Result};

use super::GuestReport;
use super::programs::{PERIOD, c_program, hpmctl, record_each, succeed};

/// Something that is recorded.
pub(crate) struct Mode {
    /// What the scenario calls it.
    pub(crate) name: &'static str,
    /// Its program, in the working folder.
    pub(crate) program: &'static str,
    /// What the program does, and the numbers of its objects and of its steps.
    arguments: [&'static str; 3],
    /// Its trace.
    pub(crate) trace: &'static str,
    /// Whether branches are recorded: its loop joins what the function was given with what it loaded itself.
    branches: bool,
}

/// All of them: the programs in C, C++ and Rust have the same chain of references. Probes stop the one that is linked statically at each
/// allocation, so that it has fewer objects.
pub(crate) const MODES: [Mode; 7] = [
    Mode::new("db", "locality", ["db", "20000", "200000"], "db.hpm"),
    Mode::new(STATIC, STATIC_PROGRAM, ["db", "2000", "200000"], "static.hpm"),
    Mode::new("C++", "locality_db", ["db", "20000", "200000"], "cpp.hpm"),
    Mode::new("Rust", RUST_PROGRAM, ["db", "20000", "200000"], "rust.hpm"),
    Mode { branches: true, ..Mode::new("table", "locality", ["table", "60000", "200000"], "table.hpm") },
    Mode { branches: true, ..Mode::new("tree", "locality", ["tree", "200000", "200000"], "tree.hpm") },
    Mode::new(SHARING, "locality", [SHARING, "1", "2000000"], "sharing.hpm"),
];
/// The one that is about threads, not about references.
pub(crate) const SHARING: &str = "sharing";
/// The one into which nothing can be preloaded, and its program: the same as db's.
pub(crate) const STATIC: &str = "static";
pub(crate) const STATIC_PROGRAM: &str = "locality_static";
/// The program in Rust, which cargo has built as `locality_db`.
pub(crate) const RUST_PROGRAM: &str = "locality_rust";

impl Mode {
    const fn new(
        name: &'static str,
        program: &'static str,
        arguments: [&'static str; 3],
        trace: &'static str,
    ) -> Self {
        Self { name, program, arguments, trace, branches: false }
    }

    /// The program's own log of its objects.
    pub(crate) fn log(&self) -> String {
        format!("{}.objects", self.name)
    }
}

/// Records each mode, and leaves what `hpmctl locality` and `hpmctl coalloc` say of it as facts.
pub(super) fn run(report: &mut GuestReport) -> Result<()> {
    let folder = std::env::current_dir().context("asking for the working folder")?;
    for mode in MODES {
        // Of each instruction a reader on a busy host would lose samples at the usual period.
        let (events, period) =
            if mode.name == SHARING { ("instructions:u", PERIOD * 20) } else { ("l1d-load-miss:u", PERIOD) };
        let mut options = vec!["--allocations"];
        options.extend(mode.branches.then_some("--branches"));
        let mut command = record_each(events, period, mode.trace, &options)?;
        succeed(command.arg(c_program(mode.program)?).args(mode.arguments).arg(folder.join(mode.log())))?;
        let json = |arguments: &[&str]| -> Result<serde_json::Value> {
            let output = succeed(&mut hpmctl(arguments)?)?;
            serde_json::from_slice(&output.stdout).context("hpmctl printed no JSON")
        };
        let by_line = ["locality", "--json", "--by", "line", "--sharing", mode.trace];
        report.fact(&format!("{} lines", mode.name), json(&by_line)?);
        if mode.name != SHARING {
            report.fact(&format!("{} references", mode.name), json(&["coalloc", "--json", mode.trace])?);
        }
    }
    Ok(())
}
