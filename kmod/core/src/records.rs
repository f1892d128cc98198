//! Where one record of a span ends and the next one begins.
//!
//! Those of the debug store are all of one size. An architectural one says its size in a header, and hardware may write it in
//! fragments, each with a header of its own: one with CONTINUE set, or without any group, is followed by another (Intel Architecture
//! Instruction Set Extensions, "Architectural PEBS"; as Linux reads them: `arch_pebs_record_continued`, `intel_pmu_drain_arch_pebs`).
//! What is fragmented, or has other groups than were programmed, has its words elsewhere than [`RecordLayout`] says.

use super::layout::{RecordLayout, GPR_RBP, GPR_RIP, GPR_RSP};
use super::port::Port;

/// Header: bytes of the fragment, itself included.
const SIZE: u64 = 0xFFFF;
/// Header: another fragment of the record follows.
const CONTINUE: u64 = 1 << 31;
/// Header: what must be as it was programmed for a record to lie as [`RecordLayout`] says. The rest is 64BIT_MODE and reserved.
const JUDGED: u64 = !0 << 32 | CONTINUE | SIZE;
/// Header: where a record says its instruction and its counters.
const BASIC: u64 = 1 << 63;
/// Header: a memory access.
const AUX: u64 = 1 << 62;
/// Header: the general registers.
const GPR: u64 = 1 << 61;
/// The first groups behind a header, in their order, with their bytes.
const GROUPS: [(u64, u32); 3] = [(BASIC, 48), (AUX, 64), (GPR, 160)];
/// Bytes of a header. Fragments are multiples of it, because IA32_PEBS_INDEX counts in this unit.
const HEADER: u32 = 16;
/// In the basic group: the counters that the record is for.
const COUNTERS: u32 = 8;

/// A record in the segment that is mapped, or shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// Its first byte.
    pub(super) start: u32,
    /// The first byte behind it.
    pub(super) end: u32,
    /// It does not lie as its [`RecordLayout`] says.
    odd: bool,
}

/// The record that begins at `start`, of a span that ends behind it, at `end`. `None` when what is there is none, so that nobody knows where
/// the next one begins.
pub(super) fn next<P: Port>(port: &mut P, layout: &RecordLayout, start: u32, end: u32) -> Option<Record> {
    let record = Record::usual(layout, start);
    if !layout.is_architectural() || port.pebs_read(start) & JUDGED == layout.header {
        return (record.end <= end).then_some(record);
    }
    let mut fragment = Fragment::read(port, start, end)?;
    let mut told = fragment.group(BASIC).is_some();
    while fragment.is_continued() {
        fragment = Fragment::read(port, fragment.end, end)?;
        told |= fragment.group(BASIC).is_some();
    }
    told.then_some(Record { start, end: fragment.end, odd: true })
}

impl Record {
    /// One that lies as its layout says.
    pub(super) const fn usual(layout: &RecordLayout, start: u32) -> Self {
        Self { start, end: start + layout.record_size as u32, odd: false }
    }

    /// A bit for each counter that it is for.
    pub(super) fn counters<P: Port>(&self, port: &mut P, layout: &RecordLayout) -> u64 {
        let usual = self.start + u32::from(layout.applicable_counters);
        let place = if self.odd { self.find(port, BASIC).map(|basic| basic + COUNTERS) } else { Some(usual) };
        place.map_or(0, |place| port.pebs_read(place))
    }

    /// Whether an instruction pointer in it is of the kernel.
    pub(super) fn shows_kernel<P: Port>(&self, port: &mut P, layout: &RecordLayout) -> bool {
        if !self.odd {
            let kernel = |&place: &u16| port.pebs_read(self.start + u32::from(place)) >> 63 != 0;
            return layout.instruction_pointers.iter().any(kernel);
        }
        let mut at = self.start;
        while at < self.end {
            let Some(fragment) = Fragment::read(port, at, self.end) else { return true };
            let pointers = [fragment.group(BASIC), fragment.group(GPR).map(|registers| registers + GPR_RIP)];
            if pointers.into_iter().flatten().any(|place| port.pebs_read(place) >> 63 != 0) {
                return true;
            }
            at = fragment.end;
        }
        false
    }

    /// RBP, or else RSP, where it has registers.
    pub(super) fn stack_register<P: Port>(
        &self,
        port: &mut P,
        layout: &RecordLayout,
        rbp: bool,
    ) -> Option<u64> {
        let place = if self.odd {
            self.find(port, GPR)? + if rbp { GPR_RBP } else { GPR_RSP }
        } else {
            let frame = layout.frame?;
            self.start + u32::from(if rbp { frame.rbp } else { frame.rsp })
        };
        Some(port.pebs_read(place))
    }

    /// Where the first of its fragments that has this group has it.
    fn find<P: Port>(&self, port: &mut P, group: u64) -> Option<u32> {
        let mut at = self.start;
        loop {
            let fragment = Fragment::read(port, at, self.end)?;
            if let Some(place) = fragment.group(group) {
                return Some(place);
            }
            at = fragment.end;
        }
    }
}

/// A header and the groups behind it.
struct Fragment {
    start: u32,
    end: u32,
    format: u64,
}

impl Fragment {
    /// What begins at `start` of so many bytes up to `end`; `None` when its size cannot be that of its groups.
    fn read<P: Port>(port: &mut P, start: u32, end: u32) -> Option<Self> {
        let left = end.checked_sub(start).filter(|&left| left >= HEADER)?;
        let format = port.pebs_read(start);
        let size = (format & SIZE) as u32;
        let has = |(group, _): &&(u64, u32)| format & group != 0;
        let least = GROUPS.iter().filter(has).fold(HEADER, |sum, (_, bytes)| sum + bytes);
        let fits = size % HEADER == 0 && least <= size && size <= left;
        fits.then_some(Self { start, end: start + size, format })
    }

    /// Whether the record goes on behind it.
    const fn is_continued(&self) -> bool {
        self.format & CONTINUE != 0 || self.format & !SIZE == 0
    }

    /// Where it has this one of [`GROUPS`].
    fn group(&self, group: u64) -> Option<u32> {
        let before = GROUPS.iter().filter(|(other, _)| *other > group && self.format & other != 0);
        let place = before.fold(self.start + HEADER, |sum, (_, bytes)| sum + bytes);
        (self.format & group != 0).then_some(place)
    }
}
