//! The C side: types and symbols of the QEMU program that loaded us.
//!
//! Declarations follow `include/plugins/qemu-plugin.h` of QEMU 11.1 (plugin API 7), GLib's byte arrays, and the QEMU
//! internals that Debian's binary exports. Every function is looked up by name in the running program, so that a program
//! that lacks one is told from one that has it before any guest instruction runs.

#![allow(unsafe_code, reason = "symbols of the program that loads the plugin")]

use libloading::os::unix::Library;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};

/// The plugin API this crate is written for.
pub(crate) const API_VERSION: c_int = 7;

macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        $($(#[$doc])* #[repr(C)] pub(crate) struct $name { _opaque: [u8; 0] })*
    };
}

opaque! {
    /// `struct qemu_plugin_tb`: a block being translated.
    TranslationBlock,
    /// `struct qemu_plugin_insn`: one guest instruction of it.
    TranslatedInsn,
    /// `struct qemu_plugin_scoreboard`: one entry per vCPU.
    Scoreboard,
    /// `struct qemu_plugin_register`.
    RegisterHandle,
    /// `struct qemu_plugin_hwaddr`.
    HwAddr,
    /// QEMU's `CPUState`.
    CpuState,
    /// QEMU's `CPUX86State`.
    CpuX86State,
    /// QEMU's `APICCommonState`.
    Apic,
    /// QEMU's `MemoryRegion`.
    MemoryRegion,
    /// QEMU's `Object`.
    Object,
}

/// `qemu_plugin_u64`: one 64-bit member of a scoreboard entry.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ScoreboardU64 {
    pub(crate) score: *mut Scoreboard,
    pub(crate) offset: usize,
}

/// `qemu_info_t` of a system emulation.
#[repr(C)]
pub(crate) struct Info {
    pub(crate) target_name: *const c_char,
    pub(crate) version_min: c_int,
    pub(crate) version_cur: c_int,
    pub(crate) system_emulation: bool,
    pub(crate) smp_vcpus: c_int,
    pub(crate) max_vcpus: c_int,
}

/// `qemu_plugin_reg_descriptor`.
#[repr(C)]
pub(crate) struct RegisterDescriptor {
    pub(crate) handle: *mut RegisterHandle,
    pub(crate) name: *const c_char,
    pub(crate) feature: *const c_char,
    pub(crate) is_readonly: bool,
}

/// GLib's `GArray` and `GByteArray`: the public head of both.
#[repr(C)]
pub(crate) struct GArray {
    pub(crate) data: *mut u8,
    pub(crate) len: c_uint,
}

/// Reads a device's register: opaque, offset, bytes.
pub(crate) type DeviceRead = unsafe extern "C" fn(*mut c_void, u64, c_uint) -> u64;
/// Writes a device's register: opaque, offset, value, bytes.
pub(crate) type DeviceWrite = unsafe extern "C" fn(*mut c_void, u64, u64, c_uint);

/// Sizes of accesses in `MemoryRegionOps`.
#[repr(C)]
struct AccessSizes<T> {
    min: c_uint,
    max: c_uint,
    unaligned: bool,
    /// Only in `valid`: a function that may refuse an access.
    accepts: T,
}

/// `MemoryRegionOps` (include/system/memory.h).
#[repr(C)]
pub(crate) struct MemoryRegionOps {
    read: DeviceRead,
    write: DeviceWrite,
    read_with_attrs: Option<DeviceRead>,
    write_with_attrs: Option<DeviceWrite>,
    endianness: c_int,
    valid: AccessSizes<Option<DeviceRead>>,
    implemented: AccessSizes<()>,
}

impl MemoryRegionOps {
    /// A device whose registers are little-endian and have 32 bits.
    pub(crate) const fn of_words(read: DeviceRead, write: DeviceWrite) -> Self {
        const DEVICE_LITTLE_ENDIAN: c_int = 2;
        Self {
            read,
            write,
            read_with_attrs: None,
            write_with_attrs: None,
            endianness: DEVICE_LITTLE_ENDIAN,
            valid: AccessSizes { min: 4, max: 4, unaligned: false, accepts: None },
            implemented: AccessSizes { min: 4, max: 4, unaligned: false, accepts: () },
        }
    }
}

