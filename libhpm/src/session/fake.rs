//! A device in memory that publishes quanta as the driver would: one memory file with the session's areas at their offsets,
//! and an event descriptor to poll. It keeps the driver's side of [`hpm_abi::area`]: it never writes what was not given
//! back, and counts what finds no room as lost.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;

use hpm_abi::{
    CONTROL_OFFSET, CoreType, CounterReading, CpuControl, CpuStatus, Info, NO_EVENT, Quantum, QuantumEnd,
    QuantumFlags, Reason, SEGMENT_BYTES, STATUS_OFFSET, SessionConfig, StatusHead, Totals, quanta_offset,
    segments_offset, stacks_offset,
};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::memfd::{MFdFlags, memfd_create};
use zerocopy::IntoBytes;

use crate::sys::device::{Command, Denied, Device};

/// Bytes of a record of format 3.
pub(crate) const RECORD: usize = 200;
const SEGMENT: u64 = SEGMENT_BYTES as u64;

/// The fake driver.
pub(crate) struct Fake {
    memory: File,
    ready: EventFd,
    cpus: u32,
    config: Cell<SessionConfig>,
    state: RefCell<Vec<Cpu>>,
    totals: Cell<Totals>,
    /// What the next request is answered with, instead of being carried out.
    pub(crate) deny: Cell<Option<Denied>>,
    /// What is said to who wants more segments than these.
    pub(crate) deny_above: Cell<Option<(u32, Denied)>>,
    /// What is said to who wants large segments.
    pub(crate) deny_large: Cell<Option<Denied>>,
    pub(crate) pmu_name: Cell<[u8; 32]>,
    /// Whether its processor is hybrid: events have to say for which cores they are.
    pub(crate) hybrid: Cell<bool>,
    pub(crate) commands: RefCell<Vec<Command>>,
}

/// The driver's state of one CPU.
#[derive(Clone, Copy, Default)]
struct Cpu {
    status: CpuStatus,
    sequence: u64,
    /// Bytes used of the current segment.
    filled: u64,
    lost_before: bool,
}

/// A stay to publish.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stay {
    pub(crate) tid: u32,
    pub(crate) records: u64,
    pub(crate) stack: u32,
    pub(crate) count: u64,
}

