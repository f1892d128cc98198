//! Sample intervals: the quanta of a thread or a process, put together until enough time has passed on a CPU.

use thiserror::Error;

/// Events that an interval can hold; further ones of a session are left out.
pub const MAX_EVENTS: usize = 8;

/// One stay of a thread on a CPU: what the analysis needs of a quantum.
#[derive(Clone, Copy, Debug)]
pub struct Stay<'a> {
    /// TSC at the start.
    pub start: u64,
    /// TSC at the end.
    pub end: u64,
    /// What each event counted.
    pub counts: &'a [u64],
    /// Quanta were lost since the stay before that may have been of the same subject.
    pub lost_before: bool,
}

/// One sample interval of a subject (a thread, or a process with its threads).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// TSC at the start of its first stay.
    pub start: u64,
    /// TSC at the end of its last stay.
    pub end: u64,
    /// TSC ticks that the subject's threads were on a CPU.
    pub on_cpu: u64,
    /// What each event counted.
    pub counts: [u64; MAX_EVENTS],
    /// Something is missing between the interval before and this one: the two cannot be compared.
    pub after_gap: bool,
}

/// Time went backwards: no order of the stays makes sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Disorder {
    /// A stay ends before it starts.
    #[error("a quantum ends at TSC {end}, before its start at {start}")]
    EndBeforeStart {
        /// TSC at the start.
        start: u64,
        /// TSC at the end.
        end: u64,
    },
    /// A stay starts before the same thread's stay before it has ended.
    #[error(
        "a quantum starts at TSC {start}, before the end of the same thread's quantum before it at {before}"
    )]
    Overlap {
        /// TSC at the start.
        start: u64,
        /// TSC at which the stay before ended.
        before: u64,
    },
}

/// Puts the stays of one subject together into intervals. A stay is never split, so an interval may be longer than asked
/// for; densities do not depend on it.
#[derive(Clone, Debug)]
pub struct Slicer {
    length: u64,
    /// Whether stays come from one thread, which is on one CPU at a time.
    single: bool,
    building: Interval,
    last_end: u64,
    gap: bool,
}

impl Slicer {
    /// For the stays of one thread, in order of time. An interval closes when `length` TSC ticks on a CPU have come together.
    #[must_use]
    pub fn for_thread(length: u64) -> Self {
        Self { length, single: true, building: Interval::default(), last_end: 0, gap: true }
    }

    /// For the stays of a process, in any order that is about that of time; those of its threads may overlap.
    #[must_use]
    pub fn for_process(length: u64) -> Self {
        Self { single: false, ..Self::for_thread(length) }
    }

    /// Adds a stay; returns the interval that it completes. Where quanta were lost, what was being put together is dropped.
    ///
    /// # Errors
    /// [`Disorder`]; the stay is not added.
    pub fn push(&mut self, stay: &Stay<'_>) -> Result<Option<Interval>, Disorder> {
        if stay.end < stay.start {
            return Err(Disorder::EndBeforeStart { start: stay.start, end: stay.end });
        }
        if self.single && stay.start < self.last_end {
            return Err(Disorder::Overlap { start: stay.start, before: self.last_end });
        }
        if stay.lost_before {
            self.building = Interval::default();
            self.gap = true;
        }
        self.last_end = self.last_end.max(stay.end);
        self.add(stay);
        if self.building.on_cpu < self.length {
            return Ok(None);
        }
        let after_gap = std::mem::replace(&mut self.gap, false);
        Ok(Some(Interval { after_gap, ..std::mem::take(&mut self.building) }))
    }

    fn add(&mut self, stay: &Stay<'_>) {
        let building = &mut self.building;
        if building.on_cpu == 0 {
            building.start = stay.start;
        }
        building.start = building.start.min(stay.start);
        building.end = building.end.max(stay.end);
        building.on_cpu = building.on_cpu.saturating_add(stay.end - stay.start);
        for (sum, &count) in building.counts.iter_mut().zip(stay.counts) {
            *sum = sum.saturating_add(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stay(start: u64, end: u64, counts: &[u64]) -> Stay<'_> {
        Stay { start, end, counts, lost_before: false }
    }

    #[test]
    fn stays_become_intervals_by_time_on_a_cpu() {
        let mut slicer = Slicer::for_thread(100);
        assert_eq!(slicer.push(&stay(0, 60, &[6, 1])), Ok(None));
        // Being away from 60 to 1000 is no time on a CPU.
        assert_eq!(slicer.push(&stay(1000, 1030, &[3, 1])), Ok(None));
        let interval = slicer.push(&stay(1030, 1080, &[5, 1])).unwrap().unwrap();
        assert_eq!((interval.start, interval.end, interval.on_cpu), (0, 1080, 140));
        assert_eq!(interval.counts[..3], [14, 3, 0]);
        assert!(interval.after_gap, "nothing comes before the first");
        let next = slicer.push(&stay(1080, 1200, &[1, 1])).unwrap().unwrap();
        assert_eq!((next.start, next.on_cpu, next.after_gap), (1080, 120, false));
    }

    #[test]
    fn lost_quanta_end_what_was_being_put_together() {
        let mut slicer = Slicer::for_thread(100);
        slicer.push(&stay(0, 100, &[1])).unwrap().unwrap();
        slicer.push(&stay(100, 190, &[1])).unwrap();
        let interval = slicer.push(&Stay { lost_before: true, ..stay(500, 600, &[7]) }).unwrap().unwrap();
        assert_eq!((interval.start, interval.on_cpu, interval.counts[0]), (500, 100, 7));
        assert!(interval.after_gap);
    }

    #[test]
    fn time_that_goes_backwards_is_told() {
        let mut slicer = Slicer::for_thread(100);
        assert_eq!(slicer.push(&stay(10, 5, &[])), Err(Disorder::EndBeforeStart { start: 10, end: 5 }));
        slicer.push(&stay(10, 50, &[])).unwrap();
        assert_eq!(slicer.push(&stay(40, 60, &[])), Err(Disorder::Overlap { start: 40, before: 50 }));
        // Threads of a process overlap as they like.
        let mut slicer = Slicer::for_process(100);
        slicer.push(&stay(10, 80, &[1])).unwrap();
        let interval = slicer.push(&stay(0, 60, &[2])).unwrap().unwrap();
        assert_eq!((interval.start, interval.end, interval.on_cpu, interval.counts[0]), (0, 80, 130, 3));
    }
}
