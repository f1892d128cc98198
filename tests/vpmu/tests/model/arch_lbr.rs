//! Architectural last-branch records (SDM Vol. 3B chapter 19, in the editions since 2023).

use crate::machine::*;
use vpmu::pmu::msr;
use vpmu::profile::SAPPHIRE_RAPIDS;
use vpmu::{BranchKind, Demand, GeneralProtection, MicroEvents, Options, Privilege};

const LBR_EN: u64 = 1;
const OS: u64 = 1 << 1;
const USR: u64 = 1 << 2;
const CALL_STACK: u64 = 1 << 3;
const EVERY_KIND: u64 = 0x7F << 16;

fn recording(control: u64) -> Machine {
    let mut machine = Machine::of(&SAPPHIRE_RAPIDS, Options::default());
    machine.wr(msr::IA32_LBR_CTL, LBR_EN | control);
    machine
}

fn entry(machine: &mut Machine, index: u32) -> [u64; 3] {
    [msr::IA32_LBR_0_FROM_IP, msr::IA32_LBR_0_TO_IP, msr::IA32_LBR_0_INFO]
        .map(|first| machine.rd(first + index))
}

/// 19.1.3: entry 0 is the most recent; INFO has the cycles (15:0, valid by bit 60), the branch type (59:56)
/// and the misprediction (63).
#[test]
fn entry_zero_is_the_most_recent() {
    let mut machine = recording(USR | EVERY_KIND);
    assert_eq!(machine.pmu.demand(), Demand::Microarchitecture);
    machine.step(Instruction { micro: MicroEvents { cycles: 40, ..MicroEvents::default() }, ..nop() });
    machine.pmu.record_branch(0x10, 0x20, BranchKind::Conditional, true, Privilege::User);
    machine.pmu.record_branch(0x30, 0x40, BranchKind::Return, false, Privilege::User);
    assert_eq!(entry(&mut machine, 0), [0x30, 0x40, 5 << 56 | 1 << 60]);
    assert_eq!(entry(&mut machine, 1), [0x10, 0x20, 40 | 1 << 60 | 1 << 63]);
}

/// 19.1.1 and 19.1.3: LBREn, OS, USR and one bit for each kind of branch; each kind has its type.
#[test]
fn control_lets_branches_in() {
    let kinds = [
        (BranchKind::Conditional, 1 << 16, 0),
        (BranchKind::DirectJump, 1 << 17, 2),
        (BranchKind::IndirectJump, 1 << 18, 1),
        (BranchKind::DirectCall, 1 << 19, 4),
        (BranchKind::IndirectCall, 1 << 20, 3),
        (BranchKind::Return, 1 << 21, 5),
        (BranchKind::Far, 1 << 22, 8),
    ];
    for (level, privilege) in [(OS, Privilege::Kernel), (USR, Privilege::User)] {
        for (kind, class, branch_type) in kinds {
            let choices = [
                (level | class, true),
                (level | (EVERY_KIND & !class), false),
                ((OS | USR) & !level | EVERY_KIND, false),
            ];
            for (control, recorded) in choices {
                let mut machine = recording(control);
                machine.pmu.record_branch(1, 2, kind, false, privilege);
                let info = if recorded { branch_type << 56 | 1 << 60 } else { 0 };
                let expected = if recorded { [1, 2, info] } else { [0; 3] };
                assert_eq!(entry(&mut machine, 0), expected, "{kind:?} {privilege:?} {control:#x}");
            }
        }
    }
    let mut off = recording(USR | EVERY_KIND);
    off.wr(msr::IA32_LBR_CTL, USR | EVERY_KIND);
    assert_eq!(off.pmu.demand(), Demand::Nothing);
}

/// 19.1.1: IA32_LBR_DEPTH takes the depths of CPUID.1CH:EAX, and a write clears all records. Records beyond
/// it do not exist.
#[test]
fn depth_clears_and_bounds() {
    let mut machine = recording(USR | EVERY_KIND);
    assert_eq!(machine.rd(msr::IA32_LBR_DEPTH), 32);
    machine.pmu.record_branch(1, 2, BranchKind::DirectJump, false, Privilege::User);
    machine.wr(msr::IA32_LBR_DEPTH, 8);
    assert_eq!(entry(&mut machine, 0), [0; 3]);
    for n in 1..=9 {
        machine.pmu.record_branch(n, n, BranchKind::DirectJump, false, Privilege::User);
    }
    assert_eq!((entry(&mut machine, 0)[0], entry(&mut machine, 7)[0]), (9, 2));
    assert_eq!(machine.pmu.rdmsr(msr::IA32_LBR_0_FROM_IP + 8), Err(GeneralProtection));
    for depth in [0, 4, 12, 24, 40, 64, u64::MAX] {
        assert_eq!(machine.pmu.wrmsr(msr::IA32_LBR_DEPTH, depth), Err(GeneralProtection), "{depth}");
    }
}

/// 19.1.2.4: in call-stack mode a return takes its call off the stack.
#[test]
fn call_stack_mode_pops_at_returns() {
    let mut machine = recording(USR | CALL_STACK | 1 << 19 | 1 << 20 | 1 << 21);
    let branch =
        |machine: &mut Machine, from, kind| machine.pmu.record_branch(from, 2, kind, false, Privilege::User);
    branch(&mut machine, 0x10, BranchKind::DirectCall);
    branch(&mut machine, 0x20, BranchKind::IndirectCall);
    branch(&mut machine, 0x30, BranchKind::Conditional);
    branch(&mut machine, 0x40, BranchKind::Return);
    assert_eq!((entry(&mut machine, 0)[0], entry(&mut machine, 1)[0]), (0x10, 0));
}

/// The model-specific registers are gone, and IA32_DEBUGCTL.LBR records nothing.
#[test]
fn model_specific_records_are_gone() {
    let mut machine = Machine::of(&SAPPHIRE_RAPIDS, Options::default());
    for register in [msr::MSR_LBR_SELECT, msr::MSR_LASTBRANCH_TOS, msr::MSR_LASTBRANCH_0_FROM_IP] {
        assert_eq!(machine.pmu.rdmsr(register), Err(GeneralProtection), "{register:#x}");
    }
    machine.wr(msr::IA32_DEBUGCTL, 1);
    assert_eq!(machine.pmu.demand(), Demand::Nothing);
    machine.wr(msr::IA32_LBR_CTL, LBR_EN | USR | EVERY_KIND);
    machine.wr(msr::IA32_PERF_GLOBAL_STATUS_SET, 1 << 58);
    assert_eq!(machine.pmu.demand(), Demand::Nothing, "LBR_FRZ");
}
