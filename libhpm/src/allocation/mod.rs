//! What a program allocates: objects with their lives. A library that is preloaded writes them into logs ([`log`]); where it cannot be, in
//! programs that are linked statically, the kernel reports calls of the allocator's functions ([`probes`]).

mod calls;
mod lives;
pub mod log;
pub mod probes;

/// The clock of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceClock {
    /// TSC ticks.
    Tsc,
    /// CLOCK_MONOTONIC_RAW in ns.
    MonotonicRaw,
}

/// An allocated object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// When, on the trace's clock.
    pub tsc: u64,
    /// When it was freed; `None` when it was not.
    pub freed_tsc: Option<u64>,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Return addresses, innermost first.
    pub frames: Vec<u64>,
}
