//! Records of the side band as the kernel wrote them.

use perf_event_open_sys::bindings::{PERF_RECORD_MISC_MMAP_BUILD_ID, PERF_RECORD_MMAP2, perf_event_header};

use super::{Entry, Parser, SAMPLE_TIME_AND_THREAD};

/// Bytes of a record's head: its type, its `misc` and its size.
const HEADER: usize = size_of::<perf_event_header>();
const _: () = assert!(HEADER == 8);

/// Records that follow each other, each with its head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reports(Vec<u8>);

impl Reports {
    /// Those that these bytes are.
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// Adds one. The kernel makes none that is longer than its size can say, nor one that is not a multiple of 8 bytes.
    pub(super) fn push(&mut self, kind: u32, misc: u16, body: &[u8]) {
        let size = (HEADER + body.len()) as u16;
        self.0.extend(kind.to_ne_bytes());
        self.0.extend(misc.to_ne_bytes());
        self.0.extend(size.to_ne_bytes());
        self.0.extend(body);
    }

    /// Adds records as the driver wrote them.
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// All of them.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one tells code that was mapped from a file, and not the file's build ID.
    pub(crate) fn need_files(&self) -> bool {
        self.records().any(|(kind, misc, body)| needs_file(kind, misc, body))
    }

    /// What they say, in the order of time; what is no record of the kernel ends it.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let parser = Parser::new(SAMPLE_TIME_AND_THREAD, 0);
        let sound = self.records().filter(|&(kind, misc, body)| parser.is_sound(kind, misc, body));
        let mut entries: Vec<Entry> =
            sound.filter_map(|(kind, misc, body)| parser.entry(kind, misc, body)).collect();
        entries.sort_by_key(|entry| entry.monotonic_raw_ns);
        entries
    }

    /// Each one's type, `misc` and body.
    fn records(&self) -> impl Iterator<Item = (u32, u16, &[u8])> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let (head, behind) = rest.split_first_chunk::<HEADER>()?;
            let [k0, k1, k2, k3, m0, m1, s0, s1] = *head;
            let size = usize::from(u16::from_ne_bytes([s0, s1])).checked_sub(HEADER)?;
            let (body, left) = behind.split_at_checked(size)?;
            rest = left;
            Some((u32::from_ne_bytes([k0, k1, k2, k3]), u16::from_ne_bytes([m0, m1]), body))
        })
    }
}

/// Whether a record is of code mapped from a file whose build ID the kernel does not tell (perf_event_open(2), `PERF_RECORD_MMAP2`).
fn needs_file(kind: u32, misc: u16, body: &[u8]) -> bool {
    // Behind pid, tid, address, length, offset and the file's numbers; the path comes behind the flags.
    const PROTECTION: usize = 56;
    const PATH: usize = 64;
    kind == PERF_RECORD_MMAP2
        && misc & PERF_RECORD_MISC_MMAP_BUILD_ID as u16 == 0
        && body.get(PROTECTION).is_some_and(|bits| bits & libc::PROT_EXEC as u8 != 0)
        && body.get(PATH) == Some(&b'/')
}

#[cfg(test)]
mod tests {
    use hpm_core::Thread;
    use hpm_core::reports::{Happening, Mapping as Told, Moment, QUEUE_BYTES, Queue};

    use super::*;
    use crate::sideband::{Change, FileId, Mapping};

    /// The driver's records, by the reader of perf_event's.
    #[test]
    fn what_the_driver_tells_reads_like_what_perf_event_tells() {
        let thread = |pid, tid| Thread { pid, tid };
        let mapping = Told {
            start: 0x7f00_0000_1000,
            length: 0x3000,
            offset: 0x2000,
            inode: 1234,
            generation: 5,
            major: 254,
            minor: 1,
            protection: 5,
            flags: 2,
        };
        let (parent, child) = (thread(7, 8), thread(9, 9));
        let happenings = [
            Happening::Named { thread: thread(7, 8), name: b"loops", exec: true },
            Happening::Mapped { mapping: &mapping, name: b"/usr/bin/loops" },
            Happening::Named { thread: thread(7, 10), name: b"exactly8", exec: false },
            Happening::Forked { parent, child },
            Happening::Exited,
        ];
        let (mut queue, mut memory, mut read) = (Queue::new(), vec![0; QUEUE_BYTES], vec![0; QUEUE_BYTES]);
        for (ns, happening) in (100..).zip(&happenings) {
            queue.push(&mut memory, &Moment { thread: thread(7, 8), ns }, happening);
        }
        queue.lose(&Moment { thread: thread(7, 8), ns: 105 });
        let taken = queue.take(&mut memory, &mut read);
        let entry = |ns, pid, tid, change| Entry { monotonic_raw_ns: ns, pid, tid, change };
        let mapped = Mapping {
            start: 0x7f00_0000_1000,
            end: 0x7f00_0000_4000,
            file_offset: 0x2000,
            path: "/usr/bin/loops".into(),
            executable: true,
            file: FileId::Inode(libc::makedev(254, 1), 1234),
        };
        let expected = [
            entry(100, 7, 8, Change::Name { name: "loops".into(), exec: true }),
            entry(101, 7, 8, Change::Map(mapped)),
            entry(102, 7, 10, Change::Name { name: "exactly8".into(), exec: false }),
            entry(103, 9, 9, Change::Fork { parent_pid: 7, parent_tid: 8 }),
            entry(104, 7, 8, Change::Exit),
            entry(105, 7, 8, Change::Lost(1)),
        ];
        assert_eq!(Reports::of(&read[..taken]).entries(), expected);
    }
}
