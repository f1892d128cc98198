//! Opening what the commands read: a trace folder, or a file of `perf record`, which becomes one.

use std::ops::Deref;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use clap::Args;
use libhpm::source::perf_data;
use libhpm::trace::{SampleRow, TraceReader};

use crate::for_now::ForNow;
use crate::output::{grouped, print, say};

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

/// A trace that can be read, and the folder that it is in, if that is only for now.
pub(crate) struct Opened {
    reader: TraceReader,
    folder: Option<ForNow>,
}

impl Opened {
    /// What to say to who wants to see quanta, of a trace at a path that has none (`which`).
    pub(crate) fn lacks_quanta(&self, path: &Path, which: &str) -> String {
        let cure = match self.folder {
            Some(_) => "`perf record --switch-events` writes down what they are made of",
            None => "record again",
        };
        format!("{} holds no quantum {which}; {cure}", path.display())
    }
}

impl Deref for Opened {
    type Target = TraceReader;

    fn deref(&self) -> &TraceReader {
        &self.reader
    }
}

/// Opens a trace folder, or a file of `perf record`.
///
/// # Errors
/// It is neither, or cannot be read.
pub(crate) fn open_trace(path: &Path) -> Result<Opened> {
    if !perf_data::is_perf_data(path) {
        return Ok(Opened { reader: TraceReader::open(path)?, folder: None });
    }
    let folder =
        ForNow::new().with_context(|| format!("cannot make a folder for what {} holds", path.display()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let trace = folder.path().join(format!("{name}.hpm"));
    tell(path, &perf_data::import(path, &trace)?);
    Ok(Opened { reader: TraceReader::open(trace)?.called(path), folder: Some(folder) })
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
    print(&format!("{}: {} samples", args.output.display(), grouped(samples)))
}

fn tell(path: &Path, remarks: &[String]) {
    for remark in remarks {
        say(format_args!("note: {}: {remark}", path.display()));
    }
}

/// How it is with a recording that has not ended.
pub(crate) fn how_unfinished(grows: bool) -> &'static str {
    if grows { "the recording goes on" } else { "the recording did not come to its proper end" }
}
