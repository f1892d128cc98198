//! What was published at one moment, borrowed until dropped.

use crate::Result;
use crate::session::quantum::Quantum;
use crate::sys::rings::{Observed, Positions, Rings};

/// The quanta that were published when the batch was taken. They stay valid while it lives; dropping it gives them, their
/// records and their stacks back to the driver, read or not.
#[derive(Debug)]
pub struct Batch<'a> {
    rings: &'a mut Rings,
    observed: Vec<Observed>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(rings: &'a mut Rings) -> Result<Self> {
        let observed = (0..rings.cpus()).map(|cpu| rings.observe(cpu)).collect::<Result<_>>()?;
        Ok(Self { rings, observed })
    }

    /// The quanta, CPU after CPU, and on each CPU in the order of time.
    ///
    /// # Errors
    /// An item is [`crate::Error::Corrupt`] when it names bytes that it cannot own.
    pub fn quanta(&self) -> impl Iterator<Item = Result<Quantum<'_>>> {
        self.observed.iter().enumerate().flat_map(move |(cpu, observed)| {
            let numbers = self.rings.consumed(cpu).quanta..observed.quanta;
            numbers
                .filter_map(move |number| self.rings.quantum(cpu, number))
                .map(|found| found.map(Quantum::new))
        })
    }

    /// Whether nothing was published.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.observed
            .iter()
            .enumerate()
            .all(|(cpu, observed)| self.rings.consumed(cpu).quanta == observed.quanta)
    }

    /// How far a CPU's rings are free once the batch is: all its quanta, the segments before the last one named or
    /// complete, and the stacks up to the last one named.
    fn end(&self, cpu: usize) -> Positions {
        let consumed = self.rings.consumed(cpu);
        let observed = self.observed[cpu];
        let mut end = Positions {
            quanta: observed.quanta,
            segments: consumed.segments.max(observed.segments_complete),
            stack: consumed.stack,
        };
        for number in consumed.quanta..observed.quanta {
            let Some(Ok(published)) = self.rings.quantum(cpu, number) else { continue };
            if !published.stack.is_empty() {
                end.stack = published.quantum.stack_offset + published.stack.len() as u64;
            }
            if !published.records.is_empty() {
                end.segments = end.segments.max(published.quantum.segment);
            }
        }
        end
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        for cpu in 0..self.observed.len() {
            let end = self.end(cpu);
            self.rings.give_back(cpu, end);
        }
    }
}
