//! The events that perf_event can measure without knowing the PMU.

use std::io;

use crate::event::split_list;
use crate::sys::perf::{Attach, Attributes, EventId, Inherit, PerfEvent, SAMPLE_TIME_AND_THREAD, Sampling};
use crate::{Error, Result};

/// A name that is understood, and what it means.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    /// As it is written.
    pub name: &'static str,
    /// The event.
    pub id: EventId,
    /// What it counts.
    pub description: &'static str,
    /// A period that gives some hundred to some thousand samples a second.
    pub period: u64,
}

const fn name(name: &'static str, id: EventId, period: u64, description: &'static str) -> Name {
    Name { name, id, description, period }
}

/// The names, software first. The clocks' period gives 1000 samples per second, and is no multiple of anything that a
/// program does regularly.
pub const NAMES: [Name; 13] = [
    name("cpu-clock", EventId::CPU_CLOCK, 999_983, "time on a CPU in ns, by the kernel's timer"),
    name(
        "task-clock",
        EventId::TASK_CLOCK,
        999_983,
        "time of the threads on CPUs in ns, by the kernel's timer",
    ),
    name("page-faults", EventId::PAGE_FAULTS, 1, "page faults; a sample has the address"),
    name(
        "minor-faults",
        EventId::MINOR_FAULTS,
        1,
        "page faults that needed no I/O; a sample has the address",
    ),
    name(
        "major-faults",
        EventId::MAJOR_FAULTS,
        1,
        "page faults that waited for I/O; a sample has the address",
    ),
    name("context-switches", EventId::CONTEXT_SWITCHES, 1, "switches away from a thread"),
    name("cpu-migrations", EventId::CPU_MIGRATIONS, 1, "moves of a thread to another CPU"),
    name("cycles", EventId::CYCLES, 1_000_003, "core cycles, by a hardware counter"),
    name("instructions", EventId::INSTRUCTIONS, 1_000_003, "instructions retired, by a hardware counter"),
    name("branches", EventId::BRANCHES, 100_003, "branches retired, by a hardware counter"),
    name("branch-misses", EventId::BRANCH_MISSES, 10_007, "branches mispredicted, by a hardware counter"),
    name(
        "cache-references",
        EventId::CACHE_REFERENCES,
        10_007,
        "accesses of the last cache, by a hardware counter",
    ),
    name("cache-misses", EventId::CACHE_MISSES, 1_009, "misses of the last cache, by a hardware counter"),
];

/// What `perf list` calls some of them besides.
const OTHER_NAMES: [(&str, &str); 5] = [
    ("cs", "context-switches"),
    ("faults", "page-faults"),
    ("migrations", "cpu-migrations"),
    ("cpu-cycles", "cycles"),
    ("branch-instructions", "branches"),
];

/// Whether the event of this name counts ns, as the kernel's clocks do, whatever its modifiers.
#[must_use]
pub fn counts_ns(event: &str) -> bool {
    let base = event.split(':').next().unwrap_or_default();
    NAMES.iter().any(|known| known.name == base && known.id.is_clock())
}

/// An event to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerfName {
    /// As it was asked for; one of [`NAMES`] where another name for it was given.
    pub name: String,
    /// The event.
    pub id: EventId,
    /// The period that its name suggests.
    pub period: u64,
    /// What happens in user mode counts.
    pub user: bool,
    /// What happens in kernel mode counts.
    pub kernel: bool,
}

impl PerfName {
    /// The same in user mode only, named so if both were meant. A clock that is not `sampled` has no mode and stays as it is.
    #[must_use]
    pub fn user_only(mut self, sampled: bool) -> Self {
        if self.user && self.kernel && (sampled || !self.id.is_clock()) {
            self.name.push_str(":u");
            self.kernel = false;
        }
        self
    }

    /// Whether it is opened for kernel mode. A clock that is not `sampled` goes on there in any case, and is opened as every user may.
    #[must_use]
    pub fn opens_kernel(&self, sampled: bool) -> bool {
        self.kernel && (sampled || !self.id.is_clock())
    }

