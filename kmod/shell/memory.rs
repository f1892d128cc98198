// SPDX-License-Identifier: GPL-2.0
//! Memory that a session shares with user space.

use core::ptr::NonNull;

use kernel::bindings;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use super::sys;
use crate::hpm_abi::SEGMENT_BYTES;

/// Whole zeroed pages, contiguous in the kernel's address space only.
///
/// User space may map them and, for a control area, write them at any time: of what it may write no reference is ever made, only raw,
/// volatile or atomic accesses. What the driver alone writes (quanta, counter pages) is written by reference, too.
pub(super) struct Area {
    /// Owns the memory; its length stays 0.
    _pages: VVec<[u8; PAGE_SIZE]>,
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: An area is plain memory without ties to a thread.
unsafe impl Send for Area {}
// SAFETY: `&Area` gives out raw pointers only.
unsafe impl Sync for Area {}

impl Area {
    /// Allocates `bytes`, a multiple of the page size and not 0.
    pub(super) fn new(bytes: usize) -> Result<Self> {
        // Charged to the caller's memory cgroup; a failure is the caller's to report.
        let flags = GFP_KERNEL_ACCOUNT | __GFP_ZERO | __GFP_NOWARN;
        let mut pages = VVec::<[u8; PAGE_SIZE]>::with_capacity(bytes / PAGE_SIZE, flags)?;
        let base = NonNull::new(pages.as_mut_ptr().cast()).ok_or(ENOMEM)?;
        Ok(Self { _pages: pages, base, bytes })
    }

    /// The first byte.
    pub(super) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The byte at this offset, or `None` outside.
    pub(super) fn at(&self, offset: usize) -> Option<*mut u8> {
        // SAFETY: `offset` lies within the allocation.
        (offset < self.bytes).then(|| unsafe { self.base.as_ptr().add(offset) })
    }

    /// The page at this offset, or `None` outside.
    pub(super) fn page(&self, offset: usize) -> Option<*mut bindings::page> {
        let address = self.at(offset)?;
        // SAFETY: The address lies in an area of vmalloc.
        NonNull::new(unsafe { bindings::vmalloc_to_page(address.cast()) }).map(NonNull::as_ptr)
    }
}

/// One segment: physically contiguous zeroed pages in the direct map, each with its own reference count.
pub(super) struct Block {
    base: NonNull<u8>,
    bytes: usize,
}

// SAFETY: A block is plain memory without ties to a thread.
unsafe impl Send for Block {}
// SAFETY: `&Block` gives out raw pointers only.
unsafe impl Sync for Block {}

impl Block {
    /// Allocates a block of so many bytes, a multiple of the page size and not 0.
    pub(super) fn new(bytes: usize) -> Result<Self> {
        // Who is refused a large one can ask for small ones.
        let insist = bytes <= SEGMENT_BYTES as usize;
        // SAFETY: Process context.
        let base = unsafe { sys::hpm_block_alloc(bytes, insist) };
        Ok(Self { base: NonNull::new(base.cast()).ok_or(ENOMEM)?, bytes })
    }

    /// The first byte.
    pub(super) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Its bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Its physical address, a multiple of its size where that is a power of two.
    pub(super) fn physical(&self) -> u64 {
        // SAFETY: The block lies in the direct map.
        unsafe { sys::physical(self.base()) }
    }

    /// The page at this offset, or `None` outside.
    pub(super) fn page(&self, offset: usize) -> Option<*mut bindings::page> {
        if offset >= self.bytes {
            return None;
        }
        // SAFETY: `offset` lies within the block.
        let address = unsafe { self.base().add(offset) };
        // SAFETY: The address lies in the direct map.
        Some(unsafe { sys::page_of(address) })
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: Allocated by `Block::new`. Pages that something still refers to outlive this by their own count.
        unsafe { bindings::free_pages_exact(self.base.as_ptr().cast(), self.bytes) };
    }
}