/// `enum qemu_plugin_cb_flags`.
pub(crate) mod cb_flags {
    use std::ffi::c_int;
    pub(crate) const NO_REGS: c_int = 0;
    pub(crate) const RW_REGS_PC: c_int = 3;
}

/// `enum qemu_plugin_cond`.
pub(crate) mod cond {
    use std::ffi::c_int;
    pub(crate) const NE: c_int = 3;
    pub(crate) const GE: c_int = 7;
}

/// `enum qemu_plugin_op`.
pub(crate) mod op {
    use std::ffi::c_int;
    pub(crate) const ADD_U64: c_int = 0;
    pub(crate) const STORE_U64: c_int = 1;
}

/// `enum qemu_plugin_mem_rw`.
pub(crate) mod mem {
    use std::ffi::c_int;
    pub(crate) const R: c_int = 1;
    pub(crate) const W: c_int = 2;
    pub(crate) const RW: c_int = 3;
}

/// `enum qemu_plugin_discon_type`.
pub(crate) mod discon {
    use std::ffi::c_int;
    pub(crate) const INTERRUPT: c_int = 1;
    pub(crate) const EXCEPTION: c_int = 2;
}

/// `qemu_plugin_vcpu_udata_cb_t`.
pub(crate) type VcpuCallback = unsafe extern "C" fn(c_uint, *mut c_void);
/// `qemu_plugin_udata_cb_t`.
pub(crate) type Callback = unsafe extern "C" fn(*mut c_void);
/// `qemu_plugin_vcpu_tb_trans_cb_t`.
pub(crate) type TranslateCallback = unsafe extern "C" fn(*mut TranslationBlock, *mut c_void);
/// `qemu_plugin_vcpu_discon_cb_t`.
pub(crate) type DisconCallback = unsafe extern "C" fn(c_uint, c_int, u64, u64, *mut c_void);
/// `qemu_plugin_vcpu_mem_cb_t`.
pub(crate) type MemoryCallback = unsafe extern "C" fn(c_uint, u32, u64, *mut c_void);
/// `run_on_cpu_func`; the second argument is a union of word size.
pub(crate) type CpuWork = unsafe extern "C" fn(*mut CpuState, *mut c_void);

