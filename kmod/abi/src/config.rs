//! What a session measures, on whom, and into how much memory.

use super::{Envelope, EVENTS_MAX};

/// Whom a session measures.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All threads of the process [`SessionConfig::pid`], present and future.
    Process = 1,
    /// Every thread on every CPU, or with [`SessionFlags::ONE_CPU`] on one. Needs what perf asks for a CPU-wide event.
    System = 2,
    /// The one thread [`SessionConfig::pid`].
    Thread = 3,
    /// The threads of the control group [`SessionConfig::cgroup_fd`] and of those below it. Needs what
    /// [`Scope::System`] needs.
    Cgroup = 4,
}

/// How an event is used.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventMode {
    /// Count only.
    Count = 1,
    /// Count, and let hardware write a precise (PEBS) record each period; on AMD's processors, let instruction-based
    /// sampling tag an op or a fetch, of which the driver writes an [`super::IbsRecord`].
    Precise = 2,
    /// Count, and let the driver write an [`super::InterruptRecord`] when the counter's overflow interrupts, each period.
    Interrupt = 3,
}

/// Which processor cores of a hybrid processor an event is for (CPUID.1AH:EAX bits 31:24).
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreType {
    /// Cores of any type: the only value on a processor that is not hybrid.
    Any = 0,
    /// Intel Core (40H).
    Core = 1,
    /// Intel Atom (20H).
    Atom = 2,
    /// Intel Atom (20H), of a processor with cores of three types those that are another generation's: Arrow Lake-H's low-power cores.
    LowPower = 3,
}

/// One event of a session.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventSpec {
    /// Event select and unit mask, and edge detect, invert and counter mask, at their places in IA32_PERFEVTSELx
    /// (SDM Vol. 3B 20.2.1.1: bits 7:0, 15:8, 18, 23, 31:24); from version 6 on, where CPUID.23H.0:EBX says so, also EQ and UMASK2
    /// (bits 36, 47:40); for AMD's PerfEvtSel also bits 35:32, event select 11:8 (APM Vol. 2, 13.2.2). All other bits must be zero.
    /// A fixed-function event is asked for by its architectural encoding; the driver picks the counter.
    ///
    /// NetBurst (Pentium 4): Event Select and Event Mask at their places in an ESCR, above 32; ESCR Select, Compare,
    /// Complement, Threshold and Edge at theirs in a CCCR; and in bits 1:0 the counters' block (0 BPU, 1 MS, 2 FLAME, 3 IQ).
    pub encoding: u64,
    /// Period in events of a sampled event, or with `rate` the one to begin with. Of one that is only counted 0, or the length in events of
    /// the windows in which events with [`EventSpec::WINDOWED`] are sampled, 100 to 2^31 - 1.
    pub period: u64,
    /// Value of the register that the event needs beside its encoding: MSR_OFFCORE_RSP_x, MSR_PEBS_FRONTEND or
    /// MSR_PEBS_LD_LAT_THRESHOLD. 0 for an event that needs none.
    ///
    /// NetBurst, of events that count tags: the encoding of the upstream event, with Tag Enable and Tag Value at their places
    /// in the ESCR; of replay_event the bits of IA32_PEBS_ENABLE, and above 32 those of MSR_PEBS_MATRIX_VERT.
    pub extra: u64,
    /// Samples per second of its threads' time on each CPU to which the driver adapts the period, at most 1,000,000; 0
    /// keeps the period.
    pub rate: u64,
    /// [`EventMode`] as its number.
    pub mode: u8,
    /// [`EventSpec::USER`] and [`EventSpec::KERNEL`].
    pub privilege: u8,
    /// [`EventSpec::RANDOMISE`] or [`EventSpec::WINDOWED`].
    pub flags: u8,
    /// [`CoreType`] as its number.
    pub core_type: u8,
    /// Must be zero.
    pub reserved: [u8; 4],
}
const _: () = assert!(core::mem::size_of::<EventSpec>() == 40);

