//! Where a mapped file and its separate debug information are on this machine.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use object::Object as _;

use crate::elf::{self, Elf};

/// Where distributions install separate debug information.
const SYSTEM_DEBUG_DIR: &str = "/usr/lib/debug";

/// Finds files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileFinder {
    /// A folder that holds the recorded machine's files, to be used instead of `/`.
    pub symfs: Option<PathBuf>,
    /// Folders with separate debug information, searched before `/usr/lib/debug`.
    pub debug_dirs: Vec<PathBuf>,
}

impl FileFinder {
    /// Where a file of the recorded machine is here.
    #[must_use]
    pub fn here(&self, recorded: &Path) -> PathBuf {
        match &self.symfs {
            Some(root) => root.join(recorded.strip_prefix("/").unwrap_or(recorded)),
            None => recorded.to_owned(),
        }
    }

    /// The file with the debug information of a binary that has none itself: by build ID, else by `.gnu_debuglink`
    /// (GDB manual, "Debugging Information in Separate Files"). `recorded` is the binary's path when it was recorded.
    pub(super) fn debug_file(&self, recorded: &Path, elf: &Elf<'_>) -> Option<PathBuf> {
        let build_id = elf.build_id().ok().flatten();
        if let Some(found) = build_id.and_then(|build_id| self.by_build_id(build_id)) {
            return Some(found);
        }
        let (name, checksum) = elf.gnu_debuglink().ok().flatten()?;
        let name = OsStr::from_bytes(name);
        let folder = recorded.parent()?;
        let beside = [self.here(&folder.join(name)), self.here(&folder.join(".debug").join(name))];
        let relative = folder.strip_prefix("/").unwrap_or(folder);
        let in_debug_dirs = self.all_debug_dirs().map(|dir| dir.join(relative).join(name));
        beside.into_iter().chain(in_debug_dirs).find(|path| match build_id {
            Some(build_id) => elf::build_id(path).as_deref() == Some(build_id),
            None => fs::read(path).is_ok_and(|bytes| crc32fast::hash(&bytes) == checksum),
        })
    }

    /// The file that several debug files share parts with, as the tool dwz makes it (`.gnu_debugaltlink`).
    pub(super) fn supplementary_file(&self, debug_file: &Path, elf: &Elf<'_>) -> Option<PathBuf> {
        let (name, build_id) = elf.gnu_debugaltlink().ok().flatten()?;
        let named = Path::new(OsStr::from_bytes(name));
        let named = match named.strip_prefix(SYSTEM_DEBUG_DIR) {
            Ok(below) => self.all_debug_dirs().map(|dir| dir.join(below)).collect(),
            Err(_) if named.is_absolute() => vec![self.here(named)],
            Err(_) => vec![debug_file.parent()?.join(named)],
        };
        named
            .into_iter()
            .find(|path| elf::build_id(path).as_deref() == Some(build_id))
            .or_else(|| self.by_build_id(build_id))
    }

    fn by_build_id(&self, build_id: &[u8]) -> Option<PathBuf> {
        let (first, rest) = build_id.split_first()?;
        let mut name = format!(".build-id/{first:02x}/");
        for byte in rest {
            write!(name, "{byte:02x}").ok()?;
        }
        name.push_str(".debug");
        self.all_debug_dirs().map(|dir| dir.join(&name)).find(|path| path.is_file())
    }

    fn all_debug_dirs(&self) -> impl Iterator<Item = PathBuf> {
        self.debug_dirs.iter().cloned().chain([self.here(Path::new(SYSTEM_DEBUG_DIR))])
    }
}
