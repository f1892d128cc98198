//! Layouts on trial: each change is made for some pairs only, until their misses show whether it is any good.
//!
//! `libhpm::analysis::coallocation::Trial` judges. A layout that helps is then given to nearly all pairs; the few that are left as they were
//! show from then on whether it still does. One that hurts, or of which nothing is shown by as many samples as a trial may
//! have, is taken back.

use std::collections::BTreeMap;

use libhpm::analysis::coallocation::{Effect, Exposure, Trial, TrialRules};

use super::groups::Allotment;
use super::{Advice, Mark, Pairing};
use crate::heap::Heap;
use crate::layout::FieldId;
use crate::observe::Observer;

/// Pairs of 16 that get a layout of which nothing is known: half of them would show the most, fewer cost less where it is bad.
const TRIED: u32 = 4;
/// Pairs of 16 that get a layout that helps. The last one shows whether it still does.
const KEPT: u32 = 15;

/// A fall of a pair's misses that is promising.
const PROMISING: f64 = 0.125;

/// What a trial has shown.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shown {
    /// How the misses of a pair with the layout differ from those of one without, as a share of these: low end, likeliest, high
    /// end of the 95 % interval. `None` where no pair was hit by a sample.
    pub change: Option<(f64, f64, f64)>,
    /// Samples of each group.
    pub samples: Exposure,
    /// Pairs of each group.
    pub pairs: Exposure,
}

/// What a trial says now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    /// The layout helps: nearly all pairs get it.
    Helps(Shown),
    /// It does harm: it is taken back.
    Hurts(Shown),
    /// Nothing was shown, and the trial has lasted long enough: it is taken back.
    NotShown(Shown),
}

/// A layout that is compared with what was before.
#[derive(Debug)]
struct Running {
    trial: Trial,
    number: u16,
    /// It has helped, and most pairs have it.
    kept: bool,
    /// What was advised before.
    before: Option<Pairing>,
}

/// All trials of a heap.
#[derive(Debug)]
pub(super) struct Trials {
    rules: TrialRules,
    last: u16,
    running: BTreeMap<FieldId, Running>,
}

impl Trials {
    pub(super) fn new(rules: TrialRules) -> Self {
        Self { rules, last: 0, running: BTreeMap::new() }
    }

    /// Whether headers have numbers left for another change.
    pub(super) fn may_begin(&self) -> bool {
        // Two for each change, and one for its reversal.
        self.last < Mark::TRIALS_MAX - 3
    }

    /// Changes what is advised for a field's type, for a quarter of the pairs.
    pub(super) fn begin<O: Observer>(&mut self, heap: &mut Heap<O>, field: FieldId, pairing: Pairing) {
        let before = heap.advice().of(field.class);
        self.advise(heap, field, Some(pairing));
        self.run(heap, field, before, false);
    }

    /// A sample that hit a marked object.
    pub(super) fn add<O: Observer>(&mut self, heap: &Heap<O>, mark: Mark, object: u32) {
        if let Some(running) = self.running.values_mut().find(|running| running.number == mark.trial) {
            running.trial.add(mark.group, object.into(), heap.exposure(mark.trial));
        }
    }

    /// What has become clear, which is acted upon. Layouts that are kept are looked at when a period ends: their trials never do, and weighing
    /// each sample by itself takes some 4000 instructions.
    pub(super) fn judge<O: Observer>(
        &mut self,
        heap: &mut Heap<O>,
        period_ends: bool,
    ) -> Vec<(FieldId, Verdict)> {
        let running = self.running.iter_mut();
        let clear: Vec<(FieldId, Verdict)> = running
            .filter(|(_, running)| period_ends || !running.kept)
            .filter_map(|(field, running)| Some((*field, running.verdict()?)))
            .collect();
        for (field, verdict) in &clear {
            let Some(running) = self.running.remove(field) else { continue };
            match verdict {
                Verdict::Helps(_) => self.run(heap, *field, running.before, true),
                Verdict::Hurts(_) | Verdict::NotShown(_) => self.take_back(heap, *field, running.before),
            }
        }
        clear
    }

    fn take_back<O: Observer>(&mut self, heap: &mut Heap<O>, field: FieldId, before: Option<Pairing>) {
        self.advise(heap, field, before);
        heap.put_on_trial(field.class, None);
        // What was there before had its own control group.
        if before.is_some_and(|before| before.field == field.field) {
            self.run(heap, field, None, true);
        }
    }

    fn advise<O: Observer>(&self, heap: &mut Heap<O>, field: FieldId, pairing: Option<Pairing>) {
        let mut advice: Advice = heap.advice().clone();
        advice.set(field.class, pairing);
        heap.advise(advice);
    }

    /// Puts what is advised for a field on trial against what was before.
    fn run<O: Observer>(&mut self, heap: &mut Heap<O>, field: FieldId, before: Option<Pairing>, kept: bool) {
        self.last += 1;
        let number = self.last;
        let treated = if kept { KEPT } else { TRIED };
        let control = before.filter(|before| before.field == field.field).map(|before| before.gap);
        heap.put_on_trial(field.class, Some(Allotment { trial: number, treated, control }));
        let trial = Trial::new(self.rules);
        let running = Running { trial, number, kept, before };
        self.running.insert(field, running);
    }
}

impl Running {
    fn verdict(&mut self) -> Option<Verdict> {
        let effect = self.trial.effect();
        let trial = &mut self.trial;
        let shown = Shown { change: trial.change(), samples: trial.samples(), pairs: trial.exposure() };
        match effect {
            Effect::Hurt { .. } => Some(Verdict::Hurts(shown)),
            Effect::Helped { .. } if !self.kept => Some(Verdict::Helps(shown)),
            _ if self.kept && self.trial.is_full() => {
                // What it was good for long ago does not excuse it now.
                self.trial.restart();
                None
            }
            _ if self.kept => None,
            _ if self.trial.is_over() && !self.is_promising() => Some(Verdict::NotShown(shown)),
            _ => None,
        }
    }

    /// Whether it probably helps, although that is not shown: few pairs have it, so that going on costs little.
    fn is_promising(&mut self) -> bool {
        self.trial.change().is_some_and(|(_, likeliest, _)| likeliest <= -PROMISING)
    }
}
