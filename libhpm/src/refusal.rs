//! A request that the driver refused, in one sentence.

mod sentences;

use std::fmt;
use std::io;

pub use hpm_abi::Reason;
use hpm_abi::{Info, InfoFlags};

use crate::machine::{Holders, vendor};

/// A refused request: what was asked, and the driver's reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What was asked of the driver, as a verb phrase.
    pub doing: &'static str,
    /// The errno.
    pub errno: i32,
    /// [`Reason`] as its number; 0 when the driver gave none.
    pub reason: u32,
    /// What the reason is about; see [`Reason`].
    pub detail: [u64; 2],
    /// Names of the session's events, so that an index in `detail` can be named.
    pub events: Vec<String>,
    /// Events are sampled within windows of another one, which takes counters of its own.
    pub windows: bool,
    /// Who is likely to hold the counters, looked up when that is the reason.
    pub holders: Holders,
}

impl Refusal {
    /// What the driver will say to every session on this machine, if it cannot use the PMU, or there is none.
    #[must_use]
    pub fn of_machine(info: &Info) -> Option<Self> {
        if info.flags & InfoFlags::USABLE != 0 {
            return None;
        }
        // Of the vendors only Intel tells in every processor whether there is a PMU. Where the others say nothing, hpm does not know the
        // processor, or a hypervisor hides its counters.
        let may_be_hidden = vendor(info) == "GenuineIntel" || info.flags & InfoFlags::HYPERVISOR != 0;
        let reason =
            if info.perfmon_version == 0 && may_be_hidden { Reason::NoPmu } else { Reason::UnknownPmu };
        Some(Self {
            doing: "use the PMU",
            errno: libc::ENODEV,
            reason: reason as u32,
            detail: [info.family.into(), info.model.into()],
            events: Vec::new(),
            windows: false,
            holders: Holders::default(),
        })
    }

