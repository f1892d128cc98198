//! Pattern shapes: the directions of successive variations, as short bit vectors (§3.1, Figures 2 and 3).

use std::fmt;

use super::Rules;
use super::level::Variation;

/// Codes of two bits in the longest shape (§3.1: "a maximum of 10 bits").
pub const MAX_CODES: u8 = 5;

/// Variations below the shape's level, one after another, after which it has died out (§3.1: "we use n = 2").
pub const DIES_AFTER: u8 = 2;

const CODE_BITS: u16 = 2;
/// 01: a rise at the shape's level.
const RISE: u16 = 0b01;
/// 10: a fall at the shape's level.
const FALL: u16 = 0b10;
/// 00: either, below the shape's level.
const LOW: u16 = 0b00;

/// What makes two patterns the same: level and codes, packed as `level << 13 | number of codes << 10 | codes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PatternKey(u16);

impl PatternKey {
    const COUNT_SHIFT: u16 = CODE_BITS * MAX_CODES as u16;
    const LEVEL_SHIFT: u16 = Self::COUNT_SHIFT + 3;

    fn new(level: u8, codes: u16, count: u8) -> Self {
        Self(u16::from(level) << Self::LEVEL_SHIFT | u16::from(count) << Self::COUNT_SHIFT | codes)
    }

    /// Level of the variation that began the shape.
    #[must_use]
    pub fn level(self) -> u8 {
        (self.0 >> Self::LEVEL_SHIFT) as u8
    }

    /// Number of two-bit codes.
    #[must_use]
    pub fn codes(self) -> usize {
        usize::from(self.0 >> Self::COUNT_SHIFT & 0b111)
    }
}

/// `2:010001` is level 2 with three codes.
impl fmt::Display for PatternKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.codes() * usize::from(CODE_BITS);
        write!(f, "{}:{:0bits$b}", self.level(), self.0 & ((1 << bits) - 1))
    }
}

/// A completed shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Which pattern it is.
    pub key: PatternKey,
    /// Index of the interval whose variation began it.
    pub first: u64,
    /// Index of the last interval that its codes describe.
    pub last: u64,
}

/// Shape under construction: (Q_W, v̄).
#[derive(Clone, Copy, Debug)]
struct Building {
    level: u8,
    codes: u16,
    count: u8,
    /// Variations below the level, up to the last one without a break.
    low: u8,
    first: u64,
}

/// Builds shapes from variations. Constant memory.
#[derive(Clone, Debug)]
pub struct ShapeBuilder {
    building: Option<Building>,
    /// Level below which no shape begins.
    lowest: u8,
    /// Codes in the longest shape.
    most: u8,
}

impl ShapeBuilder {
    /// A builder with no shape under construction.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        let (lowest, most) = match rules {
            Rules::Published => (0, MAX_CODES),
            // One variation is a pattern: what follows it in a real program is noise more often than a mark of the same phase.
            Rules::NoiseGated => (1, 1),
        };
        Self { building: None, lowest, most }
    }

    /// Takes the variation at the interval `index`; returns the shape that it completes.
    pub fn push(&mut self, variation: Variation, index: u64) -> Option<Shape> {
        // Figure 3 gives every variation a code, the one that begins the shape included.
        let codes = if variation.rising { RISE } else { FALL };
        let begin = Building { level: variation.level, codes, count: 1, low: 0, first: index };
        let most = self.most;
        let Some(building) = &mut self.building else {
            let begins = variation.level >= self.lowest;
            if begins && most == 1 {
                return Some(begin.complete(0));
            }
            self.building = begins.then_some(begin);
            return None;
        };
        // Rule 1: a larger variation ends the shape and begins the next one.
        if variation.level > building.level {
            return self.building.replace(begin).map(|building| building.complete(0));
        }
        let low = variation.level < building.level;
        let code = match (low, variation.rising) {
            (true, _) => LOW,
            (false, true) => RISE,
            (false, false) => FALL,
        };
        building.codes = building.codes << CODE_BITS | code;
        building.count += 1;
        building.low = if low { building.low + 1 } else { 0 };
        // Rule 2 (died out: the trailing zeros are omitted, Figure 3) and rule 3 (full).
        let omitted = match (building.low == DIES_AFTER, building.count == most) {
            (true, _) => DIES_AFTER,
            (false, true) => 0,
            (false, false) => return None,
        };
        self.building.take().map(|building| building.complete(omitted))
    }

    /// Whether no shape is under construction.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.building.is_none()
    }

    /// Gives the shape under construction up: what comes next cannot be compared with what was.
    pub fn interrupt(&mut self) {
        self.building = None;
    }
}

