// SPDX-License-Identifier: GPL-2.0
//! The window beside a CPU's entry area through which hardware writes PEBS records (`entry_area.c`), and the block that it shows.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use kernel::error::to_result;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use super::memory::Block;
use super::sys;

/// `struct hpm_cea`.
#[repr(C)]
pub(super) struct Cea {
    debug_store: *mut u64,
    window: u64,
    pte: [*mut c_void; 2],
    split: u32,
    pages: u32,
    found: u64,
}

/// One CPU's debug store and window.
pub(super) struct EntryArea {
    cea: Cea,
    /// The block that hardware writes, where the kernel has it; null while there is none. Written by this CPU with PEBS off.
    block: AtomicPtr<u8>,
    /// Its bytes.
    bytes: AtomicU32,
    /// Pages that are mapped in the window: the block's, or none where it needs no window.
    mapped: AtomicU32,
}

impl EntryArea {
    /// The area of a possible CPU.
    ///
    /// # Errors
    /// `ENODEV` when the processor has none (not Intel), `EBUSY` when somebody has mapped buffers there.
    pub(super) fn find(cpu: u32) -> Result<Self> {
        let mut cea = Cea {
            debug_store: ptr::null_mut(),
            window: 0,
            pte: [ptr::null_mut(); 2],
            split: 0,
            pages: 0,
            found: 0,
        };
        // SAFETY: `cea` has the layout of `struct hpm_cea` and is writable.
        to_result(unsafe { sys::hpm_cea_find(cpu, &mut cea) })?;
        let (bytes, mapped) = (AtomicU32::new(0), AtomicU32::new(0));
        Ok(Self { cea, block: AtomicPtr::new(ptr::null_mut()), bytes, mapped })
    }

    /// The DS management area, writable for as long as the kernel runs.
    pub(super) fn debug_store(&self) -> *mut u64 {
        self.cea.debug_store
    }

    /// Linear address of the window.
    pub(super) fn window(&self) -> u64 {
        self.cea.window
    }

    /// Bytes of the window, a multiple of the smallest segment's.
    pub(super) fn bytes(&self) -> u32 {
        self.cea.pages * PAGE_SIZE as u32
    }

    /// Maps a block at the window's start and drops this CPU's old translations. What is larger than the window is left out.
    ///
    /// # Safety
    /// Runs on the CPU of this area with PEBS off, and the block stays allocated until it is unmapped or replaced.
    pub(super) unsafe fn map(&self, block: &Block) {
        let pages = (block.bytes() / PAGE_SIZE).min(self.cea.pages as usize) as u32;
        let before = self.mapped.load(Ordering::Relaxed);
        // SAFETY: `hpm_cea_find` has filled it, it has so many pages, and so has the block; the rest is the caller's promise.
        unsafe { sys::hpm_cea_map(&self.cea, block.base().cast(), pages) };
        // SAFETY: As above. Of a longer block before nothing may stay.
        unsafe { sys::hpm_cea_unmap(&self.cea, pages, before) };
        self.mapped.store(pages, Ordering::Relaxed);
        self.refer_to(block.base(), pages as usize * PAGE_SIZE);
    }

    /// Takes note of a block that hardware writes by its physical address; what the window maps is taken out.
    ///
    /// # Safety
    /// As for [`Self::map`].
    pub(super) unsafe fn show(&self, block: &Block) {
        // SAFETY: The caller's promise.
        unsafe { self.unmap() };
        self.refer_to(block.base(), block.bytes());
    }

    fn refer_to(&self, block: *mut u8, bytes: usize) {
        self.block.store(block, Ordering::Relaxed);
        self.bytes.store(bytes as u32, Ordering::Relaxed);
    }

    /// Puts back the page-table entries found at first.
    ///
    /// # Safety
    /// Runs on the CPU of this area with PEBS off.
    pub(super) unsafe fn unmap(&self) {
        // SAFETY: `map` has mapped so many pages; the rest is the caller's promise.
        unsafe { sys::hpm_cea_unmap(&self.cea, 0, self.mapped.load(Ordering::Relaxed)) };
        self.mapped.store(0, Ordering::Relaxed);
        self.refer_to(ptr::null_mut(), 0);
    }

    /// The word at this byte offset of the block that hardware writes; `None` outside.
    ///
    /// # Safety
    /// Runs on the CPU of this area; the block is still allocated.
    pub(super) unsafe fn read(&self, offset: u32) -> Option<u64> {
        let (bytes, offset) = (self.bytes.load(Ordering::Relaxed) as usize, offset as usize);
        if offset % 8 != 0 || offset + 8 > bytes {
            return None;
        }
        // Where the kernel has it, and not through the window, whose addresses an instrumented kernel does not know.
        // SAFETY: The word lies in the block, which is as long by `map`, and aligned.
        Some(unsafe { self.block.load(Ordering::Relaxed).add(offset).cast::<u64>().read_volatile() })
    }
}
