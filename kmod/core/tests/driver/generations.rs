//! Every generation: its tables are sound, its processors are found, and whatever is asked of it is refused, or programmed
//! without a fault, and all registers are restored after it.

use std::cell::RefCell;
use std::rc::Rc;

use crate::rig;
use crate::rig::core::Core;
use crate::rig::core::Instruction::{Branch, Load, Plain, Store};
use crate::rig::port::CorePort;
use crate::rig::scene::{config, counted, exercise, hybrid, hybrid_of, interrupting, precise, INSTRUCTIONS};
use crate::rig::Rig;
use hpm_abi::{CoreType, EventMode, EventSpec, Info, QuantumEnd, Reason, SessionConfig};
use hpm_core::hybrid::check_types;
use hpm_core::pmu::{generation_of, ExtraRegister, Generation, GENERATIONS};
use hpm_core::port::Port;
use hpm_core::registers::PerfEvtSel;
use hpm_core::{detect, Pmu, Program};
use proptest::prelude::*;
use vpmu::profile::{self, PmuKind, Profile};
use vpmu::Options;

/// The names that the driver gives the profiles' PMUs.
const NAMES: [(&str, &str); 24] = [
    ("core2", "core2"),
    ("nehalem", "nehalem"),
    ("westmere", "westmere"),
    ("sandybridge", "sandybridge"),
    ("ivybridge", "ivybridge"),
    ("haswell", "haswell"),
    ("broadwell", "broadwell"),
    ("skylake", "skylake"),
    ("icelake", "icelake"),
    ("sapphirerapids", "goldencove"),
    ("graniterapids", "redwoodcove"),
    ("alderlake", "goldencove"),
    ("meteorlake", "redwoodcove"),
    ("sierraforest", "crestmont"),
    ("lunarlake", "lioncove"),
    ("arrowlakeh", "lioncove"),
    ("clearwaterforest", "darkmont"),
    ("pantherlake", "cougarcove"),
    ("alderlake", "gracemont"),
    ("meteorlake", "crestmont"),
    ("lunarlake", "skymont"),
    ("arrowlakeh", "skymont"),
    ("arrowlakeh", "crestmont"),
    ("pantherlake", "darkmont"),
];

fn rig(profile: &'static Profile) -> Rig {
    Rig::of(profile, 1, Options::default())
}

/// Every core with a version of architectural performance monitoring that the driver takes.
fn cores() -> impl Iterator<Item = &'static Profile> {
    profile::cores()
        .filter(|profile| matches!(profile.pmu, PmuKind::Perfmon(perfmon) if perfmon.version >= 2))
}

#[test]
fn version_1_is_refused_without_a_register_touched() {
    let core = Rc::new(RefCell::new(Core::new(&profile::PERFMON1, Options::default())));
    let (mut cpuid, mut port) = (CorePort(Rc::clone(&core)), CorePort(core));
    let machine = detect(&mut cpuid, &mut port);
    assert_eq!(machine.perfmon.version, 1);
    assert_eq!(machine.pmu.expect_err("no global control").reason, Reason::UnknownPmu);
}

#[test]
fn every_profile_is_found_by_its_name() {
    let found: Vec<_> = cores().map(|profile| (profile.name, rig(profile).pmu.generation.name)).collect();
    assert_eq!(
        found.iter().map(|(_, name)| name).collect::<Vec<_>>(),
        NAMES.map(|(_, name)| name).iter().collect::<Vec<_>>(),
        "{found:?}"
    );
}

/// Leaf 0AH of Meteor Lake's performance cores says what the efficient ones have, leaf 23H what they have themselves.
#[test]
fn counters_are_those_of_the_core_that_is_asked() {
    let counters = |profile| {
        let perfmon = rig(profile).pmu.perfmon;
        (perfmon.version, perfmon.general, perfmon.fixed)
    };
    let efficient = profile::METEOR_LAKE.hybrid.and_then(|hybrid| hybrid.efficient).expect("E-cores");
    assert_eq!(counters(&profile::METEOR_LAKE), (5, 0xFF, 0b1111));
    assert_eq!(counters(efficient), (5, 0xFF, 0b111));
    assert_eq!(counters(&profile::SIERRA_FOREST), (5, 0xFF, 0b111));
}

