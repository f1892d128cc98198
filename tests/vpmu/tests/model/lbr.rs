//! The last-branch-record stack.

use crate::machine::*;
use vpmu::pmu::msr;
use vpmu::{BranchKind, Demand, MicroEvents, Options, Privilege};

fn recording(select: u64) -> Machine {
    let mut machine = Machine::new(Options::default());
    machine.wr(msr::MSR_LBR_SELECT, select);
    machine.wr(msr::IA32_DEBUGCTL, 1);
    machine
}

fn tos(machine: &mut Machine) -> u32 {
    machine.rd(msr::MSR_LASTBRANCH_TOS) as u32
}

/// SDM Vol. 3B 17.10: triplets of source, target and information, the most recent one at TOS.
#[test]
fn a_branch_is_recorded_with_its_elapsed_cycles() {
    let mut machine = recording(0);
    assert_eq!(machine.pmu.demand(), Demand::Microarchitecture);
    for (n, mispredicted) in [(1u64, false), (2, true)] {
        let micro = MicroEvents { cycles: 40 * n as u32, ..MicroEvents::default() };
        machine.step(Instruction { micro, ..nop() });
        machine.pmu.record_branch(
            0x1000 * n,
            0x2000 * n,
            BranchKind::IndirectJump,
            mispredicted,
            Privilege::User,
        );
    }
    assert_eq!(tos(&mut machine), 2);
    let entry = |machine: &mut Machine, index| {
        [msr::MSR_LASTBRANCH_0_FROM_IP, msr::MSR_LASTBRANCH_0_TO_IP, msr::MSR_LBR_INFO_0]
            .map(|first| machine.rd(first + index))
    };
    assert_eq!(entry(&mut machine, 1), [0x1000, 0x2000, 40]);
    assert_eq!(entry(&mut machine, 2), [0x2000, 0x4000, 80 | 1 << 63]);
}

/// The stack is a ring of 32; off or frozen it keeps what it has.
#[test]
fn the_stack_wraps_and_stops() {
    let mut machine = recording(0);
    for n in 0..33 {
        machine.pmu.record_branch(n, n, BranchKind::DirectJump, false, Privilege::User);
    }
    assert_eq!(tos(&mut machine), 1);
    assert_eq!(machine.rd(msr::MSR_LASTBRANCH_0_FROM_IP + 1), 32);
    machine.wr(msr::IA32_PERF_GLOBAL_STATUS_SET, 1 << 58);
    assert_eq!(machine.pmu.demand(), Demand::Nothing);
    machine.pmu.record_branch(99, 99, BranchKind::DirectJump, false, Privilege::User);
    machine.wr(msr::IA32_PERF_GLOBAL_STATUS_RESET, 1 << 58);
    machine.wr(msr::IA32_DEBUGCTL, 0);
    machine.pmu.record_branch(99, 99, BranchKind::DirectJump, false, Privilege::User);
    assert_eq!(tos(&mut machine), 1);
}

/// SDM Vol. 3B, tables 17-11 and 17-13: each bit keeps one class out.
#[test]
fn select_filters_by_kind_and_privilege() {
    let kinds = [
        (BranchKind::Conditional, 1 << 2),
        (BranchKind::DirectCall, 1 << 3),
        (BranchKind::IndirectCall, 1 << 4),
        (BranchKind::Return, 1 << 5),
        (BranchKind::IndirectJump, 1 << 6),
        (BranchKind::DirectJump, 1 << 7),
        (BranchKind::Far, 1 << 8),
    ];
    for (bit, privilege) in [(1, Privilege::Kernel), (2, Privilege::User)] {
        for (kind, class) in kinds {
            for (select, recorded) in [(0, 1), (bit, 0), (3 & !bit, 1), (class, 0), (0x1FC & !class, 1)] {
                let mut machine = recording(select);
                machine.pmu.record_branch(1, 2, kind, false, privilege);
                assert_eq!(tos(&mut machine), recorded, "{kind:?} {privilege:?} {select:#x}");
            }
        }
    }
}

/// SDM Vol. 3B 17.9.1: in call-stack mode returns flush their calls from the stack.
#[test]
fn call_stack_mode_pops_at_returns() {
    let mut machine = recording(1 << 9 | 0x1C4);
    let branch = |machine: &mut Machine, kind| machine.pmu.record_branch(1, 2, kind, false, Privilege::User);
    branch(&mut machine, BranchKind::DirectCall);
    branch(&mut machine, BranchKind::IndirectCall);
    branch(&mut machine, BranchKind::Conditional);
    assert_eq!(tos(&mut machine), 2);
    branch(&mut machine, BranchKind::Return);
    assert_eq!(tos(&mut machine), 1);
    let sources = [1, 2].map(|index| machine.rd(msr::MSR_LASTBRANCH_0_FROM_IP + index));
    assert_eq!(sources, [1, 0]);
}
