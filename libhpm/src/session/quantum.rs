//! A quantum and its samples, as views of mapped memory.

use hpm_abi::{NO_EVENT, QuantumEnd, QuantumFlags};
use zerocopy::FromBytes as _;

use crate::record::{Branch, Places, Record, Records, adaptive, fixed};
use crate::sys::rings::Published;
use crate::unwind::CallStack;
use crate::{Error, Result};

/// One uninterrupted stay of one thread on one CPU.
#[derive(Clone, Copy, Debug)]
pub struct Quantum<'a> {
    published: Published<'a>,
}

/// The records of a quantum that hardware laid out alike, and that are all for one event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Alike<'a> {
    pub(crate) records: &'a [u64],
    pub(crate) places: Places,
    /// Index of the event.
    pub(crate) event: usize,
    /// Its period.
    pub(crate) period: u64,
}

/// One sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// What hardware or the driver wrote.
    pub record: Record<'a>,
    /// What the driver collected of the user stack; empty without one.
    pub stack: &'a [u8],
    quantum: &'a hpm_abi::Quantum,
}

impl<'a> Sample<'a> {
    /// The return addresses that the driver found by frame pointers, the innermost first; `None` when [`Sample::stack`] is
    /// a copy of the stack from RSP upwards, or empty.
    pub fn return_addresses(&self) -> Option<impl Iterator<Item = u64> + use<'a>> {
        let found = self.quantum.flags & QuantumFlags::STACK_FRAMES != 0 && !self.stack.is_empty();
        let (words, _) = self.stack.as_chunks();
        found.then(|| words.iter().map(|word| u64::from_le_bytes(*word)))
    }

    /// The last branch records, the newest first: of the record, or those that the driver read with it.
    #[must_use]
    pub fn branches(&self) -> &'a [Branch] {
        let read = self.quantum.flags & QuantumFlags::STACK_BRANCHES != 0 && !self.stack.is_empty();
        let all = if read { Branch::view(self.stack) } else { self.record.branches };
        Branch::used(all)
    }

    /// The call stack of a session whose branch records follow calls ([`hpm_abi::BranchFilter::CALL_STACK`]) and which
    /// keeps `kept` of them.
    #[must_use]
    pub fn calls(&self, kept: u32) -> CallStack {
        CallStack::of_calls(self.record.ip, self.branches(), kept as usize)
    }

    /// The session's events whose counters the record names, as index and period in events: usually one, several when
    /// counters overflowed together; none when the record shows several that have overflowed and does not say which it is for (PEBS
    /// formats 1 and 2; SDM Vol. 3B 20.3.6.2).
    pub fn events(&self) -> impl Iterator<Item = (usize, u64)> + use<'a> {
        let quantum = self.quantum;
        // Format 0 does not name the counter; there, only one can write records.
        let named = match self.record.applicable_counters {
            None => u64::MAX,
            // Formats 1 and 2 hold the whole status, in which other counters may have overflowed too: of several that write records
            // the others' may be still to come. Where there is one, all are its; Linux has seen a status of 0. Bits from 32 on are
            // of fixed counters, and LL_EN.
            Some(counters) if quantum.record_format <= 2 => {
                let able = quantum.pebs_enable & u64::from(u32::MAX);
                let named = if able.is_power_of_two() { able } else { counters & able };
                if named.is_power_of_two() { named } else { 0 }
            }
            Some(counters) if quantum.record_format == 3 => counters & quantum.pebs_enable,
            Some(counters) => counters,
        };
        // Ends with the last counter that is named, which is mostly the first: this runs for each sample.
        let mut left = named;
        let mut places = 0..quantum.counter_event.len();
        std::iter::from_fn(move || {
            while left != 0 {
                let place = places.next()?;
                let (event, counter) = (quantum.counter_event[place], quantum.sampler_counter[place]);
                let bit = 1_u64.checked_shl(counter.into()).unwrap_or(0);
                if event != NO_EVENT && left & bit != 0 {
                    left &= !bit;
                    return Some((usize::from(event), quantum.periods[place]));
                }
            }
            None
        })
    }
}

