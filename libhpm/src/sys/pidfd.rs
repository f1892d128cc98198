//! Waiting for a process or thread that is not a child.

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

use crate::{Error, Result};

/// A descriptor that polls readable once the process has ended.
///
/// # Errors
/// [`Error::NoProcess`], or [`Error::Io`] when the system refuses.
pub fn pidfd(pid: i32) -> Result<OwnedFd> {
    open(pid, 0, Error::NoProcess { pid })
}

/// A descriptor that polls readable once the thread has ended. Needs Linux 6.9.
///
/// # Errors
/// [`Error::NoThread`], or as [`pidfd`].
pub fn pidfd_of_thread(tid: i32) -> Result<OwnedFd> {
    open(tid, libc::PIDFD_THREAD, Error::NoThread { tid })
}

/// `none`: there is nobody with this number.
fn open(pid: i32, flags: libc::c_uint, none: Error) -> Result<OwnedFd> {
    // SAFETY: pidfd_open takes two integers and touches no memory of ours.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, flags) };
    if fd >= 0 {
        // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
        return Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) });
    }
    let error = io::Error::last_os_error();
    Err(match error.raw_os_error() {
        // EINVAL: a thread's ID, or a number that cannot be a PID.
        Some(libc::ESRCH | libc::EINVAL) => none,
        _ => Error::io(format!("watch PID {pid}"))(error),
    })
}
