//! Every workload computes the same whatever collects, and whatever is allocated together.

use heap::layout::FieldId;
use heap::workload::{TYPES, Workload};
use heap::{Advice, Collector, Config, Heap};

/// Objects in percent: small enough for a test, large enough that heaps fill.
const SCALE: u32 = 10;
const LIMIT_BYTES: u32 = 2 << 20;

fn checksum(workload: Workload, collector: Collector, advice: Advice) -> (u64, heap::Statistics) {
    let mut heap: Heap = Heap::new(Config { collector, limit_bytes: LIMIT_BYTES }, TYPES, ()).unwrap();
    heap.advise(advice);
    let sum = workload.run(&mut heap, SCALE).unwrap();
    assert_eq!(workload.run(&mut heap, SCALE).unwrap(), sum, "{workload:?} leaves nothing behind");
    heap.verify().unwrap();
    let done = heap.statistics();
    heap.collect_all();
    assert_eq!(heap.used_bytes(), 0, "{workload:?} leaves nothing behind");
    (sum, done)
}

/// Advice for the first, or the last, field of every type.
fn everything(last: bool, gap: u32) -> Advice {
    let fields = (0..).zip(TYPES).filter_map(|(class, shape)| {
        let fields = shape.fields().len() as u16;
        Some(FieldId { class, field: if last { fields.checked_sub(1)? } else { 0 } })
    });
    fields.fold(Advice::none(), |advice, field| advice.with(field, gap))
}

#[test]
fn neither_collector_nor_advice_changes_what_a_program_computes() {
    let mut pairs = 0;
    for workload in Workload::ALL {
        let (sum, _) = checksum(workload, Collector::MarkSweep, Advice::none());
        assert_eq!(checksum(workload, Collector::Copying, Advice::none()).0, sum, "{workload:?}");
        for (last, gap) in [(false, 0), (true, 0), (false, 128)] {
            let (advised, done) = checksum(workload, Collector::MarkSweep, everything(last, gap));
            assert_eq!(advised, sum, "{workload:?} with advice for the last fields: {last}, gap {gap}");
            pairs += done.co_allocated_pairs;
        }
    }
    assert!(pairs > 1000, "{pairs} pairs");
}

#[test]
fn a_heap_that_is_too_small_is_an_error_and_no_panic() {
    let config = Config { collector: Collector::MarkSweep, limit_bytes: 512 << 10 };
    for workload in Workload::ALL {
        let mut heap: Heap = Heap::new(config, TYPES, ()).unwrap();
        if let Err(error) = workload.run(&mut heap, 200) {
            assert!(error.to_string().contains("give it a larger limit"), "{error}");
            heap.verify().unwrap();
        }
    }
}
