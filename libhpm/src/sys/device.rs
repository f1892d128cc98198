//! The character device: one safe method for each ioctl.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use hpm_abi::{
    ABI_VERSION, CounterReading, CounterRequest, DEVICE_PATH, Envelope, IOCTL_CONFIGURE, IOCTL_COUNTERS,
    IOCTL_FLUSH, IOCTL_FOLLOW, IOCTL_INFO, IOCTL_MARK, IOCTL_MARKER_PAGE, IOCTL_READ, IOCTL_START,
    IOCTL_STOP, IOCTL_TOTALS, Info, MARKER_NAME_BYTES, Mark, MarkerPageRequest, Reason, SessionConfig,
    Totals,
};

use crate::{Error, Result};

/// How often a page is asked for while somebody is writing it. A virtual CPU that has lost its turn in the middle of that takes as long as its
/// machine lets it wait.
const READS: u32 = 1000;

/// A request that a device refused: errno, and [`Envelope::reason`] and [`Envelope::detail`] as the driver left them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Denied {
    /// The errno.
    pub errno: i32,
    /// A [`Reason`] as its number, or 0.
    pub reason: u32,
    /// What the reason is about.
    pub detail: [u64; 2],
}

/// What the driver offers one open descriptor. The trait exists so that sessions can be tested on a device in memory.
///
/// The descriptor of [`AsFd`] polls readable when quanta wait to be read, and when the target has gone.
pub trait Device: AsFd {
    /// [`IOCTL_INFO`]: the driver and its PMU.
    ///
    /// # Errors
    /// What the device said.
    fn info(&self) -> Result<Info, Denied>;
    /// [`IOCTL_CONFIGURE`]: makes the descriptor a session. [`SessionConfig::segment_bytes`] is then what segments have.
    ///
    /// # Errors
    /// What the device said.
    fn configure(&self, config: &mut SessionConfig) -> Result<(), Denied>;
    /// [`IOCTL_START`], [`IOCTL_STOP`] or [`IOCTL_FLUSH`].
    ///
    /// # Errors
    /// What the device said.
    fn command(&self, command: Command) -> Result<(), Denied>;
    /// [`IOCTL_TOTALS`]: sums since the start.
    ///
    /// # Errors
    /// What the device said.
    fn totals(&self) -> Result<Totals, Denied>;
    /// [`IOCTL_COUNTERS`]: the number of a thread's counter page; `tid` 0 is the calling thread.
    ///
    /// # Errors
    /// What the device said.
    fn counters(&self, tid: i32) -> Result<u32, Denied>;
    /// [`IOCTL_READ`]: what the thread of a counter page has counted.
    ///
    /// # Errors
    /// What the device said.
    fn read(&self, page: u32) -> Result<CounterReading, Denied>;
    /// The descriptor whose pages are the session's areas, at the offsets of [`hpm_abi::area`].
    fn memory(&self) -> BorrowedFd<'_>;
}

/// A request without an argument of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Begin to monitor.
    Start,
    /// End monitoring and publish every quantum.
    Stop,
    /// Publish what every CPU holds.
    Flush,
}

/// The driver behind `/dev/hpm`.
#[derive(Debug)]
pub struct Driver(File);

impl Driver {
    /// Opens the device of the loaded module.
    ///
    /// # Errors
    /// [`Error::NoModule`], [`Error::NoPermission`] or [`Error::Io`].
    pub fn open() -> Result<Self> {
        Self::open_at(Path::new(DEVICE_PATH))
    }

    fn open_at(path: &Path) -> Result<Self> {
        // Read and write: the control area is mapped writable.
        match OpenOptions::new().read(true).write(true).open(path) {
            Ok(file) => Ok(Self(file)),
            Err(e) => Err(match e.raw_os_error() {
                Some(libc::ENOENT | libc::ENXIO | libc::ENODEV) => Error::NoModule { path: path.into() },
                Some(libc::EACCES | libc::EPERM) => Error::NoPermission { path: path.into() },
                _ => Error::Io { doing: format!("open {}", path.display()), reason: e },
            }),
        }
    }

