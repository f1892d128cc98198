// SPDX-License-Identifier: GPL-2.0
//! The adapters that `hpm_core` works through: this CPU's registers, and a session's memory on this CPU.

use core::mem::{offset_of, size_of, size_of_val};
use core::sync::atomic::{fence, AtomicU64, Ordering};

use kernel::bindings;

use super::counters::Pages;
use super::cpu;
use super::entry_area::EntryArea;
use super::memory::{Area, Block};
use super::sys;
use super::target::current_tid;
use crate::hpm_abi::{CounterPage, CpuControl, CpuStatus, Marker, Quantum};
use crate::hpm_core::interrupt::Registers;
use crate::hpm_core::port::{Port, Rings};
use crate::hpm_core::stacks::{Collected, FRAME_BYTES};

/// Delivery mode NMI, not masked (SDM Vol. 3A 12.5.1).
const LVTPC_NMI: u32 = 0x400;
/// Masked.
const LVTPC_MASKED: u32 = 1 << 16;

/// The registers of the CPU that runs. An NMI makes its own.
pub(super) struct LivePort<'a> {
    area: Option<&'a EntryArea>,
    /// What the NMI that runs has interrupted; null outside one.
    regs: *const bindings::pt_regs,
    /// Until when an NMI is taken for hpm's; `None` where none can come for it.
    expected_pmi: Option<&'a AtomicU64>,
    /// The thread that is being measured; 0 where there is none.
    tid: u32,
}

impl<'a> LivePort<'a> {
    /// The port of this CPU, whose entry area is `area`; `None` where it has none, and then nothing asks for it. `regs` is
    /// what the NMI that runs has interrupted, or null; `expected_pmi` keeps [`Port::expect_pmi`] between ports of the CPU; `tid`
    /// is the thread that is being measured, or 0.
    ///
    /// # Safety
    /// For the life of the port the caller stays on this CPU, hpm holds its PMU or only reads, and `regs` stays.
    pub(super) unsafe fn new(
        area: Option<&'a EntryArea>,
        regs: *const bindings::pt_regs,
        expected_pmi: Option<&'a AtomicU64>,
        tid: u32,
    ) -> Self {
        Self { area, regs, expected_pmi, tid }
    }

    /// The 64-bit field at this byte offset of the DS management area.
    fn ds_field(&self, offset: u32) -> Option<*mut u64> {
        let field = offset as usize / 8;
        let inside = field < kernel::page::PAGE_SIZE / 8;
        // SAFETY: The area is one page.
        self.area.filter(|_| inside).map(|area| unsafe { area.debug_store().add(field) })
    }
}

impl Port for LivePort<'_> {
    fn rdmsr(&mut self, register: u32) -> u64 {
        sys::rdmsr(register).unwrap_or(0)
    }

    fn wrmsr(&mut self, register: u32, value: u64) {
        // SAFETY: `hpm_core` writes PMU registers only, and hpm holds the PMU by the promise of `new`. It has checked
        // the value, so that a fault (which is caught) would be the processor's disagreement with its manual.
        unsafe { sys::wrmsr(register, value) };
    }

    fn rdpmc(&mut self, index: u32) -> u64 {
        // SAFETY: `hpm_core` reads only counters that CPUID has shown.
        unsafe { sys::rdpmc(index) }
    }

    fn rdtsc(&mut self) -> u64 {
        sys::rdtsc()
    }

    fn unmask_pmi(&mut self) {
        // SAFETY: hpm holds the PMU by the promise of `new`.
        unsafe { sys::set_lvtpc(LVTPC_NMI) };
    }

    fn pmi_is_masked(&mut self) -> bool {
        sys::lvtpc() & LVTPC_MASKED != 0
    }

    fn sibling_is_held(&mut self) -> bool {
        cpu::sibling_is_held()
    }

    fn expect_pmi(&mut self, until_tsc: u64) {
        if let Some(expected) = self.expected_pmi {
            expected.store(until_tsc, Ordering::Relaxed);
        }
    }

    fn expected_pmi(&mut self) -> u64 {
        self.expected_pmi.map_or(0, |expected| expected.load(Ordering::Relaxed))
    }

    fn registers(&mut self, user_only: bool) -> Option<Registers> {
        // The scheduler's probe has begun with the next thread, which the scheduler has yet to switch to.
        if user_only && self.tid != current_tid() {
            return None;
        }
        // SAFETY: By the promise of `new`.
        unsafe { sys::registers(self.regs, user_only) }
    }

    fn ds_area(&mut self) -> u64 {
        self.area.map_or(0, |area| area.debug_store() as u64)
    }

    fn ds_read(&mut self, offset: u32) -> u64 {
        // SAFETY: The field lies in the DS area, mapped for as long as the kernel runs.
        self.ds_field(offset).map_or(0, |field| unsafe { field.read_volatile() })
    }

    fn ds_write(&mut self, offset: u32, value: u64) {
        if let Some(field) = self.ds_field(offset) {
            // SAFETY: The field lies in the DS area; with the PMU off, this CPU alone uses it.
            unsafe { field.write_volatile(value) };
        }
    }

    fn pebs_window(&mut self) -> u64 {
        self.area.map_or(0, EntryArea::window)
    }

    fn pebs_read(&mut self, offset: u32) -> u64 {
        // SAFETY: This is the area's CPU by the promise of `new`, and a session is unloaded from every CPU before its memory is freed.
        self.area.and_then(|area| unsafe { area.read(offset) }).unwrap_or(0)
    }
}

