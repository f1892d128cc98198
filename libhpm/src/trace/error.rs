//! What can go wrong with a trace folder, each as one sentence that also says what to do. The reason of the system is
//! part of the sentence, not a source to be printed after it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a trace could not be written or read.
#[derive(Debug, Error)]
pub enum TraceError {
    /// The folder to write exists already.
    #[error("{} exists already; remove it or choose another name", .0.display())]
    Exists(PathBuf),
    /// The folder has no `meta.json`.
    #[error("{} is not an hpm trace (it has no meta.json); name a folder that `hpmctl record` wrote, or a file of `perf record`", .0.display())]
    NotATrace(PathBuf),
    /// The trace has another format version than this library writes.
    #[error(
        "{} has trace format {found}, and this hpm reads format {}; use the hpm that recorded it ({recorded_by})",
        path.display(), super::FORMAT_VERSION
    )]
    Version {
        /// The trace folder.
        path: PathBuf,
        /// The version it states.
        found: u32,
        /// The hpm version it states, or "unknown".
        recorded_by: String,
    },
    /// `meta.json` cannot be understood.
    #[error("{} is damaged ({reason}); the trace cannot be read without it", path.display())]
    Meta {
        /// The file.
        path: PathBuf,
        /// What the JSON parser says.
        reason: serde_json::Error,
    },
    /// A trace stands twice among those to merge.
    #[error(
        "{} and {} are the same recording, of which everything would be counted twice; name it once",
        one.display(), other.display()
    )]
    Twice {
        /// The trace folder.
        one: PathBuf,
        /// The same one, or a copy.
        other: PathBuf,
    },
    /// A trace to merge does not tell when it was recorded.
    #[error(
        "{} does not say how its clock stands to those of others, so that it cannot be placed among them; record it with \
         `perf record -k CLOCK_MONOTONIC_RAW`, or leave it out", .0.display()
    )]
    Clockless(PathBuf),
    /// Nothing of a trace to merge can be read.
    #[error("no row of {} can be read ({cut}); leave it out", path.display())]
    Unreadable {
        /// The trace folder.
        path: PathBuf,
        /// What is wrong with it.
        cut: super::Cut,
    },
    /// The traces to merge are empty; the first of them.
    #[error("{} holds no quantum and no sample, nor does any other: there is nothing to merge", .0.display())]
    Nothing(PathBuf),
    /// The operating system refused to read.
    #[error("cannot read {}: {reason}", path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The refusal.
        reason: io::Error,
    },
    /// The operating system refused to make the folder.
    #[error("cannot make the trace {}: {reason}", path.display())]
    Create {
        /// The folder.
        path: PathBuf,
        /// The refusal.
        reason: io::Error,
    },
    /// The operating system refused to write.
    #[error("cannot write {}: {reason}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The refusal.
        reason: io::Error,
    },
}
