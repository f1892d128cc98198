// SPDX-License-Identifier: GPL-2.0
//! How much a user, and everyone together, may ask of the driver: module parameters and RLIMIT_MEMLOCK.

use core::ptr::NonNull;

use kernel::bindings;
use kernel::page::PAGE_SIZE;
use kernel::prelude::*;

use super::machine;
use crate::hpm_abi::Reason;
use crate::hpm_core::{Limits, Refusal};

extern "C" {
    static hpm_max_sessions: c_uint;
    static hpm_max_session_mib: c_uint;
    static hpm_max_pmi_rate: c_uint;
    static hpm_max_record_rate: c_uint;
    static hpm_max_handler_percent: c_uint;
    fn hpm_mlock_charge(pages: c_ulong, left: *mut c_ulong) -> *mut bindings::user_struct;
    fn hpm_mlock_uncharge(user: *mut bindings::user_struct, pages: c_ulong);
}

/// Checks that one more session than `sessions` may be configured.
pub(super) fn check_sessions(sessions: u32) -> Result<(), Refusal> {
    // SAFETY: A module parameter: one word, written by root through sysfs.
    let most = unsafe { (&raw const hpm_max_sessions).read_volatile() };
    if sessions < most {
        Ok(())
    } else {
        Err(Refusal::new(Reason::TooManySessions, [u64::from(most), 0]))
    }
}

/// The ceilings on sampling, as they are now.
pub(super) fn of_sampling() -> Limits {
    // SAFETY: A module parameter: one word, written by root through sysfs.
    let pmi_rate = unsafe { (&raw const hpm_max_pmi_rate).read_volatile() };
    // SAFETY: As above.
    let record_rate = unsafe { (&raw const hpm_max_record_rate).read_volatile() };
    // SAFETY: As above.
    let handler_percent = unsafe { (&raw const hpm_max_handler_percent).read_volatile() };
    Limits { tsc_khz: machine::tsc_khz() as u32, pmi_rate, record_rate, handler_percent }
}

/// Memory that is charged to the user who configured a session.
pub(super) struct Locked {
    user: NonNull<bindings::user_struct>,
    pages: c_ulong,
}

// SAFETY: `user_struct` is reference counted and may be used and released on any thread.
unsafe impl Send for Locked {}
// SAFETY: Nothing can be done through `&Locked`.
unsafe impl Sync for Locked {}

impl Locked {
    /// Charges so many bytes to the caller's user.
    ///
    /// # Errors
    /// [`Reason::MemoryCeiling`] or [`Reason::MemoryLimit`].
    pub(super) fn charge(bytes: u64) -> Result<Self, Refusal> {
        // SAFETY: A module parameter: one word, written by root through sysfs.
        let ceiling = u64::from(unsafe { (&raw const hpm_max_session_mib).read_volatile() }) << 20;
        if bytes > ceiling {
            return Err(Refusal::new(Reason::MemoryCeiling, [bytes, ceiling]));
        }
        let pages = bytes.div_ceil(PAGE_SIZE as u64) as c_ulong;
        let mut left = 0;
        // SAFETY: Process context; `left` is writable.
        let user = NonNull::new(unsafe { hpm_mlock_charge(pages, &mut left) });
        let limit = Refusal::new(Reason::MemoryLimit, [bytes, left as u64 * PAGE_SIZE as u64]);
        Ok(Self { user: user.ok_or(limit)?, pages })
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // SAFETY: `charge` has charged this to the user.
        unsafe { hpm_mlock_uncharge(self.user.as_ptr(), self.pages) };
    }
}