    /// Opens the device and checks that it speaks this library's version.
    ///
    /// # Errors
    /// Those of [`Driver::open`], and [`Error::Version`].
    pub fn open_checked() -> Result<(Self, Info)> {
        let driver = Self::open()?;
        let version = |driver: u64| Error::Version { driver: driver as u32, library: ABI_VERSION };
        match driver.info() {
            Ok(info) if info.envelope.version == ABI_VERSION => Ok((driver, info)),
            Ok(info) => Err(version(info.envelope.version.into())),
            Err(denied) if Reason::from_number(denied.reason) == Some(Reason::Version) => {
                Err(version(denied.detail[0]))
            }
            Err(denied) => Err(Error::Io {
                doing: "ask the hpm driver what it is".into(),
                reason: io::Error::from_raw_os_error(denied.errno),
            }),
        }
    }

    /// [`IOCTL_MARK`]: sets a marker in the calling thread; whether a session keeps it.
    ///
    /// # Errors
    /// What the device said.
    pub fn mark(&self, value: u64, name: [u8; MARKER_NAME_BYTES]) -> Result<bool, Denied> {
        let mut mark = Mark { envelope: Envelope::new::<Mark>(), value, name, ..Mark::default() };
        self.ioctl(IOCTL_MARK, &mut mark)?;
        Ok(mark.kept != 0)
    }

    /// [`IOCTL_MARKER_PAGE`]: the mmap offset of the calling thread's marker page.
    ///
    /// # Errors
    /// What the device said.
    pub fn marker_page(&self) -> Result<u64, Denied> {
        let envelope = Envelope::new::<MarkerPageRequest>();
        let mut request = MarkerPageRequest { envelope, ..MarkerPageRequest::default() };
        self.ioctl(IOCTL_MARKER_PAGE, &mut request)?;
        Ok(request.offset)
    }

    /// [`IOCTL_FOLLOW`]: what of the session's processes is reported from now on, until this and the session are dropped.
    ///
    /// # Errors
    /// What the device said.
    pub fn follow(&self) -> Result<ReportStream, Denied> {
        let stream = self.0.try_clone();
        let stream = stream.map_err(|e| Denied {
            errno: e.raw_os_error().unwrap_or(libc::EMFILE),
            reason: 0,
            detail: [0; 2],
        })?;
        self.ioctl(IOCTL_FOLLOW, &mut Envelope::new::<Envelope>())?;
        Ok(ReportStream { file: stream, buffer: vec![0; 64 * 1024] })
    }

    fn ioctl<T: Argument>(&self, number: u32, argument: &mut T) -> Result<(), Denied> {
        loop {
            // SAFETY: `T: Argument` is plain data that starts with an `Envelope` whose `size` is at most `size_of::<T>()`
            // (checked by `Argument::sized`), and the driver reads and writes no more than `size` bytes at the pointer,
            // which is exclusively borrowed for the call.
            let status = unsafe {
                libc::ioctl(
                    self.0.as_raw_fd(),
                    libc::Ioctl::from(number),
                    std::ptr::from_mut(argument.sized()),
                )
            };
            if status >= 0 {
                return Ok(());
            }
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            // A signal may interrupt a wait inside the driver; every request may be repeated.
            if errno != libc::EINTR {
                let Envelope { reason, detail, .. } = *argument.envelope();
                return Err(Denied { errno, reason, detail });
            }
        }
    }
}

/// What the driver reports of a session's processes.
#[derive(Debug)]
pub struct ReportStream {
    file: File,
    buffer: Vec<u8>,
}

impl ReportStream {
    /// Whole records that wait, as [`IOCTL_FOLLOW`] has them; none when nothing waits.
    ///
    /// # Errors
    /// When the driver cannot be read, which means that it has gone wrong.
    pub fn read(&mut self) -> io::Result<&[u8]> {
        match self.file.read(&mut self.buffer) {
            Ok(length) => Ok(&self.buffer[..length]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(&[]),
            Err(e) => Err(e),
        }
    }
}

impl Device for Driver {
    fn info(&self) -> Result<Info, Denied> {
        let mut info = Info { envelope: Envelope::new::<Info>(), ..Info::default() };
        self.ioctl(IOCTL_INFO, &mut info)?;
        Ok(info)
    }

    fn configure(&self, config: &mut SessionConfig) -> Result<(), Denied> {
        self.ioctl(IOCTL_CONFIGURE, config)
    }

