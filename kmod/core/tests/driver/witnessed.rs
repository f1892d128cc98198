//! Random requests and interleavings on every family of PMUs: either the driver refuses, or the model raises no fault and the driver
//! counts what PMUs of the model count that are programmed once for each event and left alone.

mod requests;
mod witness;

use self::requests::session;
use self::witness::{by_cycle, Witness};
use crate::rig::core::Instruction::{self, Branch, Load, Plain, Store};
use crate::rig::scene::{config, counted};
use crate::rig::Rig;
use hpm_abi::{EventMode, QuantumEnd, SessionConfig};
use hpm_core::pmu::amd::generation_of;
use hpm_core::Program;
use proptest::prelude::*;
use vpmu::profile::{amd, Profile, PRESCOTT};
use vpmu::{Event, EventSet, MicroEvents, Options};

const CPUS: usize = 2;
const THREADS_PER_SESSION: usize = 2;
const MIXES: [&[Instruction]; 3] = [&[Plain, Load, Load, Store, Branch], &[Load], &[Plain, Branch]];

#[derive(Clone, Copy, Debug)]
enum Action {
    Run { cpu: usize, instructions: usize, mix: usize },
    Kernel { cpu: usize, instructions: usize },
    Switch { cpu: usize, thread: usize },
    Cut { cpu: usize },
    Read,
}

fn action() -> impl Strategy<Value = Action> {
    let cpu = || 0..CPUS;
    prop_oneof![
        4 => (cpu(), 1..1200usize, 0..MIXES.len())
            .prop_map(|(cpu, instructions, mix)| Action::Run { cpu, instructions, mix }),
        1 => (cpu(), 1..60usize).prop_map(|(cpu, instructions)| Action::Kernel { cpu, instructions }),
        4 => (cpu(), 0..6usize).prop_map(|(cpu, thread)| Action::Switch { cpu, thread }),
        1 => cpu().prop_map(|cpu| Action::Cut { cpu }),
        1 => Just(Action::Read),
    ]
}

#[derive(Debug)]
struct Scenario {
    sessions: Vec<SessionConfig>,
    actions: Vec<Action>,
    nmi_latency: u32,
}

fn scenario(profile: &'static Profile) -> impl Strategy<Value = Scenario> {
    let pmu = Rig::of(profile, 1, Options::default()).pmu;
    let sessions = prop::collection::vec(session(&pmu), 1..3);
    (sessions, prop::collection::vec(action(), 1..40), 0..12u32)
        .prop_map(|(sessions, actions, nmi_latency)| Scenario { sessions, actions, nmi_latency })
}

/// Profiles of Intel's architectural performance monitoring that are not hybrid.
fn architectural() -> Vec<&'static Profile> {
    let of_version_2 = |profile: &&&Profile| profile.perfmon().is_some_and(|pmu| pmu.version >= 2);
    vpmu::profile::every().filter(|profile| of_version_2(&profile) && profile.hybrid.is_none()).collect()
}

/// A scenario on one of these.
fn on_any(profiles: Vec<&'static Profile>) -> impl Strategy<Value = (&'static Profile, Scenario)> {
    prop::sample::select(profiles).prop_flat_map(|profile| (Just(profile), scenario(profile)))
}

/// Up to three of all that can happen, a fetch and a cycle.
fn anything(number: u64) -> MicroEvents {
    let basic = vpmu::Basic::ALL.len();
    let mut once = EventSet::of(&[Event::L1iRead]);
    let mut bits = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    for _ in 0..bits >> 62 {
        once.insert(Event::ALL[basic + bits as usize % (Event::COUNT - basic)]);
        bits = bits.rotate_right(13);
    }
    MicroEvents { once, cycles: 1 + (bits & 3) as u32, ..MicroEvents::default() }
}

struct Trial {
    rig: Rig,
    profile: &'static Profile,
    /// For each session the witnesses of what its threads did, one for each event.
    witnesses: Vec<Vec<Witness>>,
}

impl Trial {
    /// Lets the witnesses of the session whose thread is on the CPU look on at `act`.
    fn witnessed(&mut self, cpu: usize, act: impl FnOnce(&mut Rig)) {
        let session = self.rig.users[self.rig.on_cpu[cpu]].session;
        if let Some(session) = session {
            let witnesses = self.witnesses[session].iter_mut().map(Witness::lend);
            self.rig.cores[cpu].borrow_mut().witnesses = witnesses.collect();
        }
        act(&mut self.rig);
        if let Some(session) = session {
            let back = std::mem::take(&mut self.rig.cores[cpu].borrow_mut().witnesses);
            self.witnesses[session].iter_mut().zip(back).for_each(|(witness, pmu)| witness.take_back(pmu));
        }
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Run { cpu, instructions, mix } => {
                self.witnessed(cpu, |rig| rig.run_unjudged(cpu, instructions, MIXES[mix]));
            }
            Action::Kernel { cpu, instructions } => {
                self.witnessed(cpu, |rig| rig.run_kernel(cpu, instructions))
            }
            Action::Switch { cpu, thread } => {
                let thread = thread % self.rig.users.len();
                if !self.rig.on_cpu.contains(&thread) {
                    self.rig.switch(cpu, thread, QuantumEnd::Preempted);
                }
            }
            Action::Cut { cpu } => self.rig.cut(cpu, QuantumEnd::Timer),
            Action::Read => self.rig.give_back_all(),
        }
    }

    /// Holds each count against its witness; what is compared by cycles may differ by one for each stop and start. What a sampling
    /// counter alone counts is not held here: a record that is armed for a foreign thread sets it back (properties.rs).
    fn judge(&mut self, accepted: &[SessionConfig], actions: u64) {
        for (number, request) in accepted.iter().enumerate() {
            let totals = self.rig.sessions[number].totals();
            for (index, event) in request.events.iter().take(request.event_count as usize).enumerate() {
                let alone = self.rig.sessions[number].program.counting_counter(index).is_none();
                if alone && event.mode == EventMode::Precise as u8 {
                    continue;
                }
                let seen = self.witnesses[number][index].count();
                let tolerated = if by_cycle(&self.rig.pmu, event) { 2 * (actions + totals.pmis) } else { 0 };
                assert!(
                    totals.counts[index].abs_diff(seen) <= tolerated,
                    "{}: session {number}, event {:#x} ({:?}): {} instead of {seen}",
                    self.profile.name,
                    event.encoding,
                    event.mode,
                    totals.counts[index],
                );
            }
        }
    }
}

