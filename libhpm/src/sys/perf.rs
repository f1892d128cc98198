//! The kernel's side band: a perf_event software event that counts nothing, and whose ring reports mappings, names, forks
//! and exits.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;

/// Bytes of a ring's data: what an unprivileged process may lock per CPU by default (perf_event_mlock_kb), halved to a
/// power of two.
const RING_BYTES: usize = 256 * 1024;
const PAGE: usize = 4096;

/// What an event is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attach {
    /// This thread and, by inheritance, what it creates.
    Thread(i32),
    /// As `Thread`, from its next execve on.
    ThreadOnExec(i32),
    /// Every thread.
    Everything,
}

/// One CPU's ring.
#[derive(Debug)]
pub struct SidebandRing {
    event: OwnedFd,
    memory: MmapRaw,
    scratch: Vec<u8>,
}

/// Opens a side-band event on a CPU, with times of CLOCK_MONOTONIC_RAW.
fn open(attach: Attach, cpu: u32) -> io::Result<OwnedFd> {
    let mut attr = b::perf_event_attr { size: size_of::<b::perf_event_attr>() as u32, ..Default::default() };
    attr.type_ = b::PERF_TYPE_SOFTWARE;
    attr.config = b::PERF_COUNT_SW_DUMMY.into();
    attr.sample_type = SAMPLE_TYPE;
    attr.clockid = libc::CLOCK_MONOTONIC_RAW;
    attr.set_use_clockid(1);
    attr.set_sample_id_all(1);
    attr.set_inherit(u64::from(attach != Attach::Everything));
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_mmap_data(1);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
    // Nothing is counted or sampled, so nothing of the kernel is asked for.
    attr.set_exclude_kernel(1);
    attr.set_exclude_hv(1);
    let pid = match attach {
        Attach::Thread(tid) => tid,
        Attach::ThreadOnExec(tid) => {
            attr.set_disabled(1);
            attr.set_enable_on_exec(1);
            tid
        }
        Attach::Everything => -1,
    };
    let flags = b::PERF_FLAG_FD_CLOEXEC.into();
    // SAFETY: `attr` is a properly initialised local that says its own size; a software event has no effect but its ring.
    let fd = unsafe { perf::perf_event_open(&raw mut attr, pid, cpu as i32, -1, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just returned this descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What every record ends with.
pub const SAMPLE_TYPE: u64 = (b::PERF_SAMPLE_TID | b::PERF_SAMPLE_TIME) as u64;

impl SidebandRing {
    /// Opens an event and its ring on a CPU.
    ///
    /// # Errors
    /// The system's: EACCES without the right, ENODEV for a CPU that is offline, ESRCH for a thread that has ended.
    pub fn open(attach: Attach, cpu: u32) -> io::Result<Self> {
        let event = open(attach, cpu)?;
        let memory = MmapOptions::new().len(PAGE + RING_BYTES).map_raw(event.as_raw_fd())?;
        Ok(Self { event, memory, scratch: Vec::new() })
    }

    /// Attaches to another thread too, whose records come through this ring. The descriptor must be kept open.
    ///
    /// # Errors
    /// As [`SidebandRing::open`].
    pub fn add(&self, attach: Attach, cpu: u32) -> io::Result<OwnedFd> {
        let event = open(attach, cpu)?;
        // SAFETY: the request takes a descriptor by value and touches no memory of ours.
        let status = unsafe { perf::ioctls::SET_OUTPUT(event.as_raw_fd(), self.event.as_raw_fd()) };
        if status < 0 { Err(io::Error::last_os_error()) } else { Ok(event) }
    }

    /// Hands every record in the ring to `each`, as type, `misc` and body, and frees its room.
    pub fn drain(&mut self, mut each: impl FnMut(u32, u16, &[u8])) {
        let head =
            self.index(std::mem::offset_of!(b::perf_event_mmap_page, data_head)).load(Ordering::Acquire);
        let tail_index = std::mem::offset_of!(b::perf_event_mmap_page, data_tail);
        let mut tail = self.index(tail_index).load(Ordering::Relaxed);
        let mut scratch = std::mem::take(&mut self.scratch);
        while tail < head {
            const HEADER: usize = size_of::<b::perf_event_header>();
            self.copy(tail, HEADER, &mut scratch);
            let kind = u32::from_ne_bytes([scratch[0], scratch[1], scratch[2], scratch[3]]);
            let misc = u16::from_ne_bytes([scratch[4], scratch[5]]);
            let size = usize::from(u16::from_ne_bytes([scratch[6], scratch[7]]));
            if size < HEADER {
                // The kernel writes no such record; going on would never end.
                break;
            }
            self.copy(tail + HEADER as u64, size - HEADER, &mut scratch);
            each(kind, misc, &scratch);
            tail += size as u64;
        }
        self.scratch = scratch;
        self.index(tail_index).store(head, Ordering::Release);
    }

    /// Copies `len` bytes at `position` of the ring, which may wrap.
    fn copy(&self, position: u64, len: usize, into: &mut Vec<u8>) {
        let start = position as usize % RING_BYTES;
        let first = len.min(RING_BYTES - start);
        into.clear();
        for (offset, len) in [(start, first), (0, len - first)] {
            // SAFETY: `offset + len` is at most `RING_BYTES`, so the bytes lie in the mapping after its first page. The
            // kernel wrote them before it stored `data_head` and does not reuse them before `data_tail` moves past.
            into.extend_from_slice(unsafe {
                std::slice::from_raw_parts(self.memory.as_ptr().wrapping_add(PAGE + offset), len)
            });
        }
    }

    /// One of the two indices in the first page.
    fn index(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both fields are aligned u64 in the first page, and are accessed only atomically on this side.
        unsafe { AtomicU64::from_ptr(self.memory.as_mut_ptr().wrapping_add(offset).cast()) }
    }
}

impl AsFd for SidebandRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