#[test]
fn every_core_of_a_profile_has_pebs() {
    for profile in cores() {
        let pmu = rig(profile).pmu;
        assert!(pmu.pebs.is_ok(), "{}: {:?}", profile.name, pmu.pebs);
    }
}

#[test]
fn tables_are_sorted_and_every_precise_event_can_be_counted() {
    for generation in GENERATIONS {
        let name = generation.name;
        assert!(generation.events.windows(2).all(|pair| pair[0].select < pair[1].select), "{name}");
        let general = |encoding: u64| {
            let unit_mask = PerfEvtSel(encoding).whole_unit_mask();
            generation.event_of(encoding).is_some_and(|rule| unit_mask & !rule.unit_mask_bits == 0)
        };
        for rule in generation.precise {
            let counted = rule.count_as.is_none_or(general);
            assert!(counted, "{name}: {:#06x}", rule.encoding);
        }
        for encoding in generation.constrained.iter().map(|constraint| constraint.encoding.into()) {
            assert!(general(encoding), "{name}: {encoding:#06x}");
        }
        let mut precise: Vec<_> = generation.precise.iter().map(|rule| rule.encoding).collect();
        precise.sort_unstable();
        assert!(precise.windows(2).all(|pair| pair[0] != pair[1]), "{name}: an event twice");
    }
}

#[test]
fn registers_beside_the_encoding_are_interchangeable_only_where_the_counters_are() {
    for generation in GENERATIONS {
        let counters = |register| {
            let rule = generation.extra.iter().find(|rule| rule.register == register)?;
            let event = generation.event_of(rule.encoding.into()).expect("its event is known");
            Some(generation.counters(event, rule.encoding.into()))
        };
        let [first, second] = [ExtraRegister::OffcoreRsp0, ExtraRegister::OffcoreRsp1].map(counters);
        assert!(second.is_none() || first == second, "{}", generation.name);
    }
}

#[test]
fn a_model_belongs_to_one_generation() {
    let mut models: Vec<_> = GENERATIONS.iter().flat_map(|generation| generation.models).collect();
    models.sort_unstable();
    assert!(models.windows(2).all(|pair| pair[0] != pair[1]));
    // Or to one for each type of its cores.
    let hybrid = |core_type| {
        let of_type = GENERATIONS.into_iter().filter(move |generation| generation.core_type == core_type);
        let mut models: Vec<u32> = of_type.flat_map(|generation| generation.hybrid_models).copied().collect();
        models.sort_unstable();
        models
    };
    let [core, atom] = [CoreType::Core, CoreType::Atom].map(hybrid);
    assert!(core == atom && core.windows(2).all(|pair| pair[0] != pair[1]));
    let has_a_third = |model: &u32| generation_of(*model, CoreType::LowPower).is_some();
    assert!(models.iter().all(|model| !has_a_third(model)));
    assert_eq!(core.iter().filter(|model| has_a_third(model)).collect::<Vec<_>>(), [&0xC5]);
    assert!(core.iter().all(|model| !models.contains(&model)));
}

/// Precise instructions, loads, stores and branches of a generation; `None` for Core 2, which samples only instructions so.
fn precise_events(generation: &Generation) -> Option<[u64; 4]> {
    let has = |encoding: u64| generation.precise(encoding).is_some();
    let first = |encodings: &[u64]| encodings.iter().copied().find(|&encoding| has(encoding));
    let instructions = first(&[0x0100, 0x01C0])?;
    Some([instructions, first(&[0x81D0, 0x010B])?, first(&[0x82D0, 0x020B])?, first(&[0x00C4, 0x04C4])?])
}

