//! Somebody else who writes the PMU's registers while a session measures, and how soon that is seen. What is left to him then, `ownership`
//! says.

use crate::rig::core::Instruction::Load;
use crate::rig::scene::{config, counted, interrupting, one_thread, precise, INSTRUCTIONS, LOADS};
use crate::rig::Rig;
use hpm_abi::{EventSpec, QuantumEnd, SessionConfig, SessionFlags};
use hpm_core::port::Port as _;
use vpmu::{profile, Options};

const BRANCHES: u64 = 0xC4;
const IA32_PERFEVTSEL0: u32 = 0x186;
const IA32_FIXED_CTR_CTRL: u32 = 0x38D;
const IA32_PERF_GLOBAL_CTRL: u32 = 0x38F;
/// Cycles of user mode, and Enable.
const CYCLES: u64 = 0x41_003C;

fn of_the_kernel_too(event: EventSpec) -> EventSpec {
    EventSpec { privilege: EventSpec::USER | EventSpec::KERNEL, ..event }
}

/// Sessions that stop their counters at each switch and cut.
fn restarting() -> [SessionConfig; 2] {
    [config(&[interrupting(INSTRUCTIONS, 1000)]), config(&[of_the_kernel_too(precise(LOADS, 1000))])]
}

/// A session's thread on the CPU, and one of another's.
fn two_threads(config: &SessionConfig) -> (Rig, usize, usize) {
    let (mut rig, _, _) = one_thread(config);
    let thread = rig.on_cpu[0];
    let other = rig.add_thread(None);
    rig.run(0, 100, &[Load]);
    (rig, thread, other)
}

#[test]
fn who_stops_the_counters_is_seen_when_the_quantum_ends() {
    for config in restarting() {
        type End = fn(&mut Rig, usize, usize);
        let ends: [End; 2] = [
            |rig, _, other| rig.switch(0, other, QuantumEnd::Preempted),
            |rig, _, _| rig.cut(0, QuantumEnd::Timer),
        ];
        for end in ends {
            let (mut rig, thread, other) = two_threads(&config);
            rig.intrude(0, IA32_PERF_GLOBAL_CTRL, 0);
            rig.run(0, 10, &[Load]);
            assert!(!rig.has_noticed_others(0));
            end(&mut rig, thread, other);
            assert!(rig.has_noticed_others(0));
            rig.switch(0, thread, QuantumEnd::Preempted);
            assert!(rig.look_for_others(0), "it is not forgotten");
        }
    }
}

#[test]
fn who_starts_a_counter_while_no_thread_is_measured_is_seen_when_one_comes() {
    for config in restarting() {
        let (mut rig, thread, other) = two_threads(&config);
        rig.switch(0, other, QuantumEnd::Preempted);
        rig.intrude(0, IA32_PERF_GLOBAL_CTRL, 1);
        assert!(!rig.has_noticed_others(0));
        rig.switch(0, thread, QuantumEnd::Preempted);
        assert!(rig.has_noticed_others(0));
    }
}

#[test]
fn who_writes_before_a_pmi_is_seen_by_it() {
    let (mut rig, _, _) = two_threads(&config(&[interrupting(INSTRUCTIONS, 1000)]));
    let ours = rig.port(0).rdmsr(IA32_PERF_GLOBAL_CTRL);
    let free = (0..4).find(|bit| ours >> bit & 1 == 0).expect("one counter samples");
    rig.intrude(0, IA32_PERF_GLOBAL_CTRL, ours | 1 << free);
    rig.run(0, 1000, &[Load]);
    assert!(rig.has_noticed_others(0));
}

#[test]
fn who_writes_while_events_take_turns_is_seen() {
    let events = [INSTRUCTIONS, LOADS, LOADS, LOADS, LOADS, LOADS, LOADS].map(counted);
    let multiplexed = SessionConfig { flags: SessionFlags::MULTIPLEX, ..config(&events) };
    let (mut rig, _, _) = two_threads(&multiplexed);
    rig.intrude(0, IA32_PERF_GLOBAL_CTRL, 0);
    rig.cut(0, QuantumEnd::Timer);
    assert!(rig.has_noticed_others(0));
    let (mut rig, session, _) = one_thread(&multiplexed);
    let next = rig.add_thread(Some(session));
    rig.run(0, 100, &[Load]);
    rig.intrude(0, IA32_PERF_GLOBAL_CTRL, 0);
    rig.switch(0, next, QuantumEnd::Preempted);
    assert!(rig.has_noticed_others(0));
}

/// One that no switch stops, so that each look reads one register.
#[test]
fn who_takes_a_counter_is_seen_by_one_of_the_looks() {
    for (register, value) in [(IA32_PERFEVTSEL0, CYCLES), (IA32_PERFEVTSEL0, 0), (IA32_FIXED_CTR_CTRL, 0x3)] {
        let (mut rig, thread, other) = two_threads(&config(&[precise(LOADS, 100), counted(INSTRUCTIONS)]));
        assert!(!(0..100).any(|_| rig.look_for_others(0)));
        rig.switch(0, other, QuantumEnd::Preempted);
        rig.intrude(0, register, value);
        rig.intrude(0, IA32_PERF_GLOBAL_CTRL, 1);
        rig.switch(0, thread, QuantumEnd::Preempted);
        assert!(!rig.has_noticed_others(0), "a thread that is not measured costs no read more");
        let looks = (1..).find(|_| rig.look_for_others(0)).expect("found");
        let counters = rig.pmu.perfmon.general.count_ones() + 1;
        assert!(looks <= 4 * counters, "{register:#x} is seen by look {looks}");
    }
}

#[test]
fn nobody_is_seen_where_nobody_is() {
    for profile in
        [&profile::NEHALEM, &profile::SKYLAKE, &profile::SAPPHIRE_RAPIDS, &profile::CLEARWATER_FOREST]
    {
        for config in
            [config(&[interrupting(INSTRUCTIONS, 1000), counted(BRANCHES)]), config(&[counted(INSTRUCTIONS)])]
        {
            let mut rig = Rig::of(profile, 1, Options::default());
            rig.acquire();
            let session = rig.add_session(&config);
            let (thread, other) = (rig.add_thread(Some(session)), rig.add_thread(None));
            for _ in 0..50 {
                rig.switch(0, thread, QuantumEnd::Preempted);
                rig.run(0, 700, &[Load]);
                assert!(!rig.look_for_others(0), "{}", profile.name);
                rig.switch(0, other, QuantumEnd::Preempted);
                rig.run(0, 50, &[Load]);
            }
            assert!(!rig.is_intruded(0), "{}", profile.name);
        }
    }
}
