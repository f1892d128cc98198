//! Breadth-first searches through a random graph whose edges change between them.

use super::classes::{Vertex, Vertices};
use super::{SEED, mix};
use crate::heap::{Heap, OutOfMemory};
use crate::observe::Observer;
use crate::roots::Handle;

/// Searches.
const SEARCHES: u32 = 12;

pub(super) fn run<O: Observer>(heap: &mut Heap<O>, vertices: u32) -> Result<u64, OutOfMemory> {
    let random = &mut fastrand::Rng::with_seed(SEED);
    let all = heap.allocate_references::<Vertices>(vertices)?;
    for id in 0..vertices {
        let vertex = heap.allocate::<Vertex>()?;
        heap.set_word(heap.at(&vertex), Vertex::id(), id);
        heap.set_element(heap.at(&all), id, Some(heap.at(&vertex)));
    }
    for at in 0..vertices {
        connect(heap, random, &all, at)?;
        heap.safe_point();
    }
    let queue = heap.allocate_references::<Vertices>(vertices)?;
    let mut sum = SEED;
    for search in 1..=SEARCHES {
        sum = mix(sum, u64::from(reach(heap, &all, &queue, random.u32(0..vertices), search)));
        for _ in 0..vertices / 20 {
            let at = random.u32(0..vertices);
            connect(heap, random, &all, at)?;
        }
    }
    Ok((0..vertices).fold(sum, |sum, at| {
        let vertex = heap.element(heap.at(&all), at).expect("every vertex is there");
        mix(sum, heap.word(vertex, Vertex::distance()).into())
    }))
}

/// Gives a vertex new edges, to three to eight others.
fn connect<O: Observer>(
    heap: &mut Heap<O>,
    random: &mut fastrand::Rng,
    all: &Handle<Vertices>,
    at: u32,
) -> Result<(), OutOfMemory> {
    let edges = heap.allocate_references::<Vertices>(random.u32(3..9))?;
    let (all, edges) = (heap.at(all), heap.at(&edges));
    for edge in 0..heap.length(edges) {
        heap.set_element(edges, edge, heap.element(all, random.u32(0..heap.length(all))));
    }
    let vertex = heap.element(all, at).expect("every vertex is there");
    heap.set(vertex, Vertex::edges(), Some(edges));
    Ok(())
}

/// How many vertices can be reached from one.
fn reach<O: Observer>(
    heap: &mut Heap<O>,
    all: &Handle<Vertices>,
    queue: &Handle<Vertices>,
    from: u32,
    search: u32,
) -> u32 {
    let first = heap.element(heap.at(all), from).expect("every vertex is there");
    heap.set_word(first, Vertex::seen(), search);
    heap.set_word(first, Vertex::distance(), 0);
    heap.set_element(heap.at(queue), 0, Some(first));
    let (mut taken, mut found) = (0, 1);
    while taken < found {
        let line = heap.at(queue);
        let vertex = heap.element(line, taken).expect("the queue has it");
        taken += 1;
        let distance = heap.word(vertex, Vertex::distance()) + 1;
        let edges = heap.get(vertex, Vertex::edges()).expect("a vertex has edges");
        for edge in 0..heap.length(edges) {
            let next = heap.element(edges, edge).expect("an edge leads somewhere");
            if heap.word(next, Vertex::seen()) != search {
                heap.set_word(next, Vertex::seen(), search);
                heap.set_word(next, Vertex::distance(), distance);
                heap.set_element(line, found, Some(next));
                found += 1;
            }
        }
        if taken % 32 == 0 {
            heap.safe_point();
        }
    }
    found
}
