//! Text is put together of words in buffers that grow, and taken apart again. Nearly everything dies in the nursery.

use super::classes::{Builder, Chars, Text, Texts};
use super::{SEED, mix, text};
use crate::heap::{Heap, OutOfMemory};
use crate::observe::Observer;
use crate::roots::Handle;

/// Words to choose from.
const WORDS: u32 = 2_000;
/// Sentences that are kept.
const KEPT: u32 = 500;

pub(super) fn run<O: Observer>(heap: &mut Heap<O>, sentences: u32) -> Result<u64, OutOfMemory> {
    let random = &mut fastrand::Rng::with_seed(SEED);
    let words = heap.allocate_references::<Texts>(WORDS)?;
    for at in 0..WORDS {
        let word = text::new(heap, &text::random(random, 2..10))?;
        heap.set_element(heap.at(&words), at, Some(heap.at(&word)));
    }
    let kept = heap.allocate_references::<Texts>(KEPT)?;
    let mut sum = SEED;
    for sentence in 0..sentences {
        let builder = heap.allocate::<Builder>()?;
        let chars = heap.allocate_data::<Chars>(16)?;
        heap.set(heap.at(&builder), Builder::chars(), Some(heap.at(&chars)));
        for _ in 0..random.u32(4..12) {
            let word = heap.element(heap.at(&words), random.u32(0..WORDS)).expect("every word is there");
            let word = heap.hold(word);
            append(heap, &builder, &word)?;
        }
        let built = finish(heap, &builder)?;
        sum = mix(sum, text::hash(heap, heap.at(&built)).into());
        heap.set_element(heap.at(&kept), sentence % KEPT, Some(heap.at(&built)));
        heap.safe_point();
    }
    Ok(sum)
}

/// Adds a word and a space.
fn append<O: Observer>(
    heap: &mut Heap<O>,
    builder: &Handle<Builder>,
    word: &Handle<Text>,
) -> Result<(), OutOfMemory> {
    let length = heap.word(heap.at(builder), Builder::length());
    let count = heap.word(heap.at(word), Text::count());
    let chars = heap.get(heap.at(builder), Builder::chars()).expect("a builder has room");
    if length + count + 1 > heap.length(chars) {
        let (old, wanted) = (heap.hold(chars), (length + count + 1).next_power_of_two());
        let new = heap.allocate_data::<Chars>(wanted)?;
        for at in 0..length {
            heap.set_datum(heap.at(&new), at, heap.datum(heap.at(&old), at));
        }
        heap.set(heap.at(builder), Builder::chars(), Some(heap.at(&new)));
    }
    let chars = heap.get(heap.at(builder), Builder::chars()).expect("a builder has room");
    let from = heap.get(heap.at(word), Text::value()).expect("a word has letters");
    for at in 0..count {
        heap.set_datum(chars, length + at, heap.datum(from, at));
    }
    heap.set_datum(chars, length + count, u16::from(b' '));
    heap.set_word(heap.at(builder), Builder::length(), length + count + 1);
    Ok(())
}

/// A string of what was built.
fn finish<O: Observer>(heap: &mut Heap<O>, builder: &Handle<Builder>) -> Result<Handle<Text>, OutOfMemory> {
    let length = heap.word(heap.at(builder), Builder::length());
    let text = heap.allocate::<Text>()?;
    let value = heap.allocate_data::<Chars>(length)?;
    let (object, value) = (heap.at(&text), heap.at(&value));
    let chars = heap.get(heap.at(builder), Builder::chars()).expect("a builder has room");
    for at in 0..length {
        heap.set_datum(value, at, heap.datum(chars, at));
    }
    heap.set(object, Text::value(), Some(value));
    heap.set_word(object, Text::count(), length);
    Ok(text)
}
