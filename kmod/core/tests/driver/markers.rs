//! Markers against what the threads set.

use crate::rig::core::Instruction::Plain;
use crate::rig::scene::{config, counted, one_thread, INSTRUCTIONS};
use crate::rig::Rig;
use hpm_abi::{Marker, MarkerOrigin, QuantumEnd, SessionConfig};
use hpm_core::markers::Mark;

fn mark(tsc: Option<u64>, value: u64) -> Mark {
    Mark { tsc, value, name: *b"phase\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0" }
}

/// A session with room for 64 markers, whose thread runs on CPU 0.
fn marked_thread() -> (Rig, usize, u32) {
    one_thread(&SessionConfig { markers: 64, ..config(&[counted(INSTRUCTIONS)]) })
}

fn kept(rig: &Rig, session: usize) -> Vec<Marker> {
    let core = rig.cores[0].borrow();
    core.machine.shared[session].markers.iter().copied().flatten().collect()
}

#[test]
fn a_marker_says_who_where_when_and_what() {
    let (mut rig, session, tid) = marked_thread();
    rig.run(0, 100, &[Plain]);
    assert!(rig.mark(0, session, mark(None, 7)));
    let [marker] = kept(&rig, session)[..] else { panic!("one marker") };
    assert_eq!((marker.tid, marker.cpu, marker.value, marker.sequence), (tid, 0, 7, 0));
    assert_eq!(MarkerOrigin::from_number(marker.origin), Some(MarkerOrigin::Request));
    assert!(marker.name.starts_with(b"phase\0"));
}

#[test]
fn a_threads_own_time_stays_within_its_quantum() {
    let (mut rig, session, _) = marked_thread();
    rig.run(0, 100, &[Plain]);
    rig.cut(0, QuantumEnd::Timer);
    rig.run(0, 100, &[Plain]);
    for tsc in [0, u64::MAX] {
        assert!(rig.mark(0, session, mark(Some(tsc), 0)));
    }
    let [early, late] = kept(&rig, session)[..] else { panic!("two markers") };
    rig.cut(0, QuantumEnd::Timer);
    rig.stop(session);
    let core = rig.cores[0].borrow();
    let second = core.machine.shared[session].quanta[1].expect("the second quantum");
    assert_eq!(early.tsc, second.start_tsc);
    assert!(late.tsc > early.tsc && late.tsc <= second.end_tsc);
}

#[test]
fn a_full_ring_loses_markers_and_says_so() {
    let (mut rig, session, _) = marked_thread();
    for value in 0..70 {
        rig.mark(0, session, mark(None, value));
    }
    let totals = rig.sessions[session].totals();
    assert_eq!((totals.markers, totals.markers_lost), (64, 6));
    rig.cores[0].borrow_mut().machine.shared[session].control.markers_consumed = 64;
    assert!(rig.mark(0, session, mark(None, 70)));
    let newest = kept(&rig, session)[0];
    assert_eq!((newest.value, newest.sequence), (70, 70), "lost ones are numbered too");
}

/// A thread says how many markers it has overwritten.
#[test]
fn any_number_of_lost_markers_will_do() {
    let (mut rig, session, _) = marked_thread();
    for _ in 0..2 {
        rig.sessions[session].cpus[0].lose_markers(u64::MAX - 3);
    }
    for value in 0..70 {
        rig.mark(0, session, mark(None, value));
    }
    assert_eq!(rig.sessions[session].totals().markers_lost, u64::MAX);
    assert_eq!(kept(&rig, session).len(), 64);
}

#[test]
fn nobody_else_can_set_a_marker() {
    let (mut rig, session, _) = marked_thread();
    rig.switch(0, 0, QuantumEnd::Preempted);
    assert!(!rig.mark(0, session, mark(None, 1)), "a thread that is not measured");
    let unmarked = rig.add_session(&config(&[counted(INSTRUCTIONS)]));
    let user = rig.add_thread(Some(unmarked));
    rig.switch(0, user, QuantumEnd::Preempted);
    assert!(!rig.mark(0, unmarked, mark(None, 1)), "a session that keeps none");
}
