//! The driver's interface without this library's checks, for programs that test the driver with requests that no session
//! makes, and watch its memory as no session does.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// Words of an ioctl argument: as much as the driver reads or writes of any.
pub const ARGUMENT_WORDS: usize = 512;

/// Hands the argument to the device, whatever it says.
///
/// # Errors
/// What the device said.
pub fn ioctl(
    device: BorrowedFd<'_>,
    number: u32,
    argument: &mut [u64; ARGUMENT_WORDS],
) -> Result<i32, io::Error> {
    // SAFETY: the driver touches no more of an argument than its envelope claims, and refuses one that claims more than
    // ARGUMENT_WORDS; the array is exclusively borrowed for the call.
    let status = unsafe { libc::ioctl(device.as_raw_fd(), libc::Ioctl::from(number), argument.as_mut_ptr()) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(status) }
}

/// A mapping of the device's memory, which others write meanwhile.
#[derive(Debug)]
pub struct Mapping {
    memory: MmapRaw,
    writable: bool,
}

impl Mapping {
    /// Maps whole pages from this offset on.
    ///
    /// # Errors
    /// What the device said.
    pub fn new(device: BorrowedFd<'_>, offset: u64, bytes: usize, writable: bool) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        let options = options.offset(offset).len(bytes);
        let fd = device.as_raw_fd();
        let memory = if writable { options.map_raw(fd) } else { options.map_raw_read_only(fd) }?;
        Ok(Self { memory, writable })
    }

    /// 64-bit words of it.
    #[must_use]
    pub fn words(&self) -> usize {
        self.memory.len() / 8
    }

    /// Whether [`Mapping::write`] may be called.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    fn word(&self, number: usize) -> &AtomicU64 {
        assert!(number < self.words(), "word {number} of {}", self.words());
        let place = self.memory.as_mut_ptr().cast::<u64>().wrapping_add(number);
        // SAFETY: the word lies within the mapping, which is aligned to a page and lives as long as `self`. Whoever else
        // accesses it does so beyond this program's memory model; here it is only ever accessed atomically.
        unsafe { AtomicU64::from_ptr(place) }
    }

    /// The word with this number.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn read(&self, number: usize) -> u64 {
        self.word(number).load(Ordering::Relaxed)
    }

    /// Sets the word with this number.
    ///
    /// # Panics
    /// When there is none, or the mapping is not writable.
    pub fn write(&self, number: usize, value: u64) {
        assert!(self.writable, "the mapping is read only");
        self.word(number).store(value, Ordering::Relaxed);
    }
}
