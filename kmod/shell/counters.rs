// SPDX-License-Identifier: GPL-2.0
//! A session's counter pages: made when asked for, mapped read-only, kept until the session ends.

use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use kernel::bindings;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use super::every_cpu::Plugged;
use super::interrupts::{local_interrupt_disable, LocalInterruptDisabled};
use super::limits::Locked;
use super::memory::Area;
use super::request::Failure;
use super::session::Session;
use super::sys::AddressSpace;
use super::target::current_tgid;
use super::{machine, registry, sys};
use crate::hpm_abi::{
    CounterPage, CounterPageFlags, CounterReading, CounterRequest, Reason, COUNTER_PAGES_MAX,
};
use crate::hpm_core::counters::{self, PageKeys};
use crate::hpm_core::{Refusal, Thread};

/// There is no room for one more page.
const NO_PAGE: Refusal = Refusal::new(Reason::NoMemory, [PAGE_SIZE as u64, 0]);

/// The pages of one session.
///
/// # Invariants
///
/// Each of `made` is null or points to a page that this owns, and does not change once it is not null.
pub(super) struct Pages {
    keys: KBox<PageKeys>,
    made: KVVec<AtomicPtr<Made>>,
}

/// The memory of one page, and the charge for it.
struct Made {
    area: Area,
    _locked: Locked,
}

impl Pages {
    /// No page yet.
    pub(super) fn new() -> Result<Self> {
        let mut made = KVVec::with_capacity(COUNTER_PAGES_MAX, GFP_KERNEL_ACCOUNT)?;
        for _ in 0..COUNTER_PAGES_MAX {
            made.push_within_capacity(AtomicPtr::new(ptr::null_mut())).map_err(|_| ENOMEM)?;
        }
        Ok(Self { keys: KBox::new(PageKeys::new(), GFP_KERNEL_ACCOUNT)?, made })
    }

    /// Which thread has which.
    pub(super) fn keys(&self) -> &PageKeys {
        &self.keys
    }

    fn area(&self, number: usize) -> Option<&Area> {
        let made = self.made.get(number)?.load(Ordering::Acquire);
        // SAFETY: By the invariants.
        unsafe { made.as_ref() }.map(|made| &made.area)
    }

    /// The page with this number, if it has been made.
    pub(super) fn page(&self, number: usize) -> Option<&CounterPage> {
        // SAFETY: The area is a zeroed page, on which a `CounterPage` of atomics lies; user space maps it read-only.
        self.area(number).map(|area| unsafe { &*area.base().cast::<CounterPage>() })
    }

    /// The kernel's page at this offset of the pages, for mapping.
    pub(super) fn page_at(&self, offset: usize) -> Option<*mut bindings::page> {
        self.area(offset / PAGE_SIZE)?.page(offset % PAGE_SIZE)
    }

    /// The thread has replaced its program: the right to RDPMC was the old address space's.
    pub(super) fn withdraw_rdpmc(&self, tid: u32) {
        if let Some(page) = self.keys.find(tid).and_then(|number| self.page(number)) {
            page.flags.fetch_and(!CounterPageFlags::MAY_RDPMC, Ordering::Relaxed);
        }
    }

    /// The page of this thread, made or used again if it has none. One caller at a time.
    fn obtain(&self, tid: u32, events: u32) -> Result<usize, Refusal> {
        if let Some(number) = self.keys.find(tid) {
            return Ok(number);
        }
        let is_unseen = |number| {
            // SAFETY: The page belongs to the area, which is not freed meanwhile.
            self.page_at(number * PAGE_SIZE).is_some_and(|page| unsafe { !sys::is_page_mapped(page) })
        };
        let number = self.keys.claim(tid, is_unseen).ok_or(NO_PAGE)?;
        if self.area(number).is_none() {
            let place = self.made.get(number).ok_or(NO_PAGE)?;
            let locked = Locked::charge(PAGE_SIZE as u64)?;
            let area = Area::new(PAGE_SIZE).map_err(|_| NO_PAGE)?;
            let made = KBox::new(Made { area, _locked: locked }, GFP_KERNEL_ACCOUNT).map_err(|_| NO_PAGE)?;
            place.store(KBox::into_raw(made), Ordering::Release);
        }
        let page = self.page(number).ok_or(NO_PAGE)?;
        counters::prepare(page, tid, events, machine::tsc_khz() as u32);
        self.keys.assign(number, tid);
        Ok(number)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        for made in &self.made {
            let made = made.load(Ordering::Relaxed);
            if !made.is_null() {
                // SAFETY: By the invariants, and nobody else holds a reference any more.
                drop(unsafe { KBox::from_raw(made) });
            }
        }
    }
}

