//! The sentence of each reason: what is wrong, and what to do.

use std::io;

use hpm_abi::{ABI_VERSION, EventSpec, Reason};

use super::Refusal;

const PERFMON: &str = "run as root, give hpmctl CAP_PERFMON";

impl Refusal {
    pub(super) fn about_counters(&self, reason: Reason) -> String {
        let [first, second] = self.detail;
        let event = self.event();
        match reason {
            Reason::EventBits => format!(
                "this PMU does not have {event}, or not with the bits {second:#x}; `hpmctl list` lists what it has"
            ),
            Reason::NotPrecise => format!(
                "{event} cannot be sampled precisely (PEBS); `hpmctl list` marks those that can, \
                 `hpmctl record --imprecise` samples it by interrupts, with skid"
            ),
            Reason::NoCounter => no_counter(&event, self.windows),
            Reason::PeriodTooSmall => {
                format!(
                    "the period of {event} is too small: the driver's floor is {second} events (-c {second})"
                )
            }
            Reason::CountersReserved => {
                format!(
                    "another user of the PMU holds the counters (first refused: MSR {first:#x}): {}",
                    self.holders
                )
            }
            Reason::BranchesRunning if self.detail == [0; 2] => {
                "somebody else has branches recorded on a CPU that came online: stop what uses them (a tool that \
                 writes MSRs, firmware), and measure again"
                    .to_owned()
            }
            Reason::BranchesRunning => format!(
                "somebody else has the last branch records (MSR {first:#x} reads {second:#x}): stop what uses them (a \
                 tool that writes MSRs, firmware), or record without branches"
            ),
            // A running session that gave up: there was no refusal to say more.
            Reason::CountersRunning if self.detail == [0; 2] => {
                "somebody else changed which counters run while the session \
                 measured: stop what writes MSRs (firmware, a hypervisor, a tool; from PerfMon version 6 on perf, too), and \
                 measure again"
                    .to_owned()
            }
            Reason::CountersRunning => {
                let others = "firmware, a hypervisor, Intel PT or a tool that writes MSRs";
                let what = if self.holders.is_empty() {
                    format!("stop what uses it ({others})")
                } else {
                    format!("{}; else {others}", self.holders)
                };
                format!("a counter runs that nobody reserved (MSR {first:#x} reads {second:#x}): {what}")
            }
            Reason::SessionBusy => {
                format!(
                    "the hpm session of PID {first} excludes this one: wait until it has ended, end it, or start one of the \
                     two with --share, unless both measure the same process or thread"
                )
            }
            _ => "Processor Trace is running and hpm refuses beside it: stop the intel_pt user first"
                .to_owned(),
        }
    }

    /// What depends on the generation of the processor.
    pub(super) fn about_generation(&self, reason: Reason) -> String {
        let [first, second] = self.detail;
        let event = self.event();
        match reason {
            Reason::ExtraMissing => format!(
                "{event} needs a value for the register {second:#x} beside its encoding (a latency threshold, an offcore \
                 response or a front-end event): give it one, or use an event by its name"
            ),
            Reason::ExtraBits => format!(
                "the value beside the encoding of {event} has bits that the event does not take ({second:#x}): leave them \
                 out; `hpmctl list` lists what this PMU has"
            ),
            Reason::ExtraConflict => format!(
                "{event} wants another value of the register {second:#x} than an event before it: measure them in \
                 turns (`hpmctl stat --multiplex`) or in two runs"
            ),
            Reason::RecordGroups => format!(
                "this processor does not write the record groups {first:#x}, no event is sampled so that it writes any, or they \
                 are missing from the request and stacks need them: it can write {second:#x}"
            ),
            Reason::OnlyPrecise => format!(
                "{event} is counted only while it is sampled precisely: use `hpmctl record` without --imprecise"
            ),
            Reason::PebsErratum if second == u64::from(u32::MAX) => {
                "PEBS does not work on this stepping of the processor (the kernel refuses it too): count with \
                 `hpmctl stat`"
                    .to_owned()
            }
            Reason::PebsErratum => format!(
                "PEBS does not work with this microcode (revision {first:#x}, as the kernel says too): update it to \
                 {second:#x} or later, or count with `hpmctl stat`"
            ),
            Reason::CoreTypeMissing => format!(
                "this processor has cores of several types, and {event} is not on all of them: say for which cores it \
                 is meant"
            ),
            Reason::NoIbs => format!(
                "{event} is sampled by instruction-based sampling (IBS), which this processor does not have, or not of this \
                 kind (virtual machines rarely have it): count with `hpmctl stat`, or sample with --imprecise"
            ),
            Reason::NewCoreType => {
                "a CPU is online whose type of core none had when the session began, so that what runs there would not be \
                 measured: measure again"
                    .to_owned()
            }
            Reason::IbsInterrupt => format!(
                "the kernel has not set up the interrupt of instruction-based sampling ({}see the kernel's messages on \
                 IBS): count with `hpmctl stat`, or sample with --imprecise",
                ibs_registers(self.detail)
            ),
            Reason::NoReload => no_reload(&event),
            Reason::OnePrecise => one_precise(&event, second == 1),
            Reason::SharedEvent => format!(
                "{event} cannot be told apart by the two logical processors of a core: switch Hyper-Threading off \
                 in the firmware, or measure another event"
            ),
            _ => format!("this processor has no cores of the type that {event} is for, or hpm does not know them"),
        }
    }

