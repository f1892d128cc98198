//! What a guest instruction is, as far as counting cares: decoded once, when it is translated.

use iced_x86::{
    Code, Decoder, DecoderError, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, Register,
};
use vpmu::{BranchKind, Privilege};

/// Longest x86 instruction in bytes (SDM Vol. 2A 2.3.11).
pub(crate) const MAX_LENGTH: usize = 15;
/// What QEMU accesses at once on any host, in bytes.
const PART_MAX: usize = 8;
/// A 512-bit vector, in bytes. What is larger (FXSAVE, XSAVE) are many accesses.
const ACCESS_MAX: usize = 64;

/// Instructions that the plugin itself executes, wholly or for some operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    /// `WRMSR`.
    Wrmsr,
    /// `RDMSR`.
    Rdmsr,
    /// `RDPMC`.
    Rdpmc,
    /// `CPUID`.
    Cpuid,
    /// `MOV CR3, r`: the number of the source register, in encoding order.
    LoadCr3(u8),
}

/// One guest instruction at one address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Insn {
    /// Linear address.
    pub(crate) pc: u64,
    /// Physical address.
    pub(crate) physical: u64,
    /// Length in bytes.
    pub(crate) size: u8,
    /// Privilege level the code was translated for.
    pub(crate) privilege: Privilege,
    /// Whether it loads at least once when it retires.
    pub(crate) loads: bool,
    /// Whether it stores at least once when it retires.
    pub(crate) stores: bool,
    /// Bytes of its access if it has one place in memory that it accesses wholly, and QEMU may do that in parts: a vector, an
    /// 80-bit number. Else 0.
    pub(crate) wide: u8,
    /// What kind of branch it is, if it is one.
    pub(crate) branch: Option<BranchKind>,
    /// A repeated string instruction: one instruction, as many accesses as iterations.
    pub(crate) repeats: bool,
    /// Its accesses are locked: a LOCK prefix, or `XCHG` with memory (SDM Vol. 3A 8.1.2).
    pub(crate) locked: bool,
    /// A software interrupt: it retires, although it is reported as an exception.
    pub(crate) software_interrupt: bool,
    /// What the plugin does in its place.
    pub(crate) special: Option<Special>,
}

impl Insn {
    /// Linear address of the next instruction in memory.
    pub(crate) fn fallthrough(&self) -> u64 {
        self.pc.wrapping_add(u64::from(self.size))
    }

    /// Whether an access to `linear` is a part of the one that began at `start`.
    pub(crate) fn is_part_of_access(&self, start: u64, linear: u64) -> bool {
        linear.wrapping_sub(start) < u64::from(self.wide)
    }

    /// Whether the privilege level may be another one after it.
    pub(crate) fn may_switch_privilege(&self) -> bool {
        self.branch == Some(BranchKind::Far)
    }
}

/// Decodes instructions of a block. Reuses its scratch memory.
pub(crate) struct Classifier {
    factory: InstructionInfoFactory,
}

impl Classifier {
    pub(crate) fn new() -> Self {
        Self { factory: InstructionInfoFactory::new() }
    }

    /// Classifies the instruction `bytes` at `pc`, in code of `bitness` 16, 32 or 64.
    pub(crate) fn classify(
        &mut self,
        bytes: &[u8],
        bitness: u32,
        pc: u64,
        physical: u64,
        privilege: Privilege,
    ) -> Insn {
        let instruction = Decoder::with_ip(bitness, bytes, pc, DecoderOptions::NONE).decode();
        let (loads, stores) = self.accesses(&instruction);
        Insn {
            pc,
            physical,
            // At most MAX_LENGTH.
            size: bytes.len() as u8,
            privilege,
            loads,
            stores,
            wide: self.wide(&instruction),
            branch: branch_kind(&instruction),
            repeats: instruction.is_string_instruction()
                && (instruction.has_rep_prefix() || instruction.has_repne_prefix()),
            locked: instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg && loads,
            software_interrupt: is_software_interrupt(&instruction),
            special: special(&instruction),
        }
    }

    /// Whether the instruction has a load and whether it has a store, implicit ones (stack, string) included.
    fn accesses(&mut self, instruction: &Instruction) -> (bool, bool) {
        let (mut loads, mut stores) = (false, false);
        for access in self.factory.info(instruction).used_memory().iter().map(|memory| memory.access()) {
            loads |= matches!(
                access,
                OpAccess::Read | OpAccess::CondRead | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            );
            stores |= matches!(
                access,
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            );
        }
        (loads, stores)
    }

