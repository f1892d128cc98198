//! The trace on disk: a folder `NAME.hpm/` with `meta.json` and one Arrow IPC stream for each table.
//!
//! Streams only grow. A batch of rows closes after [`BATCH_TIME`] or [`BATCH_BYTES`], so that a trace whose recording
//! was killed, or whose files were cut anywhere, can be read to its last whole batch. `docs/trace-format.md` describes
//! every column for readers in other languages.

mod column;
mod deferred;
mod error;
mod merge;
mod meta;
mod reader;
mod rotate;
mod row;
mod span;
mod stream;
mod table;
mod totals;
mod verify;
mod writer;

use std::time::Duration;

pub use hpm_abi::QuantumFlags;

pub use self::column::Column;
pub use self::error::TraceError;
pub use self::merge::{HOSTS_MAX, Outcome, merge};
pub(crate) use self::meta::NO_PROPER_END;
pub use self::meta::{
    Allocations, Clock, ClockPair, Event, EventUse, Machine, Merged, Meta, PhaseGuided, Within,
};
pub use self::reader::{Batches, Cut, Rows, TraceReader};
pub use self::rotate::{Limits, RotatingWriter, Written};
pub use self::row::{
    AllocationRow, KernelSymbolRow, MapRow, MarkerRow, QuantumRow, Registers, Row, SampleRow, StackRow,
    ThreadChange, ThreadRow,
};
pub use self::span::SampleSpan;
pub(crate) use self::totals::share;
pub use self::totals::{Part, Totals, running_tsc};
pub use self::verify::{Problem, Verdict, verify};
pub use self::writer::TraceWriter;

/// Version of the folder's format. Any change to a table or to `meta.json` that an older reader would misread raises it.
pub const FORMAT_VERSION: u32 = 2;

/// Rows stay in memory for at most this long, unless who writes them looks more seldom.
pub const BATCH_TIME: Duration = Duration::from_secs(1);

/// Rows of one table that take about this many bytes are written at once.
pub const BATCH_BYTES: usize = 1 << 20;

/// Name of the file that makes a folder a trace.
const META_FILE: &str = "meta.json";

/// Name of the file in which quanta, samples, mappings and threads are until there are rows of them ([`crate::source::Source::defer`]).
const DEFERRED_FILE: &str = "deferred.raw";

/// Name of a table's file: `.arrows` is the registered extension of Arrow IPC streams.
fn table_file(table: &str) -> String {
    format!("{table}.arrows")
}
