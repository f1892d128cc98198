//! What an instruction does to a value that is looked for in a register or in the function's frame.

use iced_x86::{
    ConditionCode, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::{Function, Location, Source};

/// What an instruction does to a value that is looked for.
pub(super) enum Effect {
    None,
    /// It was in another place, less so many bytes; `None` for an unknown number.
    Moved(Location, Option<i64>),
    /// It was there or stays here.
    Either(Location),
    /// It may have been this or stays here.
    EitherSource(Source),
    Is(Source),
}

impl Function {
    pub(super) fn effect(&self, instruction: &Instruction, location: Location) -> Effect {
        match location {
            Location::Register(register) => self.effect_on_register(instruction, register),
            Location::Slot(base, displacement) => self.effect_on_slot(instruction, base, displacement),
        }
    }

    fn effect_on_register(&self, one: &Instruction, register: Register) -> Effect {
        if matches!(one.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            return match register {
                Register::RAX => {
                    let target = (one.flow_control() == FlowControl::Call).then(|| one.near_branch_target());
                    Effect::Is(Source::Returned { ip: one.ip(), target })
                }
                _ if is_callee_saved(register) => Effect::None,
                _ => Effect::Is(Source::Other),
            };
        }
        if !writes(&mut InstructionInfoFactory::new(), one, register) {
            return Effect::None;
        }
        let whole = one.op0_kind() == OpKind::Register
            && one.op0_register().full_register() == register
            && one.op0_register().size() * 8 == self.bits as usize;
        if !whole {
            return Effect::Is(Source::Other);
        }
        let conditional = matches!(one.condition_code(), code if code != ConditionCode::None)
            && one.flow_control() == FlowControl::Next;
        match (one.mnemonic(), one.op1_kind()) {
            (Mnemonic::Mov, OpKind::Register) => {
                Effect::Moved(Location::Register(one.op1_register().full_register()), Some(0))
            }
            (Mnemonic::Mov, OpKind::Memory) => self.loaded(one),
            (Mnemonic::Mov, OpKind::Immediate64 | OpKind::Immediate32to64 | OpKind::Immediate32) => {
                Effect::Is(Source::Global(one.immediate(1)))
            }
            (Mnemonic::Lea, _) => self.address_taken(one),
            (Mnemonic::Add, kind) if is_immediate(kind) => {
                Effect::Moved(Location::Register(register), Some(one.immediate(1) as i64))
            }
            (Mnemonic::Sub, kind) if is_immediate(kind) => {
                Effect::Moved(Location::Register(register), Some((one.immediate(1) as i64).wrapping_neg()))
            }
            (Mnemonic::Inc, _) => Effect::Moved(Location::Register(register), Some(1)),
            (Mnemonic::Dec, _) => Effect::Moved(Location::Register(register), Some(-1)),
            // Bits of a tagged reference that are no part of its address.
            (Mnemonic::And, kind) if is_immediate(kind) => {
                Effect::Moved(Location::Register(register), Some(0))
            }
            (_, OpKind::Register) if conditional => {
                Effect::Either(Location::Register(one.op1_register().full_register()))
            }
            (_, OpKind::Memory) if conditional => match self.loaded(one) {
                Effect::Is(source) => Effect::EitherSource(source),
                Effect::Moved(location, _) => Effect::Either(location),
                _ => Effect::Is(Source::Other),
            },
            _ => Effect::Is(Source::Other),
        }
    }

    /// What a load brings.
    fn loaded(&self, one: &Instruction) -> Effect {
        let (base, index) = (one.memory_base().full_register(), one.memory_index().full_register());
        let displacement = one.memory_displacement64() as i64;
        let ip = one.ip();
        Effect::Is(match (base, index) {
            _ if matches!(one.memory_segment(), Register::FS | Register::GS) => Source::Other,
            (Register::RIP | Register::EIP | Register::None, Register::None) => {
                Source::Global(one.memory_displacement64())
            }
            (Register::RSP, Register::None) => {
                return Effect::Moved(Location::Slot(base, displacement), Some(0));
            }
            (Register::RBP, Register::None) if self.has_frame => {
                return Effect::Moved(Location::Slot(base, displacement), Some(0));
            }
            (Register::RSP, _) => Source::Other,
            (Register::None, index) => Source::Element { ip, base: index, displacement },
            (base, Register::None) => Source::Field { ip, base, displacement },
            (base, _) => Source::Element { ip, base, displacement },
        })
    }

    /// What LEA makes.
    fn address_taken(&self, one: &Instruction) -> Effect {
        let (base, index) = (one.memory_base().full_register(), one.memory_index().full_register());
        let displacement = one.memory_displacement64() as i64;
        match (base, index) {
            (Register::RIP | Register::EIP, _) => Effect::Is(Source::Global(one.memory_displacement64())),
            (Register::RSP, _) => Effect::Is(Source::Other),
            (Register::RBP, _) if self.has_frame => Effect::Is(Source::Other),
            (Register::None, _) => Effect::Is(Source::Other),
            (base, Register::None) => Effect::Moved(Location::Register(base), Some(displacement)),
            // Of two registers the one that is scaled is the index; of two that are not, nobody knows.
            (base, _) if one.memory_index_scale() > 1 => Effect::Moved(Location::Register(base), None),
            _ => Effect::Is(Source::Other),
        }
    }

    fn effect_on_slot(&self, one: &Instruction, base: Register, displacement: i64) -> Effect {
        let stores_here = one.op0_kind() == OpKind::Memory
            && one.memory_base().full_register() == base
            && one.memory_index() == Register::None
            && one.memory_displacement64() as i64 == displacement;
        if stores_here && one.mnemonic() == Mnemonic::Mov {
            return match one.op1_kind() {
                OpKind::Register if one.op1_register().size() * 8 == self.bits as usize => {
                    Effect::Moved(Location::Register(one.op1_register().full_register()), Some(0))
                }
                _ => Effect::Is(Source::Other),
            };
        }
        let moves = |by: i64| Effect::Moved(Location::Slot(base, displacement.wrapping_add(by)), Some(0));
        match (base, one.mnemonic()) {
            // A call leaves the stack pointer as it was when it returns.
            (_, Mnemonic::Call) => Effect::None,
            (Register::RSP, Mnemonic::Push) if displacement == 0 && one.op0_kind() == OpKind::Register => {
                Effect::Moved(Location::Register(one.op0_register().full_register()), Some(0))
            }
            (Register::RSP, Mnemonic::Push) if displacement == 0 => Effect::Is(Source::Other),
            (Register::RSP, Mnemonic::Push | Mnemonic::Pop) => {
                moves(i64::from(one.stack_pointer_increment()))
            }
            (Register::RSP, Mnemonic::Sub)
                if is_register(one, Register::RSP) && is_immediate(one.op1_kind()) =>
            {
                moves((one.immediate(1) as i64).wrapping_neg())
            }
            (Register::RSP, Mnemonic::Add)
                if is_register(one, Register::RSP) && is_immediate(one.op1_kind()) =>
            {
                moves(one.immediate(1) as i64)
            }
            (Register::RBP, Mnemonic::Mov)
                if is_register(one, Register::RBP)
                    && one.op1_kind() == OpKind::Register
                    && one.op1_register() == Register::RSP =>
            {
                Effect::Moved(Location::Slot(Register::RSP, displacement), Some(0))
            }
            _ if writes(&mut InstructionInfoFactory::new(), one, base) => Effect::Is(Source::Other),
            _ => Effect::None,
        }
    }
}

fn is_register(one: &Instruction, register: Register) -> bool {
    one.op0_kind() == OpKind::Register && one.op0_register().full_register() == register
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate8
            | OpKind::Immediate32
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    )
}

/// Registers that a function gives back as they were (System V AMD64 ABI, 3.2.1).
pub(super) fn is_callee_saved(register: Register) -> bool {
    matches!(
        register.full_register(),
        Register::RBX
            | Register::RBP
            | Register::RSP
            | Register::R12
            | Register::R13
            | Register::R14
            | Register::R15
    )
}

pub(super) fn writes(factory: &mut InstructionInfoFactory, one: &Instruction, register: Register) -> bool {
    factory.info(one).used_registers().iter().any(|used| {
        let writes = matches!(
            used.access(),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
        writes && used.register().full_register() == register.full_register()
    })
}
