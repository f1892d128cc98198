//! What a program does with objects.
//!
//! A [`Ref`] is good until the next allocation or safe point: it borrows the heap, and these need the heap for themselves, so
//! that the compiler finds every reference that a collection would make stale. What is to live on is held by a [`Handle`].

use std::marker::PhantomData;

use crate::heap::Heap;
use crate::layout::{Class, DataArray, HEADER_BYTES, Object, Reference, ReferenceArray, WORD_BYTES, Word};
use crate::observe::{By, Observer, Origin};
use crate::raw::Plain;
use crate::roots::Handle;

/// A reference to an object, until the next allocation.
#[derive(Debug)]
pub struct Ref<'heap, T> {
    address: u32,
    /// The field that it was loaded from.
    origin: Origin,
    _heap: PhantomData<&'heap T>,
}

impl<T> Clone for Ref<'_, T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Ref<'_, T> {}

/// Two references are equal if they refer to the same object.
impl<T> PartialEq for Ref<'_, T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.address == other.address
    }
}

impl<T> Eq for Ref<'_, T> {}

impl<T> Ref<'_, T> {
    #[inline]
    fn at(address: u32, origin: Origin) -> Option<Self> {
        (address != 0).then_some(Self { address, origin, _heap: PhantomData })
    }

    /// The object's offset from the start of the heap's memory.
    #[must_use]
    pub fn address(self) -> u32 {
        self.address
    }
}

impl<O: Observer> Heap<O> {
    /// The object that a handle holds.
    ///
    /// # Panics
    /// If the handle is another heap's.
    #[inline]
    #[must_use]
    pub fn at<T: Object>(&self, handle: &Handle<T>) -> Ref<'_, T> {
        assert!(handle.is_of(&self.roots), "a handle of another heap");
        Ref { address: handle.address(), origin: handle.origin(), _heap: PhantomData }
    }

    /// Holds an object across allocations.
    #[must_use]
    pub fn hold<T: Object>(&self, object: Ref<'_, T>) -> Handle<T> {
        self.roots.hold(object.address, object.origin)
    }

    /// What a reference field refers to.
    #[inline]
    #[must_use]
    pub fn get<T: Class, C: Object>(&self, object: Ref<'_, T>, field: Reference<T, C>) -> Option<Ref<'_, C>> {
        let id = field.id();
        let slot = object.address + HEADER_BYTES + u32::from(id.field) * WORD_BYTES;
        Ref::at(self.memory.load(slot, By::Program(object.origin)), Origin::of(id))
    }

    /// Sets a reference field.
    #[inline]
    pub fn set<T: Class, C: Object>(
        &self,
        object: Ref<'_, T>,
        field: Reference<T, C>,
        value: Option<Ref<'_, C>>,
    ) {
        let slot = object.address + HEADER_BYTES + u32::from(field.id().field) * WORD_BYTES;
        self.store_reference(object.address, slot, value.map_or(0, |value| value.address), object.origin);
    }

    /// A word's value.
    #[inline]
    #[must_use]
    pub fn word<T: Class>(&self, object: Ref<'_, T>, field: Word<T>) -> u32 {
        self.memory.load(object.address + field.offset(), By::Program(object.origin))
    }

    /// Sets a word.
    #[inline]
    pub fn set_word<T: Class>(&self, object: Ref<'_, T>, field: Word<T>, value: u32) {
        self.memory.store(object.address + field.offset(), value, By::Program(object.origin));
    }

    /// The length of an array.
    #[inline]
    #[must_use]
    pub fn length<T: Object>(&self, array: Ref<'_, T>) -> u32 {
        self.memory.second(array.address, By::Program(array.origin))
    }

    /// What an element of an array refers to.
    ///
    /// # Panics
    /// If the array is not so long.
    #[inline]
    #[must_use]
    pub fn element<T: ReferenceArray>(&self, array: Ref<'_, T>, index: u32) -> Option<Ref<'_, T::Element>> {
        self.check(array, index);
        let slot = array.address + HEADER_BYTES + index * WORD_BYTES;
        Ref::at(self.memory.load(slot, By::Program(array.origin)), Origin::OTHER)
    }

    /// Sets an element of an array of references.
    ///
    /// # Panics
    /// If the array is not so long.
    #[inline]
    pub fn set_element<T: ReferenceArray>(
        &self,
        array: Ref<'_, T>,
        index: u32,
        value: Option<Ref<'_, T::Element>>,
    ) {
        self.check(array, index);
        let slot = array.address + HEADER_BYTES + index * WORD_BYTES;
        self.store_reference(array.address, slot, value.map_or(0, |value| value.address), array.origin);
    }

    /// A number of an array.
    ///
    /// # Panics
    /// If the array is not so long.
    #[inline]
    #[must_use]
    pub fn datum<T: DataArray>(&self, array: Ref<'_, T>, index: u32) -> T::Element {
        self.check(array, index);
        self.memory.load(array.address + HEADER_BYTES + index * T::Element::BYTES, By::Program(array.origin))
    }

    /// Sets a number of an array.
    ///
    /// # Panics
    /// If the array is not so long.
    #[inline]
    pub fn set_datum<T: DataArray>(&self, array: Ref<'_, T>, index: u32, value: T::Element) {
        self.check(array, index);
        let place = array.address + HEADER_BYTES + index * T::Element::BYTES;
        self.memory.store(place, value, By::Program(array.origin));
    }

    #[inline]
    fn check<T: Object>(&self, array: Ref<'_, T>, index: u32) {
        let length = self.length(array);
        assert!(index < length, "element {index} of an array of {length}");
    }

    /// The write barrier: a reference into the nursery from outside is remembered, since no collection of the nursery would
    /// find it.
    #[inline]
    fn store_reference(&self, object: u32, slot: u32, value: u32, origin: Origin) {
        self.memory.store(slot, value, By::Program(origin));
        if object >= self.ranges.nursery.end && value != 0 && value < self.ranges.nursery.end {
            self.remembered.borrow_mut().push(slot);
        }
    }
}
