//! Where in memory the samples of a trace are: their data addresses, by hardware or computed, and what lies there.

mod stacks;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpKind, UsedMemory,
};

use self::stacks::Stacks;
use super::Resolver;
use crate::address_space::{AddressSpaces, Mapping};
use crate::analysis::address::{Access as Wanted, Executed, Unknown};
use crate::analysis::locality::{Access, Object, Space};
use crate::record::Attribution;
use crate::symbol::{FileFinder, Image, Images, KERNEL_START, Loaded};
use crate::trace::{Event, EventUse, Registers, SampleRow};

/// Longest instruction (SDM Vol. 2A, 2.3.11).
const INSTRUCTION_BYTES: usize = 15;

/// Finds data addresses and what lies there.
pub struct Locator {
    wanted: Vec<Wanted>,
    attribution: Vec<Attribution>,
    imprecise: Vec<bool>,
    images: Images,
    /// Of each process.
    stacks: HashMap<u32, Stacks>,
    decoded: HashMap<(usize, u64), Arc<Decoded>>,
    agreement: Agreement,
}

/// How often an address that was computed was the one that hardware gave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Agreement {
    /// Samples with a hardware address whose address could also be computed.
    pub compared: u64,
    /// Of these, those that agree.
    pub equal: u64,
}

/// Where a sample is, and how that is known.
#[derive(Clone, Debug)]
pub struct Located {
    /// The access.
    pub access: Access,
    /// Hardware gave the address.
    pub by_hardware: bool,
    /// The address of the instruction that caused the event, where that is known.
    pub cause: Option<u64>,
}

/// A function's instructions, as far as they say how control reaches each of them.
#[derive(Debug)]
struct Decoded {
    instructions: Vec<Instruction>,
    /// Targets of its direct branches.
    targets: Vec<u64>,
    jumps_indirectly: bool,
    jumps_through_memory: bool,
}

impl Locator {
    /// For these events, with binaries where the finder finds them.
    #[must_use]
    pub fn new(events: &[Event], finder: FileFinder) -> Self {
        Self {
            wanted: events.iter().map(|event| Wanted::of_event(&event.name)).collect(),
            attribution: events.iter().map(|event| event.attribution).collect(),
            imprecise: events.iter().map(|event| event.mode != EventUse::Precise).collect(),
            images: Images::new(finder),
            stacks: HashMap::new(),
            decoded: HashMap::new(),
            agreement: Agreement::default(),
        }
    }

    /// Takes note of where a thread's stack is. To be told of all samples before the first is located.
    pub fn note(&mut self, row: &SampleRow) {
        let Some(registers) = row.registers.filter(|_| row.ip < KERNEL_START) else { return };
        self.stacks.entry(row.pid).or_default().note(row.tid, registers.at(Registers::RSP));
    }

    /// How well computed addresses agree with those that hardware gave.
    #[must_use]
    pub fn agreement(&self) -> Agreement {
        self.agreement
    }

    /// The binaries.
    pub(crate) fn images(&mut self) -> &mut Images {
        &mut self.images
    }

    /// Where a sample is. `object` finds the object that an address of the sample's process was in at the sample's time, and whether
    /// that was young.
    pub fn locate(
        &mut self,
        resolver: &Resolver,
        row: &SampleRow,
        object: impl FnOnce(u64) -> Option<(Object, bool)>,
    ) -> Located {
        let spaces = resolver.spaces();
        let cause = self.cause(spaces, row);
        let code = cause.and_then(|cause| self.code(spaces, row, cause));
        let wanted = self.wanted.get(usize::from(row.event)).copied().unwrap_or(Wanted::Any);
        let computed = cause.and_then(|cause| match &code {
            Ok((bits, code)) => {
                // Of IBS there are registers, but of a later moment; then there is no next instruction either.
                let (Some(after), Some(next_ip)) = (&row.registers, row.next_ip) else {
                    return Err(Unknown::NoRegisters);
                };
                Executed { code, ip: cause, bits: *bits, next_ip, after }.data_address(wanted)
            }
            Err(unknown) => Err(*unknown),
        });
        if let (Some(hardware), Ok(computed)) = (row.data_address, computed) {
            self.agreement.compared += 1;
            self.agreement.equal += u64::from(hardware == computed);
        }
        let address = row.data_address.map_or(computed, Ok);
        let found = address.ok().and_then(object);
        let (object, young) = found.map_or((None, false), |(object, young)| (Some(object), young));
        let (space, name, start) = match (address, &object) {
            (Err(_), _) => (Space::Unknown, None, 0),
            (Ok(_), Some(object)) => (Space::Heap, None, object.address),
            (Ok(address), None) => self.place(spaces, row, address),
        };
        let writes = match wanted {
            Wanted::Store => Some(true),
            _ => code.ok().and_then(|(bits, code)| writes(&code, bits, wanted)),
        };
        let (event, period) = (usize::from(row.event), row.period);
        let access = Access {
            event,
            period,
            pid: row.pid,
            tid: row.tid,
            address,
            writes,
            space,
            name,
            start,
            object,
            young,
        };
        Located { access, by_hardware: row.data_address.is_some(), cause: cause.ok() }
    }

