//! Records of the side band's ring as [`Entry`].

use linux_perf_event_reader::{
    BranchSampleFormat, Endianness, EventRecord, Mmap2FileId, Mmap2Record, RawData, RawEventRecord,
    ReadFormat, RecordIdParseInfo, RecordParseInfo, RecordType, SampleFormat,
};
use perf_event_open_sys::bindings::PERF_RECORD_MISC_MMAP_BUILD_ID;

use super::{Change, Entry, FileId, Mapping};

/// Knows what was asked for, and so how each record is laid out.
#[derive(Debug)]
pub(crate) struct Parser(RecordParseInfo);

impl Parser {
    /// For records of events that were opened with these `PERF_SAMPLE_*` bits, and these user registers.
    pub(crate) fn new(sample_type: u64, user_registers: u64) -> Self {
        let format = SampleFormat::from_bits_truncate(sample_type);
        let bytes = |fields: SampleFormat| (format & fields).bits().count_ones() as u8 * 8;
        // Each record but a sample ends in the sample_id of perf_event_open(2): TID, TIME, CPU and IDENTIFIER, as far as
        // they were asked for, 8 bytes each.
        let behind_time = SampleFormat::CPU | SampleFormat::IDENTIFIER;
        let behind_thread = SampleFormat::TIME | behind_time;
        Self(RecordParseInfo {
            endian: Endianness::LittleEndian,
            sample_format: format,
            branch_sample_format: BranchSampleFormat::empty(),
            read_format: ReadFormat::empty(),
            common_data_offset_from_end: Some(bytes(SampleFormat::TID | behind_thread)),
            sample_regs_user: user_registers,
            user_regs_count: user_registers.count_ones() as u8,
            sample_regs_intr: 0,
            intr_regs_count: 0,
            id_parse_info: RecordIdParseInfo {
                nonsample_record_id_offset_from_end: None,
                sample_record_id_offset_from_start: None,
            },
            nonsample_record_time_offset_from_end: Some(bytes(behind_thread)),
            sample_record_time_offset_from_start: None,
        })
    }

    /// Whether a record is one that the kernel writes for what was asked. The reader crate takes the number of a call chain's
    /// addresses and the length of a build ID on trust, and panics on absurd ones (seen with 0.10.2).
    pub(crate) fn is_sound(&self, kind: u32, misc: u16, body: &[u8]) -> bool {
        let format = self.0.sample_format;
        match RecordType(kind) {
            RecordType::MMAP2 => build_id_fits(misc, body),
            RecordType::SAMPLE if format.contains(SampleFormat::CALLCHAIN) => chain_fits(format, body),
            _ => true,
        }
    }

    /// The record with this type, `misc` and body.
    pub(crate) fn record<'a>(&self, kind: u32, misc: u16, body: &'a [u8]) -> RawEventRecord<'a> {
        RawEventRecord::new(RecordType(kind), misc, RawData::Single(body), self.0)
    }

    /// The entry that a record is; `None` for one that says nothing of interest.
    pub(crate) fn entry(&self, kind: u32, misc: u16, body: &[u8]) -> Option<Entry> {
        let raw = self.record(kind, misc, body);
        let common = raw.common_data().ok()?;
        let (pid, tid, change) = match raw.parse().ok()? {
            EventRecord::Mmap2(map) => (map.pid, map.tid, Change::Map(mapping(&map))),
            EventRecord::Comm(comm) => {
                let name = crate::text::name(&comm.name.as_slice());
                (comm.pid, comm.tid, Change::Name { name, exec: comm.is_execve })
            }
            EventRecord::Fork(fork) => {
                let change = Change::Fork { parent_pid: fork.ppid as u32, parent_tid: fork.ptid as u32 };
                (fork.pid, fork.tid, change)
            }
            EventRecord::Exit(exit) => (exit.pid, exit.tid, Change::Exit),
            EventRecord::Lost(lost) => (common.pid?, common.tid?, Change::Lost(lost.count)),
            _ => return None,
        };
        Some(Entry { monotonic_raw_ns: common.timestamp?, pid: pid as u32, tid: tid as u32, change })
    }
}

/// Whether the body of an mmap2 record has no build ID, or one of a possible length.
pub(crate) fn build_id_fits(misc: u16, body: &[u8]) -> bool {
    // Behind pid, tid, address, length and offset; there is room for a SHA-1.
    const LENGTH: usize = 32;
    let has_id = misc & PERF_RECORD_MISC_MMAP_BUILD_ID as u16 != 0;
    !has_id || body.get(LENGTH).is_some_and(|length| *length <= 20)
}

/// Whether a sample has room for its call chain.
fn chain_fits(format: SampleFormat, body: &[u8]) -> bool {
    // The number of addresses stands behind these fields, 8 bytes each.
    let before = SampleFormat::IDENTIFIER
        | SampleFormat::IP
        | SampleFormat::TID
        | SampleFormat::TIME
        | SampleFormat::ADDR
        | SampleFormat::ID
        | SampleFormat::STREAM_ID
        | SampleFormat::CPU
        | SampleFormat::PERIOD;
    let place = (format & before).bits().count_ones() as usize * 8;
    let number =
        body.get(place..).and_then(|rest| rest.first_chunk()).map(|bytes| u64::from_le_bytes(*bytes));
    number.is_some_and(|number| number <= body.len() as u64 / 8)
}

fn mapping(map: &Mmap2Record<'_>) -> Mapping {
    Mapping {
        start: map.address,
        end: map.address.saturating_add(map.length),
        file_offset: map.page_offset,
        path: String::from_utf8_lossy(&map.path.as_slice()).into_owned(),
        executable: map.protection & libc::PROT_EXEC as u32 != 0,
        file: match &map.file_id {
            Mmap2FileId::InodeAndVersion(file) if file.inode != 0 => {
                FileId::Inode(libc::makedev(file.major, file.minor), file.inode)
            }
            Mmap2FileId::InodeAndVersion(_) => FileId::Untold,
            Mmap2FileId::BuildId(id) => FileId::BuildId(id.clone()),
        },
    }
}
