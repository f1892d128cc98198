//! A B-tree of numbers: nodes with an array of keys and one of children each.

use super::classes::{Boxed, Branch, Branches, Keys};
use super::{SEED, mix};
use crate::access::Ref;
use crate::heap::{Heap, OutOfMemory};
use crate::observe::Observer;
use crate::roots::Handle;

/// Most keys of a node.
const KEYS: u32 = 15;
/// The key in the middle, which goes up when a node is split.
const MIDDLE: u32 = KEYS / 2;

pub(super) fn run<O: Observer>(heap: &mut Heap<O>, keys: u32) -> Result<u64, OutOfMemory> {
    let mut sum = SEED;
    for round in 0..2 {
        let random = &mut fastrand::Rng::with_seed(SEED + round);
        let mut root = node(heap, true)?;
        let mut inserted = 0_u64;
        for _ in 0..keys {
            root = insert(heap, root, random.u32(..keys * 4), &mut inserted)?;
            heap.safe_point();
        }
        for _ in 0..keys * 8 {
            // The answer is an object, as numbers in collections are in Java.
            let answer = heap.allocate::<Boxed>()?;
            let depth = find(heap, heap.at(&root), random.u32(..keys * 4));
            heap.set_word(heap.at(&answer), Boxed::number(), depth);
            sum = mix(sum, heap.word(heap.at(&answer), Boxed::number()).into());
            heap.safe_point();
        }
        sum = mix(sum, inserted);
    }
    Ok(sum)
}

fn node<O: Observer>(heap: &mut Heap<O>, leaf: bool) -> Result<Handle<Branch>, OutOfMemory> {
    let node = heap.allocate::<Branch>()?;
    let keys = heap.allocate_data::<Keys>(KEYS)?;
    heap.set(heap.at(&node), Branch::keys(), Some(heap.at(&keys)));
    if !leaf {
        let children = heap.allocate_references::<Branches>(KEYS + 1)?;
        heap.set(heap.at(&node), Branch::children(), Some(heap.at(&children)));
    }
    heap.set_word(heap.at(&node), Branch::leaf(), leaf.into());
    Ok(node)
}

fn keys<'h, O: Observer>(heap: &'h Heap<O>, node: Ref<'h, Branch>) -> Ref<'h, Keys> {
    heap.get(node, Branch::keys()).expect("a node has keys")
}

fn children<'h, O: Observer>(heap: &'h Heap<O>, node: Ref<'h, Branch>) -> Ref<'h, Branches> {
    heap.get(node, Branch::children()).expect("an inner node has children")
}

/// Where in the node the key is, or would be: the number of smaller ones.
fn place<O: Observer>(heap: &Heap<O>, node: Ref<'_, Branch>, key: u32) -> (u32, bool) {
    let (count, keys) = (heap.word(node, Branch::count()), keys(heap, node));
    let mut at = 0;
    while at < count {
        let here = heap.datum(keys, at);
        if here >= key {
            return (at, here == key);
        }
        at += 1;
    }
    (at, false)
}

/// At which depth the key is; 0 if it is not there.
fn find<O: Observer>(heap: &Heap<O>, root: Ref<'_, Branch>, key: u32) -> u32 {
    let mut node = root;
    for depth in 1.. {
        let (at, found) = place(heap, node, key);
        if found {
            return depth;
        }
        if heap.word(node, Branch::leaf()) == 1 {
            break;
        }
        node = heap.element(children(heap, node), at).expect("an inner node has a child there");
    }
    0
}

/// Inserts a key; full nodes on the way are split. Returns the root.
fn insert<O: Observer>(
    heap: &mut Heap<O>,
    mut root: Handle<Branch>,
    key: u32,
    inserted: &mut u64,
) -> Result<Handle<Branch>, OutOfMemory> {
    if heap.word(heap.at(&root), Branch::count()) == KEYS {
        let above = node(heap, false)?;
        heap.set_element(children(heap, heap.at(&above)), 0, Some(heap.at(&root)));
        split(heap, &above, 0)?;
        root = above;
    }
    let mut here = root.clone();
    loop {
        let (at, found) = place(heap, heap.at(&here), key);
        if found {
            return Ok(root);
        }
        if heap.word(heap.at(&here), Branch::leaf()) == 1 {
            let node = heap.at(&here);
            shift_keys(heap, node, at);
            heap.set_datum(keys(heap, node), at, key);
            *inserted += 1;
            return Ok(root);
        }
        let child =
            heap.element(children(heap, heap.at(&here)), at).expect("an inner node has a child there");
        if heap.word(child, Branch::count()) == KEYS {
            split(heap, &here, at)?;
            // The key that went up may be the one, or send it to the other half.
            continue;
        }
        here = heap.hold(child);
    }
}

/// Makes room for a key at `at`.
fn shift_keys<O: Observer>(heap: &Heap<O>, node: Ref<'_, Branch>, at: u32) {
    let (count, keys) = (heap.word(node, Branch::count()), keys(heap, node));
    for index in (at..count).rev() {
        heap.set_datum(keys, index + 1, heap.datum(keys, index));
    }
    heap.set_word(node, Branch::count(), count + 1);
}

/// Splits the full child `at` of `parent`, which is not full.
fn split<O: Observer>(heap: &mut Heap<O>, parent: &Handle<Branch>, at: u32) -> Result<(), OutOfMemory> {
    let child =
        |heap: &Heap<O>| heap.element(children(heap, heap.at(parent)), at).map(|child| heap.hold(child));
    let full = child(heap).expect("the child to be split is there");
    let leaf = heap.word(heap.at(&full), Branch::leaf()) == 1;
    let half = node(heap, leaf)?;
    let (parent, full, half) = (heap.at(parent), heap.at(&full), heap.at(&half));
    for index in MIDDLE + 1..KEYS {
        heap.set_datum(keys(heap, half), index - MIDDLE - 1, heap.datum(keys(heap, full), index));
    }
    if !leaf {
        let (from, to) = (children(heap, full), children(heap, half));
        for index in MIDDLE + 1..=KEYS {
            heap.set_element(to, index - MIDDLE - 1, heap.element(from, index));
            heap.set_element(from, index, None);
        }
    }
    heap.set_word(full, Branch::count(), MIDDLE);
    heap.set_word(half, Branch::count(), KEYS - MIDDLE - 1);
    let count = heap.word(parent, Branch::count());
    shift_keys(heap, parent, at);
    heap.set_datum(keys(heap, parent), at, heap.datum(keys(heap, full), MIDDLE));
    let siblings = children(heap, parent);
    for index in (at + 1..=count).rev() {
        heap.set_element(siblings, index + 1, heap.element(siblings, index));
    }
    heap.set_element(siblings, at + 1, Some(half));
    Ok(())
}