    pub(super) fn about_branches(&self, reason: Reason) -> String {
        let [asked, there] = self.detail;
        match reason {
            Reason::TooManyBranches if there == 0 => "this processor has no last branch records, or hpm does not know \
                 them (virtual machines rarely have any): record without branches, and stacks by another method"
                .to_owned(),
            Reason::TooManyBranches => {
                format!("{asked} last branch records were asked for and this processor keeps {there}: ask for fewer")
            }
            Reason::NoCallStackMode => "this processor's last branch records cannot follow calls (Haswell was the \
                 first that could): take stacks by unwind tables (--stacks=dwarf) or frame pointers (--stacks=fp)"
                .to_owned(),
            _ => "here the driver reads the last branch records itself and keeps them in the stack's place: record \
                 branches or another kind of stack, not both"
                .to_owned(),
        }
    }

    pub(super) fn about_rights(&self, reason: Reason) -> String {
        match reason {
            Reason::NeedKernelRight => format!(
                "events in kernel mode may not be measured by this user: {PERFMON}, set \
                 /proc/sys/kernel/perf_event_paranoid to 1 or less, or ask for user mode only (`:u`)"
            ),
            Reason::NeedSystemRight => format!(
                "the whole system (-a) may not be measured by this user: {PERFMON}, or set \
                 /proc/sys/kernel/perf_event_paranoid to 0 or less (enough from Linux 7.3 on)"
            ),
            Reason::NeedTargetRight => {
                "this process may not be measured by this user, to whom it does not belong: run as root, or give hpmctl \
                 CAP_PERFMON"
                    .to_owned()
            }
            Reason::ProofInvalid => {
                "the target has executed another program since the right to it was shown: try again, and if it stays so \
                 run as root, or give hpmctl CAP_PERFMON"
                    .to_owned()
            }
            Reason::NeedPreciseRight => format!(
                "precise sampling may not be used by this user, as a record can hold a kernel address: {PERFMON}, or set \
                 /proc/sys/kernel/perf_event_paranoid to 1 or less"
            ),
            Reason::NoReports => match self.detail[0] {
                0 => "the driver reports the mappings and threads of a process only: name one, or its program".to_owned(),
                errno => format!(
                    "this kernel does not let the driver follow the mappings of a process ({}), for which it needs kprobes on \
                     ftrace (CONFIG_KPROBES_ON_FTRACE): {PERFMON}, or set /proc/sys/kernel/perf_event_paranoid to 2 or less",
                    io::Error::from_raw_os_error(errno as i32)
                ),
            },
            Reason::LockedDown => {
                "the kernel is locked down (see /sys/kernel/security/lockdown) and forbids this: boot \
                                   without lockdown, which Secure Boot may switch on"
                    .to_owned()
            }
            Reason::NotMeasured => format!(
                "the session gives no counters of the thread {} (0 is the caller): it does not measure that thread, or was \
                 not opened with counter pages",
                self.detail[0]
            ),
            _ => format!("no process has the PID {}; it may have ended already", self.detail[0]),
        }
    }

    pub(super) fn about_limits(&self, reason: Reason) -> String {
        let [first, second] = self.detail;
        match reason {
            Reason::NoCpu => {
                format!("CPU {first} is not online; /sys/devices/system/cpu/online lists those that are")
            }
            Reason::NoCgroup => {
                "this is no control group of version 2: name its directory, which lies below a mounted \
                                 cgroup2 file system (often /sys/fs/cgroup)"
                    .to_owned()
            }
            Reason::MemoryLimit => format!(
                "the session needs {first} bytes of locked memory and this user has {second} left: raise the limit \
                 (`ulimit -l`), or give hpmctl CAP_PERFMON"
            ),
            Reason::MemoryCeiling => format!(
                "the session needs {first} bytes and the driver allows {second}: raise its parameter max_session_mib, or \
                 ask for smaller buffers"
            ),
            Reason::TooManyProcesses => format!(
                "hpm has places for {first} processes, and none is left for this one: end a session, or measure a control \
                 group or the system (`-a`)"
            ),
            _ => format!(
                "{first} hpm sessions are there, the most that the driver allows: end one, or raise its parameter \
                 max_sessions (more than 64 cannot be started at a time)"
            ),
        }
    }

