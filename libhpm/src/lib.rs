//! Sources, sessions, records and analyses of hardware performance data.
//!
//! A *session* ([`session`]) runs on the driver and lends out quanta with views of the PEBS records that belong to them
//! ([`record`]). A *source* ([`source`]) makes rows of a trace of them, as of perf_event's records or of a recorded trace.
//! What else happened in the measured processes (mappings, names, forks) comes from [`sideband`]. [`analysis`] draws
//! conclusions, [`export`] writes files of other programs, [`allocation`] knows what they allocate, [`call_log`] reads what the shim for function entries and exits wrote. [`event`] turns names into encodings, [`machine`] tells what this machine can do.

pub mod address_space;
pub mod allocation;
pub mod analysis;
pub mod call_log;
mod elf;
pub mod error;
pub mod event;
pub mod export;
pub mod flame;
pub mod for_now;
pub mod histogram;
pub mod machine;
pub mod mark;
pub mod numbers;
pub mod record;
pub mod refusal;
pub mod report;
pub mod session;
pub mod sideband;
pub mod source;
pub mod symbol;
pub mod sys;
pub mod text;
pub mod trace;
pub mod unwind;

pub use elf::build_id;
pub use error::{Error, Result};
