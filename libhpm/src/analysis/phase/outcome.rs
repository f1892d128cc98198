//! What a whole stream says: its repetitive phases, or why it has none.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use serde::Serialize;
use thiserror::Error;

use super::Rules;
use super::channel::Prediction;
use super::detector::{Detector, Occurrence, Step};
use super::interval::{Disorder, Interval};
use super::level::Signal;
use super::shape::PatternKey;
use super::synthetic::Random;

/// Fewer intervals than these cannot show the same pattern three times (the second occurrence predicts, the third confirms).
const INTERVALS_MIN: usize = 24;
/// More intervals than this part that cannot be compared with the one before make the rest worthless.
const GAPS_MAX: f64 = 0.5;
/// Shuffled streams that the stream is compared with: were the order of its stretches chance, it would have more repetitions than all
/// of them in 1 case of 100.
const SHUFFLES: usize = 99;
/// The shuffles are the same each time.
const SEED: u64 = 0x9E37_79B9_7F4A_7C15;

/// Why there are no phases.
#[derive(Clone, Copy, Debug, PartialEq, Error, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum NoPhases {
    /// Too few intervals.
    #[error("only {intervals} intervals, and {needed} are needed")]
    TooFew {
        /// Intervals there are.
        intervals: usize,
        /// Intervals needed.
        needed: usize,
    },
    /// Time went backwards.
    #[error("the quanta are not in order of time: {message}")]
    #[serde(serialize_with = "disorder")]
    Disorder {
        /// What is wrong.
        message: Disorder,
    },
    /// So much is missing that variations are not known.
    #[error(
        "{gaps} of {intervals} intervals cannot be compared with the one before, because quanta were lost or another session's"
    )]
    Gaps {
        /// Intervals after a gap, and intervals without any time on a CPU.
        gaps: usize,
        /// Intervals there are.
        intervals: usize,
    },
    /// No variation reaches level 1.
    #[error(
        "the event density is constant: it never varies by a tenth of its mean from one interval to the next"
    )]
    Constant,
    /// No pattern came back when predicted.
    #[error("{}", never_came_back(*patterns))]
    NoRepetition {
        /// Different patterns.
        patterns: usize,
    },
    /// The same stretches in random order repeat themselves as often.
    #[error("{found}, and in random order {by_chance}: that is chance")]
    Chance {
        /// What the stream shows.
        found: Repeating,
        /// The most that shuffled streams show.
        by_chance: ByChance,
    },
}

fn never_came_back(patterns: usize) -> String {
    match patterns {
        1 => "the only pattern did not come back when it was predicted".to_owned(),
        _ => format!("none of the {patterns} patterns came back when it was predicted"),
    }
}

/// How much repeats as predicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Repeating {
    /// Repetitions that came when predicted.
    pub repetitions: usize,
    /// Occurrences of all patterns.
    pub occurrences: usize,
    /// Intervals that belong to at least one repetition.
    pub intervals: usize,
}

impl Repeating {
    /// The part of the occurrences that came when predicted.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.repetitions as f64 / self.occurrences.max(1) as f64
    }

    /// Whether chance brings that about as well. Both have to be more: where stretches that are alike come together there are fewer
    /// occurrences, so that fewer repetitions alone say little; and of few occurrences a large part is soon as predicted.
    fn is_chance(&self, by_chance: &ByChance) -> bool {
        self.repetitions <= by_chance.repetitions || self.share() <= by_chance.share
    }
}

/// `32 of 107 occurrences came when predicted (29.9 %)`.
impl fmt::Display for Repeating {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { repetitions, occurrences, .. } = self;
        write!(
            f,
            "{repetitions} of {occurrences} occurrences came when predicted ({:.1} %)",
            100.0 * self.share()
        )
    }
}

/// The most that shuffled streams show: each is the most of any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ByChance {
    /// Repetitions that came when predicted.
    pub repetitions: usize,
    /// The part of the occurrences that came when predicted.
    pub share: f64,
}

