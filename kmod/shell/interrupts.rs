// SPDX-License-Identifier: GPL-2.0
//! Interrupts of the CPU that runs. Linux 7.3 has the like of this as `kernel::interrupt`, 7.2 has not.

use kernel::types::NotThreadSafe;

use super::sys;

/// Proof that interrupts are off on the CPU that runs.
pub(super) struct LocalInterruptDisabled {
    /// What to put back when this is dropped.
    flags: usize,
    _here: NotThreadSafe,
}

/// Switches interrupts off until the value is dropped. Such values are dropped in the reverse order of their making.
pub(super) fn local_interrupt_disable() -> LocalInterruptDisabled {
    LocalInterruptDisabled { flags: sys::save_interrupts(), _here: NotThreadSafe }
}

impl LocalInterruptDisabled {
    /// For what the kernel calls with interrupts off, which a kernel with lockdep checks.
    ///
    /// # Safety
    /// Interrupts are off for the whole of `'a`.
    pub(super) unsafe fn assume_disabled<'a>() -> &'a Self {
        /// Never dropped.
        const ASSUMED: &LocalInterruptDisabled = &LocalInterruptDisabled { flags: 0, _here: NotThreadSafe };
        #[cfg(CONFIG_PROVE_LOCKING)]
        sys::assert_interrupts_off();
        ASSUMED
    }
}

impl Drop for LocalInterruptDisabled {
    fn drop(&mut self) {
        // SAFETY: `local_interrupt_disable` has saved them on this CPU, which the thread could not leave since.
        unsafe { sys::restore_interrupts(self.flags) };
    }
}
