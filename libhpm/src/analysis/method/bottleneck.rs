//! The bottleneck table (§5.3.2, Table 6): where instructions take longest, and which event stands out there.

use serde::Serialize;

use super::merge::{Merged, PhaseData};

/// What phases are put in order by, and how events are related.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// `cycles` per one of `instructions`; other events per 1,000 instructions, as published.
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
    /// Names of the events in [`Bottleneck::rates`].
    pub events: Vec<String>,
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
    let has = |name: &str| merged.events.iter().any(|event| event == name);
    let metric = if has("instructions") { Metric::Cpi } else { Metric::Time };
    let shown = |name: &&String| !(metric == Metric::Cpi && (*name == "instructions" || *name == "cycles"));
    let events: Vec<String> = merged.events.iter().filter(shown).cloned().collect();
    let row = |counts: &std::collections::BTreeMap<String, f64>, time_ns: f64| {
        let count = |name: &str| counts.get(name).copied().filter(|count| !count.is_nan());
        let base = match metric {
            Metric::Cpi => count("instructions").unwrap_or(0.0) / 1000.0,
            Metric::Time => time_ns / 1e6,
        };
        let over = |count: f64, base: f64| (base > 0.0).then(|| count / base);
        Bottleneck {
            function: None,
            share: time_ns / merged.whole_ns,
            cpi: match metric {
                Metric::Cpi => count("cycles").and_then(|cycles| over(cycles, base * 1000.0)),
                Metric::Time => None,
            },
            per_call_ns: None,
            rates: events.iter().map(|name| over(count(name)?, base)).collect(),
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
    let worst = |row: &Bottleneck| row.cpi.or(row.per_call_ns).unwrap_or(0.0);
    rows.sort_by(|a, b| worst(b).total_cmp(&worst(a)));
    Bottlenecks { metric, events, rows, whole }
}

fn cause(rates: &[Option<f64>], whole: &[Option<f64>]) -> Option<(usize, f64)> {
    let factor = |(place, (rate, whole)): (usize, (&Option<f64>, &Option<f64>))| {
        let factor = (*rate)? / (*whole).filter(|whole| *whole > 0.0)?;
        (factor >= STANDS_OUT).then_some((place, factor))
    };
    rates.iter().zip(whole).enumerate().filter_map(factor).max_by(|a, b| a.1.total_cmp(&b.1))
}
