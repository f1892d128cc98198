//! Puts the instruction that caused an event on top of the stack found after it.
//!
//! A precise record has the registers *after* the instruction. Usually that is the same function; after a `call` the
//! stack has a frame too many, after a `ret` one too few.

use iced_x86::{Decoder, DecoderOptions, FlowControl};

use super::CallStack;

/// How an instruction passes control on, as far as the stack is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Transfer {
    /// The stack has the same frames before and after.
    Within,
    /// A new frame was pushed; the instruction has this many bytes.
    Call(u64),
    /// The frame was popped.
    Return,
}

impl Transfer {
    /// That of the instruction with which these bytes begin; `None` when they are none.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let instruction = Decoder::new(64, bytes, DecoderOptions::NONE).decode();
        match instruction.flow_control() {
            FlowControl::Exception if instruction.is_invalid() => None,
            FlowControl::Call | FlowControl::IndirectCall if !is_system_call(&instruction) => {
                Some(Self::Call(instruction.len() as u64))
            }
            FlowControl::Return => Some(Self::Return),
            _ => Some(Self::Within),
        }
    }
}

/// iced counts SYSCALL and its kin as calls, but they leave the user's stack alone.
fn is_system_call(instruction: &iced_x86::Instruction) -> bool {
    use iced_x86::Mnemonic::{Syscall, Sysenter, Vmcall, Vmmcall};
    matches!(instruction.mnemonic(), Syscall | Sysenter | Vmcall | Vmmcall)
}

/// The stack of the instruction at `ip`, from the stack after it.
pub(super) fn with_cause(mut after: CallStack, ip: u64, transfer: Option<Transfer>) -> CallStack {
    match transfer {
        Some(Transfer::Return) => after.frames.insert(0, ip),
        Some(Transfer::Call(bytes)) if after.frames.get(1) == Some(&ip.wrapping_add(bytes)) => {
            after.frames.remove(0);
            after.frames[0] = ip;
        }
        // The callee could not be unwound, so nothing is known of the caller's callers.
        Some(Transfer::Call(_)) => after = CallStack { frames: vec![ip], truncated: true },
        Some(Transfer::Within) | None => match after.frames.first_mut() {
            Some(innermost) => *innermost = ip,
            None => after.frames.push(ip),
        },
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(frames: &[u64]) -> CallStack {
        CallStack { frames: frames.to_vec(), truncated: false }
    }

    #[test]
    fn instructions_are_told_apart() {
        for (bytes, transfer) in [
            (&[0x48, 0x8b, 0x07][..], Some(Transfer::Within)), // mov rax, [rdi]
            (&[0xe8, 0, 0, 0, 0], Some(Transfer::Call(5))),    // call
            (&[0xff, 0x15, 0, 0, 0, 0], Some(Transfer::Call(6))), // call [rip+0]
            (&[0x41, 0xff, 0xd2], Some(Transfer::Call(3))),    // call r10
            (&[0xc3], Some(Transfer::Return)),
            (&[0xf3, 0xc3], Some(Transfer::Return)), // rep ret
            (&[0xeb, 0x00], Some(Transfer::Within)), // jmp
            (&[0x0f, 0x05], Some(Transfer::Within)), // syscall
            (&[0x06], None),                         // not an instruction in 64-bit mode
            (&[], None),
        ] {
            assert_eq!(Transfer::of(bytes), transfer, "{bytes:x?}");
        }
    }

    #[test]
    fn the_cause_replaces_the_innermost_frame_of_its_function() {
        assert_eq!(with_cause(after(&[0x104, 0x200]), 0x100, Some(Transfer::Within)), after(&[0x100, 0x200]));
    }

    #[test]
    fn the_callee_of_a_call_is_not_on_its_stack() {
        let stack = with_cause(after(&[0x900, 0x105, 0x200]), 0x100, Some(Transfer::Call(5)));
        assert_eq!(stack, after(&[0x100, 0x200]));
    }

    #[test]
    fn a_call_whose_callee_was_not_unwound_is_truncated() {
        let stack = with_cause(after(&[0x900, 0x777]), 0x100, Some(Transfer::Call(5)));
        assert_eq!(stack, CallStack { frames: vec![0x100], truncated: true });
    }

    #[test]
    fn a_return_is_in_the_function_that_it_leaves() {
        assert_eq!(
            with_cause(after(&[0x205, 0x300]), 0x100, Some(Transfer::Return)),
            after(&[0x100, 0x205, 0x300])
        );
    }
}
