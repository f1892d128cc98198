//! Repeated runs taken together: counters are few, so each group of events has runs of its own, and each run is repeated and
//! averaged (§2.2: four times).

use std::collections::BTreeMap;

use super::privilege::same_privilege;
use super::{Counts, MAX_COUNTS};
use crate::event::privilege;

/// One measured invocation of a phase.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// The function.
    pub function: u32,
    /// Which thread of the run, in the order in which threads began.
    pub thread: u32,
    /// Time since the run's begin at which it was entered, in ns.
    pub at_ns: u64,
    /// Time in it, in ns.
    pub time_ns: f64,
    /// No invocation of the same function surrounds it.
    pub outermost: bool,
    /// What was counted, in the order of the run's events.
    pub counts: Counts,
}

/// One run of the program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// Names of the events that were counted.
    pub events: Vec<String>,
    /// Its invocations of phases.
    pub observations: Vec<Observation>,
    /// Time of all threads in ns, and all that they counted.
    pub whole_ns: f64,
    /// See `whole_ns`.
    pub whole: Counts,
}

/// A phase over all runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PhaseData {
    /// The function.
    pub function: u32,
    /// Invocations, on average over runs.
    pub calls: f64,
    /// Time of outermost invocations, in ns, on average over runs.
    pub time_ns: f64,
    /// Each event's count in outermost invocations, on average over the runs that counted it.
    pub counts: BTreeMap<String, f64>,
    /// For each event its values in single invocations, in events per so many of the base event (or per ms) as [`merge`] was
    /// told: means over runs where these agree in the number of invocations, else those of the first run that counted it.
    pub rates: BTreeMap<String, Vec<f64>>,
    /// When each of these invocations began, in ns of the first run that counted the event.
    pub begins: BTreeMap<String, Vec<u64>>,
    /// The runs differ in the number of invocations, so that single ones could not be averaged.
    pub differs: bool,
}

/// All runs taken together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Merged {
    /// The event that others of its privilege are related to.
    pub base: Option<String>,
    /// Names of all events, in the order of their first runs.
    pub events: Vec<String>,
    /// How many runs counted each event.
    pub runs: BTreeMap<String, u32>,
    /// Phases, the one with most time first.
    pub phases: Vec<PhaseData>,
    /// The program's time in ns, on average over runs.
    pub whole_ns: f64,
    /// Each event in the whole program, on average over the runs that counted it.
    pub whole: BTreeMap<String, f64>,
}

impl Merged {
    /// What this event's rates are related to: the base event if that was counted at the same privilege; else they are per ms.
    #[must_use]
    pub fn base_of(&self, event: &str) -> Option<&str> {
        self.base.as_deref().filter(|base| same_privilege(base, event))
    }

    /// Whether this event's rate is CPI: cycles at the privilege of the instructions.
    #[must_use]
    pub fn is_cpi(&self, event: &str) -> bool {
        privilege(event).0 == "cycles" && self.base_of(event).is_some()
    }
}

/// What one event is in one invocation: per thousand of the base event where there is one, per ms otherwise. The event `cycles` is per
/// one of `instructions`. `None` where there is nothing to divide by.
fn rate(events: &[String], place: usize, base: Option<&str>, counts: &Counts, time_ns: f64) -> Option<f64> {
    let Some(base) = base else {
        return (time_ns > 0.0).then(|| counts[place] as f64 / (time_ns / 1e6));
    };
    let base = counts[events.iter().position(|name| name == base)?];
    (base > 0).then(|| counts[place] as f64 / base as f64)
}

/// Takes runs together. With a base event rates are events per base event, of runs that counted both; without one, and of events of another
/// privilege than the base's, they are events per ms. The base event itself has the rate of its inverse left to the caller.
#[must_use]
pub fn merge(runs: &[Run], base: Option<&str>) -> Merged {
    let whole_ns = mean(runs.iter().map(|run| run.whole_ns));
    let mut merged = Merged { base: base.map(str::to_owned), whole_ns, ..Merged::default() };
    for name in runs.iter().flat_map(|run| run.events.iter().take(MAX_COUNTS)) {
        *merged.runs.entry(name.clone()).or_default() += 1;
        if !merged.events.contains(name) {
            merged.events.push(name.clone());
        }
    }
    for name in &merged.events {
        let counted = runs.iter().filter_map(|run| Some(run.whole[place_of(run, name)?] as f64));
        merged.whole.insert(name.clone(), mean(counted));
    }
    let mut functions: Vec<u32> =
        runs.iter().flat_map(|run| run.observations.iter().map(|seen| seen.function)).collect();
    functions.sort_unstable();
    functions.dedup();
    merged.phases = functions.into_iter().map(|function| phase(runs, &merged, function)).collect();
    merged.phases.sort_by(|a, b| b.time_ns.total_cmp(&a.time_ns));
    merged
}

fn place_of(run: &Run, name: &str) -> Option<usize> {
    run.events.iter().take(MAX_COUNTS).position(|event| event == name)
}

fn phase(runs: &[Run], merged: &Merged, function: u32) -> PhaseData {
    // By thread, then in order of time, so that the k-th of one run is the k-th of another.
    let of_run = |run: &Run| -> Vec<Observation> {
        let mut own: Vec<Observation> =
            run.observations.iter().filter(|seen| seen.function == function).copied().collect();
        own.sort_by_key(|seen| (seen.thread, seen.at_ns));
        own
    };
    let own: Vec<Vec<Observation>> = runs.iter().map(of_run).collect();
    let outer = |seen: &&Observation| seen.outermost;
    let time = |seen: &Vec<Observation>| seen.iter().filter(outer).map(|seen| seen.time_ns).sum::<f64>();
    let mut data = PhaseData {
        function,
        calls: mean(own.iter().map(|seen| seen.len() as f64)),
        time_ns: mean(own.iter().map(time)),
        ..PhaseData::default()
    };
    for name in &merged.events {
        let base = merged.base_of(name);
        let counted: Vec<(&Run, usize, &Vec<Observation>)> =
            runs.iter().zip(&own).filter_map(|(run, seen)| Some((run, place_of(run, name)?, seen))).collect();
        let sum = |(_, place, seen): &(&Run, usize, &Vec<Observation>)| {
            seen.iter().filter(outer).map(|seen| seen.counts[*place] as f64).sum::<f64>()
        };
        data.counts.insert(name.clone(), mean(counted.iter().map(sum)));
        let rates_of = |(run, place, seen): &(&Run, usize, &Vec<Observation>)| -> Vec<Option<f64>> {
            seen.iter().map(|seen| rate(&run.events, *place, base, &seen.counts, seen.time_ns)).collect()
        };
        let rates: Vec<Vec<Option<f64>>> = counted.iter().map(rates_of).collect();
        let Some((first, others)) = rates.split_first() else { continue };
        let agree = others.iter().all(|other| other.len() == first.len());
        data.differs |= !agree;
        let begins = counted.first().map_or(&[][..], |(_, _, seen)| seen.as_slice());
        let known = (0..first.len()).filter_map(|at| {
            let of_runs = rates[..if agree { rates.len() } else { 1 }].iter().filter_map(|run| run[at]);
            let value = mean(of_runs);
            (!value.is_nan()).then_some((value, begins[at].at_ns))
        });
        let (values, times) = known.unzip();
        data.rates.insert(name.clone(), values);
        data.begins.insert(name.clone(), times);
    }
    data
}

/// NaN for no value.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (sum, count) = values.fold((0.0, 0.0), |(sum, count), value| (sum + value, count + 1.0));
    sum / count
}