impl EventSpec {
    /// What an entry without an event holds.
    pub const UNUSED: Self = Self {
        encoding: 0,
        period: 0,
        extra: 0,
        rate: 0,
        mode: 0,
        privilege: 0,
        flags: 0,
        core_type: 0,
        reserved: [0; 4],
    };
    /// Count at CPL 3.
    pub const USER: u8 = 1;
    /// Count at CPL 0. Needs what perf asks for kernel events.
    pub const KERNEL: u8 = 2;
    /// Draw the low bits of the period anew every few records, of the reset value and of the first interval: whenever a thread comes to
    /// the CPU, with each segment, and at the cut that ends 48 records, or one with a stack (docs/abi.md has the rest). A thread's first record then comes anywhere
    /// in its first period, so that threads that live shorter than one are sampled as often as they count.
    pub const RANDOMISE: u8 = 1;
    /// Of a precise event: its period counts anew with each window, which another event that is only counted measures by its `period`, so
    /// that records come where `period` of the one happen in so many of the other. Hardware sets the counter back (auto counter reload,
    /// CPUID.23H.2, IA32_PMC_GPx_CFG_B and CFG_C). Windows follow each other without gaps; docs/abi.md says where they begin anew.
    /// The period is 10 to 2^31 - 1, stays as it is (no `rate`), and both events are counted by counters of their own. Records that a window
    /// would have had where the driver could have none written are not counted as lost, for nobody knows how many they are. Not with
    /// [`SessionFlags::MULTIPLEX`].
    pub const WINDOWED: u8 = 2;
}

/// Argument of [`super::IOCTL_CONFIGURE`].
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionConfig {
    /// Common head.
    pub envelope: Envelope,
    /// [`Scope`] as its number.
    pub scope: u32,
    /// Thread-group ID in the caller's PID namespace, for [`Scope::Thread`] the thread's ID; else 0.
    pub pid: i32,
    /// [`SessionFlags`] bits.
    pub flags: u32,
    /// Events in use of `events`.
    pub event_count: u32,
    /// What to measure.
    pub events: [EventSpec; EVENTS_MAX],
    /// Memory for records on each CPU, in units of [`super::SEGMENT_BYTES`]: 0 when nothing is sampled, else 2 to 256. It is divided
    /// into [`SessionConfig::segment_count`] segments.
    pub segments: u32,
    /// Quanta per CPU: a power of two from 64 to 65536; or 0 when nothing is sampled and only sums are wanted, which makes
    /// switches between threads of the session cost next to nothing.
    pub quanta: u32,
    /// Bytes of user stack copied with each precise record: 0 for none, else a multiple of 1024 up to 64512. Each record
    /// then raises a PMI of its own, so nothing is batched.
    pub stack_bytes: u32,
    /// Bytes of each CPU's stack ring: 0 without stacks, else a power of two from 64 KiB to 64 MiB.
    pub stack_ring_bytes: u32,
    /// A quantum is cut at the latest after this many ns; 0 for the driver's default of 10 ms.
    pub max_quantum_ns: u64,
    /// Most threads with a sampling position of their own, in a session that samples or multiplexes; 0 for the driver's default of 4096.
    pub max_threads: u32,
    /// The CPU to measure with [`SessionFlags::ONE_CPU`]; else 0.
    pub cpu: u32,
    /// A descriptor of the control group's directory for [`Scope::Cgroup`]; else 0.
    pub cgroup_fd: i32,
    /// With [`SessionFlags::PROOF`] a descriptor of the target's `/proc/PID/environ`, which the kernel hands out only to
    /// who may read the target as ptrace does; else 0. It proves the right until the target's next `execve`; a session
    /// that was started before goes on, unless that `execve` is a secure one.
    pub proof_fd: i32,
    /// Groups of an adaptive or architectural PEBS record beside the basic one, as bits of MSR_PEBS_DATA_CFG (SDM
    /// Vol. 3B 20.9.2.3); 0 for the driver's default: memory and general registers.
    pub record_groups: u32,
    /// Most return addresses that the driver collects by following frame pointers with each sample; 0 for none. Each
    /// record then raises a PMI of its own, so nothing is batched.
    pub frames: u32,
    /// Last branch records kept with each sample; 0 for none. Architectural records hold 8, 16 or 32, and so at least as many.
    /// Where hardware does not write them into its records ([`super::InfoFlags::RECORDS_BRANCHES`]), and with samples by
    /// interrupt, the driver reads them: each record then raises a PMI of its own, and has no stack beside them.
    pub branches: u32,
    /// Entries of each CPU's ring of markers: 0 for none, else a power of two from 64 to 65536.
    pub markers: u32,
    /// Which branches are recorded: [`BranchFilter`] bits, or 0 for all types. Those of the privilege levels that the session's
    /// events count.
    pub branch_filter: u32,
    /// Readers are woken so many ms after something was published, 10 to 10,000, up to a quarter sooner or later where a timer comes
    /// then anyway, unless a reader of another session has to be woken sooner; 0 for the driver's default of 50. They are woken at
    /// once when a quarter of a ring has filled.
    pub wake_ms: u32,
    /// At most so many bytes in a segment, at least [`super::SEGMENT_BYTES`]; 0 for that many. The larger a segment, the fewer PMIs.
    /// [`super::IOCTL_CONFIGURE`] returns what they have: a multiple of [`super::SEGMENT_BYTES`] that there are three of at least, that every
    /// CPU's entry area has room for, and a power of two for architectural PEBS; no more than [`super::SEGMENT_BYTES`] where
    /// the driver itself looks at each record, or hardware can fill only the first page of each (Core 2).
    pub segment_bytes: u32,
    /// Must be zero.
    pub reserved: u32,
}
const _: () = assert!(core::mem::size_of::<SessionConfig>() == 32 + 16 + 40 * EVENTS_MAX + 72);