    /// Whether the kernel counts it in the modes that it was asked for; `sampled` when it takes samples, too.
    ///
    /// # Errors
    /// [`Error::PerfEvent`]: it would count everything, or nothing.
    pub fn check(&self, sampled: bool) -> Result<()> {
        let reason = if self.id.is_of_scheduler() && !self.kernel {
            "it happens in kernel mode alone: name it without `:u`, as a user who may measure kernel mode (root, CAP_PERFMON, or \
             /proc/sys/kernel/perf_event_paranoid at 1 or less)"
        } else if self.id.is_clock() && !sampled && self.user != self.kernel {
            "the kernel counts it in both modes, whichever is asked for: name it without `:u` and `:k`"
        } else {
            return Ok(());
        };
        Err(Error::PerfEvent { event: self.name.clone(), reason: io::Error::other(reason) })
    }
}

/// Understands lists of events: names of [`NAMES`] and perf's other names for them, and for a PMU raw encodings as `r01c2`, each with `:u` or `:k` behind.
///
/// # Errors
/// [`Error::UnknownEvent`], [`Error::Tracepoint`] or [`Error::EventSyntax`].
pub fn parse(lists: &[String]) -> Result<Vec<PerfName>> {
    lists.iter().flat_map(|list| split_list(list)).map(parse_one).collect()
}

fn parse_one(text: &str) -> Result<PerfName> {
    let (body, modifiers) = text.split_once(':').unwrap_or((text, ""));
    let other = OTHER_NAMES.iter().find(|(other, _)| body.eq_ignore_ascii_case(other));
    let body = other.map_or(body, |(_, name)| name);
    let (user, kernel) = match modifiers {
        "" | "uk" | "ku" => (true, true),
        "u" => (true, false),
        "k" => (false, true),
        // As perf writes the kernel's tracepoints, `SUBSYSTEM:NAME`: more than modifiers behind what is no event.
        name if name.len() > 2 && known(body).is_err() => return Err(Error::Tracepoint(text.into())),
        _ => {
            let problem = format!("`:{modifiers}` is no privilege: write `:u` or `:k`, or leave it out");
            return Err(Error::EventSyntax { text: text.into(), problem });
        }
    };
    let (id, period) = known(body)?;
    let name = if modifiers.is_empty() { body.to_owned() } else { format!("{body}:{modifiers}") };
    Ok(PerfName { name, id, period, user, kernel })
}

fn known(body: &str) -> Result<(EventId, u64)> {
    let lower = body.to_ascii_lowercase();
    if let Some(known) = NAMES.iter().find(|known| known.name == lower) {
        return Ok((known.id, known.period));
    }
    if let Some(digits) = lower.strip_prefix('r').filter(|digits| !digits.is_empty())
        && let Ok(encoding) = u64::from_str_radix(digits, 16)
    {
        return Ok((EventId::raw(encoding), 100_003));
    }
    let mut near: Vec<_> =
        NAMES.iter().map(|known| (strsim::damerau_levenshtein(known.name, &lower), known)).collect();
    near.sort_by_key(|(distance, _)| *distance);
    let near = near.iter().filter(|(distance, _)| *distance <= 3).take(3);
    Err(Error::UnknownEvent {
        name: body.into(),
        pmu: "perf_event".into(),
        near: near.map(|(_, known)| known.name.to_owned()).collect(),
    })
}

/// Whether the kernel has a PMU that counts cycles for the calling thread; else what it says.
///
/// # Errors
/// [`Error::PerfEvent`].
pub fn hardware() -> Result<()> {
    try_open(EventId::CYCLES, "cycles")
}

/// Whether the kernel lets this user open software events.
///
/// # Errors
/// [`Error::PerfEvent`].
pub fn software() -> Result<()> {
    try_open(EventId::DUMMY, "dummy")
}

