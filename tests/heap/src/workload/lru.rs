//! A cache that forgets what was used least recently: items are in the chains of a hash table and in a doubly linked list.

use std::cmp::Ordering;

use super::classes::{Cache, Item, Items, Payload, Text};
use super::{SEED, mix, text};
use crate::access::Ref;
use crate::heap::{Heap, OutOfMemory};
use crate::observe::Observer;
use crate::roots::Handle;

pub(super) fn run<O: Observer>(heap: &mut Heap<O>, capacity: u32) -> Result<u64, OutOfMemory> {
    let random = &mut fastrand::Rng::with_seed(SEED);
    let cache = heap.allocate::<Cache>()?;
    let table = heap.allocate_references::<Items>(capacity)?;
    heap.set(heap.at(&cache), Cache::table(), Some(heap.at(&table)));
    let names: Vec<Vec<u16>> = (0..capacity * 2).map(|_| text::random(random, 8..20)).collect();
    let mut sum = SEED;
    for _ in 0..capacity * 24 {
        // The smaller of two numbers: some keys are asked for more often than others.
        let name = random.usize(0..names.len()).min(random.usize(0..names.len()));
        let key = text::new(heap, &names[name])?;
        sum = mix(sum, u64::from(ask(heap, &cache, &key, capacity)?));
        heap.safe_point();
    }
    Ok(mix(sum, heap.word(heap.at(&cache), Cache::count()).into()))
}

/// What is cached for a key, which becomes the newest; it is made when it is not there.
fn ask<O: Observer>(
    heap: &mut Heap<O>,
    cache: &Handle<Cache>,
    key: &Handle<Text>,
    capacity: u32,
) -> Result<u32, OutOfMemory> {
    let hash = text::hash(heap, heap.at(key));
    if let Some(item) = find(heap, heap.at(cache), heap.at(key), hash) {
        unlink(heap, heap.at(cache), item);
        push(heap, heap.at(cache), item);
        let payload = heap.get(item, Item::payload()).expect("an item has a payload");
        heap.set_word(payload, Payload::second(), heap.word(payload, Payload::second()) + 1);
        return Ok(heap.word(payload, Payload::first()) ^ heap.word(payload, Payload::second()));
    }
    let payload = heap.allocate::<Payload>()?;
    heap.set_word(heap.at(&payload), Payload::first(), hash);
    let item = heap.allocate::<Item>()?;
    let (item, cache) = (heap.at(&item), heap.at(cache));
    heap.set(item, Item::key(), Some(heap.at(key)));
    heap.set(item, Item::payload(), Some(heap.at(&payload)));
    heap.set_word(item, Item::hash(), hash);
    let count = heap.word(cache, Cache::count());
    if count == capacity {
        forget_oldest(heap, cache);
    } else {
        heap.set_word(cache, Cache::count(), count + 1);
    }
    let table = heap.get(cache, Cache::table()).expect("a cache has a table");
    let bucket = hash % heap.length(table);
    heap.set(item, Item::chain(), heap.element(table, bucket));
    heap.set_element(table, bucket, Some(item));
    push(heap, cache, item);
    Ok(hash)
}

fn find<'h, O: Observer>(
    heap: &'h Heap<O>,
    cache: Ref<'h, Cache>,
    key: Ref<'h, Text>,
    hash: u32,
) -> Option<Ref<'h, Item>> {
    let table = heap.get(cache, Cache::table())?;
    let mut item = heap.element(table, hash % heap.length(table));
    while let Some(here) = item {
        if heap.word(here, Item::hash()) == hash
            && let Some(other) = heap.get(here, Item::key())
            && text::compare(heap, other, key) == Ordering::Equal
        {
            break;
        }
        item = heap.get(here, Item::chain());
    }
    item
}

/// Makes an item the newest of the list.
fn push<O: Observer>(heap: &Heap<O>, cache: Ref<'_, Cache>, item: Ref<'_, Item>) {
    let newest = heap.get(cache, Cache::newest());
    heap.set(item, Item::older(), newest);
    heap.set(item, Item::newer(), None);
    match newest {
        Some(newest) => heap.set(newest, Item::newer(), Some(item)),
        None => heap.set(cache, Cache::oldest(), Some(item)),
    }
    heap.set(cache, Cache::newest(), Some(item));
}

/// Takes an item out of the list.
fn unlink<O: Observer>(heap: &Heap<O>, cache: Ref<'_, Cache>, item: Ref<'_, Item>) {
    let (newer, older) = (heap.get(item, Item::newer()), heap.get(item, Item::older()));
    match newer {
        Some(newer) => heap.set(newer, Item::older(), older),
        None => heap.set(cache, Cache::newest(), older),
    }
    match older {
        Some(older) => heap.set(older, Item::newer(), newer),
        None => heap.set(cache, Cache::oldest(), newer),
    }
}

fn forget_oldest<O: Observer>(heap: &Heap<O>, cache: Ref<'_, Cache>) {
    let Some(oldest) = heap.get(cache, Cache::oldest()) else { return };
    unlink(heap, cache, oldest);
    let table = heap.get(cache, Cache::table()).expect("a cache has a table");
    let bucket = heap.word(oldest, Item::hash()) % heap.length(table);
    let after = heap.get(oldest, Item::chain());
    let mut before = heap.element(table, bucket).expect("the item is in its chain");
    if before == oldest {
        heap.set_element(table, bucket, after);
    } else {
        while let Some(next) = heap.get(before, Item::chain())
            && next != oldest
        {
            before = next;
        }
        heap.set(before, Item::chain(), after);
    }
    // Else what is forgotten, once it is mature, would keep all that was newer alive through collections of the nursery.
    for field in [Item::newer, Item::older, Item::chain] {
        heap.set(oldest, field(), None);
    }
}
