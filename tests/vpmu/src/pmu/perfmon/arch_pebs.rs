//! Architectural PEBS: records in groups that each counter chooses for itself, in a buffer at a physical
//! address (Intel Architecture Instruction Set Extensions Programming Reference, "Architectural PEBS").
//!
//! The buffer is 4 KiB × 2^SIZE from IA32_PEBS_BASE on; IA32_PEBS_INDEX says where in it the next record
//! goes. A record that does not fit is dropped and IA32_PEBS_INDEX.FULL set; nothing is written until
//! software clears it.

use super::adaptive::{append, gpr_group};
use super::extended::{cfg_c, pebs_index};
use super::fragments::{Part, UNIT};
use super::pebs::Assist;
use super::{Perfmon, set_bits};
use crate::bus::{Bus, Retired};
use crate::pmu::PebsOutcome;

/// IA32_PEBS_BASE: log2 of the buffer's size in pages.
const SIZE: u64 = 0x1F;
/// Record header: the basic group, beside the others at the places of their enable bits in CFG_C.
const HEADER_BASIC: u64 = 1 << 63;
/// Basic group: the retire latency is valid.
const RETIRE_VALID: u64 = 1 << 16;
/// Header of the XMM group: which state components follow.
const XSTATE_SSE: u64 = 1 << 1;

/// What a counter with this CFG_C is reloaded with: RELOAD, the low half of a negative number; 0 is itself.
pub(super) fn reload_value(cfg_c: u64) -> u64 {
    let reload = cfg_c & cfg_c::RELOAD;
    if reload == 0 { 0 } else { reload | !cfg_c::RELOAD }
}

impl Perfmon {
    pub(super) fn architectural_assist(
        &mut self,
        counters: u64,
        names: u64,
        retired: &Retired,
        bus: &mut dyn Bus,
    ) -> Assist {
        let resets = set_bits(counters)
            .map(|index| (index, reload_value(self.registers.later.cfg_c[index])))
            .collect();
        let parts = self.architectural_parts(counters, names, retired, bus);
        let record = self.fragmenter.write(&parts, self.options.pebs_fragments);
        let registers = &mut self.registers.later;
        let (base, size) = (registers.pebs_base & !0xFFF, 4096u64 << (registers.pebs_base & SIZE));
        let offset = registers.pebs_index & pebs_index::WR;
        let end = offset + record.len() as u64;
        // The write offset cannot say more than its 23 bits.
        if registers.pebs_index & pebs_index::FULL != 0 || end > size || end & !pebs_index::WR != 0 {
            registers.pebs_index |= pebs_index::FULL;
            return Assist {
                outcome: PebsOutcome::Dropped { counters: names },
                resets,
                threshold_reached: false,
            };
        }
        bus.write_physical(base + offset, &record);
        registers.pebs_index = registers.pebs_index & !pebs_index::WR | end;
        let threshold = registers.pebs_index >> pebs_index::THRESH_SHIFT & 0x7F_FFFF;
        Assist {
            // Records are far below 4 GiB.
            outcome: PebsOutcome::Written {
                at: base + offset,
                bytes: record.len() as u32,
                counters: names,
                shown: names,
            },
            resets,
            threshold_reached: end / UNIT as u64 >= threshold,
        }
    }

    /// The basic group, and those that one of `counters` asks for.
    fn architectural_parts(
        &self,
        counters: u64,
        names: u64,
        retired: &Retired,
        bus: &mut dyn Bus,
    ) -> Vec<Part> {
        let wanted = set_bits(counters).fold(0, |groups, index| groups | self.registers.later.cfg_c[index]);
        let groups = wanted & (cfg_c::LBR | cfg_c::XMM | cfg_c::GPR | cfg_c::AUX);
        let latency = self.retire_latency().map_or(0, |latency| latency | RETIRE_VALID);
        let mut parts = vec![Part::of(HEADER_BASIC, &[retired.pc, names, bus.tsc(), latency, 0, 0])];
        if groups & cfg_c::AUX != 0 {
            let [address, auxiliary, latencies, tsx] = self.memory_group(counters, retired);
            parts.push(Part::of(cfg_c::AUX, &[address, 0, 0, 0, 0, auxiliary, latencies, tsx]));
        }
        if groups & cfg_c::GPR != 0 {
            let mut part = Part::of(cfg_c::GPR, &gpr_group(&bus.registers()));
            // The shadow stack pointer: the modelled parts have none.
            append(&mut part.bytes, &[0, 0]);
            parts.push(part);
        }
        if groups & cfg_c::XMM != 0 {
            let mut part = Part::of(cfg_c::XMM, &[XSTATE_SSE, 0]);
            append(&mut part.bytes, bus.xmm().as_flattened());
            parts.push(part);
        }
        if groups & cfg_c::LBR != 0 {
            let mut part = Part::of(groups & cfg_c::LBR, &[]);
            self.append_lbr_group(&mut part.bytes, groups);
            parts.push(part);
        }
        parts
    }

    /// IA32_LBR_CTL, IA32_LBR_DEPTH and the last event record (never written by the model), then 8, 16 or all
    /// branches.
    fn append_lbr_group(&self, record: &mut Vec<u8>, groups: u64) {
        let Some(lbr) = &self.arch_lbr else { return };
        append(record, &[0, lbr.control, lbr.depth() as u64, 0, 0, 0]);
        let entries = match groups >> cfg_c::LBR.trailing_zeros() & 0b11 {
            0b11 => lbr.depth(),
            eights => 8 * eights as usize,
        };
        self.append_branches(record, entries);
    }
}
