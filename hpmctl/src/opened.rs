//! Opening what the commands read: a trace folder, or a file of `perf record`, which becomes one.

use std::path::Path;

use anyhow::{Result, ensure};
use clap::Args;
use libhpm::source::opened::{self, Opened};
use libhpm::source::perf_data;
use libhpm::trace::{SampleRow, TraceReader};

use crate::output::{counted, note, print};

/// Make a trace of a file that `perf record` wrote.
///
/// Commands that read traces read such files, too: each time they make a trace of it in the folder for temporary files
/// (TMPDIR), and remove it at their end. `import` keeps it.
#[derive(Args, Debug)]
pub(crate) struct ImportArgs {
    /// Folder to write; it must not exist yet
    #[arg(short, long, value_name = "NAME.hpm")]
    output: std::path::PathBuf,
    /// The file
    #[arg(value_name = "perf.data")]
    file: std::path::PathBuf,
}

/// Opens a trace folder, or a file of `perf record`, and says what that lacks.
///
/// # Errors
/// It is neither, or cannot be read.
pub(crate) fn open_trace(path: &Path) -> Result<Opened> {
    let opened = opened::open_trace(path)?;
    tell(path, opened.remarks());
    Ok(opened)
}

/// Runs `hpmctl import`.
///
/// # Errors
/// The file cannot be read, or the trace not be written.
pub(crate) fn import(args: &ImportArgs) -> Result<()> {
    ensure!(args.file.exists(), "there is no file {}", args.file.display());
    tell(&args.file, &perf_data::import(&args.file, &args.output)?);
    let reader = TraceReader::open(&args.output)?;
    let samples = reader.rows::<SampleRow>().count() as u64;
    print(&format!("{}: {}", args.output.display(), counted(samples, "sample")))
}

fn tell(path: &Path, remarks: &[String]) {
    let of_file = |remark: &String| format!("{}: {remark}", path.display());
    note(&remarks.iter().map(of_file).collect::<Vec<_>>());
}

/// How it is with a recording that has not ended.
pub(crate) fn how_unfinished(grows: bool) -> &'static str {
    if grows { "the recording goes on" } else { "the recording did not come to its proper end" }
}