/// The program has no such symbol.
#[derive(Debug, thiserror::Error)]
#[error(
    "this QEMU does not export `{0}`; the PMU plugin needs QEMU 11.1 as Debian builds it (trixie-backports, package \
     qemu-system-x86)"
)]
pub(crate) struct MissingSymbol(&'static str);

/// The address of `name`, as a function or data pointer type `T`.
///
/// # Safety
/// `T` must be a pointer type that fits what the program calls `name`.
unsafe fn symbol<T: Copy>(program: &Library, name: &'static str) -> Result<T, MissingSymbol> {
    let c_name = CString::new(name).map_err(|_| MissingSymbol(name))?;
    // SAFETY: the caller vouches for T.
    let found = unsafe { program.get::<T>(c_name.as_bytes_with_nul()) };
    found.map(|symbol| *symbol).map_err(|_| MissingSymbol(name))
}

macro_rules! symbols {
    ($(#[$doc:meta])* $table:ident { $($name:ident: $kind:ty,)* }) => {
        $(#[$doc])*
        pub(crate) struct $table { $(pub(crate) $name: $kind,)* }

        impl $table {
            /// Looks every symbol up.
            pub(crate) fn load(program: &Library) -> Result<Self, MissingSymbol> {
                // SAFETY: the types are those of the declarations named in the module's documentation.
                Ok(unsafe { Self { $($name: symbol(program, stringify!($name))?,)* } })
            }
        }
    };
}

symbols! {
    /// The plugin API, version 7.
    Api {
        qemu_plugin_register_vcpu_init_cb: unsafe extern "C" fn(u64, VcpuCallback, *mut c_void),
        qemu_plugin_register_vcpu_tb_trans_cb: unsafe extern "C" fn(u64, TranslateCallback, *mut c_void),
        qemu_plugin_register_vcpu_discon_cb: unsafe extern "C" fn(u64, c_int, DisconCallback, *mut c_void),
        qemu_plugin_register_flush_cb: unsafe extern "C" fn(u64, Callback, *mut c_void),
        qemu_plugin_register_atexit_cb: unsafe extern "C" fn(u64, Callback, *mut c_void),
        qemu_plugin_tb_n_insns: unsafe extern "C" fn(*const TranslationBlock) -> usize,
        qemu_plugin_tb_get_insn: unsafe extern "C" fn(*const TranslationBlock, usize) -> *mut TranslatedInsn,
        qemu_plugin_insn_data: unsafe extern "C" fn(*const TranslatedInsn, *mut c_void, usize) -> usize,
        qemu_plugin_insn_vaddr: unsafe extern "C" fn(*const TranslatedInsn) -> u64,
        qemu_plugin_register_vcpu_insn_exec_cb:
            unsafe extern "C" fn(*mut TranslatedInsn, VcpuCallback, c_int, *mut c_void),
        qemu_plugin_register_vcpu_insn_exec_cond_cb:
            unsafe extern "C" fn(*mut TranslatedInsn, VcpuCallback, c_int, c_int, ScoreboardU64, u64, *mut c_void),
        qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu:
            unsafe extern "C" fn(*mut TranslatedInsn, c_int, ScoreboardU64, u64),
        qemu_plugin_register_vcpu_mem_cb:
            unsafe extern "C" fn(*mut TranslatedInsn, MemoryCallback, c_int, c_int, *mut c_void),
        qemu_plugin_register_vcpu_mem_inline_per_vcpu:
            unsafe extern "C" fn(*mut TranslatedInsn, c_int, c_int, ScoreboardU64, u64),
        qemu_plugin_mem_size_shift: unsafe extern "C" fn(u32) -> c_uint,
        qemu_plugin_mem_is_store: unsafe extern "C" fn(u32) -> bool,
        qemu_plugin_get_hwaddr: unsafe extern "C" fn(u32, u64) -> *mut HwAddr,
        qemu_plugin_hwaddr_is_io: unsafe extern "C" fn(*const HwAddr) -> bool,
        qemu_plugin_hwaddr_phys_addr: unsafe extern "C" fn(*const HwAddr) -> u64,
        qemu_plugin_scoreboard_new: unsafe extern "C" fn(usize) -> *mut Scoreboard,
        qemu_plugin_scoreboard_find: unsafe extern "C" fn(*mut Scoreboard, c_uint) -> *mut c_void,
        qemu_plugin_get_registers: unsafe extern "C" fn() -> *mut GArray,
        qemu_plugin_read_register: unsafe extern "C" fn(*mut RegisterHandle, *mut GArray) -> bool,
        qemu_plugin_write_register: unsafe extern "C" fn(*mut RegisterHandle, *mut GArray) -> bool,
        qemu_plugin_set_pc: unsafe extern "C" fn(u64) -> !,
        qemu_plugin_read_memory_vaddr: unsafe extern "C" fn(u64, *mut GArray, usize) -> bool,
        qemu_plugin_write_memory_vaddr: unsafe extern "C" fn(u64, *mut GArray) -> bool,
        qemu_plugin_read_memory_hwaddr: unsafe extern "C" fn(u64, *mut GArray, usize) -> c_int,
        qemu_plugin_write_memory_hwaddr: unsafe extern "C" fn(u64, *mut GArray) -> c_int,
        qemu_plugin_translate_vaddr: unsafe extern "C" fn(u64, *mut u64) -> bool,
        g_byte_array_sized_new: unsafe extern "C" fn(c_uint) -> *mut GArray,
        g_byte_array_append: unsafe extern "C" fn(*mut GArray, *const u8, c_uint) -> *mut GArray,
        g_byte_array_free: unsafe extern "C" fn(*mut GArray, c_int) -> *mut u8,
        g_array_free: unsafe extern "C" fn(*mut GArray, c_int) -> *mut u8,
    }
}

symbols! {
    /// What the plugin API does not offer: functions and variables of QEMU itself.
    Exports {
        // include/exec/cpu-common.h: guest state as of a host return address inside translated code.
        cpu_restore_state: unsafe extern "C" fn(*mut CpuState, usize) -> bool,
        // include/exec/cpu-common.h: whether a vCPU's translation flags have one of these; sets these.
        tcg_cflags_has: unsafe extern "C" fn(*mut CpuState, u32) -> bool,
        tcg_cflags_set: unsafe extern "C" fn(*mut CpuState, u32),
        // target/i386/tcg/helper-tcg.h: raises a guest exception with an error code; leaves by longjmp.
        raise_exception_err_ra: unsafe extern "C" fn(*mut CpuX86State, c_int, c_int, usize) -> !,
        // target/i386/helper.h: all of RFLAGS; the plugin API's `eflags` lacks the arithmetic flags.
        helper_read_eflags: unsafe extern "C" fn(*mut CpuX86State) -> u64,
        // target/i386/cpu.h
        cpu_get_tsc: unsafe extern "C" fn(*mut CpuX86State) -> u64,
        cpu_x86_cpuid: unsafe extern "C" fn(*mut CpuX86State, u32, u32, *mut u32, *mut u32, *mut u32, *mut u32),
        helper_rdmsr: unsafe extern "C" fn(*mut CpuX86State),
        cpu_get_current_apic: unsafe extern "C" fn() -> *mut Apic,
        // hw/i386/apic.h
        cpu_get_apic_base: unsafe extern "C" fn(*mut Apic) -> u64,
        is_x2apic_mode: unsafe extern "C" fn(*mut Apic) -> bool,
        apic_msr_read: unsafe extern "C" fn(*mut Apic, c_int, *mut u64) -> c_int,
        apic_msr_write: unsafe extern "C" fn(*mut Apic, c_int, u64) -> c_int,
        // include/system/memory.h, include/system/address-spaces.h
        memory_region_init_io: unsafe extern "C" fn(
            *mut MemoryRegion, *mut Object, *const MemoryRegionOps, *mut c_void, *const c_char, u64
        ),
        memory_region_add_subregion_overlap:
            unsafe extern "C" fn(*mut MemoryRegion, u64, *mut MemoryRegion, c_int),
        get_system_memory: unsafe extern "C" fn() -> *mut MemoryRegion,
        // include/exec/tb-flush.h: throws all translated code away once every vCPU has stopped.
        queue_tb_flush: unsafe extern "C" fn(*mut CpuState),
        // include/hw/core/cpu.h: runs a function on a vCPU's thread between two blocks, with the big lock held.
        async_run_on_cpu: unsafe extern "C" fn(*mut CpuState, CpuWork, *mut c_void),
        // include/qemu/main-loop.h: the big lock.
        bql_locked: unsafe extern "C" fn() -> bool,
        bql_lock_impl: unsafe extern "C" fn(*const c_char, c_int),
        bql_unlock: unsafe extern "C" fn(),
        // include/system/cpu-timers.h: 0 without -icount.
        use_icount: *const c_int,
    }
}

/// The calling thread's `current_cpu` (a thread-local variable of QEMU).
pub(crate) fn current_cpu() -> Result<*mut *mut CpuState, MissingSymbol> {
    // SAFETY: `current_cpu` is declared `__thread CPUState *`; dlsym gives this thread's instance.
    unsafe { symbol(&Library::this(), "current_cpu") }
}
