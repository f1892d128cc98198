//! What samples tell of the objects at both ends of a reference.

use std::collections::BTreeMap;

use super::namer::Named;
use crate::analysis::coallocation::{Candidate, Pair, Shape, Weight};
use crate::analysis::locality::{Access, LINE_BYTES};
use crate::analysis::objects::Life;
use crate::analysis::reference::Origin;

/// Two objects live and die together when their lives overlap by this part of the time that either lives.
const OVERLAP_MIN: f64 = 0.9;

/// What is known of the objects of a pair.
#[derive(Debug, Default)]
pub(super) struct Known {
    weight: Weight,
    parent_bytes: Vec<u64>,
    child_bytes: Vec<u64>,
    field_offset: u64,
    parent_array: bool,
    child_array: bool,
    offsets: BTreeMap<u64, f64>,
    compared: f64,
    together: f64,
    lives: f64,
    lives_match: f64,
}

/// A sample's part of a pair.
pub(super) struct Seen<'a> {
    pub(super) origin: &'a Origin,
    pub(super) period: u64,
    pub(super) access: &'a Access,
    pub(super) named: &'a Named,
    /// The object with the field, and where the field is, where these are known.
    pub(super) parent: Option<&'a Life>,
    pub(super) parent_address: Option<u64>,
    /// The object that was missed.
    pub(super) child: Option<&'a Life>,
    /// The recording's last time: until when what was not freed lived.
    pub(super) end: u64,
}

impl Known {
    pub(super) fn add(&mut self, seen: &Seen<'_>) {
        let Seen { origin, named, parent, child, .. } = *seen;
        let share = origin.share;
        self.weight.add(Weight::part(share, seen.period, seen.access.young));
        self.parent_array |= named.array;
        self.child_array |= !named.child_is_structure || origin.offset.is_none();
        self.field_offset = match (parent, seen.parent_address) {
            (Some(life), Some(address)) => address.wrapping_sub(life.address),
            _ => named.offset,
        };
        let parent_bytes = parent.map_or(named.parent_bytes, |life| life.bytes);
        self.parent_bytes.extend((parent_bytes > 0).then_some(parent_bytes));
        let child_bytes = child.map_or(named.child_bytes, |life| life.bytes);
        self.child_bytes.extend((child_bytes > 0).then_some(child_bytes));
        let inside = match (child, seen.access.address) {
            (Some(life), Ok(address)) => Some(address.wrapping_sub(life.address)),
            _ => origin.offset.and_then(|offset| u64::try_from(offset).ok()),
        };
        if let Some(offset) = inside {
            *self.offsets.entry(offset).or_default() += share;
        }
        if let (Some(parent), Ok(address)) = (seen.parent_address, seen.access.address) {
            self.compared += share;
            self.together += if parent / LINE_BYTES == address / LINE_BYTES { share } else { 0.0 };
        }
        if let (Some(parent), Some(child)) = (parent, child) {
            let lives = |one: &Life| (one.allocated, one.freed.unwrap_or(seen.end));
            self.lives += share;
            self.lives_match += if overlap(lives(parent), lives(child)) >= OVERLAP_MIN { share } else { 0.0 };
        }
    }

    /// The pair with what is known of it; `parent_samples` are those of all objects with its field, where they are known.
    pub(super) fn candidate(&self, pair: &Pair, parent_samples: Option<f64>) -> Candidate {
        let all: f64 = self.offsets.values().sum();
        let part = |one: f64, of: f64| (of > 0.0).then(|| one / of);
        Candidate {
            pair: pair.clone(),
            weight: self.weight,
            parent_samples,
            parent: Shape { bytes: median(&self.parent_bytes), array: self.parent_array },
            child: Shape { bytes: median(&self.child_bytes), array: self.child_array },
            field_offset: self.field_offset,
            missed_offsets: self.offsets.iter().map(|(offset, share)| (*offset, share / all)).collect(),
            lifetimes_match: part(self.lives_match, self.lives),
            together: part(self.together, self.compared),
        }
    }
}

/// Which part of the time that either lives both live.
fn overlap(one: (u64, u64), other: (u64, u64)) -> f64 {
    let both = one.1.min(other.1).saturating_sub(one.0.max(other.0));
    let either = one.1.max(other.1).saturating_sub(one.0.min(other.0));
    if either == 0 { 1.0 } else { both as f64 / either as f64 }
}

fn median(values: &[u64]) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_that_end_at_different_times_do_not_match() {
        assert!((overlap((0, 100), (0, 100)) - 1.0).abs() < 1e-9);
        assert!((overlap((0, 100), (90, 100)) - 0.1).abs() < 1e-9);
        assert!((overlap((0, 10), (50, 100))).abs() < 1e-9);
        assert!((overlap((7, 7), (7, 7)) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_typical_size_is_the_median() {
        assert_eq!([median(&[]), median(&[5]), median(&[9, 1, 5])], [0, 5, 5]);
    }
}
