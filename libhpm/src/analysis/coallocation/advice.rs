//! Which pairs of objects to allocate together, and which not.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::weights::{Field, Weight};
use crate::report::Estimate;

/// Share of missed bytes beyond the reach of a line above which two objects gain nothing from lying next to each other.
const BEYOND_MAX: f64 = 0.5;

/// Two kinds of objects: one has a field that refers to the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Pair {
    /// The parent's type and its field.
    pub field: Field,
    /// The type, or the place of allocation, of what it refers to.
    pub child: Arc<str>,
}

/// The size of one kind of objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Bytes of a typical one (the median).
    pub bytes: u64,
    /// It is an array whose elements are references or values.
    pub array: bool,
}

/// A pair, and what is known of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    /// Who refers to whom.
    pub pair: Pair,
    /// Misses of the child that came through the field.
    pub weight: Weight,
    /// All misses of objects with the field, through whatever they were reached; `None` where they are not known.
    pub parent_samples: Option<f64>,
    /// Objects with the field.
    pub parent: Shape,
    /// Objects that it refers to. Arrays are fine here: `String::value` is one.
    pub child: Shape,
    /// Byte of the parent at which the field is.
    pub field_offset: u64,
    /// Bytes of the child that were missed, with the share of the misses that each has. None means that its first byte is taken.
    pub missed_offsets: Vec<(u64, f64)>,
    /// Share of pairs whose objects die together; `None` where a collector decides that, or it is not known.
    pub lifetimes_match: Option<f64>,
    /// Share of pairs that lie in one cache line already; `None` where it is not known.
    pub together: Option<f64>,
}

/// When a pair is worth it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Rules {
    /// Bytes of a cache line.
    pub line_bytes: u64,
    /// Bytes of the largest two objects that are allocated together (the thesis: the largest size class).
    pub largest_bytes: u64,
    /// Samples of a field that are enough (the thesis's hot-reference threshold, 5.1.5).
    pub hot_samples: f64,
    /// Share of misses on young objects above which the objects' final place matters little.
    pub young_max: f64,
    /// Least share of pairs whose objects must die together, where that is known.
    pub lifetimes_min: f64,
    /// Least samples of a field for each of its objects' own, where those are known. In a runtime that puts objects close together, those that
    /// are missed much more often than what the field refers to are visited without it, and with it among them fewer of them fit in a cache
    /// or a page. malloc's lie apart anyway: bc's numbers were missed 4.6 times as often as their digits, and have 19 to 31 % fewer misses in all
    /// with the digits behind them (four runs of the suite's scenario `advice`). Hence 0, nothing against it, unless a runtime says otherwise.
    pub followed_min: f64,
    /// Share of pairs in one line already from which on there is nothing to gain.
    pub together_max: f64,
    /// A reference to an object of the same type, as to a list's next element, does not compete with the type's others. A programmer
    /// can put the elements one after another, and into each of them what it refers to; what moves pairs of objects cannot.
    pub elements_apart: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            line_bytes: 64,
            largest_bytes: 8192,
            hot_samples: 100.0,
            young_max: 0.5,
            lifetimes_min: 0.8,
            followed_min: 0.0,
            together_max: 0.9,
            elements_apart: false,
        }
    }
}

/// A reason against allocating a pair together.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "reason")]
pub enum Reason {
    /// The field has not been sampled often enough for its weight to be stable.
    TooFewSamples {
        /// How often it was.
        samples: f64,
        /// How often it should be.
        needed: f64,
    },
    /// The parent is an array: which element's object would be the one?
    ParentIsArray,
    /// Together they are larger than what is allocated together.
    TooLarge {
        /// Bytes of both.
        bytes: u64,
        /// What they may have.
        largest: u64,
    },
    /// Most missed bytes would lie a line or more behind the field, and never share one with it.
    BeyondLine {
        /// Their share.
        share: f64,
    },
    /// Most misses are on young objects.
    Young {
        /// Their share.
        share: f64,
    },
    /// The two do not die together: one would keep the other's memory.
    LifetimesDiffer {
        /// Share of pairs that do.
        matching: f64,
    },
    /// The objects are mostly visited without what the field refers to, which would take up room among them.
    SeldomFollowed {
        /// Samples of the field for each of the objects' own.
        share: f64,
    },
    /// They lie in one line already.
    Together {
        /// Share of pairs that do.
        share: f64,
    },
    /// Another field of the same type has more weight, and only one child can be next to its parent.
    AnotherFieldIsHotter {
        /// That one.
        field: Field,
    },
    /// The two are of unknown size.
    SizeUnknown,
}

/// What to do with a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Allocate them together.
    CoAllocate,
    /// Leave them as they are.
    Leave,
}

/// Misses that would be saved, as a share of all of the event's, from 0 to 1.
///
/// Two bytes d apart share a line of L bytes with probability 1 − d/L when objects begin anywhere in a line. That is taken for what
/// is expected and, with the lower end of the sampled weight's 95 % interval, for `low`. `high` takes the upper end, and that the
/// allocator begins each pair with a line, so that all is shared that fits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Benefit {
    /// At least.
    pub low: f64,
    /// Expected.
    pub expected: f64,
    /// At most.
    pub high: f64,
}

/// What to do with a pair, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Advice {
    /// The pair, and what is known of it.
    pub candidate: Candidate,
    /// What to do.
    pub verdict: Verdict,
    /// What speaks against it; empty for [`Verdict::CoAllocate`].
    pub against: Vec<Reason>,
    /// What it would save, whatever the verdict.
    pub benefit: Benefit,
}

