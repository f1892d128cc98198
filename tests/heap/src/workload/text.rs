//! Strings of the heap.

use std::cmp::Ordering;

use super::classes::{Chars, Text};
use crate::access::Ref;
use crate::heap::{Heap, OutOfMemory};
use crate::observe::Observer;
use crate::roots::Handle;

/// A string of these code units.
pub(super) fn new<O: Observer>(heap: &mut Heap<O>, units: &[u16]) -> Result<Handle<Text>, OutOfMemory> {
    let text = heap.allocate::<Text>()?;
    let chars = heap.allocate_data::<Chars>(units.len() as u32)?;
    let (object, value) = (heap.at(&text), heap.at(&chars));
    for (index, unit) in (0..).zip(units) {
        heap.set_datum(value, index, *unit);
    }
    heap.set(object, Text::value(), Some(value));
    heap.set_word(object, Text::count(), units.len() as u32);
    Ok(text)
}

/// A string of some code units of another one.
pub(super) fn part<O: Observer>(
    heap: &mut Heap<O>,
    of: &Handle<Text>,
    range: std::ops::Range<u32>,
) -> Result<Handle<Text>, OutOfMemory> {
    let text = heap.allocate::<Text>()?;
    let chars = heap.allocate_data::<Chars>(range.len() as u32)?;
    let (object, value) = (heap.at(&text), heap.at(&chars));
    let from = heap.get(heap.at(of), Text::value()).expect("a string has characters");
    for (to, at) in range.clone().enumerate() {
        heap.set_datum(value, to as u32, heap.datum(from, at));
    }
    heap.set(object, Text::value(), Some(value));
    heap.set_word(object, Text::count(), range.len() as u32);
    Ok(text)
}

/// A copy of the string that `which` says.
pub(super) fn copy<O: Observer>(
    heap: &mut Heap<O>,
    which: impl FnOnce(&Heap<O>) -> Ref<'_, Text>,
) -> Result<Handle<Text>, OutOfMemory> {
    let original = heap.hold(which(heap));
    let count = heap.word(heap.at(&original), Text::count());
    part(heap, &original, 0..count)
}

/// Letters and digits, of a random length between the two.
pub(super) fn random(random: &mut fastrand::Rng, lengths: std::ops::Range<usize>) -> Vec<u16> {
    (0..random.usize(lengths)).map(|_| random.alphanumeric() as u16).collect()
}

/// The order of two strings, found as Java's `compareTo` does.
#[inline]
pub(super) fn compare<O: Observer>(heap: &Heap<O>, one: Ref<'_, Text>, other: Ref<'_, Text>) -> Ordering {
    let (length, other_length) = (heap.word(one, Text::count()), heap.word(other, Text::count()));
    let (Some(chars), Some(other_chars)) = (heap.get(one, Text::value()), heap.get(other, Text::value()))
    else {
        return length.cmp(&other_length);
    };
    for index in 0..length.min(other_length) {
        let order = heap.datum(chars, index).cmp(&heap.datum(other_chars, index));
        if order != Ordering::Equal {
            return order;
        }
    }
    length.cmp(&other_length)
}

/// The string's hash, which it keeps.
#[inline]
pub(super) fn hash<O: Observer>(heap: &Heap<O>, text: Ref<'_, Text>) -> u32 {
    let kept = heap.word(text, Text::hash());
    if kept != 0 {
        return kept;
    }
    let Some(chars) = heap.get(text, Text::value()) else { return 0 };
    let count = heap.word(text, Text::count());
    let hash =
        (0..count).fold(0_u32, |hash, at| hash.wrapping_mul(31).wrapping_add(heap.datum(chars, at).into()));
    heap.set_word(text, Text::hash(), hash);
    hash
}