    fn command(&self, command: Command) -> Result<(), Denied> {
        let number = match command {
            Command::Start => IOCTL_START,
            Command::Stop => IOCTL_STOP,
            Command::Flush => IOCTL_FLUSH,
        };
        self.ioctl(number, &mut Envelope::new::<Envelope>())
    }

    fn totals(&self) -> Result<Totals, Denied> {
        let mut totals = Totals { envelope: Envelope::new::<Totals>(), ..Totals::default() };
        self.ioctl(IOCTL_TOTALS, &mut totals)?;
        Ok(totals)
    }

    fn counters(&self, tid: i32) -> Result<u32, Denied> {
        let mut request = CounterRequest { envelope: Envelope::new::<CounterRequest>(), tid, page: 0 };
        self.ioctl(IOCTL_COUNTERS, &mut request)?;
        Ok(request.page)
    }

    fn read(&self, page: u32) -> Result<CounterReading, Denied> {
        let mut tries = 1;
        loop {
            let envelope = Envelope::new::<CounterReading>();
            let mut reading = CounterReading { envelope, page, ..CounterReading::default() };
            match self.ioctl(IOCTL_READ, &mut reading) {
                Err(Denied { errno: libc::EAGAIN, .. }) if tries < READS => std::thread::yield_now(),
                result => return result.map(|()| reading),
            }
            tries += 1;
        }
    }

    fn memory(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// An ioctl argument.
///
/// # Safety
/// The type is `repr(C)` plain data without padding in which every bit pattern is valid, and starts with the envelope that
/// [`Argument::envelope`] returns.
pub unsafe trait Argument: Sized {
    /// What it starts with.
    fn envelope(&self) -> &Envelope;

    /// `self`, once its envelope is known to claim no more bytes than it has.
    ///
    /// # Panics
    /// When it claims more.
    fn sized(&mut self) -> &mut Self {
        assert!(
            self.envelope().size as usize <= size_of::<Self>(),
            "an envelope claims more than its argument"
        );
        self
    }
}

// SAFETY: `Envelope` is `repr(C)` integers, and its own envelope.
unsafe impl Argument for Envelope {
    fn envelope(&self) -> &Envelope {
        self
    }
}
// SAFETY: `Info` is `repr(C)` integers and starts with its envelope.
unsafe impl Argument for Info {
    fn envelope(&self) -> &Envelope {
        &self.envelope
    }
}
// SAFETY: `SessionConfig` is `repr(C)` integers and starts with its envelope.
unsafe impl Argument for SessionConfig {
    fn envelope(&self) -> &Envelope {
        &self.envelope
    }
}
// SAFETY: `Mark` is `repr(C)` integers and starts with its envelope.
unsafe impl Argument for Mark {
    fn envelope(&self) -> &Envelope {
        &self.envelope
    }
}
// SAFETY: `MarkerPageRequest` is `repr(C)` integers and starts with its envelope.
unsafe impl Argument for MarkerPageRequest {
    fn envelope(&self) -> &Envelope {
        &self.envelope
    }
}
// SAFETY: `Totals` is `repr(C)` integers and starts with its envelope.
unsafe impl Argument for Totals {
    fn envelope(&self) -> &Envelope {
        &self.envelope
    }
}
// SAFETY: `CounterRequest` is `repr(C)` integers and starts with its envelope.
unsafe impl Argument for CounterRequest {
    fn envelope(&self) -> &Envelope {
        &self.envelope
    }
}
// SAFETY: `CounterReading` is `repr(C)` integers and starts with its envelope.
unsafe impl Argument for CounterReading {
    fn envelope(&self) -> &Envelope {
        &self.envelope
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_means_that_the_module_is_not_loaded() {
        let error = Driver::open_at(Path::new("/nonexistent/hpm")).unwrap_err();
        assert!(matches!(error, Error::NoModule { .. }), "{error}");
    }

    #[test]
    fn a_device_that_is_not_hpm_refuses_the_ioctl() {
        let driver = Driver::open_at(Path::new("/dev/null")).unwrap();
        assert_eq!(driver.info().unwrap_err(), Denied { errno: libc::ENOTTY, reason: 0, detail: [0; 2] });
    }
}
