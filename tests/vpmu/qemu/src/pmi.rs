//! Interrupts of the PMU: the local APIC's LVT entry for performance monitoring (SDM Vol. 3A 10.5.1), and AMD's extended
//! table for instruction-based sampling.

use crate::apic::LocalApic;
use crate::here::Here;

/// LVT performance counter register: offset in xAPIC mode, and the x2APIC register's index.
const LVTPC: u64 = 0x340;
const X2_LVTPC: i32 = 0x34;
/// Local APIC ID register.
const ID: u64 = 0x20;
const X2_ID: i32 = 0x02;
/// Mask bit of an LVT entry.
const MASKED: u32 = 1 << 16;
/// Vector and delivery mode: the same bits in an LVT entry and in the data of a message-signalled interrupt.
const VECTOR_AND_MODE: u32 = 0x7ff;
/// Where message-signalled interrupts are written; bits 12 to 19 name the destination (SDM Vol. 3A 10.11.1).
const MSI_BASE: u64 = 0xfee0_0000;

/// Delivers a PMI to the vCPU as its LVTPC says: nothing if masked; else the interrupt is sent, and the entry masked if
/// `masks` says that this processor does so.
pub(crate) fn deliver(here: &Here, masks: bool) {
    let Some((entry, id)) = take_entry(here, masks) else { return };
    if here.machine.args.trace >= 2 {
        eprintln!("vpmu: cpu {} PMI, LVTPC {entry:#x}", here.vcpu.index);
    }
    send(here, entry, id);
}

/// Delivers an interrupt of instruction-based sampling as entry `index` of the extended table says.
pub(crate) fn deliver_ibs(here: &Here, index: usize) {
    let Some(entry) = here.vcpu.extended_lvt.message(index) else { return };
    let Some(id) = here.apic().and_then(|apic| id(here, &apic)) else { return };
    if here.machine.args.trace >= 2 {
        eprintln!("vpmu: cpu {} IBS, entry {entry:#x}", here.vcpu.index);
    }
    send(here, entry, id);
}

fn send(here: &Here, entry: u32, id: u8) {
    let data = entry & VECTOR_AND_MODE;
    if !here.write_physical(MSI_BASE | u64::from(id) << 12, &data.to_le_bytes()) {
        eprintln!("vpmu: cpu {}: QEMU refused an interrupt message", here.vcpu.index);
    }
}

/// The APIC's ID. The lab has fewer than 256 vCPUs: a message's destination suffices.
fn id(here: &Here, apic: &LocalApic<'_>) -> Option<u8> {
    if apic.is_x2apic() {
        return Some(apic.read(X2_ID)? as u8);
    }
    // The ID is the register's top byte.
    Some((here.read_physical(apic.base() + ID)? >> 24) as u8)
}

/// Reads the LVT entry, and masks it if `masks`; returns what it was, and the APIC's ID. `None` if it was masked.
fn take_entry(here: &Here, masks: bool) -> Option<(u32, u8)> {
    let apic = here.apic()?;
    if apic.is_x2apic() {
        // The registers that exist have 32 bits (SDM Vol. 3A table 10-6).
        let entry = apic.read(X2_LVTPC)? as u32;
        if entry & MASKED != 0 {
            return None;
        }
        if masks {
            apic.write(X2_LVTPC, u64::from(entry | MASKED));
        }
        return Some((entry, id(here, &apic)?));
    }
    let base = apic.base();
    let entry = here.read_physical(base + LVTPC)?;
    if entry & MASKED != 0 {
        return None;
    }
    if masks {
        here.write_physical(base + LVTPC, &(entry | MASKED).to_le_bytes());
    }
    Some((entry, id(here, &apic)?))
}
