//! One function with its samples: by instruction, and by the source lines that these came from.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Serialize;

use super::{Resolver, Sample, Sum};
use crate::symbol::{Code, CodeFile, FileFinder, Frame, Frames, Instruction, Place};
use crate::trace::SampleRow;

/// Samples of functions by instruction, before any code is read.
#[derive(Default)]
pub struct Hotspots {
    functions: BTreeMap<FunctionKey, Hotspot>,
}

/// File and name of the function that has the code.
type FunctionKey = (Arc<str>, Option<Arc<str>>);

/// A function with samples.
struct Hotspot {
    /// One of its samples, with the linked address of its instruction: from these all its other addresses follow.
    row: SampleRow,
    linked_address: u64,
    ip: u64,
    /// By linked address, then by event.
    sums: BTreeMap<u64, Vec<Sum>>,
    /// All of it, by event.
    all: Vec<Sum>,
}

/// A function with its instructions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Annotated {
    /// Its name.
    pub function: Arc<str>,
    /// The file that has it.
    pub module: Arc<str>,
    /// Its samples of each event of the trace.
    pub all: Vec<Sum>,
    /// Source lines of its instructions, in their order by file and number.
    pub lines: Vec<AnnotatedLine>,
    /// Its instructions in the order of addresses.
    pub instructions: Vec<AnnotatedInstruction>,
}

/// A source line, which can be one of a function that was inlined.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AnnotatedLine {
    /// Source file, as the compiler named it.
    pub file: Arc<str>,
    /// Line.
    pub line: u32,
    /// What stands there; absent when the file is not here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Samples of its instructions, by event.
    pub sums: Vec<Sum>,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AnnotatedInstruction {
    /// The address that the linker gave it.
    pub address: u64,
    /// How many bytes it has.
    pub bytes: u8,
    /// It, in Intel's syntax.
    pub text: String,
    /// The function outside this one to which it branches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<Arc<str>>,
    /// Index into the lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// Its samples, by event.
    pub sums: Vec<Sum>,
}

impl Hotspots {
    /// Counts a sample of a trace with so many events.
    pub fn add(&mut self, row: &SampleRow, sample: &Sample, events: usize) {
        // The last one has the code; the others were inlined into it.
        let Some(Frame { module, function, .. }) = sample.chain.calls[0].last() else { return };
        let event = usize::from(row.event);
        if event >= events {
            return;
        }
        let linked_address = sample.chain.linked_address;
        let empty = || vec![Sum::default(); events];
        let hotspot = self.functions.entry((Arc::clone(module), function.clone())).or_insert_with(|| {
            Hotspot { row: row.clone(), linked_address, ip: sample.ip, sums: BTreeMap::new(), all: empty() }
        });
        let sum = Sum::sample(row.period, row.latency_cycles);
        hotspot.sums.entry(linked_address).or_insert_with(empty)[event].add(sum);
        hotspot.all[event].add(sum);
    }

    /// The functions that have samples of an event, with their files, the one with most events first.
    #[must_use]
    pub fn functions(&self, event: usize) -> Vec<FunctionKey> {
        let mut found: Vec<(u64, &FunctionKey)> = self
            .functions
            .iter()
            .filter_map(|(key, hotspot)| Some((hotspot.all.get(event)?.events, key)))
            .filter(|(events, _)| *events > 0)
            .collect();
        found.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(b.1)));
        found.into_iter().map(|(_, key)| key.clone()).collect()
    }

    /// A function's code with its samples; `None` where the file has no such function there, or is not a file (code made at run
    /// time, the kernel).
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn annotate(
        &self,
        key: &FunctionKey,
        resolver: &mut Resolver,
        sources: &Sources,
    ) -> io::Result<Option<Annotated>> {
        let Some(hotspot) = self.functions.get(key).filter(|_| key.0.starts_with('/')) else {
            return Ok(None);
        };
        let build_id = resolver.file(&hotspot.row, hotspot.ip).and_then(|file| file.build_id.clone());
        let file = CodeFile::open(Path::new(&*key.0), build_id.as_deref(), &sources.finder)?;
        // Where the linker put an instruction, and where it was in the sample's process.
        let moved = hotspot.ip.wrapping_sub(hotspot.linked_address);
        let mut frames = |address: u64| resolver.functions(&hotspot.row, address.wrapping_add(moved));
        // Symbols bound the code, and the resolver knows, as for all samples, what of it is this function: not what lies behind a
        // label that is called like a function of its own.
        let code = hotspot.code(&file)?;
        let own = code.into_iter().map(|one| (frames(one.address), one));
        let own: Vec<(Frames, Instruction)> =
            own.filter(|(frames, _)| frames.last().is_some_and(|frame| frame.function == key.1)).collect();
        if own.is_empty() {
            return Ok(None);
        }
        let line_of = |(frames, _): &(Frames, Instruction)| {
            frames.first().and_then(|frame| Some((frame.file.clone()?, frame.line?)))
        };
        let all_lines: Vec<Option<(Arc<str>, u32)>> = own.iter().map(line_of).collect();
        let mut target = |one: &Instruction| {
            let there = frames(one.target?);
            there.last().filter(|frame| frame.function != key.1)?.function.clone()
        };
        let mut lines = Lines::new(&all_lines, hotspot.all.len(), sources);
        let annotated = own.into_iter().zip(&all_lines).map(|((_, one), line)| {
            let sums = hotspot.sums_of(one.address..one.address + u64::from(one.bytes));
            let line = line.as_ref().map(|line| lines.add(line, &sums));
            let target = target(&one);
            AnnotatedInstruction {
                address: one.address,
                bytes: one.bytes,
                text: one.text,
                target,
                line,
                sums,
            }
        });
        let instructions = annotated.collect();
        Ok(Some(Annotated {
            function: key.1.clone().unwrap_or_else(|| "[no symbol]".into()),
            module: Arc::clone(&key.0),
            all: hotspot.all.clone(),
            lines: lines.lines,
            instructions,
        }))
    }
}

