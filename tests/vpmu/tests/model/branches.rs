//! Branch prediction: what a predictor is for.

use vpmu::profile::SKYLAKE;
use vpmu::{BranchKind, Core, Event, SharedCache};

fn core() -> Core {
    let llc = SharedCache::new(&SKYLAKE.geometry.llc).unwrap();
    Core::new(&SKYLAKE, &SKYLAKE.geometry, llc).unwrap()
}

/// Whether a conditional branch at `pc` with this direction was mispredicted.
fn conditional(core: &mut Core, pc: u64, taken: bool) -> bool {
    let next = if taken { pc + 64 } else { pc + 2 };
    core.branch(pc, pc + 2, next, BranchKind::Conditional).once.contains(Event::BranchMispredicted)
}

#[test]
fn a_loop_is_learnt() {
    let mut core = core();
    let mispredicted = (0..10_000u64).filter(|n| conditional(&mut core, 0x400, n % 8 != 7)).count();
    assert!(mispredicted < 100, "{mispredicted} of 10000 in a loop of 8");
}

#[test]
fn random_directions_are_not() {
    let mut core = core();
    let mut random = 1u64;
    let mispredicted = (0..10_000)
        .filter(|_| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            conditional(&mut core, 0x400, random >> 63 == 1)
        })
        .count();
    assert!((4_000..6_000).contains(&mispredicted), "{mispredicted} of 10000");
}

#[test]
fn returns_are_predicted_as_deep_as_the_stack() {
    let depth = u64::from(SKYLAKE.microarchitecture.return_stack);
    for (calls, expected) in [(depth, 0), (depth + 3, 3)] {
        let mut core = core();
        for n in 0..calls {
            core.branch(n * 16, n * 16 + 5, 0x9000, BranchKind::DirectCall);
        }
        let returns = (0..calls).rev().map(|n| core.branch(0x9000, 0x9001, n * 16 + 5, BranchKind::Return));
        let mispredicted = returns.filter(|events| events.once.contains(Event::BranchMispredicted)).count();
        assert_eq!(mispredicted as u64, expected, "{calls} calls deep");
    }
}

#[test]
fn indirect_targets_are_remembered() {
    let mut core = core();
    let mut jump = |target| {
        core.branch(0x10, 0x12, target, BranchKind::IndirectJump).once.contains(Event::BranchMispredicted)
    };
    assert_eq!([jump(0x100), jump(0x100), jump(0x200), jump(0x200)], [true, false, true, false]);
}

/// SDM Vol. 3B, table 19-4, BR_INST_RETIRED and BR_MISP_RETIRED: which sub-events each kind of branch belongs
/// to.
#[test]
fn each_kind_is_counted_as_what_it_is() {
    use Event as E;
    let cases = [
        (BranchKind::Conditional, true, &[E::BranchConditional, E::BranchTaken][..]),
        (BranchKind::Conditional, false, &[E::BranchConditional, E::BranchNotTaken]),
        (BranchKind::DirectJump, true, &[E::BranchTaken]),
        (BranchKind::DirectCall, true, &[E::BranchCall, E::BranchTaken]),
        (BranchKind::Far, true, &[E::BranchFar]),
    ];
    for (kind, taken, expected) in cases {
        let mut core = core();
        let mut once = Vec::new();
        // Often enough that the direction is learnt and no misprediction is among the events.
        for _ in 0..40 {
            once = core.branch(0x10, 0x12, if taken { 0x50 } else { 0x12 }, kind).once.iter().collect();
        }
        assert_eq!(once, expected, "{kind:?}");
    }
    let once: Vec<_> = core().branch(0x10, 0x12, 0x50, BranchKind::IndirectCall).once.iter().collect();
    let expected = [
        E::BranchCall,
        E::BranchTaken,
        E::BranchMispredicted,
        E::BranchCallMispredicted,
        E::BranchTakenMispredicted,
    ];
    assert_eq!(once, expected);
}

/// BR_MISP_RETIRED.NEAR_TAKEN is about the direction the branch took, not the predicted one.
#[test]
fn a_branch_that_was_not_taken_is_no_taken_misprediction() {
    let mut core = core();
    let mut branch =
        |taken| core.branch(0x10, 0x12, if taken { 0x50 } else { 0x12 }, BranchKind::Conditional).once;
    for _ in 0..40 {
        branch(true);
    }
    let once = branch(false);
    assert!(
        once.contains(Event::BranchConditionalMispredicted) && !once.contains(Event::BranchTakenMispredicted)
    );
}

#[test]
fn a_misprediction_costs_cycles() {
    let mut core = core();
    let events = core.branch(0x10, 0x12, 0x50, BranchKind::IndirectJump);
    assert_eq!((events.cycles, events.stalled.contains(Event::StallTotal)), (16, true));
    let events = core.branch(0x10, 0x12, 0x50, BranchKind::IndirectJump);
    assert_eq!(events.cycles, 0);
}