#[test]
fn four_precise_events_at_once_are_counted_and_recorded_exactly_or_refused() {
    for profile in cores() {
        let mut rig = rig(profile);
        rig.acquire();
        let Some([instructions, loads, stores, branches]) = precise_events(rig.pmu.generation) else {
            assert_eq!(profile.name, "core2");
            continue;
        };
        let core_type = rig.pmu.core_type as u8;
        let events = [(instructions, 1000), (loads, 700), (stores, 300), (branches, 130)]
            .map(|(encoding, period)| EventSpec { core_type, ..precise(encoding, period) });
        if rig.pmu.pebs.expect("PEBS").format < 3 {
            // The next test's.
            continue;
        }
        let session = rig.add_session(&config(&events));
        let thread = rig.add_thread(Some(session));
        rig.switch(0, thread, QuantumEnd::Preempted);
        for _ in 0..10 {
            rig.run(0, 4997, &[Plain, Load, Load, Store, Branch]);
            rig.cut(0, QuantumEnd::Timer);
            rig.read_all();
        }
        rig.stop(session);
        rig.read_all();
        let truth = rig.users[thread].truth;
        let seen = &rig.sessions[session].reader.threads[&rig.users[thread].tid];
        assert_eq!(seen.counts, truth, "{}", profile.name);
        for (event, spec) in events.iter().enumerate() {
            assert_eq!(seen.records[event], truth[event] / spec.period, "{} event {event}", profile.name);
        }
    }
}

/// Formats 1 and 2: a record shows all counters that have overflowed. One that shows several is of no event, and is neither mistaken nor
/// forgotten.
#[test]
fn records_that_show_several_counters_are_told_apart_or_left_out() {
    let mut seen_unclear = 0;
    for profile in cores() {
        let mut rig = rig(profile);
        let format = rig.pmu.pebs.expect("PEBS").format;
        let Some([_, loads, stores, _]) = precise_events(rig.pmu.generation).filter(|_| format < 3) else {
            continue;
        };
        rig.acquire();
        // Both overflow together now and then, and one often while the other waits for its event.
        let events = [precise(loads, 140), precise(stores, 210)];
        let session = rig.add_session(&config(&events));
        let [one, other] = [(); 2].map(|()| rig.add_thread(Some(session)));
        for round in 0..40 {
            rig.switch(0, [one, other][round % 2], QuantumEnd::Preempted);
            rig.run(0, 1000 + round, &[Plain, Load, Load, Store, Branch]);
            rig.read_all();
        }
        rig.stop(session);
        rig.read_all();
        for thread in [one, other] {
            let truth = rig.users[thread].truth;
            let seen = &rig.sessions[session].reader.threads[&rig.users[thread].tid];
            assert_eq!(seen.counts, truth, "{}", profile.name);
            let due = [0, 1].map(|event| truth[event] / events[event].period);
            let left_out = seen.unclear + seen.records_lost;
            let of_an_event: u64 = seen.records.iter().sum();
            assert_eq!(of_an_event + left_out, due[0] + due[1], "{}", profile.name);
            for (records, due) in seen.records.into_iter().zip(due) {
                assert!(records > 0 && records <= due && due - records <= left_out, "{}", profile.name);
            }
            seen_unclear += seen.unclear;
        }
    }
    assert!(seen_unclear > 0, "it never came to that");
}

/// Whose second counter is missing would be counted by its records.
#[test]
fn each_of_several_such_events_has_a_counter_for_its_count() {
    let mut counted_out = 0;
    for profile in cores() {
        let pmu = rig(profile).pmu;
        let several = precise_events(pmu.generation).filter(|_| pmu.pebs.is_ok_and(|pebs| pebs.format < 3));
        let Some([_, loads, stores, branches]) = several else { continue };
        let three = [precise(loads, 1000), precise(stores, 1000), precise(branches, 1000)];
        let others = [0x00C5, 0x412E, 0x4F2E, 0x013C].map(counted);
        for beside in 0..=others.len() {
            let events: Vec<_> = three.into_iter().chain(others).take(3 + beside).collect();
            for events in [&events[..], &events[1..]] {
                match Program::new(&pmu, &config(events)) {
                    Ok(program) => {
                        for event in 0..events.len() {
                            assert!(program.counting_counter(event).is_some(), "{}", profile.name);
                        }
                    }
                    Err(refused) => {
                        assert_eq!(refused.reason, Reason::NoCounter, "{}", profile.name);
                        counted_out += 1;
                    }
                }
            }
        }
    }
    assert!(counted_out > 0);
}

