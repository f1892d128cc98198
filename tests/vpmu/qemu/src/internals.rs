//! A vCPU's place in QEMU's own data, found and checked when the vCPU is initialised.

#![allow(unsafe_code, reason = "calls into QEMU")]

use crate::ffi::{Api, CpuState, CpuX86State, Exports, RegisterHandle};
use crate::registers::{read_register, register, write_register};
use std::ffi::CStr;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use thiserror::Error;

/// General registers in the order of their numbers. The other eight cannot be written in the 16-bit mode of reset.
const GPR_NAMES: [&CStr; 8] = [c"rax", c"rcx", c"rdx", c"rbx", c"rsp", c"rbp", c"rsi", c"rdi"];

const XMM_NAMES: [&CStr; 16] = [
    c"xmm0", c"xmm1", c"xmm2", c"xmm3", c"xmm4", c"xmm5", c"xmm6", c"xmm7", c"xmm8", c"xmm9", c"xmm10",
    c"xmm11", c"xmm12", c"xmm13", c"xmm14", c"xmm15",
];

/// A start-up check that failed.
#[derive(Debug, Error)]
pub(crate) enum SelfCheck {
    #[error("QEMU's register list lacks `{0}`; the plugin needs qemu-system-x86_64")]
    NoRegister(String),
    #[error("the guest's registers were not found in QEMU's CPU state; this QEMU's layout is not known")]
    NoState,
    #[error(
        "register {0} is not where the others say it must be in QEMU's CPU state; this QEMU's layout is not known"
    )]
    Misplaced(String),
    #[error(
        "QEMU's translation flags do not have CF_PCREL where its functions say; this QEMU's layout is not known"
    )]
    Flag,
    #[error("QEMU's helper_read_eflags and register list disagree on RFLAGS: {0:#x} and {1:#x}")]
    Flags(u64, u64),
}

/// Handles of a vCPU, found once when it is initialised.
#[derive(Debug)]
pub(crate) struct Handles {
    pub(crate) cpu: NonNull<CpuState>,
    pub(crate) state: NonNull<CpuX86State>,
    pub(crate) rip: NonNull<RegisterHandle>,
    pub(crate) cs: NonNull<RegisterHandle>,
    pub(crate) cr0: NonNull<RegisterHandle>,
    pub(crate) cr3: NonNull<RegisterHandle>,
    pub(crate) cr4: NonNull<RegisterHandle>,
    pub(crate) xmm: [NonNull<RegisterHandle>; 16],
}

// SAFETY: the pointers are only followed through `Here`, on the vCPU's own thread (or, under -icount, the one thread that
// runs all vCPUs); the objects live as long as the vCPU.
unsafe impl Send for Handles {}
// SAFETY: as above.
unsafe impl Sync for Handles {}

impl Handles {
    /// Finds the vCPU's registers, inside its initialisation callback.
    ///
    /// # Errors
    /// What is not as this crate expects it.
    pub(crate) fn find(api: &Api, exports: &Exports, cpu: NonNull<CpuState>) -> Result<Self, SelfCheck> {
        let named = |name: &CStr| {
            register(api, name).ok_or_else(|| SelfCheck::NoRegister(name.to_string_lossy().into_owned()))
        };
        let state = find_state(api, cpu, named(GPR_NAMES[0])?)?;
        for (number, name) in GPR_NAMES.iter().enumerate() {
            check_place(api, named(name)?, state, number)
                .map_err(|()| SelfCheck::Misplaced(name.to_string_lossy().into_owned()))?;
        }
        let listed = read_register(api, named(c"eflags")?);
        // SAFETY: `state` was just found to be this vCPU's.
        let computed = unsafe { (exports.helper_read_eflags)(state.as_ptr()) };
        if listed != computed {
            return Err(SelfCheck::Flags(computed, listed));
        }
        let [rip, cs] = [named(c"rip")?, named(c"cs")?];
        let [cr0, cr3, cr4] = [named(c"cr0")?, named(c"cr3")?, named(c"cr4")?];
        let mut xmm = [rip; 16];
        for (handle, name) in xmm.iter_mut().zip(XMM_NAMES) {
            *handle = named(name)?;
        }
        Ok(Self { cpu, state, rip, cs, cr0, cr3, cr4, xmm })
    }
}

impl Handles {
    /// Whether this is the vCPU's `CPUState`.
    pub(crate) fn is(&self, cpu: *mut CpuState) -> bool {
        self.cpu.as_ptr() == cpu
    }
}

/// Finds `CPUX86State` inside the CPU object: its first member is the array of general registers, so it is where a value
/// written to RAX appears, twice.
fn find_state(
    api: &Api,
    cpu: NonNull<CpuState>,
    rax: NonNull<RegisterHandle>,
) -> Result<NonNull<CpuX86State>, SelfCheck> {
    // SAFETY: CPU objects are heap allocations of their own.
    let bytes = unsafe { libc::malloc_usable_size(cpu.as_ptr().cast()) };
    let words = cpu.cast::<AtomicU64>();
    let original = read_register(api, rax);
    let shows = |word: usize, marker: u64| {
        write_register(api, rax, marker);
        // SAFETY: `word` is inside the allocation.
        let at = unsafe { words.add(word) };
        // SAFETY: QEMU zeroes the object, so the word is initialised; other threads do not change registers now.
        unsafe { at.as_ref() }.load(Ordering::Relaxed) == marker
    };
    const MARKERS: [u64; 2] = [0x5a17_c0de, 0x3e37_79b9];
    let found = (0..bytes / 8).find(|&word| MARKERS.iter().all(|&marker| shows(word, marker)));
    write_register(api, rax, original);
    // SAFETY: as above.
    found.map(|word| unsafe { words.add(word) }.cast()).ok_or(SelfCheck::NoState)
}

/// Checks that general register `number` is the state's `number`-th word.
fn check_place(
    api: &Api,
    handle: NonNull<RegisterHandle>,
    state: NonNull<CpuX86State>,
    number: usize,
) -> Result<(), ()> {
    let original = read_register(api, handle);
    let marker = !original & 0xffff_ffff;
    write_register(api, handle, marker);
    // SAFETY: the CPU state is far larger than 16 words.
    let at = unsafe { state.cast::<AtomicU64>().add(number) };
    // SAFETY: initialised, and written only by this thread.
    let seen = unsafe { at.as_ref() }.load(Ordering::Relaxed);
    write_register(api, handle, original);
    if seen == marker { Ok(()) } else { Err(()) }
}
