//! The user stack of a sample, collected when its PMI ends the quantum: copied whole for DWARF unwinding, or followed by
//! frame pointers. Branch records that hardware does not write into the sample are collected in its place.

use super::abi::{QuantumEnd, QuantumFlags};
use super::lbr::{Branches, BRANCH_BYTES};
use super::port::{Port, Rings};
use super::records::Record;
use super::session::Session;
use super::Program;

/// Bytes of a return address.
pub const FRAME_BYTES: u32 = 8;

/// Most bytes that one sample's stack takes in the ring; 0 when the session wants no stacks.
pub(super) const fn bytes_wanted(program: &Program) -> u32 {
    let config = program.config();
    if config.frames > 0 {
        return config.frames * FRAME_BYTES;
    }
    match &program.branches {
        // There is no stack beside them.
        Some(branches) if !branches.in_records => branches.bytes_in_ring(),
        _ => config.stack_bytes,
    }
}

/// What a quantum says of the stack that belongs to its last record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stack {
    /// [`super::abi::Quantum::stack_offset`] and [`super::abi::Quantum::stack_bytes`].
    pub(super) offset: u64,
    pub(super) bytes: u32,
    /// Those of [`QuantumFlags`] that are set for it.
    pub(super) flags: u16,
}

/// Collects the user stack of a span's last record, when the session wants stacks. `last`: that record in the
/// window, which still has the withheld ones before it; `ended`: how the quantum did.
pub(super) fn collect<P: Port, R: Rings>(
    port: &mut P,
    session: &mut Session<'_, R>,
    last: Option<Record>,
    ended: QuantumEnd,
) -> Stack {
    let wanted = bytes_wanted(session.program);
    if wanted == 0 {
        return Stack::default();
    }
    if session.state.stacks.room_for(wanted).is_none() {
        session.take_back();
    }
    let Some(start) = session.state.stacks.room_for(wanted) else {
        return Stack { flags: QuantumFlags::STACK_LOST, ..Stack::default() };
    };
    let place = session.state.stacks.place(start);
    if let Some(branches) = session.program.branches.filter(|branches| !branches.in_records) {
        return collect_branches(port, session, &branches, (start, place), ended);
    }
    let frames = session.program.config().frames;
    let stack = match stack_register(port, session, last, frames > 0) {
        Some(from) if from >> 63 == 0 && frames > 0 => session.rings.follow_frames(from, place, frames),
        Some(from) if from >> 63 == 0 => session.rings.copy_stack(from, place, wanted),
        _ => Collected::default(),
    };
    let truncated = if stack.complete { 0 } else { QuantumFlags::STACK_TRUNCATED };
    let frames = if frames > 0 { QuantumFlags::STACK_FRAMES } else { 0 };
    keep(session, Stack { offset: start, bytes: stack.bytes.min(wanted), flags: truncated | frames })
}

/// Takes its bytes of the ring.
fn keep<R: Rings>(session: &mut Session<'_, R>, stack: Stack) -> Stack {
    session.state.stacks.produce_to(stack.offset + u64::from(stack.bytes));
    stack
}

/// Reads the branches before the span's last record.
fn collect_branches<P: Port, R: Rings>(
    port: &mut P,
    session: &mut Session<'_, R>,
    branches: &Branches,
    (start, place): (u64, u32),
    ended: QuantumEnd,
) -> Stack {
    // Only a PMI freezes the kernel's branches: at another end of the quantum they are those of the way here.
    if branches.kernel && ended != QuantumEnd::Pmi {
        return Stack::default();
    }
    let rings = &mut *session.rings;
    let count = branches.read(port, |number, entry| rings.write_stack(place + number * BRANCH_BYTES, entry));
    keep(session, Stack { offset: start, bytes: count * BRANCH_BYTES, flags: QuantumFlags::STACK_BRANCHES })
}

/// RBP or else RSP of the span's last record, which is this one in the window where hardware writes them; `None` when that is of kernel
/// mode, where RBP is a register like any other.
fn stack_register<P: Port, R>(
    port: &mut P,
    session: &Session<'_, R>,
    last: Option<Record>,
    rbp: bool,
) -> Option<u64> {
    let is_kernel = |ip: u64| ip >> 63 != 0;
    let Some(layout) = session.program.pebs else {
        let handled = &session.state.handled;
        return (!is_kernel(handled.rip)).then_some(if rbp { handled.rbp } else { handled.rsp });
    };
    // A session that wants stacks has records with registers.
    let last = last.filter(|last| !last.shows_kernel(port, &layout))?;
    last.stack_register(port, &layout, rbp)
}

/// What was put into the stack ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Bytes.
    pub bytes: u32,
    /// Nothing that was asked for is missing: all pages of a copy, or a chain of frames up to its end.
    pub complete: bool,
}
