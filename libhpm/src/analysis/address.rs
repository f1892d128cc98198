//! The data address of an instruction that has been executed, from its code and the registers after it.
//!
//! Schneider's thesis (3.3.3) computes base + scale × index + displacement from the registers of a PEBS record. These are the
//! registers *after* the instruction, so that what the instruction itself changed has to be undone, or the address is not known:
//!
//! | trap | what is done |
//! |---|---|
//! | a load overwrites its own base or index | unknown |
//! | push, pop, call, ret, leave move the stack pointer | the movement is known, and undone |
//! | string instructions move RSI and RDI | undone by the direction flag; with a repeat prefix unknown: there were many accesses |
//! | FS and GS have bases that no record holds | unknown |
//! | gathers, scatters and masked accesses touch what a mask chose | unknown |
//! | an instruction with several accesses | the one that the event is about; unknown where that leaves two |
//! | the registers belong to another instruction | unknown: the next instruction pointer does not follow from this one |
//!
//! What an access is, comes from iced-x86's tables of the SDM's Vol. 2.

use iced_x86::{
    CodeSize, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register, UsedMemory,
};
use serde::Serialize;

use crate::trace::Registers;

/// Largest single access of an instruction, a 512-bit vector; areas such as XSAVE's are larger.
const ACCESS_BYTES_MAX: usize = 64;
/// RFLAGS.DF: string instructions go downwards (SDM Vol. 1, 3.4.3.2).
const DIRECTION_FLAG: u64 = 1 << 10;

/// Which of an instruction's accesses an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// A load.
    Load,
    /// A store.
    Store,
    /// Either.
    Any,
}

impl Access {
    /// What an event with this name is about: a load or a store where its name says one of them.
    #[must_use]
    pub fn of_event(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        match (name.contains("load"), name.contains("store")) {
            (true, false) => Self::Load,
            (false, true) => Self::Store,
            _ => Self::Any,
        }
    }

    pub(crate) fn takes(self, access: OpAccess) -> bool {
        use OpAccess::{CondRead, CondWrite, Read, ReadCondWrite, ReadWrite, Write};
        let (reads, writes) = (
            matches!(access, Read | CondRead | ReadWrite | ReadCondWrite),
            matches!(access, Write | CondWrite | ReadWrite | ReadCondWrite),
        );
        match self {
            Self::Load => reads,
            Self::Store => writes,
            Self::Any => reads || writes,
        }
    }
}

/// Why a data address is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unknown {
    /// The sample names an instruction after the one that caused the event (skid).
    Imprecise,
    /// The record names the next instruction, and which one came before it cannot be told.
    CauseNotTold,
    /// The record has no registers after the instruction.
    NoRegisters,
    /// The instruction's code is not here: made at run time, the kernel's, another file than the one recorded.
    NoCode,
    /// The bytes are no instruction.
    NotDecoded,
    /// The instruction does not access memory in the way that the event is about.
    NoAccess,
    /// The instruction overwrote a register of its own address.
    Overwritten,
    /// The address is relative to FS or GS, whose bases no record holds.
    SegmentBase,
    /// A string instruction was repeated: it made many accesses.
    Repeated,
    /// A gather or scatter: it makes many accesses.
    Gather,
    /// A mask decides which parts are accessed.
    Masked,
    /// The access is larger than 64 bytes, or of unknown size.
    Large,
    /// The instruction has several accesses of which each can be meant.
    Several,
    /// The registers belong to another instruction.
    OtherRegisters,
}

impl Unknown {
    /// Why, in a few words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Imprecise => "the sample is imprecise",
            Self::CauseNotTold => "the record names the next instruction, and not how it was reached",
            Self::NoRegisters => "the record has no registers",
            Self::NoCode => "the instruction's code is not here",
            Self::NotDecoded => "the code is no instruction",
            Self::NoAccess => "the instruction makes no such access",
            Self::Overwritten => "the instruction overwrote its own base or index",
            Self::SegmentBase => "relative to FS or GS, whose base is not recorded",
            Self::Repeated => "a repeated string instruction",
            Self::Gather => "a gather or scatter",
            Self::Masked => "a masked access",
            Self::Large => "an access of more than 64 bytes",
            Self::Several => "several accesses could be meant",
            Self::OtherRegisters => "the registers belong to another instruction",
        }
    }
}

