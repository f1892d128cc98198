//! Markers that a measured thread sets: into the ring of the CPU it runs on.

use super::abi::{Marker, MarkerOrigin, MARKER_NAME_BYTES, PAGE_MARKERS};
use super::port::Rings;
use super::rings::Ring;
use super::session::{Session, Thread};

/// A moment that a thread named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// When, as the thread says; `None` for now.
    pub tsc: Option<u64>,
    /// What it gave with it.
    pub value: u64,
    /// UTF-8, NUL padded.
    pub name: [u8; MARKER_NAME_BYTES],
}

/// Markers that wait in a thread's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pending {
    /// Markers that were overwritten before anybody took them.
    pub lost: u64,
    /// Number of the first one to take.
    pub first: u64,
    /// How many, at most [`PAGE_MARKERS`].
    pub count: u32,
}

/// What waits in a page of which `taken` markers were taken and the thread says that it has written `produced`. The thread
/// may say anything: the work is bounded all the same.
#[must_use]
pub const fn pending(taken: u64, produced: u64) -> Pending {
    let written = produced.wrapping_sub(taken);
    // Nobody writes 2^32 markers in one quantum: the number was set back, or scribbled over.
    if written > u32::MAX as u64 {
        return Pending { lost: 0, first: produced, count: 0 };
    }
    let lost = written.saturating_sub(PAGE_MARKERS as u64);
    Pending { lost, first: taken.wrapping_add(lost), count: (written - lost) as u32 }
}

/// A session's markers on one CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Markers {
    pub(super) ring: Ring,
    pub(super) lost: u64,
}

impl Markers {
    pub(super) const fn new(markers: u32) -> Self {
        Self { ring: Ring::new(markers), lost: 0 }
    }
}

/// Where and within which times a marker was set.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stretch {
    pub(super) thread: Thread,
    pub(super) cpu: u32,
    /// TSC at the start of the running quantum.
    pub(super) start_tsc: u64,
    pub(super) now_tsc: u64,
}

impl<R: Rings> Session<'_, R> {
    /// Keeps markers, or counts them as lost.
    pub(super) fn keep(&mut self, marks: impl IntoIterator<Item = Mark>, stretch: &Stretch) {
        for mark in marks {
            self.keep_one(&mark, stretch);
        }
        self.publish();
    }

    fn keep_one(&mut self, mark: &Mark, stretch: &Stretch) {
        if self.state.markers.ring.room_for(1).is_none() {
            self.take_back();
        }
        let markers = &mut self.state.markers;
        let Some(number) = markers.ring.room_for(1) else {
            markers.lost = markers.lost.saturating_add(1);
            return;
        };
        let (tsc, origin) = match mark.tsc {
            // Not clamp(), which panics when a TSC was set back.
            Some(tsc) => (tsc.max(stretch.start_tsc).min(stretch.now_tsc), MarkerOrigin::Page),
            None => (stretch.now_tsc, MarkerOrigin::Request),
        };
        let marker = Marker {
            sequence: number.wrapping_add(markers.lost),
            tsc,
            value: mark.value,
            pid: stretch.thread.pid,
            tid: stretch.thread.tid,
            cpu: stretch.cpu,
            origin: origin as u32,
            name: mark.name,
        };
        self.rings.write_marker(markers.ring.place(number), &marker);
        markers.ring.produce_to(number + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_in_a_page_is_bounded_whatever_the_thread_says() {
        let all = PAGE_MARKERS as u64;
        assert_eq!(pending(5, 5), Pending { lost: 0, first: 5, count: 0 });
        assert_eq!(pending(5, 8), Pending { lost: 0, first: 5, count: 3 });
        assert_eq!(pending(5, 5 + all), Pending { lost: 0, first: 5, count: all as u32 });
        assert_eq!(pending(5, 7 + all), Pending { lost: 2, first: 7, count: all as u32 });
        assert_eq!(pending(u64::MAX, 1), Pending { lost: 0, first: u64::MAX, count: 2 });
        for scribbled in [0, 4, u64::MAX, 1 << 40] {
            assert_eq!(pending(5, scribbled), Pending { lost: 0, first: scribbled, count: 0 });
        }
    }
}