fn try_open(event: EventId, name: &str) -> Result<()> {
    let attributes = Attributes {
        event,
        sampling: Sampling::Never,
        sample_type: SAMPLE_TIME_AND_THREAD,
        stack_bytes: 0,
        user_chain: false,
        user: true,
        kernel: false,
        inherit: Inherit::Nothing,
        disabled: true,
        sideband: false,
        switches: false,
    };
    match PerfEvent::open(&attributes, Attach::Thread(0), None, None) {
        Ok(_) => Ok(()),
        Err(reason) => Err(Error::PerfEvent { event: name.into(), reason }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Result<PerfName> {
        parse(&[text.to_owned()]).map(|mut names| names.remove(0))
    }

    #[test]
    fn clocks_count_ns_whatever_their_modifiers() {
        let counts = ["cpu-clock", "task-clock:u", "cpu-clock:pppH"].map(counts_ns);
        assert_eq!((counts, counts_ns("cycles"), counts_ns("clock")), ([true; 3], false, false));
    }

    #[test]
    fn names_raw_encodings_and_privileges() {
        let all = parse(&["page-faults, cpu-clock:u".into(), "r01C2:k".into()]).unwrap();
        let seen: Vec<_> = all.iter().map(|name| (name.id, name.user, name.kernel)).collect();
        let expected = [
            (EventId::PAGE_FAULTS, true, true),
            (EventId::CPU_CLOCK, true, false),
            (EventId::raw(0x1c2), false, true),
        ];
        assert_eq!(seen, expected);
        assert!(all[2].id.is_hardware() && !all[0].id.is_hardware() && all[1].id.is_clock());
    }

    #[test]
    fn perf_s_other_names_mean_the_same() {
        let all =
            parse(&["cs,faults:u,Migrations".into(), "cpu-cycles:k,branch-instructions".into()]).unwrap();
        let seen: Vec<_> = all.iter().map(|event| event.name.as_str()).collect();
        let names = ["context-switches", "page-faults:u", "cpu-migrations", "cycles:k", "branches"];
        assert_eq!(seen, names);
    }

    #[test]
    fn what_is_not_understood_is_told() {
        let sentence = |text| one(text).unwrap_err().to_string();
        assert!(sentence("page-fault").contains("did you mean `page-faults`"), "{}", sentence("page-fault"));
        assert!(sentence("cycles:x").contains("`:x` is no privilege"));
        for tracepoint in ["sched:sched_switch", "raw_syscalls:sys_enter"] {
            assert!(
                sentence(tracepoint).contains("is a tracepoint, and hpm does not"),
                "{}",
                sentence(tracepoint)
            );
        }
        assert!(sentence("cs:pppH").contains("is no privilege"));
        assert!(sentence("rxyz").contains("no event is called"));
    }

    #[test]
    fn an_event_of_user_mode_is_named_so() {
        let user_only = |text, sampled| one(text).unwrap().user_only(sampled).name;
        assert_eq!(user_only("cycles", false), "cycles:u");
        assert_eq!(user_only("cycles:u", false), "cycles:u");
        assert_eq!(user_only("task-clock", true), "task-clock:u", "of its samples the mode is known");
        assert_eq!(user_only("task-clock", false), "task-clock");
    }

    #[test]
    fn what_the_kernel_would_count_falsely_is_refused() {
        let refused = |text, sampled| one(text).unwrap().check(sampled).err().map(|error| error.to_string());
        for (text, sampled) in [("context-switches:u", true), ("cpu-migrations:u", false)] {
            assert!(refused(text, sampled).unwrap().contains("in kernel mode alone"), "{text}");
        }
        for text in ["task-clock:u", "cpu-clock:k"] {
            assert!(refused(text, false).unwrap().contains("in both modes"), "{text}");
            assert_eq!(refused(text, true), None, "its samples are of that mode");
        }
        for text in ["task-clock", "context-switches", "cpu-migrations:k", "page-faults:u", "cycles:u"] {
            assert_eq!(refused(text, false), None, "{text}");
        }
    }
}
