//! A quantum: one uninterrupted stay of one thread on one CPU.

use super::{EVENTS_MAX, SAMPLING_COUNTERS_MAX};

/// How a quantum ended (Sweeney et al., VM'04, §3: Thread Yield Status).
#[repr(u16)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantumEnd {
    /// The thread blocked. One that called `sched_yield` is runnable, and so [`Self::Preempted`].
    Yielded = 1,
    /// The thread was pre-empted while runnable.
    Preempted = 2,
    /// The longest quantum was reached; the thread ran on.
    Timer = 3,
    /// A performance-monitoring interrupt; the thread ran on.
    Pmi = 4,
    /// The driver ended it: a reader asked for a flush, or for a count that it tells only then, the session stopped or gave up, the CPU went
    /// offline, to sleep or into a guest of KVM's, the thread replaced its program or was moved to another control group, or it is another
    /// session's turn. It ran on, perhaps unmeasured.
    Flush = 5,
    /// The thread exited.
    Exit = 6,
}

impl QuantumEnd {
    /// The end with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        match number {
            1 => Some(Self::Yielded),
            2 => Some(Self::Preempted),
            3 => Some(Self::Timer),
            4 => Some(Self::Pmi),
            5 => Some(Self::Flush),
            6 => Some(Self::Exit),
            _ => None,
        }
    }
}

/// Bits of [`Quantum::flags`].
pub struct QuantumFlags;
impl QuantumFlags {
    /// Records were lost in this quantum: see [`Quantum::records_lost`].
    pub const RECORDS_LOST: u16 = 1;
    /// Quanta of this CPU were lost just before this one: `sequence` skips them.
    pub const QUANTA_LOST_BEFORE: u16 = 1 << 1;
    /// The thread had no place in the thread table: its sampling position was not carried over a switch.
    pub const THREAD_OVERFLOW: u16 = 1 << 2;
    /// The stack could be copied only in part ([`Quantum::stack_bytes`] says how much).
    pub const STACK_TRUNCATED: u16 = 1 << 3;
    /// There was no room for the stack.
    pub const STACK_LOST: u16 = 1 << 4;
    /// The driver held samples back in this quantum, because interrupts or records came faster than its ceiling.
    pub const THROTTLED: u16 = 1 << 5;
    /// The stack's bytes are return addresses of 8 bytes, the innermost first, found by frame pointers.
    pub const STACK_FRAMES: u16 = 1 << 6;
    /// The stack's bytes are last branch records of 24 bytes (from, to, info), the newest first.
    pub const STACK_BRANCHES: u16 = 1 << 7;
    /// Records of this quantum are not shown, because the kernel showed in them and the session may not see it; or of IBS,
    /// because they were of a privilege level that their event does not count; or nobody can read them.
    pub const RECORDS_WITHHELD: u16 = 1 << 8;
    /// Values in this quantum's records that looked like kernel addresses read 0, because the session may not see the
    /// kernel. They may have been a program's own large negative numbers.
    pub const RECORDS_SCRUBBED: u16 = 1 << 9;
    /// The reader wanted no samples in this quantum ([`super::CpuControl::pause`]): what would have been sampled is neither
    /// recorded nor lost.
    pub const PAUSED: u16 = 1 << 10;
    /// The PMU was another session's in this quantum ([`super::SessionFlags::SHARED`]): nothing was counted or sampled.
    pub const LENT: u16 = 1 << 11;
}

/// [`Quantum::counter_event`] of a place that serves no sampled event.
pub const NO_EVENT: u8 = 0xff;

