//! Architectural PEBS (SDM Vol. 3B, "Architectural PEBS": CPUID leaf 23H): a record is one or more fragments, each with a
//! header that says its size and groups. Read as Linux reads them (`arch_pebs_record_continued` and
//! `setup_arch_pebs_sample_data` in `arch/x86/events/intel/ds.c`), of several fragments with a group the last one's; but what
//! contradicts itself is an error here. The driver gives no record without a basic group, nor one that its span cuts off.

use super::parts::Parts;
use super::{Attribution, Branch, MemoryAccess, Record, Registers, Xmm};
use crate::{Error, Result};

/// Fields of a fragment's header, which is 16 bytes of which the last 8 are reserved.
pub mod header {
    /// Bits 15:0: bytes of the fragment, header included.
    pub const SIZE: u64 = 0xffff;
    /// Another fragment of the record follows.
    pub const CONTINUED: u64 = 1 << 31;
    /// Bits 39:35: counters.
    pub const COUNTERS: u64 = 0x1f << 35;
    /// Bits 41:40: last branch records: 8, 16, or as many as their own header says.
    pub const LBR_SHIFT: u32 = 40;
    /// XMM0 to XMM15.
    pub const XMM: u64 = 1 << 49;
    /// Upper halves of YMM, opmasks, and the rest of ZMM.
    pub const WIDE_VECTORS: u64 = 1 << 50 | 7 << 53;
    /// General registers and SSP.
    pub const GPR: u64 = 1 << 61;
    /// Memory access.
    pub const AUX: u64 = 1 << 62;
    /// EventingIP, applicable counters, TSC and retire latency.
    pub const BASIC: u64 = 1 << 63;
}

/// The groups of a record, gathered from its fragments.
#[derive(Default)]
struct Groups<'a> {
    basic: Option<&'a [u64; 6]>,
    aux: Option<&'a [u64; 8]>,
    gpr: Option<&'a [u64; Registers::COUNT]>,
    xmm: Option<&'a Xmm>,
    branches: Option<&'a [Branch]>,
}

/// Views the record at the start of `bytes`, and says how many it takes.
///
/// # Errors
/// [`Error::Corrupt`] when a fragment is cut off, too small for its groups or not aligned, or no fragment has the basic
/// group.
pub fn parse(bytes: &[u8]) -> Result<(Record<'_>, usize)> {
    let mut groups = Groups::default();
    let mut used = 0;
    loop {
        let rest = bytes.get(used..).unwrap_or_default();
        let &[format, _] = Parts(rest).take::<[u64; 2]>()?;
        let size = (format & header::SIZE) as usize;
        let fragment = rest.get(..size).filter(|fragment| fragment.len() >= 16);
        let fragment = fragment.ok_or_else(|| {
            Error::corrupt(format!("a record of {size} bytes where {} are left", rest.len()))
        })?;
        used += size;
        // A null record, without any group, is there for the next fragment only; whatever is in it is skipped.
        if format & !header::SIZE == 0 {
            continue;
        }
        groups.add(format, &fragment[16..])?;
        if format & header::CONTINUED == 0 {
            break;
        }
    }
    Ok((groups.record()?, used))
}

impl<'a> Groups<'a> {
    /// Takes the groups of a fragment from what follows its header.
    fn add(&mut self, format: u64, bytes: &'a [u8]) -> Result<()> {
        let mut parts = Parts(bytes);
        let has = |group: u64| format & group != 0;
        if has(header::BASIC) {
            self.basic = Some(parts.take()?);
        }
        if has(header::AUX) {
            self.aux = Some(parts.take()?);
        }
        if has(header::GPR) {
            self.gpr = Some(parts.take()?);
            // SSP, and a reserved word.
            parts.take::<[u64; 2]>()?;
        }
        if has(header::XMM | header::WIDE_VECTORS) {
            // XSTATE_BV of the group, and a reserved word.
            parts.take::<[u64; 2]>()?;
        }
        if has(header::XMM) {
            self.xmm = Some(parts.take()?);
        }
        if has(header::WIDE_VECTORS) {
            return Err(Error::corrupt("a record with vector registers that were not asked for"));
        }
        let lbr = format >> header::LBR_SHIFT & 3;
        if lbr != 0 {
            let &[_, _, depth, ..] = parts.take::<[u64; 6]>()?;
            let count = if lbr == 3 { depth } else { 8 * lbr };
            self.branches = Some(parts.take_many(usize::try_from(count).unwrap_or(usize::MAX))?);
        }
        if !has(header::COUNTERS) && !parts.0.is_empty() {
            let left = parts.0.len();
            return Err(Error::corrupt(format!("{left} bytes behind the groups {format:#x} of a record")));
        }
        Ok(())
    }

    fn record(self) -> Result<Record<'a>> {
        let basic = self.basic.ok_or_else(|| Error::corrupt("a record without its basic group"))?;
        let &[ip, counters, tsc, retire, ..] = basic;
        let memory = |aux: &[u64; 8]| MemoryAccess { address: aux[0], source: aux[5], latency: aux[6] };
        Ok(Record {
            ip,
            attribution: Attribution::Cause,
            applicable_counters: Some(counters),
            tsc: Some(tsc),
            registers: self.gpr.map(Registers::adaptive),
            memory: self.aux.map(memory),
            // Bit 16 says that bits 15:0 are valid.
            retire_latency_cycles: (retire >> 16 & 1 == 1).then_some(retire as u16),
            xmm: self.xmm,
            branches: self.branches.unwrap_or_default(),
        })
    }
}
