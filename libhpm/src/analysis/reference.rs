//! Where the address of an access came from: the loads of references, found by walking a function's machine code backwards (Schneider's
//! thesis, 5.1.3 and 5.1.4, with machine code in place of a compiler's intermediate representation).
//!
//! From the base register of the access each definition that can reach it is followed: through moves, address arithmetic and spills to the
//! stack. Where the sample has branch records, only the way that control took is gone. At other joins all predecessors are followed, among
//! which the share is divided as taken branches were recorded, else equally (`AssignWeightsRecursive`, Figure 5.5). A path that comes back to where it was brings nothing new and is left out. What was loaded from
//! memory ends the search: that is the field. It ends as well at the function's beginning; from there branch records lead into the caller
//! ([`Trail::entry`]).

mod effect;
mod search;
mod trail;

use std::collections::HashMap;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind,
    Register,
};

pub use self::trail::Trail;

use self::effect::{is_callee_saved, writes};
use self::search::Search;

/// Instructions that one search looks at, at most.
const STEPS_MAX: usize = 20_000;
/// Joins on one path, at most.
const JOINS_MAX: usize = 40;

/// A place that holds a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// A general register, all of it.
    Register(Register),
    /// Memory of the function's frame, so many bytes from RSP or from RBP.
    Slot(Register, i64),
}

/// What a reference was before the function had it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Loaded from another object: from so many bytes behind what a register pointed at.
    Field {
        /// The load.
        ip: u64,
        /// The register.
        base: Register,
        /// Bytes behind it.
        displacement: i64,
    },
    /// Loaded from an array, by an index.
    Element {
        /// The load.
        ip: u64,
        /// The register that points at the array.
        base: Register,
        /// Bytes behind it.
        displacement: i64,
    },
    /// Loaded from a variable at an address, or the variable itself.
    Global(u64),
    /// The function was given it, in this place.
    Parameter(Location),
    /// A call returned it.
    Returned {
        /// The call.
        ip: u64,
        /// Where it went, if it says so itself.
        target: Option<u64>,
    },
    /// Whoever asked knows the value in this place before this instruction.
    Known {
        /// The instruction.
        ip: u64,
        /// The place.
        location: Location,
    },
    /// Something else: arithmetic, a register that a call overwrote, code that is reached in unknown ways.
    Other,
}

/// A source, and how much of the value comes from there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Origin {
    /// From 0 to 1; the shares of all origins are 1 together.
    pub share: f64,
    /// What it was.
    pub source: Source,
    /// Bytes added to the reference since, the access's own displacement included; `None` with an index.
    pub offset: Option<i64>,
}

/// How often control went from one instruction to another, as branch records show; edges that were never seen count 0.
pub type EdgeCounts = HashMap<(u64, u64), u64>;

/// A function's code.
#[derive(Debug)]
pub struct Function {
    instructions: Vec<Instruction>,
    /// For each instruction those from which control comes.
    before: Vec<Vec<usize>>,
    /// It jumps to addresses that it computes, so that not all predecessors are known.
    jumps_indirectly: bool,
    /// RBP points at the frame.
    has_frame: bool,
    bits: u32,
}

impl Function {
    /// Decodes a function that begins at an address.
    #[must_use]
    pub fn new(code: &[u8], start: u64, bits: u32) -> Self {
        let instructions: Vec<Instruction> =
            Decoder::with_ip(bits, code, start, DecoderOptions::NONE).into_iter().collect();
        let place = |ip: u64| instructions.binary_search_by_key(&ip, Instruction::ip).ok();
        let mut before = vec![Vec::new(); instructions.len()];
        for (index, one) in instructions.iter().enumerate() {
            let flow = one.flow_control();
            let goes_on = !matches!(
                flow,
                FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::Return
                    | FlowControl::Exception
            );
            if goes_on && index + 1 < instructions.len() {
                before[index + 1].push(index);
            }
            if matches!(flow, FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch)
                && let Some(target) = place(one.near_branch_target())
                && !before[target].contains(&index)
            {
                before[target].push(index);
            }
        }
        leave_out_padding(&instructions, &mut before);
        let frame = |one: &Instruction| {
            one.mnemonic() == Mnemonic::Mov
                && one.op0_kind() == OpKind::Register
                && one.op1_kind() == OpKind::Register
                && one.op0_register().full_register() == Register::RBP
                && one.op1_register().full_register() == Register::RSP
        };
        Self {
            jumps_indirectly: instructions
                .iter()
                .any(|one| one.flow_control() == FlowControl::IndirectBranch),
            has_frame: instructions.iter().take(16).any(frame),
            before,
            instructions,
            bits,
        }
    }

