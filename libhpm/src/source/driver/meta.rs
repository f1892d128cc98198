//! What `meta.json` says of a recording by the driver.

use std::ffi::OsString;

use super::sample::attribution;
use crate::event::Event;
use crate::machine::{pmu_name, vendor};
use crate::record::BranchType;
use crate::session::{BranchFilter, EventMode, Session};
use crate::source::rows::{boot_id, host_name, kernel_release};
use crate::sys::clock::ClockPair;
use crate::trace::{self, Clock, EventUse, Machine, Meta};

/// What samples' branch records have. Those that follow calls become call stacks.
fn branch_types(session: &Session) -> Vec<BranchType> {
    let config = session.config();
    let recorded = config.branches > 0 && config.branch_filter != BranchFilter::CALL_STACK;
    if recorded { BranchType::of_filter(config.branch_filter) } else { Vec::new() }
}

/// The session as the trace describes it.
pub(super) fn meta(session: &Session, events: &[Event], command: &[OsString]) -> Meta {
    let info = session.info();
    let event = |(event, spec): (&Event, &crate::session::EventSpec)| trace::Event {
        name: event.name.clone(),
        encoding: spec.encoding,
        extra: spec.extra,
        attribution: attribution(spec.mode, info.pebs_format),
        mode: match spec.mode {
            mode if mode == EventMode::Precise as u8 => EventUse::Precise,
            mode if mode == EventMode::Interrupt as u8 => EventUse::Interrupt,
            _ => EventUse::Count,
        },
        period: spec.period,
        rate: spec.rate,
        randomised: spec.flags & crate::session::EventSpec::RANDOMISE != 0,
        user: event.user,
        kernel: event.kernel,
    };
    Meta {
        hpm_version: env!("CARGO_PKG_VERSION").into(),
        source: "driver".into(),
        machine: Machine {
            pmu: pmu_name(info),
            vendor: vendor(info),
            family: info.family,
            model: info.model,
            stepping: info.stepping,
            cpus: info.cpus,
            kernel_release: kernel_release(),
            host_name: host_name(),
            boot_id: boot_id(),
        },
        events: events.iter().zip(&session.config().events).map(event).collect(),
        clock: Clock { tsc_khz: info.tsc_khz.into(), pairs: vec![ClockPair::now().into()] },
        branches: Some(branch_types(session)),
        frame_pointers: session.config().frames > 0,
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        ..Meta::default()
    }
}
