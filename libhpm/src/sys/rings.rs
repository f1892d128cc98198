//! The mapped areas of a session.
//!
//! # How shared memory stays sound
//! The driver writes quanta and stacks, hardware writes records, this process writes the control area. References are
//! handed out only to bytes that are *published and not given back*: below a number the driver stored with release order
//! (read here with acquire order), at or above the consumed number. [`Rings::give_back`] takes `&mut self`, so the
//! borrow checker proves that no reference outlives its bytes. What remains on trust is the driver's side of
//! [`hpm_abi::area`]: that it leaves such bytes alone.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use hpm_abi::{
    CONTROL_OFFSET, CpuControl, CpuStatus, Info, Marker, Quantum, STATUS_OFFSET, SessionConfig, StatusHead,
    control_bytes, markers_offset, quanta_offset, segments_offset, stacks_offset, status_bytes, whole_pages,
};
use memmap2::{MmapOptions, MmapRaw};

use crate::{Error, Result};

/// Numbers of one CPU's three rings, each a count since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// Quanta.
    pub quanta: u64,
    /// Segments.
    pub segments: u64,
    /// Bytes of stack.
    pub stack: u64,
}

/// What the driver was seen to have produced on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Quanta published.
    pub quanta: u64,
    /// Segments whose records all belong to quanta below `quanta`.
    pub segments_complete: u64,
}

/// A published quantum with the bytes that belong to it.
#[derive(Clone, Copy, Debug)]
pub struct Published<'a> {
    /// The driver's record of the stay.
    pub quantum: &'a Quantum,
    /// The PEBS records that hardware wrote.
    pub records: &'a [u8],
    /// User stack of the last record, from its RSP upwards.
    pub stack: &'a [u8],
}

/// All areas of a session, mapped.
#[derive(Debug)]
pub struct Rings {
    status: MmapRaw,
    control: MmapRaw,
    cpus: Vec<CpuRings>,
}

#[derive(Debug)]
struct CpuRings {
    /// Absent when only sums are asked for.
    quanta: Option<MmapRaw>,
    /// Absent when the session samples nothing.
    segments: Option<MmapRaw>,
    segment_bytes: usize,
    /// Absent when the session copies no stacks.
    stacks: Option<MmapRaw>,
    /// Absent when the session keeps no markers.
    markers: Option<MmapRaw>,
    markers_consumed: u64,
    quanta_len: u64,
    /// What the driver was last seen to have produced.
    produced: Positions,
    /// What this process has given back.
    consumed: Positions,
}

impl Rings {
    /// Maps the areas of a session that was configured by `config`.
    ///
    /// # Errors
    /// [`Error::Io`] when an area cannot be mapped.
    pub fn map(memory: BorrowedFd<'_>, info: &Info, config: &SessionConfig) -> Result<Self> {
        let segment_bytes = config.segment_bytes as usize;
        let segments_bytes = config.segment_count() as usize * segment_bytes;
        let quanta_bytes = whole_pages(config.quanta as usize * size_of::<Quantum>());
        let cpu = |cpu: u32| -> Result<CpuRings> {
            let optional = |offset, bytes: usize| match bytes {
                0 => Ok(None),
                _ => map_shared(memory, offset, bytes).map(Some),
            };
            Ok(CpuRings {
                quanta: optional(quanta_offset(cpu), quanta_bytes)?,
                segments: optional(segments_offset(cpu), segments_bytes)?,
                segment_bytes,
                stacks: optional(stacks_offset(cpu), config.stack_ring_bytes as usize)?,
                markers: optional(markers_offset(cpu), config.markers as usize * size_of::<Marker>())?,
                markers_consumed: 0,
                quanta_len: config.quanta.into(),
                produced: Positions::default(),
                consumed: Positions::default(),
            })
        };
        let control = MmapOptions::new()
            .offset(CONTROL_OFFSET)
            .len(control_bytes(info.cpus))
            .map_raw(memory.as_raw_fd());
        Ok(Self {
            status: map_shared(memory, STATUS_OFFSET, status_bytes(info.cpus))?,
            control: control.map_err(Error::io("map the session's control area"))?,
            cpus: (0..info.cpus).map(cpu).collect::<Result<_>>()?,
        })
    }

