//! The arithmetic of a ring that the driver fills and a reader empties: quanta, or bytes of stacks.

/// A ring's numbers. Both only grow; a place is a number modulo the capacity.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    capacity: u64,
    produced: u64,
    consumed: u64,
}

impl Ring {
    /// An empty ring; `capacity` is a power of two, or 0 for a ring that is never used.
    #[must_use]
    pub const fn new(capacity: u32) -> Self {
        Self { capacity: capacity as u64, produced: 0, consumed: 0 }
    }

    /// Units produced since the start.
    #[must_use]
    pub const fn produced(&self) -> u64 {
        self.produced
    }

    /// Takes note of the reader's number, which may be anything: clamped between its last value and what was produced.
    pub fn give_back(&mut self, consumed: u64) {
        self.consumed = consumed.clamp(self.consumed, self.produced);
    }

    /// Where `units` contiguous units would go, as a number since the start: after a gap if they would wrap. `None` when
    /// there is no room.
    #[must_use]
    pub const fn room_for(&self, units: u32) -> Option<u64> {
        if self.capacity == 0 {
            return None;
        }
        let to_the_end = self.capacity - self.produced % self.capacity;
        let start = if to_the_end < units as u64 { self.produced + to_the_end } else { self.produced };
        if start + units as u64 - self.consumed > self.capacity {
            return None;
        }
        Some(start)
    }

    /// The place of a number since the start.
    #[must_use]
    pub const fn place(&self, number: u64) -> u32 {
        // The capacity is a power of two; without a division nothing can panic.
        (number & self.capacity.wrapping_sub(1)) as u32
    }

    /// Everything up to `number` since the start has been produced.
    pub fn produce_to(&mut self, number: u64) {
        self.produced = number;
    }
}

#[cfg(test)]
mod tests {
    use super::Ring;

    #[test]
    fn units_never_wrap_and_never_overwrite_what_was_not_given_back() {
        let mut ring = Ring::new(8);
        assert_eq!(ring.room_for(6), Some(0));
        ring.produce_to(6);
        assert_eq!(ring.room_for(3), None, "two to the end, none at the start");
        ring.give_back(u64::MAX);
        assert_eq!(ring.room_for(3), Some(8), "a gap of two before the wrap");
        ring.produce_to(11);
        assert_eq!(ring.place(8), 0);
        ring.give_back(0);
        assert_eq!(ring.room_for(3), Some(11), "a number that went back is not believed");
        assert_eq!(ring.room_for(4), None);
    }

    #[test]
    fn a_ring_without_memory_has_no_room() {
        assert_eq!(Ring::new(0).room_for(0), None);
    }
}
