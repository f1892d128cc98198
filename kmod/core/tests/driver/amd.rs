//! AMD's PMUs against the model: counters of every family, interrupts that leave no trace, and instruction-based sampling.

use std::collections::BTreeSet;
use std::mem::offset_of;

use crate::rig;
use crate::rig::core::Instruction::{Load, Plain};
use crate::rig::scene::{config, counted, interrupting, precise, take_turns, INSTRUCTIONS, MIX};
use crate::rig::{Rig, TID_SHIFT};
use hpm_abi::{EventMode, EventSpec, QuantumEnd, Reason, SessionConfig};
use hpm_core::{Program, Refusal};
use vpmu::profile::{amd, Profile};
use vpmu::Options;

/// CPU_CLK_UNHALTED, which IBS samples as cycles.
const CYCLES: u64 = 0x76;
/// RETIRED_UOPS, which IBS samples as dispatched ops. Each of the model's instructions is one.
const OPS: u64 = 0xC1;
const BRANCHES: u64 = 0xC2;
/// IC_TAG_HIT_MISS.ALL_IC_ACCESS of Zen 3 and Zen 4.
const FETCHES: u64 = 0x1_0000_1F8E;
/// INSTRUCTION_CACHE_FETCHES of the families before.
const OLD_FETCHES: u64 = 0x80;

const NAMES: [&str; 9] =
    ["k8", "family10h", "family15h", "family16h", "zen1", "zen2", "zen3", "zen4", "zen5"];

fn rig(profile: &'static Profile, cpus: usize) -> Rig {
    Rig::of(profile, cpus, Options::default())
}

/// One CPU with a thread of a session on it; session and thread's ID.
fn one_thread(profile: &'static Profile, config: &SessionConfig) -> (Rig, usize, u32) {
    let mut rig = rig(profile, 1);
    rig.acquire();
    let session = rig.add_session(config);
    let tid = rig::scene::start_thread(&mut rig, session);
    (rig, session, tid)
}

/// The profiles with IBS.
fn sampling() -> impl Iterator<Item = &'static Profile> {
    amd::ALL.iter().copied().filter(|profile| profile.name != "k8")
}

fn unclaimed(rig: &Rig) -> u64 {
    rig.cores.iter().map(|core| core.borrow().machine.unclaimed).sum()
}

#[test]
fn every_profile_is_found_by_its_name() {
    let names: Vec<_> = amd::ALL.iter().map(|profile| rig(profile, 1).pmu.generation.name).collect();
    assert_eq!(names, NAMES);
    let counters: Vec<_> = amd::ALL.iter().map(|profile| rig(profile, 1).pmu.perfmon.general).collect();
    assert_eq!(counters, [0xF, 0xF, 0x3F, 0xF, 0x3F, 0x3F, 0x3F, 0x3F, 0x3F]);
}

#[test]
fn counts_are_exact_and_every_register_is_given_back() {
    for profile in amd::ALL {
        let mut rig = rig(profile, 2);
        let before = rig.registers();
        rig.acquire();
        let session = rig.add_session(&config(&[counted(INSTRUCTIONS), counted(BRANCHES), counted(OPS)]));
        let threads = [rig.add_thread(Some(session)), rig.add_thread(Some(session))];
        for round in 0..200 {
            rig.switch(round % 2, threads[0], QuantumEnd::Preempted);
            rig.switch(1 - round % 2, threads[1], QuantumEnd::Preempted);
            rig.run(round % 2, 333, &MIX);
            rig.run(1 - round % 2, 77, &MIX);
            rig.run_kernel(0, 10);
            rig.switch(0, 0, QuantumEnd::Yielded);
            rig.switch(1, 1, QuantumEnd::Yielded);
            rig.run(0, 5, &MIX);
            rig.read_all();
        }
        rig.stop(session);
        rig.read_all();
        rig.release();
        assert_eq!(rig.registers(), before, "{}", profile.name);
        for thread in threads {
            let user = &rig.users[thread];
            let seen = &rig.sessions[session].reader.threads[&user.tid];
            assert_eq!(seen.counts, user.truth, "{}", profile.name);
        }
    }
}

