//! What names mean for a record.

use std::collections::BTreeMap;

use super::{Record, Records};
use crate::analysis::expression::{Expression, ExpressionError, Kind, Scope, Value};
use crate::event;

/// What can be asked of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // VARIABLES says what each of them is.
pub enum Variable {
    /// What the event with this index counted.
    Count(usize),
    Start,
    End,
    Duration,
    Cpu,
    Pid,
    Tid,
    Samples,
    Lost,
    SinceMarker,
    UntilMarker,
    Thread,
    Function,
    HowEnded,
    LastMarker,
    NextMarker,
}

impl Variable {
    /// Its value of a record, if it is one of those that can be added over records.
    #[must_use]
    pub fn added(self, record: &Record) -> Option<u64> {
        match self {
            Self::Count(index) => record.counts.get(index).copied(),
            Self::Duration => Some(record.duration_ns()),
            Self::Samples => Some(record.samples.into()),
            Self::Lost => Some(record.lost),
            _ => None,
        }
    }
}

/// A name, its variable, its kind, and what it is.
pub type Named = (&'static str, Variable, Kind, &'static str);

/// The variables of every record; the names of events come to them.
pub const VARIABLES: [Named; 15] = [
    ("duration_ns", Variable::Duration, Kind::Number, "length of the record"),
    ("start_ns", Variable::Start, Kind::Number, "start since the trace's first record"),
    ("end_ns", Variable::End, Kind::Number, "end since then"),
    ("cpu", Variable::Cpu, Kind::Number, "logical CPU"),
    ("pid", Variable::Pid, Kind::Number, "process"),
    ("tid", Variable::Tid, Kind::Number, "thread"),
    ("samples", Variable::Samples, Kind::Number, "samples in the record"),
    ("lost", Variable::Lost, Kind::Number, "samples that were lost"),
    ("since_marker_ns", Variable::SinceMarker, Kind::Number, "from the last marker to the record's end"),
    ("until_marker_ns", Variable::UntilMarker, Kind::Number, "from the record's end to the next marker"),
    ("thread", Variable::Thread, Kind::Text, "the thread's name"),
    ("function", Variable::Function, Kind::Text, "the function in which the record ended"),
    ("end", Variable::HowEnded, Kind::Text, "yielded, preempted, exited or cut (the thread ran on)"),
    ("last_marker", Variable::LastMarker, Kind::Text, "name of the last marker before the record's end"),
    ("next_marker", Variable::NextMarker, Kind::Text, "name of the next marker"),
];

/// Metrics that everybody wants; each can be had where its events were counted.
pub const BUILT_IN: [(&str, &str); 10] = [
    ("ipc", "instructions / cycles"),
    ("cpi", "cycles / instructions"),
    ("ghz", "cycles / duration_ns"),
    ("mips", "instructions / duration_ns * 1000"),
    ("branch_miss_rate", "branch-misses / branches"),
    ("branch_mpki", "branch-misses / instructions * 1000"),
    ("l1d_mpki", "l1d-load-miss / instructions * 1000"),
    ("l2_mpki", "l2-load-miss / instructions * 1000"),
    ("llc_mpki", "l3-load-miss / instructions * 1000"),
    ("faults_per_ms", "page-faults / duration_ns * 1M"),
];

/// Metrics and sets that somebody has named.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Definitions(BTreeMap<String, Expression>);

impl Definitions {
    /// Names an expression; it replaces one of the same name.
    ///
    /// # Errors
    /// [`ExpressionError`] when it cannot be read.
    pub fn define(&mut self, name: &str, text: &str) -> Result<(), ExpressionError> {
        self.0.insert(name.to_owned(), Expression::parse(text)?);
        Ok(())
    }

    /// All names with their expressions.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, expression)| (name.as_str(), expression.text()))
    }
}

/// What a name means where each type of a hybrid processor's cores has an event of its own by it: their sum.
#[must_use]
pub fn of_each_core(name: &str, events: &[String]) -> Option<Expression> {
    let quoted = event::on_each_core(name, events)?.into_iter().map(|event| format!("`{event}`"));
    Expression::parse(&quoted.collect::<Vec<_>>().join(" + ")).ok()
}