/// `up to 21 (up to 17.5 %)`.
impl fmt::Display for ByChance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "up to {} (up to {:.1} %)", self.repetitions, 100.0 * self.share)
    }
}

fn disorder<S: serde::Serializer>(message: &Disorder, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(message)
}

/// One pattern of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatternSummary {
    /// Which.
    pub key: PatternKey,
    /// How often it occurred.
    pub occurrences: usize,
    /// How often it came as predicted: repetitive phases.
    pub repetitive: usize,
    /// The mean time of its repetitions that came as predicted, in TSC ticks on a CPU.
    pub mean_length: Option<u64>,
}

/// One repetition that came as predicted: from an occurrence of a pattern to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which pattern.
    pub key: PatternKey,
    /// Index of its first interval.
    pub first: u64,
    /// Index of its last interval.
    pub last: u64,
}

/// The repetitive phases of a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Phases {
    /// What each interval brought.
    pub steps: Vec<Step>,
    /// Patterns, the most often repeated first.
    pub patterns: Vec<PatternSummary>,
    /// Repetitions, in the order in which they ended.
    pub spans: Vec<Span>,
    /// What would be expected next of the whole.
    pub prediction: Option<Prediction>,
    /// How many these are.
    pub repeating: Repeating,
    /// The most that the same stretches show in random order.
    pub by_chance: ByChance,
    /// Patterns that the database had no room for.
    pub replaced: u64,
}

impl Phases {
    /// All occurrences of patterns.
    pub fn occurrences(&self) -> impl Iterator<Item = &Occurrence> {
        self.steps.iter().filter_map(|step| step.occurrence.as_ref())
    }

    /// For each interval the pattern whose repetition it belongs to; of several the longest repetition, which says most.
    #[must_use]
    pub fn labels(&self) -> Vec<Option<PatternKey>> {
        let mut longest: Vec<Option<&Span>> = vec![None; self.steps.len()];
        for span in &self.spans {
            for place in &mut longest[span.first as usize..=span.last as usize] {
                if place.is_none_or(|other| span.last - span.first > other.last - other.first) {
                    *place = Some(span);
                }
            }
        }
        longest.iter().map(|span| span.map(|span| span.key)).collect()
    }
}

/// Finds the repetitive phases of a stream.
///
/// # Errors
/// [`NoPhases`] with the reason: there is nothing, or nothing that chance does not bring about as well.
pub fn find_phases(rules: Rules, signal: Signal, intervals: &[Interval]) -> Result<Phases, NoPhases> {
    if intervals.len() < INTERVALS_MIN {
        return Err(NoPhases::TooFew { intervals: intervals.len(), needed: INTERVALS_MIN });
    }
    let mut detector = Detector::new(rules, signal);
    let steps: Vec<Step> = intervals.iter().map(|interval| detector.push(interval)).collect();
    let gaps = steps.iter().skip(1).filter(|step| step.variation.is_none()).count();
    if gaps as f64 > GAPS_MAX * intervals.len() as f64 {
        return Err(NoPhases::Gaps { gaps, intervals: intervals.len() });
    }
    if !steps.iter().filter_map(|step| step.variation).any(|variation| variation.level > 0) {
        return Err(NoPhases::Constant);
    }
    let (patterns, spans) = summarise(&steps);
    if spans.is_empty() {
        return Err(NoPhases::NoRepetition { patterns: patterns.len() });
    }
    let repeating = repeating(&patterns, &spans);
    let by_chance = by_chance(rules, signal, intervals, &steps);
    if repeating.is_chance(&by_chance) {
        return Err(NoPhases::Chance { found: repeating, by_chance });
    }
    let (prediction, replaced) = (detector.prediction(), detector.database().replaced());
    Ok(Phases { steps, patterns, spans, prediction, repeating, by_chance, replaced })
}

