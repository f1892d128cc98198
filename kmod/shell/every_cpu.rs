// SPDX-License-Identifier: GPL-2.0
//! Running something on other CPUs.

use kernel::bindings;
use kernel::prelude::*;

use super::cpu::{self, Cpu};
use super::interrupts::LocalInterruptDisabled;
use super::machine;

/// Proof that no CPU comes online or goes offline.
pub(super) struct Plugged(());

impl Plugged {
    /// Waits until CPU hotplug is at rest, and keeps it so.
    pub(super) fn hold() -> Self {
        // SAFETY: Process context, without the lock.
        unsafe { bindings::cpus_read_lock() };
        Self(())
    }

    /// Runs `f` on every online CPU, one after the other, with interrupts off.
    pub(super) fn on_online(&self, mut f: impl FnMut(&'static Cpu, &LocalInterruptDisabled)) {
        for number in (0..machine::cpu_count()).filter(|&number| machine::is_online(number)) {
            on_cpu(number, &mut f);
        }
    }

    /// Runs `f` on this CPU if it is online, with interrupts off.
    pub(super) fn on(&self, number: u32, mut f: impl FnMut(&'static Cpu, &LocalInterruptDisabled)) {
        if machine::is_online(number) {
            on_cpu(number, &mut f);
        }
    }
}

impl Drop for Plugged {
    fn drop(&mut self) {
        // SAFETY: `hold` took the lock.
        unsafe { bindings::cpus_read_unlock() };
    }
}

fn on_cpu<F: FnMut(&'static Cpu, &LocalInterruptDisabled)>(number: u32, f: &mut F) {
    // SAFETY: Process context; the call waits, so that `f` outlives its use. Fails only for a CPU that is
    // not online. The last argument is an `int` before Linux 7.3.
    unsafe {
        bindings::smp_call_function_single(number as i32, Some(call::<F>), (&raw mut *f).cast(), true.into())
    };
}

/// Calls an `F` on the CPU that runs.
///
/// # Safety
/// `f` points to an `F` that nothing else uses meanwhile, and interrupts are off.
unsafe extern "C" fn call<F: FnMut(&'static Cpu, &LocalInterruptDisabled)>(f: *mut c_void) {
    // SAFETY: The caller's promise.
    let irq = unsafe { LocalInterruptDisabled::assume_disabled() };
    // SAFETY: The caller's promise.
    let f = unsafe { &mut *f.cast::<F>() };
    if let Some(cpu) = cpu::this_cpu(irq) {
        f(cpu, irq);
    }
}
