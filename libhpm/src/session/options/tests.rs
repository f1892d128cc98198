//! The request that options make, as far as it depends on the machine or on each other.

use super::*;
use crate::event;

/// The request for a processor with this many branch records, in its precise records or not.
fn request(stack: Stack, branches: Option<Branches>, in_records: bool, imprecise: bool) -> SessionConfig {
    let load = event::parse("load:u", "skylake").unwrap();
    let options = Options::new(Target::System).sample(load, 1000).stack(stack).branches(branches);
    let flags = if in_records { InfoFlags::RECORDS_BRANCHES } else { 0 };
    options.imprecise(imprecise).config_for(&Info { branch_records: 32, flags, ..Info::default() })
}

#[test]
fn branches_need_a_ring_only_where_the_driver_reads_them() {
    let all = Some(Branches::default());
    let ring = |in_records, imprecise| request(Stack::None, all, in_records, imprecise).stack_ring_bytes;
    assert_eq!([ring(false, false), ring(true, true)], [BRANCH_RING_BYTES; 2]);
    assert_eq!(ring(true, false), 0);
    let with_frames = request(Stack::FramePointers(8), all, true, false);
    assert_eq!((with_frames.stack_ring_bytes, with_frames.branches), (STACK_RING_BYTES, 32));
}

#[test]
fn one_sampled_event_for_each_type_of_core_has_large_segments() {
    let on = |core_type| Event { core_type, ..event::parse("load:u", "skylake").unwrap() };
    let segments = |types: &[CoreType]| {
        let options = Options::new(Target::System);
        types.iter().fold(options, |options, &core| options.sample(on(core), 1000)).config().segments
    };
    assert_eq!(segments(&[CoreType::Core, CoreType::Atom]), LARGE_SEGMENTS);
    assert_eq!(segments(&CORE_TYPES), LARGE_SEGMENTS);
    assert_eq!(segments(&[CoreType::LowPower, CoreType::Core, CoreType::LowPower]), SEGMENTS);
    assert_eq!(segments(&[CoreType::Any]), LARGE_SEGMENTS);
    assert_eq!(segments(&[CoreType::Atom, CoreType::Atom]), SEGMENTS);
    assert_eq!(segments(&[CoreType::Any, CoreType::Core]), SEGMENTS);
}

#[test]
fn counts_are_published_one_by_one_only_where_somebody_reads_them() {
    let load = event::parse("load:u", "skylake").unwrap();
    let rings = |options: Options| (options.config().quanta, options.config().segments);
    let counted = || Options::new(Target::System).count(load.clone());
    assert_eq!(rings(counted()), (QUANTA_UNREAD, 0));
    assert_eq!(rings(counted().quanta(true)), (QUANTA, 0));
    let sampled = Options::new(Target::System).sample(load.clone(), 1000);
    assert_eq!(rings(sampled.clone()), (QUANTA, LARGE_SEGMENTS));
    assert_eq!(rings(sampled.clone().imprecise(true)), (QUANTA, SEGMENTS));
    assert_eq!(rings(sampled.stack(Stack::FramePointers(8))), (QUANTA, SEGMENTS));
}

#[test]
fn as_many_branches_are_asked_for_as_there_are_unless_said() {
    let eight = Some(Branches { count: 8, filter: BranchFilter::CALL });
    let request = |stack, branches| {
        let config = request(stack, branches, true, false);
        (config.branches, config.branch_filter)
    };
    assert_eq!(request(Stack::None, None), (0, 0));
    assert_eq!(request(Stack::None, eight), (8, BranchFilter::CALL));
    assert_eq!(request(Stack::BranchCalls, eight), (32, BranchFilter::CALL_STACK));
}
