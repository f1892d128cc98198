//! The heap on libgc: the same checksums, random object graphs against the model, more references than its mark stack holds, and
//! a full heap.
//!
//! libgc is one for a process, so that each check is a process of its own: this program again. `HPM_LIBGC` says where libgc is;
//! without it only what needs none is checked. `suite fast` fetches it and sets that.

mod graph;

use std::cell::Cell;
use std::process::Command;

use graph::{Blob, LIMIT, Leaf, Node, Nodes, Test, fill, step};
use heap::workload::{TYPES, Workload};
use heap::{Collector, Config, Heap, NoHeap};
use proptest::test_runner::{Config as Cases, TestRunner};

/// Says which library is checked.
const LIBRARY: &str = "HPM_LIBGC";
/// Says which check a process is to run.
const CHECK: &str = "HPM_LIBGC_CHECK";

/// A check, by its name.
type Check = (&'static str, fn(&'static str));

const CHECKS: [Check; 5] = [
    ("every_workload_computes_the_same", workloads),
    ("graphs_survive_any_sequence_of_collections", graphs),
    ("more_references_than_the_mark_stack_holds", many_references),
    ("a_full_heap_says_so_and_goes_on", full),
    ("a_process_has_one", one),
];

fn main() {
    let library = std::env::var(LIBRARY).ok();
    if let Some((check, library)) = std::env::var(CHECK).ok().zip(library.clone()) {
        let (_, run) =
            CHECKS.into_iter().find(|(name, _)| *name == check).expect("the check is one of these");
        return run(library.leak());
    }
    not_there();
    println!("test what_is_not_there_is_said ... ok");
    not_alone();
    println!("test other_threads_are_refused ... ok");
    if library.is_none() {
        println!("{LIBRARY} names no libgc: {} checks of it are not run", CHECKS.len());
        return;
    }
    let here = std::env::current_exe().unwrap();
    for (name, _) in CHECKS {
        let status = Command::new(&here).env(CHECK, name).status().unwrap();
        assert!(status.success(), "{name}: {status}");
        println!("test {name} ... ok");
    }
}

fn heap(library: &'static str, limit_bytes: u32, types: &'static [&'static heap::layout::Shape]) -> Heap {
    Heap::new(Config { collector: Collector::Libgc(library), limit_bytes }, types, ()).unwrap()
}

fn error(library: &'static str) -> String {
    let config = Config { collector: Collector::Libgc(library), limit_bytes: 1 << 20 };
    match Heap::<()>::new(config, TYPES, ()) {
        Err(error @ NoHeap::Libgc(_)) => format!("{:#}", anyhow::Error::from(error)),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("there is a heap"),
    }
}

fn not_there() {
    let said = error("/nowhere/libgc.so.1");
    assert!(said.contains("/nowhere/libgc.so.1") && said.contains("package libgc1"), "{said}");
    let said = error("libc.so.6");
    assert!(said.contains("GC_get_version"), "{said}");
}

fn not_alone() {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || stopped.recv());
    let said = error(Collector::LIBGC);
    assert!(said.contains("one thread"), "{said}");
    stop.send(()).unwrap();
    other.join().unwrap().unwrap();
}

/// What libgc may keep of a heap in which nothing is reachable: its own tables, earlier mark stacks, and the object that some word
/// of its own stack frames seems to refer to: of graphs a small one, of matrix 800 KB.
const KEPT_BYTES: u32 = 256 << 10;

