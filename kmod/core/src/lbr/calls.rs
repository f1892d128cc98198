//! The call stacks of threads that are not on a CPU, in sessions that follow calls by branch records.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::BRANCHES_MAX;

/// One thread's calls. The shell allocates one for each [`super::super::ThreadSlot`] of such a session. As a thread's position, it has one
/// user at a time.
#[derive(Debug)]
pub struct SavedCalls {
    count: AtomicU32,
    from: [AtomicU64; BRANCHES_MAX],
}

impl SavedCalls {
    /// None.
    #[must_use]
    pub const fn new() -> Self {
        Self { count: AtomicU32::new(0), from: [const { AtomicU64::new(0) }; BRANCHES_MAX] }
    }

    /// Forgets them.
    pub(in super::super) fn clear(&self) {
        self.count.store(0, Ordering::Relaxed);
    }

    /// Whether none are kept.
    pub(super) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Keeps these, the newest first.
    pub(super) fn store(&self, calls: &[u64]) {
        for (place, call) in self.from.iter().zip(calls) {
            place.store(*call, Ordering::Relaxed);
        }
        self.count.store(calls.len() as u32, Ordering::Relaxed);
    }

    /// What was kept; how many.
    pub(super) fn load(&self, calls: &mut [u64; BRANCHES_MAX]) -> usize {
        for (call, place) in calls.iter_mut().zip(&self.from) {
            *call = place.load(Ordering::Relaxed);
        }
        (self.count.load(Ordering::Relaxed) as usize).min(BRANCHES_MAX)
    }
}

impl Default for SavedCalls {
    fn default() -> Self {
        Self::new()
    }
}