/// The names that hold for the records of a trace.
#[derive(Clone, Copy, Debug)]
pub struct RecordScope<'a> {
    records: &'a Records,
    definitions: &'a Definitions,
}

impl<'a> RecordScope<'a> {
    /// Events, the variables of every record, what was defined, and the built-in metrics, in this order.
    #[must_use]
    pub fn new(records: &'a Records, definitions: &'a Definitions) -> Self {
        Self { records, definitions }
    }
}

impl Scope for RecordScope<'_> {
    type Variable = Variable;

    fn variable(&self, name: &str) -> Option<(Variable, Kind)> {
        if let Some(index) = event::place(name, self.records.events()) {
            return Some((Variable::Count(index), Kind::Number));
        }
        let named = VARIABLES.iter().find(|(known, ..)| *known == name);
        named.map(|(_, variable, kind, _)| (*variable, *kind))
    }

    fn definition(&self, name: &str) -> Option<Expression> {
        if let Some(defined) = self.definitions.0.get(name) {
            return Some(defined.clone());
        }
        match BUILT_IN.iter().find(|(known, _)| *known == name) {
            Some((_, text)) => Expression::parse(text).ok(),
            None => of_each_core(name, self.records.events()),
        }
    }

    fn names(&self) -> Vec<String> {
        let events = self.records.events().iter().cloned();
        let variables = VARIABLES.iter().map(|(name, ..)| (*name).to_owned());
        let built_in = BUILT_IN.iter().map(|(name, _)| (*name).to_owned());
        events.chain(self.definitions.0.keys().cloned()).chain(variables).chain(built_in).collect()
    }
}

/// Sums over records of what can be added.
#[derive(Default)]
pub(super) struct Sums {
    counts: Vec<u64>,
    duration_ns: u64,
    samples: u64,
    lost: u64,
}

impl Sums {
    pub(super) fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut sums = Self::default();
        for record in records {
            sums.counts.resize(sums.counts.len().max(record.counts.len()), 0);
            for (sum, count) in sums.counts.iter_mut().zip(&record.counts) {
                *sum = sum.saturating_add(*count);
            }
            sums.duration_ns = sums.duration_ns.saturating_add(record.duration_ns());
            sums.samples += u64::from(record.samples);
            sums.lost = sums.lost.saturating_add(record.lost);
        }
        sums
    }

    pub(super) fn value(&self, variable: Variable) -> Value<'static> {
        Value::Number(match variable {
            Variable::Count(index) => self.counts.get(index).map_or(f64::NAN, |&count| count as f64),
            Variable::Duration => self.duration_ns as f64,
            Variable::Samples => self.samples as f64,
            Variable::Lost => self.lost as f64,
            _ => f64::NAN,
        })
    }
}

/// The value of a variable for a record.
pub(super) fn value<'a>(records: &'a Records, record: &'a Record, variable: Variable) -> Value<'a> {
    let around = || records.markers_around(record);
    let end = record.end_ns as f64;
    let text = |marker: Option<&'a super::Marker>| Value::Text(marker.map_or("", |marker| &marker.text));
    let number = match variable {
        Variable::Thread => return Value::Text(&record.thread),
        Variable::Function => return Value::Text(&record.function),
        Variable::HowEnded => return Value::Text(record.end_name()),
        Variable::LastMarker => return text(around().0),
        Variable::NextMarker => return text(around().1),
        Variable::Count(index) => record.counts[index] as f64,
        Variable::Start => record.start_ns as f64,
        Variable::End => end,
        Variable::Duration => record.duration_ns() as f64,
        Variable::Cpu => record.cpu.into(),
        Variable::Pid => record.pid.into(),
        Variable::Tid => record.tid.into(),
        Variable::Samples => record.samples.into(),
        Variable::Lost => record.lost as f64,
        Variable::SinceMarker => around().0.map_or(f64::NAN, |marker| end - marker.time_ns as f64),
        Variable::UntilMarker => around().1.map_or(f64::NAN, |marker| marker.time_ns as f64 - end),
    };
    Value::Number(number)
}
