//! What `meta.json` says of a recording by the driver.

use std::ffi::OsString;

use super::sample::attribution;
use crate::event::Event;
use crate::machine::{pmu_name, vendor};
use crate::record::BranchType;
use crate::session::{BranchFilter, EventMode, EventSpec, Session};
use crate::source::rows::{boot_id, host_name, kernel_release};
use crate::sys::clock::ClockPair;
use crate::trace::{self, Clock, EventUse, Machine, Meta, Within};

/// What samples' branch records have. Those that follow calls become call stacks.
fn branch_types(session: &Session) -> Vec<BranchType> {
    let config = session.config();
    let recorded = config.branches > 0 && config.branch_filter != BranchFilter::CALL_STACK;
    if recorded { BranchType::of_filter(config.branch_filter) } else { Vec::new() }
}

/// The windows within which an event is sampled, of these of its session.
fn within<'a>(
    event: &Event,
    spec: &EventSpec,
    all: impl Iterator<Item = (&'a Event, &'a EventSpec)>,
) -> Option<Within> {
    let mut windows = all.filter(|(window, of)| {
        of.mode == EventMode::Count as u8 && of.period > 0 && event.is_for(window.core_type)
    });
    let (window, of) = windows.next().filter(|_| spec.flags & EventSpec::WINDOWED != 0)?;
    Some(Within { event: window.name.clone(), events: of.period })
}

/// The session as the trace describes it.
pub(super) fn meta(session: &Session, command: &[OsString]) -> Meta {
    let (info, events) = (session.info(), session.events());
    let specs = &session.config().events;
    let event = |(event, spec): (&Event, &EventSpec)| trace::Event {
        name: event.name.clone(),
        encoding: spec.encoding,
        extra: spec.extra,
        attribution: attribution(spec.mode, info.pebs_format),
        mode: match spec.mode {
            mode if mode == EventMode::Precise as u8 => EventUse::Precise,
            mode if mode == EventMode::Interrupt as u8 => EventUse::Interrupt,
            _ => EventUse::Count,
        },
        period: if spec.mode == EventMode::Count as u8 { 0 } else { spec.period },
        rate: spec.rate,
        randomised: spec.flags & EventSpec::RANDOMISE != 0,
        within: within(event, spec, events.iter().zip(specs)),
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
        events: events.iter().zip(specs).map(event).collect(),
        clock: Clock { tsc_khz: info.tsc_khz.into(), pairs: vec![ClockPair::now().into()] },
        branches: Some(branch_types(session)),
        frame_pointers: session.config().frames > 0,
        command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        ..Meta::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::parse_each;
    use crate::session::{Options, Target, Windows};

    #[test]
    fn each_type_of_cores_has_its_own_windows() {
        let each = |name: &str| parse_each(name, "lioncove+skymont").unwrap();
        let windows = Windows { events: each("load:u"), length: 5000 };
        let sampled = each("l1d-load-miss:u").into_iter();
        let options = sampled
            .fold(Options::new(Target::System), |options, event| options.sample(event, 100))
            .count(each("cycles:u")[0].clone());
        let events = [each("l1d-load-miss:u"), each("cycles:u"), each("load:u")].concat();
        let within_of = |options: &Options| -> Vec<Option<String>> {
            let specs = options.config().events;
            let all = || events.iter().zip(&specs);
            let within = all().map(|(event, spec)| within(event, spec, all()));
            within.map(|within| within.map(|within| format!("{} {}", within.events, within.event))).collect()
        };
        let [core, atom] = ["5000 cpu_core/load/u", "5000 cpu_atom/load/u"].map(|name| Some(name.to_owned()));
        assert_eq!(within_of(&options.clone().windows(Some(windows))), [core, atom, None, None, None]);
        assert_eq!(within_of(&options), [const { None }; 5]);
    }
}
