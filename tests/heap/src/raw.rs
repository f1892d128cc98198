//! The heap's memory: this file and the folder of its name have the only unsafe code of this package.
//!
//! What makes it safe for callers: an area is there for its whole life, every access is checked against its
//! bounds, and the values read are plain numbers, for which every bit pattern is valid. No reference into the area ever
//! exists, so that reads and writes through `&self` alias nothing; [`Area`] is not [`Sync`], so that they do not race.
#![allow(unsafe_code, reason = "a heap is made of untyped memory; all of it is behind this file")]

pub(crate) mod libgc;

use std::io;
use std::ptr;

use memmap2::{MmapOptions, MmapRaw, UncheckedAdvice};

/// Plain numbers: every bit pattern is a value, and there is no padding.
pub trait Plain: Copy + Default + private::Sealed + 'static {
    /// Size in bytes.
    const BYTES: u32 = size_of::<Self>() as u32;
}

mod private {
    /// Nothing outside this file is plain.
    pub trait Sealed {}
}

macro_rules! plain {
    ($($number:ty),*) => { $(impl private::Sealed for $number {} impl Plain for $number {})* };
}
plain!(u8, u16, u32, u64, f64);

/// Memory of one piece, addressed by offsets from its base.
#[derive(Debug)]
pub struct Area {
    /// Where offset 0 is. (A pointer makes the area neither [`Sync`] nor [`Send`].)
    base: *mut u8,
    /// The first offset that is memory.
    first: u32,
    /// Bytes from there.
    bytes: usize,
    /// Keeps the mapping; libgc keeps its memory itself, as long as the process lives.
    map: Option<MmapRaw>,
}

impl Area {
    /// Reserves `bytes`, which read as zeros; pages are taken from the system when they are first written.
    ///
    /// # Errors
    /// The system has no such address space.
    pub fn reserve(bytes: u32) -> io::Result<Self> {
        let map = MmapOptions::new().len(bytes as usize).no_reserve_swap().map_anon()?;
        let map = MmapRaw::from(map);
        Ok(Self { base: map.as_mut_ptr(), first: 0, bytes: map.len(), map: Some(map) })
    }

    /// Where offset 0 is in the process's address space: hardware samples name linear addresses.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.base as u64
    }

    /// The start of `bytes` at `at`.
    ///
    /// # Panics
    /// If they are not all within the area.
    #[inline]
    fn place(&self, at: u32, bytes: u32) -> *mut u8 {
        let within = at.wrapping_sub(self.first) as usize + bytes as usize <= self.bytes;
        assert!(within, "an access outside the heap's memory");
        self.base.wrapping_add(at as usize)
    }

    /// The number at offset `at`.
    ///
    /// # Panics
    /// If it is not within the area.
    #[inline]
    #[must_use]
    pub fn read<T: Plain>(&self, at: u32) -> T {
        let place = self.place(at, T::BYTES);
        // SAFETY: `place` checked that the bytes are within memory that lives as long as `self`. The system's memory is
        // always initialised, every bit pattern is a `T` (`Plain` is sealed), and no alignment is asked for.
        unsafe { place.cast::<T>().read_unaligned() }
    }

    /// Sets the number at offset `at`.
    ///
    /// # Panics
    /// If it is not within the area.
    #[inline]
    pub fn write<T: Plain>(&self, at: u32, value: T) {
        let place = self.place(at, T::BYTES);
        // SAFETY: `place` checked that the bytes are within memory that is writable and lives as long as `self`. No
        // reference into it exists, and no other thread has access.
        unsafe { place.cast::<T>().write_unaligned(value) }
    }

    /// Copies bytes; the two places may overlap.
    ///
    /// # Panics
    /// If one of them is not within the area.
    pub fn copy(&self, from: u32, to: u32, bytes: u32) {
        let (source, target) = (self.place(from, bytes), self.place(to, bytes));
        // SAFETY: `place` checked that both are within the memory; `copy` allows them to overlap.
        unsafe { ptr::copy(source, target, bytes as usize) }
    }

    /// Sets bytes to 0.
    ///
    /// # Panics
    /// If they are not all within the area.
    pub fn clear(&self, at: u32, bytes: u32) {
        let place = self.place(at, bytes);
        // SAFETY: `place` checked that the bytes are within writable memory; 0 is a valid byte.
        unsafe { place.write_bytes(0, bytes as usize) }
    }

    /// Gives whole pages back to the system; they read as zeros afterwards. Of libgc's memory nothing is given back.
    ///
    /// # Errors
    /// The system refuses.
    ///
    /// # Panics
    /// If they are not all within the area.
    pub fn release(&self, at: u32, bytes: u32) -> io::Result<()> {
        self.place(at, bytes);
        let Some(map) = &self.map else { return Ok(()) };
        // SAFETY: MADV_DONTNEED changes the content of the pages, in which no reference points: to the readers of this area
        // it is the same as writing zeros. The range is within this mapping.
        unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, at as usize, bytes as usize) }
    }
}

/// Marks a stretch of the program for the PMU model of the virtual lab machine (hypercalls 2 and 3 of tests/vpmu): the truth
/// has its events as a window. Any processor answers `CPUID` of a leaf that it does not have; nothing else happens there.
#[cfg(target_arch = "x86_64")]
pub fn lab_window(tag: [u8; 8], open: bool) {
    let tag = u64::from_le_bytes(tag);
    // SAFETY: CPUID is there on every x86-64 processor and reads and writes no memory; RBX, which the compiler keeps for
    // itself, is put back.
    unsafe {
        std::arch::asm!(
            "mov {kept}, rbx",
            "mov rbx, {tag}",
            "cpuid",
            "mov rbx, {kept}",
            tag = in(reg) tag,
            kept = out(reg) _,
            inout("eax") 0x4850_4D00_u32 => _,
            inout("ecx") if open { 2_u32 } else { 3 } => _,
            out("edx") _,
            options(nomem, nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_released_pages_are_zero() {
        let area = Area::reserve(1 << 16).unwrap();
        area.write(8190, 0x1122_3344_5566_7788_u64);
        assert_eq!(area.read::<u64>(8190), 0x1122_3344_5566_7788);
        area.copy(8190, 8194, 8);
        assert_eq!(area.read::<u64>(8194), 0x1122_3344_5566_7788);
        area.release(4096, 8192).unwrap();
        assert_eq!(area.read::<u64>(8190), 0);
    }

    #[test]
    #[should_panic(expected = "outside the heap's memory")]
    fn nothing_is_read_outside() {
        let _ = Area::reserve(4096).unwrap().read::<u32>(4094);
    }
}
