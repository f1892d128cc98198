//! Counter pages: a monitored thread's counts, for reading without a system call.
//!
//! A page belongs to one thread of one session with [`super::SessionFlags::COUNTER_PAGES`], is asked for with
//! [`super::IOCTL_COUNTERS`] and mapped read-only at [`super::counters_offset`]. Its counts begin with the first request
//! for it. The driver writes it when the thread comes to a CPU, leaves it, and at each cut.
//!
//! The thread itself reads an event like this:
//! 1. `sequence`; begin again while it is odd;
//! 2. `counter`: [`COUNT_HELD`] and [`COUNT_ABSENT`] mean that `base` is the count; [`COUNT_ASK`] that only [`super::IOCTL_READ`] tells it;
//!    else RDPMC with it in ECX, and the count is `base + ((RDPMC - start) & mask)`;
//! 3. `sequence` again; begin again when it changed.
//!
//! RDPMC faults where the kernel has not allowed it, so `counter` names a counter only while the thread's process may use
//! the instruction. Once granted, the driver does not take that right away while the process lives. An administrator can, who
//! writes 0 to the attribute `rdpmc` of the kernel's PMU: the next RDPMC then faults (SIGSEGV, which `libhpm` handles), and
//! a new [`super::IOCTL_COUNTERS`] has the page say [`COUNT_ASK`] from then on.

use core::sync::atomic::{AtomicU32, AtomicU64};

use super::{Envelope, EVENTS_MAX};

/// [`CounterEvent::counter`]: no counter counts the event now, and `base` is the count.
pub const COUNT_HELD: u32 = u32::MAX;
/// [`CounterEvent::counter`]: user space cannot read the count by itself now.
pub const COUNT_ASK: u32 = u32::MAX - 1;
/// [`CounterEvent::counter`]: only cores of another type have the event. `base` is the count, and nothing of it is missed meanwhile, so
/// that its running time passes, and [`CounterEvent::absent_tsc`].
pub const COUNT_ABSENT: u32 = u32::MAX - 2;

/// Pages that the living threads of one session can have.
pub const COUNTER_PAGES_MAX: usize = 2048;

/// One event of a [`CounterPage`].
#[repr(C)]
#[derive(Debug, Default)]
pub struct CounterEvent {
    /// ECX for RDPMC (a general counter's number, or a fixed counter's with bit 30 set; SDM Vol. 2B, RDPMC), or
    /// [`COUNT_HELD`], [`COUNT_ASK`] or [`COUNT_ABSENT`].
    pub counter: AtomicU32,
    /// Padding.
    pub reserved: AtomicU32,
    /// The counter's value when `base` was the count.
    pub start: AtomicU64,
    /// The bits that the counter has.
    pub mask: AtomicU64,
    /// The count up to `start`.
    pub base: AtomicU64,
    /// TSC ticks during which nothing of the event was missed, up to [`CounterPage::start_tsc`].
    pub running_tsc: AtomicU64,
    /// Of these the ticks on cores of a type that does not have the event.
    pub absent_tsc: AtomicU64,
}
const _: () = assert!(core::mem::size_of::<CounterEvent>() == 48);
const _: () = assert!(core::mem::offset_of!(CounterEvent, base) == 24);

/// A thread's page; the rest of its 4096 bytes is zero.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct CounterPage {
    /// Odd while the driver writes; changes with each write.
    pub sequence: AtomicU32,
    /// [`CounterPageFlags`] bits.
    pub flags: AtomicU32,
    /// Thread ID (root PID namespace).
    pub tid: AtomicU32,
    /// Events in use of `events`.
    pub event_count: AtomicU32,
    /// TSC ticks per millisecond.
    pub tsc_khz: AtomicU32,
    /// Padding.
    pub reserved: AtomicU32,
    /// TSC when the times were last brought up to date. On a CPU, the enabled time has grown since by the TSC minus this.
    pub start_tsc: AtomicU64,
    /// TSC ticks during which the thread was on a CPU, up to `start_tsc`.
    pub enabled_tsc: AtomicU64,
    /// Padding.
    pub reserved_end: [AtomicU64; 3],
    /// The events, in the order of the session's.
    pub events: [CounterEvent; EVENTS_MAX],
}
const _: () = assert!(core::mem::size_of::<CounterPage>() == 64 + 48 * EVENTS_MAX);
const _: () = assert!(core::mem::offset_of!(CounterPage, start_tsc) == 24);
const _: () = assert!(core::mem::offset_of!(CounterPage, events) == 64);
const _: () = assert!(core::mem::size_of::<CounterPage>() <= super::PAGE_BYTES);

/// Bits of [`CounterPage::flags`].
pub struct CounterPageFlags;
impl CounterPageFlags {
    /// The thread's process may use RDPMC.
    pub const MAY_RDPMC: u32 = 1;
    /// The thread is on a CPU and being measured.
    pub const ON_CPU: u32 = 1 << 1;
}

/// Argument of [`super::IOCTL_COUNTERS`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterRequest {
    /// Common head.
    pub envelope: Envelope,
    /// Thread ID in the caller's PID namespace, of a thread that the session measures; 0 for the caller's own.
    pub tid: i32,
    /// Out: number of the thread's page, for [`super::counters_offset`].
    pub page: u32,
}
const _: () = assert!(core::mem::size_of::<CounterRequest>() == 32 + 8);

/// Argument of [`super::IOCTL_READ`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterReading {
    /// Common head.
    pub envelope: Envelope,
    /// The page's number, as [`super::IOCTL_COUNTERS`] gave it.
    pub page: u32,
    /// Out: the thread's ID (root PID namespace).
    pub tid: u32,
    /// Out: TSC at which the counts were exact.
    pub tsc: u64,
    /// Out: TSC ticks during which the thread was on a CPU.
    pub enabled_tsc: u64,
    /// Out: each event's count since the page was first asked for.
    pub counts: [u64; EVENTS_MAX],
    /// Out: TSC ticks during which nothing of each event was missed.
    pub running_tsc: [u64; EVENTS_MAX],
    /// Out: of these the ticks on cores of a type that does not have the event.
    pub absent_tsc: [u64; EVENTS_MAX],
}
const _: () = assert!(core::mem::size_of::<CounterReading>() == 32 + 24 + 24 * EVENTS_MAX);
