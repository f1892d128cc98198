//! AMD's extended local vector table, which QEMU's local APIC does not have: four entries at offsets 500H to 530H
//! (APM Vol. 2, 16.7). Firmware and the operating system put there how the interrupts of instruction-based sampling are
//! delivered; IBS_CTL says by which entry.
//!
//! QEMU answers 0 there, which Linux takes for an entry that another user has unmasked (setup_APIC_eilvt). A small region of
//! our own therefore lies over the APIC's page at its address after reset, where every guest of this lab leaves it.

#![allow(unsafe_code, reason = "called by QEMU, with its pointers")]

use crate::ffi::{self, Exports, MemoryRegion, MemoryRegionOps};
use crate::machine::{Machine, Vcpu};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where the entries are: 16 bytes each.
const BASE: u64 = 0xfee0_0500;
const ENTRIES: usize = 4;
const STRIDE: u64 = 16;
/// Above the APIC's page, whose priority is 1000H.
const PRIORITY: c_int = 0x2000;
/// Mask bit of an entry, and all bits that can be written: vector, message type, mask.
const MASKED: u32 = 1 << 16;
const WRITABLE: u32 = MASKED | 0x7ff;
/// More than a `MemoryRegion` of any QEMU takes.
const REGION_WORDS: usize = 512;

/// The entries of one vCPU.
#[derive(Debug)]
pub(crate) struct ExtendedLvt([AtomicU32; ENTRIES]);

impl Default for ExtendedLvt {
    /// After reset every entry is masked.
    fn default() -> Self {
        Self([const { AtomicU32::new(MASKED) }; ENTRIES])
    }
}

impl ExtendedLvt {
    /// Vector and message type of entry `index`, in the places that a message-signalled interrupt has them; `None` if the
    /// entry is masked or does not exist.
    pub(crate) fn message(&self, index: usize) -> Option<u32> {
        let entry = self.0.get(index)?.load(Ordering::Relaxed);
        (entry & MASKED == 0).then_some(entry)
    }

    fn read(&self, offset: u64) -> u32 {
        self.entry(offset).map_or(0, |entry| entry.load(Ordering::Relaxed))
    }

    fn write(&self, offset: u64, value: u32) {
        if let Some(entry) = self.entry(offset) {
            entry.store(value & WRITABLE, Ordering::Relaxed);
        }
    }

    fn entry(&self, offset: u64) -> Option<&AtomicU32> {
        // Only the first four bytes of each 16 are a register.
        let index = usize::try_from(offset / STRIDE).ok().filter(|_| offset.is_multiple_of(STRIDE))?;
        self.0.get(index)
    }
}

/// The vCPU that runs on this thread: the one that makes the access.
fn accessing() -> Option<&'static Vcpu> {
    let current = ffi::current_cpu().ok()?;
    // SAFETY: this thread's own variable.
    let cpu = unsafe { *current };
    Machine::get()?.vcpus().find(|vcpu| vcpu.handles.is(cpu))
}

unsafe extern "C" fn read(_: *mut c_void, offset: u64, _size: c_uint) -> u64 {
    accessing().map_or(0, |vcpu| vcpu.extended_lvt.read(offset).into())
}

unsafe extern "C" fn write(_: *mut c_void, offset: u64, value: u64, _size: c_uint) {
    if let Some(vcpu) = accessing() {
        // Accesses have 32 bits, as the operations below say.
        vcpu.extended_lvt.write(offset, value as u32);
    }
}

/// What QEMU calls for an access.
static OPERATIONS: MemoryRegionOps = MemoryRegionOps::of_words(read, write);

/// Adds the registers to the machine. Called once, with QEMU's big lock held.
pub(crate) fn install(exports: &Exports) {
    // Lives as long as the machine, to which it then belongs.
    let region = Box::leak(Box::new([0u64; REGION_WORDS]));
    let region: *mut MemoryRegion = ptr::from_mut(region).cast();
    let size = ENTRIES as u64 * STRIDE;
    let name = c"vpmu-extended-lvt".as_ptr();
    // SAFETY: room for a region, which is initialised here; the operations and the name are static.
    unsafe {
        (exports.memory_region_init_io)(region, ptr::null_mut(), &OPERATIONS, ptr::null_mut(), name, size)
    };
    // SAFETY: the machine has a system address space before it has vCPUs.
    let system = unsafe { (exports.get_system_memory)() };
    // SAFETY: both regions are initialised, and the caller holds the lock.
    unsafe { (exports.memory_region_add_subregion_overlap)(system, BASE, region, PRIORITY) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_delivers_what_was_written_once_it_is_unmasked() {
        let table = ExtendedLvt::default();
        assert_eq!((table.read(0), table.message(0)), (MASKED, None));
        table.write(STRIDE, 0xffff_ffff);
        assert_eq!((table.read(STRIDE), table.message(1)), (WRITABLE, None));
        table.write(STRIDE, 0x400);
        assert_eq!((table.read(STRIDE), table.message(1)), (0x400, Some(0x400)));
        assert_eq!((table.message(0), table.message(ENTRIES)), (None, None));
    }

    #[test]
    fn between_the_registers_is_nothing() {
        let table = ExtendedLvt::default();
        table.write(4, 0x400);
        assert_eq!((table.read(4), table.read(0), table.read(STRIDE * ENTRIES as u64)), (0, MASKED, 0));
    }
}
