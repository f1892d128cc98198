//! The record that the driver writes when it samples by interrupts.

use std::mem::offset_of;

use hpm_abi::InterruptRecord;

use super::parts::Parts;
use super::{Attribution, Record, Registers};
use crate::Result;

// RFLAGS, RIP and the others are in the record as in a PEBS record of format 0.
const _: () =
    assert!(offset_of!(InterruptRecord, rflags) == 16 && offset_of!(InterruptRecord, registers) == 32);
const _: () = assert!(size_of::<InterruptRecord>() == 16 + 8 * Registers::COUNT);

pub(super) fn parse(bytes: &[u8]) -> Result<Record<'_>> {
    let mut parts = Parts(bytes);
    let [counters, tsc] = *parts.take::<[u64; 2]>()?;
    let registers = Registers::fixed(parts.take()?);
    Ok(Record {
        ip: registers.rip(),
        attribution: Attribution::Skid,
        applicable_counters: Some(counters),
        tsc: Some(tsc),
        registers: Some(registers),
        memory: None,
        retire_latency_cycles: None,
        xmm: None,
        branches: &[],
    })
}