fn workloads(library: &'static str) {
    const SCALE: u32 = 10;
    // More than the others have: large objects of one workload need one piece of what others have left.
    let mut heap = heap(library, 4 << 20, TYPES);
    for workload in Workload::ALL {
        let config = Config { collector: Collector::MarkSweep, limit_bytes: 2 << 20 };
        let mut own: Heap = Heap::new(config, TYPES, ()).unwrap();
        let expected = workload.run(&mut own, SCALE).unwrap();
        let before = heap.statistics().allocated_bytes;
        for _ in 0..3 {
            assert_eq!(workload.run(&mut heap, SCALE).unwrap(), expected, "{workload:?}");
            heap.verify().unwrap();
        }
        let allocated = heap.statistics().allocated_bytes - before;
        assert_eq!(allocated, 3 * own.statistics().allocated_bytes, "{workload:?}");
        heap.collect_all();
        let most = KEPT_BYTES + if workload == Workload::Matrix { 800_000 } else { 0 };
        assert!(heap.used_bytes() < most, "{workload:?} leaves {} bytes", heap.used_bytes());
    }
    let done = heap.statistics();
    assert!(done.full_collections > 8 && done.nursery_collections == 0, "{done:?}");
}

fn graphs(library: &'static str) {
    let heap = Cell::new(Some(heap(library, LIMIT, graph::TYPES)));
    let cases = Cases { failure_persistence: None, max_shrink_iters: 0, ..Cases::default() };
    let steps = proptest::collection::vec(step(), 1..300);
    let done = TestRunner::new(cases).run(&steps, |steps| {
        let done = Test::on(heap.take().expect("the case before this one held")).run(&steps);
        assert!(done.used_bytes() < KEPT_BYTES, "{} bytes are left", done.used_bytes());
        heap.set(Some(done));
        Ok(())
    });
    done.unwrap();
}

/// An array of as many objects as the mark stack cannot hold, each with another; and a list as long.
fn many_references(library: &'static str) {
    const OBJECTS: u32 = 100_000;
    let mut heap = heap(library, 16 << 20, graph::TYPES);
    let array = heap.allocate_references::<Nodes>(OBJECTS).unwrap();
    let mut last = None;
    for id in 0..OBJECTS {
        let leaf = heap.allocate::<Leaf>().unwrap();
        heap.set_word(heap.at(&leaf), Leaf::id(), id);
        let node = heap.allocate::<Node>().unwrap();
        heap.set(heap.at(&node), Node::leaf(), Some(heap.at(&leaf)));
        heap.set(heap.at(&node), Node::next(), last.as_ref().map(|last| heap.at(last)));
        // Each object of the second half is reached through the list only.
        if id < OBJECTS / 2 {
            heap.set_element(heap.at(&array), id, Some(heap.at(&node)));
        }
        last = Some(node);
    }
    let last = last.unwrap();
    for _ in 0..3 {
        heap.collect_all();
        // What was freed wrongly is taken, and overwritten.
        let taken: Vec<_> = (0..2_000).map(|_| heap.allocate_data::<Blob>(4).unwrap()).collect();
        for blob in &taken {
            (0..4).for_each(|at| heap.set_datum(heap.at(blob), at, u32::MAX));
        }
        assert_eq!(heap.verify().unwrap(), 2 * OBJECTS as usize + 1 + taken.len());
    }
    let mut node = Some(heap.at(&last));
    for id in (0..OBJECTS).rev() {
        let at = node.unwrap();
        assert_eq!(heap.word(heap.get(at, Node::leaf()).unwrap(), Leaf::id()), id);
        node = heap.get(at, Node::next());
    }
}

fn full(library: &'static str) {
    let mut heap = heap(library, 2 << 20, graph::TYPES);
    for _ in 0..3 {
        let mut kept = fill(&mut heap);
        assert!(kept.len() * 408 > 1_700_000, "{} objects fill it", kept.len());
        heap.verify().unwrap();
        kept.clear();
        heap.allocate_data::<Blob>(100).unwrap();
        // A large object, of which libgc has a piece only if what was free has become one again.
        heap.allocate_data::<Blob>(300_000).unwrap();
    }
}

fn one(library: &'static str) {
    drop(heap(library, 1 << 20, TYPES));
    let said = error(library);
    assert!(said.contains("start another process"), "{said}");
}
