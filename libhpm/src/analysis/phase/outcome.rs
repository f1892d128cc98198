//! What a whole stream says: its repetitive phases, or why it has none.

use std::collections::BTreeMap;

use serde::Serialize;
use thiserror::Error;

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
/// Shuffled streams that the stream is compared with: the probability of phases by chance is below 1 in 100.
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
        "{gaps} of {intervals} intervals cannot be compared with the one before, because quanta were lost"
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
    #[error("none of the {patterns} patterns came back when it was predicted")]
    NoRepetition {
        /// Different patterns.
        patterns: usize,
    },
    /// The same intervals in random order repeat themselves as often.
    #[error(
        "patterns came back when predicted {found} times, and in random order up to {by_chance} times: that is chance"
    )]
    Chance {
        /// Predicted repetitions in the stream.
        found: usize,
        /// The most predicted repetitions in a shuffled stream.
        by_chance: usize,
    },
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
    /// The most predicted repetitions in the same intervals in random order.
    pub by_chance: usize,
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
        let mut longest: Vec<Option<Span>> = vec![None; self.steps.len()];
        let length = |span: &Span| span.last - span.first;
        for span in &self.spans {
            for place in &mut longest[span.first as usize..=span.last as usize] {
                if place.is_none_or(|other| length(span) > length(&other)) {
                    *place = Some(*span);
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
pub fn find_phases(signal: Signal, intervals: &[Interval]) -> Result<Phases, NoPhases> {
    if intervals.len() < INTERVALS_MIN {
        return Err(NoPhases::TooFew { intervals: intervals.len(), needed: INTERVALS_MIN });
    }
    let mut detector = Detector::new(signal);
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
    let by_chance = repetitions_by_chance(signal, intervals);
    if spans.len() <= by_chance {
        return Err(NoPhases::Chance { found: spans.len(), by_chance });
    }
    let (prediction, replaced) = (detector.prediction(), detector.database().replaced());
    Ok(Phases { steps, patterns, spans, prediction, by_chance, replaced })
}

fn summarise(steps: &[Step]) -> (Vec<PatternSummary>, Vec<Span>) {
    struct Seen {
        last: Occurrence,
        occurrences: usize,
        repetitive: usize,
        time: u64,
    }
    let mut seen: BTreeMap<PatternKey, Seen> = BTreeMap::new();
    let mut spans = Vec::new();
    for &occurrence in steps.iter().filter_map(|step| step.occurrence.as_ref()) {
        let fresh = Seen { last: occurrence, occurrences: 0, repetitive: 0, time: 0 };
        let pattern = seen.entry(occurrence.key).or_insert(fresh);
        if occurrence.repetitive {
            pattern.repetitive += 1;
            pattern.time += occurrence.at - pattern.last.at;
            let (first, last) = (pattern.last.first, occurrence.first - 1);
            spans.push(Span { key: occurrence.key, first, last });
        }
        pattern.occurrences += 1;
        pattern.last = occurrence;
    }
    let summary = |(key, pattern): (PatternKey, Seen)| PatternSummary {
        key,
        occurrences: pattern.occurrences,
        repetitive: pattern.repetitive,
        mean_length: pattern.time.checked_div(pattern.repetitive as u64),
    };
    let mut patterns: Vec<PatternSummary> = seen.into_iter().map(summary).collect();
    patterns.sort_by_key(|pattern| std::cmp::Reverse((pattern.repetitive, pattern.occurrences)));
    (patterns, spans)
}

/// The most predicted repetitions that the same intervals show in random order. Gaps stay where they are.
fn repetitions_by_chance(signal: Signal, intervals: &[Interval]) -> usize {
    let mut random = Random::new(SEED);
    let mut order: Vec<usize> = (0..intervals.len()).collect();
    let mut most = 0;
    for _ in 0..SHUFFLES {
        random.shuffle(&mut order);
        let mut detector = Detector::new(signal);
        let repetitive = |(place, &from): (usize, &usize)| {
            let interval = Interval { after_gap: intervals[place].after_gap, ..intervals[from] };
            detector.push(&interval).occurrence.is_some_and(|occurrence| occurrence.repetitive)
        };
        most = most.max(order.iter().enumerate().map(repetitive).filter(|&repetitive| repetitive).count());
    }
    most
}
