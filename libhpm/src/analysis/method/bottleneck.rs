//! The bottleneck table (§5.3.2, Table 6): where instructions take longest, and which event stands out there.

use serde::Serialize;

use super::merge::{Merged, PhaseData};

/// What phases are put in order by, and how events are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// `cycles` per one of `instructions`; other events per 1,000 instructions, as published. Time per call where no cycles of the
    /// instructions' privilege were counted.
    Cpi,
    /// Where instructions were not counted: time per call, and events per ms.
    Time,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bottleneck {
    /// The function; `None` in the row of the whole program.
    pub function: Option<u32>,
    /// Part of the program's time, callees included.
    pub share: f64,
    /// Cycles per instruction; `None` where they were not counted.
    pub cpi: Option<f64>,
    /// Mean time of an invocation in ns; `None` for the whole.
    pub per_call_ns: Option<f64>,
    /// Each other event by [`Metric`], in the table's order; `None` where there is nothing to divide by.
    pub rates: Vec<Option<f64>>,
    /// The event whose rate exceeds the program's by the highest factor, and that factor; `None` where none exceeds it.
    pub cause: Option<(usize, f64)>,
}

/// The table.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bottlenecks {
    /// How rows are ordered.
    pub metric: Metric,
    /// The event that others are related to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// Names of the events in [`Bottleneck::rates`].
    pub events: Vec<String>,
    /// Those of them that were counted at another privilege than the base event: their rates are per ms.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub per_ms: Vec<String>,
    /// Phases with at least the asked part of the time, the worst first.
    pub rows: Vec<Bottleneck>,
    /// The whole program.
    pub whole: Bottleneck,
}

/// A rate is conspicuous when it is so many times the program's.
const STANDS_OUT: f64 = 1.1;

/// Makes the table of phases that take at least `least_share` of the time.
#[must_use]
pub fn bottlenecks(merged: &Merged, least_share: f64) -> Bottlenecks {
    let metric = if merged.base.is_some() { Metric::Cpi } else { Metric::Time };
    let cycles = merged.events.iter().find(|name| merged.is_cpi(name));
    let shown = |name: &&String| merged.base.as_ref() != Some(*name) && cycles != Some(*name);
    let events: Vec<String> = merged.events.iter().filter(shown).cloned().collect();
    let row = |counts: &std::collections::BTreeMap<String, f64>, time_ns: f64| {
        let count = |name: &str| counts.get(name).copied().filter(|count| !count.is_nan());
        let over = |count: f64, base: f64| (base > 0.0).then(|| count / base);
        let rate = |name: &String| match merged.base_of(name) {
            Some(base) => over(count(name)?, count(base)? / 1000.0),
            None => over(count(name)?, time_ns / 1e6),
        };
        Bottleneck {
            function: None,
            share: time_ns / merged.whole_ns,
            cpi: cycles.and_then(|name| over(count(name)?, count(merged.base_of(name)?)?)),
            per_call_ns: None,
            rates: events.iter().map(rate).collect(),
            cause: None,
        }
    };
    let whole = row(&merged.whole, merged.whole_ns);
    let of_phase = |phase: &PhaseData| {
        let mut row = row(&phase.counts, phase.time_ns);
        row.function = Some(phase.function);
        row.per_call_ns = (phase.calls > 0.0).then(|| phase.time_ns / phase.calls);
        row.cause = cause(&row.rates, &whole.rates);
        row
    };
    let mut rows: Vec<Bottleneck> =
        merged.phases.iter().map(of_phase).filter(|row| row.share >= least_share).collect();
    let worst = |row: &Bottleneck| if cycles.is_some() { row.cpi } else { row.per_call_ns }.unwrap_or(0.0);
    rows.sort_by(|a, b| worst(b).total_cmp(&worst(a)));
    let per_ms = |name: &&String| metric == Metric::Cpi && merged.base_of(name).is_none();
    let per_ms = events.iter().filter(per_ms).cloned().collect();
    Bottlenecks { metric, base: merged.base.clone(), events, per_ms, rows, whole }
}

fn cause(rates: &[Option<f64>], whole: &[Option<f64>]) -> Option<(usize, f64)> {
    let factor = |(place, (rate, whole)): (usize, (&Option<f64>, &Option<f64>))| {
        let factor = (*rate)? / (*whole).filter(|whole| *whole > 0.0)?;
        (factor >= STANDS_OUT).then_some((place, factor))
    };
    rates.iter().zip(whole).enumerate().filter_map(factor).max_by(|a, b| a.1.total_cmp(&b.1))
}