/// What only its records count cannot be told where some are of no event.
#[test]
fn an_event_that_its_records_count_is_sampled_alone_where_they_show_several_counters() {
    for profile in [&profile::NEHALEM, &profile::HASWELL] {
        let pmu = rig(profile).pmu;
        let latency = pmu.generation.precise.iter().find(|rule| rule.count_as.is_none());
        let latency = precise(latency.expect("load latency").encoding, 1000);
        let stores = precise_events(pmu.generation).expect("precise events")[2];
        let events = [precise(stores, 1000), EventSpec { extra: 30, ..latency }];
        let refused = Program::new(&pmu, &config(&events)).expect_err("it is refused");
        assert_eq!((refused.reason, refused.detail), (Reason::OnePrecise, [1, 1]));
    }
}

#[test]
fn segments_follow_each_other_on_every_profile() {
    for profile in cores() {
        let mut rig = rig(profile);
        rig.acquire();
        // All that runs are loads, so that instructions serve where loads cannot be sampled.
        let event = precise_events(rig.pmu.generation).map_or(INSTRUCTIONS, |[_, loads, ..]| loads);
        let core_type = rig.pmu.core_type as u8;
        let small = config(&[EventSpec { core_type, ..precise(event, 100) }]);
        let large = SessionConfig { segments: 6, segment_bytes: u32::MAX, ..small };
        let pmis = [small, large].map(|request| pmis_of_filled_segments(&mut rig, &request));
        if profile.name == "core2" {
            // 28 records fit into the only page that it may fill of a segment, however large; the PMI comes 16 before.
            assert_eq!(pmis, [1999 / 12; 2]);
            continue;
        }
        assert!(pmis[1] > 1 && pmis[0] > 3 && pmis[1] < pmis[0], "{}: {pmis:?}", profile.name);
    }
}

/// PMIs of a session that samples each hundredth of 200,000 loads.
fn pmis_of_filled_segments(rig: &mut Rig, request: &SessionConfig) -> u64 {
    let session = rig.add_session(request);
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    for _ in 0..100 {
        rig.run(0, 2000, &[Load]);
        rig.read_all();
    }
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&rig.users[thread].tid];
    let name = rig.pmu.generation.name;
    assert_eq!((seen.counts[0], seen.records[0], seen.records_lost), (200_000, 1999, 0), "{name}");
    rig.sessions[session].totals().pmis
}

#[test]
fn values_of_one_register_are_shared_or_moved_to_its_sibling_or_refused() {
    let rig = rig(&vpmu::profile::SKYLAKE);
    let offcore = |encoding, extra| EventSpec { extra, ..counted(encoding) };
    let new = |events: &[EventSpec]| Program::new(&rig.pmu, &config(events));
    assert!(new(&[offcore(0x01B7, 1), offcore(0x01B7, 1), offcore(0x01B7, 2)]).is_ok());
    assert!(new(&[offcore(0x01BB, 1), offcore(0x01B7, 1), offcore(0x01BB, 2)]).is_ok());
    let refused =
        new(&[offcore(0x01B7, 1), offcore(0x01BB, 2), offcore(0x01B7, 4)]).expect_err("three values");
    assert_eq!((refused.reason, refused.detail), (Reason::ExtraConflict, [2, 0x1A6]));
    let refused = new(&[counted(0x01B7)]).expect_err("no value");
    assert_eq!((refused.reason, refused.detail), (Reason::ExtraMissing, [0, 0x1A6]));
    let refused = new(&[offcore(0x01B7, 1 << 63)]).expect_err("no such bit");
    assert_eq!((refused.reason, refused.detail), (Reason::ExtraBits, [0, 1 << 63]));
    let refused = new(&[offcore(0x00C0, 7)]).expect_err("takes none");
    assert_eq!((refused.reason, refused.detail), (Reason::ExtraBits, [0, 7]));
    let groups =
        |events: &[EventSpec]| Program::new(&rig.pmu, &SessionConfig { record_groups: 1, ..config(events) });
    let refused = groups(&[counted(0x00C0)]).expect_err("no record is written");
    assert_eq!((refused.reason, refused.detail), (Reason::RecordGroups, [1, 0]));
    let refused = new(&[offcore(0x01CD, 30)]).expect_err("only while sampled");
    assert_eq!(refused.reason, Reason::OnlyPrecise);
}

