//! Records of a perf.data file, as what they say.

use linux_perf_data::linux_perf_event_reader::{
    CommonData, ContextSwitchRecord, CpuMode, EventRecord, Mmap2FileId, RawData, RawEventRecord, ReadFormat,
    RecordType, SampleFormat, SampleRecord, TaskWasPreempted,
};

use super::bytes::u64_at;
use crate::sideband::{Change, Entry, FileId, Mapping, build_id_fits};
use crate::source::perf::record::{Switch, SwitchKind, Taken, chain, registers, stack};

/// `PERF_RECORD_MISC_EXACT_IP`: the address is that of the instruction that caused the event.
const EXACT_IP: u16 = 1 << 14;
/// `PERF_RECORD_MISC_MMAP_DATA`: the mapping is of data.
const MMAP_DATA: u16 = 1 << 13;
/// `pid` of the kernel's own mappings.
const KERNEL_PID: i32 = -1;

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A mapping, name, fork, exit or loss.
    Report(Change),
    /// Where the kernel is: the path names a symbol, and the file offset is its address.
    Kernel(Mapping),
    /// A thread was switched to or away from.
    Switch(SwitchKind),
    /// A sample, and whether hardware says that its address is exact.
    Sample(Box<Taken>, bool),
    /// A sample of a guest, whose addresses are not this machine's.
    Guest,
    /// The kernel held samples back.
    Throttled,
    /// Nothing of interest.
    Nothing,
}

/// A record with its time in ns, and who it is about. What a record does not say is 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) ns: Option<u64>,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) cpu: u32,
    pub(super) what: What,
}

impl Told {
    /// As the side band has it.
    pub(super) fn entry(&self, ns: u64, change: Change) -> Entry {
        Entry { monotonic_raw_ns: ns, pid: self.pid, tid: self.tid, change }
    }

    /// As a switch.
    pub(super) fn switch(&self, kind: SwitchKind) -> Switch {
        Switch { cpu: self.cpu, pid: self.pid, tid: self.tid, kind }
    }
}

/// What is to be known of an event to understand its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// What a sample stands for that does not say so.
    pub(super) period: u64,
    /// What was read of counters ends in how many samples were lost (`PERF_FORMAT_LOST`, which linux-perf-event-reader 0.10.2
    /// does not know).
    pub(super) read_lost: bool,
}

/// Understands a record; `None` for one that is damaged.
pub(super) fn told(record: &RawEventRecord<'_>, layout: Layout) -> Option<Told> {
    if record.record_type == RecordType::SAMPLE {
        return sample(record, layout);
    }
    if !is_sound(record) {
        return None;
    }
    let common = record.common_data().ok()?;
    let parsed = record.parse().ok()?;
    let of = |pid: i32, tid: i32, what| told_of(&common, pid, tid, what);
    Some(match parsed {
        EventRecord::Mmap2(map) => {
            let (start, offset) = (map.address, map.page_offset);
            let executable = map.protection & libc::PROT_EXEC as u32 != 0;
            let file = match map.file_id {
                Mmap2FileId::BuildId(id) => FileId::BuildId(id),
                // Of the machine that recorded.
                Mmap2FileId::InodeAndVersion(_) => FileId::Untold,
            };
            let mapping = mapping((start, map.length), offset, map.path, executable);
            of(map.pid, map.tid, map_of(map.pid, Mapping { file, ..mapping }))
        }
        EventRecord::Mmap(map) => {
            let executable = record.misc & MMAP_DATA == 0;
            let mapping = mapping((map.address, map.length), map.page_offset, map.path, executable);
            of(map.pid, map.tid, map_of(map.pid, mapping))
        }
        EventRecord::Comm(comm) => {
            let name = crate::text::name(&comm.name.as_slice());
            of(comm.pid, comm.tid, What::Report(Change::Name { name, exec: comm.is_execve }))
        }
        EventRecord::Fork(fork) => {
            let change = Change::Fork { parent_pid: fork.ppid as u32, parent_tid: fork.ptid as u32 };
            of(fork.pid, fork.tid, What::Report(change))
        }
        EventRecord::Exit(exit) => of(exit.pid, exit.tid, What::Report(Change::Exit)),
        EventRecord::Lost(lost) => of(0, 0, What::Report(Change::Lost(lost.count))),
        EventRecord::Throttle(_) => of(0, 0, What::Throttled),
        EventRecord::ContextSwitch(switch) => of(common.pid?, common.tid?, What::Switch(kind(&switch))),
        EventRecord::Raw(raw) if raw.record_type == RecordType::LOST_SAMPLES => {
            let lost = u64_at(&raw.data.as_slice(), 0)?;
            of(0, 0, What::Report(Change::Lost(lost)))
        }
        _ => of(0, 0, What::Nothing),
    })
}

