//! Why a request was refused, in more words than an errno has.

/// A refusal's reason. `detail` is [`super::Envelope::detail`].
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The caller speaks another version; `detail[0]` is the driver's.
    Version = 1,
    /// A size, count, flag or reserved field is not valid; `detail[0]` is the byte offset of the field.
    Field = 2,
    /// The processor's PMU is not one that hpm knows; `detail` is family and model.
    UnknownPmu = 3,
    /// The processor reports no PMU (CPUID.0AH is zero), as most virtual machines do.
    NoPmu = 4,
    /// The PMU does not have the event, or not with these bits; `detail[0]` is its index, `detail[1]` the bits refused.
    EventBits = 5,
    /// The event cannot be sampled precisely; `detail[0]` is its index.
    NotPrecise = 6,
    /// The events do not fit the counters at the same time; `detail[0]` is the index of the first that found no place.
    NoCounter = 7,
    /// The period is below the floor; `detail` is the index and the floor.
    PeriodTooSmall = 8,
    /// Counters are reserved by somebody else (the kernel's perf, the NMI watchdog); `detail[0]` is the first MSR refused.
    CountersReserved = 9,
    /// A counter is running that nobody reserved (Intel PT, a firmware agent, …); `detail` is the MSR and its value.
    CountersRunning = 10,
    /// Another hpm session uses the PMU in a way that excludes this one; `detail[0]` is its owner's PID.
    SessionBusy = 11,
    /// Kernel-mode events need CAP_PERFMON, or perf_event_paranoid at most 1.
    NeedKernelRight = 12,
    /// System-wide sessions need CAP_PERFMON, or perf_event_paranoid at most 0.
    NeedSystemRight = 13,
    /// Measuring this process needs CAP_PERFMON, or a proof that the caller may read it ([`super::SessionConfig`]).
    NeedTargetRight = 14,
    /// No process has this PID; `detail[0]` is the PID.
    NoProcess = 15,
    /// Not given any more: precise sampling into mapped memory needed the right to see the kernel.
    NeedPreciseRight = 16,
    /// The kernel is locked down; it forbids what perf would need.
    LockedDown = 17,
    /// Processor Trace runs; hpm refuses beside it.
    IntelPt = 18,
    /// The memory could not be had; `detail[0]` is the bytes asked for.
    NoMemory = 19,
    /// The descriptor is already configured.
    Configured = 20,
    /// The descriptor is not configured.
    NotConfigured = 21,
    /// The processor has no PEBS, or the kernel's errata checks disable it.
    NoPebs = 22,
    /// The CPU entry area has no PEBS slots to map segments into.
    NoEntryArea = 23,
    /// Not given any more: the module is being unloaded.
    Unloading = 24,
    /// A tracepoint that the driver needs is missing from this kernel.
    NoTracepoint = 25,
    /// The session does not measure this thread, or gives no counter pages; `detail[0]` is the thread's ID.
    NotMeasured = 26,
    /// [`super::SessionConfig::proof_fd`] proves nothing: it is no `/proc/PID/environ` of the target, or the target has
    /// executed another program since it was opened.
    ProofInvalid = 40,
    /// The CPU is not online; `detail[0]` is its number.
    NoCpu = 41,
    /// [`super::SessionConfig::cgroup_fd`] is not the directory of a control group of version 2.
    NoCgroup = 42,
    /// The session's memory exceeds what the user may lock; `detail` is the bytes asked for and the bytes allowed.
    MemoryLimit = 43,
    /// As many sessions are configured as the driver allows (module parameter `max_sessions`), or are started as it has places for (64);
    /// `detail[0]` is that number.
    TooManySessions = 44,
    /// The session's memory exceeds the module parameter `max_session_mib`; `detail` is the bytes asked for and allowed.
    MemoryCeiling = 45,
    /// Guests stand in the way. `detail[0]` is 0 where virtualisation is on (CR4.VMXE) by a hypervisor that is not KVM, so that the driver is
    /// not told before a guest is entered, which would have PEBS records written to its addresses; 1 where guests have the PMU for
    /// themselves (KVM's mediated vPMU).
    Virtualisation = 46,
    /// The event needs a register's value beside its encoding ([`super::EventSpec::extra`]); `detail` is its index and the
    /// register.
    ExtraMissing = 50,
    /// [`super::EventSpec::extra`] has bits that the event does not take; `detail` is its index and the bits refused.
    ExtraBits = 51,
    /// Two events want different values of one register; `detail` is the index of the later one and the register.
    ExtraConflict = 52,
    /// The processor does not write these groups of a record, or no event is sampled by records that it writes, or a group is missing that
    /// stacks need; `detail` is the
    /// groups at fault and those that it can write.
    RecordGroups = 53,
    /// The event is counted only while it is sampled precisely; `detail[0]` is its index.
    OnlyPrecise = 54,
    /// PEBS does not work with this microcode; `detail` is its revision and the least one that is needed (all bits set
    /// when no microcode helps).
    PebsErratum = 55,
    /// The processor has cores of several types, and the event means nothing on some of them: it must say for which it
    /// is. `detail[0]` is its index.
    CoreTypeMissing = 56,
    /// The processor has no cores of this type, or hpm does not know their PMU; `detail` is the event's index and the
    /// type.
    NoCoreType = 57,
    /// Several precise events were asked for, and this processor's records do not say which of them they are for;
    /// `detail[0]` is the index of the second. Or, if `detail[1]` is 1, the records do not always say it, and the event at index
    /// `detail[0]` is counted by its records alone.
    OnePrecise = 58,
    /// The processor keeps fewer last branch records; `detail` is how many were asked for, and how many there are.
    TooManyBranches = 59,
    /// The last branch records of this processor have no call-stack mode.
    NoCallStackMode = 60,
    /// Somebody uses the last branch records already; `detail` is the MSR that says so, and its value.
    BranchesRunning = 61,
    /// The driver reads the last branch records of this session, and can keep them in place of a stack only, not beside it.
    StackBesideBranches = 62,
    /// What the event counts cannot be told apart by the logical processors of a core, of which there are two;
    /// `detail[0]` is its index.
    SharedEvent = 63,
    /// The processor has no instruction-based sampling (IBS), or not of this kind; `detail[0]` is the event's index.
    NoIbs = 75,
    /// The kernel has not set up the interrupt of instruction-based sampling; `detail` is IBS_CTL and the entry of the local
    /// APIC's extended local vector table that it names.
    IbsInterrupt = 76,
    /// A CPU is online whose type of core none had when the session was configured.
    NewCoreType = 77,
    /// As many processes and threads are measured as the driver has places for; `detail[0]` is that number.
    TooManyProcesses = 78,
    /// What else happens in programs cannot be told ([`super::IOCTL_FOLLOW`]). `detail[0]` is 0 where the session measures neither a process
    /// nor a thread, else the errno with which the kernel refused a kprobe.
    NoReports = 79,
    /// Counters that the event could have do not set each other back (auto counter reload, CPUID.23H.2), as
    /// [`super::EventSpec::WINDOWED`] needs; `detail[0]` is the index of the event.
    NoReload = 80,
}