    /// The reason, if the driver gave one that this library knows.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        Reason::from_number(self.reason)
    }

    /// The event whose index is `detail[0]`.
    fn event(&self) -> String {
        let index = self.detail[0] as usize;
        self.events
            .get(index)
            .map_or_else(|| format!("event number {index}"), |name| format!("the event `{name}`"))
    }

    /// What to say where the driver gave no reason.
    fn unexplained(&self) -> String {
        let source = io::Error::from_raw_os_error(self.errno);
        match self.reason {
            0 => format!("the hpm driver could not {}: {source}", self.doing),
            number => format!(
                "the hpm driver could not {} ({source}) for reason {number}, which this program does not know: \
                 install module and program from the same release",
                self.doing
            ),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(reason) = self.reason() else { return f.write_str(&self.unexplained()) };
        match reason {
            Reason::EventBits
            | Reason::NotPrecise
            | Reason::NoCounter
            | Reason::PeriodTooSmall
            | Reason::CountersReserved
            | Reason::CountersRunning
            | Reason::BranchesRunning
            | Reason::SessionBusy
            | Reason::IntelPt => f.write_str(&self.about_counters(reason)),
            Reason::ExtraMissing
            | Reason::ExtraBits
            | Reason::ExtraConflict
            | Reason::RecordGroups
            | Reason::OnlyPrecise
            | Reason::PebsErratum
            | Reason::CoreTypeMissing
            | Reason::OnePrecise
            | Reason::SharedEvent
            | Reason::NoIbs
            | Reason::IbsInterrupt
            | Reason::NewCoreType
            | Reason::NoReload
            | Reason::NoCoreType => f.write_str(&self.about_generation(reason)),
            Reason::TooManyBranches | Reason::NoCallStackMode | Reason::StackBesideBranches => {
                f.write_str(&self.about_branches(reason))
            }
            Reason::NoReports
            | Reason::NeedKernelRight
            | Reason::NeedSystemRight
            | Reason::NeedTargetRight
            | Reason::NeedPreciseRight
            | Reason::LockedDown
            | Reason::NoProcess
            | Reason::ProofInvalid
            | Reason::NotMeasured => f.write_str(&self.about_rights(reason)),
            Reason::NoCpu
            | Reason::NoCgroup
            | Reason::MemoryLimit
            | Reason::TooManySessions
            | Reason::TooManyProcesses
            | Reason::MemoryCeiling => f.write_str(&self.about_limits(reason)),
            _ => f.write_str(&self.about_machine(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sentence of every reason, as one golden file.
    #[test]
    fn every_reason_has_a_sentence() {
        let mut text = String::new();
        for number in 1..100 {
            let Some(reason) = Reason::from_number(number) else { continue };
            let refusal = Refusal {
                doing: "configure a session",
                errno: libc::EINVAL,
                reason: number,
                detail: [1, 0x40],
                events: vec!["cycles".into(), "l1d-load-miss".into()],
                windows: false,
                holders: Holders { watchdog: true, processes: vec![] },
            };
            text += &format!("{reason:?}: {refusal}.\n");
        }
        insta::assert_snapshot!(text);
    }

    #[test]
    fn where_counters_are_few_windows_take_more_of_them() {
        let said = |windows| {
            let refusal = Refusal {
                doing: "configure a session",
                errno: libc::EINVAL,
                reason: Reason::NoCounter as u32,
                detail: [1, 0],
                events: vec!["branch-miss:u".into(), "instructions:u".into()],
                windows,
                holders: Holders::default(),
            };
            refusal.to_string()
        };
        assert!(
            said(true).contains("none left for the event `instructions:u`; with windows"),
            "{}",
            said(true)
        );
        assert!(
            said(true).ends_with("take two counters each: measure fewer events at once"),
            "{}",
            said(true)
        );
        assert!(said(false).contains("`hpmctl stat --multiplex`"), "{}", said(false));
    }

    #[test]
    fn a_machine_without_an_architectural_pmu_has_one_that_is_not_known_or_none() {
        let reason = |name: &str, perfmon_version, flags| {
            let mut vendor = [0; 16];
            vendor[..name.len()].copy_from_slice(name.as_bytes());
            Refusal::of_machine(&Info { vendor, perfmon_version, flags, ..Info::default() })?.reason()
        };
        assert_eq!(reason("GenuineIntel", 0, 0), Some(Reason::NoPmu));
        assert_eq!(reason("GenuineIntel", 1, 0), Some(Reason::UnknownPmu));
        assert_eq!(reason("AuthenticAMD", 0, 0), Some(Reason::UnknownPmu));
        assert_eq!(reason("AuthenticAMD", 0, InfoFlags::HYPERVISOR), Some(Reason::NoPmu));
        assert_eq!(reason("AuthenticAMD", 2, InfoFlags::USABLE), None);
    }

    /// A session that runs has no register to show: it only knows that it was disturbed.
    #[test]
    fn a_session_that_gave_up_shows_no_registers() {
        let refusal = Refusal {
            doing: "measure",
            errno: libc::EBUSY,
            reason: Reason::CountersRunning as u32,
            detail: [0; 2],
            events: vec![],
            windows: false,
            holders: Holders { watchdog: false, processes: vec![] },
        };
        let said = refusal.to_string();
        assert!(
            said.starts_with("somebody else changed which counters run") && !said.contains("0x"),
            "{said}"
        );
    }

    /// Nobody reserves the counters of PerfMon version 6: who holds them is named all the same.
    #[test]
    fn who_counts_without_a_reservation_is_guessed_where_somebody_is_there() {
        let said = |watchdog| {
            let refusal = Refusal {
                doing: "start",
                errno: libc::EBUSY,
                reason: Reason::CountersRunning as u32,
                detail: [0x38d, 0xb0],
                events: vec![],
                windows: false,
                holders: Holders { watchdog, processes: vec![] },
            };
            refusal.to_string()
        };
        assert!(said(true).contains("nmi_watchdog") && said(true).contains("Intel PT"), "{}", said(true));
        assert!(said(false).contains("stop what uses it"), "{}", said(false));
    }

    #[test]
    fn a_refusal_without_a_known_reason_tells_the_errno() {
        let mut refusal = Refusal {
            doing: "start",
            errno: libc::EIO,
            reason: 0,
            detail: [0; 2],
            events: vec![],
            windows: false,
            holders: Holders::default(),
        };
        assert_eq!(refusal.to_string(), "the hpm driver could not start: Input/output error (os error 5)");
        refusal.reason = 999;
        assert!(refusal.to_string().contains("reason 999"));
    }
}
