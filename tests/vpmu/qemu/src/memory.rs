//! Fetches, data accesses and branches, from level `DataAddresses` on.
//!
//! Fetches and accesses are reported when they begin or are made, as a processor would make them speculatively: an
//! instruction that faults after an access has made that access.

use crate::decode::Insn;
use crate::here::Here;
use crate::vcpu::State;
use vpmu::event::Event;
use vpmu::{BranchKind, DataAccess, MicroEvents, Privilege};

/// One data access, as QEMU reports it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub(crate) linear: u64,
    /// `None` for a device.
    pub(crate) physical: Option<u64>,
    pub(crate) size: u8,
    pub(crate) store: bool,
}

fn count(state: &mut State, events: &MicroEvents, privilege: Privilege) {
    state.pmu.count(events, privilege);
    state.truth.count(events, privilege);
}

/// Whether what `insn` fetches and accesses goes through the caches.
fn is_modelled(here: &Here, insn: &Insn) -> bool {
    insn.privilege == Privilege::User || !here.machine.args.user_caches_only
}

/// Level `Microarchitecture`: `insn` accesses memory. QEMU does some accesses in parts, from the lowest address on; for a processor
/// they are one, which is made with the first part.
pub(crate) fn access(here: &Here, insn: &Insn, access: Access) {
    let mut state = here.vcpu.state();
    let before = if access.store { state.store } else { state.load };
    if before.is_some_and(|before| insn.is_part_of_access(before.linear, access.linear)) {
        return;
    }
    let access = Access { size: access.size.max(insn.wide), ..access };
    let outcome = access.physical.filter(|_| is_modelled(here, insn)).map(|physical| {
        let (events, outcome) = state.core.data(physical, access.linear, access.size, access.store);
        count(&mut state, &events, insn.privilege);
        outcome
    });
    let place = if access.store { &mut state.store } else { &mut state.load };
    *place = Some(DataAccess { linear: access.linear, outcome });
}

/// Level `Microarchitecture`, before `insn`: the outcome of the branch before it is known now. Fetches `insn` unless the
/// boundary before it has work, for then execution comes here again.
pub(crate) fn step(here: &Here, insn: &Insn) {
    let slots = here.slots();
    let mut state = here.vcpu.state();
    if state.cr3.is_none() {
        // It cannot be read here; the boundary comes next.
        slots.attend(true);
    }
    if state.open_branch
        && let Some(last) = here.machine.last_insn(slots)
    {
        close_branch(&mut state, &last, insn.pc);
    }
    if slots.exhausted(insn.privilege) || slots.asks_attention() {
        // Whether the boundary has work is in what has been tallied; if not, this is the only call for `insn`.
        state.collect(slots);
    }
    if state.is_due() {
        state.exhaust(slots, insn.privilege);
        return;
    }
    // The later iterations of a repeated string instruction are not fetched again.
    let continues = insn.repeats && here.machine.last_insn(slots).is_some_and(|last| last.pc == insn.pc);
    if !continues && is_modelled(here, insn) {
        let events = state.core.fetch(insn.physical, insn.pc, insn.size);
        count(&mut state, &events, insn.privilege);
    }
    if !continues {
        (state.load, state.store) = (None, None);
    }
    state.open_branch = insn.branch.is_some();
}

/// Tells the model where the branch `last` went, if `last` is one and the model does not know.
pub(crate) fn close_branch(state: &mut State, last: &Insn, next: u64) {
    let Some(kind) = last.branch.filter(|_| std::mem::take(&mut state.open_branch)) else { return };
    let events = state.core.branch(last.pc, last.fallthrough(), next, kind);
    count(state, &events, last.privilege);
    if kind == BranchKind::Conditional && next == last.fallthrough() {
        return;
    }
    // A near branch leads to no other privilege level: the operand of this one has faulted, and it retires another time.
    if kind != BranchKind::Far && last.privilege == Privilege::User && next >> 63 != 0 {
        return;
    }
    let mispredicted = events.once.contains(Event::BranchMispredicted);
    state.pmu.record_branch(last.pc, next, kind, mispredicted, last.privilege);
    state.truth.branch(last.pc, next, kind, mispredicted, last.privilege);
}
