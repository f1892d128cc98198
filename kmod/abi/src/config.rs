//! What a session measures, on whom, and into how much memory.

use super::{Envelope, EVENTS_MAX};

/// Whom a session measures.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All threads of the process [`SessionConfig::pid`], present and future.
    Process = 1,
    /// Every thread on every CPU. Needs what perf asks for a CPU-wide event.
    System = 2,
}

/// How an event is used.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventMode {
    /// Count only.
    Count = 1,
    /// Count, and let hardware write a precise (PEBS) record each period.
    Precise = 2,
}

/// One event of a session.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSpec {
    /// Event select and unit mask, and edge detect, invert and counter mask, at their places in IA32_PERFEVTSELx
    /// (SDM Vol. 3B 20.2.1.1: bits 7:0, 15:8, 18, 23, 31:24). All other bits must be zero.
    /// A fixed-function event is asked for by its architectural encoding; the driver picks the counter.
    pub encoding: u64,
    /// Period in events for [`EventMode::Precise`]; 0 for [`EventMode::Count`].
    pub period: u64,
    /// [`EventMode`] as its number.
    pub mode: u8,
    /// [`EventSpec::USER`] and [`EventSpec::KERNEL`].
    pub privilege: u8,
    /// Must be zero.
    pub reserved: [u8; 6],
}
const _: () = assert!(core::mem::size_of::<EventSpec>() == 24);

impl EventSpec {
    /// Count at CPL 3.
    pub const USER: u8 = 1;
    /// Count at CPL 0. Needs what perf asks for kernel events.
    pub const KERNEL: u8 = 2;
}

/// Argument of [`super::IOCTL_CONFIGURE`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Common head.
    pub envelope: Envelope,
    /// [`Scope`] as its number.
    pub scope: u32,
    /// Thread-group ID in the caller's PID namespace; 0 for [`Scope::System`].
    pub pid: i32,
    /// [`SessionFlags`] bits.
    pub flags: u32,
    /// Events in use of `events`.
    pub event_count: u32,
    /// What to measure.
    pub events: [EventSpec; EVENTS_MAX],
    /// Segments of [`super::SEGMENT_BYTES`] per CPU: 0 when nothing is sampled, else 2 to 256.
    pub segments: u32,
    /// Quanta per CPU: a power of two from 64 to 65536.
    pub quanta: u32,
    /// Bytes of user stack copied with each precise record: 0 for none, else a multiple of 1024 up to 64512. Each record
    /// then raises a PMI of its own, so nothing is batched.
    pub stack_bytes: u32,
    /// Bytes of each CPU's stack ring: 0 without stacks, else a power of two from 64 KiB to 64 MiB.
    pub stack_ring_bytes: u32,
    /// A quantum is cut at the latest after this many ns; 0 for the driver's default of 10 ms.
    pub max_quantum_ns: u64,
    /// Most threads with a sampling position of their own; 0 for the driver's default of 4096.
    pub max_threads: u32,
    /// Must be zero.
    pub reserved: u32,
}
const _: () = assert!(core::mem::size_of::<SessionConfig>() == 32 + 16 + 24 * EVENTS_MAX + 32);

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            envelope: Envelope::new::<Self>(),
            scope: 0,
            pid: 0,
            flags: 0,
            event_count: 0,
            events: [EventSpec { encoding: 0, period: 0, mode: 0, privilege: 0, reserved: [0; 6] };
                EVENTS_MAX],
            segments: 0,
            quanta: 0,
            stack_bytes: 0,
            stack_ring_bytes: 0,
            max_quantum_ns: 0,
            max_threads: 0,
            reserved: 0,
        }
    }
}

/// Bits of [`SessionConfig::flags`].
pub struct SessionFlags;
impl SessionFlags {
    /// After [`super::IOCTL_START`], wait for the target's next `execve` before anything is measured.
    pub const START_ON_EXEC: u32 = 1;
    /// Processes forked by a monitored one are monitored too.
    pub const INHERIT: u32 = 1 << 1;
    /// Every known bit.
    pub const ALL: u32 = 3;
}