    /// The address of the instruction that caused a sample.
    fn cause(&mut self, spaces: &AddressSpaces, row: &SampleRow) -> Result<u64, Unknown> {
        let event = usize::from(row.event);
        if self.imprecise.get(event).copied().unwrap_or(true) {
            return Err(Unknown::Imprecise);
        }
        match self.attribution.get(event) {
            Some(Attribution::Cause) => Ok(row.ip),
            Some(Attribution::Next) => self.before(spaces, row),
            Some(Attribution::Skid) | None => Err(Unknown::Imprecise),
        }
    }

    /// The instruction that was executed before a sample's, where only one can have been.
    fn before(&mut self, spaces: &AddressSpaces, row: &SampleRow) -> Result<u64, Unknown> {
        let loaded = self.images.at(spaces, row.pid, row.tsc, row.ip).ok_or(Unknown::NoCode)?;
        let linked = loaded.linked(row.ip);
        let (extent, _) = loaded.image.function_at(linked).ok_or(Unknown::CauseNotTold)?;
        let decoded = self.decode(&loaded, &extent);
        let wanted = self.wanted.get(usize::from(row.event)).copied().unwrap_or(Wanted::Any);
        decoded
            .before(linked, wanted)
            .map(|before| before.wrapping_add(loaded.bias))
            .ok_or(Unknown::CauseNotTold)
    }

    fn decode(&mut self, loaded: &Loaded, extent: &Range<u64>) -> Arc<Decoded> {
        let key = (Arc::as_ptr(&loaded.image) as usize, extent.start);
        let decoded =
            self.decoded.entry(key).or_insert_with(|| Arc::new(Decoded::new(&loaded.image, extent)));
        Arc::clone(decoded)
    }

    /// The code at an address, with the bits of its program's addresses.
    fn code(&mut self, spaces: &AddressSpaces, row: &SampleRow, ip: u64) -> Result<(u32, Vec<u8>), Unknown> {
        let loaded = self.images.at(spaces, row.pid, row.tsc, ip).ok_or(Unknown::NoCode)?;
        let code = loaded.image.code_at(loaded.linked(ip));
        if code.is_empty() {
            return Err(Unknown::NoCode);
        }
        Ok((loaded.image.bits, code[..code.len().min(INSTRUCTION_BYTES)].to_vec()))
    }

    /// What lies at an address that no recorded object has.
    fn place(
        &mut self,
        spaces: &AddressSpaces,
        row: &SampleRow,
        address: u64,
    ) -> (Space, Option<Arc<str>>, u64) {
        if address >= KERNEL_START {
            return (Space::Kernel, None, 0);
        }
        let mapping = spaces.find(row.pid, row.tsc, address);
        if let Some(place) = mapping.and_then(special) {
            return place;
        }
        // Variables without bytes in the file lie in memory without one, behind the file's.
        if mapping.is_none_or(|mapping| mapping.is_file() || is_anonymous(mapping))
            && let Some(loaded) = self.images.at(spaces, row.pid, row.tsc, address)
        {
            let (space, name, start) = variable(&loaded, address);
            return (space, Some(name), start);
        }
        match mapping {
            Some(mapping) if mapping.is_file() => {
                (Space::File, Some(Arc::clone(&mapping.path)), mapping.start)
            }
            _ if self.is_stack(spaces, row, address, mapping) => (Space::Stack, None, 0),
            Some(mapping) => (Space::Anonymous, Some(Arc::clone(&mapping.path)), mapping.start),
            None => (Space::Unmapped, None, 0),
        }
    }