/// An instruction that was executed, and what is known after it.
#[derive(Clone, Copy, Debug)]
pub struct Executed<'a> {
    /// Bytes from its first one on; more than it has do no harm.
    pub code: &'a [u8],
    /// Where it was.
    pub ip: u64,
    /// Bits of its addresses: 64, or 32 for a program in compatibility mode.
    pub bits: u32,
    /// Where the program went on.
    pub next_ip: u64,
    /// The registers then.
    pub after: &'a Registers,
}

impl Executed<'_> {
    /// The linear address of its access.
    ///
    /// # Errors
    /// Why the address is not known.
    pub fn data_address(&self, wanted: Access) -> Result<u64, Unknown> {
        let instruction = Decoder::with_ip(self.bits, self.code, self.ip, DecoderOptions::NONE).decode();
        if instruction.is_invalid() {
            return Err(Unknown::NotDecoded);
        }
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(&instruction);
        let accesses = info.used_memory().iter().filter(|memory| wanted.takes(memory.access()));
        let accesses: Vec<UsedMemory> = accesses.copied().collect();
        if accesses.is_empty() {
            return Err(Unknown::NoAccess);
        }
        refuse(&instruction, &accesses)?;
        if !self.follows(&instruction) {
            return Err(Unknown::OtherRegisters);
        }
        let written = |register: Register| {
            info.used_registers().iter().any(|used| {
                let writes = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
                writes && used.register().full_register() == register.full_register()
            })
        };
        let mut found = None;
        for memory in &accesses {
            let address = self.address_of(&instruction, memory, &written)?;
            if found.replace(address).is_some_and(|other| other != address) {
                return Err(Unknown::Several);
            }
        }
        found.ok_or(Unknown::NoAccess)
    }

    /// Whether the program can have gone on from this instruction to where the registers are.
    fn follows(&self, instruction: &Instruction) -> bool {
        let falls_through = self.next_ip == instruction.next_ip();
        match instruction.flow_control() {
            FlowControl::Next => falls_through,
            FlowControl::ConditionalBranch => {
                falls_through || self.next_ip == instruction.near_branch_target()
            }
            FlowControl::UnconditionalBranch | FlowControl::Call => {
                self.next_ip == instruction.near_branch_target()
            }
            FlowControl::IndirectBranch | FlowControl::IndirectCall | FlowControl::Return => true,
            FlowControl::Interrupt | FlowControl::XbeginXabortXend | FlowControl::Exception => false,
        }
    }

    fn address_of(
        &self,
        instruction: &Instruction,
        memory: &UsedMemory,
        written: &dyn Fn(Register) -> bool,
    ) -> Result<u64, Unknown> {
        if matches!(memory.segment(), Register::FS | Register::GS) {
            return Err(Unknown::SegmentBase);
        }
        if instruction.mnemonic() == Mnemonic::Leave {
            // RSP became RBP, and then went up by what was read there.
            let read = memory.memory_size().size() as u64;
            return Ok(self.value(Register::RSP).wrapping_sub(read));
        }
        for register in [memory.base(), memory.index()] {
            if register != Register::None && written(register) && !is_undone(instruction, register) {
                return Err(Unknown::Overwritten);
            }
        }
        let before = |register: Register, _: usize, _: usize| {
            // A flat model: only FS and GS have bases (SDM Vol. 1, 3.4.2.1), in 32-bit programs by Linux's choice.
            if register.is_segment_register() { Some(0) } else { Some(self.before(instruction, register)) }
        };
        let address = memory.virtual_address(0, before).ok_or(Unknown::Several)?;
        Ok(address.wrapping_add(self.bit_offset(instruction, memory)))
    }

    /// A register's value before the instruction, which has not overwritten it but for a movement that is known.
    fn before(&self, instruction: &Instruction, register: Register) -> u64 {
        let after = self.value(register);
        let moved = match register.full_register() {
            Register::RSP if moves_stack(instruction) => i64::from(instruction.stack_pointer_increment()),
            Register::RSI | Register::RDI if instruction.is_string_instruction() => {
                let bytes = instruction.memory_size().size() as i64;
                if self.after.at(Registers::RFLAGS) & DIRECTION_FLAG == 0 { bytes } else { -bytes }
            }
            _ => 0,
        };
        truncated(after.wrapping_sub(moved as u64), register.size())
    }

    fn value(&self, register: Register) -> u64 {
        let full = register.full_register();
        let place = PLACES.iter().position(|place| *place == full);
        let whole = place.map_or(0, |place| self.after.at(place + 2));
        // AH to DH are no base or index of an address.
        truncated(whole, register.size())
    }

    /// BT, BTS, BTR and BTC with a bit number in a register reach beyond their operand (SDM Vol. 2A, "BT").
    fn bit_offset(&self, instruction: &Instruction, memory: &UsedMemory) -> u64 {
        let tests_bits =
            matches!(instruction.mnemonic(), Mnemonic::Bt | Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc);
        if !tests_bits || instruction.op1_kind() != OpKind::Register {
            return 0;
        }
        let number = self.value(instruction.op1_register());
        let signed = match instruction.op1_register().size() {
            2 => i64::from(number as i16),
            4 => i64::from(number as i32),
            _ => number as i64,
        };
        let bytes = memory.memory_size().size() as i64;
        (signed.div_euclid(8 * bytes) * bytes) as u64
    }
}

