//! The unwind tables and instructions of mapped files, each read once.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use framehop::x86_64::UnwinderX86_64;
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder as _};
use gimli::{BaseAddresses, EhFrame, EhFrameHdr, LittleEndian, UnwindSection as _};
use object::{Object as _, ObjectSection as _};

use super::cause::Transfer;
use crate::address_space::Mapping;
use crate::elf::{self, Elf, Section, Segments};

/// The longest x86 instruction (SDM Vol. 2A 2.3.11).
const INSTRUCTION_BYTES_MAX: usize = 15;

/// Bytes of an address in the tables of 64-bit programs.
const POINTER_BYTES: u8 = 8;

/// Bytes of a section, shared by all processes that map the file.
pub(super) type Bytes = Arc<[u8]>;

/// Everything read of mapped files.
#[derive(Default)]
pub(super) struct Modules {
    files: HashMap<FileKey, MappedFile>,
    transfers: HashMap<(FileKey, u64), Option<Transfer>>,
    codes: HashMap<(FileKey, u64), Code>,
}

/// The file that is at a mapping's path now.
enum MappedFile {
    /// It can be read and has tables.
    Described(Tables),
    /// It cannot, or has none.
    Bare,
    /// Another build than the one that was mapped: nothing of it is that one's.
    Another,
}

/// What a file tells of the code at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    /// An unwind table describes it.
    Described,
    /// It is where the kernel starts the program or its loader, and no table describes it: nothing called it.
    /// (The loader of Debian 12 is so.)
    Entry,
    /// Neither.
    Unknown,
}

/// `_start` is shorter than this.
const ENTRY_BYTES: u64 = 128;

/// A file that is replaced while we watch has another build ID.
type FileKey = (Arc<str>, Option<Arc<[u8]>>);

fn key(mapping: &Mapping) -> FileKey {
    (Arc::clone(&mapping.path), mapping.build_id.clone())
}

/// What unwinding needs of one file.
struct Tables {
    segments: Segments,
    eh_frame: Section,
    eh_frame_hdr: Option<Section>,
    /// Addresses of `.text` and `.got`, to which pointers in the tables can be relative.
    text: u64,
    got: u64,
    /// Address of the first instruction.
    entry: u64,
}

impl Tables {
    fn read(elf: &Elf<'_>) -> object::Result<Option<Self>> {
        let Some(eh_frame) = elf::section(elf, ".eh_frame")? else { return Ok(None) };
        let address = |name| elf.section_by_name(name).map_or(0, |section| section.address());
        Ok(Some(Self {
            segments: Segments::of(elf),
            eh_frame,
            eh_frame_hdr: elf::section(elf, ".eh_frame_hdr")?,
            text: address(".text"),
            got: address(".got"),
            entry: elf.entry(),
        }))
    }

    fn module(&self, mapping: &Mapping) -> Option<Module<Bytes>> {
        let mapped_until = mapping.file_offset.checked_add(mapping.end - mapping.start)?;
        let linked = self.segments.address_of_code(&(mapping.file_offset..mapped_until))?;
        let sections = ExplicitModuleSectionInfo {
            base_svma: linked,
            text_svma: Some(self.text..self.text),
            got_svma: Some(self.got..self.got),
            eh_frame_svma: Some(self.eh_frame.addresses.clone()),
            eh_frame: Some(Arc::clone(&self.eh_frame.bytes)),
            eh_frame_hdr_svma: self.eh_frame_hdr.as_ref().map(|section| section.addresses.clone()),
            eh_frame_hdr: self.eh_frame_hdr.as_ref().map(|section| Arc::clone(&section.bytes)),
            ..ExplicitModuleSectionInfo::default()
        };
        Some(Module::new(mapping.path.to_string(), mapping.start..mapping.end, mapping.start, sections))
    }