/// A counter would count nothing, and its samples would never come.
#[test]
fn what_is_counted_only_while_it_is_sampled_precisely_is_not_sampled_by_interrupt() {
    for (profile, encoding, extra) in [
        (&vpmu::profile::SKYLAKE, 0x01CD, 30),
        (&vpmu::profile::SANDY_BRIDGE, 0x02CD, 0),
        (&vpmu::profile::NEHALEM, 0x100B, 30),
    ] {
        let event = EventSpec { extra, ..interrupting(encoding, 1000) };
        let refused = Program::new(&rig(profile).pmu, &config(&[event])).expect_err("only precise");
        assert_eq!((refused.reason, refused.detail), (Reason::OnlyPrecise, [0, 0]), "{}", profile.name);
    }
}

#[test]
fn a_ninth_precise_event_has_no_place_in_a_quantum() {
    let rig = rig(&vpmu::profile::ICE_LAKE);
    let events: Vec<_> = [0x0100, 0x81D0, 0x82D0, 0x11D0, 0x12D0, 0x00C0, 0x00C4, 0x01C4, 0x02C4]
        .map(|encoding| precise(encoding, 1000))
        .to_vec();
    assert!(Program::new(&rig.pmu, &config(&events[..8])).is_ok());
    let refused = Program::new(&rig.pmu, &config(&events)).expect_err("nine");
    assert_eq!((refused.reason, refused.detail), (Reason::NoCounter, [8, 0]));
}

const CORE: u8 = CoreType::Core as u8;
const ATOM: u8 = CoreType::Atom as u8;
const LOW_POWER: u8 = CoreType::LowPower as u8;

#[test]
fn on_a_hybrid_processor_each_event_counts_on_the_cores_that_it_is_for() {
    each_event_counts_on_its_cores(hybrid(), b"goldencove+gracemont\0");
    each_event_counts_on_its_cores(hybrid_of(&profile::METEOR_LAKE), b"redwoodcove+crestmont\0");
    each_event_counts_on_its_cores(hybrid_of(&profile::LUNAR_LAKE), b"lioncove+skymont\0");
    each_event_counts_on_its_cores(hybrid_of(&profile::PANTHER_LAKE), b"cougarcove+darkmont\0");
    each_event_counts_on_its_cores(hybrid_of(&profile::ARROW_LAKE_H), b"lioncove+skymont+crestmont\0");
}

