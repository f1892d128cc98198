//! Turns the rows of a trace into samples with functions.

use std::collections::HashMap;
use std::sync::Arc;

use super::cause::Causes;
use super::names::ThreadNames;
use super::{CallChain, Extent, MemorySource, Sample, SharedChain};
use crate::address_space::{AddressSpaces, Mapping};
use crate::record::{Level, Snoop};
use crate::source::Sink;
use crate::symbol::{FileFinder, Frames, KERNEL_START, KernelFunctions, Symbolizer};
use crate::trace::{
    Cut, KernelSymbolRow, MapRow, Meta, Registers, Row, SampleRow, StackRow, ThreadRow, TraceError,
    TraceReader,
};

/// Below the stack pointer a function without calls may use so many bytes (System V AMD64 ABI, 3.2.2), and a stack usually
/// grows to this size at most (`ulimit -s`).
const STACK: (u64, u64) = (128, 8 << 20);

/// Knows a trace's mappings, threads, stacks and symbols.
pub struct Resolver {
    spaces: AddressSpaces,
    symbolizer: Symbolizer,
    stacks: HashMap<u32, StackRow>,
    names: ThreadNames,
    chains: HashMap<ChainKey, SharedChain>,
    causes: Causes,
    regions: HashMap<String, Arc<str>>,
    cuts: Vec<Cut>,
}

/// The same stack means the same functions as long as the process has the same mappings.
#[derive(PartialEq, Eq, Hash)]
struct ChainKey {
    pid: u32,
    epoch: (u64, usize),
    ip: u64,
    stack: Option<u32>,
}

impl Resolver {
    /// Reads what the samples of a trace refer to. Tables that are cut off are used as far as they go: see
    /// [`Resolver::cuts`].
    #[must_use]
    pub fn new(reader: &TraceReader, finder: FileFinder) -> Self {
        let mut cuts = Vec::new();
        let mut spaces = AddressSpaces::default();
        all_rows(reader, &mut cuts).iter().for_each(|row| spaces.map(row));
        let mut threads: Vec<ThreadRow> = all_rows(reader, &mut cuts);
        // A fork takes over what its parent has at that time, which earlier forks and execs decide.
        threads.sort_by_key(|row| row.tsc);
        threads.iter().for_each(|row| spaces.thread(row));
        let stacks: Vec<StackRow> = all_rows(reader, &mut cuts);
        let kernel: Vec<KernelSymbolRow> = all_rows(reader, &mut cuts);
        Self {
            spaces,
            symbolizer: Symbolizer::new(finder.clone(), kernel)
                .of_kernel(&reader.meta().machine.kernel_release),
            stacks: stacks.into_iter().map(|row| (row.id, row)).collect(),
            names: ThreadNames::new(&threads),
            chains: HashMap::new(),
            causes: Causes::new(&reader.meta().events, finder),
            regions: HashMap::new(),
            cuts,
        }
    }

    /// One that knows nothing yet, for a source that measures: as a [`Sink`] it takes mappings and threads as they
    /// come, and no stacks. Kernel functions are told by [`Resolver::know_kernel`].
    #[must_use]
    pub fn of_source(meta: &Meta, finder: FileFinder) -> Self {
        Self {
            spaces: AddressSpaces::default(),
            symbolizer: Symbolizer::new(finder.clone(), []).of_kernel(&meta.machine.kernel_release),
            stacks: HashMap::new(),
            names: ThreadNames::default(),
            chains: HashMap::new(),
            causes: Causes::new(&meta.events, finder),
            regions: HashMap::new(),
            cuts: Vec::new(),
        }
    }

    /// Knows these kernel functions instead of those that it knew.
    pub fn know_kernel(&mut self, functions: KernelFunctions) {
        self.symbolizer.know_kernel(functions);
    }

    /// Forgets what is mapped where, for mappings that follow: a source that measures for long reports more than have to be known.
    pub fn forget_mappings(&mut self) {
        self.spaces = AddressSpaces::default();
        self.chains.clear();
    }

    /// The tables that could be read only in part.
    #[must_use]
    pub fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// Why a module's symbols are missing or incomplete: see [`Symbolizer::note`].
    #[must_use]
    pub fn note(&self, module: &str) -> Option<&str> {
        self.symbolizer.note(module)
    }

    /// What a row says. Where hardware names the instruction after the one that caused the event, this is of the one before
    /// it, as far as its code can be decoded.
    pub fn resolve(&mut self, row: &SampleRow) -> Sample {
        let ip = self.causes.of(&self.spaces, row);
        Sample {
            event: row.event,
            cpu: row.cpu,
            pid: row.pid,
            tid: row.tid,
            thread_name: self.name_at(row.tid, row.tsc),
            last_thread_name: self.names.last(row.tid, row.tsc),
            process_name: self.names.last(row.pid, row.tsc),
            ip,
            chain: self.chain(row, ip),
            source: memory_source(row),
            region: row.data_address.map(|address| self.region(row, address)),
        }
    }

    /// As [`Resolver::resolve`], but of a sample taken in the kernel this is of the user-mode instruction that led there and of its
    /// callers, as far as the stack tells.
    pub fn resolve_entry(&mut self, row: &SampleRow) -> Sample {
        let mut sample = self.resolve(row);
        let frames = row.stack.map_or(&[][..], |id| Self::stack(self, id));
        let entry = frames.get(entered_from(frames)).filter(|_| row.ip >= KERNEL_START);
        if let Some(&entry) = entry.filter(|&&entry| entry < KERNEL_START) {
            // As in all of a stack but the innermost, it is one byte after what called.
            sample.ip = entry.wrapping_sub(1);
            sample.chain = self.chain(row, sample.ip);
        }
        sample
    }

