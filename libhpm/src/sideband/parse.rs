//! Records of the side band's ring as [`Entry`].

use linux_perf_event_reader::{
    BranchSampleFormat, Endianness, EventRecord, Mmap2Record, RawData, RawEventRecord, ReadFormat,
    RecordIdParseInfo, RecordParseInfo, RecordType, SampleFormat,
};

use super::{Change, Entry, Mapping};
use crate::sys::perf::SAMPLE_TYPE;

/// Knows what was asked for, and so how each record ends.
#[derive(Debug)]
pub(super) struct Parser(RecordParseInfo);

impl Parser {
    pub(super) fn new() -> Self {
        // Each record ends in the sample_id of perf_event_open(2): with [`SAMPLE_TYPE`], thread and time, 8 bytes each.
        Self(RecordParseInfo {
            endian: Endianness::LittleEndian,
            sample_format: SampleFormat::from_bits_truncate(SAMPLE_TYPE),
            branch_sample_format: BranchSampleFormat::empty(),
            read_format: ReadFormat::empty(),
            common_data_offset_from_end: Some(16),
            sample_regs_user: 0,
            user_regs_count: 0,
            sample_regs_intr: 0,
            intr_regs_count: 0,
            id_parse_info: RecordIdParseInfo {
                nonsample_record_id_offset_from_end: None,
                sample_record_id_offset_from_start: None,
            },
            nonsample_record_time_offset_from_end: Some(8),
            sample_record_time_offset_from_start: None,
        })
    }

    /// The entry that a record is; `None` for one that says nothing of interest.
    pub(super) fn entry(&self, kind: u32, misc: u16, body: &[u8]) -> Option<Entry> {
        let raw = RawEventRecord::new(RecordType(kind), misc, RawData::Single(body), self.0);
        let common = raw.common_data().ok()?;
        let (pid, tid, change) = match raw.parse().ok()? {
            EventRecord::Mmap2(map) => (map.pid, map.tid, Change::Map(mapping(&map))),
            EventRecord::Comm(comm) => {
                let name = String::from_utf8_lossy(&comm.name.as_slice()).into_owned();
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

fn mapping(map: &Mmap2Record<'_>) -> Mapping {
    Mapping {
        start: map.address,
        end: map.address + map.length,
        file_offset: map.page_offset,
        path: String::from_utf8_lossy(&map.path.as_slice()).into_owned(),
        executable: map.protection & libc::PROT_EXEC as u32 != 0,
    }
}
