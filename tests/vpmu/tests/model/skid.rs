//! PEBS records that come late.

use crate::machine::*;
use vpmu::pmu::msr;
use vpmu::truth::{Taken, Truth, TruthOptions};
use vpmu::{Basic, Options, Privilege};

const ALL_LOADS: u64 = 0x81D0;

/// A machine that samples all user loads with this period, and whose records come `skid` instructions late.
fn sampling(period: u64, skid: u64) -> Machine {
    let mut machine = Machine::new(Options { pebs_skid: skid, ..Options::default() });
    machine.set_up_pebs(8, 9, period);
    machine.wr(msr::IA32_PERFEVTSEL0, ALL_LOADS | USR | EN);
    machine.wr(msr::IA32_PEBS_ENABLE, 1);
    machine.set_period(0, period);
    machine
}

/// The record of a user-mode load shows the kernel when the privilege changes within the skid; the data address
/// stays the load's, and the truth says both.
#[test]
fn a_late_record_crosses_a_privilege_change() {
    let mut machine = sampling(2, 3);
    machine.steps(load(0x100), 2);
    let cause = machine.pc;
    machine.step(load(0x200));
    machine.step(nop());
    machine.step(Instruction { kernel: true, ..load(0xBAD) });
    assert_eq!(machine.records(), 0);
    let taken = machine.pc;
    let settlement = machine.step(Instruction { kernel: true, ..nop() }).expect("the record is due");
    assert_eq!(machine.records(), 1);
    assert_eq!([0x08, 0x98, 0xB0].map(|at| machine.record(0, at)), [taken + 4, 0x200, taken]);

    let truth = Truth::new(TruthOptions { page_table_isolation: false, pebs_log: true, branch_log: true });
    let retired = vpmu::Retired {
        pc: taken,
        next_pc: taken + 4,
        privilege: Privilege::Kernel,
        load: None,
        store: None,
        locked: false,
    };
    truth.cpu(0).settled(&settlement, &retired, 0);
    let record = truth.report().pebs[0].clone();
    assert_eq!((record.pc, record.privilege, record.load), (cause, Privilege::User, Some(0x200)));
    let expected = Taken { pc: taken, next_pc: taken + 4, privilege: Privilege::Kernel };
    assert_eq!(record.taken, Some(expected));
}

/// The distance between records stays the period: what is counted during the skid belongs to the next one.
#[test]
fn a_skid_loses_no_event() {
    let mut machine = sampling(10, 4);
    machine.steps(load(0x100), 75);
    assert_eq!(machine.records(), 7);
    assert_eq!(machine.pmc(0), RANGE - 10 + 5);
    assert_eq!(machine.pmu.headroom(Privilege::User)[Basic::Instruction as usize], u64::MAX);
}

/// The adapter must come back when the skid has passed, in whatever privilege.
#[test]
fn the_skid_limits_the_headroom() {
    let mut machine = sampling(1, 5);
    machine.steps(load(0x100), 2);
    machine.step(nop());
    for privilege in Privilege::ALL {
        assert_eq!(machine.pmu.headroom(privilege)[Basic::Instruction as usize], 4);
    }
}

/// A counter that is stopped before its record was taken does not write it; if it stays armed, its next event
/// triggers the record anew.
#[test]
fn stopping_the_counter_abandons_the_record() {
    for (register, off, on, armed) in
        [(msr::IA32_PERF_GLOBAL_CTRL, 0, 0xF, true), (msr::IA32_PEBS_ENABLE, 0, 1, false)]
    {
        let mut machine = sampling(3, 2);
        machine.steps(load(0x100), 4);
        machine.step(nop());
        machine.wr(register, off);
        machine.steps(nop(), 5);
        assert_eq!(machine.records(), 0);
        machine.wr(register, on);
        machine.step(load(0x300));
        machine.steps(nop(), 2);
        assert_eq!(machine.records(), u64::from(armed), "{register:#x}");
    }
}
