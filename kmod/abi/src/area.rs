//! The areas of a session that user space maps, and who writes what.
//!
//! | area | offset | size | access | writer |
//! |---|---|---|---|---|
//! | status | [`STATUS_OFFSET`] | [`status_bytes`] | read | driver |
//! | control | [`CONTROL_OFFSET`] | [`control_bytes`] | read, write | user |
//! | quanta of a CPU | [`quanta_offset`] | quanta × 320, whole pages | read | driver |
//! | segments of a CPU | [`segments_offset`] | [`super::SessionConfig::segment_count`] × [`super::SessionConfig::segment_bytes`] | read | hardware; the driver for a session that may not see the kernel, and for records of interrupts and IBS |
//! | stacks of a CPU | [`stacks_offset`] | the ring's size | read | driver |
//! | counters of a thread | [`counters_offset`] | one page | read | driver |
//! | markers of a CPU | [`markers_offset`] | markers × 64, whole pages | read | driver |
//! | marker page of a thread | from [`super::IOCTL_MARKER_PAGE`] | one page | read, write | user |
//!
//! Each ring follows one rule: the driver's *produced* number in [`CpuStatus`] is stored with release order after the
//! bytes it covers; the reader's *consumed* number in [`CpuControl`] gives them back. The driver reads a consumed number
//! once, and clamps it between its last value and what was produced.

use super::SAMPLING_COUNTERS_MAX;

/// Bytes of a page.
pub const PAGE_BYTES: usize = 4096;

/// mmap offset of the status area.
pub const STATUS_OFFSET: u64 = 0;
/// mmap offset of the control area.
pub const CONTROL_OFFSET: u64 = 1 << 32;

/// mmap offset of a CPU's ring of quanta.
#[must_use]
pub const fn quanta_offset(cpu: u32) -> u64 {
    (2 << 44) | ((cpu as u64) << 32)
}

/// mmap offset of a CPU's segments.
#[must_use]
pub const fn segments_offset(cpu: u32) -> u64 {
    (3 << 44) | ((cpu as u64) << 32)
}

/// mmap offset of a CPU's stack ring.
#[must_use]
pub const fn stacks_offset(cpu: u32) -> u64 {
    (4 << 44) | ((cpu as u64) << 32)
}

/// mmap offset of a thread's counter page ([`super::CounterPage`]), by its number.
#[must_use]
pub const fn counters_offset(page: u32) -> u64 {
    (5 << 44) | (page as u64 * PAGE_BYTES as u64)
}

/// mmap offset of a CPU's ring of markers.
#[must_use]
pub const fn markers_offset(cpu: u32) -> u64 {
    (6 << 44) | ((cpu as u64) << 32)
}

/// mmap offset of the first marker page of a thread.
pub const MARKER_PAGES_OFFSET: u64 = 7 << 44;

/// Bytes of the status area for this many CPUs, whole pages.
#[must_use]
pub const fn status_bytes(cpus: u32) -> usize {
    whole_pages(core::mem::size_of::<StatusHead>() + cpus as usize * core::mem::size_of::<CpuStatus>())
}

/// Bytes of the control area for this many CPUs, whole pages.
#[must_use]
pub const fn control_bytes(cpus: u32) -> usize {
    whole_pages(cpus as usize * core::mem::size_of::<CpuControl>())
}

/// `bytes` rounded up to whole pages.
#[must_use]
pub const fn whole_pages(bytes: usize) -> usize {
    bytes.div_ceil(PAGE_BYTES) * PAGE_BYTES
}

/// Starts the status area; one [`CpuStatus`] for each possible CPU follows.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusHead {
    /// [`super::ABI_VERSION`] of the driver.
    pub version: u32,
    /// Entries that follow.
    pub cpus: u32,
    /// 1 once the target has gone (exited, or turned into something the session may not see).
    pub target_gone: u32,
    /// A [`super::Reason`] as its number once the session has given up, because somebody else began to use the PMU; else
    /// 0. Nothing is measured any more.
    pub gave_up: u32,
    /// Padding.
    pub reserved: [u32; 12],
}
const _: () = assert!(core::mem::size_of::<StatusHead>() == 64);

/// What the driver has produced on one CPU.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuStatus {
    /// Quanta written to the ring, as a count since the start.
    pub quanta_produced: u64,
    /// Segments begun. Every segment below this number minus one is complete.
    pub segments_begun: u64,
    /// Bytes written to the stack ring, gaps before a wrap included.
    pub stack_produced: u64,
    /// Quanta that found no room.
    pub quanta_lost: u64,
    /// Records that found no segment, or were held back.
    pub records_lost: u64,
    /// Records that were written and are not shown, because the session may not see the kernel, or nobody can read them.
    pub records_withheld: u64,
    /// Markers written to the ring, as a count since the start.
    pub markers_produced: u64,
    /// Markers that found no room.
    pub markers_lost: u64,
    /// The period of each sampling place's event in the last quantum: what adapting and randomising had made of it.
    pub periods: [u64; SAMPLING_COUNTERS_MAX],
}
const _: () = assert!(core::mem::size_of::<CpuStatus>() == 128);
const _: () = assert!(core::mem::offset_of!(CpuStatus, periods) == 64);

/// What the reader has given back of one CPU's rings.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuControl {
    /// Quanta read.
    pub quanta_consumed: u64,
    /// Segments whose records are no longer needed, as a count: segments 0 to this number minus one are free.
    pub segments_consumed: u64,
    /// Stack bytes no longer needed, as a count since the start.
    pub stack_consumed: u64,
    /// Markers read.
    pub markers_consumed: u64,
    /// Samples per second wished for instead of [`super::EventSpec::rate`], of every event that has one; 0 for no other
    /// wish. The driver reads it when it looks at rates, and clamps it.
    pub rate: u64,
    /// [`CpuControl::PAUSE`]: no samples are wanted; counters count on. Anything else: they are, so that a reader that scribbles over its
    /// memory loses none without their being counted. The driver reads it at each cut, and says so in
    /// [`super::QuantumFlags::PAUSED`].
    pub pause: u64,
    /// Padding.
    pub reserved: [u64; 2],
}
const _: () = assert!(core::mem::size_of::<CpuControl>() == 64);

impl CpuControl {
    /// "no sample", as a number that nobody writes by mistake.
    pub const PAUSE: u64 = u64::from_le_bytes(*b"nosample");
}