/// One published quantum; 320 bytes in a per-CPU ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantum {
    /// Number of this quantum on its CPU, from 0; lost ones are numbered too.
    pub sequence: u64,
    /// TSC at the start.
    pub start_tsc: u64,
    /// TSC at the end.
    pub end_tsc: u64,
    /// Thread-group ID (root PID namespace).
    pub pid: u32,
    /// Thread ID (root PID namespace).
    pub tid: u32,
    /// Logical CPU.
    pub cpu: u32,
    /// [`QuantumEnd`] as its number.
    pub end: u16,
    /// [`QuantumFlags`] bits.
    pub flags: u16,
    /// User instruction pointer at the end, or 0 when unknown.
    pub last_ip: u64,
    /// Number of the segment that holds the records, from 0 per CPU; its place is this modulo the session's segments.
    pub segment: u64,
    /// First byte of the records in the segment.
    pub span_offset: u32,
    /// Bytes of records; a multiple of `record_size`.
    pub span_bytes: u32,
    /// Bytes of one record; 0 when each record says its own size.
    pub record_size: u16,
    /// PEBS record format (bits 11:8 of IA32_PERF_CAPABILITIES), or one of [`super::RECORD_FORMAT_INTERRUPT`],
    /// [`super::RECORD_FORMAT_ARCHITECTURAL`] and [`super::RECORD_FORMAT_IBS`].
    pub record_format: u16,
    /// Events in use of `counts`.
    pub count_len: u32,
    /// IA32_PEBS_ENABLE while the records were written.
    pub pebs_enable: u64,
    /// MSR_PEBS_DATA_CFG while the records were written; 0 where there is none.
    pub pebs_data_cfg: u64,
    /// Records of this quantum that could not be written (events / period).
    pub records_lost: u64,
    /// Where the stack starts in the CPU's stack ring, as a byte count since the start of the session; its place is this
    /// modulo the ring's size. Meaningful when `stack_bytes` is not 0. A stack never wraps.
    pub stack_offset: u64,
    /// Bytes of user stack, from the record's RSP upwards; they belong to the last record of the span.
    pub stack_bytes: u32,
    /// A bit for each event of which nothing was missed: all of them, unless the session multiplexes or shares.
    pub active: u16,
    /// Of these a bit for each that cannot occur here, because only cores of another type have it (hybrid processors): its count is 0. An
    /// event's enabled time grows by this quantum's length, its running time only when its bit of `active` is set, and neither when its bit
    /// is set here.
    pub absent: u16,
    /// For each sampling place the index of the event it serves, or [`NO_EVENT`].
    pub counter_event: [u8; SAMPLING_COUNTERS_MAX],
    /// For each sampling place its counter's bit in IA32_PEBS_ENABLE and in a record's applicable counters: 0 to 31 for
    /// general counters, 32 and above for fixed ones; of IBS 32 for fetches and 33 for ops; or [`NO_EVENT`].
    pub sampler_counter: [u8; SAMPLING_COUNTERS_MAX],
    /// What each event counted in the quantum.
    pub counts: [u64; EVENTS_MAX],
    /// Period of each sampling place's event, constant within the span; 0 for none.
    pub periods: [u64; SAMPLING_COUNTERS_MAX],
}

impl Quantum {
    /// Zeroes, as in a ring's slot that nothing was written to.
    pub const EMPTY: Self = Self {
        sequence: 0,
        start_tsc: 0,
        end_tsc: 0,
        pid: 0,
        tid: 0,
        cpu: 0,
        end: 0,
        flags: 0,
        last_ip: 0,
        segment: 0,
        span_offset: 0,
        span_bytes: 0,
        record_size: 0,
        record_format: 0,
        count_len: 0,
        pebs_enable: 0,
        pebs_data_cfg: 0,
        records_lost: 0,
        stack_offset: 0,
        stack_bytes: 0,
        active: 0,
        absent: 0,
        counter_event: [0; SAMPLING_COUNTERS_MAX],
        sampler_counter: [0; SAMPLING_COUNTERS_MAX],
        counts: [0; EVENTS_MAX],
        periods: [0; SAMPLING_COUNTERS_MAX],
    };
}
const _: () = assert!(core::mem::size_of::<Quantum>() == 320);
const _: () = assert!(core::mem::offset_of!(Quantum, counts) == 128);
const _: () = assert!(core::mem::offset_of!(Quantum, periods) == 256);
