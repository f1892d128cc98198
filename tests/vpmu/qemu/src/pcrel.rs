//! Keeps QEMU from sharing translated code between virtual addresses.
//!
//! With position-independent translation (CF_PCREL, on for every x86 system machine) one translated block serves every
//! virtual address at which its physical page is mapped: two processes, or two runs of a program, share the blocks of
//! a library at different addresses. The plugin API gives an instruction's address at translation only, so everything
//! instrumented with it would name the first process' address. Without the flag blocks are found by their virtual
//! address as well.

#![allow(unsafe_code, reason = "calls into QEMU")]

use crate::ffi::{CpuState, Exports};
use crate::internals::SelfCheck;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// `CF_PCREL` of QEMU's include/exec/translation-block.h.
const CF_PCREL: u32 = 0x0002_0000;

/// Bytes of the stand-in below; `tcg_cflags` lies in the first kilobyte of QEMU's `CPUState`.
const STAND_IN_WORDS: usize = 1024;

/// Clears the flag of a vCPU that has not translated anything yet.
///
/// # Errors
/// [`SelfCheck::Flag`] when the flag is not where QEMU's own functions should have it.
pub(crate) fn switch_off(exports: &Exports, cpu: NonNull<CpuState>) -> Result<(), SelfCheck> {
    // SAFETY: reads one field of a live CPU object.
    let is_set = || unsafe { (exports.tcg_cflags_has)(cpu.as_ptr(), CF_PCREL) };
    if !is_set() {
        return Err(SelfCheck::Flag);
    }
    let word = find_field(exports).ok_or(SelfCheck::Flag)?;
    // SAFETY: QEMU itself reaches this word of every CPU object.
    let field = unsafe { cpu.cast::<AtomicU32>().add(word) };
    // SAFETY: an aligned u32 of a live object, which only this vCPU's own thread uses until its first block.
    unsafe { field.as_ref() }.fetch_and(!CF_PCREL, Ordering::Relaxed);
    if is_set() { Err(SelfCheck::Flag) } else { Ok(()) }
}

/// Where `tcg_cflags` is in a `CPUState`, in u32: QEMU's own setter shows it on a stand-in.
fn find_field(exports: &Exports) -> Option<usize> {
    let mut stand_in = [0u32; STAND_IN_WORDS];
    // SAFETY: the function sets bits of one field of the object it is given; the stand-in is larger than that field's
    // offset in any QEMU with this plugin API, and nothing else of it is used.
    unsafe { (exports.tcg_cflags_set)(stand_in.as_mut_ptr().cast(), CF_PCREL) };
    stand_in.iter().position(|&word| word == CF_PCREL)
}
