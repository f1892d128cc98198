//! The explorer of per-thread, per-CPU traces, after the Performance Explorer of Sweeney et al. (VM '04, section 4): sets of
//! records chosen by filters, metrics computed from counters, statistics and correlations of them, and timelines.
//!
//! Filters and metrics are written in one language ([`super::expression`]). A set of records is a condition, so union,
//! intersection and difference of named sets are `a or b`, `a and b`, `a and not b`.

mod records;
mod scope;
mod statistics;
mod timeline;

#[cfg(test)]
mod tests;

pub use self::records::{Marker, Record, Records};
pub use self::scope::{BUILT_IN, Definitions, Named, RecordScope, VARIABLES, Variable, of_each_core};
pub use self::statistics::{Correlation, Statistics};
pub use self::timeline::{Cell, Lane, Timeline};
pub use hpm_abi::QuantumEnd;

use super::expression::{Bound, Expression, ExpressionError};

/// A metric or filter that is understood for the records of a trace.
#[derive(Clone, Debug)]
pub struct Metric {
    /// As it was written.
    pub text: String,
    bound: Bound<Variable>,
}

impl Metric {
    /// Reads an expression for these records.
    ///
    /// # Errors
    /// [`ExpressionError`].
    pub fn new(text: &str, scope: &RecordScope<'_>) -> Result<Self, ExpressionError> {
        Ok(Self { text: text.to_owned(), bound: Expression::parse(text)?.bind(scope)? })
    }

    /// What it comes to for a record.
    #[must_use]
    pub fn of(&self, records: &Records, record: &Record) -> f64 {
        self.bound.number(&|variable| scope::value(records, record, variable))
    }

    /// What it comes to for all of these records together: computed once, of the sums of their counts, durations and samples.
    /// Not a number when it asks for something else, such as the CPU.
    pub fn overall<'a>(&self, records: impl IntoIterator<Item = &'a Record>) -> f64 {
        let sums = scope::Sums::of(records);
        self.bound.number(&|variable| sums.value(variable))
    }

    /// The same as data, for a program that has the sums ([`Bound::outline`]): `column` says where that of a variable is found,
    /// and null for one that cannot be added ([`Variable::added`]).
    pub fn outline(&self, mut column: impl FnMut(Variable) -> serde_json::Value) -> serde_json::Value {
        self.bound.outline(&mut column)
    }

    /// The records for which it is true.
    pub fn choose<'a>(&'a self, records: &'a Records) -> impl Iterator<Item = &'a Record> {
        records
            .all()
            .iter()
            .filter(|record| self.bound.is_true(&|variable| scope::value(records, record, variable)))
    }
}
