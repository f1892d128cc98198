//! What `meta.json` says of a recording.

use std::ffi::OsString;
use std::fs;

use super::sample::attribution;
use libhpm::event::Event;
use libhpm::machine::{pmu_name, vendor};
use libhpm::session::{EventMode, Session};
use libhpm::sys;
use libhpm::trace::{self, Clock, ClockPair, EventUse, Machine, Meta};

/// The session as the trace describes it.
pub(super) fn meta(session: &Session, events: &[Event], command: &[OsString]) -> Meta {
    let info = session.info();
    let event = |(event, spec): (&Event, &libhpm::session::EventSpec)| trace::Event {
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
        randomised: spec.flags & libhpm::session::EventSpec::RANDOMISE != 0,
        user: event.user,
        kernel: event.kernel,
    };
    let kernel = |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
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
            kernel_release: kernel("osrelease").trim().into(),
            host_name: kernel("hostname").trim().into(),
        },
        events: events.iter().zip(&session.config().events).map(event).collect(),
        clock: Clock { tsc_khz: info.tsc_khz.into(), pairs: vec![clock_pair(sys::clock::ClockPair::now())] },
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        ..Meta::default()
    }
}

/// The moment, as the trace writes it.
pub(super) fn clock_pair(pair: sys::clock::ClockPair) -> ClockPair {
    let sys::clock::ClockPair { tsc, monotonic_raw_ns, realtime_ns } = pair;
    ClockPair { tsc, monotonic_raw_ns, realtime_ns }
}
