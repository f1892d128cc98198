//! The bytes that the hpm driver and user space share: ioctl requests, mapped pages and quanta.
//!
//! Everything here is plain data with explicit padding; a size and offset assertion stands beside each struct.
//! Structs grow by length, never by reuse of a field: every request starts with an [`Envelope`] that says how long the
//! caller's struct is, and the driver zero-fills what was not sent. Callers of another version are refused.
//!
//! This crate is compiled twice: by cargo for the host, and by path into `hpm.ko` (edition 2021, no `crate::` paths).
#![no_std]
#![forbid(unsafe_code)]

pub mod area;
pub mod config;
pub mod counters;
pub mod marker;
pub mod quantum;
pub mod reason;
pub mod record;
pub mod request;

pub use self::area::*;
pub use self::config::*;
pub use self::counters::*;
pub use self::marker::*;
pub use self::quantum::*;
pub use self::reason::*;
pub use self::record::*;
pub use self::request::*;

/// Version of this interface. Any change to a struct or constant in this crate raises it.
pub const ABI_VERSION: u32 = 6;

/// Path of the character device.
pub const DEVICE_PATH: &str = "/dev/hpm";

/// Events one session may hold.
pub const EVENTS_MAX: usize = 16;

/// Sampled events that one session may hold: each has a counter of its own, whose event and period a quantum describes.
pub const SAMPLING_COUNTERS_MAX: usize = 8;

/// Bytes of the smallest segment, of which larger ones are a multiple: what one CPU's PEBS slots in the CPU entry area hold
/// (`PEBS_BUFFER_SIZE` in Linux).
pub const SEGMENT_BYTES: u32 = 64 * 1024;
