//! Turns the rows of a trace into samples with functions.

use std::collections::HashMap;
use std::sync::Arc;

use super::{CallChain, Extent, MemorySource, Sample, SharedChain};
use crate::address_space::AddressSpaces;
use crate::record::{Level, Snoop};
use crate::symbol::{FileFinder, Frames, Symbolizer};
use crate::trace::{Cut, KernelSymbolRow, Row, SampleRow, StackRow, ThreadRow, TraceReader};

/// Knows a trace's mappings, threads, stacks and symbols.
pub struct Resolver {
    spaces: AddressSpaces,
    symbolizer: Symbolizer,
    stacks: HashMap<u32, StackRow>,
    names: ThreadNames,
    chains: HashMap<ChainKey, SharedChain>,
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
            symbolizer: Symbolizer::new(finder, kernel),
            stacks: stacks.into_iter().map(|row| (row.id, row)).collect(),
            names: ThreadNames::new(&threads),
            chains: HashMap::new(),
            cuts,
        }
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

    /// What a row says.
    pub fn resolve(&mut self, row: &SampleRow) -> Sample {
        Sample {
            event: row.event,
            cpu: row.cpu,
            pid: row.pid,
            tid: row.tid,
            thread_name: self.names.at(row.tid, row.tsc),
            ip: row.ip,
            chain: self.chain(row),
            source: memory_source(row),
        }
    }

    /// The functions at an address of the row's process, at the row's time.
    pub(super) fn functions(&mut self, row: &SampleRow, address: u64) -> Frames {
        self.symbolizer.frames(&self.spaces, row.pid, row.tsc, address)
    }

    /// What changes when the process's mappings do.
    pub(super) fn epoch(&self, row: &SampleRow) -> (u64, usize) {
        self.spaces.epoch(row.pid, row.tsc)
    }

    /// The file that holds a row's instruction, as its path when recorded, and the instruction's place in it; `None` for
    /// code without a file.
    #[must_use]
    pub fn file_offset(&self, row: &SampleRow) -> Option<(Arc<str>, u64)> {
        self.file_offset_of(row, row.ip)
    }

    /// The same of another address of the row's process at the row's time.
    #[must_use]
    pub fn file_offset_of(&self, row: &SampleRow, address: u64) -> Option<(Arc<str>, u64)> {
        let mapping = self.spaces.find(row.pid, row.tsc, address)?;
        let is_file = mapping.path.starts_with('/') && !mapping.path.starts_with("//");
        is_file.then(|| (Arc::clone(&mapping.path), mapping.file_offset_of(address)))
    }

    fn chain(&mut self, row: &SampleRow) -> SharedChain {
        let epoch = self.spaces.epoch(row.pid, row.tsc);
        let key = ChainKey { pid: row.pid, epoch, ip: row.ip, stack: row.stack };
        if let Some(chain) = self.chains.get(&key) {
            return chain.clone();
        }
        let (spaces, symbolizer) = (&self.spaces, &mut self.symbolizer);
        let mut functions = |address| symbolizer.frames(spaces, row.pid, row.tsc, address);
        let stack = row.stack.and_then(|id| self.stacks.get(&id)).filter(|stack| !stack.frames.is_empty());
        let chain = match stack {
            Some(stack) => {
                // All but the innermost are return addresses: the call is just before them.
                let call = |(depth, &address): (usize, &u64)| address.wrapping_sub(u64::from(depth > 0));
                let calls: Vec<Frames> =
                    stack.frames.iter().enumerate().map(call).map(&mut functions).collect();
                CallChain { calls, extent: if stack.truncated { Extent::Truncated } else { Extent::Whole } }
            }
            None => CallChain { calls: vec![functions(row.ip)], extent: Extent::AddressOnly },
        };
        let chain = SharedChain::from(chain);
        self.chains.insert(key, chain.clone());
        chain
    }
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

/// Names of threads through time.
struct ThreadNames {
    of_thread: HashMap<u32, Vec<(u64, Arc<str>)>>,
}

impl ThreadNames {
    /// From rows in order of time.
    fn new(rows: &[ThreadRow]) -> Self {
        let mut of_thread: HashMap<u32, Vec<(u64, Arc<str>)>> = HashMap::new();
        for row in rows {
            of_thread.entry(row.tid).or_default().push((row.tsc, row.name.as_str().into()));
        }
        Self { of_thread }
    }

    /// The last name given until then, else the first one given later, else nothing.
    fn at(&self, tid: u32, tsc: u64) -> Arc<str> {
        let names = self.of_thread.get(&tid).map_or(&[][..], Vec::as_slice);
        let later = names.partition_point(|&(since, _)| since <= tsc);
        names.get(later.saturating_sub(1)).map_or_else(|| "".into(), |(_, name)| Arc::clone(name))
    }
}
