//! The segments that hardware fills, one after the other.

use super::abi::SEGMENT_BYTES;

/// Records that still fit when the interrupt threshold is reached: room for those that hardware writes before the PMI
/// has stopped it (SDM Vol. 3B 18.4.9 asks for several).
const RECORDS_AFTER_THRESHOLD: u32 = 16;

/// Fewest large segments: while hardware fills one and the reader has yet to give back another, there is a third.
const LARGE_MIN: u32 = 3;

/// Bytes of the largest segments, up to `most`, that so many [`SEGMENT_BYTES`] can be divided into.
pub(super) fn largest(units: u32, most: u32, power_of_two: bool) -> u32 {
    let most = (most / SEGMENT_BYTES).min(units / LARGE_MIN).max(1);
    SEGMENT_BYTES * if power_of_two { 1 << most.ilog2() } else { most }
}

/// Which segments of a session hardware may fill on one CPU.
#[derive(Clone, Copy, Debug)]
pub struct Segments {
    count: u32,
    bytes: u32,
    begun: u64,
    consumed: u64,
    /// Bytes published of the newest segment; `None` once it is full.
    published: Option<u32>,
}

impl Segments {
    /// None begun of `count`, of each of which so many bytes may be filled.
    #[must_use]
    pub const fn new(count: u32, bytes: u32) -> Self {
        Self { count, bytes, begun: 0, consumed: 0, published: None }
    }

    /// Bytes of a segment that may be filled.
    #[must_use]
    pub const fn bytes(&self) -> u32 {
        self.bytes
    }

    /// Records that one segment holds.
    #[must_use]
    pub const fn capacity(&self, record_size: u16) -> u32 {
        match self.bytes.checked_div(record_size as u32) {
            Some(records) => records,
            None => 0,
        }
    }

    /// Byte offset at which a segment counts as full.
    #[must_use]
    pub const fn full_at(&self, record_size: u16) -> u32 {
        (self.capacity(record_size) - RECORDS_AFTER_THRESHOLD) * record_size as u32
    }

    /// Segments begun since the start.
    #[must_use]
    pub const fn begun(&self) -> u64 {
        self.begun
    }

    /// Number of the segment to fill and the bytes of it that are published, if there is one.
    #[must_use]
    pub fn current(&self) -> Option<(u64, u32)> {
        self.published.map(|published| (self.begun - 1, published))
    }

    /// The slot that holds a segment.
    #[must_use]
    pub const fn slot(&self, number: u64) -> u32 {
        // A session with segments has at least two; without a division by a variable nothing can panic.
        match number.checked_rem(self.count as u64) {
            Some(slot) => slot as u32,
            None => 0,
        }
    }

    /// Takes note of the reader's number, which may be anything: clamped between its last value and what was begun.
    pub fn give_back(&mut self, consumed: u64) {
        self.consumed = consumed.clamp(self.consumed, self.begun);
    }

    /// Whether another segment can be begun without overwriting one that the reader has not given back.
    #[must_use]
    pub const fn has_free(&self) -> bool {
        self.begun - self.consumed < self.count as u64
    }

    /// Begins the next segment if one is free. The current one must be full.
    pub fn begin(&mut self) {
        if self.has_free() {
            self.begun += 1;
            self.published = Some(0);
        }
    }

    /// The current segment is published up to this byte; at `full_at` it is over.
    pub fn publish_to(&mut self, offset: u32, full_at: u32) {
        self.published = (offset < full_at).then_some(offset);
    }
}

#[cfg(test)]
mod tests {
    use super::super::abi::SEGMENT_BYTES;
    use super::{largest, Segments};

    #[test]
    fn large_segments_are_three_at_least_and_as_large_as_they_may_be() {
        let units = |units, most, power_of_two| largest(units, most, power_of_two) / SEGMENT_BYTES;
        assert_eq!(units(42, u32::MAX, false), 14);
        assert_eq!(units(42, 13 * SEGMENT_BYTES - 1, false), 12);
        assert_eq!(units(42, u32::MAX, true), 8);
        assert_eq!(units(32, 0, true), 1, "never less than one");
        assert_eq!(units(2, u32::MAX, false), 1, "two are small ones");
    }

    #[test]
    fn a_segment_is_begun_only_when_its_slot_was_given_back() {
        let mut segments = Segments::new(2, SEGMENT_BYTES);
        assert_eq!(segments.current(), None);
        segments.begin();
        assert_eq!(segments.current(), Some((0, 0)));
        segments.publish_to(200, 400);
        assert_eq!(segments.current(), Some((0, 200)));
        segments.publish_to(400, 400);
        segments.begin();
        assert_eq!((segments.current(), segments.slot(1)), (Some((1, 0)), 1));
        segments.publish_to(600, 400);
        segments.begin();
        assert_eq!(segments.current(), None, "both are full");
        segments.give_back(1);
        segments.begin();
        assert_eq!((segments.current(), segments.slot(2)), (Some((2, 0)), 0));
    }

    #[test]
    fn a_reader_gives_back_at_most_what_was_begun() {
        let mut segments = Segments::new(2, SEGMENT_BYTES);
        segments.begin();
        segments.publish_to(1, 1);
        segments.give_back(u64::MAX);
        segments.begin();
        assert_eq!(segments.slot(segments.begun() - 1), 1, "never the slot that was filled last");
        segments.give_back(0);
        assert!(segments.has_free(), "a number that went back is not believed");
    }
}