/// A session's memory on one CPU.
pub(super) struct CpuMemory {
    pub(super) quanta: Option<Area>,
    pub(super) stacks: Option<Area>,
    pub(super) markers: Option<Area>,
    pub(super) segments: kernel::prelude::KVec<Block>,
    /// What hardware writes in place of a segment, in a session that may not see the kernel; never mapped by user space.
    pub(super) staging: Option<Block>,
}

impl CpuMemory {
    /// The block that hardware writes while the segment in this slot is filled.
    fn written(&self, slot: u32) -> Option<&Block> {
        self.staging.as_ref().or_else(|| self.segments.get(slot as usize))
    }
}

/// A session's memory on the CPU that runs.
pub(super) struct LiveRings<'a> {
    memory: &'a CpuMemory,
    pages: Option<&'a Pages>,
    area: Option<&'a EntryArea>,
    status: *mut CpuStatus,
    control: *const CpuControl,
}

impl<'a> LiveRings<'a> {
    /// The rings of this CPU.
    ///
    /// # Safety
    /// The caller stays on the CPU that `memory`, `area`, `status` and `control` belong to, and holds its gate; both
    /// pointers are valid for `'a`.
    pub(super) unsafe fn new(
        memory: &'a CpuMemory,
        pages: Option<&'a Pages>,
        area: Option<&'a EntryArea>,
        status: *mut CpuStatus,
        control: *const CpuControl,
    ) -> Self {
        Self { memory, pages, area, status, control }
    }
}

