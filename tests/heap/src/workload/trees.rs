//! Binary trees, after Boehm's GCBench: a search tree that lives long and changes, and many small trees that die young.

use super::classes::Tree;
use super::{SEED, mix};
use crate::access::Ref;
use crate::heap::{Heap, OutOfMemory};
use crate::observe::Observer;
use crate::roots::Handle;

/// Depth of the small trees.
const DEPTH: u32 = 7;

pub(super) fn run<O: Observer>(heap: &mut Heap<O>, nodes: u32) -> Result<u64, OutOfMemory> {
    let random = &mut fastrand::Rng::with_seed(SEED);
    let root = node(heap, u32::MAX / 2)?;
    for _ in 0..nodes {
        insert(heap, &root, random.u32(..))?;
        heap.safe_point();
    }
    let mut sum = SEED;
    for _ in 0..nodes / 30 {
        let small = complete(heap, DEPTH)?;
        sum = mix(sum, u64::from(count(heap, heap.at(&small))));
        for _ in 0..100 {
            sum = mix(sum, u64::from(depth(heap, heap.at(&root), random.u32(..))));
        }
        heap.safe_point();
    }
    Ok(mix(sum, u64::from(count(heap, heap.at(&root)))))
}

fn node<O: Observer>(heap: &mut Heap<O>, value: u32) -> Result<Handle<Tree>, OutOfMemory> {
    let node = heap.allocate::<Tree>()?;
    heap.set_word(heap.at(&node), Tree::value(), value);
    Ok(node)
}

/// The side on which a value belongs.
fn side<'h, O: Observer>(
    heap: &'h Heap<O>,
    tree: Ref<'h, Tree>,
    value: u32,
) -> (bool, Option<Ref<'h, Tree>>) {
    let is_left = value < heap.word(tree, Tree::value());
    (is_left, heap.get(tree, if is_left { Tree::left() } else { Tree::right() }))
}

fn insert<O: Observer>(heap: &mut Heap<O>, root: &Handle<Tree>, value: u32) -> Result<(), OutOfMemory> {
    let new = node(heap, value)?;
    let mut tree = heap.at(root);
    while let (_, Some(child)) = side(heap, tree, value) {
        tree = child;
    }
    let (is_left, _) = side(heap, tree, value);
    heap.set(tree, if is_left { Tree::left() } else { Tree::right() }, Some(heap.at(&new)));
    Ok(())
}

/// How many nodes are on the way to where a value is or would be.
fn depth<O: Observer>(heap: &Heap<O>, root: Ref<'_, Tree>, value: u32) -> u32 {
    let mut tree = Some(root);
    let mut depth = 0;
    while let Some(here) = tree {
        depth += 1;
        tree = side(heap, here, value).1;
    }
    depth
}

/// A tree with all nodes down to a depth.
fn complete<O: Observer>(heap: &mut Heap<O>, depth: u32) -> Result<Handle<Tree>, OutOfMemory> {
    let tree = node(heap, depth)?;
    if depth > 0 {
        let left = complete(heap, depth - 1)?;
        heap.set(heap.at(&tree), Tree::left(), Some(heap.at(&left)));
        let right = complete(heap, depth - 1)?;
        heap.set(heap.at(&tree), Tree::right(), Some(heap.at(&right)));
    }
    Ok(tree)
}

/// How many nodes a tree has; a random one is no deeper than some dozens.
fn count<O: Observer>(heap: &Heap<O>, tree: Ref<'_, Tree>) -> u32 {
    let below = |side: Option<Ref<'_, Tree>>| side.map_or(0, |tree| count(heap, tree));
    1 + below(heap.get(tree, Tree::left())) + below(heap.get(tree, Tree::right()))
}
