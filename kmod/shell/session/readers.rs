// SPDX-License-Identifier: GPL-2.0
//! What a session's readers see of it: its mapped memory, and that there is news.

use core::sync::atomic::{fence, AtomicU32, AtomicU64, Ordering};

use kernel::bindings;
use kernel::prelude::*;

use super::super::registry;
use super::{CpuShare, Session};
use crate::hpm_abi::{Reason, Totals};
use crate::hpm_core::Refusal;

impl Session {
    /// Tells readers that no process is left to measure.
    pub(in super::super) fn say_target_is_gone(&self) {
        // SAFETY: The head lies in the status area, and the field is only ever accessed atomically.
        let gone = unsafe { AtomicU32::from_ptr(&raw mut (*self.head()).target_gone) };
        gone.store(1, Ordering::Release);
        self.readers.notify_all();
    }

    /// Whether no process is left to measure.
    pub(in super::super) fn is_target_gone(&self) -> bool {
        // SAFETY: As in `say_target_is_gone`.
        let gone = unsafe { AtomicU32::from_ptr(&raw mut (*self.head()).target_gone) };
        gone.load(Ordering::Acquire) != 0
    }

    /// Ends measuring on every CPU, at its next switch or timer at the latest. Readers learn why when they are woken next.
    /// Not from the NMI.
    pub(in super::super) fn give_up(&self, reason: Reason) {
        let first = self.gave_up().compare_exchange(0, reason as u32, Ordering::Release, Ordering::Relaxed);
        if first.is_ok() {
            pr_warn!("a session of process {} gave up: {:?}\n", self.owner, reason);
        }
        self.note_news();
    }

    /// Notes that its readers are to be woken.
    pub(super) fn note_news(&self) {
        // What was published is seen by whoever takes the note away after this has found it there.
        fence(Ordering::SeqCst);
        if !self.news.load(Ordering::Relaxed) {
            // An exchange, so that the note is there before the time of the first one is looked at: who takes notes away sets the time
            // back before.
            self.news.swap(true, Ordering::SeqCst);
        }
        registry::note_news();
    }

    /// Whether the session has given up.
    pub(in super::super) fn has_given_up(&self) -> bool {
        self.gave_up().load(Ordering::Relaxed) != 0
    }

    /// Checks that the session has not given up: it does not begin again.
    ///
    /// # Errors
    /// Why it has.
    pub(in super::super) fn check_given_up(&self) -> Result<(), Refusal> {
        let reason = Reason::from_number(self.gave_up().load(Ordering::Relaxed));
        reason.map_or(Ok(()), |reason| Err(Refusal::new(reason, [0; 2])))
    }

    fn gave_up(&self) -> &AtomicU32 {
        // SAFETY: The head lies in the status area, and the field is only ever accessed atomically.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.head()).gave_up) }
    }

    /// Whether a ring holds a quantum of which readers were told and which none has given back. What has been published since waits for
    /// the next waking, or whoever polls would never sleep while there are switches.
    pub(in super::super) fn is_readable(&self) -> bool {
        let over = self.is_target_gone() || self.has_given_up();
        self.shares().any(|(number, share)| {
            // SAFETY: The field lies in the control area; user space may write it at any time.
            let consumed =
                unsafe { AtomicU64::from_ptr(&raw mut (*self.cpu_control(number)).quanta_consumed) };
            // Who reads until nothing comes any more is not told again.
            let told = if over { self.produced(number)[0] } else { share.told[0].load(Ordering::Acquire) };
            told.wrapping_sub(consumed.load(Ordering::Relaxed)) as i64 > 0
        })
    }

    /// Wakes its readers if there is news since they were last woken.
    pub(in super::super) fn wake_readers(&self) {
        if !self.news.swap(false, Ordering::SeqCst) {
            return;
        }
        for (number, share) in self.shares() {
            // Two CPUs may be here at once.
            for (told, produced) in share.told.iter().zip(self.produced(number)) {
                told.fetch_max(produced, Ordering::AcqRel);
            }
        }
        self.readers.notify_all();
    }

    /// Quanta, segments, markers and bytes of stacks that were produced on a CPU.
    fn produced(&self, number: u32) -> [u64; 4] {
        let status = self.cpu_status(number);
        // SAFETY: The fields lie in the status area.
        let fields = unsafe {
            [
                &raw mut (*status).quanta_produced,
                &raw mut (*status).segments_begun,
                &raw mut (*status).markers_produced,
                &raw mut (*status).stack_produced,
            ]
        };
        // SAFETY: They are only ever accessed atomically.
        fields.map(|field| unsafe { AtomicU64::from_ptr(field) }.load(Ordering::Acquire))
    }

    /// Its part on each CPU that can come online, with the CPU's number.
    fn shares(&self) -> impl Iterator<Item = (u32, &CpuShare)> {
        (0..).zip(self.cpus.iter()).filter_map(|(number, share)| Some((number, share.as_ref()?)))
    }

    /// The page that user space maps at this offset of the file.
    pub(in super::super) fn page_at(&self, offset: u64) -> Option<*mut bindings::page> {
        let place = (offset & 0xffff_ffff) as usize;
        let share = || self.cpus.get((offset >> 32 & 0xfff) as usize)?.as_ref().map(|share| &share.memory);
        match (offset >> 44, offset >> 32 & 0xfff) {
            (0, 0) => self.status.page(place),
            (0, 1) => self.control.page(place),
            (2, _) => share()?.quanta.as_ref()?.page(place),
            (3, _) => {
                let bytes = self.programs.any().config().segment_bytes as usize;
                share()?.segments.get(place.checked_div(bytes)?)?.page(place.checked_rem(bytes)?)
            }
            (4, _) => share()?.stacks.as_ref()?.page(place),
            (5, 0) => self.pages()?.page_at(place),
            (6, _) => share()?.markers.as_ref()?.page(place),
            _ => None,
        }
    }

    /// Adds one CPU's share to the totals.
    ///
    /// # Safety
    /// The caller holds the gate of that CPU, or the CPU cannot run a section meanwhile.
    pub(in super::super) unsafe fn add_share_to(&self, number: u32, totals: &mut Totals) {
        if let Some(Some(share)) = self.cpus.get(number as usize) {
            // SAFETY: The caller's promise.
            unsafe { &*share.state.get() }.add_to(totals);
        }
    }
}