    /// Where the address of a load at `ip` came from; empty when there is no such load. `trail` tells how control came there just
    /// then, as far as it goes back; before that `edges` tell how it usually does. `known` is asked for places whose value the
    /// caller knows.
    pub fn origins(
        &self,
        ip: u64,
        edges: &EdgeCounts,
        trail: Trail<'_>,
        known: &mut dyn FnMut(u64, Location) -> bool,
    ) -> Vec<Origin> {
        let Ok(index) = self.instructions.binary_search_by_key(&ip, Instruction::ip) else {
            return Vec::new();
        };
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(&self.instructions[index]);
        let loads = |access| {
            matches!(
                access,
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        let Some(memory) = info.used_memory().iter().find(|memory| loads(memory.access())) else {
            return Vec::new();
        };
        let displacement = memory.displacement() as i64;
        let (base, index_register) = (memory.base().full_register(), memory.index().full_register());
        let segment = matches!(memory.segment(), Register::FS | Register::GS);
        let one = |source| vec![Origin { share: 1.0, source, offset: Some(displacement) }];
        match (base, index_register) {
            _ if segment => one(Source::Other),
            (Register::None, Register::None) => one(Source::Global(memory.displacement())),
            (Register::RSP, _) => one(Source::Other),
            (Register::RBP, _) if self.has_frame => one(Source::Other),
            (Register::None, only) => {
                self.origins_before(index, Location::Register(only), None, edges, trail, known)
            }
            (base, index_register) => {
                let offset = (index_register == Register::None).then_some(displacement);
                self.origins_before(index, Location::Register(base), offset, edges, trail, known)
            }
        }
    }

    /// The register that a load at `ip` goes through and the bytes behind it, where that is all of its address.
    #[must_use]
    pub fn operand(&self, ip: u64) -> Option<(Register, i64)> {
        let index = self.instructions.binary_search_by_key(&ip, Instruction::ip).ok()?;
        let mut factory = InstructionInfoFactory::new();
        let memory = *factory.info(&self.instructions[index]).used_memory().first()?;
        let frame = [Register::RSP, Register::RIP, Register::None];
        let base = memory.base().full_register();
        let in_frame = self.has_frame && base == Register::RBP;
        let segment = matches!(memory.segment(), Register::FS | Register::GS);
        let plain = memory.index() == Register::None && !frame.contains(&base) && !in_frame && !segment;
        plain.then_some((base, memory.displacement() as i64))
    }

    /// Pairs of instructions where control goes on to the next one although it can come there from elsewhere, too.
    pub fn joins(&self) -> impl Iterator<Item = (u64, u64)> {
        let goes_on = |index: usize| {
            let joins =
                self.before[index].len() > 1 && index > 0 && self.before[index].contains(&(index - 1));
            joins.then(|| (self.instructions[index - 1].ip(), self.instructions[index].ip()))
        };
        (0..self.instructions.len()).filter_map(goes_on)
    }

    /// Where the value of a place before the instruction at `ip` came from; `edges`, `trail` and `known` as for [`Self::origins`].
    pub fn origins_of(
        &self,
        ip: u64,
        location: Location,
        edges: &EdgeCounts,
        trail: Trail<'_>,
        known: &mut dyn FnMut(u64, Location) -> bool,
    ) -> Vec<Origin> {
        match self.instructions.binary_search_by_key(&ip, Instruction::ip) {
            Ok(index) => self.origins_before(index, location, Some(0), edges, trail, known),
            Err(_) => Vec::new(),
        }
    }

    fn origins_before(
        &self,
        index: usize,
        location: Location,
        offset: Option<i64>,
        edges: &EdgeCounts,
        trail: Trail<'_>,
        known: &mut dyn FnMut(u64, Location) -> bool,
    ) -> Vec<Origin> {
        let mut search =
            Search { function: self, edges, known, found: Vec::new(), path: Vec::new(), steps: 0 };
        search.walk(index, location, offset, 1.0, trail);
        let mut merged: Vec<Origin> = Vec::new();
        for origin in search.found {
            match merged
                .iter_mut()
                .find(|other| (other.source, other.offset) == (origin.source, origin.offset))
            {
                Some(other) => other.share += origin.share,
                None => merged.push(origin),
            }
        }
        // Paths that came back to themselves were left out; the others have their share.
        let all: f64 = merged.iter().map(|origin| origin.share).sum();
        if all > 0.0 {
            merged.iter_mut().for_each(|origin| origin.share /= all);
        }
        merged.sort_by(|a, b| b.share.total_cmp(&a.share));
        merged
    }

    /// Whether a register still has at `later` the value that it had before the instruction at `ip`: nothing between them in the order of
    /// addresses writes it, and control comes from nowhere else.
    #[must_use]
    pub fn is_kept(&self, register: Register, ip: u64, later: u64) -> bool {
        let place = |ip| self.instructions.binary_search_by_key(&ip, Instruction::ip).ok();
        let (Some(first), Some(last)) = (place(ip), place(later)) else { return false };
        let mut factory = InstructionInfoFactory::new();
        // The later one, too: the registers of a sample are those after it.
        first <= last
            && (first..=last).all(|index| {
                let straight = index == first || self.before[index].as_slice() == [index - 1];
                let call = matches!(
                    self.instructions[index].flow_control(),
                    FlowControl::Call | FlowControl::IndirectCall
                );
                let lost = call && !is_callee_saved(register);
                straight && !lost && !writes(&mut factory, &self.instructions[index], register)
            })
    }

    /// Whether a register has the same value everywhere in the function.
    #[must_use]
    pub fn never_writes(&self, register: Register) -> bool {
        let mut factory = InstructionInfoFactory::new();
        self.instructions.iter().all(|one| {
            let calls = matches!(one.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
            (!calls || is_callee_saved(register)) && !writes(&mut factory, one, register)
        })
    }
}

/// Takes away ways that begin in padding, which nobody executes. Other code that nobody in the function leads to is entered from
/// elsewhere: by a computed jump, or by what unwinds the stack.
fn leave_out_padding(instructions: &[Instruction], before: &mut [Vec<usize>]) {
    let pads = |one: &Instruction| matches!(one.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
    let mut after = vec![Vec::new(); instructions.len()];
    for (index, ways) in before.iter().enumerate() {
        ways.iter().for_each(|&way| after[way].push(index));
    }
    let entered = |&index: &usize| index == 0 || before[index].is_empty() && !pads(&instructions[index]);
    let mut open: Vec<usize> = (0..instructions.len()).filter(entered).collect();
    let mut executed = vec![false; instructions.len()];
    while let Some(index) = open.pop() {
        if !std::mem::replace(&mut executed[index], true) {
            open.extend(&after[index]);
        }
    }
    before.iter_mut().for_each(|ways| ways.retain(|&way| executed[way]));
}

#[cfg(test)]
mod tests;
