//! Markers: moments that a measured thread names itself, so that an analysis can say what happened between them.
//!
//! A thread sets one by [`super::IOCTL_MARK`], or without a system call by writing it to its marker page, from which the
//! driver takes it when the thread's quantum ends.

use super::{Envelope, PAGE_BYTES};

/// Bytes of a marker's name: UTF-8, NUL padded, not NUL terminated when all are used.
pub const MARKER_NAME_BYTES: usize = 24;

/// How a marker was set.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkerOrigin {
    /// By [`super::IOCTL_MARK`]: the driver took the time.
    Request = 1,
    /// By a write to the thread's marker page: the thread took the time. A time outside the quantum in which the driver
    /// found the marker is moved to the nearer end of it.
    Page = 2,
}

impl MarkerOrigin {
    /// The origin with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        match number {
            1 => Some(Self::Request),
            2 => Some(Self::Page),
            _ => None,
        }
    }
}

/// One published marker; 64 bytes in a per-CPU ring.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marker {
    /// Number of this marker on its CPU, from 0; lost ones are numbered too.
    pub sequence: u64,
    /// TSC of the moment.
    pub tsc: u64,
    /// What the thread gave with it.
    pub value: u64,
    /// Thread-group ID (root PID namespace).
    pub pid: u32,
    /// Thread ID (root PID namespace).
    pub tid: u32,
    /// Logical CPU.
    pub cpu: u32,
    /// [`MarkerOrigin`] as its number.
    pub origin: u32,
    /// Its name.
    pub name: [u8; MARKER_NAME_BYTES],
}
const _: () = assert!(core::mem::size_of::<Marker>() == 64);

/// Argument of [`super::IOCTL_MARK`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Common head.
    pub envelope: Envelope,
    /// The marker's value.
    pub value: u64,
    /// The marker's name.
    pub name: [u8; MARKER_NAME_BYTES],
    /// Out: 1 when a session that keeps markers measures the calling thread, else 0, and then nothing was kept.
    pub kept: u32,
    /// Must be zero.
    pub reserved: u32,
}
const _: () = assert!(core::mem::size_of::<Mark>() == 72);

/// Argument of [`super::IOCTL_MARKER_PAGE`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MarkerPageRequest {
    /// Common head.
    pub envelope: Envelope,
    /// Out: the page's mmap offset on the same descriptor.
    pub offset: u64,
}
const _: () = assert!(core::mem::size_of::<MarkerPageRequest>() == 40);

/// Markers that a page holds until the driver takes them; a power of two.
pub const PAGE_MARKERS: usize = 32;

/// A marker that waits in a page.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageMarker {
    /// TSC of the moment.
    pub tsc: u64,
    /// The marker's value.
    pub value: u64,
    /// The marker's name.
    pub name: [u8; MARKER_NAME_BYTES],
    /// Padding.
    pub reserved: [u64; 3],
}
const _: () = assert!(core::mem::size_of::<PageMarker>() == 64);

/// A thread's marker page. The thread writes entry `produced % PAGE_MARKERS`, then stores `produced` + 1 with release
/// order. The driver never reads `taken`.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MarkerPage {
    /// Markers written by the thread, as a count since the page was made.
    pub produced: u64,
    /// Markers taken by the driver. While `produced` is [`PAGE_MARKERS`] ahead, another one would replace the oldest.
    pub taken: u64,
    /// Padding.
    pub reserved: [u64; 6],
    /// The ring.
    pub markers: [PageMarker; PAGE_MARKERS],
}
const _: () = assert!(core::mem::size_of::<MarkerPage>() <= PAGE_BYTES);
const _: () = assert!(core::mem::offset_of!(MarkerPage, markers) == 64);