    /// CPUs with rings, online or not.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Whether the session's target has gone.
    #[must_use]
    pub fn target_gone(&self) -> bool {
        self.ending() as u32 != 0
    }

    /// Why the driver has given the session up, as a [`hpm_abi::Reason`]'s number; 0 while it has not.
    #[must_use]
    pub fn gave_up(&self) -> u32 {
        (self.ending() >> 32) as u32
    }

    /// [`StatusHead::target_gone`] and, in the upper half, [`StatusHead::gave_up`].
    fn ending(&self) -> u64 {
        const OFFSET: usize = std::mem::offset_of!(StatusHead, target_gone);
        const { assert!(OFFSET.is_multiple_of(8) && std::mem::offset_of!(StatusHead, gave_up) == OFFSET + 4) };
        word(&self.status, OFFSET).load(Ordering::Acquire)
    }

    /// Reads what the driver has produced on a CPU, so that it can be borrowed.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the driver's number lies outside the ring.
    pub fn observe(&mut self, cpu: usize) -> Result<Observed> {
        let base = size_of::<StatusHead>() + cpu * size_of::<CpuStatus>();
        let read = |offset| word(&self.status, base + offset).load(Ordering::Acquire);
        let segments_begun = std::mem::offset_of!(CpuStatus, segments_begun);
        // A segment that was complete before the quanta are counted has all its quanta among them.
        let segments_complete = read(segments_begun).saturating_sub(1);
        let quanta = read(std::mem::offset_of!(CpuStatus, quanta_produced));
        // What those quanta name was produced before them, so these numbers, read after, cover it.
        let segments = read(segments_begun);
        let stack = read(std::mem::offset_of!(CpuStatus, stack_produced));
        let rings = &mut self.cpus[cpu];
        if quanta < rings.produced.quanta || quanta - rings.consumed.quanta > rings.quanta_len {
            return Err(Error::corrupt(format!(
                "CPU {cpu} has {quanta} quanta produced and {} consumed in a ring of {}",
                rings.consumed.quanta, rings.quanta_len
            )));
        }
        rings.produced = Positions { quanta, segments, stack };
        Ok(Observed { quanta, segments_complete })
    }

    /// What has been given back on a CPU.
    #[must_use]
    pub fn consumed(&self, cpu: usize) -> Positions {
        self.cpus[cpu].consumed
    }

    /// Takes the markers that are published on a CPU, in order, and gives their places back.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when the driver's number lies outside the ring.
    pub fn take_markers(&mut self, cpu: usize, into: &mut Vec<Marker>) -> Result<()> {
        let rings = &mut self.cpus[cpu];
        let Some(area) = &rings.markers else { return Ok(()) };
        let field = std::mem::offset_of!(CpuStatus, markers_produced);
        let status = size_of::<StatusHead>() + cpu * size_of::<CpuStatus>() + field;
        let produced = word(&self.status, status).load(Ordering::Acquire);
        let (consumed, ring) = (rings.markers_consumed, (area.len() / size_of::<Marker>()) as u64);
        if !(consumed..=consumed + ring).contains(&produced) {
            return Err(Error::corrupt(format!(
                "CPU {cpu} has {produced} markers produced and {consumed} consumed in a ring of {ring}"
            )));
        }
        for number in consumed..produced {
            let place = area.as_ptr().cast::<Marker>().wrapping_add((number % ring) as usize);
            // SAFETY: The place is in the mapping and aligned; every bit pattern is a `Marker`. It is published and not
            // given back, so that nobody writes it.
            into.push(unsafe { place.read() });
        }
        rings.markers_consumed = produced;
        let field = std::mem::offset_of!(CpuControl, markers_consumed);
        word(&self.control, cpu * size_of::<CpuControl>() + field).store(produced, Ordering::Release);
        Ok(())
    }

