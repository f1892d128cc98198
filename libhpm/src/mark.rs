//! Markers: a measured program names moments of its own run, and an analysis sees them beside the counters.
//!
//! ```no_run
//! # fn main() -> libhpm::Result<()> {
//! let marks = libhpm::mark::Marks::open()?;
//! let mut here = marks.thread()?;
//! for round in 0..1000 {
//!     here.mark("round", round)?; // no system call
//! }
//! # Ok(())
//! # }
//! ```

use hpm_abi::MARKER_NAME_BYTES;

use crate::sys::clock::tsc;
use crate::sys::device::{Denied, Driver};
use crate::sys::marks::{NotWritten, Page};
use crate::{Error, Result};

/// Sets markers in whichever thread calls.
#[derive(Debug)]
pub struct Marks(Driver);

/// Sets markers in the thread that made it, without a system call.
#[derive(Debug)]
pub struct ThreadMarks<'a> {
    marks: &'a Marks,
    page: Page,
}

impl Marks {
    /// Opens the driver.
    ///
    /// # Errors
    /// [`Error::NoModule`], [`Error::NoPermission`], [`Error::Version`] or [`Error::Io`].
    pub fn open() -> Result<Self> {
        Ok(Self(Driver::open_checked()?.0))
    }

    /// Sets a marker in the calling thread now, by a system call. `name` is cut to 24 bytes; `value` is the program's
    /// own. Says whether a session that keeps markers measures the thread: if not, nothing is kept.
    ///
    /// # Errors
    /// [`Error::Io`] when the driver refuses.
    pub fn mark(&self, name: &str, value: u64) -> Result<bool> {
        self.0.mark(value, fit(name)).map_err(|Denied { errno, .. }| {
            Error::io("set a marker")(std::io::Error::from_raw_os_error(errno))
        })
    }

    /// What the calling thread sets markers with when a system call each would cost too much.
    ///
    /// # Errors
    /// [`Error::Io`] when the driver gives no page.
    pub fn thread(&self) -> Result<ThreadMarks<'_>> {
        Ok(ThreadMarks { marks: self, page: Page::new(&self.0)? })
    }
}

impl ThreadMarks<'_> {
    /// Sets a marker in this thread, now. It costs a store of some 64 bytes; when 32 of them wait for the driver, one
    /// costs a system call. `name` is cut to 24 bytes.
    ///
    /// # Errors
    /// [`Error::Io`] when the driver refuses.
    pub fn mark(&mut self, name: &str, value: u64) -> Result<()> {
        match self.page.write(tsc(), value, fit(name)) {
            Ok(()) => Ok(()),
            Err(NotWritten::Full) => self.marks.mark(name, value).map(drop),
            Err(NotWritten::Forked) => {
                self.page = Page::new(&self.marks.0)?;
                self.marks.mark(name, value).map(drop)
            }
        }
    }
}

/// As much of a name as fits, NUL padded and cut between characters.
fn fit(name: &str) -> [u8; MARKER_NAME_BYTES] {
    let mut bytes = [0; MARKER_NAME_BYTES];
    let length = name.floor_char_boundary(MARKER_NAME_BYTES);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    bytes
}

/// A marker's name as text; what is not UTF-8 is replaced.
#[must_use]
pub fn name(bytes: &[u8; MARKER_NAME_BYTES]) -> String {
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cut_between_characters() {
        assert_eq!(name(&fit("parse")), "parse");
        assert_eq!(name(&fit("")), "");
        assert_eq!(name(&fit("a name of more than 24 bytes")), "a name of more than 24 b");
        assert_eq!(name(&fit("aaaaaaaaaaaaaaaaaaaaaaaé")), "aaaaaaaaaaaaaaaaaaaaaaa");
        assert_eq!(name(&[0xff; 24]).chars().next(), Some('\u{fffd}'));
    }
}