#[test]
fn each_overflow_leaves_a_record_and_every_interrupt_is_claimed() {
    for profile in amd::ALL {
        for latency in [0, 1, 7, 300] {
            let events = [interrupting(BRANCHES, 1000), counted(INSTRUCTIONS)];
            let (mut rig, session, tid) = one_thread(profile, &config(&events));
            rig.cores[0].borrow_mut().machine.nmi_latency = latency;
            rig.run(0, 100_400, &MIX);
            rig.stop(session);
            rig.run_kernel(0, 400);
            rig.read_all();
            let seen = &rig.sessions[session].reader.threads[&tid];
            let what = format!("{}, latency {latency}", profile.name);
            assert_eq!(seen.counts[..2], [20_080, 100_400], "{what}");
            assert_eq!((seen.records[0], seen.records_lost), (20, 0), "{what}");
            assert_eq!(unclaimed(&rig), 0, "{what}");
        }
    }
}

#[test]
fn threads_keep_their_positions_across_switches_and_cpus() {
    for profile in amd::ALL {
        let mut rig = rig(profile, 2);
        rig.acquire();
        let session = rig.add_session(&config(&[interrupting(INSTRUCTIONS, 1000)]));
        for core in &rig.cores {
            core.borrow_mut().machine.nmi_latency = 9;
        }
        let threads = take_turns(&mut rig, session, 200, |rig| {
            // What is still on its way comes to threads of nobody.
            rig.run(0, 12, &[Plain]);
            rig.run(1, 12, &[Plain]);
        });
        rig.stop(session);
        rig.read_all();
        assert_eq!(unclaimed(&rig), 0, "{}", profile.name);
        for (thread, count) in threads {
            let seen = &rig.sessions[session].reader.threads[&thread];
            assert_eq!(seen.counts[0], count);
            assert!((seen.records[0] * 1000).abs_diff(count) <= 1000, "{} of {count}", seen.records[0]);
        }
    }
}

#[test]
fn an_nmi_that_is_nobodys_is_left_to_others() {
    for profile in amd::ALL {
        let mut rig = rig(profile, 1);
        rig.acquire();
        assert!(!rig::foreign_nmi(&rig, 0), "{}: idle", profile.name);
        let session = rig.add_session(&config(&[interrupting(INSTRUCTIONS, 1000)]));
        rig::scene::start_thread(&mut rig, session);
        rig.run(0, 500, &[Plain]);
        assert!(!rig::foreign_nmi(&rig, 0), "{}: before the first overflow", profile.name);
    }
}

/// What hides the counters from others must not look like an overflow, by which an interrupt is claimed.
#[test]
fn concealed_counters_claim_no_nmi_and_tell_nothing() {
    for profile in amd::ALL {
        let (mut rig, _, _) = one_thread(profile, &config(&[interrupting(INSTRUCTIONS, 1000)]));
        rig.run(0, 500, &MIX);
        rig.switch(0, 0, QuantumEnd::Yielded);
        rig.conceal(0);
        rig.cores[0].borrow_mut().machine.pass_time(1 << 30);
        assert!(!rig::foreign_nmi(&rig, 0), "{}", profile.name);
        let pmu = &mut rig.cores[0].borrow_mut().pmu;
        assert!((0..4).all(|counter| pmu.rdpmc(counter) == Ok(1 << 47)), "{}", profile.name);
    }
}

