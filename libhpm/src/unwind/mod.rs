//! Call stacks from registers and a copied piece of user stack, by the unwind tables (`.eh_frame`) of the mapped files.

mod cause;
mod module;

use std::collections::HashMap;

use framehop::Unwinder as _;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};

use self::module::{Bytes, Code, Modules};
use crate::address_space::AddressSpaces;
use crate::trace::Registers;

/// A stack deeper than this is cut.
pub const FRAMES_MAX: usize = 1024;

/// Modules are kept for this many processes; they are quickly made again from the tables, which all share.
const PROCESSES_MAX: usize = 256;

/// A precise record with the user stack that belongs to it.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// Thread-group ID.
    pub pid: u32,
    /// TSC of the record.
    pub tsc: u64,
    /// Address of the instruction that caused the event.
    pub ip: u64,
    /// Registers after that instruction; RIP is the next instruction.
    pub registers: &'a Registers,
    /// User stack from RSP upwards.
    pub stack: &'a [u8],
}

impl Snapshot<'_> {
    /// The eight bytes of user memory at this address, if they were copied.
    fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.registers.at(Registers::RSP))?).ok()?;
        let bytes = self.stack.get(offset..offset.checked_add(8)?)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    }
}

/// A call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallStack {
    /// The instruction that caused the event, then return addresses, innermost first.
    pub frames: Vec<u64>,
    /// The outermost frames are missing: the copied piece of stack was too short, a file or its unwind table could not be
    /// read, or the code has none.
    pub truncated: bool,
}

/// Unwinds the stacks of any number of processes; keeps each file's tables once.
#[derive(Default)]
pub struct StackUnwinder {
    processes: HashMap<u32, Process>,
    modules: Modules,
    cache: CacheX86_64,
}

/// The modules of one process for the time between two changes of its mappings.
struct Process {
    epoch: (u64, usize),
    unwinder: UnwinderX86_64<Bytes>,
}

impl StackUnwinder {
    /// The call stack of a record. It always has at least the frame of [`Snapshot::ip`].
    pub fn unwind(&mut self, spaces: &AddressSpaces, snapshot: &Snapshot<'_>) -> CallStack {
        let epoch = spaces.epoch(snapshot.pid, snapshot.tsc);
        let process = match self.processes.remove(&snapshot.pid) {
            Some(process) if process.epoch == epoch => process,
            _ => Process {
                epoch,
                unwinder: self.modules.unwinder(snapshot.pid, &spaces.at(snapshot.pid, snapshot.tsc)),
            },
        };
        if self.processes.len() >= PROCESSES_MAX {
            self.processes.clear();
        }
        let mut stack = self.walk(&process, snapshot);
        self.processes.insert(snapshot.pid, process);
        let mapping_at = |address| spaces.find(snapshot.pid, snapshot.tsc, address);
        let outermost = stack.frames.last().map_or(Code::Unknown, |&outermost| {
            // A return address can lie behind its function when the call was its last instruction.
            let in_call = outermost.wrapping_sub(u64::from(stack.frames.len() > 1));
            mapping_at(in_call)
                .map_or(Code::Unknown, |mapping| self.modules.code(snapshot.pid, mapping, in_call))
        });
        // Where code has no table the walk guesses by frame pointers, and can end at a zero that is no end.
        stack.truncated = match outermost {
            Code::Described => stack.truncated,
            Code::Entry => false,
            Code::Unknown => true,
        };
        let transfer = mapping_at(snapshot.ip)
            .and_then(|mapping| self.modules.transfer(snapshot.pid, mapping, snapshot.ip));
        cause::with_cause(stack, snapshot.ip, transfer)
    }

    /// The stack that the registers describe, which is the one after the instruction.
    fn walk(&mut self, process: &Process, snapshot: &Snapshot<'_>) -> CallStack {
        let [ip, sp, bp] =
            [Registers::RIP, Registers::RSP, Registers::RBP].map(|place| snapshot.registers.at(place));
        let mut read_stack = |address| snapshot.word(address).ok_or(());
        let registers = UnwindRegsX86_64::new(ip, sp, bp);
        let mut walk = process.unwinder.iter_frames(ip, registers, &mut self.cache, &mut read_stack);
        let mut frames = Vec::new();
        loop {
            match walk.next() {
                Ok(Some(frame)) if frames.len() < FRAMES_MAX => frames.push(frame.address()),
                Ok(None) => return CallStack { frames, truncated: false },
                Ok(Some(_)) | Err(_) => return CallStack { frames, truncated: true },
            }
        }
    }
}
