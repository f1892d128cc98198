//! PEBS records of a Pentium 4 whose debug store has 32-bit fields (SDM Vol. 3B 17.4.9.2, figure 17-6; the one that Schneider's
//! thesis shows, figure 2.4): EFLAGS, EIP, EAX, EBX, ECX, EDX, ESI, EDI, EBP, ESP, 40 bytes. With 64-bit fields, as in a
//! 64-bit kernel, its records are those of format 0 ([`super::fixed`]).

use super::parts::Parts;
use super::{Attribution, Record, Registers};
use crate::Result;

/// Views the record that these bytes are.
///
/// # Errors
/// [`crate::Error::Corrupt`] when they are too few or not aligned.
pub fn parse(bytes: &[u8]) -> Result<Record<'_>> {
    let registers = Registers::narrow(Parts(bytes).take()?);
    Ok(Record {
        ip: registers.rip(),
        attribution: Attribution::Next,
        applicable_counters: None,
        tsc: None,
        registers: Some(registers),
        memory: None,
        retire_latency_cycles: None,
        xmm: None,
        branches: &[],
    })
}
