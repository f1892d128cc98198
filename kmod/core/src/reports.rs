//! What else happens in the processes of a session, in the order in which it happens: mappings, names, forks and exits. Each is a record as
//! perf_event_open(2) lays it out for `PERF_SAMPLE_TID | PERF_SAMPLE_TIME` and `sample_id_all`, so that user space reads them as it reads
//! the kernel's own.

use super::session::Thread;

/// Bytes of a queue's memory, of which readers are woken when a quarter is full.
pub const QUEUE_BYTES: usize = 512 * 1024;
/// Bytes of the longest name that a record has room for, its NUL included (`PATH_MAX` in Linux).
pub const NAME_BYTES: usize = 4096;
/// A record is at most so long.
pub const RECORD_BYTES: usize = HEADER + FIELDS + NAME_BYTES + SAMPLE_ID;

/// `struct perf_event_header`.
const HEADER: usize = 8;
/// The longest record's fields before its name.
const FIELDS: usize = 64;
/// What ends each record: process, thread and time.
const SAMPLE_ID: usize = 16;

/// A record of losses: an identifier, which is 0, and their number.
const LOST_BYTES: usize = HEADER + 16 + SAMPLE_ID;

const LOST: u32 = 2;
const COMM: u32 = 3;
const EXIT: u32 = 4;
const FORK: u32 = 7;
const MMAP2: u32 = 10;
/// `PERF_RECORD_MISC_USER`, in which mode everything here happens.
const USER: u16 = 2;
/// `PERF_RECORD_MISC_COMM_EXEC` of a name, and `PERF_RECORD_MISC_MMAP_DATA` of a mapping.
const SPECIAL: u16 = 1 << 13;
/// `PROT_EXEC`.
const EXECUTABLE: u32 = 4;

/// Who does something, and when in ns of CLOCK_MONOTONIC_RAW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// The thread that runs.
    pub thread: Thread,
    /// The time.
    pub ns: u64,
}

/// A mapping of a process, as the C shim fills it in.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Bytes.
    pub length: u64,
    /// Byte of the file at `start`.
    pub offset: u64,
    /// The file's inode; 0 without a file.
    pub inode: u64,
    /// Which of the files that had this inode.
    pub generation: u64,
    /// Device of the file.
    pub major: u32,
    /// Device of the file.
    pub minor: u32,
    /// `PROT_*` of mmap(2).
    pub protection: u32,
    /// `MAP_*` of mmap(2), as far as perf_event tells them.
    pub flags: u32,
}
const _: () = assert!(core::mem::size_of::<Mapping>() == 56);

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happening<'a> {
    /// A mapping was made, or its protection changed.
    Mapped {
        /// The mapping.
        mapping: &'a Mapping,
        /// The file's path, or what the kernel calls memory without one.
        name: &'a [u8],
    },
    /// A thread got another name.
    Named {
        /// The thread.
        thread: Thread,
        /// `comm`.
        name: &'a [u8],
        /// By its process's execve.
        exec: bool,
    },
    /// A thread made another one, or a process.
    Forked {
        /// The thread.
        parent: Thread,
        /// The other one.
        child: Thread,
    },
    /// The thread that runs ends.
    Exited,
}

/// A record that is being put together.
struct Record<'a> {
    kind: u32,
    misc: u16,
    fields: [u8; FIELDS],
    used: usize,
    name: Option<&'a [u8]>,
}

impl<'a> Record<'a> {
    const fn new(kind: u32, misc: u16) -> Self {
        Self { kind, misc, fields: [0; FIELDS], used: 0, name: None }
    }

    fn field(mut self, bytes: &[u8]) -> Self {
        self.fields[self.used..self.used + bytes.len()].copy_from_slice(bytes);
        self.used += bytes.len();
        self
    }

    fn u32(self, value: u32) -> Self {
        self.field(&value.to_le_bytes())
    }

    fn u64(self, value: u64) -> Self {
        self.field(&value.to_le_bytes())
    }

    fn thread(self, thread: Thread) -> Self {
        self.u32(thread.pid).u32(thread.tid)
    }

    fn named(mut self, name: &'a [u8]) -> Self {
        self.name = Some(&name[..name.len().min(NAME_BYTES - 1)]);
        self
    }

    /// The name, if there is one, with at least one NUL behind it, to a multiple of 8 bytes.
    const fn name_bytes(&self) -> usize {
        match self.name {
            None => 0,
            Some(name) => (name.len() / 8 + 1) * 8,
        }
    }

    const fn size(&self) -> usize {
        HEADER + self.used + self.name_bytes() + SAMPLE_ID
    }
}

