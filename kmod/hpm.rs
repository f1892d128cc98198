// SPDX-License-Identifier: GPL-2.0
//! hpm: precise profiling of programs by the processor's own counters. Programs x86 performance-monitoring units and
//! hands user space what they count and the records they write.

use kernel::prelude::*;

#[allow(unused_attributes, reason = "a crate root under cargo, a module here")]
#[path = "abi/src/lib.rs"]
pub mod hpm_abi;
#[allow(unused_attributes, reason = "a crate root under cargo, a module here")]
#[path = "core/src/lib.rs"]
pub mod hpm_core;
#[path = "shell/mod.rs"]
mod shell;

module! {
    type: shell::Hpm,
    name: "hpm",
    authors: ["The hpm project"],
    description: "Programs x86 performance-monitoring units and maps their precise records into user space",
    license: "GPL",
}
