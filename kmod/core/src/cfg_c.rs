//! IA32_PMC_GPx_CFG_C and IA32_PMC_FXx_CFG_C: what a counter does for architectural PEBS (Intel Architecture Instruction
//! Set Extensions, "Architectural PEBS"; as Linux's `ARCH_PEBS_*`), and to what other counters set it back.

use super::layout::{branches_of, GPRS, LBRS, MEMORY, XMMS};

/// The counter writes records.
const PEBS_EN: u64 = 1 << 63;
/// The value from which the counter goes on after a record, and when it is set back, as the low bits of a negative number.
const RELOAD: u64 = 0xFFFF_FFFF;
/// The longest period: RELOAD holds the low 32 bits of its negative, of which the highest is the sign.
pub(super) const PERIOD_MAX: u64 = (1 << 31) - 1;
/// The groups of a record, beside their bits in MSR_PEBS_DATA_CFG: Auxiliary, GPR, and XMM of the vector registers.
const GROUPS: [(u64, u64); 3] = [(1 << 62, MEMORY), (1 << 61, GPRS), (1 << 49, XMMS)];

/// LBR: 1 and 2 for 8 and 16 branch records, 3 for all that IA32_LBR_DEPTH says.
const LBR: u64 = 3 << 40;
const LBR_SHIFT: u32 = 40;

/// The groups that these bits allow, as bits of MSR_PEBS_DATA_CFG. CPUID.(EAX=23H,ECX=4):EBX has them as bits 63:32 here.
pub(super) fn groups(bits: u64) -> u64 {
    let lbrs = if bits & LBR == LBR { LBRS } else { 0 };
    GROUPS.iter().filter(|(bit, _)| bits & bit != 0).fold(lbrs, |groups, (_, group)| groups | group)
}

/// The register of a counter that writes a record of these groups each `period` events.
pub(super) fn value(groups: u64, period: u64) -> u64 {
    let lbr: u64 = match branches_of(groups) {
        0 => 0,
        8 => 1,
        16 => 2,
        _ => 3,
    };
    let groups = GROUPS
        .iter()
        .filter(|(_, group)| groups & group != 0)
        .fold(lbr << LBR_SHIFT, |bits, (bit, _)| bits | bit);
    PEBS_EN | groups | reload(period)
}

/// The register of a counter that writes no such record and is set back to `period` events before its overflow.
pub(super) const fn reload(period: u64) -> u64 {
    period.wrapping_neg() & RELOAD
}
