//! From CPUID to a NetBurst PMU.

use super::super::super::abi::{CoreType, Reason};
use super::super::super::allocate::CounterSet;
use super::super::super::detect::{Cpuid, CpuidRegisters};
use super::super::super::registers::{MiscEnable, IA32_MISC_ENABLE};
use super::super::super::{Pmu, Port, Refusal};
use super::super::architectural::Perfmon;
use super::super::{Interface, Pebs, Reload};
use super::registers::WIDTH;
use super::{Share, Unit, NETBURST, PRESCOTT};

/// The PMU of an Intel processor of family 15 and this model. `leaves` is CPUID's highest leaf.
///
/// # Errors
/// [`Reason::UnknownPmu`]; [`Reason::NoPmu`] when IA32_MISC_ENABLE says that there is none, as in most virtual machines.
pub(in super::super::super) fn detect<C: Cpuid, P: Port>(
    model: u32,
    (leaves, leaf_1): (u32, CpuidRegisters),
    cpuid: &mut C,
    port: &mut P,
) -> Result<Pmu, Refusal> {
    let prescott = matches!(model, 3 | 4 | 6);
    if !prescott && model > 2 {
        return Err(Refusal::new(Reason::UnknownPmu, [15, model.into()]));
    }
    // Every processor of the family has the register (Vol. 4, table 2-2 of the Pentium 4 family).
    let misc_enable = MiscEnable(port.rdmsr(IA32_MISC_ENABLE));
    if misc_enable.performance_monitoring_available() == 0 {
        return Err(Refusal::new(Reason::NoPmu, [0; 2]));
    }
    let unit = Unit { share: share(leaves, leaf_1, cpuid), prescott };
    // DS and DTES64 (CPUID.01H:EDX[21], ECX[2]). Branch trace stores, which bit 11 would forbid, are not used.
    let debug_store = leaf_1.edx >> 21 & 1 == 1 && leaf_1.ecx >> 2 & 1 == 1;
    let pebs = if debug_store && misc_enable.pebs_unavailable() == 0 {
        Ok(Pebs { format: 0, counters: CounterSet::netburst(1 << unit.pebs_counter()), groups: 0 })
    } else {
        Err(Refusal::new(Reason::NoPebs, [0; 2]))
    };
    Ok(Pmu {
        interface: Interface::NetBurst(unit),
        generation: if prescott { &PRESCOTT } else { &NETBURST },
        core_type: CoreType::Any,
        perfmon: Perfmon { general: unit.counter_bits(), general_width: WIDTH, ..Perfmon::default() },
        full_width_writes: true,
        pebs,
        lbr: None,
        unit_mask2: false,
        compares_equal: false,
        rdpmc_user_disable: false,
        reload: Reload::NONE,
        shares_offcore: false,
    })
}

/// Which logical processor of its core this is: the lowest bit of its initial APIC ID, where the core has two (SDM Vol. 3A
/// 8.9.1, 8.9.3). Leaf 1 counts the logical processors of the package, leaf 4 its cores.
fn share<C: Cpuid>(leaves: u32, leaf_1: CpuidRegisters, cpuid: &mut C) -> Share {
    let htt = leaf_1.edx >> 28 & 1 == 1;
    let logical = if htt { leaf_1.ebx >> 16 & 0xff } else { 1 };
    let cores = if leaves >= 4 { 1 + (cpuid.cpuid(4, 0).eax >> 26) } else { 1 };
    if logical / cores >= 2 {
        Share::Half((leaf_1.ebx >> 24 & 1) as u8)
    } else {
        Share::Whole
    }
}