impl Hotspot {
    /// The instructions around its samples, in the order of their addresses. A function can be in several parts: compilers put code
    /// that is seldom run elsewhere.
    fn code(&self, file: &CodeFile) -> io::Result<Vec<Instruction>> {
        let mut parts: Vec<Code> = Vec::new();
        for &address in self.sums.keys() {
            if !parts.iter().any(|part| part.contains(address)) {
                parts.extend(file.around(&Place::Linked(address))?);
            }
        }
        let mut instructions: Vec<Instruction> =
            parts.into_iter().flat_map(|part| part.instructions).collect();
        instructions.sort_by_key(|one| one.address);
        instructions.dedup_by_key(|one| one.address);
        Ok(instructions)
    }

    fn sums_of(&self, addresses: std::ops::Range<u64>) -> Vec<Sum> {
        let mut sums = vec![Sum::default(); self.all.len()];
        for (_, found) in self.sums.range(addresses) {
            sums.iter_mut().zip(found).for_each(|(sum, found)| sum.add(*found));
        }
        sums
    }
}

/// The lines of a function's instructions.
struct Lines {
    lines: Vec<AnnotatedLine>,
    places: BTreeMap<(Arc<str>, u32), usize>,
}

impl Lines {
    fn new(wanted: &[Option<(Arc<str>, u32)>], events: usize, sources: &Sources) -> Self {
        let mut places: BTreeMap<(Arc<str>, u32), usize> =
            wanted.iter().flatten().map(|line| (line.clone(), 0)).collect();
        let mut texts: BTreeMap<Arc<str>, Vec<String>> = BTreeMap::new();
        let mut lines = Vec::new();
        for (index, ((file, line), place)) in places.iter_mut().enumerate() {
            *place = index;
            let text = texts.entry(Arc::clone(file)).or_insert_with(|| sources.read(file));
            let text = text.get(*line as usize - 1).cloned();
            lines.push(AnnotatedLine {
                file: Arc::clone(file),
                line: *line,
                text,
                sums: vec![Sum::default(); events],
            });
        }
        Self { lines, places }
    }

    fn add(&mut self, line: &(Arc<str>, u32), sums: &[Sum]) -> usize {
        let place = self.places[line];
        self.lines[place].sums.iter_mut().zip(sums).for_each(|(all, sum)| all.add(*sum));
        place
    }
}

/// Where source files are.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Finds the recorded machine's files.
    pub finder: FileFinder,
    /// Folders in which source files are looked for that are not where the compiler found them.
    pub folders: Vec<PathBuf>,
}

impl Sources {
    /// The lines of a file; none when it is not here. Of its path as many first folders are left out as it takes to find it
    /// in one of the folders.
    fn read(&self, file: &str) -> Vec<String> {
        let recorded = Path::new(file);
        let parts: Vec<_> = recorded.components().filter(|part| part.as_os_str() != "/").collect();
        let tails = (0..parts.len()).map(|first| parts[first..].iter().collect::<PathBuf>());
        let elsewhere = tails.flat_map(|tail| self.folders.iter().map(move |folder| folder.join(&tail)));
        let mut places = std::iter::once(self.finder.here(recorded)).chain(elsewhere);
        let bytes = places.find_map(|path| fs::read(path).ok()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).lines().map(str::to_owned).collect()
    }
}
