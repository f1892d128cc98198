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