/// Judges candidates. `all` is the weight of all of the event's samples, attributed or not. The advice with the greatest expected
/// benefit comes first, what should be done before what should not.
#[must_use]
pub fn advise(candidates: impl IntoIterator<Item = Candidate>, all: Weight, rules: &Rules) -> Vec<Advice> {
    let mut advice: Vec<Advice> = candidates
        .into_iter()
        .map(|candidate| {
            let against = against(&candidate, rules);
            let benefit = benefit(&candidate, all, rules);
            Advice { candidate, verdict: Verdict::Leave, against, benefit }
        })
        .collect();
    advice.sort_by(|a, b| {
        b.benefit
            .expected
            .total_cmp(&a.benefit.expected)
            .then_with(|| a.candidate.pair.cmp(&b.candidate.pair))
    });
    one_child_each(&mut advice, rules);
    for one in &mut advice {
        one.verdict = if one.against.is_empty() { Verdict::CoAllocate } else { Verdict::Leave };
    }
    advice.sort_by_key(|one| one.verdict == Verdict::Leave);
    advice
}

/// "If there are multiple reference fields in a class that are potential candidates for co-allocation, the system selects the one
/// with the largest weight" (5.1.5), of those against which nothing else speaks.
fn one_child_each(advice: &mut [Advice], rules: &Rules) {
    let group = |pair: &Pair| {
        let element = rules.elements_apart && pair.child == pair.field.parent;
        (Arc::clone(&pair.field.parent), element)
    };
    let mut chosen: BTreeMap<(Arc<str>, bool), (f64, Field)> = BTreeMap::new();
    for one in advice.iter().filter(|one| one.against.is_empty()) {
        let Candidate { pair, weight, .. } = &one.candidate;
        let best = chosen.entry(group(pair)).or_insert((weight.events, pair.field.clone()));
        if weight.events > best.0 {
            *best = (weight.events, pair.field.clone());
        }
    }
    let mut taken: BTreeMap<Field, ()> = BTreeMap::new();
    for one in advice.iter_mut().filter(|one| one.against.is_empty()) {
        let pair = &one.candidate.pair;
        let field = &pair.field;
        let Some((_, best)) = chosen.get(&group(pair)) else { continue };
        // Of a field that refers to several kinds of objects the one with the greatest benefit comes first.
        if best != field || taken.insert(field.clone(), ()).is_some() {
            one.against.push(Reason::AnotherFieldIsHotter { field: best.clone() });
        }
    }
}

fn against(candidate: &Candidate, rules: &Rules) -> Vec<Reason> {
    let Candidate { weight, parent_samples, parent, child, lifetimes_match, together, .. } = candidate;
    let mut reasons = Vec::new();
    if weight.samples < rules.hot_samples {
        reasons.push(Reason::TooFewSamples { samples: weight.samples, needed: rules.hot_samples });
    }
    if parent.array {
        reasons.push(Reason::ParentIsArray);
    }
    let bytes = parent.bytes.saturating_add(child.bytes);
    if parent.bytes == 0 || child.bytes == 0 {
        reasons.push(Reason::SizeUnknown);
    } else if bytes > rules.largest_bytes {
        reasons.push(Reason::TooLarge { bytes, largest: rules.largest_bytes });
    } else {
        let beyond = distances(candidate).filter(|(distance, _)| *distance >= rules.line_bytes);
        let share: f64 = beyond.map(|(_, share)| share).sum();
        if share > BEYOND_MAX {
            reasons.push(Reason::BeyondLine { share });
        }
    }
    if weight.young_share() > rules.young_max {
        reasons.push(Reason::Young { share: weight.young_share() });
    }
    if let Some(matching) = lifetimes_match.filter(|matching| *matching < rules.lifetimes_min) {
        reasons.push(Reason::LifetimesDiffer { matching });
    }
    let followed = parent_samples.filter(|own| *own > 0.0).map(|own| weight.samples / own);
    if let Some(share) = followed.filter(|share| *share < rules.followed_min) {
        reasons.push(Reason::SeldomFollowed { share });
    }
    if let Some(share) = together.filter(|share| *share >= rules.together_max) {
        reasons.push(Reason::Together { share });
    }
    reasons
}

/// How far behind the field each missed byte would be, with its share of the misses.
fn distances(candidate: &Candidate) -> impl Iterator<Item = (u64, f64)> {
    let rest = candidate.parent.bytes.saturating_sub(candidate.field_offset);
    let offsets = &candidate.missed_offsets;
    let first = offsets.is_empty().then_some((0, 1.0));
    let all = first.into_iter().chain(offsets.iter().copied());
    all.map(move |(offset, share)| (rest.saturating_add(offset), share))
}

fn benefit(candidate: &Candidate, all: Weight, rules: &Rules) -> Benefit {
    if candidate.parent.bytes == 0 || candidate.child.bytes == 0 {
        return Benefit::default();
    }
    let line = rules.line_bytes as f64;
    let apart = 1.0 - candidate.together.unwrap_or(0.0);
    let saved = |chance: &dyn Fn(u64) -> f64| -> f64 {
        apart * distances(candidate).map(|(distance, share)| share * chance(distance)).sum::<f64>()
    };
    let anywhere = saved(&|distance| (1.0 - distance as f64 / line).max(0.0));
    // A pair that begins with a line: field and missed byte share one if their places do.
    let field = candidate.field_offset / rules.line_bytes.max(1);
    let place = |distance: u64| (candidate.field_offset + distance) / rules.line_bytes.max(1);
    let aligned = saved(&|distance| if place(distance) == field { 1.0 } else { 0.0 });
    let events = candidate.weight.events.round() as u64;
    let estimate = Estimate::new(events, all.events.round() as u64, all.effective_samples());
    Benefit {
        low: (estimate.share - estimate.error).max(0.0) * anywhere,
        expected: estimate.share * anywhere,
        high: (estimate.share + estimate.error).min(1.0) * anywhere.max(aligned),
    }
}