    /// A CPU's quantum, one of [`Rings::quanta`], with the bytes that it names.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it names bytes that it cannot own.
    pub fn published<'a>(&'a self, cpu: usize, quantum: &'a Quantum) -> Result<Published<'a>> {
        let records =
            self.records(cpu, quantum.segment, quantum.span_offset.into(), quantum.span_bytes.into())?;
        let stack = self.stack(cpu, quantum.stack_offset, quantum.stack_bytes.into())?;
        Ok(Published { quantum, records, stack })
    }

    /// All quanta of a CPU that are published and not given back, in their order, in two parts because a ring has an end. The bytes that
    /// they name are to be had by [`Rings::records`] and [`Rings::stack`].
    #[must_use]
    pub fn quanta(&self, cpu: usize) -> [&[Quantum]; 2] {
        self.cpus[cpu].quanta()
    }

    /// Bytes of a CPU's segment that one quantum names, or several that name neighbours.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when no quantum can own them.
    pub fn records(&self, cpu: usize, segment: u64, start: u64, len: u64) -> Result<&[u8]> {
        self.cpus[cpu].records(segment, start, len)
    }

    /// Bytes of a CPU's stack ring that one quantum names, or several that name neighbours.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when no quantum can own them.
    pub fn stack(&self, cpu: usize, offset: u64, len: u64) -> Result<&[u8]> {
        self.cpus[cpu].stack(offset, len)
    }

    /// Bytes of a CPU's stack ring; 0 when it has none.
    #[must_use]
    pub fn stack_ring(&self, cpu: usize) -> u64 {
        self.cpus[cpu].stacks.as_ref().map_or(0, |stacks| stacks.len() as u64)
    }

    /// Asks the driver to take samples on no CPU, or again on all, from each one's next cut on.
    pub fn pause_samples(&self, paused: bool) {
        let value = if paused { CpuControl::PAUSE } else { 0 };
        self.set_on_each_cpu(std::mem::offset_of!(CpuControl, pause), value);
    }

    /// Wishes for so many samples a second of each event that has a rate, on every CPU; 0 for the rates of the session's request.
    pub fn wish_rate(&self, per_second: u64) {
        self.set_on_each_cpu(std::mem::offset_of!(CpuControl, rate), per_second);
    }

    fn set_on_each_cpu(&self, field: usize, value: u64) {
        for cpu in 0..self.cpus.len() {
            word(&self.control, cpu * size_of::<CpuControl>() + field).store(value, Ordering::Release);
        }
    }

    /// Gives back everything of a CPU below `to`, for the driver to use again. Numbers never move backwards or past what
    /// was observed.
    pub fn give_back(&mut self, cpu: usize, to: Positions) {
        let rings = &mut self.cpus[cpu];
        let (old, limit) = (rings.consumed, rings.produced);
        let advance = |to: u64, old: u64, limit: u64| to.min(limit).max(old);
        rings.consumed = Positions {
            quanta: advance(to.quanta, old.quanta, limit.quanta),
            segments: advance(to.segments, old.segments, limit.segments),
            stack: advance(to.stack, old.stack, limit.stack),
        };
        let base = cpu * size_of::<CpuControl>();
        let write = |offset, value| word(&self.control, base + offset).store(value, Ordering::Release);
        write(std::mem::offset_of!(CpuControl, segments_consumed), rings.consumed.segments);
        write(std::mem::offset_of!(CpuControl, stack_consumed), rings.consumed.stack);
        write(std::mem::offset_of!(CpuControl, quanta_consumed), rings.consumed.quanta);
    }
}