/// Finds or makes the page of a thread. One caller at a time.
pub(super) fn request(session: &Session, request: &mut CounterRequest) -> Result<(), Refusal> {
    let not_measured = Refusal::new(Reason::NotMeasured, [request.tid.unsigned_abs().into(), 0]);
    let pages = session.pages().ok_or(not_measured)?;
    let (tgid, tid) = sys::find_thread(request.tid).ok_or(not_measured)?;
    let target = session.subject().target();
    let is_target = target.is_some_and(|target| target.number() == tid || target.tgid() == tgid);
    // A session of whole CPUs or groups may measure any thread, and has the right to.
    if target.is_some() && !is_target && !registry::names(session, Thread { pid: tgid, tid }) {
        return Err(not_measured);
    }
    let number = pages.obtain(tid, session.event_count())?;
    let page = pages.page(number).ok_or(NO_PAGE)?;
    let plugged = Plugged::hold();
    if tgid == current_tgid() {
        if grant_rdpmc(&plugged) {
            page.flags.fetch_or(CounterPageFlags::MAY_RDPMC, Ordering::Relaxed);
        } else {
            page.flags.fetch_and(!CounterPageFlags::MAY_RDPMC, Ordering::Relaxed);
        }
    }
    // Also where it is only just being switched in: it came without this page then.
    if let Some(cpu) = sys::cpu_of(tid) {
        refresh(session, tid, cpu, &plugged);
    }
    request.page = number as u32;
    Ok(())
}

/// What a thread has counted.
///
/// # Errors
/// A refusal when the session has no such page, `EAGAIN` when the page is always being written.
pub(super) fn read(session: &Session, reading: &mut CounterReading) -> Result<(), Failure> {
    let offset = core::mem::offset_of!(CounterReading, page);
    let page = session.pages().and_then(|pages| pages.page(reading.page as usize));
    let page = page.ok_or(Refusal::field(offset))?;
    let tid = page.tid.load(Ordering::Relaxed);
    // A thread that is on no CPU has brought its page up to date when it left: nobody needs to be interrupted.
    if let Some(cpu) = sys::cpu_running(tid) {
        refresh(session, tid, cpu, &Plugged::hold());
    }
    if counters::reading(page, reading) {
        Ok(())
    } else {
        Err(EAGAIN.into())
    }
}

/// Brings the page of a thread up to date by interrupting the CPU that it was found on; if it has left by then, it has brought
/// its page up to date itself.
fn refresh(session: &Session, tid: u32, cpu: u32, plugged: &Plugged) {
    plugged.on(cpu, |cpu, irq| {
        if cpu.is_running(session) {
            cpu.section(irq, |section| section.refresh(session, tid));
        }
    });
}

/// Lets the calling process use RDPMC; whether it now can on every CPU. The right stays with it for its life, so that it
/// cannot be lost between a look at a page and the instruction, but to an administrator who writes 0 to the attribute
/// `rdpmc` of the kernel's PMU: nothing tells a driver of that.
///
/// The kernel sets CR4.PCE for a process when it loads its address space (`cr4_update_pce_mm`), so that CPUs that have it
/// loaded already must load another one first. So must one that has loaded it while the right was given: the probe of the switch may have
/// come before the right, and left in the counters what others have counted.
fn grant_rdpmc(plugged: &Plugged) -> bool {
    let (mm, is_new) = sys::allow_rdpmc();
    let seen = AtomicBool::new(false);
    for number in (0..machine::cpu_count()).filter(|&number| machine::is_online(number)) {
        let look = |looks: fn(AddressSpace, &LocalInterruptDisabled) -> bool| {
            plugged.on(number, |_, irq| seen.store(looks(mm, irq), Ordering::Relaxed));
            seen.load(Ordering::Relaxed)
        };
        if look(if is_new { sys::has_loaded } else { sys::lacks_rdpmc }) {
            sys::load_another_address_space(number);
            if look(sys::lacks_rdpmc) {
                return false;
            }
        }
    }
    // Where nobody may use it, the caller's own CPU says so; another one may just have had something else to run.
    !sys::lacks_rdpmc(mm, &local_interrupt_disable())
}