    /// A thread's name at a time; empty when unknown.
    #[must_use]
    pub fn name_at(&self, tid: u32, tsc: u64) -> Arc<str> {
        self.names.at(tid, tsc)
    }

    /// What is mapped at a data address. The kernel does not report the mapping of a new program's first stack: it is told by
    /// the stack pointer, near which nothing else is.
    fn region(&mut self, row: &SampleRow, address: u64) -> Arc<str> {
        let name = match self.spaces.find(row.pid, row.tsc, address) {
            _ if address >= KERNEL_START => "[kernel]",
            Some(mapping) => return Arc::clone(&mapping.path),
            None if row
                .registers
                .is_some_and(|registers| is_stack(address, registers.at(Registers::RSP))) =>
            {
                "[stack]"
            }
            None => "[unknown]",
        };
        Arc::clone(self.regions.entry(name.to_owned()).or_insert_with(|| name.into()))
    }

    /// The function at an address of a process at a time, the innermost one where functions are inlined; `None` when no symbol
    /// covers it.
    pub fn function(&mut self, pid: u32, tsc: u64, address: u64) -> Option<Arc<str>> {
        self.symbolizer.frames(&self.spaces, pid, tsc, address)[0].function.clone()
    }

    /// What was mapped where.
    pub(crate) fn spaces(&self) -> &AddressSpaces {
        &self.spaces
    }

    /// The frames of a stack of the trace, innermost first; none for a number that it does not have.
    #[must_use]
    pub fn stack(&self, id: u32) -> &[u64] {
        self.stacks.get(&id).map_or(&[], |stack| &stack.frames)
    }

    /// The functions at an address of the row's process, at the row's time.
    pub(super) fn functions(&mut self, row: &SampleRow, address: u64) -> Frames {
        self.symbolizer.frames(&self.spaces, row.pid, row.tsc, address)
    }

    /// The address that the linker gave to an instruction of the row's process; the address itself for code without a file.
    pub(super) fn linked_address(&mut self, row: &SampleRow, address: u64) -> u64 {
        self.symbolizer.linked_address(&self.spaces, row.pid, row.tsc, address)
    }

    /// What changes when the process's mappings do.
    pub(super) fn epoch(&self, row: &SampleRow) -> (u64, usize) {
        self.spaces.epoch(row.pid, row.tsc)
    }

    /// The file that is mapped at an address of the row's process at the row's time; `None` for memory without a file.
    #[must_use]
    pub fn file(&self, row: &SampleRow, address: u64) -> Option<&Mapping> {
        self.spaces.find(row.pid, row.tsc, address).filter(|mapping| mapping.is_file())
    }

    fn chain(&mut self, row: &SampleRow, ip: u64) -> SharedChain {
        let epoch = self.spaces.epoch(row.pid, row.tsc);
        let key = ChainKey { pid: row.pid, epoch, ip, stack: row.stack };
        if let Some(chain) = self.chains.get(&key) {
            return chain.clone();
        }
        let (spaces, symbolizer) = (&self.spaces, &mut self.symbolizer);
        let linked_address = symbolizer.linked_address(spaces, row.pid, row.tsc, ip);
        let mut functions = |address| symbolizer.frames(spaces, row.pid, row.tsc, address);
        let stack = row.stack.and_then(|id| self.stacks.get(&id)).filter(|stack| !stack.frames.is_empty());
        let chain = match stack {
            Some(stack) => {
                // Of a place outside the kernel ([`Resolver::resolve_entry`]) the kernel's calls are no callers.
                let innermost = if ip < KERNEL_START { entered_from(&stack.frames) } else { 0 };
                // All but the innermost are return addresses: the call is just before them.
                let callers = stack.frames[innermost + 1..].iter().map(|address| address.wrapping_sub(1));
                let calls: Vec<Frames> = std::iter::once(ip).chain(callers).map(&mut functions).collect();
                let extent = if stack.truncated { Extent::Truncated } else { Extent::Whole };
                CallChain { calls, linked_address, extent }
            }
            None => CallChain { calls: vec![functions(ip)], linked_address, extent: Extent::AddressOnly },
        };
        let chain = SharedChain::from(chain);
        self.chains.insert(key, chain.clone());
        chain
    }
}

impl Sink for Resolver {
    fn map(&mut self, row: &MapRow) -> Result<(), TraceError> {
        self.spaces.map(row);
        Ok(())
    }

    fn thread(&mut self, row: &ThreadRow) -> Result<(), TraceError> {
        self.spaces.thread(row);
        self.names.add(row);
        Ok(())
    }
}

/// Index of the innermost frame outside the kernel; 0 where there is none.
fn entered_from(frames: &[u64]) -> usize {
    frames.iter().position(|&frame| frame < KERNEL_START).unwrap_or(0)
}

fn is_stack(address: u64, stack_pointer: u64) -> bool {
    (stack_pointer.saturating_sub(STACK.0)..stack_pointer.saturating_add(STACK.1)).contains(&address)
}

fn memory_source(row: &SampleRow) -> Option<MemorySource> {
    let level = Level::from_number(row.level?)?;
    let snoop = row.snoop.and_then(Snoop::from_number);
    Some(MemorySource { level, snoop, stlb_miss: row.stlb_miss, locked: row.locked })
}

/// The rows of a table that can be read; one that is cut off is noted.
fn all_rows<R: Row>(reader: &TraceReader, cuts: &mut Vec<Cut>) -> Vec<R> {
    let mut rows = reader.rows::<R>();
    let read = rows.by_ref().collect();
    cuts.extend(rows.cut());
    read
}