#[test]
fn ibs_samples_each_period_the_sampled_instruction_itself() {
    for profile in sampling() {
        for latency in [0, 3, 40] {
            let (mut rig, session, tid) = one_thread(profile, &config(&[precise(OPS, 1601)]));
            rig.cores[0].borrow_mut().machine.nmi_latency = latency;
            rig.run(0, 200_000, &MIX);
            rig.stop(session);
            rig.read_all();
            let seen = &rig.sessions[session].reader.threads[&tid];
            assert_eq!(seen.counts[0], 200_000);
            // IBS stands still from a sample until its interrupt is served.
            let interval = 1601 + u64::from(latency);
            let due = 200_000 / interval;
            let what = format!("{}, latency {latency}: {}", profile.name, seen.records[0]);
            assert!(seen.records[0].abs_diff(due) <= 2 && seen.records_lost == 0, "{what}");
            let mut sampled: Vec<u64> =
                seen.recorded.iter().map(|(rip, _)| rip & ((1 << TID_SHIFT) - 1)).collect();
            sampled.sort_unstable();
            let steps: Vec<u64> = sampled.windows(2).map(|pair| pair[1] - pair[0]).collect();
            // What hardware draws at random stays in the intervals, as often above the period as below.
            assert!(steps.iter().all(|step| step.abs_diff(interval) <= 65), "{what}: {steps:?}");
            let longer = steps.iter().filter(|&&step| step > interval).count();
            let other: BTreeSet<u64> = steps.iter().copied().collect();
            assert!(
                longer.abs_diff(steps.len() / 2) <= steps.len() / 5 && other.len() > 40,
                "{what}: {steps:?}"
            );
            assert_eq!(unclaimed(&rig), 0, "{what}");
        }
    }
}

#[test]
fn ibs_keeps_the_position_of_each_thread() {
    for profile in sampling() {
        let mut rig = rig(profile, 2);
        rig.acquire();
        let session = rig.add_session(&config(&[precise(OPS, 1600)]));
        let threads = take_turns(&mut rig, session, 400, Rig::read_all);
        rig.stop(session);
        rig.read_all();
        for (thread, count) in threads {
            let seen = &rig.sessions[session].reader.threads[&thread];
            assert_eq!(seen.counts[0], count);
            // A position below the least count waits for it.
            let due = count / 1600;
            assert!(
                seen.records[0] <= due && seen.records[0] + 1 + due / 50 >= due,
                "{} of {due}",
                seen.records[0]
            );
        }
    }
}

#[test]
fn ops_and_fetches_are_sampled_side_by_side() {
    for (profile, fetches) in [
        (&amd::FAMILY_15H, OLD_FETCHES),
        (&amd::FAMILY_16H, OLD_FETCHES),
        (&amd::ZEN_1, OLD_FETCHES),
        (&amd::ZEN_2, OLD_FETCHES),
        (&amd::ZEN_4, FETCHES),
        (&amd::ZEN_5, FETCHES),
    ] {
        side_by_side(profile, fetches);
    }
}

fn side_by_side(profile: &'static Profile, fetches: u64) {
    let (mut rig, session, tid) = one_thread(profile, &config(&[precise(OPS, 1600), precise(fetches, 960)]));
    rig.cores[0].borrow_mut().machine.nmi_latency = 5;
    for _ in 0..20 {
        rig.run(0, 9_973, &MIX);
        rig.cut(0, QuantumEnd::Timer);
        rig.read_all();
    }
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&tid];
    let events = 20 * 9_973;
    assert!(seen.records[0].abs_diff(events / 1605) <= 4, "{}", seen.records[0]);
    // A stop loses what a fetch count has beyond a multiple of 16.
    assert!(seen.records[1].abs_diff(events / 965) <= 12, "{}", seen.records[1]);
    assert_eq!((seen.records_lost, unclaimed(&rig)), (0, 0));
}

#[test]
fn what_ibs_samples_of_the_kernel_is_withheld_and_counted() {
    for profile in sampling() {
        let (mut rig, session, tid) = one_thread(profile, &config(&[precise(OPS, 160)]));
        for _ in 0..100 {
            rig.run(0, 1_600, &MIX);
            rig.run_kernel(0, 1_600);
        }
        rig.stop(session);
        rig.read_all();
        // The rig's reader holds every record's address against its thread; the kernel's is 1 << 63.
        let totals = rig.sessions[session].totals();
        let seen = &rig.sessions[session].reader.threads[&tid];
        assert_eq!(seen.counts[0], 160_000);
        assert!(
            totals.records.abs_diff(1000) <= 20 && totals.records_withheld.abs_diff(1000) <= 20,
            "{totals:?}"
        );
        // Intervals are random, by 37 events each, so that 2000 are 10 more or fewer.
        assert!((totals.records + totals.records_withheld).abs_diff(2000) <= 20, "{}", profile.name);
        assert_eq!((totals.records_lost, unclaimed(&rig)), (0, 0));
    }
}