    /// Whether an address lies where a thread's stack pointer was seen, or above in the same mapping. A program's first stack need not
    /// be in the mappings: the kernel does not report it.
    fn is_stack(
        &self,
        spaces: &AddressSpaces,
        row: &SampleRow,
        address: u64,
        mapping: Option<&Mapping>,
    ) -> bool {
        let Some(stacks) = self.stacks.get(&row.pid) else { return false };
        stacks.near(address).any(|pointer| match mapping {
            Some(mapping) => mapping.contains(pointer),
            None => spaces.find(row.pid, row.tsc, pointer).is_none(),
        })
    }
}

fn is_anonymous(mapping: &Mapping) -> bool {
    &*mapping.path == "//anon"
}

/// Mappings whose name or right says what they are.
fn special(mapping: &Mapping) -> Option<(Space, Option<Arc<str>>, u64)> {
    let name = || Some(Arc::clone(&mapping.path));
    match &*mapping.path {
        "[heap]" => Some((Space::Heap, None, 0)),
        "[stack]" => Some((Space::Stack, None, 0)),
        "[vdso]" | "[vvar]" | "[vvar_vclock]" => Some((Space::Vdso, name(), mapping.start)),
        _ if mapping.executable => Some((Space::Code, name(), mapping.start)),
        _ => None,
    }
}

/// The variable of a binary at an address; the binary where no symbol tells which.
fn variable(loaded: &Loaded, address: u64) -> (Space, Arc<str>, u64) {
    let linked = loaded.linked(address);
    match loaded.image.variable_at(linked) {
        Some((extent, name)) => (Space::Global, name, extent.start.wrapping_add(loaded.bias)),
        None => {
            let file = loaded.image.path.rsplit('/').next().unwrap_or_default();
            (Space::Global, format!("[{file}]").into(), loaded.bias)
        }
    }
}

/// Whether the instruction writes where it makes the wanted access: a call by a pointer in memory reads that and writes the stack.
/// `None` for bytes that are none, and where it is not known which of its accesses is meant.
fn writes(code: &[u8], bits: u32, wanted: Wanted) -> Option<bool> {
    let instruction = Decoder::new(bits, code, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return None;
    }
    let mut factory = InstructionInfoFactory::new();
    let accesses = factory.info(&instruction).used_memory().iter().map(UsedMemory::access);
    let mut writes =
        accesses.filter(|&access| wanted.takes(access)).map(|access| Wanted::Store.takes(access));
    let first = writes.next().unwrap_or(false);
    writes.all(|other| other == first).then_some(first)
}

impl Decoded {
    fn new(image: &Image, extent: &Range<u64>) -> Self {
        let code = image.function_code(extent);
        let instructions: Vec<Instruction> =
            Decoder::with_ip(image.bits, code, extent.start, DecoderOptions::NONE).into_iter().collect();
        let direct =
            [FlowControl::ConditionalBranch, FlowControl::UnconditionalBranch, FlowControl::XbeginXabortXend];
        let targets = instructions.iter().filter(|one| direct.contains(&one.flow_control()));
        let targets = targets.map(Instruction::near_branch_target).collect();
        let indirect = || instructions.iter().filter(|one| one.flow_control() == FlowControl::IndirectBranch);
        let jumps_indirectly = indirect().next().is_some();
        let jumps_through_memory = indirect().any(|one| one.op0_kind() == OpKind::Memory);
        Self { targets, jumps_indirectly, jumps_through_memory, instructions }
    }

    /// The instruction that was executed before the one at an address, where only one can have been. A branch that makes no access of
    /// the wanted kind is not meant, so that for loads and stores it does not matter that one leads there.
    fn before(&self, address: u64, wanted: Wanted) -> Option<u64> {
        let place = self.instructions.binary_search_by_key(&address, Instruction::ip).ok()?;
        let before = &self.instructions[place.checked_sub(1)?];
        // What is behind a call was reached by the return of the function that was called.
        let goes_on = matches!(before.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch);
        let other_way = match wanted {
            Wanted::Load => self.jumps_through_memory,
            Wanted::Store => false,
            Wanted::Any => self.jumps_indirectly || self.targets.contains(&address),
        };
        (goes_on && !other_way && !before.is_invalid()).then(|| before.ip())
    }
}

#[cfg(test)]
mod tests;