/// Counts spans, which come in the order of their ends, and the intervals in them.
fn repeating(patterns: &[PatternSummary], spans: &[Span]) -> Repeating {
    let mut intervals = 0;
    // From the last to the first: what begins later is counted already.
    let mut counted_from = u64::MAX;
    for span in spans.iter().rev() {
        let end = (span.last + 1).min(counted_from);
        intervals += end.saturating_sub(span.first);
        counted_from = counted_from.min(span.first);
    }
    let occurrences = patterns.iter().map(|pattern| pattern.occurrences).sum();
    Repeating { repetitions: spans.len(), occurrences, intervals: intervals as usize }
}

fn summarise(steps: &[Step]) -> (Vec<PatternSummary>, Vec<Span>) {
    #[derive(Default)]
    struct Seen {
        /// Times and first intervals of all occurrences.
        places: Vec<(u64, u64)>,
        repetitive: usize,
        time: u64,
    }
    let mut seen: BTreeMap<PatternKey, Seen> = BTreeMap::new();
    let mut spans = Vec::new();
    for occurrence in steps.iter().filter_map(|step| step.occurrence.as_ref()) {
        let pattern = seen.entry(occurrence.key).or_default();
        if let Some(length) = occurrence.repeats {
            pattern.repetitive += 1;
            pattern.time += length;
            let repeated = pattern.places.iter().rev().find(|(at, _)| at + length == occurrence.at);
            spans.extend(repeated.map(|&(_, first)| Span {
                key: occurrence.key,
                first,
                last: occurrence.first - 1,
            }));
        }
        pattern.places.push((occurrence.at, occurrence.first));
    }
    let summary = |(key, pattern): (PatternKey, Seen)| PatternSummary {
        key,
        occurrences: pattern.places.len(),
        repetitive: pattern.repetitive,
        mean_length: pattern.time.checked_div(pattern.repetitive as u64),
    };
    let mut patterns: Vec<PatternSummary> = seen.into_iter().map(summary).collect();
    patterns.sort_by_key(|pattern| std::cmp::Reverse((pattern.repetitive, pattern.occurrences)));
    (patterns, spans)
}

/// The most that the same stretches show in random order. Intervals keep their neighbours but where something changed: single ones
/// in random order have no stretches at all, and vary so much that the noise gate lets little pass. Gaps stay where they are.
fn by_chance(rules: Rules, signal: Signal, intervals: &[Interval], steps: &[Step]) -> ByChance {
    let mut random = Random::new(SEED);
    let mut blocks = blocks(intervals, steps);
    let mut most = ByChance::default();
    for _ in 0..SHUFFLES {
        let mut detector = Detector::new(rules, signal);
        blocks.iter_mut().for_each(|stretches| random.shuffle(stretches));
        let order = blocks.iter().flatten().cloned().flatten();
        let step = |(place, from): (usize, usize)| {
            detector.push(&Interval { after_gap: intervals[place].after_gap, ..intervals[from] })
        };
        let steps: Vec<Step> = order.enumerate().map(step).collect();
        let (patterns, spans) = summarise(&steps);
        let found = repeating(&patterns, &spans);
        most.repetitions = most.repetitions.max(found.repetitions);
        most.share = most.share.max(found.share());
    }
    most
}

/// What lies between two gaps, as the stretches in which no variation is of a level above 0.
fn blocks(intervals: &[Interval], steps: &[Step]) -> Vec<Vec<Range<usize>>> {
    let mut blocks: Vec<Vec<Range<usize>>> = Vec::new();
    for (place, (interval, step)) in intervals.iter().zip(steps).enumerate() {
        let changes = step.variation.is_some_and(|variation| variation.level > 0);
        if interval.after_gap || blocks.is_empty() {
            blocks.push(Vec::new());
        }
        let Some(stretches) = blocks.last_mut() else { continue };
        match stretches.last_mut() {
            Some(stretch) if !changes => stretch.end = place + 1,
            _ => stretches.push(place..place + 1),
        }
    }
    blocks
}