#[test]
fn without_a_free_segment_ibs_is_off_and_the_loss_is_told() {
    let mut config = config(&[precise(OPS, 160)]);
    config.segments = 2;
    let (mut rig, session, tid) = one_thread(&amd::ZEN_3, &config);
    // Two segments of 292 records less the 16 that are kept free.
    let full = 2 * (292 - 16);
    rig.run(0, 200_000, &[Load]);
    let totals = rig.sessions[session].totals();
    assert_eq!(totals.records, full);
    let off = rig.cores[0].borrow_mut().pmu.rdmsr(0xC001_1033).expect("IBS_OP_CTL");
    assert_eq!(off >> 17 & 1, 0, "not enabled");
    rig.read_all();
    rig.cut(0, QuantumEnd::Timer);
    rig.run(0, 10_000, &[Load]);
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!(seen.counts[0], 210_000);
    // Those written are random, by 10 of them.
    assert!((seen.records[0] + seen.records_lost).abs_diff(210_000 / 160) <= 20);
    assert!(seen.records[0] > full);
}

#[test]
fn with_stacks_each_sample_has_its_own_quantum_and_stack() {
    let config =
        SessionConfig { stack_bytes: 1024, stack_ring_bytes: 1 << 16, ..config(&[precise(OPS, 1600)]) };
    let (mut rig, session, tid) = one_thread(&amd::ZEN_4, &config);
    rig.run(0, 32_100, &[Load]);
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!((seen.records[0], seen.stacks), (20, 20));
}

#[test]
fn family_15h_counts_each_event_on_counters_that_count_it() {
    // Cycles, fetches and refills on counters 0 to 2, instructions on those that are left.
    let events =
        [counted(0xC0), counted(0xC0), counted(0xC0), counted(CYCLES), counted(OLD_FETCHES), counted(0x43)];
    let pmu = rig(&amd::FAMILY_15H, 1).pmu;
    let program = Program::new(&pmu, &config(&events)).expect("six counters");
    let place = |event| program.counting_counter(event).expect("counted").place();
    assert!((0..3).all(|event| place(event) >= 3) && (3..6).all(|event| place(event) < 3));
    let four = [counted(CYCLES), counted(CYCLES), counted(CYCLES), counted(CYCLES)];
    assert_eq!(Program::new(&pmu, &config(&four)).expect_err("three counters").reason, Reason::NoCounter);
    // Floating-point operations retired: counter 3 alone.
    assert!(Program::new(&pmu, &config(&[counted(0xFF03)])).is_ok());
    let two = Program::new(&pmu, &config(&[counted(0xFF03), counted(0xFF03)])).expect_err("one counter");
    assert_eq!(two.reason, Reason::NoCounter);
}

#[test]
fn somebody_elses_ibs_is_refused_and_left_alone() {
    const IBS_OP_CTL: u32 = 0xC001_1033;
    let mut rig = rig(&amd::ZEN_4, 1);
    rig.acquire();
    let foreign = 1 << 17 | 0x1000;
    rig.cores[0].borrow_mut().pmu.wrmsr(IBS_OP_CTL, foreign).expect("exists");
    let refused = rig.check_ibs(0).expect_err("somebody samples");
    assert_eq!(refused.reason, Reason::CountersRunning);
    assert_eq!(refused.detail[0], u64::from(IBS_OP_CTL));
    // A session that only counts does not touch it.
    let session = rig.add_session(&config(&[counted(INSTRUCTIONS)]));
    rig::scene::start_thread(&mut rig, session);
    rig.run(0, 100, &[Plain]);
    rig.stop(session);
    rig.release();
    let left = rig.cores[0].borrow_mut().pmu.rdmsr(IBS_OP_CTL).expect("exists");
    assert_eq!(left & 0xFFFF, 0x1000);
    assert_eq!(left >> 17 & 1, 1);
}

