//! A model of object graphs that has no collector, for the tests that hold heaps against it.

use std::collections::HashMap;

use heap::{Advice, Handle, Heap, Ref};
use proptest::prelude::*;

heap::classes! {
    /// An object of every kind of field.
    class Node { next: Node, leaf: Leaf, list: Nodes, blob: Blob; id }
    /// An object without references.
    class Leaf { ; id, first, second }
    /// An array of references; the first element's object is the array's own mark.
    array Nodes [Node]
    /// Numbers; the first says which blob it is.
    data Blob [u32]
}

/// A heap that holds all of it.
pub(crate) const LIMIT: u32 = 8 << 20;

/// What a test does to the heap, by numbers that are taken modulo how many handles there are.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    Node,
    Leaf,
    /// An array of so many references, which a node holds.
    List(usize, u32),
    /// So many numbers, which a node holds.
    Blob(usize, u32),
    Next(usize, Option<usize>),
    SetLeaf(usize, Option<usize>),
    SetElement(usize, u32, Option<usize>),
    /// Holds the node that another one refers to.
    Follow(usize),
    DropNode(usize),
    DropLeaf(usize),
    Advise(Option<(u16, u16, u32)>),
    CollectNursery,
    CollectAll,
}

/// What the model knows of a node.
#[derive(Debug, Clone, Default)]
pub(crate) struct ModelNode {
    next: Option<u32>,
    leaf: Option<u32>,
    list: Option<Vec<Option<u32>>>,
    blob: Option<(u32, u32)>,
}

/// A heap with its model.
pub(crate) struct Test {
    pub(crate) heap: Heap,
    pub(crate) nodes: Vec<(u32, Handle<Node>)>,
    pub(crate) leaves: Vec<(u32, Handle<Leaf>)>,
    model: HashMap<u32, ModelNode>,
    ids: u32,
}

impl Test {
    pub(crate) fn on(heap: Heap) -> Self {
        Self { heap, nodes: vec![], leaves: vec![], model: HashMap::new(), ids: 0 }
    }

    fn id(&mut self) -> u32 {
        self.ids += 1;
        self.ids
    }

    /// The node that a number means.
    fn node(&self, number: usize) -> Option<&(u32, Handle<Node>)> {
        self.nodes.get(number.checked_rem(self.nodes.len())?)
    }

    pub(crate) fn step(&mut self, step: &Step) {
        match *step {
            Step::Node => self.new_node(),
            Step::Leaf => self.new_leaf(),
            Step::List(node, length) => self.new_list(node, length),
            Step::Blob(node, length) => self.new_blob(node, length),
            Step::Next(node, to) => self.set_next(node, to),
            Step::SetLeaf(node, to) => self.set_leaf(node, to),
            Step::SetElement(node, index, to) => self.set_element(node, index, to),
            Step::Follow(node) => self.follow(node),
            Step::DropNode(node) => {
                if !self.nodes.is_empty() {
                    self.nodes.swap_remove(node % self.nodes.len());
                }
            }
            Step::DropLeaf(leaf) => {
                if !self.leaves.is_empty() {
                    self.leaves.swap_remove(leaf % self.leaves.len());
                }
            }
            Step::Advise(advice) => {
                self.heap.advise(advice.map_or_else(Advice::none, |(class, field, gap)| {
                    Advice::none().with(heap::layout::FieldId { class, field }, gap)
                }))
            }
            Step::CollectNursery => self.heap.collect_nursery(),
            Step::CollectAll => self.heap.collect_all(),
        }
    }

    /// Every step, with looks at everything in between; then all is let go. Returns the heap.
    pub(crate) fn run(mut self, steps: &[Step]) -> Heap {
        for (number, step) in steps.iter().enumerate() {
            self.step(step);
            if number % 8 == 0 || matches!(step, Step::CollectNursery | Step::CollectAll) {
                self.check();
            }
        }
        self.check();
        self.nodes.clear();
        self.leaves.clear();
        self.heap.collect_all();
        self.heap
    }

