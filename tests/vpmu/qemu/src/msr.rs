//! The instructions by which the guest reaches its PMU. They are executed here and skipped in QEMU.
//!
//! An instruction that changes what is counted is itself counted as configured when it began: the `WRMSR` that enables a
//! counter is not counted by it, the one that disables it is. `RDMSR` and `RDPMC` return what was counted before them.

use crate::boundary::{count_emulated, settle_or_defer};
use crate::decode::{Insn, Special};
use crate::here::{Gpr, Here, Leave};
use crate::hypercall;
use crate::vcpu::State;
use vpmu::{GeneralProtection, Privilege};

/// IA32_MISC_ENABLE.
const IA32_MISC_ENABLE: u32 = 0x1a0;
/// CR4.PCE: user code may execute `RDPMC` (SDM Vol. 3A 2.5).
const CR4_PCE: u64 = 1 << 8;

/// Executes `insn`, whose kind is `special`, if it is the PMU's business.
pub(crate) fn execute(here: &Here, insn: &Insn, special: Special) -> Leave {
    match special {
        Special::Cpuid => cpuid(here, insn),
        Special::Rdpmc => rdpmc(here, insn),
        Special::LoadCr3(register) => {
            load_cr3(here, register);
            Leave::Continue
        }
        // Outside of ring 0 QEMU itself raises the fault.
        Special::Wrmsr | Special::Rdmsr if insn.privilege == Privilege::User => Leave::Continue,
        Special::Wrmsr => wrmsr(here, insn),
        Special::Rdmsr => rdmsr(here, insn),
    }
}

fn low_word(here: &Here, register: Gpr) -> u32 {
    // The instructions ignore the upper halves of their operands.
    here.gpr(register) as u32
}

fn return_pair(here: &Here, value: u64) {
    here.set_gpr(Gpr::Rax, value & 0xffff_ffff);
    here.set_gpr(Gpr::Rdx, value >> 32);
}

fn trace(here: &Here, what: &str, number: u32, result: &dyn std::fmt::Debug) {
    if here.machine.args.trace >= 2 {
        eprintln!("vpmu: cpu {} {what} {number:#x} {result:x?}", here.vcpu.index);
    }
}

fn wrmsr(here: &Here, insn: &Insn) -> Leave {
    let msr = low_word(here, Gpr::Rcx);
    let mut state = here.vcpu.state();
    if !state.pmu.owns_msr(msr) {
        return Leave::Continue;
    }
    let value = u64::from(low_word(here, Gpr::Rdx)) << 32 | u64::from(low_word(here, Gpr::Rax));
    let slots = here.slots();
    state.collect(slots);
    // Whether the instruction retires is known only after the write, which must see it counted.
    let mut after = state.pmu.clone();
    let result = after.wrmsr(msr, value);
    trace(here, "wrmsr", msr, &(value, result));
    state.truth.wrmsr(result);
    if result.is_err() {
        return Leave::GeneralProtection;
    }
    count_emulated(here, &mut state, insn);
    // Accepted a moment ago; counting an instruction does not change what is legal.
    let _ = state.pmu.wrmsr(msr, value);
    finish(here, state, insn)
}

fn rdmsr(here: &Here, insn: &Insn) -> Leave {
    let msr = low_word(here, Gpr::Rcx);
    if msr == IA32_MISC_ENABLE {
        let machine = here.read_misc_enable();
        let mut state = here.vcpu.state();
        return_pair(here, state.pmu.misc_enable(machine));
        count_emulated(here, &mut state, insn);
        return finish(here, state, insn);
    }
    let mut state = here.vcpu.state();
    if !state.pmu.owns_msr(msr) {
        return Leave::Continue;
    }
    state.collect(here.slots());
    let result = state.pmu.rdmsr(msr);
    trace(here, "rdmsr", msr, &result);
    state.truth.rdmsr(result);
    finish_read(here, state, insn, result)
}

fn rdpmc(here: &Here, insn: &Insn) -> Leave {
    let ecx = low_word(here, Gpr::Rcx);
    let mut state = here.vcpu.state();
    state.collect(here.slots());
    let result = match insn.privilege {
        Privilege::Kernel => state.pmu.rdpmc(ecx),
        Privilege::User if here.cr4() & CR4_PCE != 0 => state.pmu.user_rdpmc(ecx),
        Privilege::User => Err(GeneralProtection),
    };
    trace(here, "rdpmc", ecx, &result);
    state.truth.rdpmc(result);
    finish_read(here, state, insn, result)
}

fn finish_read(
    here: &Here,
    mut state: std::sync::MutexGuard<'_, State>,
    insn: &Insn,
    result: Result<u64, GeneralProtection>,
) -> Leave {
    let Ok(value) = result else { return Leave::GeneralProtection };
    return_pair(here, value);
    count_emulated(here, &mut state, insn);
    finish(here, state, insn)
}

fn cpuid(here: &Here, insn: &Insn) -> Leave {
    let leaf = low_word(here, Gpr::Rax);
    let subleaf = low_word(here, Gpr::Rcx);
    let mut state = here.vcpu.state();
    if leaf == hypercall::LEAF {
        // Counted last: the call that labels or opens a window is inside of it, the one that closes it outside.
        hypercall::call(here, &mut state, subleaf);
        count_emulated(here, &mut state, insn);
    } else {
        let mut regs = here.cpuid(leaf, subleaf);
        state.pmu.cpuid(leaf, subleaf, &mut regs);
        here.set_gpr(Gpr::Rax, u64::from(regs.eax));
        here.set_gpr(Gpr::Rbx, u64::from(regs.ebx));
        here.set_gpr(Gpr::Rcx, u64::from(regs.ecx));
        here.set_gpr(Gpr::Rdx, u64::from(regs.edx));
        count_emulated(here, &mut state, insn);
    }
    finish(here, state, insn)
}

/// The instruction has been executed: settles what it caused, and goes on behind it.
fn finish(here: &Here, mut state: std::sync::MutexGuard<'_, State>, insn: &Insn) -> Leave {
    let slots = here.slots();
    let next = insn.fallthrough();
    if state.is_due() {
        let retired = state.retired(Some(insn), next, slots);
        settle_or_defer(here, &mut state, retired, here.registers(next));
    }
    state.rearm(slots);
    here.machine.mode.demand(here, state.pmu.demand());
    drop(state);
    here.machine.mode.relax(here);
    Leave::Resume(insn.size)
}

fn load_cr3(here: &Here, register: u8) {
    let cr3 = here.gpr_by_number(register);
    let mut state = here.vcpu.state();
    if state.cr3 == Some(cr3) {
        state.core.flush_tlbs();
        return;
    }
    state.collect(here.slots());
    state.cr3 = Some(cr3);
    state.truth.address_space(cr3);
    state.core.flush_tlbs();
}