fn told_of(common: &CommonData, pid: i32, tid: i32, what: What) -> Told {
    let (pid, tid) = (pid as u32, tid as u32);
    Told { ns: common.timestamp, pid, tid, cpu: common.cpu.unwrap_or(0), what }
}

fn kind(switch: &ContextSwitchRecord) -> SwitchKind {
    match switch {
        ContextSwitchRecord::In { .. } => SwitchKind::In,
        ContextSwitchRecord::Out { preempted: TaskWasPreempted::Yes, .. } => SwitchKind::Preempted,
        ContextSwitchRecord::Out { .. } => SwitchKind::Yielded,
    }
}

fn mapping((start, length): (u64, u64), file_offset: u64, path: RawData<'_>, executable: bool) -> Mapping {
    let path = String::from_utf8_lossy(&path.as_slice()).into_owned();
    Mapping { start, end: start.saturating_add(length), file_offset, path, executable, file: FileId::Untold }
}

fn map_of(pid: i32, mapping: Mapping) -> What {
    if pid == KERNEL_PID { What::Kernel(mapping) } else { What::Report(Change::Map(mapping)) }
}

/// Whether a record is one that a kernel writes: linux-perf-event-reader (0.10.2) takes the length of a build ID on trust, and
/// panics on an absurd one.
fn is_sound(record: &RawEventRecord<'_>) -> bool {
    record.record_type != RecordType::MMAP2 || build_id_fits(record.misc, &record.data.as_slice())
}

fn sample(record: &RawEventRecord<'_>, layout: Layout) -> Option<Told> {
    let bytes = record.data.as_slice();
    let mut info = record.parse_info;
    let before = bytes_before_read(info.sample_format);
    let mut data = RawData::Single(&bytes);
    if info.sample_format.contains(SampleFormat::READ) {
        // What was read of the counters is left out: linux-perf-event-reader (0.10.2) mistakes groups for single events and
        // single events for groups.
        let read = bytes_of_read(info.read_format, layout.read_lost, &bytes, before)?;
        data = RawData::Split(bytes.get(..before)?, bytes.get(before.checked_add(read)?..)?);
        info.sample_format.remove(SampleFormat::READ);
    }
    if info.sample_format.contains(SampleFormat::CALLCHAIN) {
        // The number of addresses is taken on trust, too.
        let number = u64_at(&data.as_slice(), before as u64)?;
        if number > bytes.len() as u64 / 8 {
            return None;
        }
    }
    let raw = RawEventRecord::new(record.record_type, record.misc, data, info);
    let EventRecord::Sample(sample) = raw.parse().ok()? else { return None };
    let taken = taken(&sample, layout.period);
    let (pid, tid, cpu) = (taken.pid, taken.tid, taken.cpu);
    let guest = matches!(sample.cpu_mode, CpuMode::GuestKernel | CpuMode::GuestUser);
    let what = if guest { What::Guest } else { What::Sample(Box::new(taken), record.misc & EXACT_IP != 0) };
    Some(Told { ns: sample.timestamp, pid, tid, cpu, what })
}

fn taken(sample: &SampleRecord<'_>, period: u64) -> Taken {
    Taken {
        id: sample.id.unwrap_or(0),
        cpu: sample.cpu.unwrap_or(0),
        pid: sample.pid.unwrap_or(0) as u32,
        tid: sample.tid.unwrap_or(0) as u32,
        ip: sample.ip.unwrap_or(0),
        address: sample.addr.unwrap_or(0),
        period: sample.period.unwrap_or(period),
        chain: chain(sample),
        registers: registers(sample),
        stack: stack(sample),
    }
}

/// Bytes of the fields before what was read of the counters (perf_event_open(2)).
fn bytes_before_read(format: SampleFormat) -> usize {
    let before = SampleFormat::IDENTIFIER
        | SampleFormat::IP
        | SampleFormat::TID
        | SampleFormat::TIME
        | SampleFormat::ADDR
        | SampleFormat::ID
        | SampleFormat::STREAM_ID
        | SampleFormat::CPU
        | SampleFormat::PERIOD;
    (format & before).bits().count_ones() as usize * 8
}

/// Bytes of what was read of the counters (perf_event_open(2), "Reading results").
fn bytes_of_read(format: ReadFormat, lost: bool, bytes: &[u8], at: usize) -> Option<usize> {
    let count = |formats: ReadFormat| (format & formats).bits().count_ones() as usize;
    let times = count(ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING);
    let each = 1 + count(ReadFormat::ID) + usize::from(lost);
    let words = if format.contains(ReadFormat::GROUP) {
        let number = usize::try_from(u64_at(bytes, at as u64)?).ok()?;
        number.checked_mul(each)?.checked_add(1 + times)?
    } else {
        times + each
    };
    words.checked_mul(8)
}
