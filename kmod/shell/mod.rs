// SPDX-License-Identifier: GPL-2.0
//! The adapter of `hpm_core` to Linux. It knows nothing of events and counters; whatever could be tested on the host is
//! in `hpm_core`.
//!
//! | question | module |
//! |---|---|
//! | what the kernel calls | [`device`], [`probes`], [`clock`], [`notify`] |
//! | what an ioctl does | [`control`], [`request`], [`rights`], [`limits`] |
//! | what a session is | [`session`], [`subject`], [`counters`], [`target`], [`memory`], [`registry`], [`markers`], [`reports`] |
//! | who holds the PMU | [`owner`], [`cpu`], [`every_cpu`], [`interrupts`], [`machine`] |
//! | how registers and rings are reached | [`port`], [`sys`], and the C files |

mod clock;
mod control;
mod counters;
mod cpu;
mod device;
mod entry_area;
mod every_cpu;
mod interrupts;
mod limits;
mod machine;
mod markers;
mod memory;
mod notify;
mod owner;
mod port;
mod probes;
mod programs;
mod registry;
mod reports;
mod request;
mod rights;
mod session;
mod subject;
mod sys;
mod target;

use kernel::prelude::*;

/// The module. Its parts go in this order, which is the reverse of what they need of each other.
#[pin_data]
pub(crate) struct Hpm {
    #[pin]
    _device: device::Device,
    #[pin]
    _shutdown: notify::Shutdown,
    _hotplug: notify::Hotplug,
    _guests: notify::Guests,
    _cpus: cpu::Cpus,
}

impl kernel::InPlaceModule for Hpm {
    fn init(_module: &'static ThisModule) -> impl PinInit<Self, Error> {
        // SAFETY: The module is initialised once, and nothing else of it runs yet.
        unsafe { control::set_up() };
        // SAFETY: As above.
        unsafe { registry::set_up() };
        // SAFETY: As above.
        unsafe { markers::set_up() };
        // SAFETY: As above.
        unsafe { reports::set_up() };
        machine::set_up();
        try_pin_init!(Self {
            _cpus: cpu::Cpus::new()?,
            _guests: notify::Guests::follow()?,
            _hotplug: notify::Hotplug::register()?,
            _shutdown <- notify::Shutdown::register(),
            _device <- device::Device::register(),
        })
    }
}