fn each_event_counts_on_its_cores(mut rig: Rig, name: &[u8]) {
    let mut info = Info::default();
    for core in &rig.cores {
        let (mut cpuid, mut port) = (CorePort(Rc::clone(core)), CorePort(Rc::clone(core)));
        detect(&mut cpuid, &mut port).describe(&mut info);
    }
    assert!(info.pmu_name.starts_with(name));
    rig.acquire();
    let of = |core_type, event| EventSpec { core_type, ..event };
    let mut events = vec![
        counted(0x00C0),
        of(ATOM, precise(0x82D0, 700)),
        of(CORE, precise(0x81D0, 1000)),
        of(ATOM, precise(0x81D0, 300)),
        of(CORE, counted(0x82D0)),
    ];
    let cores = rig.cores.len();
    if cores > 2 {
        events.extend([of(LOW_POWER, precise(0x81D0, 500)), of(LOW_POWER, counted(0x82D0))]);
    }
    let session = rig.add_session(&config(&events));
    let thread = rig.add_thread(Some(session));
    for round in 0..200 {
        let cpu = round % cores;
        rig.switch(cpu, thread, QuantumEnd::Preempted);
        rig.run(cpu, 997, &[Plain, Load, Load, Store, Branch]);
        rig.switch(cpu, cpu, QuantumEnd::Yielded);
        rig.read_all();
    }
    rig.stop(session);
    rig.read_all();
    let truth = rig.users[thread].truth;
    let seen = &rig.sessions[session].reader.threads[&rig.users[thread].tid];
    assert_eq!(seen.counts, truth);
    assert!(truth[..events.len()].iter().all(|&count| count > 10_000));
    // What cores do not have cannot occur there: no count is to be scaled by the time spent on the others.
    let totals = rig.sessions[session].totals();
    assert!(totals.running_tsc[..events.len()].iter().all(|&running| running == totals.on_cpu_tsc));
    for (event, spec) in events.iter().enumerate().filter(|(_, spec)| spec.period > 0) {
        // The record of an overflow is written at the next event, so that the last one may be due.
        let due = truth[event] / spec.period - seen.records[event];
        assert!(due <= 1, "event {event}: {due}");
    }
}

#[test]
fn events_that_do_not_say_for_which_cores_they_are_must_be_architectural() {
    let rig = hybrid();
    let refused = |pmu, event: EventSpec| {
        let refusal = Program::new(pmu, &config(&[counted(0x00C0), event])).expect_err("refused");
        (refusal.reason, refusal.detail)
    };
    for pmu in &rig.pmus {
        for encoding in [0x00C0, 0x003C, 0x412E, 0x0300] {
            assert!(Program::new(pmu, &config(&[counted(encoding)])).is_ok(), "{encoding:#x}");
        }
        assert_eq!(refused(pmu, counted(0x81D0)), (Reason::CoreTypeMissing, [1, 0]));
        assert_eq!(refused(pmu, EventSpec { core_type: 4, ..counted(0x00C0) }), (Reason::NoCoreType, [1, 4]));
    }
    let skylake = Rig::of(&vpmu::profile::SKYLAKE, 1, Options::default());
    let event = EventSpec { core_type: ATOM, ..counted(0x00C0) };
    assert_eq!(refused(&skylake.pmu, event), (Reason::NoCoreType, [1, u64::from(ATOM)]));
    let asked = config(&[counted(0x00C0), event]);
    assert!(check_types(&asked, |_| true).is_ok());
    let refusal = check_types(&asked, |core_type| core_type == CoreType::Core).expect_err("no E-cores");
    assert_eq!((refusal.reason, refusal.detail), (Reason::NoCoreType, [1, u64::from(ATOM)]));
}