impl SessionConfig {
    /// Nothing asked for.
    pub const EMPTY: Self = Self {
        envelope: Envelope::new::<Self>(),
        scope: 0,
        pid: 0,
        flags: 0,
        event_count: 0,
        events: [EventSpec::UNUSED; EVENTS_MAX],
        segments: 0,
        quanta: 0,
        stack_bytes: 0,
        stack_ring_bytes: 0,
        max_quantum_ns: 0,
        max_threads: 0,
        cpu: 0,
        cgroup_fd: 0,
        proof_fd: 0,
        record_groups: 0,
        frames: 0,
        branches: 0,
        markers: 0,
        branch_filter: 0,
        wake_ms: 0,
        segment_bytes: 0,
        reserved: 0,
    };

    /// Segments of each CPU, of [`SessionConfig::segment_bytes`] each.
    #[must_use]
    pub const fn segment_count(&self) -> u32 {
        let units = self.segment_bytes / super::SEGMENT_BYTES;
        // Without a division by what may be zero nothing can panic.
        match self.segments.checked_div(units) {
            Some(count) => count,
            None => self.segments,
        }
    }
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Bits of [`SessionConfig::branch_filter`].
pub struct BranchFilter;
impl BranchFilter {
    /// Conditional jumps.
    pub const CONDITIONAL: u32 = 1;
    /// Direct jumps.
    pub const JUMP: u32 = 1 << 1;
    /// Indirect jumps.
    pub const INDIRECT_JUMP: u32 = 1 << 2;
    /// Direct calls.
    pub const CALL: u32 = 1 << 3;
    /// Indirect calls.
    pub const INDIRECT_CALL: u32 = 1 << 4;
    /// Returns.
    pub const RETURN: u32 = 1 << 5;
    /// Far branches: system calls, interrupts and the ways back. Recorded only in a session whose events count kernel mode.
    pub const FAR: u32 = 1 << 6;
    /// Every type.
    pub const TYPES: u32 = (1 << 7) - 1;
    /// Not what was executed last, but the calls that have not returned yet: the call stack of user mode. Each thread
    /// keeps its own over switches. No other bit beside it.
    pub const CALL_STACK: u32 = 1 << 7;
}

/// Bits of [`SessionConfig::flags`].
pub struct SessionFlags;
impl SessionFlags {
    /// After [`super::IOCTL_START`], wait for the target's next `execve` before anything is measured.
    pub const START_ON_EXEC: u32 = 1;
    /// Processes forked by a monitored one are monitored too.
    pub const INHERIT: u32 = 1 << 1;
    /// Events that do not fit the counters together are measured in turns ([`super::Quantum::active`] says which were
    /// on); without it they are refused.
    pub const MULTIPLEX: u32 = 1 << 2;
    /// Each monitored thread gets a page from which user space reads its counters without a system call.
    pub const COUNTER_PAGES: u32 = 1 << 3;
    /// Of [`Scope::System`] measure [`SessionConfig::cpu`] only.
    pub const ONE_CPU: u32 = 1 << 4;
    /// [`SessionConfig::proof_fd`] is given.
    pub const PROOF: u32 = 1 << 5;
    /// Others may measure the same threads: this session waits while one does that does not share, and takes turns with those that do.
    /// Its counts are then what was counted in its turns ([`super::Totals::running_tsc`], [`super::QuantumFlags::LENT`]). Not with
    /// [`Self::COUNTER_PAGES`] or branch records, which tell of a thread without gaps.
    pub const SHARED: u32 = 1 << 6;
    /// Every known bit.
    pub const ALL: u32 = (1 << 7) - 1;
}