    fn wide(&mut self, instruction: &Instruction) -> u8 {
        let [memory] = self.factory.info(instruction).used_memory() else { return 0 };
        let whole = matches!(memory.access(), OpAccess::Read | OpAccess::Write | OpAccess::ReadWrite);
        let bytes = memory.memory_size().size();
        // A gather has one place in iced's tables, but for each element its own; of others a mask chooses elements.
        let masked = instruction.op_mask() != Register::None
            || matches!(
                instruction.mnemonic(),
                Mnemonic::Maskmovdqu
                    | Mnemonic::Vmaskmovdqu
                    | Mnemonic::Vmaskmovps
                    | Mnemonic::Vmaskmovpd
                    | Mnemonic::Vpmaskmovd
                    | Mnemonic::Vpmaskmovq
            );
        let one = !masked && !instruction.is_vsib() && !instruction.is_string_instruction();
        if whole && one && (PART_MAX + 1..=ACCESS_MAX).contains(&bytes) { bytes as u8 } else { 0 }
    }
}

/// The bitness in which every instruction of a block has the length that QEMU found: the plugin API does not tell the
/// code segment's size. 64 is tried first, for that is what the guests of this lab run.
pub(crate) fn bitness<'a>(instructions: impl Iterator<Item = &'a [u8]> + Clone) -> u32 {
    let fits = |&bits: &u32| {
        instructions.clone().all(|bytes| {
            let mut decoder = Decoder::new(bits, bytes, DecoderOptions::NONE);
            let length = decoder.decode().len();
            match decoder.last_error() {
                DecoderError::None => length == bytes.len(),
                DecoderError::NoMoreBytes => false,
                // QEMU may know instructions that the decoder does not.
                _ => true,
            }
        })
    };
    [64, 32, 16].into_iter().find(fits).unwrap_or(64)
}

fn special(instruction: &Instruction) -> Option<Special> {
    match instruction.code() {
        Code::Wrmsr => Some(Special::Wrmsr),
        Code::Rdmsr => Some(Special::Rdmsr),
        Code::Rdpmc => Some(Special::Rdpmc),
        Code::Cpuid => Some(Special::Cpuid),
        Code::Mov_cr_r64 | Code::Mov_cr_r32 if instruction.op0_register() == Register::CR3 => {
            // A general register's number is below 16.
            Some(Special::LoadCr3(instruction.op1_register().number() as u8))
        }
        _ => None,
    }
}

fn branch_kind(instruction: &Instruction) -> Option<BranchKind> {
    match instruction.flow_control() {
        FlowControl::ConditionalBranch => Some(BranchKind::Conditional),
        FlowControl::UnconditionalBranch if instruction.is_jmp_far() => Some(BranchKind::Far),
        FlowControl::UnconditionalBranch => Some(BranchKind::DirectJump),
        FlowControl::IndirectBranch if instruction.is_jmp_far_indirect() => Some(BranchKind::Far),
        FlowControl::IndirectBranch => Some(BranchKind::IndirectJump),
        FlowControl::Return if instruction.mnemonic() == Mnemonic::Ret => Some(BranchKind::Return),
        FlowControl::Return => Some(BranchKind::Far),
        FlowControl::Call if instruction.is_call_near() => Some(BranchKind::DirectCall),
        FlowControl::IndirectCall if instruction.is_call_near_indirect() => Some(BranchKind::IndirectCall),
        // SYSCALL and SYSENTER too are calls to iced.
        FlowControl::Call | FlowControl::IndirectCall => match instruction.mnemonic() {
            Mnemonic::Syscall | Mnemonic::Sysenter | Mnemonic::Call => Some(BranchKind::Far),
            _ => None,
        },
        FlowControl::Next
        | FlowControl::Interrupt
        | FlowControl::XbeginXabortXend
        | FlowControl::Exception => None,
    }
}

