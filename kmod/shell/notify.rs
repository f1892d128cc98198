// SPDX-License-Identifier: GPL-2.0
//! CPUs and KVM that come and go, and the machine going to sleep or going down.

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

/// That it is noticed when KVM comes and goes.
pub(super) struct Guests;

impl Guests {
    pub(super) fn follow() -> Result<Self> {
        sys::follow_guests()?;
        Ok(Self)
    }
}

impl Drop for Guests {
    fn drop(&mut self) {
        sys::forget_guests();
    }
}

/// The callback for the end: what comes next, by kexec without any firmware between, is to find the PMU as it was found.
#[pin_data(PinnedDrop)]
pub(super) struct Shutdown {
    #[pin]
    block: Opaque<bindings::notifier_block>,
}

// SAFETY: The notifier may be unregistered on any thread.
unsafe impl Send for Shutdown {}
// SAFETY: Nothing can be done through `&Shutdown`.
unsafe impl Sync for Shutdown {}

impl Shutdown {
    pub(super) fn register() -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            block <- Opaque::try_ffi_init(|slot: *mut bindings::notifier_block| {
                let block = bindings::notifier_block { notifier_call: Some(on_shutdown), ..Default::default() };
                // SAFETY: `slot` is to be initialised.
                unsafe { slot.write(block) };
                // SAFETY: The block stays where it is until it is unregistered.
                to_result(unsafe { sys::hpm_register_reboot(slot) })
            }),
        })
    }
}

#[pinned_drop]
impl PinnedDrop for Shutdown {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: `register` has registered it.
        unsafe { sys::hpm_unregister_reboot(self.block.get()) };
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

/// Devices are being suspended: no program runs, and none will before [`hpm_on_wake`]. The kernel's notifiers of sleep come earlier, and later.
/// False if the machine cannot sleep now.
#[no_mangle]
extern "C" fn hpm_on_sleep() -> bool {
    control::try_suspend()
}

/// Devices work again, and programs will.
#[no_mangle]
extern "C" fn hpm_on_wake() {
    control::resume();
}
