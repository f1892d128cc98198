//! The functions at an address of a process at a time.

use std::collections::HashMap;
use std::sync::Arc;

use super::files::FileFinder;
use super::kernel::KernelTable;
use super::module::{Changed, Module};
use super::perf_map::PerfMap;
use super::{Frame, Frames, KERNEL_START};
use crate::address_space::{AddressSpaces, Mapping};
use crate::trace::KernelSymbolRow;

/// Path and build ID of a file.
type FileKey = (Arc<str>, Option<Arc<[u8]>>);

/// Finds functions; reads each binary once and remembers each address.
pub struct Symbolizer {
    finder: FileFinder,
    modules: HashMap<FileKey, Option<Module>>,
    known: HashMap<(FileKey, u64), Frames>,
    kernel: KernelTable,
    perf_maps: HashMap<u32, PerfMap>,
    notes: HashMap<Arc<str>, String>,
}

impl Symbolizer {
    /// One that finds files as told, and kernel functions among these.
    #[must_use]
    pub fn new(finder: FileFinder, kernel: impl IntoIterator<Item = KernelSymbolRow>) -> Self {
        Self {
            finder,
            modules: HashMap::new(),
            known: HashMap::new(),
            kernel: KernelTable::new(kernel),
            perf_maps: HashMap::new(),
            notes: HashMap::new(),
        }
    }

    /// The functions at an address of a process at a time (TSC). For a return address ask one byte before it: it can lie
    /// behind its function.
    pub fn frames(&mut self, spaces: &AddressSpaces, pid: u32, tsc: u64, address: u64) -> Frames {
        if address >= KERNEL_START {
            return self.kernel_frames(address);
        }
        match spaces.find(pid, tsc, address) {
            Some(mapping) if mapping.path.starts_with('/') && !mapping.path.starts_with("//") => {
                self.file_frames(mapping, address)
            }
            // Memory without a file: code made at run time, or the vDSO.
            mapping => {
                let finder = &self.finder;
                let map =
                    self.perf_maps.entry(pid).or_insert_with(|| PerfMap::read(pid, |path| finder.here(path)));
                let module = match mapping {
                    Some(mapping) if !mapping.path.is_empty() => Arc::clone(&mapping.path),
                    _ => "[unknown]".into(),
                };
                [Frame { function: map.name_at(address).cloned(), module, ..Frame::default() }].into()
            }
        }
    }

    /// What stood in the way of full symbols for a file, as a sentence that says what to do; `module` as in
    /// [`Frame::module`]. Only files that were asked about are known.
    #[must_use]
    pub fn note(&self, module: &str) -> Option<&str> {
        self.notes.get(module).map(String::as_str)
    }

    fn kernel_frames(&self, address: u64) -> Frames {
        let frame = match self.kernel.at(address) {
            Some((name, module)) => {
                Frame { function: Some(Arc::clone(name)), module: Arc::clone(module), ..Frame::default() }
            }
            None => Frame { module: "[kernel]".into(), ..Frame::default() },
        };
        [frame].into()
    }

    fn file_frames(&mut self, mapping: &Mapping, address: u64) -> Frames {
        let file = (Arc::clone(&mapping.path), mapping.build_id.clone());
        let offset = mapping.file_offset_of(address);
        let place = (file.clone(), offset);
        if let Some(frames) = self.known.get(&place) {
            return Arc::clone(frames);
        }
        let (finder, notes) = (&self.finder, &mut self.notes);
        let module = self.modules.entry(file).or_insert_with_key(|(path, build_id)| {
            let (module, note) = load(path, build_id.as_deref(), finder);
            notes.extend(note.map(|note| (Arc::clone(path), note)));
            module
        });
        let frames = match module {
            Some(module) => module.frames(offset),
            None => [Frame { module: Arc::clone(&mapping.path), ..Frame::default() }].into(),
        };
        self.known.insert(place, Arc::clone(&frames));
        frames
    }
}

/// A binary's symbols, and what is to be said about them.
fn load(path: &Arc<str>, build_id: Option<&[u8]>, finder: &FileFinder) -> (Option<Module>, Option<String>) {
    match Module::load(path, build_id, finder) {
        Ok(Ok(module)) if module.has_lines() => (Some(module), None),
        Ok(Ok(module)) => {
            let note = format!(
                "{path} has no debug information here, so its lines and inlined functions are unknown; install its debug \
                 package, or name the folder that has it with --debug-dir"
            );
            (Some(module), Some(note))
        }
        Ok(Err(Changed)) => {
            let note = format!(
                "{path} is another file here than the one recorded (its build ID differs), so it gives no symbols; name \
                 the recorded machine's files with --symfs"
            );
            (None, Some(note))
        }
        Err(error) => (
            None,
            Some(format!(
                "{path} gives no symbols ({error}); name the recorded machine's files with --symfs"
            )),
        ),
    }
}
