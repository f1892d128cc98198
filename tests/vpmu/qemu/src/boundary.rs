//! Instruction boundaries: where counters overflow, PEBS records are written and PMIs raised.

use crate::bus::Boundary;
use crate::decode::Insn;
use crate::here::{Gpr, Here, Leave};
use crate::pmi;
use crate::vcpu::{Deferred, State};
use vpmu::{Bus, PebsOutcome, Registers, Retired};

/// Before `insn`: a tally is exhausted, or the instruction before asked for attention.
pub(crate) fn reached(here: &Here, insn: &Insn) -> Leave {
    let slots = here.slots();
    slots.attend(false);
    let mut state = here.vcpu.state();
    know_address_space(here, &mut state);
    state.collect(slots);
    let due = state.is_due();
    if due {
        let last = here.machine.last_insn(slots);
        let retired = state.retired(last.as_ref(), insn.pc, slots);
        settle_or_defer(here, &mut state, retired, here.registers(insn.pc));
    }
    state.rearm(slots);
    drop(state);
    here.machine.mode.relax(here);
    // Registers were brought up to date, and a PMI must come before the instruction: leave the block in any case.
    if due { Leave::Resume(0) } else { Leave::Continue }
}

/// Before `insn`, a repeated string instruction. If it is also the one that began last, its iterations go on: it is one
/// instruction however often, and in however many blocks, it is entered.
pub(crate) fn repeated(here: &Here, insn: &Insn) {
    let slots = here.slots();
    if here.machine.last_insn(slots).is_some_and(|last| last.pc == insn.pc) {
        slots.tally(insn, -1);
    }
}

/// Tells the model of CR3 if it does not know it.
pub(crate) fn know_address_space(here: &Here, state: &mut State) {
    if state.cr3.is_none()
        && let Some(cr3) = here.cr3()
    {
        state.cr3 = Some(cr3);
        state.truth.address_space(cr3);
    }
}

/// Settles the boundary now, or, under -icount, after the block: inside one, clocks may not be read nor interrupts raised. No
/// instruction executes in between.
pub(crate) fn settle_or_defer(here: &Here, state: &mut State, retired: Retired, registers: Registers) {
    if here.machine.icount.get().copied().unwrap_or(false) {
        state.deferred = Some(Deferred { retired, registers });
        here.after_this_block(crate::callbacks::run_deferred);
    } else {
        settle(here, state, &retired, registers);
    }
}

/// Settles the boundary that had to wait.
pub(crate) fn settle_deferred(here: &Here) {
    let mut state = here.vcpu.state();
    if let Some(Deferred { retired, registers }) = state.deferred.take() {
        settle(here, &mut state, &retired, registers);
        state.rearm(here.slots());
    }
}

fn settle(here: &Here, state: &mut State, retired: &Retired, registers: Registers) {
    if state.skid_left == Some(0) {
        state.skid_left = None;
        pmi::deliver(here, state.pmu.masks_lvtpc());
    }
    if !state.pmu.needs_settle() {
        return;
    }
    let mut boundary = Boundary::new(here, registers);
    let settlement = state.pmu.settle(retired, &mut boundary);
    boundary.raise_ibs();
    if boundary.raise_pmi(state.pmu.masks_lvtpc()) {
        // One that is on its way already is the same interrupt: a short period must not postpone it for ever.
        state.skid_left.get_or_insert(here.machine.args.skid);
    }
    state.truth.settled(&settlement, retired, boundary.tsc());
    here.machine.mode.demand(here, state.pmu.demand());
    if here.machine.args.trace >= 1
        && let Some(PebsOutcome::Faulted { .. } | PebsOutcome::Dropped { .. }) = settlement.pebs
    {
        eprintln!("vpmu: cpu {} at {:#x}: {:?}", here.vcpu.index, retired.pc, settlement.pebs);
    }
}

/// What took the vCPU off its course.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Discontinuity {
    Interrupt,
    Exception,
}

/// An exception is about to be delivered. QEMU does not know yet exactly where: [`delivered`] follows.
pub(crate) fn raised(here: &Here) {
    here.vcpu.state().exception_raised = true;
}

/// The vCPU has entered a handler at `to` instead of going on at `from` (interrupts), or because of the instruction at
/// `from` (exceptions).
pub(crate) fn delivered(here: &Here, from: u64, to: u64) {
    let slots = here.slots();
    let mut state = here.vcpu.state();
    let exception = std::mem::take(&mut state.exception_raised);
    if !here.machine.mode.observes() {
        return;
    }
    let kind = if exception { Discontinuity::Exception } else { Discontinuity::Interrupt };
    know_address_space(here, &mut state);
    if let Some(last) = here.machine.last_insn(slots) {
        let unfinished = last.pc == from
            && match kind {
                // A repeated string instruction in the middle of its iterations.
                Discontinuity::Interrupt => last.repeats,
                Discontinuity::Exception => !last.software_interrupt,
            };
        if unfinished {
            slots.tally(&last, -1);
            slots.set_last(0);
            state.open_branch = false;
        } else {
            let next = if kind == Discontinuity::Interrupt { from } else { to };
            crate::memory::close_branch(&mut state, &last, next);
        }
    }
    state.collect(slots);
    if state.is_due() {
        let last = here.machine.last_insn(slots);
        let boundary = match kind {
            Discontinuity::Interrupt => before_interrupt(here, from),
            Discontinuity::Exception => here.registers(to),
        };
        let retired = state.retired(last.as_ref(), boundary.rip, slots);
        settle(here, &mut state, &retired, boundary);
    }
    state.rearm(slots);
    drop(state);
    here.machine.mode.relax(here);
}

/// The registers as they were before an interrupt was delivered at `rip`, taken from the handler's stack: RIP, CS, RFLAGS, RSP
/// and SS (SDM Vol. 3A 6.14.2).
fn before_interrupt(here: &Here, rip: u64) -> Registers {
    let mut registers = here.registers(rip);
    let mut frame = [0; 40];
    if here.read(here.gpr(Gpr::Rsp), &mut frame).is_ok() {
        let word = |i: usize| u64::from_le_bytes(frame[i * 8..i * 8 + 8].try_into().unwrap_or_default());
        registers.rflags = word(2);
        registers.general[Gpr::Rsp as usize] = word(3);
    }
    registers
}

/// The instruction `insn` is executed by the plugin: counts it, under the configuration in force when it began.
pub(crate) fn count_emulated(here: &Here, state: &mut State, insn: &Insn) {
    if !here.machine.mode.observes() {
        return;
    }
    let slots = here.slots();
    know_address_space(here, state);
    slots.tally(insn, 1);
    slots.set_last(std::ptr::from_ref(insn).expose_provenance() as u64);
    state.collect(slots);
}
