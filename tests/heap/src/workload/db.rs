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
const ROUNDS: u32 = 7;
/// Insertions between two safe points.
const SAFE_POINT_EACH: u32 = 32;

pub(super) fn run<O: Observer>(heap: &mut Heap<O>, entries: u32) -> Result<u64, OutOfMemory> {
    let random = &mut fastrand::Rng::with_seed(SEED);
    let database = heap.allocate::<Database>()?;
    let index = heap.allocate_references::<Entries>(entries)?;
    heap.set(heap.at(&database), Database::index(), Some(heap.at(&index)));
    heap.set_word(heap.at(&database), Database::count(), entries);
    for at in 0..entries {
        add(heap, random, &database, at)?;
    }
    let mut sum = SEED;
    for field in (0..ROUNDS).map(|round| round % FIELDS) {
        sort(heap, &database, field);
        sum = mix(sum, checksum(heap, &database));
        for _ in 0..entries / 4 {
            let wanted =
                text::copy(heap, |heap| item(heap, heap.at(&database), random.u32(0..entries), field))?;
            sum = mix(sum, u64::from(find(heap, &database, &wanted, field)));
        }
        // A fifth of the records is removed, and as many are added.
        for _ in 0..entries / 5 {
            let at = random.u32(0..entries);
            add(heap, random, &database, at)?;
        }
    }
    Ok(sum)
}

/// Reads a record and puts it at a place of the index. Its line and the words that are cut out of it are garbage then, as they
/// are where Java reads a file.
fn add<O: Observer>(
    heap: &mut Heap<O>,
    random: &mut fastrand::Rng,
    database: &Handle<Database>,
    at: u32,
) -> Result<(), OutOfMemory> {
    let words: Vec<Vec<u16>> = (0..FIELDS).map(|_| text::random(random, 6..16)).collect();
    let line = text::new(heap, &words.join(&u16::from(b'|')))?;
    let entry = heap.allocate::<Entry>()?;
    let vector = heap.allocate::<Vector>()?;
    let data = heap.allocate_references::<Texts>(VECTOR)?;
    heap.set(heap.at(&entry), Entry::items(), Some(heap.at(&vector)));
    heap.set(heap.at(&vector), Vector::element_data(), Some(heap.at(&data)));
    let mut from = 0;
    for field in 0..FIELDS {
        let to = from + words[field as usize].len() as u32;
        let word = text::part(heap, &line, from..to)?;
        let text = text::copy(heap, |heap| heap.at(&word))?;
        heap.set_element(heap.at(&data), field, Some(heap.at(&text)));
        heap.set_word(heap.at(&vector), Vector::count(), field + 1);
        from = to + 1;
    }
    heap.set_element(index(heap, heap.at(database)), at, Some(heap.at(&entry)));
    heap.safe_point();
    Ok(())
}

fn index<'h, O: Observer>(heap: &'h Heap<O>, database: Ref<'h, Database>) -> Ref<'h, Entries> {
    heap.get(database, Database::index()).expect("a database has an index")
}

/// `database.index[at].items.elementAt(field)`.
#[inline]
fn item<'h, O: Observer>(
    heap: &'h Heap<O>,
    database: Ref<'h, Database>,
    at: u32,
    field: u32,
) -> Ref<'h, Text> {
    let entry = heap.element(index(heap, database), at).expect("the index is full");
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
fn sort<O: Observer>(heap: &mut Heap<O>, database: &Handle<Database>, field: u32) {
    let entries = heap.word(heap.at(database), Database::count());
    let mut gap = entries / 2;
    while gap > 0 {
        for at in gap..entries {
            insert(heap, heap.at(database), at, gap, field);
            if at % SAFE_POINT_EACH == 0 {
                heap.safe_point();
            }
        }
        gap /= 2;
    }
}

/// Moves one entry to its place among those that are multiples of `gap` before it.
fn insert<O: Observer>(heap: &Heap<O>, database: Ref<'_, Database>, at: u32, gap: u32, field: u32) {
    let index = index(heap, database);
    let entry = heap.element(index, at).expect("the index is full");
    let mut to = at;
    while to >= gap
        && text::compare(heap, item(heap, database, to - gap, field), item_of(heap, entry, field))
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
    database: &Handle<Database>,
    wanted: &Handle<Text>,
    field: u32,
) -> u32 {
    let (mut low, mut high) = (0, heap.word(heap.at(database), Database::count()));
    while low < high {
        let middle = (low + high) / 2;
        match text::compare(heap, item(heap, heap.at(database), middle, field), heap.at(wanted)) {
            Ordering::Less => low = middle + 1,
            _ => high = middle,
        }
    }
    heap.safe_point();
    low
}

/// Of the order of the entries, by what they contain.
fn checksum<O: Observer>(heap: &Heap<O>, database: &Handle<Database>) -> u64 {
    let database = heap.at(database);
    let entries = heap.word(database, Database::count());
    (0..entries).fold(SEED, |sum, at| mix(sum, text::hash(heap, item(heap, database, at, 0)).into()))
}
