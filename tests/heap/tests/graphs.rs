//! Random object graphs against a model that has no collector.

mod graph;

use graph::{Blob, LIMIT, Leaf, Node, TYPES, Test, fill, step};
use heap::{Advice, Collector, Config, Heap};
use proptest::prelude::*;

proptest! {
    #[test]
    fn graphs_survive_any_sequence_of_collections(
        steps in proptest::collection::vec(step(), 1..300),
        collector in prop_oneof![Just(Collector::MarkSweep), Just(Collector::Copying)],
    ) {
        let heap = Heap::new(Config { collector, limit_bytes: LIMIT }, TYPES, ()).unwrap();
        let heap = Test::on(heap).run(&steps);
        prop_assert_eq!(heap.used_bytes(), 0, "all memory comes back");
    }
}

/// A list that grows and shrinks in a heap hardly larger than it: allocation itself has to collect.
#[test]
fn garbage_makes_room_and_a_full_heap_says_so() {
    for collector in [Collector::MarkSweep, Collector::Copying] {
        let mut heap = Heap::new(Config { collector, limit_bytes: 2 << 20 }, TYPES, ()).unwrap();
        heap.advise(Advice::none().with(Node::leaf().id(), 0));
        for round in 0..50_u32 {
            let mut head = heap.allocate::<Node>().unwrap();
            for _ in 0..2_000 {
                let node = heap.allocate::<Node>().unwrap();
                let leaf = heap.allocate::<Leaf>().unwrap();
                heap.set_word(heap.at(&leaf), Leaf::id(), round);
                heap.set(heap.at(&node), Node::leaf(), Some(heap.at(&leaf)));
                heap.set(heap.at(&node), Node::next(), Some(heap.at(&head)));
                head = node;
            }
        }
        heap.verify().unwrap();
        assert!(heap.statistics().nursery_collections > 0);
        let mut kept = fill(&mut heap);
        let kept_bytes = kept.len() * 408;
        let least = if collector == Collector::MarkSweep { 1_500_000 } else { 800_000 };
        assert!(kept_bytes > least, "{kept_bytes} bytes fill {collector:?}");
        heap.verify().unwrap();
        kept.clear();
        heap.allocate_data::<Blob>(100).unwrap();
    }
}

#[test]
fn advised_children_follow_their_parents_at_the_gap_asked_for() {
    let mut heap =
        Heap::new(Config { collector: Collector::MarkSweep, limit_bytes: LIMIT }, TYPES, ()).unwrap();
    let distance = |heap: &mut Heap, advice: Advice| {
        heap.advise(advice);
        let node = heap.allocate::<Node>().unwrap();
        let leaf = heap.allocate::<Leaf>().unwrap();
        heap.set(heap.at(&node), Node::leaf(), Some(heap.at(&leaf)));
        drop(leaf);
        heap.collect_nursery();
        let node = heap.at(&node);
        let leaf = heap.get(node, Node::leaf()).unwrap();
        let place = heap.place(leaf.address() + 19).unwrap();
        assert_eq!((place.start, place.class), (leaf.address(), 1));
        leaf.address() - node.address()
    };
    let leaf = Node::leaf().id();
    // 8 bytes of header, 4 references, 1 word.
    assert_eq!(distance(&mut heap, Advice::none().with(leaf, 0)), 28);
    assert_eq!(distance(&mut heap, Advice::none().with(leaf, 128)), 28 + 128);
    assert_ne!(distance(&mut heap, Advice::none()), 28);
    let done = heap.statistics();
    assert_eq!((done.co_allocated_pairs, done.separated_pairs, done.promoted_objects), (1, 1, 6));
}

/// A list of five whose elements follow one another: three of them in a cell, and two.
#[test]
fn a_row_has_three_objects_at_most() {
    let mut heap =
        Heap::new(Config { collector: Collector::MarkSweep, limit_bytes: LIMIT }, TYPES, ()).unwrap();
    heap.advise(Advice::none().with(Node::next().id(), 0));
    let mut head = heap.allocate::<Node>().unwrap();
    for _ in 0..4 {
        let node = heap.allocate::<Node>().unwrap();
        heap.set(heap.at(&node), Node::next(), Some(heap.at(&head)));
        head = node;
    }
    heap.collect_nursery();
    heap.verify().unwrap();
    let mut node = heap.at(&head);
    let mut distances = Vec::new();
    while let Some(next) = heap.get(node, Node::next()) {
        distances.push(next.address().wrapping_sub(node.address()));
        node = next;
    }
    let follows: Vec<bool> = distances.iter().map(|distance| *distance == 28).collect();
    assert_eq!(follows, [true, true, false, true], "{distances:?}");
    let done = heap.statistics();
    assert_eq!((done.co_allocated_pairs, done.co_allocated_rows), (3, 2));
}
