//! References from outside the heap.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::rc::Rc;

use crate::observe::Origin;

/// Every reference that the program holds across allocations. A collection finds them here and nowhere else, and corrects
/// them when it moves objects.
#[derive(Debug, Default)]
pub(crate) struct Roots(RefCell<Slots>);

#[derive(Debug, Default)]
struct Slots {
    /// Addresses; 0 where nobody has a handle.
    addresses: Vec<u32>,
    vacant: Vec<u32>,
}

/// A reference that stays good across allocations and keeps its object alive until it is dropped.
#[derive(Debug)]
pub struct Handle<T> {
    slot: u32,
    roots: Rc<Roots>,
    /// The field that the reference was loaded from, as a compiler knows it of a local variable.
    origin: Origin,
    _object: PhantomData<fn() -> T>,
}

impl Roots {
    /// A handle for the object at `address`.
    pub(crate) fn hold<T>(self: &Rc<Self>, address: u32, origin: Origin) -> Handle<T> {
        let slots = &mut *self.0.borrow_mut();
        let slot = slots.vacant.pop().unwrap_or_else(|| {
            slots.addresses.push(0);
            slots.addresses.len() as u32 - 1
        });
        slots.addresses[slot as usize] = address;
        Handle { slot, roots: Rc::clone(self), origin, _object: PhantomData }
    }

    /// Puts each address through `moved`.
    pub(crate) fn update(&self, mut moved: impl FnMut(u32) -> u32) {
        for address in self.0.borrow_mut().addresses.iter_mut().filter(|address| **address != 0) {
            *address = moved(*address);
        }
    }

    /// The addresses.
    pub(crate) fn addresses(&self) -> Vec<u32> {
        self.0.borrow().addresses.iter().copied().filter(|&address| address != 0).collect()
    }
}

impl<T> Handle<T> {
    /// Where the object is now.
    #[inline]
    pub(crate) fn address(&self) -> u32 {
        self.roots.0.borrow().addresses[self.slot as usize]
    }

    /// The field that the reference was loaded from.
    #[inline]
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Whether the handle is one of these roots.
    #[inline]
    pub(crate) fn is_of(&self, roots: &Rc<Roots>) -> bool {
        Rc::ptr_eq(&self.roots, roots)
    }
}

impl<T> Clone for Handle<T> {
    fn clone(&self) -> Self {
        self.roots.hold(self.address(), self.origin)
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        let slots = &mut *self.roots.0.borrow_mut();
        slots.addresses[self.slot as usize] = 0;
        slots.vacant.push(self.slot);
    }
}