    fn new_node(&mut self) {
        let id = self.id();
        let node = self.heap.allocate::<Node>().unwrap();
        self.heap.set_word(self.heap.at(&node), Node::id(), id);
        self.model.insert(id, ModelNode::default());
        self.nodes.push((id, node));
    }

    fn new_leaf(&mut self) {
        let id = self.id();
        let leaf = self.heap.allocate::<Leaf>().unwrap();
        let object = self.heap.at(&leaf);
        self.heap.set_word(object, Leaf::id(), id);
        self.heap.set_word(object, Leaf::second(), !id);
        self.leaves.push((id, leaf));
    }

    fn new_list(&mut self, number: usize, length: u32) {
        if self.nodes.is_empty() {
            return;
        }
        let list = self.heap.allocate_references::<Nodes>(length).unwrap();
        let (id, node) = self.node(number).unwrap();
        self.heap.set(self.heap.at(node), Node::list(), Some(self.heap.at(&list)));
        let id = *id;
        self.model.get_mut(&id).unwrap().list = Some(vec![None; length as usize]);
    }

    fn new_blob(&mut self, number: usize, length: u32) {
        if self.nodes.is_empty() {
            return;
        }
        let seed = self.id();
        let blob = self.heap.allocate_data::<Blob>(length).unwrap();
        for index in 0..length {
            self.heap.set_datum(self.heap.at(&blob), index, seed.wrapping_mul(index + 1));
        }
        let (id, node) = self.node(number).unwrap();
        self.heap.set(self.heap.at(node), Node::blob(), Some(self.heap.at(&blob)));
        let id = *id;
        self.model.get_mut(&id).unwrap().blob = Some((seed, length));
    }

    fn set_next(&mut self, number: usize, to: Option<usize>) {
        let Some((id, node)) = self.node(number) else { return };
        let to = to.and_then(|to| self.node(to));
        self.heap.set(self.heap.at(node), Node::next(), to.map(|(_, to)| self.heap.at(to)));
        let (id, to) = (*id, to.map(|to| to.0));
        self.model.get_mut(&id).unwrap().next = to;
    }

    fn set_leaf(&mut self, number: usize, to: Option<usize>) {
        let Some((id, node)) = self.node(number) else { return };
        let to = to.and_then(|to| self.leaves.get(to.checked_rem(self.leaves.len())?));
        self.heap.set(self.heap.at(node), Node::leaf(), to.map(|(_, to)| self.heap.at(to)));
        let (id, to) = (*id, to.map(|to| to.0));
        self.model.get_mut(&id).unwrap().leaf = to;
    }

    fn set_element(&mut self, number: usize, index: u32, to: Option<usize>) {
        let Some((id, node)) = self.node(number) else { return };
        let id = *id;
        let Some(list) = self.heap.get(self.heap.at(node), Node::list()) else { return };
        let Some(index) = index.checked_rem(self.heap.length(list)) else { return };
        let to = to.and_then(|to| self.node(to));
        self.heap.set_element(list, index, to.map(|(_, to)| self.heap.at(to)));
        let to = to.map(|to| to.0);
        self.model.get_mut(&id).unwrap().list.as_mut().unwrap()[index as usize] = to;
    }

    fn follow(&mut self, number: usize) {
        let Some((_, node)) = self.node(number) else { return };
        if let Some(next) = self.heap.get(self.heap.at(node), Node::next()) {
            self.nodes.push((self.heap.word(next, Node::id()), self.heap.hold(next)));
        }
    }