impl<'a> Quantum<'a> {
    pub(crate) fn new(published: Published<'a>) -> Self {
        Self { published }
    }

    /// It with the bytes that belong to it.
    #[cfg(test)]
    pub(crate) fn published(&self) -> Published<'a> {
        self.published
    }

    /// The driver's record: times in TSC ticks, thread, CPU, flags and counts.
    #[must_use]
    pub fn raw(&self) -> &'a hpm_abi::Quantum {
        self.published.quantum
    }

    /// How the quantum ended.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a number that means nothing.
    pub fn end(&self) -> Result<QuantumEnd> {
        let number = self.raw().end;
        QuantumEnd::from_number(number)
            .ok_or_else(|| Error::corrupt(format!("a quantum that ended with {number}")))
    }

    /// What each event counted, in the order of the session's events.
    #[must_use]
    pub fn counts(&self) -> &'a [u64] {
        let counts = &self.published.quantum.counts;
        &counts[..counts.len().min(self.raw().count_len as usize)]
    }

    /// Whether the stack was copied only in part, or not at all for want of room.
    #[must_use]
    pub fn stack_incomplete(&self) -> bool {
        self.raw().flags & (QuantumFlags::STACK_TRUNCATED | QuantumFlags::STACK_LOST) != 0
    }

    /// Whether the last sample's stack found no room.
    #[must_use]
    pub fn stack_lost(&self) -> bool {
        self.raw().flags & QuantumFlags::STACK_LOST != 0
    }

    /// How many samples there are.
    ///
    /// # Errors
    /// As [`Quantum::samples`].
    pub fn sample_count(&self) -> Result<usize> {
        Ok(self.records()?.remaining())
    }

    fn records(&self) -> Result<Records<'a>> {
        let Published { quantum, records, .. } = self.published;
        // A quantum without records may leave the format's fields empty.
        match records {
            [] => Ok(Records::none()),
            _ => Records::new(quantum.record_format, quantum.record_size, records),
        }
    }

    /// The records, if they can be taken all at once: of the usual PEBS formats, for one event, without a stack or branches. That is
    /// what most quanta have.
    pub(crate) fn alike(&self) -> Option<Alike<'a>> {
        let Published { quantum, records, stack } = self.published;
        let records = <[u64]>::ref_from_bytes(records).ok().filter(|_| stack.is_empty())?;
        let format = *records.first()?;
        let fixed = quantum.record_format <= 3;
        let places = match quantum.record_format {
            0..=3 => fixed::Format::new(quantum.record_format).ok()?.places()?,
            4..=6 => adaptive::places(format)?,
            _ => return None,
        };
        if usize::from(quantum.record_size) != 8 * places.count || !records.len().is_multiple_of(places.count)
        {
            return None;
        }
        let mut samplers = quantum.counter_event.iter().enumerate().filter(|(_, event)| **event != NO_EVENT);
        let (Some((place, event)), None) = (samplers.next(), samplers.next()) else { return None };
        let bit = 1_u64.checked_shl(quantum.sampler_counter[place].into()).unwrap_or(0);
        let bit = if fixed { bit & quantum.pebs_enable } else { bit };
        let alike = |record: &[u64]| record[places.counters] & bit != 0 && (fixed || record[0] == format);
        let (event, period) = (usize::from(*event), quantum.periods[place]);
        records.chunks_exact(places.count).all(alike).then_some(Alike { records, places, event, period })
    }

    /// The samples, in the order in which they were written, borrowed from the mapped segment. An item is
    /// [`Error::Corrupt`] when bytes are no record; it is the last one.
    ///
    /// # Errors
    /// [`Error::RecordFormat`] for a format this library cannot read.
    #[inline]
    pub fn samples(&self) -> Result<impl Iterator<Item = Result<Sample<'a>>> + use<'a>> {
        let Published { quantum, stack, .. } = self.published;
        let mut records = self.records()?;
        Ok(std::iter::from_fn(move || {
            let record = records.next()?;
            // A stack belongs to the last record of the span.
            let stack = if records.is_empty() { stack } else { &[] };
            Some(record.map(|record| Sample { record, stack, quantum }))
        }))
    }
}
