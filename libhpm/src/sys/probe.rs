//! The driver's interface without this library's checks, for programs that test the driver with requests that no session
//! makes, and watch its memory as no session does.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use hpm_abi::{Envelope, Reason};
use memmap2::{MmapOptions, MmapRaw};

use super::device::Argument;

/// Words of an ioctl argument: as much as the driver reads or writes of any.
pub const ARGUMENT_WORDS: usize = 512;

/// An argument as [`ioctl`] hands it over, to be changed at will.
#[must_use]
pub fn words<T: Argument>(argument: &T) -> [u64; ARGUMENT_WORDS] {
    let mut words = [0; ARGUMENT_WORDS];
    let bytes = size_of::<T>();
    assert!(bytes <= size_of_val(&words), "no argument is so long");
    // SAFETY: an `Argument` has no padding, so that all its bytes are initialised; `words` has room for them.
    unsafe {
        std::ptr::from_ref(argument).cast::<u8>().copy_to_nonoverlapping(words.as_mut_ptr().cast(), bytes)
    };
    words
}

/// The reason that a refused argument came back with.
#[must_use]
pub fn reason(argument: &[u64; ARGUMENT_WORDS]) -> Option<Reason> {
    const _: () = assert!(std::mem::offset_of!(Envelope, reason) == size_of::<u64>());
    Reason::from_number(argument[1] as u32)
}

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

/// What is asked of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Reading and writing.
    Write,
    /// Reading and writing a copy of one's own (`MAP_PRIVATE`).
    Copy,
    /// Reading and executing.
    Execute,
}

/// Whether the device lets these pages be mapped for that. The mapping is gone on return.
///
/// # Errors
/// What the device said.
pub fn try_map(device: BorrowedFd<'_>, offset: u64, bytes: usize, access: Access) -> io::Result<()> {
    let (protection, flags) = match access {
        Access::Read => (libc::PROT_READ, libc::MAP_SHARED),
        Access::Write => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED),
        Access::Copy => (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE),
        Access::Execute => (libc::PROT_READ | libc::PROT_EXEC, libc::MAP_SHARED),
    };
    let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs none that this program has.
    let place =
        unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, device.as_raw_fd(), offset) };
    if place == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just mapped, with this length, and nobody else knows of it.
    unsafe { libc::munmap(place, bytes) };
    Ok(())
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

    /// Whether the kernel lets this mapping be made writable, or executable, afterwards. It is as before on return.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn try_protect(&self, access: Access) -> io::Result<()> {
        let wanted = match access {
            Access::Execute => libc::PROT_READ | libc::PROT_EXEC,
            Access::Read => libc::PROT_READ,
            Access::Write | Access::Copy => libc::PROT_READ | libc::PROT_WRITE,
        };
        let usual = if self.writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        for protection in [wanted, usual] {
            // SAFETY: the whole of this mapping, which stays readable throughout, and writable if it was.
            let status = unsafe {
                libc::mprotect(self.memory.as_mut_ptr().cast(), self.memory.len(), protection | usual)
            };
            if status < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
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
