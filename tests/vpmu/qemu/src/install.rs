//! The entry point.

#![allow(unsafe_code, reason = "called by QEMU, with its pointers")]

use crate::args::{Args, ArgumentError};
use crate::callbacks;
use crate::ffi::{self, Api, Exports, Info, MissingSymbol, discon};
use crate::machine::Machine;
use libloading::os::unix::Library;
use std::ffi::{CStr, c_char, c_int};
use std::ptr;
use thiserror::Error;
use vpmu::micro::GeometryError;
use vpmu::{Core, SharedCache};

/// The plugin API this plugin is written for; QEMU refuses a plugin whose version it does not offer.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "QEMU looks for this name")]
#[allow(unreachable_pub, reason = "exported to QEMU, not to other crates")]
pub static qemu_plugin_version: c_int = ffi::API_VERSION;

/// Why the plugin does not load.
#[derive(Debug, Error)]
enum Refusal {
    #[error(transparent)]
    Argument(#[from] ArgumentError),
    #[error(transparent)]
    Symbol(#[from] MissingSymbol),
    #[error("the caches asked for: {0}")]
    Caches(#[from] GeometryError),
    #[error("the plugin models the PMU of an x86-64 machine; use it with qemu-system-x86_64")]
    Target,
    #[error("argument {0} is not UTF-8")]
    NotText(usize),
}

/// Called by QEMU when it loads the plugin.
///
/// # Safety
/// `info` and the `argc` strings at `argv` are valid during the call.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "exported to QEMU, not to other crates")]
pub unsafe extern "C" fn qemu_plugin_install(
    id: u64,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    match unsafe { install(id, info, argc, argv) } {
        Ok(()) => 0,
        Err(refusal) => {
            eprintln!("vpmu: {refusal}");
            1
        }
    }
}

/// # Safety
/// As for [`qemu_plugin_install`].
unsafe fn install(
    id: u64,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> Result<(), Refusal> {
    // SAFETY: valid during the call.
    let info = unsafe { &*info };
    // SAFETY: a C string.
    let target = unsafe { CStr::from_ptr(info.target_name) };
    if target != c"x86_64" || !info.system_emulation {
        return Err(Refusal::Target);
    }
    // SAFETY: the caller's promise.
    let arguments = unsafe { arguments(argc, argv) }?;
    let args = Args::parse(arguments)?;
    let program = Library::this();
    let llc = SharedCache::new(&args.geometry.llc)?;
    // A core of its own shows whether the other caches are possible, before any vCPU needs one.
    Core::new(args.profile, &args.geometry, llc.clone())?;
    ffi::current_cpu()?;
    // QEMU has at least one.
    let cpus = u32::try_from(info.smp_vcpus).unwrap_or(1);
    let machine = Machine::install(Api::load(&program)?, Exports::load(&program)?, args, llc, cpus);
    register(machine, id);
    Ok(())
}

/// # Safety
/// `argv` points to `argc` C strings that live as long as the plugin.
unsafe fn arguments(argc: c_int, argv: *const *const c_char) -> Result<Vec<&'static str>, Refusal> {
    (0..usize::try_from(argc).unwrap_or(0))
        .map(|i| {
            // SAFETY: `i` is below `argc`.
            let place = unsafe { argv.add(i) };
            // SAFETY: as above.
            let argument = unsafe { *place };
            // SAFETY: a C string, by the caller's promise.
            unsafe { CStr::from_ptr(argument) }.to_str().map_err(|_| Refusal::NotText(i))
        })
        .collect()
}

fn register(machine: &Machine, id: u64) {
    let api = &machine.api;
    let none = ptr::null_mut();
    // SAFETY: the callback has the registered type and lives as long as the program (here and below).
    unsafe { (api.qemu_plugin_register_vcpu_init_cb)(id, callbacks::at_vcpu_init, none) };
    // SAFETY: as above.
    unsafe { (api.qemu_plugin_register_vcpu_tb_trans_cb)(id, callbacks::at_translation, none) };
    // SAFETY: as above.
    unsafe {
        let kinds = discon::INTERRUPT | discon::EXCEPTION;
        (api.qemu_plugin_register_vcpu_discon_cb)(id, kinds, callbacks::at_discontinuity, none);
    }
    // SAFETY: as above.
    unsafe { (api.qemu_plugin_register_flush_cb)(id, callbacks::at_flush, none) };
    // SAFETY: as above.
    unsafe { (api.qemu_plugin_register_atexit_cb)(id, callbacks::at_exit, none) };
}