fn try_out(profile: &'static Profile, scenario: &Scenario) {
    let mut rig = Rig::of(profile, CPUS, Options::default());
    let before = rig.registers();
    for core in &rig.cores {
        core.borrow_mut().micro = anything;
        core.borrow_mut().machine.nmi_latency = scenario.nmi_latency;
    }
    rig.acquire();
    let accepted: Vec<SessionConfig> =
        scenario.sessions.iter().filter(|request| Program::new(&rig.pmu, request).is_ok()).copied().collect();
    let witnesses = accepted.iter().map(|request| Witness::of_all(profile, &rig.pmu, request)).collect();
    for request in &accepted {
        let session = rig.add_session(request);
        for _ in 0..THREADS_PER_SESSION {
            rig.add_thread(Some(session));
        }
    }
    let mut trial = Trial { rig, profile, witnesses };
    scenario.actions.iter().for_each(|&action| trial.perform(action));
    (0..accepted.len()).for_each(|session| trial.rig.stop(session));
    trial.judge(&accepted, scenario.actions.len() as u64);
    let unclaimed: u64 = trial.rig.cores.iter().map(|core| core.borrow().machine.unclaimed).sum();
    assert_eq!(unclaimed, 0, "{}: interrupts that nobody claimed", profile.name);
    trial.rig.release();
    assert_eq!(trial.rig.registers(), before, "{}", profile.name);
}

#[test]
fn a_generation_belongs_to_its_family() {
    for (family, model, name) in [
        (0xF, 0x41, "k8"),
        (0x10, 4, "family10h"),
        (0x15, 2, "family15h"),
        (0x16, 0, "family16h"),
        (0x17, 1, "zen1"),
        (0x17, 0x31, "zen2"),
        (0x17, 0x47, "zen2"),
        (0x19, 0x21, "zen3"),
        (0x19, 0x61, "zen4"),
        (0x1A, 2, "zen5"),
        (0x1A, 0x44, "zen5"),
    ] {
        assert_eq!(generation_of(family, model).map(|generation| generation.name), Some(name));
    }
    assert!(generation_of(0x17, 0x50).is_none() && generation_of(0x1A, 0x50).is_none());
}

/// What chance seldom meets: each event of the model's tables as it is written there, on whichever counter the driver gives it.
#[test]
fn every_event_of_the_tables_counts_where_the_driver_puts_it() {
    for profile in architectural() {
        for event in profile.events.iter().filter(|event| event.offcore.is_none()) {
            let encoding = u64::from(event.select)
                | u64::from(event.umask) << 8
                | u64::from(event.invert) << 23
                | u64::from(event.cmask) << 24;
            let sessions = vec![config(&[counted(encoding)])];
            let actions =
                vec![Action::Switch { cpu: 0, thread: 2 }, Action::Run { cpu: 0, instructions: 142, mix: 0 }];
            try_out(profile, &Scenario { sessions, actions, nmi_latency: 0 });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn k8_counts_exactly_what_was_asked(scenario in scenario(&amd::K8)) {
        try_out(&amd::K8, &scenario);
    }

    #[test]
    fn family_10h_counts_exactly_what_was_asked(scenario in scenario(&amd::FAMILY_10H)) {
        try_out(&amd::FAMILY_10H, &scenario);
    }

    #[test]
    fn family_15h_counts_exactly_what_was_asked(scenario in scenario(&amd::FAMILY_15H)) {
        try_out(&amd::FAMILY_15H, &scenario);
    }

    #[test]
    fn family_16h_counts_exactly_what_was_asked(scenario in scenario(&amd::FAMILY_16H)) {
        try_out(&amd::FAMILY_16H, &scenario);
    }

    #[test]
    fn zen_1_counts_exactly_what_was_asked(scenario in scenario(&amd::ZEN_1)) {
        try_out(&amd::ZEN_1, &scenario);
    }

    #[test]
    fn zen_2_counts_exactly_what_was_asked(scenario in scenario(&amd::ZEN_2)) {
        try_out(&amd::ZEN_2, &scenario);
    }

    #[test]
    fn zen_3_counts_exactly_what_was_asked(scenario in scenario(&amd::ZEN_3)) {
        try_out(&amd::ZEN_3, &scenario);
    }

    #[test]
    fn zen_4_counts_exactly_what_was_asked(scenario in scenario(&amd::ZEN_4)) {
        try_out(&amd::ZEN_4, &scenario);
    }

    #[test]
    fn zen_5_counts_exactly_what_was_asked(scenario in scenario(&amd::ZEN_5)) {
        try_out(&amd::ZEN_5, &scenario);
    }

    #[test]
    fn a_pentium_4_counts_exactly_what_was_asked(scenario in scenario(&PRESCOTT)) {
        try_out(&PRESCOTT, &scenario);
    }

    #[test]
    fn architectural_pmus_count_exactly_what_was_asked((profile, scenario) in on_any(architectural())) {
        try_out(profile, &scenario);
    }
}