    pub(super) fn about_machine(&self, reason: Reason) -> String {
        let [first, second] = self.detail;
        match reason {
            Reason::Version => format!(
                "the loaded hpm module speaks version {first} of the interface and this program version {ABI_VERSION}: \
                 install module and program from the same release"
            ),
            Reason::Field => format!(
                "the driver does not accept the value at byte {first} of the request to {}{}",
                self.doing,
                field(first as usize)
            ),
            Reason::UnknownPmu => format!(
                "hpm does not know the PMU of this processor (CPUID: family {first}, model {second:#x}), so that nothing can \
                 be counted or sampled here; `hpmctl doctor` tells which PMUs it knows and what still works"
            ),
            Reason::NoPmu => {
                "this machine shows no PMU that hpm knows, as most virtual machines do: switch the \
                              virtual PMU on in the hypervisor, or use the virtual lab (`lab run`)"
                    .to_owned()
            }
            Reason::NoMemory => format!(
                "the kernel could not give the {first} bytes that the session asks for: close other programs, or ask for \
                 smaller buffers"
            ),
            Reason::Configured => "this session is configured already: open another one".to_owned(),
            Reason::NotConfigured => "this session is not configured yet: configure it first".to_owned(),
            Reason::NoPebs => {
                "this processor has no PEBS, or the kernel disables it for an erratum: update the \
                               microcode, or count with `hpmctl stat`"
                    .to_owned()
            }
            Reason::Virtualisation if first == 0 => {
                "a hypervisor that is not KVM has switched virtualisation on, and precise records could end up in a guest: \
                 unload its module, or count with `hpmctl stat`"
                    .to_owned()
            }
            Reason::Virtualisation => "a virtual machine has the PMU for itself (KVM's mediated vPMU): end it, or start it \
                                       without a PMU of its own"
                .to_owned(),
            Reason::NoEntryArea => "this kernel has no PEBS slots in the CPU entry area: boot a kernel with \
                                    CONFIG_CPU_SUP_INTEL, or count with `hpmctl stat`"
                .to_owned(),
            Reason::Unloading => {
                "the hpm module is being unloaded: load it again with `modprobe hpm`".to_owned()
            }
            _ => "a tracepoint that the driver needs is missing: use a kernel with CONFIG_TRACEPOINTS"
                .to_owned(),
        }
    }
}

/// What IBS_CTL and the entry that it names read; nothing of a session that gave up, which does not know.
fn ibs_registers(detail: [u64; 2]) -> String {
    match detail {
        [0, 0] => String::new(),
        [control, entry] => format!("IBS_CTL reads {control:#x}, its entry {entry:#x}; "),
    }
}

/// The field of [`hpm_abi::SessionConfig`] at this offset, where a person can do something about it.
fn field(offset: usize) -> &'static str {
    use std::mem::{offset_of, size_of};
    type Config = hpm_abi::SessionConfig;
    const EVENTS: usize = offset_of!(Config, events);
    if (EVENTS..offset_of!(Config, segments)).contains(&offset) {
        return match (offset - EVENTS) % size_of::<EventSpec>() {
            o if o == offset_of!(EventSpec, encoding) => " (an event's encoding)",
            o if o == offset_of!(EventSpec, period) => " (an event's period)",
            _ => " (an event's mode)",
        };
    }
    match offset {
        o if o == offset_of!(Config, pid) => " (the PID)",
        o if o == offset_of!(Config, event_count) => " (the number of events: 1 to 16)",
        o if o == offset_of!(Config, stack_bytes) => " (the stack bytes: a multiple of 1024 up to 64512)",
        _ => "",
    }
}

/// Why an event cannot be measured beside the others; `windows`: with events that are sampled so, which cannot take turns.
fn no_counter(event: &str, windows: bool) -> String {
    let problem =
        format!("the events do not fit the counters at the same time: there is none left for {event}");
    if windows {
        return format!(
            "{problem}; with windows, the event that measures them and each that is sampled within them take two counters each: measure \
             fewer events at once"
        );
    }
    format!("{problem}; measure fewer events at once, or in turns (`hpmctl stat --multiplex`)")
}

/// Why an event cannot be sampled within windows of another one.
fn no_reload(event: &str) -> String {
    format!(
        "the counters that {event} could have here cannot set each other back (auto counter reload; those of Intel's efficient cores from \
         Skymont on, and later ones, can), as samples within windows need: leave --window out, on a hybrid processor name the efficient cores' \
         event (`cpu_atom/…/`), or name another event, which other counters can count"
    )
}

/// Why an event cannot be sampled beside other precise ones; `uncounted`: because nothing else counts it.
fn one_precise(event: &str, uncounted: bool) -> String {
    if uncounted {
        return format!(
            "this processor's records do not always say which event they are for, and only they tell the count of {event}: \
             sample it alone"
        );
    }
    format!(
        "this processor's records do not say which event they are for, and {event} is the second that is sampled precisely: \
         sample one at a time, or count the others"
    )
}
