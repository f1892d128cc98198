//! A file whose earlier contents stay until there is something to write.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use libhpm::trace::TraceReader;

/// A file that keeps what it holds until there is something to write, for a result that comes to nothing.
pub(crate) struct LateFile {
    file: File,
    path: PathBuf,
    /// It was not there.
    made: bool,
    written: bool,
}

impl LateFile {
    /// Opens the file, which is made when it is not there.
    ///
    /// # Errors
    /// The system's; or it lies in a trace, whose tables it could be.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        outside_of_traces(path)?;
        let mut options = OpenOptions::new();
        let (file, made) = match options.write(true).open(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                (options.create(true).truncate(false).open(path)?, true)
            }
            opened => (opened?, false),
        };
        Ok(Self { file, path: path.to_owned(), made, written: false })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// From here on it holds what is written to it alone.
    fn begin(&mut self) -> io::Result<()> {
        // Devices and pipes have no length.
        if !std::mem::replace(&mut self.written, true) && self.file.metadata()?.is_file() {
            self.file.set_len(0)?;
        }
        Ok(())
    }
}

/// Writes a file at once, but not into a trace.
///
/// # Errors
/// The system's; or it would lie in a trace. The message names the file.
pub(crate) fn write(path: &Path, contents: impl AsRef<[u8]>) -> Result<()> {
    outside_of_traces(path)
        .and_then(|()| fs::write(path, contents))
        .with_context(|| format!("cannot write {}", path.display()))
}

/// Sees that a file that is to be written would not lie in a trace.
///
/// # Errors
/// It would.
fn outside_of_traces(path: &Path) -> io::Result<()> {
    // A folder without a name is the one that is worked in.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match TraceReader::open(folder) {
        Ok(_) => Err(io::Error::other("its folder is a trace, which holds nothing else: name another place")),
        Err(_) => Ok(()),
    }
}

impl Write for LateFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begin()?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        // Also a result that is empty replaces what was there.
        self.begin()?;
        self.file.flush()
    }
}

impl Drop for LateFile {
    fn drop(&mut self) {
        if self.made && !self.written {
            // The real path: a link to a file that was not there stays. What cannot be removed is empty.
            let _ = fs::canonicalize(&self.path).and_then(fs::remove_file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_by_the_first_byte_or_by_an_empty_result() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        drop(LateFile::open(&path).unwrap());
        assert!(!path.exists(), "nothing came of it");
        for (result, kept) in [(None, "precious"), (Some("new"), "new"), (Some(""), "")] {
            fs::write(&path, "precious").unwrap();
            let mut file = LateFile::open(&path).unwrap();
            if let Some(result) = result {
                file.write_all(result.as_bytes()).and_then(|()| file.flush()).unwrap();
            }
            assert_eq!(fs::read_to_string(&path).unwrap(), kept);
        }
    }
}