impl Reason {
    const ALL: [Self; 53] = [
        Self::Version,
        Self::Field,
        Self::UnknownPmu,
        Self::NoPmu,
        Self::EventBits,
        Self::NotPrecise,
        Self::NoCounter,
        Self::PeriodTooSmall,
        Self::CountersReserved,
        Self::CountersRunning,
        Self::SessionBusy,
        Self::NeedKernelRight,
        Self::NeedSystemRight,
        Self::NeedTargetRight,
        Self::NoProcess,
        Self::NeedPreciseRight,
        Self::LockedDown,
        Self::IntelPt,
        Self::NoMemory,
        Self::Configured,
        Self::NotConfigured,
        Self::NoPebs,
        Self::NoEntryArea,
        Self::Unloading,
        Self::NoTracepoint,
        Self::NotMeasured,
        Self::ProofInvalid,
        Self::NoCpu,
        Self::NoCgroup,
        Self::MemoryLimit,
        Self::TooManySessions,
        Self::MemoryCeiling,
        Self::Virtualisation,
        Self::ExtraMissing,
        Self::ExtraBits,
        Self::ExtraConflict,
        Self::RecordGroups,
        Self::OnlyPrecise,
        Self::PebsErratum,
        Self::CoreTypeMissing,
        Self::NoCoreType,
        Self::OnePrecise,
        Self::TooManyBranches,
        Self::NoCallStackMode,
        Self::BranchesRunning,
        Self::StackBesideBranches,
        Self::SharedEvent,
        Self::NoIbs,
        Self::IbsInterrupt,
        Self::NewCoreType,
        Self::TooManyProcesses,
        Self::NoReports,
        Self::NoReload,
    ];

    /// The reason with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        let mut i = 0;
        while i < Self::ALL.len() {
            if Self::ALL[i] as u32 == number {
                return Some(Self::ALL[i]);
            }
            i += 1;
        }
        None
    }
}
