// SPDX-License-Identifier: GPL-2.0
//! Who may measure what: what perf_event_open would ask for.

use kernel::bindings;

use super::sys;
use super::target::{AddressSpace, Target};
use crate::hpm_abi::Reason;
use crate::hpm_core::{Program, Refusal};

/// Checks the caller's right to a whole-system session.
pub(super) fn may_measure_system() -> Result<(), Refusal> {
    allow(sys::allow_cpu(), Reason::NeedSystemRight)
}

/// Checks the caller's right to measure a process or thread: everyone's own process, another one with `proof` or
/// CAP_PERFMON.
pub(super) fn may_measure(target: &mut Target, proof: Option<i32>) -> Result<(), Refusal> {
    if sys::perfmon_capable() {
        return Ok(());
    }
    let (space, otherwise) = match proof {
        Some(descriptor) => (AddressSpace::proven_by(descriptor), Reason::ProofInvalid),
        None if target.is_caller() => (AddressSpace::of_caller(), Reason::NeedTargetRight),
        None => (None, Reason::NeedTargetRight),
    };
    allow(space.is_some_and(|space| target.tie_to(space)), otherwise)
}

/// Checks the caller's right to what the program shows. Who may not see the kernel samples all the same, but gets no
/// record that shows it.
pub(super) fn may_run(program: &mut Program) -> Result<(), Refusal> {
    if program.sees_kernel() {
        allow(sys::allow_kernel(), Reason::NeedKernelRight)?;
    }
    // A record of an interrupt in user mode holds the thread's own registers.
    if program.is_precise() || program.samples() && program.sees_kernel() {
        allow(!sys::is_locked_down(bindings::lockdown_reason_LOCKDOWN_PERF), Reason::LockedDown)?;
        if !sys::allow_kernel() {
            program.hide_kernel();
        }
    }
    Ok(())
}

/// Whether the kernel's lockdown forbids raw access to MSRs.
pub(super) fn msrs_locked_down() -> bool {
    sys::is_locked_down(bindings::lockdown_reason_LOCKDOWN_MSR)
}

fn allow(allowed: bool, otherwise: Reason) -> Result<(), Refusal> {
    if allowed {
        Ok(())
    } else {
        Err(Refusal::new(otherwise, [0; 2]))
    }
}