impl Fake {
    pub(crate) fn new(cpus: u32) -> Self {
        let memory = File::from(memfd_create(c"hpm", MFdFlags::MFD_CLOEXEC).unwrap());
        // Sparse: the areas lie as far apart as in the device.
        memory.set_len(1 << 47).unwrap();
        let fake = Self {
            memory,
            ready: EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).unwrap(),
            cpus,
            config: Cell::default(),
            state: RefCell::new(vec![Cpu::default(); cpus as usize]),
            totals: Cell::default(),
            deny: Cell::default(),
            deny_above: Cell::default(),
            deny_large: Cell::default(),
            pmu_name: Cell::default(),
            hybrid: Cell::default(),
            commands: RefCell::default(),
        };
        fake.write(
            STATUS_OFFSET + offset_of!(StatusHead, version) as u64,
            &hpm_abi::ABI_VERSION.to_ne_bytes(),
        );
        fake.write(STATUS_OFFSET + offset_of!(StatusHead, cpus) as u64, &cpus.to_ne_bytes());
        fake
    }

    /// Publishes a stay on a CPU, or loses what finds no room. Each record's RIP is `tid`, and its TSC the number of the
    /// record on its CPU; each stack byte is the low byte of `tid`.
    pub(crate) fn publish(&self, cpu: usize, stay: Stay) {
        let config = self.config.get();
        let consumed = self.consumed(cpu);
        let mut state = self.state.borrow_mut();
        let state = &mut state[cpu];
        let mut quantum = self.quantum(cpu, state, stay);
        state.sequence += 1;
        self.add_totals(stay);
        if state.status.quanta_produced - consumed.quanta_consumed >= u64::from(config.quanta) {
            state.status.quanta_lost += 1;
            state.lost_before = true;
            return self.store_status(cpu, &state.status);
        }
        if config.segments > 0 {
            self.write_records(cpu, state, &consumed, stay, &mut quantum);
        }
        if stay.stack > 0 {
            self.write_stack(cpu, state, &consumed, stay, &mut quantum);
        }
        if std::mem::take(&mut state.lost_before) {
            quantum.flags |= QuantumFlags::QUANTA_LOST_BEFORE;
        }
        let slot = state.status.quanta_produced % u64::from(config.quanta);
        self.write_quantum(cpu, slot, &quantum);
        state.status.quanta_produced += 1;
        self.store_status(cpu, &state.status);
        self.ready.write(1).unwrap();
    }

    /// Writes a quantum as it is, whatever it says, and publishes it.
    pub(crate) fn publish_raw(&self, cpu: usize, change: impl FnOnce(&mut Quantum)) {
        let state = &mut self.state.borrow_mut()[cpu];
        let mut quantum = self.quantum(cpu, state, Stay::default());
        change(&mut quantum);
        self.write_quantum(cpu, state.status.quanta_produced, &quantum);
        state.status.quanta_produced += 1;
        self.store_status(cpu, &state.status);
    }

    pub(crate) fn target_gone(&self) {
        self.write(STATUS_OFFSET + offset_of!(StatusHead, target_gone) as u64, &1_u32.to_ne_bytes());
        self.ready.write(1).unwrap();
    }

    /// What the driver counted as lost or produced.
    pub(crate) fn status(&self, cpu: usize) -> CpuStatus {
        self.state.borrow()[cpu].status
    }

    /// What the reader has given back.
    pub(crate) fn consumed(&self, cpu: usize) -> CpuControl {
        let read = |offset: usize| {
            let mut bytes = [0; 8];
            let at = CONTROL_OFFSET + (cpu * size_of::<CpuControl>() + offset) as u64;
            self.memory.read_exact_at(&mut bytes, at).unwrap();
            u64::from_ne_bytes(bytes)
        };
        CpuControl {
            quanta_consumed: read(offset_of!(CpuControl, quanta_consumed)),
            segments_consumed: read(offset_of!(CpuControl, segments_consumed)),
            stack_consumed: read(offset_of!(CpuControl, stack_consumed)),
            ..CpuControl::default()
        }
    }

    fn quantum(&self, cpu: usize, state: &Cpu, stay: Stay) -> Quantum {
        let mut counts = [0; hpm_abi::EVENTS_MAX];
        counts[0] = stay.count;
        let mut counter_event = [NO_EVENT; hpm_abi::SAMPLING_COUNTERS_MAX];
        counter_event[1] = 0;
        let mut sampler_counter = [NO_EVENT; hpm_abi::SAMPLING_COUNTERS_MAX];
        sampler_counter[1] = 1;
        let mut periods = [0; hpm_abi::SAMPLING_COUNTERS_MAX];
        periods[1] = 1000;
        Quantum {
            sequence: state.sequence,
            start_tsc: state.sequence * 100,
            end_tsc: state.sequence * 100 + 50,
            pid: stay.tid,
            tid: stay.tid,
            cpu: cpu as u32,
            end: QuantumEnd::Yielded as u16,
            flags: if self.config.get().frames > 0 { QuantumFlags::STACK_FRAMES } else { 0 },
            last_ip: 0,
            segment: 0,
            span_offset: 0,
            span_bytes: 0,
            record_size: RECORD as u16,
            record_format: 3,
            count_len: self.config.get().event_count,
            pebs_enable: 0b10,
            pebs_data_cfg: 0,
            records_lost: 0,
            stack_offset: 0,
            stack_bytes: 0,
            active: (1 << self.config.get().event_count) - 1,
            absent: 0,
            counter_event,
            sampler_counter,
            counts,
            periods,
        }
    }

    /// As many records as the current segment, or else the next if it is free, has room for; the others are lost.
    fn write_records(
        &self,
        cpu: usize,
        state: &mut Cpu,
        consumed: &CpuControl,
        stay: Stay,
        quantum: &mut Quantum,
    ) {
        let room = |filled: u64| (SEGMENT - filled) / RECORD as u64;
        let free =
            state.status.segments_begun - consumed.segments_consumed < u64::from(self.config.get().segments);
        if (state.status.segments_begun == 0 || room(state.filled) < stay.records) && free {
            state.status.segments_begun += 1;
            state.filled = 0;
        }
        let segment = state.status.segments_begun.saturating_sub(1);
        let fits = stay.records.min(room(state.filled));
        let place = segment % u64::from(self.config.get().segments) * SEGMENT + state.filled;
        let mut words = vec![0_u64; fits as usize * RECORD / 8];
        for (index, record) in words.chunks_exact_mut(RECORD / 8).enumerate() {
            (record[1], record[18], record[24]) = (stay.tid.into(), 0b10, index as u64);
        }
        self.write(segments_offset(cpu as u32) + place, words.as_bytes());
        (quantum.segment, quantum.span_offset) = (segment, state.filled as u32);
        quantum.span_bytes = (fits * RECORD as u64) as u32;
        quantum.records_lost = stay.records - fits;
        quantum.flags |= if fits < stay.records { QuantumFlags::RECORDS_LOST } else { 0 };
        state.status.records_lost += stay.records - fits;
        state.filled += fits * RECORD as u64;
    }

    /// A stack that does not wrap: what is left at the ring's end is skipped when it is too short.
    fn write_stack(
        &self,
        cpu: usize,
        state: &mut Cpu,
        consumed: &CpuControl,
        stay: Stay,
        quantum: &mut Quantum,
    ) {
        let ring = u64::from(self.config.get().stack_ring_bytes);
        let bytes = u64::from(stay.stack);
        let produced = state.status.stack_produced;
        let left = ring - produced % ring;
        let start = if left < bytes { produced + left } else { produced };
        if start + bytes - consumed.stack_consumed > ring {
            quantum.flags |= QuantumFlags::STACK_LOST;
            return;
        }
        self.write(stacks_offset(cpu as u32) + start % ring, &vec![stay.tid as u8; stay.stack as usize]);
        (quantum.stack_offset, quantum.stack_bytes) = (start, stay.stack);
        state.status.stack_produced = start + bytes;
    }

    fn add_totals(&self, stay: Stay) {
        let mut totals = self.totals.get();
        totals.counts[0] += stay.count;
        self.totals.set(totals);
    }

    fn write_quantum(&self, cpu: usize, slot: u64, quantum: &Quantum) {
        let q = quantum;
        let head = [q.sequence, q.start_tsc, q.end_tsc, words(q.pid, q.tid)];
        let ends = u64::from(q.cpu) | u64::from(q.end) << 32 | u64::from(q.flags) << 48;
        let shape =
            u64::from(q.record_size) | u64::from(q.record_format) << 16 | u64::from(q.count_len) << 32;
        let tail = [ends, q.last_ip, q.segment, words(q.span_offset, q.span_bytes), shape, q.pebs_enable];
        let stack = [
            q.pebs_data_cfg,
            q.records_lost,
            q.stack_offset,
            words(q.stack_bytes, u32::from(q.active) | u32::from(q.absent) << 16),
        ];
        let counter_event = [u64::from_ne_bytes(q.counter_event), u64::from_ne_bytes(q.sampler_counter)];
        let all = [&head[..], &tail, &stack, &counter_event, &q.counts, &q.periods].concat();
        assert_eq!(all.len() * 8, size_of::<Quantum>());
        self.write(quanta_offset(cpu as u32) + slot * size_of::<Quantum>() as u64, all.as_bytes());
    }

    fn store_status(&self, cpu: usize, status: &CpuStatus) {
        let base = STATUS_OFFSET + (size_of::<StatusHead>() + cpu * size_of::<CpuStatus>()) as u64;
        let CpuStatus { quanta_produced, segments_begun, stack_produced, quanta_lost, records_lost, .. } =
            *status;
        // What quanta name first, then their number, as the driver's release store has it.
        self.write(base + 8, [segments_begun, stack_produced, quanta_lost, records_lost].as_bytes());
        self.write(base, &quanta_produced.to_ne_bytes());
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        self.memory.write_all_at(bytes, offset).unwrap();
    }

    fn answer(&self) -> Result<(), Denied> {
        self.deny.take().map_or(Ok(()), Err)
    }
}

