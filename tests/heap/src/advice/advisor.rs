//! The advisor: samples of missing loads in, advice out, and an eye on what came of it.
//!
//! What to advise, and whether it helped, is decided by `libhpm::analysis::coallocation`; here is what only the runtime knows:
//! its objects, and how to change their layout.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use libhpm::analysis::coallocation::{
    Candidate, Field, Monitor, MonitorRules, Pair, Rules as AdviceRules, Series, Shape, TrialRules, Verdict,
    Weight, advise,
};

use super::trials::{Shown, Trials, Verdict as Outcome};
use super::{Attribution, Pairing, Sample, Samples};
use crate::heap::{Heap, Hook};
use crate::layout::{self, Body, FieldId, HEADER_BYTES, WORD_BYTES};
use crate::observe::Observer;
use crate::space::MAX_CELL_BYTES;

/// Safe points between two looks at the samples.
const LOOK_EACH: u32 = 16;

/// Marks hit by samples (one can hit two) after which running trials are looked at before the period ends: weighing them takes some 4000 instructions,
/// however few they are.
const JUDGED_EACH: u32 = 16;

/// A layout of which nothing was shown may have had bad luck, or bad pairs: it is tried again when its field has so many times the samples.
const AGAIN: f64 = 2.0;

/// How an advisor decides.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// When a pair is worth it. The least number of samples is the thesis's hot-reference threshold.
    pub advice: AdviceRules,
    /// When a change has helped or hurt.
    pub trial: TrialRules,
    /// Least share of all cycles that a field's pairs have to promise: the misses that they are expected to save, less where the
    /// collector has most of the cycles. Where memory is short, pairs cost more collections than they save misses.
    pub gain_min: f64,
    /// Length of a period on the clock of the samples.
    pub period: u64,
    /// A change to be made whatever the samples say, to see whether its effect is noticed (Figure 5.14).
    pub intervention: Option<Intervention>,
}

/// A layout that is given at the end of a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intervention {
    /// The number of periods that have then ended.
    pub after_periods: usize,
    /// The field.
    pub field: FieldId,
    /// The empty bytes to be put between the field's object and the one it refers to.
    pub gap: u32,
}

impl Rules {
    /// The thesis's: 100 samples make a field hot, pairs are at most as large as the largest cell. Periods are `period` ticks
    /// long, lines `line_bytes`. That objects have to have a third as many samples by the field as of their own keeps graph's
    /// vertices together, which cost 5.8 % of all cycles with their edges among them.
    #[must_use]
    pub fn new(period: u64, line_bytes: u32) -> Self {
        let advice = AdviceRules {
            line_bytes: line_bytes.into(),
            largest_bytes: MAX_CELL_BYTES.into(),
            followed_min: 1.0 / 3.0,
            ..AdviceRules::default()
        };
        Self { advice, trial: TrialRules::default(), gain_min: 0.03, period, intervention: None }
    }
}

/// What an advisor did.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// It advised a field, for a quarter of the pairs.
    Advised,
    /// It made the change that it was told to make, for a quarter of the pairs.
    Intervened(u32),
    /// Pairs with the change miss less than those without: nearly all pairs get it.
    Kept(Shown),
    /// Pairs with the change miss more: it is taken back.
    Reverted(Shown),
    /// No difference was shown: it is taken back, too, because it may cost what misses do not show.
    NotShown(Shown),
}

/// One thing that an advisor did.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    /// Periods that had ended.
    pub period: usize,
    /// On the clock of the samples.
    pub time: u64,
    /// About which field.
    pub field: FieldId,
    /// What it was.
    pub action: Action,
}

/// What an advisor has seen and done, for whoever wants to know.
#[derive(Debug, Default)]
pub struct Log {
    /// What it did, in order.
    pub decisions: Vec<Decision>,
    /// Samples by field, as the heap attributes them.
    pub weights: BTreeMap<FieldId, Weight>,
    /// Samples by field, as they were told with the samples, where they were.
    pub told: BTreeMap<FieldId, f64>,
    /// All samples.
    pub samples: u64,
    /// Samples that hit no mature object: the nursery, or objects that were freed since.
    pub young: u64,
    /// Misses of each field through the periods.
    pub series: BTreeMap<FieldId, Series>,
    /// Why there were no more samples.
    pub failed: Option<String>,
}

/// What was seen of the objects that a field refers to.
#[derive(Debug, Default)]
struct Seen {
    child: u16,
    /// How many objects were of each size.
    sizes: BTreeMap<u32, u64>,
    /// Which bytes of them were missed, and how often.
    offsets: BTreeMap<u32, f64>,
}