impl Rings for LiveRings<'_> {
    fn map_segment(&mut self, slot: u32) {
        if let (Some(area), Some(block)) = (self.area, self.memory.written(slot)) {
            // SAFETY: This is the area's CPU by the promise of `new`, and `hpm_core` has stopped the PMU. The block lives
            // as long as the session, which is unloaded from every CPU before it is freed.
            unsafe { area.map(block) };
        }
    }

    fn show_segment(&mut self, slot: u32) -> u64 {
        let Some(block) = self.memory.written(slot) else { return 0 };
        if let Some(area) = self.area {
            // SAFETY: As above.
            unsafe { area.show(block) };
        }
        block.physical()
    }

    fn unmap_segment(&mut self) {
        if let Some(area) = self.area {
            // SAFETY: This is the area's CPU by the promise of `new`, and `hpm_core` has stopped the PMU.
            unsafe { area.unmap() };
        }
    }

    fn counter_page(&self, number: usize) -> Option<&CounterPage> {
        self.pages?.page(number)
    }

    fn write_record(&mut self, slot: u32, offset: u32, words: &[u64]) {
        let Some(block) = self.memory.segments.get(slot as usize) else { return };
        for (place, word) in (offset as usize..=block.bytes() - 8).step_by(8).zip(words) {
            // SAFETY: The place lies within the block, and is aligned by contract. User space cannot write it, and hardware
            // writes only what follows what is published; the gate keeps other writers out.
            unsafe { block.base().add(place).cast::<u64>().write_volatile(*word) };
        }
    }

    fn write_quantum(&mut self, slot: u32, write: impl FnOnce(&mut Quantum)) {
        let Some(quanta) = &self.memory.quanta else { return };
        if let Some(place) = quanta.at(slot as usize * size_of::<Quantum>()) {
            // SAFETY: The ring is whole quanta long and aligned to a page; user space cannot write it, and the gate keeps
            // other writers out. What it may read of it before it is published it does not believe.
            write(unsafe { &mut *place.cast::<Quantum>() });
        }
    }

    fn write_marker(&mut self, slot: u32, marker: &Marker) {
        let place =
            self.memory.markers.as_ref().and_then(|area| area.at(slot as usize * size_of::<Marker>()));
        if let Some(place) = place {
            // SAFETY: As for a quantum.
            unsafe { place.cast::<Marker>().write_volatile(*marker) };
        }
    }

    fn publish(&mut self, status: &CpuStatus) {
        let store = |offset: usize, value: u64| {
            // SAFETY: The offset is that of a field of `status`, which is valid for the life of `self`.
            let field = unsafe { self.status.byte_add(offset) }.cast::<u64>();
            // SAFETY: The field is aligned, and only ever accessed atomically.
            unsafe { AtomicU64::from_ptr(field) }.store(value, Ordering::Release);
        };
        for (place, period) in status.periods.iter().enumerate() {
            store(offset_of!(CpuStatus, periods) + place * size_of::<u64>(), *period);
        }
        store(offset_of!(CpuStatus, quanta_lost), status.quanta_lost);
        store(offset_of!(CpuStatus, records_lost), status.records_lost);
        store(offset_of!(CpuStatus, records_withheld), status.records_withheld);
        store(offset_of!(CpuStatus, markers_lost), status.markers_lost);
        store(offset_of!(CpuStatus, markers_produced), status.markers_produced);
        store(offset_of!(CpuStatus, stack_produced), status.stack_produced);
        store(offset_of!(CpuStatus, segments_begun), status.segments_begun);
        store(offset_of!(CpuStatus, quanta_produced), status.quanta_produced);
    }

    fn control(&mut self) -> CpuControl {
        // SAFETY: The control page is valid for the life of `self`. User space may write it meanwhile, so that the value
        // may be torn between fields; `hpm_core` clamps each.
        let control = unsafe { self.control.read_volatile() };
        fence(Ordering::Acquire);
        control
    }

    fn rate(&mut self) -> u64 {
        // SAFETY: As for the whole page, of which this is a field.
        unsafe { (&raw const (*self.control).rate).read_volatile() }
    }

    fn pause(&mut self) -> u64 {
        // SAFETY: As for the whole page, of which this is a field.
        unsafe { (&raw const (*self.control).pause).read_volatile() }
    }

    fn write_stack(&mut self, place: u32, words: &[u64]) {
        let Some(stacks) = &self.memory.stacks else { return };
        for (place, word) in (place as usize..).step_by(size_of::<u64>()).zip(words) {
            if let Some(target) = stacks.at(place) {
                // SAFETY: The ring has room for the words by contract, and the place is a multiple of 8. User space cannot
                // write it, and the gate keeps other writers out.
                unsafe { target.cast::<u64>().write_volatile(*word) };
            }
        }
    }

    fn copy_stack(&mut self, from: u64, place: u32, bytes: u32) -> Collected {
        let mut collected = Collected { bytes: 0, complete: true };
        let Some(stacks) = &self.memory.stacks else { return Collected::default() };
        let mut offset = 0;
        // A page at a time, because a copy that meets an unmapped page says nothing of how far it came.
        while offset < bytes {
            let source = from.wrapping_add(u64::from(offset));
            let to_page_end = kernel::page::PAGE_SIZE as u64 - source % kernel::page::PAGE_SIZE as u64;
            let length = u64::from(bytes - offset).min(to_page_end);
            let Some(target) = stacks.at(place as usize + offset as usize) else { break };
            offset += length as u32;
            // SAFETY: `place + bytes` lies within the ring by contract; the source is checked to be user memory, and a
            // fault is caught.
            let failed = unsafe {
                bindings::copy_from_user_nofault(target.cast(), source as *const _, length as usize)
            };
            if failed == 0 {
                collected.bytes = offset;
            } else {
                collected.complete = false;
                // SAFETY: `place + bytes` lies within the ring by contract, and no reader has been given these bytes.
                unsafe { target.write_bytes(0, length as usize) };
            }
        }
        collected
    }

    fn follow_frames(&mut self, mut rbp: u64, place: u32, frames: u32) -> Collected {
        let mut collected = Collected::default();
        let Some(stacks) = &self.memory.stacks else { return collected };
        while collected.bytes < frames * FRAME_BYTES {
            let mut frame = [0u64; 2];
            // SAFETY: `frame` is writable; the source is checked to be user memory, and a fault is caught.
            let failed = unsafe {
                bindings::copy_from_user_nofault(
                    frame.as_mut_ptr().cast(),
                    rbp as *const _,
                    size_of_val(&frame) as _,
                )
            };
            let [caller_rbp, return_address] = frame;
            if failed != 0 || return_address == 0 {
                break;
            }
            let Some(target) = stacks.at(place as usize + collected.bytes as usize) else { break };
            // SAFETY: The ring has room for `frames` addresses at `place` by contract, and both are multiples of 8.
            unsafe { target.cast::<u64>().write_volatile(return_address) };
            collected.bytes += FRAME_BYTES;
            // The stack grows down, so that a caller's frame lies above; anything else is no chain, and might be endless.
            if caller_rbp <= rbp {
                collected.complete = caller_rbp == 0;
                break;
            }
            rbp = caller_rbp;
        }
        collected
    }
}