fn record<'a>(moment: &Moment, happening: &Happening<'a>) -> Record<'a> {
    match *happening {
        Happening::Mapped { mapping, name } => {
            let data = if mapping.protection & EXECUTABLE == 0 { SPECIAL } else { 0 };
            Record::new(MMAP2, USER | data)
                .thread(moment.thread)
                .u64(mapping.start)
                .u64(mapping.length)
                .u64(mapping.offset)
                .u32(mapping.major)
                .u32(mapping.minor)
                .u64(mapping.inode)
                .u64(mapping.generation)
                .u32(mapping.protection)
                .u32(mapping.flags)
                .named(name)
        }
        Happening::Named { thread, name, exec } => {
            Record::new(COMM, if exec { SPECIAL } else { 0 }).thread(thread).named(name)
        }
        Happening::Forked { parent, child } => pedigree(FORK, child, parent, moment.ns),
        Happening::Exited => pedigree(EXIT, moment.thread, Thread { pid: 0, tid: 0 }, moment.ns),
    }
}

/// A thread and its parent (for an exit nobody: it does not matter any more).
fn pedigree<'a>(kind: u32, thread: Thread, parent: Thread, ns: u64) -> Record<'a> {
    let record = Record::new(kind, 0).u32(thread.pid).u32(parent.pid);
    record.u32(thread.tid).u32(parent.tid).u64(ns)
}

/// Records that wait to be read, in memory that the caller keeps: [`QUEUE_BYTES`] of it, always the same.
#[derive(Debug)]
pub struct Queue {
    /// Bytes written and read since the start; both stand between records.
    written: u64,
    read: u64,
    /// Records that found no room and were not told of, and when the last of them came.
    lost: u64,
    lost_at: Moment,
}

impl Default for Queue {
    fn default() -> Self {
        Self::new()
    }
}

impl Queue {
    /// Without a record.
    #[must_use]
    pub const fn new() -> Self {
        let nobody = Moment { thread: Thread { pid: 0, tid: 0 }, ns: 0 };
        Self { written: 0, read: 0, lost: 0, lost_at: nobody }
    }

    /// Bytes that wait.
    #[must_use]
    pub const fn waiting(&self) -> usize {
        self.written.wrapping_sub(self.read) as usize
    }

    /// As [`Queue::waiting`], with what is still to be told of losses.
    #[must_use]
    pub const fn waiting_with_losses(&self) -> usize {
        self.waiting() + if self.lost > 0 { LOST_BYTES } else { 0 }
    }

    /// Whether there is anything to read.
    #[must_use]
    pub const fn is_readable(&self) -> bool {
        self.waiting_with_losses() > 0
    }

    /// Adds what happened, or counts it as lost where there is no room.
    pub fn push(&mut self, memory: &mut [u8], moment: &Moment, happening: &Happening<'_>) {
        self.tell_lost(memory);
        if self.lost > 0 || !self.write(memory, moment, &record(moment, happening)) {
            self.lose(moment);
        }
    }

    /// Counts something that happened and was not told.
    pub fn lose(&mut self, moment: &Moment) {
        self.lost += 1;
        self.lost_at = *moment;
    }

    /// Moves whole records to `to`, as many as it has room for; how many bytes that were. 0 when nothing waits, or the next one is longer
    /// than `to`.
    pub fn take(&mut self, memory: &mut [u8], to: &mut [u8]) -> usize {
        self.tell_lost(memory);
        let mut taken = 0;
        while self.waiting() > 0 {
            let mut header = [0; HEADER];
            self.copy_out(memory, &mut header);
            let size = usize::from(u16::from_le_bytes([header[6], header[7]]));
            let Some(room) = to.get_mut(taken..taken + size) else { break };
            self.copy_out(memory, room);
            self.read += size as u64;
            taken += size;
        }
        taken
    }

    /// Tells how many were lost, as soon as there is room for that.
    fn tell_lost(&mut self, memory: &mut [u8]) {
        let (lost, at) = (self.lost, self.lost_at);
        if lost > 0 && self.write(memory, &at, &Record::new(LOST, 0).u64(0).u64(lost)) {
            self.lost = 0;
        }
    }

    /// Whether there was room.
    fn write(&mut self, memory: &mut [u8], moment: &Moment, record: &Record<'_>) -> bool {
        let size = record.size();
        if size > memory.len() - self.waiting() {
            return false;
        }
        self.put(memory, &record.kind.to_le_bytes());
        self.put(memory, &record.misc.to_le_bytes());
        self.put(memory, &(size as u16).to_le_bytes());
        self.put(memory, &record.fields[..record.used]);
        let name = record.name.unwrap_or_default();
        self.put(memory, name);
        self.put(memory, &[0; 8][..record.name_bytes() - name.len()]);
        self.put(memory, &moment.thread.pid.to_le_bytes());
        self.put(memory, &moment.thread.tid.to_le_bytes());
        self.put(memory, &moment.ns.to_le_bytes());
        true
    }

    fn put(&mut self, memory: &mut [u8], bytes: &[u8]) {
        let start = self.written as usize % memory.len();
        let (first, rest) = bytes.split_at(bytes.len().min(memory.len() - start));
        memory[start..start + first.len()].copy_from_slice(first);
        memory[..rest.len()].copy_from_slice(rest);
        self.written += bytes.len() as u64;
    }

