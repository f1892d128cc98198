//! A session that may see user mode only, with records that come late enough to show the kernel.

use crate::rig::core::Instruction::{Load, Plain};
use crate::rig::core::Shared;
use crate::rig::scene::{config, precise, start_thread, LOADS};
use crate::rig::Rig;
use hpm_abi::{Quantum, QuantumEnd, QuantumFlags, SessionConfig};
use vpmu::Options;

const KERNEL: u64 = 1 << 63;

/// One thread of a session without the right to the kernel, whose records are taken so many instructions late.
fn unprivileged(pebs_skid: u64) -> (Rig, usize, u32) {
    let mut rig = Rig::new(1, Options { pebs_skid, ..Options::default() });
    rig.acquire();
    let session = rig.add_user_session(&config(&[precise(LOADS, 100)]));
    let tid = start_thread(&mut rig, session);
    (rig, session, tid)
}

/// What a thread that polls the mapping sees at any moment.
fn words(shared: &Shared) -> impl Iterator<Item = u64> + '_ {
    let words = shared.segments.iter().flat_map(|segment| segment.chunks_exact(8));
    words.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
}

#[test]
fn a_record_that_shows_the_kernel_is_withheld_and_counted() {
    let (mut rig, session, tid) = unprivileged(4);
    for _ in 0..2000 {
        // System calls in every phase of the period.
        rig.run(0, 97, &[Load, Plain]);
        rig.run_kernel(0, 50);
        assert!(words(&rig.cores[0].borrow().machine.shared[session]).all(|word| word < KERNEL));
    }
    rig.stop(session);
    rig.read_all();
    let totals = rig.sessions[session].totals();
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert!(totals.records_withheld > 10, "no record came late enough: {totals:?}");
    assert_eq!(seen.records[0], totals.records);
    // 49 of 97 instructions load, and each hundredth load is sampled.
    assert_eq!(seen.counts[0], 2000 * 49);
    // The event after each overflow is recorded.
    assert_eq!(totals.records + totals.records_withheld, (seen.counts[0] - 1) / 100);
    assert_eq!(totals.records_lost, 0);
}

/// Several records come before the interrupt that collects the stack, which is the last one's.
#[test]
fn the_stack_is_that_of_the_last_record_also_behind_one_that_is_withheld() {
    let mut rig = Rig::new(1, Options { pebs_skid: 4, ..Options::default() });
    rig.acquire();
    let request = SessionConfig { frames: 8, stack_ring_bytes: 1 << 16, ..config(&[precise(LOADS, 100)]) };
    let session = rig.add_user_session(&request);
    start_thread(&mut rig, session);
    rig.cores[0].borrow_mut().machine.nmi_latency = 500;
    for _ in 0..1500 {
        rig.run(0, 97, &[Load]);
        rig.run_kernel(0, 50);
        rig.give_back_all();
    }
    let core = rig.cores[0].borrow();
    let collected = |quantum: &&Quantum| quantum.flags & QuantumFlags::STACK_FRAMES != 0;
    let quanta: Vec<&Quantum> =
        core.machine.shared[session].quanta.iter().flatten().filter(collected).collect();
    assert!(quanta.iter().all(|quantum| quantum.stack_bytes == 24));
    let behind = quanta.iter().filter(|quantum| quantum.flags & QuantumFlags::RECORDS_WITHHELD != 0);
    assert!(behind.count() > 3);
}

#[test]
fn nothing_is_withheld_without_skid() {
    let (mut rig, session, tid) = unprivileged(0);
    for _ in 0..20 {
        rig.run(0, 10_000, &[Load]);
        rig.run_kernel(0, 50);
        rig.read_all();
    }
    rig.stop(session);
    rig.read_all();
    let totals = rig.sessions[session].totals();
    assert_eq!((totals.records, totals.records_withheld), (2000 - 1, 0));
    assert_eq!(rig.sessions[session].reader.threads[&tid].records[0], totals.records);
}

#[test]
fn a_value_that_looks_like_a_kernel_address_reads_zero() {
    let (mut rig, session, _) = unprivileged(0);
    rig.cores[0].borrow_mut().machine.rax = 0xffff_8880_1234_5678;
    rig.run(0, 150, &[Load]);
    rig.cut(0, QuantumEnd::Flush);
    let core = rig.cores[0].borrow();
    let shared = &core.machine.shared[session];
    assert!(words(shared).any(|word| word != 0) && words(shared).all(|word| word < KERNEL));
    let quantum = shared.quanta[0].expect("published");
    assert_ne!(quantum.flags & QuantumFlags::RECORDS_SCRUBBED, 0);
}

#[test]
fn records_without_room_for_their_quantum_stay_out_of_sight() {
    let (mut rig, session, _) = unprivileged(2);
    for _ in 0..2000 {
        rig.run(0, 97, &[Load]);
        rig.run_kernel(0, 5);
        rig.cut(0, QuantumEnd::Timer);
    }
    let totals = rig.sessions[session].totals();
    assert!(totals.quanta_lost > 0 && totals.records_lost > 0);
    assert!(words(&rig.cores[0].borrow().machine.shared[session]).all(|word| word < KERNEL));
}