#[test]
fn somebody_who_starts_ibs_later_shows() {
    let (mut rig, _, _) = one_thread(&amd::ZEN_4, &config(&[precise(OPS, 1600)]));
    rig.run(0, 100, &[Plain]);
    assert!(!rig.is_intruded(0));
    rig.cores[0].borrow_mut().pmu.wrmsr(0xC001_1030, 1 << 48 | 0x100).expect("exists");
    assert!(rig.is_intruded(0));
}

#[test]
fn what_a_family_does_not_have_is_refused() {
    let refusal = |profile, event: EventSpec| {
        Program::new(&rig(profile, 1).pmu, &config(&[event])).expect_err("refused")
    };
    let period = offset_of!(SessionConfig, events) + offset_of!(EventSpec, period);
    assert_eq!(refusal(&amd::K8, precise(CYCLES, 1600)).reason, Reason::NotPrecise);
    assert_eq!(refusal(&amd::ZEN_3, precise(BRANCHES, 1600)).reason, Reason::NotPrecise);
    assert_eq!(refusal(&amd::ZEN_3, precise(CYCLES, 0x8F)), Refusal::new(Reason::PeriodTooSmall, [0, 0x90]));
    assert_eq!(refusal(&amd::FAMILY_10H, precise(CYCLES, 1 << 20)), Refusal::field(period));
    assert!(Program::new(&rig(&amd::ZEN_3, 1).pmu, &config(&[precise(CYCLES, 1 << 20)])).is_ok());
    // No event of the northbridge, of L3, or that needs two counters.
    for encoding in [0xE0, 0x4_0000_00E1, 0x03] {
        assert_eq!(refusal(&amd::ZEN_4, counted(encoding)).reason, Reason::EventBits, "{encoding:#x}");
    }
    // K8 has no event select above FFH.
    assert_eq!(refusal(&amd::K8, counted(0x1_0000_00C0)).reason, Reason::EventBits);
    let five = [counted(INSTRUCTIONS); 5];
    let refused = Program::new(&rig(&amd::FAMILY_10H, 1).pmu, &config(&five)).expect_err("four counters");
    assert_eq!(refused, Refusal::new(Reason::NoCounter, [4, 0]));
    // A sample of IBS takes a counter too: it tells no count.
    let events = [precise(OPS, 1600), counted(0xC0), counted(0xC0), counted(0xC0), counted(0xC0)];
    let refused = Program::new(&rig(&amd::FAMILY_10H, 1).pmu, &config(&events)).expect_err("four counters");
    assert_eq!(refused, Refusal::new(Reason::NoCounter, [4, 0]));
    let both =
        [precise(OPS, 1600), EventSpec { mode: EventMode::Interrupt as u8, ..precise(BRANCHES, 1600) }];
    let refused = Program::new(&rig(&amd::ZEN_4, 1).pmu, &config(&both)).expect_err("two kinds of records");
    assert_eq!(refused.reason, Reason::Field);
    // What has no meaning there, neither beside an event nor in a record.
    let with_extra = EventSpec { extra: 7, ..counted(INSTRUCTIONS) };
    assert_eq!(refusal(&amd::ZEN_4, with_extra), Refusal::new(Reason::ExtraBits, [0, 7]));
    let grouped = SessionConfig { record_groups: 2, ..config(&[precise(OPS, 1600)]) };
    let refused = Program::new(&rig(&amd::ZEN_4, 1).pmu, &grouped).expect_err("IBS writes no groups");
    assert_eq!(refused, Refusal::new(Reason::RecordGroups, [2, 0]));
}
