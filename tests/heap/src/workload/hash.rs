//! A hash table with chains: strings to boxed numbers, which are replaced all the time.

use std::cmp::Ordering;

use super::classes::{Boxed, Slot, Slots, Table, Text};
use super::{SEED, mix, text};
use crate::access::Ref;
use crate::heap::{Heap, OutOfMemory};
use crate::observe::Observer;
use crate::roots::Handle;

pub(super) fn run<O: Observer>(heap: &mut Heap<O>, keys: u32) -> Result<u64, OutOfMemory> {
    let random = &mut fastrand::Rng::with_seed(SEED);
    let table = heap.allocate::<Table>()?;
    let buckets = heap.allocate_references::<Slots>(keys)?;
    heap.set(heap.at(&table), Table::buckets(), Some(heap.at(&buckets)));
    let names: Vec<Vec<u16>> = (0..keys).map(|_| text::random(random, 8..20)).collect();
    for (number, name) in (0..).zip(&names) {
        put(heap, &table, name, number)?;
    }
    let mut sum = SEED;
    for _ in 0..keys * 10 {
        let name = &names[random.usize(0..names.len())];
        let key = text::new(heap, name)?;
        match random.u32(0..10) {
            0 => put(heap, &table, name, random.u32(..))?,
            _ => {
                let slot = find(heap, heap.at(&table), heap.at(&key));
                let value = slot.and_then(|slot| heap.get(slot, Slot::value()));
                sum = mix(sum, value.map_or(1, |value| heap.word(value, Boxed::number()).into()));
            }
        }
        heap.safe_point();
    }
    Ok(mix(sum, heap.word(heap.at(&table), Table::count()).into()))
}

/// The slot with this key.
fn find<'h, O: Observer>(
    heap: &'h Heap<O>,
    table: Ref<'h, Table>,
    key: Ref<'h, Text>,
) -> Option<Ref<'h, Slot>> {
    let buckets = heap.get(table, Table::buckets())?;
    let hash = text::hash(heap, key);
    let mut slot = heap.element(buckets, hash % heap.length(buckets));
    while let Some(here) = slot {
        if heap.word(here, Slot::hash()) == hash
            && let Some(other) = heap.get(here, Slot::key())
            && text::compare(heap, other, key) == Ordering::Equal
        {
            break;
        }
        slot = heap.get(here, Slot::next());
    }
    slot
}

/// Sets the value of a key; a new slot is the first one of its chain.
fn put<O: Observer>(
    heap: &mut Heap<O>,
    table: &Handle<Table>,
    name: &[u16],
    number: u32,
) -> Result<(), OutOfMemory> {
    let value = heap.allocate::<Boxed>()?;
    heap.set_word(heap.at(&value), Boxed::number(), number);
    let key = text::new(heap, name)?;
    if let Some(slot) = find(heap, heap.at(table), heap.at(&key)) {
        heap.set(slot, Slot::value(), Some(heap.at(&value)));
        return Ok(());
    }
    let slot = heap.allocate::<Slot>()?;
    let (table, slot, key) = (heap.at(table), heap.at(&slot), heap.at(&key));
    let hash = text::hash(heap, key);
    let buckets = heap.get(table, Table::buckets()).expect("a table has buckets");
    let bucket = hash % heap.length(buckets);
    heap.set(slot, Slot::key(), Some(key));
    heap.set(slot, Slot::value(), Some(heap.at(&value)));
    heap.set_word(slot, Slot::hash(), hash);
    heap.set(slot, Slot::next(), heap.element(buckets, bucket));
    heap.set_element(buckets, bucket, Some(slot));
    heap.set_word(table, Table::count(), heap.word(table, Table::count()) + 1);
    Ok(())
}
