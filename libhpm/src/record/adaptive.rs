//! Adaptive PEBS (formats 4 to 6, SDM Vol. 3B 20.9.2): a basic group, and behind it the groups that MSR_PEBS_DATA_CFG
//! asked for. The record says itself which they are.

use super::parts::Parts;
use super::places::{Order, Places};
use super::registers::ADAPTIVE;
use super::{Attribution, Branch, MemoryAccess, Record, Registers};
use crate::{Error, Result};

/// Bits of MSR_PEBS_DATA_CFG and of a record's own format field (SDM Vol. 3B 20.9.2.3).
pub mod groups {
    /// Memory access address, data source, latency and TX abort.
    pub const MEMORY: u64 = 1;
    /// General registers.
    pub const GPRS: u64 = 1 << 1;
    /// XMM0 to XMM15.
    pub const XMMS: u64 = 1 << 2;
    /// Last branch records; bits 31:24 are their number less one.
    pub const LBRS: u64 = 1 << 3;
    /// Counters and metrics (since format 6).
    pub const COUNTERS: u64 = 3 << 4;
}

/// Words of the basic group.
const BASIC: usize = 4;
/// Words of the memory group.
const MEMORY: usize = 4;

/// Where the words of records with this format field are: of those that have nothing but a basic group, a memory access and
/// registers, and no latency of retirement.
pub(crate) fn places(format: u64) -> Option<Places> {
    let has = |group: u64| format & group != 0;
    if has(groups::XMMS | groups::LBRS | groups::COUNTERS) || (format >> 32) as u16 != 0 {
        return None;
    }
    let address = has(groups::MEMORY).then_some(BASIC);
    let first = BASIC + address.map_or(0, |_| MEMORY);
    let registers = has(groups::GPRS).then(|| Order::Each(ADAPTIVE.map(|place| place + first as u8)));
    let count = first + registers.map_or(0, |_| Registers::COUNT);
    let places = Places { count, ip: 1, counters: 2, tsc: Some(3), address, registers };
    ((format >> 48) as usize == 8 * count).then_some(places)
}

/// Views the record that these bytes are.
///
/// # Errors
/// [`Error::Corrupt`] when they are not aligned, or not as many as the record and its groups take.
#[inline]
pub fn parse(bytes: &[u8]) -> Result<Record<'_>> {
    let mut parts = Parts(bytes);
    let &[format, ip, counters, tsc] = parts.take::<[u64; 4]>()?;
    let size = (format >> 48) as usize;
    if size != bytes.len() {
        return Err(of_another_size(size, bytes.len()));
    }
    let has = |group: u64| format & group != 0;
    let memory: Option<&[u64; 4]> = parts.take_if(has(groups::MEMORY))?;
    let registers: Option<&[u64; Registers::COUNT]> = parts.take_if(has(groups::GPRS))?;
    let xmm = parts.take_if(has(groups::XMMS))?;
    let branches = if has(groups::LBRS) { (format >> 24 & 0xff) as usize + 1 } else { 0 };
    let branches: &[Branch] = parts.take_many(branches)?;
    if !has(groups::COUNTERS) && !parts.0.is_empty() {
        return Err(longer(format, parts.0.len()));
    }
    Ok(Record {
        ip,
        attribution: Attribution::Cause,
        applicable_counters: Some(counters),
        tsc: Some(tsc),
        registers: registers.map(Registers::adaptive),
        memory: memory.map(|&[address, source, latency, _]| MemoryAccess { address, source, latency }),
        // Reserved, and 0, before Golden Cove.
        retire_latency_cycles: Some((format >> 32) as u16).filter(|&cycles| cycles != 0),
        xmm,
        branches,
    })
}

#[cold]
fn of_another_size(size: usize, among: usize) -> Error {
    Error::corrupt(format!("a record that says {size} bytes among records of {among}"))
}

#[cold]
fn longer(format: u64, bytes: usize) -> Error {
    Error::corrupt(format!("{bytes} bytes behind the groups {format:#x} of a record"))
}