impl Building {
    fn complete(self, omitted: u8) -> Shape {
        let count = self.count - omitted;
        let codes = self.codes >> (CODE_BITS * u16::from(omitted));
        let last = self.first + u64::from(count) - 1;
        Shape { key: PatternKey::new(self.level, codes, count), first: self.first, last }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shapes(builder: &mut ShapeBuilder, variations: &[(u8, bool)]) -> Vec<String> {
        let push = |(index, &(level, rising)): (usize, &(u8, bool))| {
            builder.push(Variation { level, rising }, index as u64)
        };
        variations
            .iter()
            .enumerate()
            .filter_map(push)
            .map(|shape| format!("{} {}-{}", shape.key, shape.first, shape.last))
            .collect()
    }

    fn all(variations: &[(u8, bool)]) -> Vec<String> {
        shapes(&mut ShapeBuilder::new(Rules::Published), variations)
    }

    const UP: bool = true;
    const DOWN: bool = false;

    /// Figure 3: a level 2 pattern, "the four trailing zeros are omitted (the pattern has died out), and the final pattern
    /// code is 010001".
    #[test]
    fn figure_3() {
        let variations = [(2, UP), (1, DOWN), (2, UP), (0, DOWN), (1, UP)];
        assert_eq!(all(&variations), ["2:010001 0-2"]);
        assert_eq!(all(&variations[..4]), [""; 0], "one lower variation is not its death");
    }

    /// Rule 1: a larger variation ends the shape, and begins the next, which has nothing of it.
    #[test]
    fn a_larger_variation_ends_a_shape() {
        assert_eq!(all(&[(1, UP), (1, DOWN), (0, UP), (3, UP)]), ["1:011000 0-2"]);
        assert_eq!(all(&[(1, UP), (3, UP), (3, DOWN), (0, UP), (0, UP)]), ["1:01 0-0", "3:0110 1-2"]);
        assert_eq!(all(&[(0, UP), (1, DOWN), (2, UP)]), ["0:01 0-0", "1:10 1-1"]);
    }

    /// Rule 2: only lower variations in a row count.
    #[test]
    fn a_shape_dies_out() {
        assert_eq!(all(&[(2, UP), (0, UP), (0, UP)]), ["2:01 0-0"]);
        assert_eq!(all(&[(2, UP), (1, UP), (2, DOWN), (1, UP), (1, UP)]), ["2:010010 0-2"]);
    }

    /// Rule 3: five codes at most. The variation after a complete shape begins the next one.
    #[test]
    fn a_shape_is_full() {
        assert_eq!(all(&[(1, UP); 11]), ["1:0101010101 0-4", "1:0101010101 5-9"]);
        // Death on the fifth code is death, as in Figure 3.
        assert_eq!(all(&[(1, UP), (1, UP), (1, DOWN), (0, UP), (0, UP)]), ["1:010110 0-2"]);
    }

    /// Level 0 is no variation worth a shape, and any other is one at once.
    #[test]
    fn behind_a_noise_gate_each_variation_is_a_shape() {
        let variations = [(0, UP), (0, DOWN), (1, UP), (0, UP), (3, DOWN), (1, UP)];
        let shapes = shapes(&mut ShapeBuilder::new(Rules::NoiseGated), &variations);
        assert_eq!(shapes, ["1:01 2-2", "3:10 4-4", "1:01 5-5"]);
    }

    #[test]
    fn an_interrupted_shape_is_not_reported() {
        let mut builder = ShapeBuilder::new(Rules::Published);
        assert_eq!(shapes(&mut builder, &[(2, UP), (2, UP)]), [""; 0]);
        builder.interrupt();
        assert_eq!(shapes(&mut builder, &[(1, UP), (2, UP)]), ["1:01 0-0"]);
    }

    proptest! {
        /// Shapes follow each other without a hole but for the omitted zeros, and their keys say how long they are.
        #[test]
        fn shapes_tile_the_stream(variations in prop::collection::vec((0_u8..4, any::<bool>()), 0..200)) {
            let mut builder = ShapeBuilder::new(Rules::Published);
            let mut next = 0;
            for (index, &(level, rising)) in variations.iter().enumerate() {
                let Some(shape) = builder.push(Variation { level, rising }, index as u64) else { continue };
                prop_assert!(shape.first == next || shape.first == next + u64::from(DIES_AFTER));
                prop_assert_eq!(shape.key.level(), variations[shape.first as usize].0);
                prop_assert_eq!(shape.last - shape.first + 1, shape.key.codes() as u64);
                next = shape.last + 1;
                prop_assert!(index as u64 >= shape.last && index as u64 <= shape.last + 2);
            }
        }
    }
}