    /// Everything that the model says is reachable is there, with the values that the model has.
    pub(crate) fn check(&self) {
        self.heap.verify().unwrap();
        let mut seen = HashMap::new();
        let mut queue: Vec<(u32, Ref<'_, Node>)> =
            self.nodes.iter().map(|(id, node)| (*id, self.heap.at(node))).collect();
        while let Some((id, node)) = queue.pop() {
            // Each object is in one place, and no two are in the same.
            if let Some(address) = seen.insert(id, node.address()) {
                assert_eq!(address, node.address());
                continue;
            }
            queue.extend(self.check_node(id, node));
        }
        for (id, leaf) in &self.leaves {
            self.check_leaf(*id, self.heap.at(leaf));
        }
    }

    fn check_node<'h>(&'h self, id: u32, node: Ref<'h, Node>) -> Vec<(u32, Ref<'h, Node>)> {
        let (heap, model) = (&self.heap, &self.model[&id]);
        assert_eq!(heap.word(node, Node::id()), id);
        let mut found: Vec<(u32, Ref<'_, Node>)> = Vec::new();
        let next = heap.get(node, Node::next());
        assert_eq!(next.is_some(), model.next.is_some());
        found.extend(model.next.zip(next));
        let leaf = heap.get(node, Node::leaf());
        assert_eq!(leaf.is_some(), model.leaf.is_some());
        if let Some((id, leaf)) = model.leaf.zip(leaf) {
            self.check_leaf(id, leaf);
        }
        let blob = heap.get(node, Node::blob());
        assert_eq!(blob.map(|blob| heap.length(blob)), model.blob.map(|blob| blob.1));
        if let (Some(blob), Some((seed, length))) = (blob, model.blob) {
            assert!((0..length).all(|i| heap.datum(blob, i) == seed.wrapping_mul(i + 1)));
        }
        let list = heap.get(node, Node::list());
        assert_eq!(list.is_some(), model.list.is_some());
        if let Some((list, elements)) = list.zip(model.list.as_ref()) {
            assert_eq!(heap.length(list) as usize, elements.len());
            for (index, id) in (0..).zip(elements) {
                let element = heap.element(list, index);
                assert_eq!(element.is_some(), id.is_some());
                found.extend(id.zip(element));
            }
        }
        found
    }

    fn check_leaf(&self, id: u32, leaf: Ref<'_, Leaf>) {
        assert_eq!(self.heap.word(leaf, Leaf::id()), id);
        assert_eq!(self.heap.word(leaf, Leaf::first()), 0);
        assert_eq!(self.heap.word(leaf, Leaf::second()), !id);
    }
}

/// Blobs of 408 bytes until a heap of 2 MiB is full, which says so.
pub(crate) fn fill(heap: &mut Heap) -> Vec<Handle<Blob>> {
    let mut kept = Vec::new();
    let full = loop {
        match heap.allocate_data::<Blob>(100) {
            Ok(blob) => kept.push(blob),
            Err(full) => break full,
        }
    };
    assert!(full.to_string().contains("2097152 bytes has no room for 408 more"), "{full}");
    kept
}

/// Any step.
pub(crate) fn step() -> impl Strategy<Value = Step> {
    let number = || 0_usize..64;
    let maybe = || proptest::option::of(0_usize..64);
    // Short, middling, of several size classes, and large objects.
    let length = || prop_oneof![0_u32..8, 8_u32..600, 1900_u32..4000];
    let advice = (0_u16..5, 0_u16..5, prop_oneof![Just(0_u32), 1_u32..200, Just(u32::MAX)]);
    prop_oneof![
        6 => Just(Step::Node),
        3 => Just(Step::Leaf),
        2 => (number(), length()).prop_map(|(node, length)| Step::List(node, length)),
        2 => (number(), length()).prop_map(|(node, length)| Step::Blob(node, length)),
        5 => (number(), maybe()).prop_map(|(node, to)| Step::Next(node, to)),
        3 => (number(), maybe()).prop_map(|(node, to)| Step::SetLeaf(node, to)),
        4 => (number(), 0_u32..4000, maybe()).prop_map(|(node, index, to)| Step::SetElement(node, index, to)),
        2 => number().prop_map(Step::Follow),
        3 => number().prop_map(Step::DropNode),
        2 => number().prop_map(Step::DropLeaf),
        2 => proptest::option::of(advice).prop_map(Step::Advise),
        2 => Just(Step::CollectNursery),
        1 => Just(Step::CollectAll),
    ]
}