/// Mostly events that the generation has, in any use.
fn any_event(generation: &'static Generation) -> impl Strategy<Value = EventSpec> {
    let encodings: Vec<u64> = generation.events.iter().map(|rule| rule.select.into()).collect();
    let fixed: Vec<u64> =
        generation.fixed.iter().map(|rule| rule.encoding.into()).chain([0x0100, 0x0200, 0x0300]).collect();
    let sampled: Vec<u64> = generation.precise.iter().map(|rule| rule.encoding).collect();
    // An event that takes no register is there for Core 2, which has no others.
    let none = (INSTRUCTIONS, 0);
    let registers = generation.extra.iter().map(|rule| (rule.encoding.into(), rule.bits));
    let extras: Vec<(u64, u64)> = registers.chain([none]).collect();
    let privilege = || 1..4u8;
    let count = (prop::sample::select(encodings), any::<u16>(), any::<u64>(), privilege()).prop_map(
        |(select, unit_mask, bits, privilege)| {
            let encoding =
                PerfEvtSel(select | bits & 0xFF84_0000).with_whole_unit_mask(unit_mask & (bits >> 40) as u16);
            EventSpec { privilege, ..counted(encoding.0) }
        },
    );
    let fixed = (prop::sample::select(fixed), privilege())
        .prop_map(|(encoding, privilege)| EventSpec { privilege, ..counted(encoding) });
    let period = prop_oneof![100..5000u64, Just((1 << 31) - 1)];
    let sample = (prop::sample::select(sampled), period, privilege())
        .prop_map(|(encoding, period, privilege)| EventSpec { privilege, ..precise(encoding, period) });
    let extra = (prop::sample::select(extras), any::<u64>(), any::<bool>()).prop_map(
        |((encoding, bits), extra, sampled)| {
            let event = if sampled { precise(encoding, 500) } else { counted(encoding) };
            EventSpec { extra: extra & bits, ..event }
        },
    );
    prop_oneof![3 => count, 2 => fixed, 5 => sample, 3 => extra]
}

fn any_request() -> impl Strategy<Value = (&'static Profile, SessionConfig)> {
    prop::sample::select(cores().collect::<Vec<_>>()).prop_flat_map(|profile| {
        let Pmu { generation, core_type, .. } = rig(profile).pmu;
        let branches = (prop_oneof![Just(0), 0..34u32], prop_oneof![Just(0), 0..256u32]);
        (prop::collection::vec(any_event(generation), 1..=6), 0..8u32, 0..4u8, branches).prop_map(
            move |(mut events, record_groups, stack, (branches, branch_filter))| {
                // On a hybrid processor the last one is left to be refused, unless it is architectural.
                let named = events.len() - 1;
                events.iter_mut().take(named).for_each(|event| event.core_type = core_type as u8);
                if stack == 2 {
                    // In windows, where the processor has such.
                    let sampled = events.iter_mut().filter(|event| event.mode == EventMode::Precise as u8);
                    sampled.for_each(|event| event.flags = EventSpec::WINDOWED);
                    events.push(EventSpec { period: 1000, ..counted(INSTRUCTIONS) });
                }
                let mut request = config(&events);
                if stack == 0 && request.segments > 0 {
                    (request.stack_bytes, request.stack_ring_bytes) = (2048, 1 << 16);
                }
                if branches > 0 && request.segments > 0 {
                    (request.branches, request.branch_filter) = (branches, branch_filter);
                    request.stack_ring_bytes = 1 << 16;
                }
                (
                    profile,
                    SessionConfig { record_groups: if stack == 1 { record_groups } else { 0 }, ..request },
                )
            },
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_request_is_refused_or_runs_without_a_fault((profile, request) in any_request()) {
        exercise(rig(profile), &request);
    }
}

/// The counter that interrupts was left with the encoding of the other register, whose value it then counted.
#[test]
fn a_sampled_event_moves_to_the_sibling_register_with_its_counter() {
    const INT: u64 = 1 << 20;
    let mut rig = rig(&vpmu::profile::SKYLAKE);
    rig.acquire();
    let first = EventSpec { extra: 1, ..counted(0x01B7) };
    let second = EventSpec { extra: 2, ..interrupting(0x01B7, 100) };
    let session = rig.add_session(&config(&[first, second]));
    rig::scene::start_thread(&mut rig, session);
    let mut port = rig.port(0);
    let selects = (0..4).map(|counter| port.rdmsr(0x186 + counter)).collect::<Vec<_>>();
    let interrupting = selects.iter().filter(|select| *select & INT != 0).map(|select| select & 0xFFFF);
    assert_eq!(interrupting.collect::<Vec<_>>(), [0x01BB]);
    assert_eq!((port.rdmsr(0x1A6), port.rdmsr(0x1A7)), (1, 2));
}
