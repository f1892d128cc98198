//! Taking a CPU's PMU and giving it back, and knowing whose it is.

mod rig;

use hpm_abi::{QuantumEnd, Reason};
use hpm_core::port::Port;
use hpm_core::{Engine, Refusal};
use rig::core::Instruction::Load;
use rig::scene::{config, counted, precise, INSTRUCTIONS, LOADS};
use rig::{foreign_nmi, Rig};
use vpmu::Options;

fn write(rig: &Rig, register: u32, value: u64) {
    rig.cores[0].borrow_mut().pmu.wrmsr(register, value).expect("a legal value");
}

#[test]
fn every_register_is_given_back_as_it_was_found() {
    let mut rig = Rig::new(1, Options::default());
    // What another owner has left: programmed, but stopped by IA32_PERF_GLOBAL_CTRL.
    for (register, value) in [
        (0x38F, 0),
        (0x186, 0x0041_00C0),
        (0x187, 0x0053_4F2E),
        (0x4C1, 0xFFFF_1234_5678),
        (0x4C2, 77),
        (0x309, 0x8000_0000_0001),
        (0x38D, 0x0B3),
        (0x600, 0xffff_fe00_0000_2000),
    ] {
        write(&rig, register, value);
    }
    let before = rig.registers();
    rig.acquire();
    for events in [vec![precise(LOADS, 100), counted(INSTRUCTIONS)], vec![counted(LOADS)]] {
        let session = rig.add_session(&config(&events));
        let thread = rig.add_thread(Some(session));
        rig.switch(0, thread, QuantumEnd::Preempted);
        rig.run(0, 100_000, &[Load]);
        rig.switch(0, 0, QuantumEnd::Yielded);
        rig.stop(session);
    }
    assert_ne!(rig.registers(), before);
    rig.release();
    assert_eq!(rig.registers(), before);
}

/// As the kernel's perf leaves it when its last event has stopped.
#[test]
fn architectural_pebs_that_was_found_enabled_writes_nothing_until_it_is_given_back() {
    const IA32_PEBS_INDEX: u32 = 0x3F5;
    const EN: u64 = 1 << 32;
    let mut rig = Rig::of(&vpmu::profile::CLEARWATER_FOREST, 1, Options::default());
    write(&rig, IA32_PEBS_INDEX, EN);
    let before = rig.registers();
    rig.acquire();
    assert_eq!(rig.port(0).rdmsr(IA32_PEBS_INDEX) & EN, 0);
    rig.release();
    assert_eq!(rig.registers(), before);
}

#[test]
fn a_running_counter_is_refused_and_left_alone() {
    for (register, value, global) in [(0x186, 0x0041_00C0, 1), (0x38D, 0x20, 1 << 33)] {
        let rig = Rig::new(1, Options::default());
        write(&rig, register, value);
        write(&rig, 0x38F, global);
        let before = rig.registers();
        let refusal = Engine::new(0).acquire(&mut rig.port(0), &rig.pmu);
        assert_eq!(refusal, Err(Refusal::new(Reason::CountersRunning, [register.into(), value])));
        assert_eq!(rig.registers(), before);
    }
}

#[test]
fn no_counter_runs_after_a_session_has_stopped() {
    let mut rig = Rig::new(1, Options::default());
    rig.acquire();
    let session = rig.add_session(&config(&[counted(INSTRUCTIONS), precise(LOADS, 100)]));
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    rig.run(0, 1000, &[Load]);
    rig.stop(session);
    let stopped = rig.registers();
    // Not even if somebody else writes IA32_PERF_GLOBAL_CTRL.
    let enabled = |register| [0x186, 0x187, 0x188, 0x189, 0x38D, 0x3F1].contains(&register);
    assert!(stopped.iter().all(|&(register, value)| !enabled(register) || value == 0));
    rig.run(0, 1000, &[Load]);
    assert_eq!(rig.registers(), stopped);
}

#[test]
fn an_nmi_that_is_not_a_pmi_is_left_to_others() {
    let mut rig = Rig::new(1, Options::default());
    rig.acquire();
    let session = rig.add_session(&config(&[precise(LOADS, 1000)]));
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    rig.run(0, 1500, &[Load]);
    assert!(!foreign_nmi(&rig, 0));
    rig.run(0, 1000, &[Load]);
    rig.stop(session);
    rig.read_all();
    assert_eq!(rig.sessions[session].totals().records, 2);
}

/// Its indication can be gone: the counter has another session's event by the time the NMI comes. Linux would complain of it.
#[test]
fn an_nmi_of_a_pmi_whose_indication_is_gone_is_taken() {
    let mut rig = Rig::new(1, Options::default());
    rig.acquire();
    rig.cores[0].borrow_mut().machine.lvtpc_masked = true;
    assert!(foreign_nmi(&rig, 0));
    // Its acknowledgement has unmasked LVTPC, and so the next is nobody's.
    assert!(!foreign_nmi(&rig, 0));
}
