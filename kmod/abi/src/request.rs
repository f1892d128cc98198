//! ioctl requests: numbers, envelope and arguments other than the session's configuration.
//!
//! poll(2) on a session's descriptor reports `POLLIN` while a ring holds quanta of which readers have been told, by a waking, and
//! that the reader has not given back, or a quarter of the memory for reports ([`IOCTL_FOLLOW`]) is full, and `POLLHUP` once no process of the session is left, or the session has given up ([`super::StatusHead::gave_up`]).

use super::{SessionConfig, EVENTS_MAX};

/// Starts every ioctl argument. The driver writes `reason` and `detail` back also when the call fails.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// [`super::ABI_VERSION`] of the caller.
    pub version: u32,
    /// Bytes of the whole argument, envelope included.
    pub size: u32,
    /// Out: a [`super::Reason`] as its number; 0 when there is nothing to say.
    pub reason: u32,
    /// Must be zero.
    pub reserved: u32,
    /// Out: what the reason is about (an event's index, an MSR, a limit, …; see [`super::Reason`]).
    pub detail: [u64; 2],
}
const _: () = assert!(core::mem::size_of::<Envelope>() == 32);

impl Envelope {
    /// An envelope for an argument of type `T`.
    #[must_use]
    pub const fn new<T>() -> Self {
        Self {
            version: super::ABI_VERSION,
            size: core::mem::size_of::<T>() as u32,
            reason: 0,
            reserved: 0,
            detail: [0; 2],
        }
    }
}

/// The ioctl type byte.
pub const IOCTL_TYPE: u8 = 0xB7;

/// `_IOWR(IOCTL_TYPE, number, Envelope)`: the size field names the envelope only, so that a number outlives the growth
/// of its argument (Linux `asm-generic/ioctl.h`: dir 30..31, size 16..29, type 8..15, number 0..7).
const fn request(number: u8) -> u32 {
    (3 << 30) | ((core::mem::size_of::<Envelope>() as u32) << 16) | ((IOCTL_TYPE as u32) << 8) | number as u32
}

/// What the driver and its PMU are. Argument: [`Info`]. Needs no right.
pub const IOCTL_INFO: u32 = request(1);
/// Make this descriptor a session. Argument: [`SessionConfig`]. Once per descriptor.
pub const IOCTL_CONFIGURE: u32 = request(2);
/// Begin to monitor. Argument: [`Envelope`].
pub const IOCTL_START: u32 = request(3);
/// End monitoring: on return every quantum is published and no CPU counts for the session. Argument: [`Envelope`].
pub const IOCTL_STOP: u32 = request(4);
/// Publish what every CPU holds of the running quanta. Argument: [`Envelope`].
pub const IOCTL_FLUSH: u32 = request(5);
/// Sums since the start. Argument: [`Totals`]. Exact at return for a stopped session.
pub const IOCTL_TOTALS: u32 = request(6);
/// The number of a thread's counter page, which is made when there is none. Argument: [`super::CounterRequest`].
pub const IOCTL_COUNTERS: u32 = request(7);
/// A thread's counts, exact at a moment between call and return. Argument: [`super::CounterReading`].
pub const IOCTL_READ: u32 = request(8);

/// Set a marker in the calling thread. Argument: [`super::Mark`]. On any descriptor; needs no session on it.
pub const IOCTL_MARK: u32 = request(9);
/// Make the calling thread a marker page. Argument: [`super::MarkerPageRequest`]. On any descriptor.
pub const IOCTL_MARKER_PAGE: u32 = request(10);

/// From now on tell what else happens in the session's process, all its threads and the processes that it makes: mappings, names, forks and
/// exits; with [`super::SessionFlags::START_ON_EXEC`] from its next execve on. Argument: [`Envelope`]. Once per session, which measures a
/// process or a thread. read(2) on the descriptor then gives whole records, in order, as perf_event_open(2) lays them out for
/// `PERF_SAMPLE_TID | PERF_SAMPLE_TIME` and `sample_id_all`: `PERF_RECORD_MMAP2`, `PERF_RECORD_COMM`, `PERF_RECORD_FORK`,
/// `PERF_RECORD_EXIT` (without the parent) and `PERF_RECORD_LOST`, numbers being those of the root PID namespace and times
/// CLOCK_MONOTONIC_RAW. It fails with `EAGAIN` when nothing waits, and with `EINVAL` when the first record is longer than the buffer.
pub const IOCTL_FOLLOW: u32 = request(11);

