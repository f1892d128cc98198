//! The kernel's perf_event: opening events, reading their counts, and rings in which the kernel writes what happened.

mod probe;
mod ring;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;

pub use self::probe::Probes;
pub use self::ring::{RING_BYTES_ANY_USER, Ring};

/// What an event is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// This thread and, by inheritance, what it creates.
    Thread(i32),
    /// As `Thread`, from its next execve on.
    ThreadOnExec(i32),
    /// The threads of the control group whose directory this descriptor has open; on one CPU.
    Cgroup(i32),
    /// Every thread; on one CPU.
    Everything,
}

/// Type and number of an event (perf_event_open(2)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId {
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`.
    pub config: u64,
}

impl EventId {
    /// Counts nothing; carries the side band.
    pub const DUMMY: Self = Self::software(b::PERF_COUNT_SW_DUMMY);
    /// Time of a CPU in ns.
    pub const CPU_CLOCK: Self = Self::software(b::PERF_COUNT_SW_CPU_CLOCK);
    /// Time of a thread on CPUs in ns.
    pub const TASK_CLOCK: Self = Self::software(b::PERF_COUNT_SW_TASK_CLOCK);
    /// Page faults.
    pub const PAGE_FAULTS: Self = Self::software(b::PERF_COUNT_SW_PAGE_FAULTS);
    /// Page faults that needed no I/O.
    pub const MINOR_FAULTS: Self = Self::software(b::PERF_COUNT_SW_PAGE_FAULTS_MIN);
    /// Page faults that waited for I/O.
    pub const MAJOR_FAULTS: Self = Self::software(b::PERF_COUNT_SW_PAGE_FAULTS_MAJ);
    /// Switches away from a thread.
    pub const CONTEXT_SWITCHES: Self = Self::software(b::PERF_COUNT_SW_CONTEXT_SWITCHES);
    /// Moves of a thread to another CPU.
    pub const CPU_MIGRATIONS: Self = Self::software(b::PERF_COUNT_SW_CPU_MIGRATIONS);
    /// Core cycles.
    pub const CYCLES: Self = Self::hardware(b::PERF_COUNT_HW_CPU_CYCLES);
    /// Instructions retired.
    pub const INSTRUCTIONS: Self = Self::hardware(b::PERF_COUNT_HW_INSTRUCTIONS);
    /// Branches retired.
    pub const BRANCHES: Self = Self::hardware(b::PERF_COUNT_HW_BRANCH_INSTRUCTIONS);
    /// Branches mispredicted.
    pub const BRANCH_MISSES: Self = Self::hardware(b::PERF_COUNT_HW_BRANCH_MISSES);
    /// Accesses of the last-level cache, as the kernel understands it for this PMU.
    pub const CACHE_REFERENCES: Self = Self::hardware(b::PERF_COUNT_HW_CACHE_REFERENCES);
    /// Misses of the last-level cache, as the kernel understands it for this PMU.
    pub const CACHE_MISSES: Self = Self::hardware(b::PERF_COUNT_HW_CACHE_MISSES);

    const fn software(config: u32) -> Self {
        Self { kind: b::PERF_TYPE_SOFTWARE, config: config as u64 }
    }

    const fn hardware(config: u32) -> Self {
        Self { kind: b::PERF_TYPE_HARDWARE, config: config as u64 }
    }

    /// An encoding of the processor's PMU, as in IA32_PERFEVTSELx.
    #[must_use]
    pub const fn raw(encoding: u64) -> Self {
        Self { kind: b::PERF_TYPE_RAW, config: encoding }
    }

    /// A tracepoint or a probe of the kernel's tracing, by its number there.
    #[must_use]
    pub const fn tracepoint(number: u64) -> Self {
        Self { kind: b::PERF_TYPE_TRACEPOINT, config: number }
    }

    /// The same event on the cores of one type of a hybrid processor, by the number of the kernel's PMU for them.
    #[must_use]
    pub const fn of_pmu(self, kind: u32) -> Self {
        match self.kind {
            b::PERF_TYPE_HARDWARE => Self { config: self.config | (kind as u64) << 32, ..self },
            b::PERF_TYPE_RAW => Self { kind, ..self },
            _ => self,
        }
    }

    /// Whether a counter of the PMU counts it, and not software.
    #[must_use]
    pub const fn is_hardware(self) -> bool {
        self.kind != b::PERF_TYPE_SOFTWARE && self.kind != b::PERF_TYPE_TRACEPOINT
    }

    /// Whether it counts nanoseconds.
    #[must_use]
    pub fn is_clock(self) -> bool {
        self == Self::CPU_CLOCK || self == Self::TASK_CLOCK
    }

    /// Whether it is of the scheduler, and so happens in kernel mode alone.
    #[must_use]
    pub fn is_of_scheduler(self) -> bool {
        self == Self::CONTEXT_SWITCHES || self == Self::CPU_MIGRATIONS
    }

    /// Whether the kernel counts single events as they happen: neither hardware counts them nor a timer.
    #[must_use]
    pub fn is_counted_singly(self) -> bool {
        !self.is_hardware() && !self.is_clock()
    }
}

/// How often an event writes a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampling {
    /// Never: it is only counted.
    Never,
    /// Each time so many events have happened.
    Period(u64),
    /// So many times a second; the kernel adapts the period.
    Frequency(u64),
}

/// What is included of what an attached thread creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherit {
    /// Nothing.
    Nothing,
    /// Threads of the same process (Linux 5.13).
    Threads,
    /// Threads and processes.
    All,
}

/// What is asked of an event.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Which event.
    pub event: EventId,
    /// When it writes records.
    pub sampling: Sampling,
    /// `PERF_SAMPLE_*` bits of every record.
    pub sample_type: u64,
    /// Bytes of user stack in each sample; 0 for none. Registers come with them ([`USER_REGISTERS`]).
    pub stack_bytes: u32,
    /// A call chain has the user's calls, which the kernel follows by frame pointers.
    pub user_chain: bool,
    /// What happens in user mode counts.
    pub user: bool,
    /// What happens in kernel mode counts.
    pub kernel: bool,
    /// What is included of what an attached thread creates.
    pub inherit: Inherit,
    /// It counts only after [`PerfEvent::enable`].
    pub disabled: bool,
    /// It reports mappings, with the build IDs of what is mapped, names, forks and exits.
    pub sideband: bool,
    /// It reports switches to and from the thread.
    pub switches: bool,
}

/// The least that a record has to say: thread and time.
pub const SAMPLE_TIME_AND_THREAD: u64 = (b::PERF_SAMPLE_TID | b::PERF_SAMPLE_TIME) as u64;
/// What a sample says of itself: which event, where, who, when, of which data, on which CPU, and how many events it stands
/// for.
pub const SAMPLE_EVENT: u64 = SAMPLE_TIME_AND_THREAD
    | (b::PERF_SAMPLE_IDENTIFIER
        | b::PERF_SAMPLE_IP
        | b::PERF_SAMPLE_ADDR
        | b::PERF_SAMPLE_CPU
        | b::PERF_SAMPLE_PERIOD) as u64;
/// How many events a sample stands for. A software event that is asked for this takes a sample of each single event, whatever its
/// period (`perf_swevent_event`, Linux, kernel/events/core.c).
pub const SAMPLE_PERIOD: u64 = b::PERF_SAMPLE_PERIOD as u64;
/// Return addresses, found by frame pointers.
pub const SAMPLE_CALLCHAIN: u64 = b::PERF_SAMPLE_CALLCHAIN as u64;
/// User registers and a piece of user stack.
pub const SAMPLE_USER_STACK: u64 = (b::PERF_SAMPLE_REGS_USER | b::PERF_SAMPLE_STACK_USER) as u64;

/// The user registers in samples with a stack, as bits of `perf_event_attr.sample_regs_user` (`asm/perf_regs.h`): AX, BX,
/// CX, DX, SI, DI, BP, SP, IP, FLAGS, and R8 to R15.
pub const USER_REGISTERS: u64 = 0xff_03ff;

impl Attributes {
    /// The period, where it is fixed and samples do not tell it.
    pub(crate) fn untold_period(&self) -> Option<u64> {
        match self.sampling {
            Sampling::Period(period) if self.sample_type & SAMPLE_PERIOD == 0 => Some(period),
            _ => None,
        }
    }

    /// The kernel's structure, for CLOCK_MONOTONIC_RAW.
    fn attr(&self, attach: Attach) -> b::perf_event_attr {
        let mut attr =
            b::perf_event_attr { size: size_of::<b::perf_event_attr>() as u32, ..Default::default() };
        attr.type_ = self.event.kind;
        attr.config = self.event.config;
        attr.sample_type = self.sample_type;
        match self.sampling {
            Sampling::Never => {}
            Sampling::Period(period) => attr.__bindgen_anon_1.sample_period = period,
            Sampling::Frequency(hz) => {
                attr.__bindgen_anon_1.sample_freq = hz;
                attr.set_freq(1);
            }
        }
        if self.stack_bytes > 0 {
            attr.sample_stack_user = self.stack_bytes;
            attr.sample_regs_user = USER_REGISTERS;
        }
        attr.read_format = (b::PERF_FORMAT_TOTAL_TIME_ENABLED | b::PERF_FORMAT_TOTAL_TIME_RUNNING).into();
        attr.clockid = libc::CLOCK_MONOTONIC_RAW;
        attr.set_use_clockid(1);
        attr.set_sample_id_all(1);
        let thread = matches!(attach, Attach::Thread(_) | Attach::ThreadOnExec(_));
        attr.set_inherit((thread && self.inherit != Inherit::Nothing).into());
        attr.set_inherit_thread((thread && self.inherit == Inherit::Threads).into());
        for set in
            [b::perf_event_attr::set_mmap, b::perf_event_attr::set_mmap2, b::perf_event_attr::set_mmap_data]
        {
            set(&mut attr, self.sideband.into());
        }
        attr.set_build_id(self.sideband.into());
        attr.set_comm(self.sideband.into());
        attr.set_comm_exec(self.sideband.into());
        attr.set_task(self.sideband.into());
        attr.set_context_switch(self.switches.into());
        attr.set_exclude_user((!self.user).into());
        attr.set_exclude_kernel((!self.kernel).into());
        attr.set_exclude_callchain_kernel((!self.kernel).into());
        attr.set_exclude_callchain_user((!self.user_chain).into());
        attr.set_exclude_hv(1);
        let on_exec = matches!(attach, Attach::ThreadOnExec(_));
        attr.set_disabled((self.disabled || on_exec).into());
        attr.set_enable_on_exec(on_exec.into());
        attr.set_watermark(1);
        attr.__bindgen_anon_2.wakeup_watermark = ring::WAKE_BYTES;
        attr
    }
}

/// What an event has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Events.
    pub count: u64,
    /// Time in ns during which it should have been counted.
    pub enabled_ns: u64,
    /// Time in ns during which it was.
    pub running_ns: u64,
}

/// An open event. Dropping it ends its counting.
#[derive(Debug)]
pub struct PerfEvent(OwnedFd);

impl PerfEvent {
    /// Opens an event on one CPU, or, for a thread, on whichever it runs; with others of a `group` it is counted at the
    /// same times or not at all.
    ///
    /// # Errors
    /// The system's: EACCES without the right, ENOENT for an event that this machine has not, ENODEV for a CPU that is
    /// offline, ESRCH for a thread that has ended.
    pub fn open(
        attributes: &Attributes,
        attach: Attach,
        cpu: Option<u32>,
        group: Option<&Self>,
    ) -> io::Result<Self> {
        let mut attr = attributes.attr(attach);
        match Self::open_as(&mut attr, attach, cpu, group) {
            Err(reason) if attr.build_id() == 1 && reason.raw_os_error() == Some(libc::EINVAL) => {
                // Linux before 5.12 tells inodes instead.
                attr.set_build_id(0);
                Self::open_as(&mut attr, attach, cpu, group)
            }
            result => result,
        }
    }

    fn open_as(
        attr: &mut b::perf_event_attr,
        attach: Attach,
        cpu: Option<u32>,
        group: Option<&Self>,
    ) -> io::Result<Self> {
        let mut flags = u64::from(b::PERF_FLAG_FD_CLOEXEC);
        let pid = match attach {
            Attach::Thread(tid) | Attach::ThreadOnExec(tid) => tid,
            Attach::Cgroup(descriptor) => {
                flags |= u64::from(b::PERF_FLAG_PID_CGROUP);
                descriptor
            }
            Attach::Everything => -1,
        };
        let (cpu, group) =
            (cpu.map_or(-1, |cpu| cpu as i32), group.map_or(-1, |leader| leader.0.as_raw_fd()));
        // SAFETY: `attr` is properly initialised and says its own size; the event writes only to rings that are mapped for it later.
        let fd = unsafe { perf::perf_event_open(attr, pid, cpu, group, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// What it has counted, with what its inherited copies have.
    ///
    /// # Errors
    /// The system's.
    pub fn read(&self) -> io::Result<Reading> {
        let mut bytes = [0; 24];
        let length = nix::unistd::read(&self.0, &mut bytes)?;
        // An event in a group that could not be scheduled at all reads as end of file.
        if length < bytes.len() {
            return Ok(Reading::default());
        }
        let word = |index: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[index * 8 + byte]));
        Ok(Reading { count: word(0), enabled_ns: word(1), running_ns: word(2) })
    }

    /// The number by which samples name it.
    ///
    /// # Errors
    /// The system's.
    pub fn id(&self) -> io::Result<u64> {
        let mut id = 0;
        // SAFETY: the request writes one u64 to the pointer, which is valid for the call.
        let status = unsafe { perf::ioctls::ID(self.0.as_raw_fd(), &raw mut id) };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(id) }
    }

    /// Starts counting.
    ///
    /// # Errors
    /// The system's.
    pub fn enable(&self) -> io::Result<()> {
        // SAFETY: the request takes a number and touches no memory of ours.
        let status = unsafe { perf::ioctls::ENABLE(self.0.as_raw_fd(), 0) };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Stops counting; the count stays.
    ///
    /// # Errors
    /// The system's.
    pub fn disable(&self) -> io::Result<()> {
        // SAFETY: as in `enable`.
        let status = unsafe { perf::ioctls::DISABLE(self.0.as_raw_fd(), 0) };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Lets its records go to the ring of another event of the same CPU.
    ///
    /// # Errors
    /// The system's.
    pub fn send_to(&self, ring: &Ring) -> io::Result<()> {
        // SAFETY: the request takes a descriptor by value and touches no memory of ours.
        let status = unsafe { perf::ioctls::SET_OUTPUT(self.0.as_raw_fd(), ring.event().0.as_raw_fd()) };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl AsFd for PerfEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
