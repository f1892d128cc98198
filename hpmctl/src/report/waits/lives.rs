//! Which of the threads that had the same IDs one after the other a sample is of.

use std::collections::HashMap;

use libhpm::report::Waits;
use libhpm::trace::SampleRow;

/// Until when each thread had its IDs, in the order of time: those of one that has exited are used again.
pub(super) struct Lives(HashMap<(u32, u32), Vec<u64>>);

impl Lives {
    pub(super) fn new(waits: &Waits) -> Self {
        let mut lives: HashMap<(u32, u32), Vec<u64>> = HashMap::new();
        for thread in &waits.threads {
            lives.entry((thread.pid, thread.tid)).or_default().push(thread.until_tsc);
        }
        lives.values_mut().for_each(|ends| ends.sort_unstable());
        Self(lives)
    }

    /// A sample's thread: the one that had the IDs then, the last one where none is known to have had them.
    pub(super) fn of(&self, row: &SampleRow) -> (u32, u32, u64) {
        let ends = self.0.get(&(row.pid, row.tid)).map_or(&[][..], Vec::as_slice);
        let then = ends.iter().find(|until| **until >= row.tsc).or(ends.last());
        (row.pid, row.tid, then.copied().unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use libhpm::report::ThreadTimes;

    use super::*;

    #[test]
    fn a_sample_is_of_the_thread_that_had_its_ids_then() {
        let thread = |tid, until_tsc| ThreadTimes {
            pid: 1,
            tid,
            until_tsc,
            stays: 1,
            migrations: 0,
            times: libhpm::report::Times::default(),
        };
        let waits = Waits { waits: vec![], threads: vec![thread(2, u64::MAX), thread(2, 10), thread(3, 20)] };
        let lives = Lives::new(&waits);
        let of = |tid, tsc| lives.of(&SampleRow { pid: 1, tid, tsc, ..SampleRow::default() }).2;
        assert_eq!([of(2, 10), of(2, 11), of(3, 5), of(3, 21), of(4, 1)], [10, u64::MAX, 20, 20, u64::MAX]);
    }
}