fn words(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl Device for &Fake {
    fn info(&self) -> Result<Info, Denied> {
        self.answer()?;
        let pmu_name = self.pmu_name.get();
        Ok(Info { cpus: self.cpus, tsc_khz: 3_000_000, pmu_name, ..Info::default() })
    }

    fn configure(&self, config: &mut SessionConfig) -> Result<(), Denied> {
        self.answer()?;
        if let Some((_, denied)) = self.deny_above.get().filter(|(most, _)| config.segments > *most) {
            return Err(denied);
        }
        if let (Some(denied), 1..) = (self.deny_large.get(), config.segment_bytes) {
            return Err(denied);
        }
        let mut events = config.events.iter().take(config.event_count as usize);
        let untyped = events.position(|event| event.core_type == CoreType::Any as u8);
        if let (Some(index), true) = (untyped, self.hybrid.get()) {
            let reason = Reason::CoreTypeMissing as u32;
            return Err(Denied { errno: libc::EINVAL, reason, detail: [index as u64, 0] });
        }
        config.segment_bytes = SEGMENT_BYTES;
        self.config.set(*config);
        Ok(())
    }

    fn command(&self, command: Command) -> Result<(), Denied> {
        self.answer()?;
        self.commands.borrow_mut().push(command);
        Ok(())
    }

    fn totals(&self) -> Result<Totals, Denied> {
        self.answer()?;
        Ok(self.totals.get())
    }

    fn counters(&self, tid: i32) -> Result<u32, Denied> {
        self.answer()?;
        Ok(tid as u32)
    }

    fn read(&self, page: u32) -> Result<CounterReading, Denied> {
        self.answer()?;
        let totals = self.totals.get();
        Ok(CounterReading { page, tid: page, counts: totals.counts, ..CounterReading::default() })
    }

    fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }
}

impl AsFd for &Fake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }
}