/// Reads samples at safe points and changes the heap's advice.
pub struct Advisor<S> {
    samples: S,
    rules: Rules,
    monitor: Monitor<FieldId>,
    seen: BTreeMap<FieldId, Seen>,
    /// Samples that hit mature objects, by type.
    hit: BTreeMap<u16, f64>,
    trials: Trials,
    /// Fields whose advice has not helped, with the samples that they have to have for another trial.
    withdrawn: BTreeMap<FieldId, f64>,
    safe_points: u32,
    /// Marks hit by samples since trials were looked at.
    unjudged: u32,
    log: Rc<RefCell<Log>>,
}

impl<S: Samples> Advisor<S> {
    /// An advisor that has seen nothing, and what it will write down.
    #[must_use]
    pub fn new(samples: S, rules: Rules) -> (Self, Rc<RefCell<Log>>) {
        let log = Rc::new(RefCell::new(Log::default()));
        let advisor = Self {
            monitor: Monitor::new(
                MonitorRules { period: rules.period, ..MonitorRules::default() },
                samples.now(),
            ),
            trials: Trials::new(rules.trial),
            samples,
            rules,
            seen: BTreeMap::new(),
            hit: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            safe_points: 0,
            unjudged: 0,
            log: Rc::clone(&log),
        };
        (advisor, log)
    }

    fn look<O: Observer>(&mut self, heap: &mut Heap<O>, all: bool) {
        let samples = match self.samples.take(all) {
            Ok(samples) => samples,
            Err(error) => {
                self.log.borrow_mut().failed.get_or_insert(error);
                return;
            }
        };
        let now = self.samples.now();
        // Adding samples ends periods, too.
        let periods = self.monitor.periods();
        for sample in samples {
            self.add(heap, sample, now);
        }
        self.monitor.advance(now);
        let period_ends = self.monitor.periods() > periods;
        let is_clear = (self.unjudged >= JUDGED_EACH || period_ends) && self.judge(heap, now, period_ends);
        if period_ends {
            self.end_period(heap, now);
        } else if is_clear {
            // What had to wait for that may begin.
            self.advise(heap, now);
        }
    }

    fn add<O: Observer>(&mut self, heap: &Heap<O>, sample: Sample, now: u64) {
        let mut log = self.log.borrow_mut();
        log.samples += 1;
        let Some(found) = heap.attribute(sample.address) else {
            log.young += 1;
            return;
        };
        if let Some(field) = sample.field {
            *log.told.entry(field).or_default() += 1.0;
        }
        let Attribution { fields, bytes, offset, class, start, marks } = found;
        for mark in marks.iter() {
            self.trials.add(heap, mark, start);
            self.unjudged += 1;
        }
        *self.hit.entry(class).or_default() += 1.0;
        let interval = self.samples.interval();
        for (field, share) in fields {
            let weight = Weight::part(share, interval, false);
            log.weights.entry(field).or_default().add(weight);
            self.monitor.add(now, &field, share);
            let seen = self.seen.entry(field).or_default();
            seen.child = class;
            *seen.sizes.entry(bytes).or_default() += 1;
            *seen.offsets.entry(offset).or_default() += share;
        }
    }

    fn end_period<O: Observer>(&mut self, heap: &mut Heap<O>, now: u64) {
        if let Some(Intervention { field, gap, .. }) =
            self.rules.intervention.take_if(|planned| self.monitor.periods() >= planned.after_periods)
        {
            let pairing = Pairing { field: field.field, gap };
            self.trials.begin(heap, field, pairing);
            self.note(now, field, Action::Intervened(gap));
        }
        self.advise(heap, now);
        let series = self.monitor.fields().map(|(field, series)| (*field, series.clone())).collect();
        self.log.borrow_mut().series = series;
    }

    /// Acts upon what the trials have shown. Whether they have shown anything.
    fn judge<O: Observer>(&mut self, heap: &mut Heap<O>, now: u64, period_ends: bool) -> bool {
        self.unjudged = 0;
        let clear = self.trials.judge(heap, period_ends);
        for (field, outcome) in &clear {
            let action = match *outcome {
                Outcome::Helps(shown) => Action::Kept(shown),
                Outcome::Hurts(shown) => Action::Reverted(shown),
                Outcome::NotShown(shown) => Action::NotShown(shown),
            };
            if heap.advice().of(field.class).is_none() {
                let samples = self.log.borrow().weights.get(field).map_or(0.0, |weight| weight.samples);
                let again = matches!(outcome, Outcome::NotShown(_)).then_some(samples * AGAIN);
                self.withdrawn.insert(*field, again.unwrap_or(f64::INFINITY));
            }
            self.note(now, *field, action);
        }
        !clear.is_empty()
    }