    /// Whether `.eh_frame` describes the code at this linked address.
    fn describe(&self, address: u64) -> bool {
        let mut eh_frame = EhFrame::new(&self.eh_frame.bytes, LittleEndian);
        eh_frame.set_address_size(POINTER_BYTES);
        let mut bases = BaseAddresses::default()
            .set_eh_frame(self.eh_frame.addresses.start)
            .set_text(self.text)
            .set_got(self.got);
        let Some(index) = &self.eh_frame_hdr else {
            return eh_frame.fde_for_address(&bases, address, EhFrame::cie_from_offset).is_ok();
        };
        bases = bases.set_eh_frame_hdr(index.addresses.start);
        let index = EhFrameHdr::new(&index.bytes, LittleEndian).parse(&bases, POINTER_BYTES);
        index.is_ok_and(|index| {
            index.table().is_some_and(|table| {
                table.fde_for_address(&eh_frame, &bases, address, EhFrame::cie_from_offset).is_ok()
            })
        })
    }
}

impl Modules {
    /// An unwinder that knows these mappings of a process. One whose file cannot be read or has no table is left out.
    pub(super) fn unwinder(&mut self, pid: u32, mappings: &[Mapping]) -> UnwinderX86_64<Bytes> {
        let mut unwinder = UnwinderX86_64::new();
        for mapping in mappings {
            if let Some(module) = self.tables(pid, mapping).and_then(|tables| tables.module(mapping)) {
                unwinder.add_module(module);
            }
        }
        unwinder
    }

    /// What the mapped file tells of the code at this address of a process.
    pub(super) fn code(&mut self, pid: u32, mapping: &Mapping, address: u64) -> Code {
        let file_offset = mapping.file_offset_of(address);
        let place = (key(mapping), file_offset);
        if let Some(&known) = self.codes.get(&place) {
            return known;
        }
        let code = self.tables(pid, mapping).map_or(Code::Unknown, |tables| {
            match tables.segments.address_of(file_offset) {
                Some(linked) if tables.describe(linked) => Code::Described,
                Some(linked)
                    if (tables.entry..tables.entry.saturating_add(ENTRY_BYTES)).contains(&linked) =>
                {
                    Code::Entry
                }
                _ => Code::Unknown,
            }
        });
        self.codes.insert(place, code);
        code
    }

    /// How the instruction at this address of the process passes control on; `None` when it cannot be read.
    pub(super) fn transfer(&mut self, pid: u32, mapping: &Mapping, address: u64) -> Option<Transfer> {
        if matches!(self.file(pid, mapping), MappedFile::Another) {
            return None;
        }
        let file_offset = mapping.file_offset_of(address);
        *self.transfers.entry((key(mapping), file_offset)).or_insert_with(|| {
            let mut bytes = [0; INSTRUCTION_BYTES_MAX];
            let read = File::open(path_of(pid, mapping)).ok()?.read_at(&mut bytes, file_offset).ok()?;
            Transfer::of(&bytes[..read])
        })
    }

    fn tables(&mut self, pid: u32, mapping: &Mapping) -> Option<&Tables> {
        match self.file(pid, mapping) {
            MappedFile::Described(tables) => Some(tables),
            MappedFile::Bare | MappedFile::Another => None,
        }
    }

    fn file(&mut self, pid: u32, mapping: &Mapping) -> &MappedFile {
        let read = |elf: &Elf<'_>| {
            if elf::is_another(elf, mapping.build_id.as_deref())? {
                return Ok(MappedFile::Another);
            }
            Ok(Tables::read(elf)?.map_or(MappedFile::Bare, MappedFile::Described))
        };
        self.files
            .entry(key(mapping))
            .or_insert_with(|| elf::read(&path_of(pid, mapping), read).unwrap_or(MappedFile::Bare))
    }
}

/// The mapped file as this process can open it: the other may see another root folder, as in a container.
fn path_of(pid: u32, mapping: &Mapping) -> PathBuf {
    let seen = PathBuf::from(format!("/proc/{pid}/root{}", mapping.path));
    if seen.exists() { seen } else { PathBuf::from(&*mapping.path) }
}
