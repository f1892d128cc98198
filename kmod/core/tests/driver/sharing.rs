//! Sessions that take turns with one thread.

use proptest::prelude::*;

use crate::rig::core::Instruction::Plain;
use crate::rig::scene::{config, counted, one_thread, INSTRUCTIONS};
use hpm_abi::{BranchFilter, Quantum, QuantumEnd, QuantumFlags, SessionConfig, SessionFlags};
use hpm_core::config::check;
use hpm_core::sharing::{choose, Wait};
use hpm_core::Thread;

#[test]
fn who_does_not_share_goes_first_and_nobody_is_chosen_of_none() {
    assert_eq!(choose(0, u64::MAX, 5), None);
    for slot in 0..100 {
        assert_eq!(choose(0b1110, 0b1010, slot), Some(2));
        assert_eq!(choose(1 << 63, 1 << 63, slot), Some(63));
    }
}

proptest! {
    #[test]
    fn each_round_gives_every_sharer_one_slot(covering in 1_u64.., round in 0..u64::MAX >> 7) {
        let sharers = u64::from(covering.count_ones());
        let slots = round * sharers..(round + 1) * sharers;
        let mut all = 0;
        for place in slots.filter_map(|slot| choose(covering, u64::MAX, slot)) {
            prop_assert_eq!(all >> place & 1, 0, "twice in a round");
            all |= 1 << place;
        }
        prop_assert_eq!(all, covering);
    }

    /// A thread that runs in every `step`th slot alone.
    #[test]
    fn what_recurs_is_shared_all_the_same(step in 1_u64..1000, first in 0_u64..1 << 40, places in 2_u32..5) {
        let mut had = [0_u32; 5];
        for slot in (0..10_000).map(|number| first + number * step) {
            had[choose((1 << places) - 1, u64::MAX, slot).expect("some wait") as usize] += 1;
        }
        let fair = 10_000 / places;
        for had in &had[..places as usize] {
            prop_assert!(had.abs_diff(fair) < fair / 5, "{} of {} slots, one of {}", had, fair, step);
        }
    }
}

#[test]
fn a_wait_is_told_in_sums_and_as_a_quantum_in_which_nothing_was_on() {
    let shared = SessionConfig { flags: SessionFlags::SHARED, ..config(&[counted(INSTRUCTIONS)]) };
    let (mut rig, session, tid) = one_thread(&shared);
    rig.run(0, 100, &[Plain]);
    rig.cut(0, QuantumEnd::Timer);
    let before = rig.sessions[session].totals();
    let wait = Wait {
        thread: Thread { pid: 1, tid },
        cpu: 0,
        start_tsc: 5_000,
        end_tsc: 12_000,
        end: QuantumEnd::Preempted,
        last_ip: 0x40,
    };
    rig.wait(session, 0, &wait);
    let after = rig.sessions[session].totals();
    assert_eq!(after.on_cpu_tsc, before.on_cpu_tsc + 7_000);
    assert_eq!((after.running_tsc, after.counts), (before.running_tsc, before.counts));
    // It was told of the wait's beginning when it asked.
    rig.wait(session, 0, &Wait { end_tsc: 15_000, ..wait });
    assert_eq!(rig.sessions[session].totals().on_cpu_tsc, after.on_cpu_tsc + 3_000);
    let told: Quantum = rig.cores[0].borrow().machine.shared[session].quanta[1].expect("the wait");
    assert_eq!((told.start_tsc, told.end_tsc, told.tid, told.last_ip), (5_000, 12_000, tid, 0x40));
    assert_eq!((told.flags, told.active, told.sequence), (QuantumFlags::LENT, 0, 1));
    assert_eq!((told.counts, QuantumEnd::from_number(told.end)), ([0; 16], Some(QuantumEnd::Preempted)));
}

/// Each wait that finds no room is a lost quantum, and its time is in the sums all the same.
#[test]
fn waits_that_find_no_room_are_counted() {
    let shared = SessionConfig { flags: SessionFlags::SHARED, ..config(&[counted(INSTRUCTIONS)]) };
    let (mut rig, session, tid) = one_thread(&shared);
    let room = u64::from(shared.quanta);
    for number in 0..room + 3 {
        let (thread, end) = (Thread { pid: 1, tid }, QuantumEnd::Flush);
        let start_tsc = number * 10;
        let wait = Wait { thread, cpu: 0, start_tsc, end_tsc: start_tsc + 10, end, last_ip: 0 };
        rig.wait(session, 0, &wait);
    }
    let totals = rig.sessions[session].totals();
    assert_eq!((totals.quanta, totals.quanta_lost), (room, 3));
    assert_eq!((totals.on_cpu_tsc, totals.running_tsc[0]), ((room + 3) * 10, 0));
}

#[test]
fn what_tells_of_a_thread_without_gaps_is_not_shared() {
    let flags = SessionFlags::SHARED;
    assert!(check(&SessionConfig { flags, ..config(&[counted(INSTRUCTIONS)]) }).is_ok());
    let pages = flags | SessionFlags::COUNTER_PAGES;
    assert!(check(&SessionConfig { flags: pages, ..config(&[counted(INSTRUCTIONS)]) }).is_err());
    let sampled = crate::rig::scene::precise(crate::rig::scene::LOADS, 1000);
    let branches =
        SessionConfig { flags, branches: 8, branch_filter: BranchFilter::TYPES, ..config(&[sampled]) };
    assert!(check(&branches).is_err());
    assert!(check(&SessionConfig { flags: 0, ..branches }).is_ok());
}