fn is_software_interrupt(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Int | Mnemonic::Int1 | Mnemonic::Int3 | Mnemonic::Into)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insn(bytes: &[u8]) -> Insn {
        Classifier::new().classify(bytes, 64, 0x1000, 0x2000, Privilege::User)
    }

    #[test]
    fn an_instruction_with_two_accesses_of_one_kind_loads_once() {
        // cmpsb: two loads; push qword [rax]: a load and a store; movsb: a load and a store.
        for (bytes, loads, stores) in [
            (&[0xa6][..], true, false),
            (&[0xff, 0x30], true, true),
            (&[0xa4], true, true),
            (&[0x48, 0x8b, 0x07], true, false),
            (&[0x48, 0x89, 0x07], false, true),
            (&[0x48, 0xff, 0x07], true, true),
        ] {
            let insn = insn(bytes);
            assert_eq!((insn.loads, insn.stores), (loads, stores), "{bytes:x?}");
        }
    }

    #[test]
    fn lea_nop_and_prefetch_do_not_access_memory() {
        for bytes in [&[0x48, 0x8d, 0x07][..], &[0x0f, 0x1f, 0x00], &[0x0f, 0x18, 0x08], &[0x0f, 0x0d, 0x08]]
        {
            let insn = insn(bytes);
            assert!(!insn.loads && !insn.stores, "{bytes:x?}");
        }
    }

    #[test]
    fn the_stack_is_memory() {
        assert!(insn(&[0x50]).stores, "push");
        assert!(insn(&[0x58]).loads, "pop");
        assert!(insn(&[0xe8, 0, 0, 0, 0]).stores, "call");
        assert!(insn(&[0xc3]).loads, "ret");
    }

    #[test]
    fn an_access_that_may_come_in_parts_has_its_size() {
        for (bytes, wide) in [
            (&[0xc5, 0xfe, 0x6f, 0x0e][..], 32),         // vmovdqu ymm1, [rsi]
            (&[0x0f, 0x11, 0x07], 16),                   // movups [rdi], xmm0
            (&[0xdb, 0x2f], 10),                         // fld tbyte [rdi]
            (&[0x62, 0xf1, 0x7c, 0x48, 0x10, 0x07], 64), // vmovups zmm0, [rdi]
            (&[0x48, 0x8b, 0x07], 0),                    // mov rax, [rdi]
            (&[0xc4, 0xe2, 0x7d, 0x2c, 0x07], 0),        // vmaskmovps ymm0, ymm0, [rdi]
            (&[0xc4, 0xe2, 0x75, 0x92, 0x04, 0x07], 0),  // vgatherdps ymm0, [rdi+ymm0], ymm1
            (&[0x0f, 0xae, 0x07], 0),                    // fxsave [rdi]
            (&[0xf3, 0x48, 0xa5], 0),                    // rep movsq
        ] {
            assert_eq!(insn(bytes).wide, wide, "{bytes:x?}");
        }
    }

    #[test]
    fn branches_are_told_apart() {
        use BranchKind::*;
        for (bytes, kind) in [
            (&[0x75, 0xfe][..], Some(Conditional)),
            (&[0xe2, 0xfe], Some(Conditional)),
            (&[0xeb, 0xfe], Some(DirectJump)),
            (&[0xff, 0xe0], Some(IndirectJump)),
            (&[0xe8, 0, 0, 0, 0], Some(DirectCall)),
            (&[0xff, 0xd0], Some(IndirectCall)),
            (&[0xc3], Some(Return)),
            (&[0x48, 0xcf], Some(Far)),
            (&[0x0f, 0x05], Some(Far)),
            (&[0x48, 0x0f, 0x07], Some(Far)),
            (&[0xcc], None),
            (&[0x90], None),
        ] {
            assert_eq!(insn(bytes).branch, kind, "{bytes:x?}");
        }
    }

    #[test]
    fn what_the_plugin_executes_is_found_behind_prefixes() {
        assert_eq!(insn(&[0x0f, 0x30]).special, Some(Special::Wrmsr));
        assert_eq!(insn(&[0x3e, 0x0f, 0x30]).special, Some(Special::Wrmsr));
        assert_eq!(insn(&[0x0f, 0x32]).special, Some(Special::Rdmsr));
        assert_eq!(insn(&[0x0f, 0x33]).special, Some(Special::Rdpmc));
        assert_eq!(insn(&[0x0f, 0xa2]).special, Some(Special::Cpuid));
        assert_eq!(insn(&[0x0f, 0x22, 0xdf]).special, Some(Special::LoadCr3(7)));
        assert_eq!(insn(&[0x41, 0x0f, 0x22, 0xdc]).special, Some(Special::LoadCr3(12)));
        assert_eq!(insn(&[0x0f, 0x22, 0xe0]).special, None, "mov cr4");
    }

    #[test]
    fn rep_repeats_only_string_instructions() {
        assert!(insn(&[0xf3, 0x48, 0xa5]).repeats, "rep movsq");
        assert!(insn(&[0xf2, 0xae]).repeats, "repne scasb");
        assert!(!insn(&[0xf3, 0x90]).repeats, "pause");
        assert!(!insn(&[0xf3, 0xc3]).repeats, "rep ret");
        assert!(!insn(&[0xa4]).repeats, "movsb");
    }

    #[test]
    fn code_of_another_width_is_recognised_by_its_lengths() {
        let long: [&[u8]; 2] = [&[0x48, 0x89, 0xc3], &[0xc3]];
        assert_eq!(bitness(long.into_iter()), 64);
        let protected: [&[u8]; 2] = [&[0x40], &[0x89, 0xc3]];
        assert_eq!(bitness(protected.into_iter()), 32);
    }
}
