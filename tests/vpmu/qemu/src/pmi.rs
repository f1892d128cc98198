//! The performance-monitoring interrupt: the local APIC's LVT entry for it (SDM Vol. 3A 10.5.1).

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

/// Delivers a PMI to the vCPU as its LVTPC says: nothing if masked; else the entry is masked and the interrupt sent.
pub(crate) fn deliver(here: &Here) {
    let Some((entry, id)) = take_entry(here) else { return };
    let data = entry & VECTOR_AND_MODE;
    if here.machine.args.trace >= 2 {
        eprintln!("vpmu: cpu {} PMI, LVTPC {entry:#x}", here.vcpu.index);
    }
    if !here.write_physical(MSI_BASE | u64::from(id) << 12, &data.to_le_bytes()) {
        eprintln!("vpmu: cpu {}: QEMU refused the interrupt message of a PMI", here.vcpu.index);
    }
}

/// Reads the LVT entry and masks it; returns what it was, and the APIC's ID. `None` if it was masked.
fn take_entry(here: &Here) -> Option<(u32, u8)> {
    let apic = here.apic()?;
    if apic.is_x2apic() {
        // The registers that exist have 32 bits (SDM Vol. 3A table 10-6).
        let entry = apic.read(X2_LVTPC)? as u32;
        if entry & MASKED != 0 {
            return None;
        }
        apic.write(X2_LVTPC, u64::from(entry | MASKED));
        // The lab has fewer than 256 vCPUs: a message's destination suffices.
        return Some((entry, apic.read(X2_ID)? as u8));
    }
    let base = apic.base();
    let entry = here.read_physical(base + LVTPC)?;
    if entry & MASKED != 0 {
        return None;
    }
    here.write_physical(base + LVTPC, &(entry | MASKED).to_le_bytes());
    // The ID is the register's top byte.
    Some((entry, (here.read_physical(base + ID)? >> 24) as u8))
}
