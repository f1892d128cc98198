//! What processors do beside their description: counters that do not count every event, or not after every change.

use crate::rig;
use crate::rig::core::Instruction::{Load, Store};
use crate::rig::scene::{config, counted, interrupting, precise};
use crate::rig::Rig;
use hpm_abi::{EventSpec, QuantumEnd, SessionConfig, SessionFlags};
use hpm_core::{events, Pmu};
use vpmu::profile::{self, Profile};
use vpmu::Options;

fn rig(profile: &'static Profile) -> Rig {
    Rig::of(profile, 1, Options::default())
}

/// This profile's PMU with hyper-threading off: its logical processor has eight general counters.
fn of_eight_counters(profile: &'static Profile) -> Pmu {
    let mut pmu = rig(profile).pmu;
    pmu.perfmon.general = 0xFF;
    pmu
}

#[test]
fn of_eight_counters_an_event_gets_those_that_count_it() {
    let low: [(&'static Profile, &[u64]); 4] = [
        (&profile::SANDY_BRIDGE, &[0x04A3 | 4 << 24, 0x05A3 | 5 << 24, 0x81D0]),
        (&profile::IVY_BRIDGE, &[0x019C, 0x02A3, 0x04A3, 0x05A3, 0x06A3, 0x0279, 0x01B7, 0x01BB]),
        (&profile::HASWELL, &[0x019C, 0x02A3, 0x04A3, 0x05A3, 0x06A3, 0x11BC, 0x28BC]),
        (&profile::BROADWELL, &[0x019C]),
    ];
    for (profile, encodings) in low {
        let pmu = of_eight_counters(profile);
        let counters = |encoding, privilege| {
            let extra = u64::from([0x01B7, 0x01BB].contains(&encoding));
            let event = EventSpec { privilege, extra, ..counted(encoding) };
            events::check(&pmu, 0, &event).expect("an event").counters.general_bits()
        };
        let both = EventSpec::USER | EventSpec::KERNEL;
        for &encoding in encodings {
            assert_eq!(counters(encoding, both), 0x0F, "{} {encoding:#x}", profile.name);
        }
        assert_eq!(counters(0x00C4, both), 0xFF, "{}", profile.name);
        let user = if profile.name == "broadwell" { 0x0F } else { 0xFF };
        assert_eq!(counters(0x00C4, EventSpec::USER), user, "{}", profile.name);
        let sampled = events::check(&pmu, 0, &interrupting(0x00C4, 1000)).expect("an event").sampling;
        assert_eq!(sampled.expect("sampled").counters.general_bits(), user, "{}", profile.name);
    }
}

/// Linux's `intel_snb_event_constraints`, `intel_hsw_event_constraints`, `intel_bdw_event_constraints` and
/// `intel_icl_event_constraints`: all of event 48H, unit masks 08H and 0CH of A3H, any of its with bit 3, and all but three of them.
#[test]
fn unit_masks_that_no_list_names_have_the_counters_of_their_event_select_or_bit() {
    let counters = |profile, encoding: u64| {
        let pmu = of_eight_counters(profile);
        let event = EventSpec { privilege: EventSpec::USER | EventSpec::KERNEL, ..counted(encoding) };
        events::check(&pmu, 0, &event).expect("an event").counters.general_bits()
    };
    let activity = |profile, masks: std::ops::RangeInclusive<u64>, on: &dyn Fn(u64) -> u16| {
        for mask in masks {
            let found = counters(profile, mask << 8 | 0xA3);
            assert_eq!(found, on(mask), "{} unit mask {mask:#x}", profile.name);
        }
    };
    assert_eq!([0x0048, 0x0148, 0x0248, 0x0348].map(|code| counters(&profile::SANDY_BRIDGE, code)), [4; 4]);
    assert_eq!([0x0148, 0x0248].map(|code| counters(&profile::IVY_BRIDGE, code)), [4, 0xFF]);
    activity(&profile::BROADWELL, 0..=0xF, &|mask| if mask & 8 != 0 { 4 } else { 0xFF });
    activity(&profile::HASWELL, 8..=0xF, &|mask| if [8, 0xC].contains(&mask) { 4 } else { 0xFF });
    activity(&profile::ICE_LAKE, 0..=0x1F, &|mask| if [4, 0x10, 0x14].contains(&mask) { 0xFF } else { 0xF });
}

/// Linux's `intel_pmu_nhm_workaround`: the counters have run with these events before they count others.
#[test]
fn counters_that_stick_are_loosened_before_they_count_something_else() {
    let selects = (0..4).zip([0x43_00B5, 0x43_00D2, 0x43_00B1, 0x43_00B1]);
    let loosening: Vec<_> = selects
        .flat_map(|(number, select)| [(0x186 + number, select), (0xC1 + number, 0)])
        .chain([(0x38F, 0xF), (0x38F, 0)])
        .collect();
    for profile in [&profile::NEHALEM, &profile::WESTMERE, &profile::SANDY_BRIDGE, &profile::SKYLAKE] {
        let mut rig = rig(profile);
        rig.acquire();
        let session = rig.add_session(&config(&[counted(0x00C4)]));
        rig.cores[0].borrow_mut().machine.written.clear();
        rig::scene::start_thread(&mut rig, session);
        let core = rig.cores[0].borrow();
        let found = core.machine.written.windows(loosening.len()).any(|writes| writes == loosening);
        let stick = ["nehalem", "westmere"].contains(&profile.name);
        assert_eq!(found, stick, "{}: {:x?}", profile.name, core.machine.written);
    }
}

/// On Nehalem a new turn's event selects change what the counters hold.
#[test]
fn a_sampled_event_keeps_its_position_while_others_take_turns() {
    for profile in [&profile::NEHALEM, &profile::WESTMERE] {
        for sampled in [precise(0x020B, 103), interrupting(0x020B, 103)] {
            let mut rig = rig(profile);
            rig.acquire();
            let loads = counted(0x010B);
            let events = [loads, sampled, counted(0x020B), counted(0x00C4), loads, loads];
            let session =
                rig.add_session(&SessionConfig { flags: SessionFlags::MULTIPLEX, ..config(&events) });
            let thread = rig.add_thread(Some(session));
            rig.switch(0, thread, QuantumEnd::Preempted);
            for _ in 0..60 {
                rig.run(0, rig::TURN_TSC as usize + 1, &[Load, Store]);
                rig.cut(0, QuantumEnd::Timer);
                rig.read_all();
            }
            rig.stop(session);
            rig.read_all();
            let truth = rig.users[thread].truth;
            assert_eq!(rig.sessions[session].totals().counts[1], truth[1], "{}", profile.name);
            let seen = &rig.sessions[session].reader.threads[&rig.users[thread].tid];
            assert!((seen.records[1] * 103).abs_diff(truth[1]) <= 103, "{}", profile.name);
        }
    }
}
