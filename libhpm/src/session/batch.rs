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
        (0..self.cpus()).flat_map(move |cpu| {
            let quanta = self.of_cpu(cpu).into_iter().flatten();
            quanta.map(move |quantum| self.rings.published(cpu, quantum).map(Quantum::new))
        })
    }

    /// CPUs with rings.
    pub(crate) fn cpus(&self) -> usize {
        self.observed.len()
    }

    /// A CPU's quanta as [`Batch::quanta`] has them, in two parts, for who takes many at once. The bytes that they name are to be had
    /// by [`Batch::records`] and [`Batch::stack`].
    pub(crate) fn of_cpu(&self, cpu: usize) -> [&[hpm_abi::Quantum]; 2] {
        self.rings.quanta(cpu)
    }

    /// The records at a place of a CPU's segment, of one quantum or of neighbours.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`] when no quantum can own them.
    pub(crate) fn records(&self, cpu: usize, segment: u64, start: u64, len: u64) -> Result<&[u8]> {
        self.rings.records(cpu, segment, start, len)
    }

    /// The bytes at a place of a CPU's stack ring, of one quantum or of neighbours.
    ///
    /// # Errors
    /// As [`Batch::records`].
    pub(crate) fn stack(&self, cpu: usize, offset: u64, len: u64) -> Result<&[u8]> {
        self.rings.stack(cpu, offset, len)
    }

    /// Bytes of a CPU's stack ring; 0 when it has none.
    pub(crate) fn stack_ring(&self, cpu: usize) -> u64 {
        self.rings.stack_ring(cpu)
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
        // What was published last lies farthest, so that mostly the last quantum tells. One that names what it cannot own tells nothing.
        let (mut records, mut stack) = (false, self.rings.stack_ring(cpu) == 0);
        for quantum in self.rings.quanta(cpu).into_iter().rev().flat_map(|part| part.iter().rev()) {
            if records && stack {
                break;
            }
            let (start, len) = (quantum.span_offset.into(), quantum.span_bytes.into());
            if !records && len > 0 && self.rings.records(cpu, quantum.segment, start, len).is_ok() {
                end.segments = end.segments.max(quantum.segment);
                records = true;
            }
            let (offset, len) = (quantum.stack_offset, quantum.stack_bytes.into());
            if !stack && len > 0 && self.rings.stack(cpu, offset, len).is_ok() {
                end.stack = offset + len;
                stack = true;
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