impl CpuRings {
    fn quanta(&self) -> [&[Quantum]; 2] {
        let Some(area) = &self.quanta else { return [&[]; 2] };
        let (from, to, ring) = (self.consumed.quanta, self.produced.quanta, self.quanta_len);
        // Not more than the ring has (`Rings::observe`).
        let (first, count) = ((from % ring) as usize, (to - from).min(ring) as usize);
        let before_end = count.min(ring as usize - first);
        let part = |first: usize, len: usize| {
            // SAFETY: `first + len` is at most the ring's length, so they lie in the mapping, which starts on a page and thus is
            // aligned. Every bit pattern is a `Quantum`. All of them are published and not given back, so nobody writes them while
            // `self` is borrowed (module documentation).
            unsafe { std::slice::from_raw_parts(area.as_ptr().cast::<Quantum>().wrapping_add(first), len) }
        };
        [part(first, before_end), part(0, count - before_end)]
    }

    /// The records of published quanta.
    fn records(&self, segment: u64, start: u64, len: u64) -> Result<&[u8]> {
        if len == 0 {
            return Ok(&[]);
        }
        let segments = self
            .segments
            .as_ref()
            .ok_or_else(|| Error::corrupt("records in a session that samples nothing"))?;
        let owned = (self.consumed.segments..self.produced.segments).contains(&segment);
        if !owned || start.saturating_add(len) > self.segment_bytes as u64 {
            return Err(Error::corrupt(format!(
                "a quantum names {len} bytes at {start} of segment {segment} while {:?} are produced and {:?} consumed",
                self.produced, self.consumed
            )));
        }
        let place = (segment % (segments.len() / self.segment_bytes) as u64) as usize;
        let (start, len) = (start as usize, len as usize);
        // SAFETY: `place` is below the number of segments and `start + len` within one, so the bytes lie in the mapping.
        // They are published by a quantum and their segment is not given back, so hardware no longer writes them
        // (module documentation).
        Ok(unsafe {
            std::slice::from_raw_parts(
                segments.as_ptr().wrapping_add(place * self.segment_bytes + start),
                len,
            )
        })
    }

    /// The stacks of published quanta.
    fn stack(&self, offset: u64, len: u64) -> Result<&[u8]> {
        if len == 0 {
            return Ok(&[]);
        }
        let stacks =
            self.stacks.as_ref().ok_or_else(|| Error::corrupt("a stack in a session that copies none"))?;
        let place = offset % stacks.len() as u64;
        let end = offset.saturating_add(len);
        if offset < self.consumed.stack
            || end > self.produced.stack
            || place.saturating_add(len) > stacks.len() as u64
        {
            return Err(Error::corrupt(format!(
                "a quantum names {len} stack bytes at {offset} while {:?} are produced and {:?} consumed",
                self.produced, self.consumed
            )));
        }
        // SAFETY: `place + len` lies within the mapping; the bytes are published and not given back, so nobody writes them
        // (module documentation).
        Ok(unsafe { std::slice::from_raw_parts(stacks.as_ptr().wrapping_add(place as usize), len as usize) })
    }
}

fn map_shared(memory: BorrowedFd<'_>, offset: u64, bytes: usize) -> Result<MmapRaw> {
    MmapOptions::new()
        .offset(offset)
        .len(bytes)
        .map_raw_read_only(memory.as_raw_fd())
        .map_err(Error::io(format!("map {bytes} bytes of the session at {offset:#x}")))
}

/// The aligned 8 bytes at `offset` of an area.
fn word(area: &MmapRaw, offset: usize) -> &AtomicU64 {
    assert!(offset.is_multiple_of(8) && offset + 8 <= area.len(), "a word outside its area");
    // SAFETY: the bytes lie in the mapping and are aligned (asserted), and are accessed only atomically on this side. A
    // read-only area is only loaded from, which x86-64 does with a plain MOV.
    unsafe { AtomicU64::from_ptr(area.as_mut_ptr().wrapping_add(offset).cast()) }
}