    /// Puts the hottest field of each type for which nothing is advised on trial, if it is worth it. Fields whose pairs share objects are tried at
    /// the same time: each divides pairs by a chance of its own, so that what one changes is in both groups of the other.
    fn advise<O: Observer>(&mut self, heap: &mut Heap<O>, now: u64) {
        for field in self.worth_it(heap) {
            let is_new = heap.advice().of(field.class).is_none();
            if !is_new || !self.trials.may_begin() {
                continue;
            }
            let pairing = Pairing { field: field.field, gap: 0 };
            self.trials.begin(heap, field, pairing);
            self.note(now, field, Action::Advised);
        }
    }

    fn note(&self, now: u64, field: FieldId, action: Action) {
        let decision = Decision { period: self.monitor.periods(), time: now, field, action };
        self.log.borrow_mut().decisions.push(decision);
    }

    /// The fields that libhpm's rules speak for.
    fn worth_it<O: Observer>(&self, heap: &Heap<O>) -> Vec<FieldId> {
        let log = self.log.borrow();
        let types = heap.types();
        let named = |id: FieldId| Field::new(types[usize::from(id.class)].name, name_of(types, id));
        let fields: BTreeMap<Field, FieldId> = log.weights.keys().map(|id| (named(*id), *id)).collect();
        let is_withdrawn = |id: &FieldId, weight: &Weight| {
            self.withdrawn.get(id).is_some_and(|again| weight.samples < *again)
        };
        let candidates = log.weights.iter().filter(|(id, weight)| !is_withdrawn(id, weight));
        let candidates = candidates.map(|(id, weight)| {
            let own = self.hit.get(&id.class).copied().unwrap_or(0.0);
            candidate(types, *id, named(*id), *weight, own, &self.seen[id])
        });
        let all = Weight::part(log.samples as f64, self.samples.interval(), false);
        let program = 1.0 - self.samples.collector_share(heap.collecting());
        advise(candidates, all, &self.rules.advice)
            .into_iter()
            .filter(|advice| advice.verdict == Verdict::CoAllocate)
            .filter(|advice| advice.benefit.expected * program >= self.rules.gain_min)
            .filter_map(|advice| fields.get(&advice.candidate.pair.field).copied())
            .collect()
    }
}

fn name_of<'a>(types: &[&'a layout::Shape], id: FieldId) -> &'a str {
    types[usize::from(id.class)].fields()[usize::from(id.field)].name
}

/// A field of objects that have so many samples of their own.
fn candidate(
    types: &[&layout::Shape],
    id: FieldId,
    field: Field,
    weight: Weight,
    own: f64,
    seen: &Seen,
) -> Candidate {
    let (parent, child) = (types[usize::from(id.class)], types[usize::from(seen.child)]);
    let missed: f64 = seen.offsets.values().sum();
    Candidate {
        pair: Pair { field, child: Arc::from(child.name) },
        weight,
        parent: Shape { bytes: parent.bytes(0).unwrap_or(0).into(), array: false },
        child: Shape { bytes: median(&seen.sizes).into(), array: !matches!(child.body, Body::Fields { .. }) },
        field_offset: (HEADER_BYTES + WORD_BYTES * u32::from(id.field)).into(),
        missed_offsets: seen.offsets.iter().map(|(at, share)| (u64::from(*at), share / missed)).collect(),
        parent_samples: Some(own),
        lifetimes_match: None,
        together: None,
    }
}

/// The size in the middle.
fn median(sizes: &BTreeMap<u32, u64>) -> u32 {
    let all: u64 = sizes.values().sum();
    let mut seen = 0;
    let middle = sizes.iter().find(|(_, count)| {
        seen += **count;
        seen * 2 >= all
    });
    middle.map_or(0, |(bytes, _)| *bytes)
}

impl<O: Observer, S: Samples> Hook<O> for Advisor<S> {
    fn at_safe_point(&mut self, heap: &mut Heap<O>) {
        self.safe_points += 1;
        if self.safe_points.is_multiple_of(LOOK_EACH) {
            self.look(heap, false);
        }
    }

    fn before_collection(&mut self, heap: &mut Heap<O>) {
        self.look(heap, true);
    }
}
