//! The functions at an address of a process at a time.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::code_map::CodeMap;
use super::files::FileFinder;
use super::kernel::KernelFunctions;
use super::module::{Changed, Module};
use super::{Frame, Frames, KERNEL_START, jitdump, perf_map, vdso};
use crate::address_space::{AddressSpaces, Mapping};
use crate::trace::KernelSymbolRow;

/// Path and build ID of a file, and whether its code can be run where it is mapped.
type FileKey = (Arc<str>, Option<Arc<[u8]>>, bool);

/// Finds functions; reads each binary once and remembers each address.
pub struct Symbolizer {
    finder: FileFinder,
    modules: HashMap<FileKey, Option<Module>>,
    /// By file and byte of it. A file is known by its path's place in memory, which is quick to compare, and which the path that
    /// is kept beside the functions keeps from being used again.
    known: HashMap<(usize, u64), (Arc<str>, Frames)>,
    kernel: KernelFunctions,
    /// Code that processes made at run time.
    made: HashMap<u32, [CodeMap; 2]>,
    /// `uname -r` of the recorded machine; empty when not known.
    kernel_release: String,
    vdso: Option<Option<Module>>,
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
            kernel: KernelFunctions::new(kernel),
            made: HashMap::new(),
            kernel_release: String::new(),
            vdso: None,
            notes: HashMap::new(),
        }
    }

    /// Lets functions of the vDSO be known where the recorded machine has the kernel of this one.
    #[must_use]
    pub fn of_kernel(mut self, release: &str) -> Self {
        release.clone_into(&mut self.kernel_release);
        self
    }

    /// Knows these kernel functions instead of those that it knew.
    pub fn know_kernel(&mut self, functions: KernelFunctions) {
        self.kernel = functions;
    }

    /// The functions at an address of a process at a time (TSC). For a return address ask one byte before it: it can lie
    /// behind its function.
    pub fn frames(&mut self, spaces: &AddressSpaces, pid: u32, tsc: u64, address: u64) -> Frames {
        if address >= KERNEL_START {
            return self.kernel_frames(address);
        }
        match spaces.find(pid, tsc, address) {
            Some(mapping) if mapping.is_file() => self.file_frames(mapping, address),
            Some(mapping) if &*mapping.path == vdso::NAME => {
                self.vdso_frames(mapping.file_offset_of(address))
            }
            mapping => {
                let module = match mapping {
                    Some(mapping) if !mapping.path.is_empty() => Arc::clone(&mapping.path),
                    _ => "[unknown]".into(),
                };
                self.made_frames(spaces, pid, address, module)
            }
        }
    }

    /// Code that a process made at run time: as its jitdump has it, which knows lines, else as its perf map does.
    fn made_frames(&mut self, spaces: &AddressSpaces, pid: u32, address: u64, module: Arc<str>) -> Frames {
        let finder = &self.finder;
        let made = self.made.entry(pid).or_insert_with(|| {
            // A compiler maps its jitdump so that perf learns of it.
            let name = format!("/jit-{pid}.dump");
            let dump = spaces.paths(pid).find(|path| path.ends_with(&name));
            let dump = dump.map(|path| jitdump::read(&finder.here(Path::new(&**path))));
            [dump.unwrap_or_default(), perf_map::read(pid, |path| finder.here(path))]
        });
        let Some(code) = made.iter().find_map(|map| map.at(address)) else {
            return [Frame { module, ..Frame::default() }].into();
        };
        let (file, line) = code.line_at(address).unzip();
        let (function, file) = (Some(Arc::clone(&code.name)), file.map(Arc::clone));
        [Frame { function, module, file, line: line.filter(|&line| line > 0), inlined: false }].into()
    }

    fn vdso_frames(&mut self, offset: u64) -> Frames {
        let (release, here) = (&self.kernel_release, self.finder.symfs.is_none());
        let module = self.vdso.get_or_insert_with(|| here.then(|| vdso::load(release)).flatten());
        let unknown = || [Frame { module: vdso::NAME.into(), ..Frame::default() }].into();
        module.as_ref().map_or_else(unknown, |module| module.frames(offset))
    }

    /// The address that the linker gave to an instruction; the address itself where no file is mapped, or its file is not
    /// here.
    pub fn linked_address(&mut self, spaces: &AddressSpaces, pid: u32, tsc: u64, address: u64) -> u64 {
        let mapping = if address < KERNEL_START { spaces.find(pid, tsc, address) } else { None };
        let Some(mapping) = mapping.filter(|mapping| mapping.is_file()) else { return address };
        let module = self.module(mapping);
        module.and_then(|module| module.linked_address(mapping.file_offset_of(address))).unwrap_or(address)
    }

    /// The functions at a byte of a file, which was mapped when it had this build ID (if one is known).
    pub fn frames_of_file(&mut self, path: &Arc<str>, build_id: Option<&[u8]>, file_offset: u64) -> Frames {
        let whole = Mapping {
            tsc: 0,
            start: 0,
            end: u64::MAX,
            file_offset: 0,
            path: Arc::clone(path),
            build_id: build_id.map(Into::into),
            executable: true,
        };
        self.file_frames(&whole, file_offset)
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
        let offset = mapping.file_offset_of(address);
        let place = (mapping.path.as_ptr() as usize, offset);
        if let Some((_, frames)) = self.known.get(&place) {
            return Arc::clone(frames);
        }
        let frames = match self.module(mapping) {
            Some(module) => module.frames(offset),
            None => [Frame { module: Arc::clone(&mapping.path), ..Frame::default() }].into(),
        };
        self.known.insert(place, (Arc::clone(&mapping.path), Arc::clone(&frames)));
        frames
    }

    /// The binary of a mapping, read when it is first asked for; `None` when that cannot be.
    fn module(&mut self, mapping: &Mapping) -> Option<&Module> {
        let (finder, notes) = (&self.finder, &mut self.notes);
        let file = (Arc::clone(&mapping.path), mapping.build_id.clone(), mapping.executable);
        let load = |(path, build_id, executable): &FileKey| {
            let (module, note) = load(path, build_id.as_deref(), finder);
            // Build IDs are recorded of mappings with code: one of data, into which a wrong return address can point, has none
            // and says nothing of the file.
            let note = note.filter(|_| *executable || build_id.is_some());
            notes.extend(note.map(|note| (Arc::clone(path), note)));
            module
        };
        self.modules.entry(file).or_insert_with_key(load).as_ref()
    }
}

/// A binary's symbols, and what is to be said about them.
fn load(path: &Arc<str>, build_id: Option<&[u8]>, finder: &FileFinder) -> (Option<Module>, Option<String>) {
    match Module::load(path, build_id, finder) {
        Ok(Ok(module)) if module.is_doubtful() => {
            let (then, here) = if build_id.is_some() { ("with", "has none") } else { ("without", "has one") };
            let note = format!(
                "{path} was recorded {then} a build ID and the file here {here}, so that it may be another one, and its \
                 symbols wrong"
            );
            (Some(module), Some(note))
        }
        Ok(Ok(module)) if module.has_lines() => (Some(module), None),
        Ok(Ok(module)) if module.is_stripped() => {
            let note = format!(
                "{path} is stripped and has no debug information here, so its functions that other files do not call, its \
                 lines and inlined functions are unknown; install its debug package, name the folder that has it with \
                 --debug-dir, or record a build that is not stripped"
            );
            (Some(module), Some(note))
        }
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
