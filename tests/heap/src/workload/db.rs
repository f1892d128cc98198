//! A database in memory, as SPECjvm98's db is: records are read, sorted by one field or another with a shell sort, looked up,
//! removed and added. Nearly all the time goes into comparing strings at the end of long paths of references.

use std::cmp::Ordering;

use super::classes::{Database, Entries, Entry, Text, Texts, Vector};
use super::{SEED, mix, text};
use crate::access::Ref;
use crate::heap::{Heap, OutOfMemory};
use crate::observe::Observer;
use crate::roots::Handle;

/// Strings of a record.
const FIELDS: u32 = 7;
/// What Java's Vector has room for at first.
const VECTOR: u32 = 10;
/// How often the database is sorted, by one field after the other, and changed.
const ROUNDS: u32 = 4;
/// Insertions between two safe points.
const SAFE_POINT_EACH: u32 = 32;

pub(super) fn run<O: Observer>(heap: &mut Heap<O>, entries: u32) -> Result<u64, OutOfMemory> {
    let random = &mut fastrand::Rng::with_seed(SEED);
    let database = heap.allocate::<Database>()?;
    let index = heap.allocate_references::<Entries>(entries)?;
    heap.set(heap.at(&database), Database::index(), Some(heap.at(&index)));
    heap.set_word(heap.at(&database), Database::count(), entries);
    for at in 0..entries {
        let entry = entry(heap, random)?;
        heap.set_element(heap.at(&index), at, Some(heap.at(&entry)));
        heap.safe_point();
    }
    let mut sum = SEED;
    for round in 0..ROUNDS {
        sort(heap, &index, entries, round % FIELDS);
        sum = mix(sum, checksum(heap, &index, entries));
        for _ in 0..entries / 8 {
            let wanted = heap.hold(item(heap, heap.at(&index), random.u32(0..entries), round % FIELDS));
            sum = mix(sum, u64::from(find(heap, &index, entries, &wanted, round % FIELDS)));
        }
        // A tenth of the records is removed, and as many are added.
        for _ in 0..entries / 10 {
            let entry = entry(heap, random)?;
            heap.set_element(heap.at(&index), random.u32(0..entries), Some(heap.at(&entry)));
        }
    }
    Ok(sum)
}

/// A record of random strings.
fn entry<O: Observer>(heap: &mut Heap<O>, random: &mut fastrand::Rng) -> Result<Handle<Entry>, OutOfMemory> {
    let entry = heap.allocate::<Entry>()?;
    let vector = heap.allocate::<Vector>()?;
    let data = heap.allocate_references::<Texts>(VECTOR)?;
    heap.set(heap.at(&entry), Entry::items(), Some(heap.at(&vector)));
    heap.set(heap.at(&vector), Vector::element_data(), Some(heap.at(&data)));
    for field in 0..FIELDS {
        let text = text::new(heap, &text::random(random, 6..16))?;
        heap.set_element(heap.at(&data), field, Some(heap.at(&text)));
        heap.set_word(heap.at(&vector), Vector::count(), field + 1);
    }
    Ok(entry)
}

/// `index[at].items.elementAt(field)`.
#[inline]
fn item<'h, O: Observer>(heap: &'h Heap<O>, index: Ref<'h, Entries>, at: u32, field: u32) -> Ref<'h, Text> {
    let entry = heap.element(index, at).expect("the index is full");
    item_of(heap, entry, field)
}

#[inline]
fn item_of<'h, O: Observer>(heap: &'h Heap<O>, entry: Ref<'h, Entry>, field: u32) -> Ref<'h, Text> {
    let vector = heap.get(entry, Entry::items()).expect("an entry has items");
    assert!(field < heap.word(vector, Vector::count()), "elementAt checks its index");
    let data = heap.get(vector, Vector::element_data()).expect("a vector has elements");
    heap.element(data, field).expect("every field is set")
}

/// Shell sort.
fn sort<O: Observer>(heap: &mut Heap<O>, index: &Handle<Entries>, entries: u32, field: u32) {
    let mut gap = entries / 2;
    while gap > 0 {
        for at in gap..entries {
            insert(heap, heap.at(index), at, gap, field);
            if at % SAFE_POINT_EACH == 0 {
                heap.safe_point();
            }
        }
        gap /= 2;
    }
}

/// Moves one entry to its place among those that are multiples of `gap` before it.
fn insert<O: Observer>(heap: &Heap<O>, index: Ref<'_, Entries>, at: u32, gap: u32, field: u32) {
    let entry = heap.element(index, at).expect("the index is full");
    let mut to = at;
    while to >= gap
        && text::compare(heap, item(heap, index, to - gap, field), item_of(heap, entry, field))
            == Ordering::Greater
    {
        heap.set_element(index, to, heap.element(index, to - gap));
        to -= gap;
    }
    heap.set_element(index, to, Some(entry));
}

/// The place of a string among the sorted ones.
fn find<O: Observer>(
    heap: &mut Heap<O>,
    index: &Handle<Entries>,
    entries: u32,
    wanted: &Handle<Text>,
    field: u32,
) -> u32 {
    let (mut low, mut high) = (0, entries);
    while low < high {
        let middle = (low + high) / 2;
        match text::compare(heap, item(heap, heap.at(index), middle, field), heap.at(wanted)) {
            Ordering::Less => low = middle + 1,
            _ => high = middle,
        }
    }
    heap.safe_point();
    low
}

/// Of the order of the entries, by what they contain.
fn checksum<O: Observer>(heap: &Heap<O>, index: &Handle<Entries>, entries: u32) -> u64 {
    let index = heap.at(index);
    (0..entries).fold(SEED, |sum, at| mix(sum, text::hash(heap, item(heap, index, at, 0)).into()))
}
