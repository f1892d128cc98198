//! Call stacks from registers and a copied piece of user stack, by the unwind tables (`.eh_frame`) of the mapped files.

mod cause;
mod module;

use std::collections::HashMap;

use framehop::Unwinder as _;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};

use self::module::{Bytes, Code, Modules};
use crate::address_space::{AddressSpaces, Mapping};
use crate::record::Branch;
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
    /// read, the code has none, or it finds its frame by another register than RSP and RBP, which framehop does not
    /// follow (in Debian's programs only `_dl_runtime_resolve`, which binds a function at its first call).
    pub truncated: bool,
}

impl CallStack {
    /// The calls that have not returned, the newest first, as branch records have them that keep `kept`. A caller is named by
    /// the address one byte behind the start of its call instruction, so that, as with return addresses, the byte before
    /// lies in that instruction.
    #[must_use]
    pub fn of_calls(ip: u64, open: &[Branch], kept: usize) -> Self {
        // A call that was sampled has been recorded, too.
        let sampled = open.first().is_some_and(|newest| newest.from == ip);
        let callers = open.iter().skip(usize::from(sampled));
        let frames = std::iter::once(ip).chain(callers.map(|call| call.from.wrapping_add(1))).collect();
        Self { frames, truncated: open.len() >= kept }
    }
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
    /// Its code, in the order of addresses.
    code: Vec<Mapping>,
    unwinder: UnwinderX86_64<Bytes>,
}

impl Process {
    fn code_at(&self, address: u64) -> Option<&Mapping> {
        let after = self.code.partition_point(|mapping| mapping.start <= address);
        self.code.get(after.checked_sub(1)?).filter(|mapping| mapping.contains(address))
    }
}

impl StackUnwinder {
    /// The call stack of a record. It always has at least the frame of [`Snapshot::ip`].
    pub fn unwind(&mut self, spaces: &AddressSpaces, snapshot: &Snapshot<'_>) -> CallStack {
        let epoch = spaces.epoch(snapshot.pid, snapshot.tsc);
        let process = match self.processes.remove(&snapshot.pid) {
            Some(process) if process.epoch == epoch => process,
            _ => self.process(epoch, spaces, snapshot),
        };
        if self.processes.len() >= PROCESSES_MAX {
            self.processes.clear();
        }
        let walked = self.walk(&process, snapshot);
        let stack = self.judge(walked, &process, spaces, snapshot);
        self.processes.insert(snapshot.pid, process);
        let process = self.processes.get(&snapshot.pid);
        let mapping = process.and_then(|process| process.code_at(snapshot.ip));
        let mapping = mapping.or_else(|| spaces.find(snapshot.pid, snapshot.tsc, snapshot.ip));
        // Registers at the instruction are those before it: what it does to the stack has not been done.
        let executed = snapshot.ip != snapshot.registers.at(Registers::RIP);
        let mapping = mapping.filter(|_| executed);
        let transfer = mapping.and_then(|mapping| self.modules.transfer(snapshot.pid, mapping, snapshot.ip));
        cause::with_cause(stack, snapshot.ip, transfer)
    }

    fn process(&mut self, epoch: (u64, usize), spaces: &AddressSpaces, snapshot: &Snapshot<'_>) -> Process {
        let mut mappings = spaces.at(snapshot.pid, snapshot.tsc);
        let unwinder = self.modules.unwinder(snapshot.pid, &mappings);
        mappings.retain(|mapping| mapping.executable);
        mappings.sort_by_key(|mapping| mapping.start);
        Process { epoch, code: mappings, unwinder }
    }

    /// Cuts off frames that are no code, and finds out whether the outermost one is an end: where code has no table the
    /// walk guesses by frame pointers, and can follow what is none, or stop where nothing ends.
    fn judge(
        &mut self,
        mut stack: CallStack,
        process: &Process,
        spaces: &AddressSpaces,
        snapshot: &Snapshot<'_>,
    ) -> CallStack {
        // A return address can lie behind its function when the call was its last instruction, so look just before it.
        let mapping_of = |(depth, address): (usize, u64)| {
            let address = address.wrapping_sub(u64::from(depth > 0));
            // A mapping may be reported a little after it was made, when it is not among those of the time.
            let late =
                || spaces.find(snapshot.pid, snapshot.tsc, address).filter(|mapping| mapping.executable);
            process.code_at(address).or_else(late).map(|mapping| (mapping, address))
        };
        let code =
            stack.frames.iter().copied().enumerate().take_while(|&frame| mapping_of(frame).is_some()).count();
        // The innermost frame stays: it is not found on the stack, but where the thread was.
        let known = code.max(1);
        if known < stack.frames.len() {
            stack = CallStack { frames: stack.frames[..known].to_vec(), truncated: true };
        }
        let outermost = stack.frames.last().and_then(|&address| mapping_of((known - 1, address)));
        let outermost = outermost
            .map_or(Code::Unknown, |(mapping, address)| self.modules.code(snapshot.pid, mapping, address));
        stack.truncated = match outermost {
            Code::Described => stack.truncated,
            Code::Entry => false,
            Code::Unknown => true,
        };
        stack
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

#[cfg(test)]
mod tests {
    use super::CallStack;
    use crate::record::Branch;

    #[test]
    fn calls_become_a_stack() {
        let open = [0x30, 0x20, 0x10].map(|from| Branch { from, to: 0, info: 0 });
        let stack = |ip, kept| CallStack::of_calls(ip, &open, kept);
        assert_eq!(stack(0x44, 32), CallStack { frames: vec![0x44, 0x31, 0x21, 0x11], truncated: false });
        // There may have been more calls than records.
        assert!(stack(0x44, 3).truncated);
        // The sampled instruction is the call itself.
        assert_eq!(stack(0x30, 32).frames, [0x30, 0x21, 0x11]);
    }
}