/// Answer of [`IOCTL_INFO`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Common head.
    pub envelope: Envelope,
    /// CPUID vendor string, 12 bytes and padding.
    pub vendor: [u8; 16],
    /// Display family (SDM Vol. 2A, CPUID leaf 01H).
    pub family: u32,
    /// Display model.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// Architectural PerfMon version (CPUID leaf 0AH, EAX bits 7:0); 0 without one. Of AMD's PMUs 2 with PerfMonV2, else 1.
    pub perfmon_version: u32,
    /// General counters per logical processor that hpm may use.
    pub general_counters: u32,
    /// Width of a general counter in bits.
    pub general_width: u32,
    /// Fixed counters per logical processor.
    pub fixed_counters: u32,
    /// Width of a fixed counter in bits.
    pub fixed_width: u32,
    /// PEBS record format (bits 11:8 of IA32_PERF_CAPABILITIES); `u32::MAX` when there is no PEBS.
    pub pebs_format: u32,
    /// General counters that can write PEBS records, one bit each.
    pub pebs_counters: u32,
    /// CPUs that can be online at most (`nr_cpu_ids`): the number of entries in each mapped per-CPU array.
    pub cpus: u32,
    /// TSC ticks per millisecond (`tsc_khz`).
    pub tsc_khz: u32,
    /// [`InfoFlags`] bits.
    pub flags: u64,
    /// Name of the PMU in the table of `hpm-core`, NUL padded: "skylake", ….
    pub pmu_name: [u8; 32],
    /// Last branch records of each logical processor that hpm may use; 0 without any.
    pub branch_records: u32,
    /// Padding.
    pub reserved: u32,
}
const _: () = assert!(core::mem::size_of::<Info>() == 32 + 16 + 48 + 8 + 32 + 8);

/// Bits of [`Info::flags`].
pub struct InfoFlags;
impl InfoFlags {
    /// The PMU is known and hpm can program it.
    pub const USABLE: u64 = 1;
    /// Page-table isolation is on (PEBS goes through the CPU entry area).
    pub const PTI: u64 = 1 << 1;
    /// The kernel is locked down against raw MSR access.
    pub const LOCKED_DOWN: u64 = 1 << 2;
    /// hpm holds the PMU now.
    pub const HELD_BY_HPM: u64 = 1 << 3;
    /// Somebody else holds counters that hpm needs (the kernel's perf, the NMI watchdog, …).
    pub const HELD_BY_OTHERS: u64 = 1 << 4;
    /// A hypervisor is present (CPUID leaf 01H, ECX bit 31).
    pub const HYPERVISOR: u64 = 1 << 5;
    /// The last branch records have a call-stack mode.
    pub const BRANCH_CALLS: u64 = 1 << 6;
    /// Hardware can write the last branch records into its precise records.
    pub const RECORDS_BRANCHES: u64 = 1 << 7;
    /// Instruction-based sampling of fetches (AMD).
    pub const IBS_FETCH: u64 = 1 << 8;
    /// Instruction-based sampling of ops (AMD).
    pub const IBS_OP: u64 = 1 << 9;
}

/// Answer of [`IOCTL_TOTALS`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Common head.
    pub envelope: Envelope,
    /// Sum of each event's count over all threads of the session, in the order of [`SessionConfig::events`].
    pub counts: [u64; EVENTS_MAX],
    /// TSC ticks during which some thread of the session was on a CPU, summed over CPUs.
    pub on_cpu_tsc: u64,
    /// Quanta published.
    pub quanta: u64,
    /// Quanta that found no room; their counts are in `counts` all the same.
    pub quanta_lost: u64,
    /// Records that were written.
    pub records: u64,
    /// Records that could not be written for want of a free segment, or were held back (events / period).
    pub records_lost: u64,
    /// Performance-monitoring interrupts that hpm handled.
    pub pmis: u64,
    /// RDMSR and RDPMC executed on the session's behalf.
    pub msr_reads: u64,
    /// WRMSR executed on the session's behalf.
    pub msr_writes: u64,
    /// Threads seen that found no place in the session's thread table (their counts are in `counts`, their sampling
    /// position is not carried across switches).
    pub threads_overflowed: u64,
    /// Processes that a measured one forked and that are not measured, because the driver's table was full or another session
    /// measures them.
    pub processes_left_out: u64,
    /// Records that hardware wrote and that are not shown, because the kernel showed in them and the session may not see
    /// it; and samples of IBS, which knows no privilege levels, of a level that their event does not count. Also, about as
    /// many as there were, architectural records that nobody can read. They are not among `records`.
    pub records_withheld: u64,
    /// Markers published.
    pub markers: u64,
    /// Markers that found no room, or were overwritten in a thread's page.
    pub markers_lost: u64,
    /// Quanta in which samples were held back ([`super::QuantumFlags::THROTTLED`]).
    pub throttled: u64,
    /// TSC ticks during which nothing of each event was missed, of `on_cpu_tsc`: less when the session multiplexes or shares.
    pub running_tsc: [u64; EVENTS_MAX],
    /// Of these the ticks on cores of a type that does not have the event, where it cannot occur: 0 but on hybrid processors. A count made in
    /// turns is scaled by the others, `(on_cpu_tsc - absent_tsc) / (running_tsc - absent_tsc)`.
    pub absent_tsc: [u64; EVENTS_MAX],
}
const _: () = assert!(core::mem::size_of::<Totals>() == 32 + 24 * EVENTS_MAX + 112);
const _: () = assert!(core::mem::size_of::<SessionConfig>() % 8 == 0);
