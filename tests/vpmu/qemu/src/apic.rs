//! The local APIC of the vCPU whose callback is running.

#![allow(unsafe_code, reason = "calls into QEMU")]

use crate::ffi::{Apic, Exports};
use std::ffi::c_int;
use std::ptr::NonNull;

/// The APIC's registers in xAPIC mode are a small page.
const PAGE: u64 = 4096;

/// The local APIC of the vCPU whose callback is running.
pub(crate) struct LocalApic<'a> {
    pub(crate) exports: &'a Exports,
    pub(crate) apic: NonNull<Apic>,
}

impl LocalApic<'_> {
    /// Physical address of the registers in xAPIC mode.
    pub(crate) fn base(&self) -> u64 {
        // SAFETY: the APIC is this vCPU's.
        let base = unsafe { (self.exports.cpu_get_apic_base)(self.apic.as_ptr()) };
        base & !(PAGE - 1)
    }

    /// Whether the registers are MSRs (SDM Vol. 3A 10.12).
    pub(crate) fn is_x2apic(&self) -> bool {
        // SAFETY: the APIC is this vCPU's.
        unsafe { (self.exports.is_x2apic_mode)(self.apic.as_ptr()) }
    }

    /// Reads x2APIC register `index` (MSR 0x800 + `index`).
    pub(crate) fn read(&self, index: c_int) -> Option<u64> {
        let mut value = 0;
        let status = self.locked(|exports, apic| {
            // SAFETY: the APIC is this vCPU's and the big lock is held.
            unsafe { (exports.apic_msr_read)(apic, index, &mut value) }
        });
        (status == 0).then_some(value)
    }

    /// Writes x2APIC register `index`.
    pub(crate) fn write(&self, index: c_int, value: u64) {
        self.locked(|exports, apic| {
            // SAFETY: as for reading.
            unsafe { (exports.apic_msr_write)(apic, index, value) }
        });
    }

    /// Runs `action` with QEMU's big lock held, which guards devices.
    fn locked(&self, action: impl FnOnce(&Exports, *mut Apic) -> c_int) -> c_int {
        // SAFETY: asks about this thread.
        let held = unsafe { (self.exports.bql_locked)() };
        if !held {
            // SAFETY: not held, so this cannot deadlock with ourselves.
            unsafe { (self.exports.bql_lock_impl)(c"vpmu".as_ptr(), 0) };
        }
        let status = action(self.exports, self.apic.as_ptr());
        if !held {
            // SAFETY: taken above.
            unsafe { (self.exports.bql_unlock)() };
        }
        status
    }
}