/// The general registers at their places in [`Registers`], behind RFLAGS and RIP.
pub(crate) const PLACES: [Register; 16] = [
    Register::RAX,
    Register::RBX,
    Register::RCX,
    Register::RDX,
    Register::RSI,
    Register::RDI,
    Register::RBP,
    Register::RSP,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Accesses whose place no register tells.
fn refuse(instruction: &Instruction, accesses: &[UsedMemory]) -> Result<(), Unknown> {
    let repeats =
        instruction.has_rep_prefix() || instruction.has_repe_prefix() || instruction.has_repne_prefix();
    if instruction.is_string_instruction() && repeats {
        return Err(Unknown::Repeated);
    }
    if instruction.is_vsib() || accesses.iter().any(|memory| memory.vsib_size() != 0) {
        return Err(Unknown::Gather);
    }
    let masked = matches!(
        instruction.mnemonic(),
        Mnemonic::Maskmovq
            | Mnemonic::Maskmovdqu
            | Mnemonic::Vmaskmovdqu
            | Mnemonic::Vmaskmovps
            | Mnemonic::Vmaskmovpd
            | Mnemonic::Vpmaskmovd
            | Mnemonic::Vpmaskmovq
    );
    if masked || instruction.has_op_mask() {
        return Err(Unknown::Masked);
    }
    let fits = |memory: &UsedMemory| (1..=ACCESS_BYTES_MAX).contains(&memory.memory_size().size());
    let single = !matches!(instruction.mnemonic(), Mnemonic::Enter | Mnemonic::Pusha | Mnemonic::Popa);
    if single && accesses.iter().all(fits) { Ok(()) } else { Err(Unknown::Large) }
}

/// Whether what the instruction did to a register of its address can be undone.
fn is_undone(instruction: &Instruction, register: Register) -> bool {
    match register.full_register() {
        // POP RSP takes the value that it loads.
        Register::RSP => moves_stack(instruction),
        Register::RSI | Register::RDI => instruction.is_string_instruction(),
        _ => false,
    }
}

fn moves_stack(instruction: &Instruction) -> bool {
    let takes_value = instruction.mnemonic() == Mnemonic::Pop
        && instruction.op0_kind() == OpKind::Register
        && instruction.op0_register().full_register() == Register::RSP;
    instruction.stack_pointer_increment() != 0
        && !takes_value
        && !matches!(
            instruction.mnemonic(),
            Mnemonic::Enter | Mnemonic::Iret | Mnemonic::Iretd | Mnemonic::Iretq
        )
        && matches!(instruction.code_size(), CodeSize::Code64 | CodeSize::Code32)
}

/// The low bytes of a register.
fn truncated(value: u64, bytes: usize) -> u64 {
    match bytes {
        1 => value & 0xff,
        2 => value & 0xffff,
        4 => value & 0xffff_ffff,
        _ => value,
    }
}

#[cfg(test)]
mod tests;
