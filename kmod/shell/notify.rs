// SPDX-License-Identifier: GPL-2.0
//! CPUs that come and go, and the machine going to sleep or going down.

use core::pin::Pin;

use kernel::bindings;
use kernel::error::to_result;
use kernel::prelude::*;
use kernel::types::Opaque;

use super::{control, owner, sys};

/// Callbacks for CPU hotplug.
pub(super) struct Hotplug(bindings::cpuhp_state);

impl Hotplug {
    /// Registers the callbacks. CPUs that are online are not reported.
    pub(super) fn register() -> Result<Self> {
        // SAFETY: The callbacks are functions of this module, which `drop` unregisters.
        let state = unsafe {
            bindings::__cpuhp_setup_state(
                bindings::cpuhp_state_CPUHP_AP_ONLINE_DYN,
                c"hpm:online".as_ptr().cast(),
                false,
                Some(on_online),
                Some(on_offline),
                false,
            )
        };
        to_result(state.min(0))?;
        Ok(Self(state as bindings::cpuhp_state))
    }
}

impl Drop for Hotplug {
    fn drop(&mut self) {
        // SAFETY: `register` has set it up.
        unsafe { bindings::__cpuhp_remove_state(self.0, false) };
    }
}

unsafe extern "C" fn on_online(cpu: c_uint) -> c_int {
    owner::cpu_online(cpu);
    0
}

unsafe extern "C" fn on_offline(cpu: c_uint) -> c_int {
    owner::cpu_offline(cpu);
    0
}

/// A callback that the kernel calls when something is about to happen to the whole machine.
#[pin_data(PinnedDrop)]
pub(super) struct Notifier {
    #[pin]
    block: Opaque<bindings::notifier_block>,
    chain: Chain,
}

/// What registers a block, and what takes it out.
type Chain = [unsafe extern "C" fn(*mut bindings::notifier_block) -> c_int; 2];
type Callback = unsafe extern "C" fn(*mut bindings::notifier_block, c_ulong, *mut c_void) -> c_int;

// SAFETY: The notifier may be unregistered on any thread.
unsafe impl Send for Notifier {}
// SAFETY: Nothing can be done through `&Notifier`.
unsafe impl Sync for Notifier {}

impl Notifier {
    /// Of suspend and hibernation.
    pub(super) fn of_sleep() -> impl PinInit<Self, Error> {
        Self::register(on_sleep, [bindings::register_pm_notifier, bindings::unregister_pm_notifier])
    }

    /// Of the end: what comes next, by kexec without any firmware between, is to find the PMU as it was found.
    pub(super) fn of_shutdown() -> impl PinInit<Self, Error> {
        Self::register(on_shutdown, [sys::hpm_register_reboot, sys::hpm_unregister_reboot])
    }

    fn register(callback: Callback, chain: Chain) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            block <- Opaque::try_ffi_init(move |slot: *mut bindings::notifier_block| {
                let block = bindings::notifier_block { notifier_call: Some(callback), ..Default::default() };
                // SAFETY: `slot` is to be initialised.
                unsafe { slot.write(block) };
                // SAFETY: The block stays where it is until it is unregistered.
                to_result(unsafe { chain[0](slot) })
            }),
            chain,
        })
    }
}

#[pinned_drop]
impl PinnedDrop for Notifier {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `register` has registered it with this chain.
        unsafe { self.chain[1](self.block.get()) };
    }
}

unsafe extern "C" fn on_shutdown(
    _block: *mut bindings::notifier_block,
    _event: c_ulong,
    _data: *mut c_void,
) -> c_int {
    control::suspend();
    bindings::NOTIFY_DONE as c_int
}

unsafe extern "C" fn on_sleep(
    _block: *mut bindings::notifier_block,
    event: c_ulong,
    _data: *mut c_void,
) -> c_int {
    match event as u32 {
        bindings::PM_SUSPEND_PREPARE | bindings::PM_HIBERNATION_PREPARE | bindings::PM_RESTORE_PREPARE => {
            control::suspend();
        }
        bindings::PM_POST_SUSPEND | bindings::PM_POST_HIBERNATION | bindings::PM_POST_RESTORE => {
            control::resume()
        }
        _ => {}
    }
    bindings::NOTIFY_DONE as c_int
}
