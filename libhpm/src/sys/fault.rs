//! RDPMC that may fault: where an administrator takes the instruction away from every process (0 in the attribute `rdpmc`
//! of the kernel's `cpu` PMU), between a look at a counter page and the instruction.
//!
//! The kernel knows no other way to tell than SIGSEGV, and a restartable sequence does not help against it. So the
//! instruction's places are listed in a section of the program (which linkers must not drop: the flag R), and the handler of
//! SIGSEGV lets a program that faulted at one of them go on behind it. Every other fault goes to the handler that was there
//! before.

use std::mem::MaybeUninit;
use std::sync::OnceLock;

use crate::{Error, Result};

/// What the handler leaves in EDX: more than the upper half of any counter, which has at most 48 bits (SDM Vol. 3B 20.2.3).
const FAULTED: u32 = u32::MAX;
/// Bytes of the instruction (SDM Vol. 2B, RDPMC).
const LENGTH: i64 = 2;

/// What handled SIGSEGV before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

unsafe extern "C" {
    /// Where each RDPMC of this program is, relative to the entry; the linker names a section's ends so.
    #[link_name = "__start_hpm_rdpmc"]
    static FIRST: i32;
    #[link_name = "__stop_hpm_rdpmc"]
    static END: i32;
}

/// RDPMC with this in ECX; `None` when it faults, after [`catch`].
#[inline]
pub(super) fn rdpmc(counter: u32) -> Option<u64> {
    let (low, high): (u32, u32);
    // SAFETY: RDPMC reads a counter and touches no memory. It faults where CR4.PCE is clear or the counter does not exist,
    // and then the handler of `catch` goes on behind it. Without `nomem`, so that it stays between the loads around it.
    unsafe {
        std::arch::asm!(
            "2: rdpmc",
            ".pushsection hpm_rdpmc, \"aR\", @progbits",
            ".balign 4",
            ".long 2b - .",
            ".popsection",
            in("ecx") counter,
            out("eax") low,
            out("edx") high,
            options(nostack, preserves_flags)
        );
    }
    (high != FAULTED).then_some(u64::from(high) << 32 | u64::from(low))
}

/// Sees to it that a fault of [`rdpmc`] does not end the program. A handler of SIGSEGV that the program sets later has to
/// call the one it replaces.
///
/// # Errors
/// [`Error::Io`] when the kernel does not let the handler be set.
pub(super) fn catch() -> Result<()> {
    static CAUGHT: OnceLock<bool> = OnceLock::new();
    if *CAUGHT.get_or_init(|| set_handler().is_ok()) {
        Ok(())
    } else {
        Err(Error::io("handle SIGSEGV")(std::io::Error::last_os_error()))
    }
}

fn set_handler() -> std::io::Result<()> {
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only asks, into memory that has room for the answer.
    if unsafe { libc::sigaction(libc::SIGSEGV, std::ptr::null(), before.as_mut_ptr()) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a `sigaction` is integers and pointers that may be null; the kernel has filled it in.
    BEFORE.get_or_init(|| unsafe { before.assume_init() });
    // SAFETY: an empty mask and no flags are a valid `sigaction`.
    let mut ours: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    ours.sa_sigaction = on_fault as *const () as usize;
    // On the stack that a thread has set aside for it, if it has, so that a handler before this one can tell overflows.
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler is a function of the type that SA_SIGINFO wants, and calls only what is safe in a signal.
    match unsafe { libc::sigaction(libc::SIGSEGV, &raw const ours, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Whether this is the address of one of this program's RDPMC.
fn is_listed(address: i64) -> bool {
    // SAFETY: makes the section one of every program that refers to its ends, also of one without a call of `rdpmc`. An
    // entry of 0 is the address of the entry itself, where nothing is executed.
    unsafe {
        std::arch::asm!(
            ".pushsection hpm_rdpmc, \"aR\", @progbits",
            ".balign 4",
            ".long 0",
            ".popsection",
            options(nomem, nostack, preserves_flags)
        );
    }
    let (mut entry, end) = (&raw const FIRST, &raw const END);
    while entry < end {
        // SAFETY: the entry lies between the ends of the section, which holds nothing else.
        if entry.addr() as i64 + i64::from(unsafe { entry.read() }) == address {
            return true;
        }
        entry = entry.wrapping_add(1);
    }
    false
}

extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the third argument is the interrupted context, which the handler may change.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    if is_listed(registers[libc::REG_RIP as usize]) {
        registers[libc::REG_RIP as usize] += LENGTH;
        registers[libc::REG_RDX as usize] = FAULTED.into();
    } else {
        hand_on(signal, info, context);
    }
}

/// Does what would have been done without the handler.
fn hand_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(before) = BEFORE.get() else { return };
    match before.sa_sigaction {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: puts back what was there; the fault then comes again and ends the program.
            unsafe { libc::sigaction(signal, before, std::ptr::null_mut()) };
        }
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: whoever set the handler with SA_SIGINFO gave one of this type.
            let handler = unsafe { std::mem::transmute::<usize, Handler>(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: whoever set the handler without SA_SIGINFO gave one of this type.
            let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_no_death() {
        catch().expect("SIGSEGV can be handled");
        // No processor has this counter, so that the instruction faults wherever it is allowed at all.
        for _ in 0..3 {
            assert_eq!(rdpmc(0x7FFF_FFFF), None);
        }
    }

    #[test]
    fn another_fault_is_still_one() {
        // The child has the handler, too. It could wait for ever in `catch` for a thread that was in it as the process forked.
        catch().expect("SIGSEGV can be handled");
        // SAFETY: the child calls only what is safe after a fork, and ends by the fault.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: faults, as the test wants; the memory is nobody's.
                unsafe { std::ptr::null::<u8>().wrapping_add(16).read_volatile() };
                // SAFETY: ends the child, which must not come here.
                unsafe { libc::_exit(0) }
            }
            child => {
                let mut status = 0;
                // SAFETY: waits for this test's own child.
                assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
                assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV, "{status:#x}");
            }
        }
    }
}
