//! Breadth-first searches through a random graph whose edges change between them.

use super::classes::{Link, Vertex, Vertices};
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
    let mut sum = SEED;
    for search in 1..=SEARCHES {
        sum = mix(sum, u64::from(reach(heap, &all, random.u32(0..vertices), search)?));
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
    from: u32,
    search: u32,
) -> Result<u32, OutOfMemory> {
    let first = heap.element(heap.at(all), from).expect("every vertex is there");
    heap.set_word(first, Vertex::seen(), search);
    heap.set_word(first, Vertex::distance(), 0);
    let first = heap.hold(first);
    let mut head = link(heap, &first)?;
    let mut last = head.clone();
    let mut found = 1;
    loop {
        let vertex = heap.get(heap.at(&head), Link::vertex()).expect("a link has a vertex");
        let distance = heap.word(vertex, Vertex::distance()) + 1;
        let edges = heap.hold(heap.get(vertex, Vertex::edges()).expect("a vertex has edges"));
        for edge in 0..heap.length(heap.at(&edges)) {
            let next = heap.element(heap.at(&edges), edge).expect("an edge leads somewhere");
            if heap.word(next, Vertex::seen()) != search {
                heap.set_word(next, Vertex::seen(), search);
                heap.set_word(next, Vertex::distance(), distance);
                let next = heap.hold(next);
                let new = link(heap, &next)?;
                heap.set(heap.at(&last), Link::next(), Some(heap.at(&new)));
                last = new;
                found += 1;
            }
        }
        let Some(next) = heap.get(heap.at(&head), Link::next()) else { return Ok(found) };
        head = heap.hold(next);
        heap.safe_point();
    }
}

/// A link of the queue, the last one.
fn link<O: Observer>(heap: &mut Heap<O>, vertex: &Handle<Vertex>) -> Result<Handle<Link>, OutOfMemory> {
    let link = heap.allocate::<Link>()?;
    heap.set(heap.at(&link), Link::vertex(), Some(heap.at(vertex)));
    Ok(link)
}