    /// The next bytes to read, which stay.
    fn copy_out(&self, memory: &[u8], to: &mut [u8]) {
        let start = self.read as usize % memory.len();
        let (first, rest) = to.split_at_mut(to.len().min(memory.len() - start));
        first.copy_from_slice(&memory[start..start + first.len()]);
        rest.copy_from_slice(&memory[..rest.len()]);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec;
    use std::vec::Vec;

    use super::*;

    const THREAD: Thread = Thread { pid: 7, tid: 8 };
    const MEMORY: usize = 1000;

    fn at(ns: u64) -> Moment {
        Moment { thread: THREAD, ns }
    }

    /// Each record of what was taken: its type, its body without the end, and its time.
    fn records(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>, u64)> {
        let mut records = Vec::new();
        while let Some((head, _)) = bytes.split_first_chunk::<HEADER>() {
            let size = usize::from(u16::from_le_bytes([head[6], head[7]]));
            assert!(size % 8 == 0 && size <= bytes.len(), "{size} of {}", bytes.len());
            let (record, rest) = bytes.split_at(size);
            let (body, end) = record[HEADER..].split_at(size - HEADER - SAMPLE_ID);
            assert_eq!(end[..8], [7, 0, 0, 0, 8, 0, 0, 0]);
            let kind = u32::from_le_bytes(head[..4].try_into().unwrap());
            records.push((kind, body.to_vec(), u64::from_le_bytes(end[8..].try_into().unwrap())));
            bytes = rest;
        }
        records
    }

    fn take(queue: &mut Queue, memory: &mut [u8], room: usize) -> Vec<(u32, Vec<u8>, u64)> {
        let mut to = vec![0; room];
        let taken = queue.take(memory, &mut to);
        records(&to[..taken])
    }

    #[test]
    fn a_mapping_is_told_as_perf_event_lays_it_out() {
        let (mut queue, mut memory) = (Queue::new(), vec![0; QUEUE_BYTES]);
        let mapping =
            Mapping { start: 0x1000, length: 0x2000, offset: 3, protection: 5, ..Default::default() };
        queue.push(&mut memory, &at(9), &Happening::Mapped { mapping: &mapping, name: b"/bin/true" });
        let taken = take(&mut queue, &mut memory, QUEUE_BYTES);
        let [(MMAP2, body, 9)] = &taken[..] else { panic!("{taken:?}") };
        assert_eq!(body[..8], [7, 0, 0, 0, 8, 0, 0, 0]);
        assert_eq!((body[8 + 1], body[16 + 1], body[24], body[56]), (0x10, 0x20, 3, 5));
        assert_eq!(&body[64..], b"/bin/true\0\0\0\0\0\0\0");
        assert!(!queue.is_readable());
    }

    #[test]
    fn a_name_without_letters_still_ends() {
        let (mut queue, mut memory) = (Queue::new(), vec![0; MEMORY]);
        queue.push(&mut memory, &at(1), &Happening::Named { thread: THREAD, name: b"", exec: false });
        assert_eq!(take(&mut queue, &mut memory, MEMORY)[0].1[8..], [0; 8]);
    }

    #[test]
    fn the_longest_record_fits_where_it_says() {
        let (mut queue, mut memory) = (Queue::new(), vec![0; RECORD_BYTES]);
        let name = [b'a'; 2 * NAME_BYTES];
        let mapping = Mapping::default();
        queue.push(&mut memory, &at(1), &Happening::Mapped { mapping: &mapping, name: &name });
        assert_eq!(queue.waiting(), RECORD_BYTES);
        assert!(take(&mut queue, &mut memory, RECORD_BYTES - 1).is_empty(), "whole records only");
        assert_eq!(take(&mut queue, &mut memory, RECORD_BYTES).len(), 1);
    }

    /// Each happening has a number; what is read has every number once, or tells where and how many are missing.
    #[test]
    fn all_is_told_or_told_to_be_lost() {
        let (mut queue, mut memory, mut random) = (Queue::new(), vec![0; MEMORY], 1_u64);
        let (mut next, mut lost) = (1, 0);
        let mut account = |records: Vec<(u32, Vec<u8>, u64)>| {
            for (kind, body, ns) in records {
                if kind == LOST {
                    let number = u64::from_le_bytes(body[8..].try_into().unwrap());
                    next += number;
                    lost += number;
                } else {
                    assert_eq!(ns, next);
                    next += 1;
                }
            }
            (next, lost)
        };
        for ns in 1..=100_000 {
            // Knuth's MMIX generator; its high bits are good enough.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let name = &[b'x'; 300][..(random >> 40) as usize % 300];
            queue.push(&mut memory, &at(ns), &Happening::Named { thread: THREAD, name, exec: false });
            if random >> 62 == 0 {
                account(take(&mut queue, &mut memory, (random >> 50) as usize % 1200));
            }
        }
        while queue.is_readable() {
            account(take(&mut queue, &mut memory, MEMORY));
        }
        let (next, lost) = account(Vec::new());
        assert_eq!(next, 100_001);
        assert!((1000..99_000).contains(&lost), "{lost} lost");
    }
}
