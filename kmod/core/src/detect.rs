//! From CPUID to a PMU that hpm knows. No register is touched before CPUID and the table of known PMUs have shown that it
//! exists.

use super::abi::{CoreType, Info, InfoFlags, Reason};
use super::allocate::{Counter, CounterSet};
use super::cfg_c;
use super::hybrid;
use super::layout::{ARCHITECTURAL, GPRS, LBRS, MEMORY, XMMS};
use super::lbr::{Lbr, ARCHITECTURAL_LBR};
use super::pmu::amd::Amd;
use super::pmu::architectural::Perfmon;
use super::pmu::{amd, generation_of, may_be_hybrid, netburst, Generation, Interface, Pebs, Reload};
use super::registers::{MiscEnable, PerfCapabilities, IA32_MISC_ENABLE, IA32_PERF_CAPABILITIES};
use super::{Pmu, Port, Refusal};

/// What CPUID returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuidRegisters {
    /// EAX.
    pub eax: u32,
    /// EBX.
    pub ebx: u32,
    /// ECX.
    pub ecx: u32,
    /// EDX.
    pub edx: u32,
}

/// What the processor says of itself outside the PMU.
pub trait Cpuid {
    /// CPUID: the answer to this leaf and subleaf; asked only up to the maximum that leaf 0 names.
    fn cpuid(&mut self, leaf: u32, subleaf: u32) -> CpuidRegisters;
    /// Revision of the microcode in use (IA32_BIOS_SIGN_ID, bits 63:32).
    fn microcode(&mut self) -> u32;
}

/// The processor, whether or not hpm knows its PMU.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Vendor string.
    pub vendor: [u8; 12],
    /// Display family (SDM Vol. 2A, CPUID leaf 01H).
    pub family: u32,
    /// Display model.
    pub model: u32,
    /// Stepping.
    pub stepping: u32,
    /// Of which type the core is that was asked; [`CoreType::Any`] when the processor is not hybrid.
    pub core_type: CoreType,
    /// What leaf 0AH says; all zero without it.
    pub perfmon: Perfmon,
    /// Whether a hypervisor says it is there (CPUID.01H:ECX, bit 31).
    pub hypervisor: bool,
    /// The PMU, or why hpm cannot program it.
    pub pmu: Result<Pmu, Refusal>,
}

/// Reads what the processor is, on one of its cores.
pub fn detect<C: Cpuid, P: Port>(cpuid: &mut C, port: &mut P) -> Machine {
    let head = cpuid.cpuid(0, 0);
    let leaf_1 = cpuid.cpuid(1, 0);
    let vendor = vendor(head);
    let intel = vendor == *b"GenuineIntel";
    if vendor == *b"AuthenticAMD" {
        return amd_machine(cpuid, vendor, leaf_1);
    }
    let leaf_10 = if head.eax >= 0xA { cpuid.cpuid(0xA, 0) } else { CpuidRegisters::default() };
    let (family, model) = family_and_model(leaf_1.eax);
    let hypervisor = leaf_1.ecx >> 31 == 1;
    // Leaf 0AH is Intel's; on other vendors' processors it is reserved.
    let mut perfmon =
        if intel { Perfmon::new(leaf_10).assuming_fixed(hypervisor) } else { Perfmon::default() };
    let core_type =
        if intel && may_be_hybrid(model) { core_type(head.eax, model, cpuid) } else { CoreType::Any };
    // On hybrid processors leaf 0AH may say what all cores have (Linux's `update_pmu_cap_from_perfmonext`), so that those of version 5
    // are asked, too.
    let extended = if perfmon.version >= 5 { Extended::read(head.eax, cpuid) } else { Extended::default() };
    if let Some(maps) = extended.counters {
        perfmon = perfmon.with_maps(maps);
    }
    let mut machine = Machine {
        vendor,
        family,
        model,
        stepping: leaf_1.eax & 0xf,
        core_type,
        perfmon,
        hypervisor,
        pmu: Err(Refusal::new(Reason::UnknownPmu, [u64::from(family), u64::from(model)])),
    };
    // P-cores are also what is left of a hybrid processor whose E-cores are switched off.
    let wanted = if core_type == CoreType::Any { CoreType::Core } else { core_type };
    match generation_of(model, wanted) {
        _ if intel && family == 15 => {
            machine.pmu = netburst::detect(model, (head.eax, leaf_1), cpuid, port);
        }
        _ if intel && perfmon.version == 0 => machine.pmu = Err(Refusal::new(Reason::NoPmu, [0; 2])),
        Some(generation) if intel && family == 6 && is_sound(&perfmon) => {
            let leaf_7 = if head.eax >= 7 { cpuid.cpuid(7, 0) } else { CpuidRegisters::default() };
            // Architectural LBR (CPUID.07H.0:EDX[19]) is described by leaf 1CH.
            let lbr = head.eax >= 0x1C && leaf_7.edx >> 19 & 1 == 1;
            let leaf_1c = if lbr { cpuid.cpuid(0x1C, 0) } else { CpuidRegisters::default() };
            // Subleaf 0: the logical processors of a core, EBX bits 15:0.
            let threads = if head.eax >= 0xB { cpuid.cpuid(0xB, 0).ebx & 0xffff } else { 1 };
            let microcode = cpuid.microcode();
            let found = Found { leaf_1, leaf_7, leaf_1c, extended, microcode, threads };
            machine.pmu = Ok(known(generation, &machine, &found, port));
        }
        _ => {}
    }
    machine
}

/// As [`detect`], of AMD's processors.
fn amd_machine<C: Cpuid>(cpuid: &mut C, vendor: [u8; 12], leaf_1: CpuidRegisters) -> Machine {
    let (family, model) = family_and_model(leaf_1.eax);
    let pmu = amd::detect(cpuid, family, model);
    Machine {
        vendor,
        family,
        model,
        stepping: leaf_1.eax & 0xf,
        core_type: CoreType::Any,
        perfmon: pmu.map_or(Perfmon::default(), |pmu| pmu.perfmon),
        hypervisor: leaf_1.ecx >> 31 == 1,
        pmu,
    }
}

/// The type of the core that is asked (CPUID leaf 07H, EDX bit 15; leaf 1AH, EAX bits 31:24). Where Atom cores are of two generations
/// their native model tells them apart (bits 23:0; Linux: `find_hybrid_pmu_for_cpu`).
fn core_type<C: Cpuid>(leaves: u32, model: u32, cpuid: &mut C) -> CoreType {
    const CRESTMONT: u32 = 2;
    if leaves < 0x1A || cpuid.cpuid(7, 0).edx >> 15 & 1 == 0 {
        return CoreType::Any;
    }
    let kind = cpuid.cpuid(0x1A, 0).eax;
    match kind >> 24 {
        0x20 if kind & 0xFF_FFFF == CRESTMONT && generation_of(model, CoreType::LowPower).is_some() => {
            CoreType::LowPower
        }
        0x20 => CoreType::Atom,
        _ => CoreType::Core,
    }
}

/// What CPUID leaf 23H says beside leaf 0AH.
#[derive(Clone, Copy, Debug, Default)]
struct Extended {
    /// Subleaf 0, EBX bit 0: event selects have UMASK2.
    unit_mask2: bool,
    /// Subleaf 0, EBX bit 1: event selects have EQ.
    equal: bool,
    /// Subleaf 0, EBX bit 2: counters can be kept from RDPMC in user mode.
    rdpmc_user_disable: bool,
    /// Subleaf 1: maps of the counters.
    counters: Option<CpuidRegisters>,
    /// Subleaf 2: maps of the counters that can be reloaded, and of those that can cause it.
    reload: Option<CpuidRegisters>,
    /// Subleaves 4 and 5: groups of architectural PEBS, and the counters that have it.
    pebs: Option<(CpuidRegisters, CpuidRegisters)>,
}

impl Extended {
    /// Leaf 23H exists where CPUID.(EAX=07H,ECX=1):EAX[8] says so; EAX of its subleaf 0 has a bit for each of the others.
    fn read<C: Cpuid>(leaves: u32, cpuid: &mut C) -> Self {
        const LEAF: u32 = 0x23;
        if leaves < LEAF || cpuid.cpuid(7, 1).eax >> 8 & 1 == 0 {
            return Self::default();
        }
        let head = cpuid.cpuid(LEAF, 0);
        let valid = head.eax;
        let pebs = valid >> 4 & 3 == 3;
        Self {
            unit_mask2: head.ebx & 1 == 1,
            equal: head.ebx >> 1 & 1 == 1,
            rdpmc_user_disable: head.ebx >> 2 & 1 == 1,
            counters: (valid >> 1 & 1 == 1).then(|| cpuid.cpuid(LEAF, 1)),
            reload: (valid >> 2 & 1 == 1).then(|| cpuid.cpuid(LEAF, 2)),
            pebs: pebs.then(|| (cpuid.cpuid(LEAF, 4), cpuid.cpuid(LEAF, 5))),
        }
    }
}

/// Whether the counters are such as a known generation has. A hypervisor may say anything: before version 2 there is no
/// IA32_PERF_GLOBAL_CTRL, and no counter of those generations is narrower than 32 bits.
fn is_sound(perfmon: &Perfmon) -> bool {
    let widths = 32..64;
    perfmon.version >= 2
        && perfmon.usable().general > 0
        && widths.contains(&perfmon.general_width)
        && (perfmon.fixed == 0 || widths.contains(&perfmon.fixed_width))
}

fn vendor(head: CpuidRegisters) -> [u8; 12] {
    let mut vendor = [0; 12];
    for (bytes, register) in vendor.chunks_exact_mut(4).zip([head.ebx, head.edx, head.ecx]) {
        bytes.copy_from_slice(&register.to_le_bytes());
    }
    vendor
}

/// Display family and model (SDM Vol. 2A, CPUID leaf 01H, EAX).
const fn family_and_model(signature: u32) -> (u32, u32) {
    let family = (signature >> 8) & 0xf;
    let model = (signature >> 4) & 0xf;
    let extended_model = (signature >> 16) & 0xf;
    match family {
        0xf => (family + ((signature >> 20) & 0xff), extended_model << 4 | model),
        6 => (family, extended_model << 4 | model),
        _ => (family, model),
    }
}

/// What was read of the processor beside [`Machine`].
struct Found {
    leaf_1: CpuidRegisters,
    leaf_7: CpuidRegisters,
    leaf_1c: CpuidRegisters,
    extended: Extended,
    microcode: u32,
    threads: u32,
}

fn known<P: Port>(generation: &'static Generation, machine: &Machine, found: &Found, port: &mut P) -> Pmu {
    let mut perfmon = machine.perfmon.usable();
    // TSX_FORCE_ABORT without RTM_ALWAYS_ABORT (CPUID.07H.0:EDX[13], [11]): microcode uses general counter 3 for transactions
    // (Linux: `tfa_get_event_constraints`).
    if found.leaf_7.edx >> 13 & 1 == 1 && found.leaf_7.edx >> 11 & 1 == 0 {
        perfmon.general &= !(1 << 3);
    }
    // PDCM (CPUID.01H:ECX[15]): IA32_PERF_CAPABILITIES exists.
    let pdcm = found.leaf_1.ecx >> 15 & 1 == 1;
    let capabilities = PerfCapabilities(if pdcm { port.rdmsr(IA32_PERF_CAPABILITIES) } else { 0 });
    let missing = Refusal::new(Reason::NoPebs, [0; 2]);
    let lbr = if pdcm { lbr_of(generation, capabilities, found) } else { None };
    let mut pebs = Err(missing);
    if pdcm && generation.pebs_formats.contains(&(capabilities.pebs_rec_fmt() as u16)) {
        pebs = pebs_of(generation, &perfmon, capabilities, found, port).ok_or(missing);
    }
    if let (Ok(pebs), None) = (&mut pebs, lbr) {
        pebs.groups &= !LBRS;
    }
    if let (Ok(_), Some(refusal)) = (pebs, erratum(generation, machine, found.microcode)) {
        pebs = Err(refusal);
    }
    Pmu {
        interface: Interface::Architectural,
        generation,
        core_type: machine.core_type,
        perfmon,
        // Version 6 has its own counter registers, which are written in full width.
        full_width_writes: capabilities.fw_write() == 1 || perfmon.version >= 6,
        pebs,
        lbr,
        unit_mask2: found.extended.unit_mask2,
        compares_equal: found.extended.equal,
        rdpmc_user_disable: found.extended.rdpmc_user_disable,
        reload: reload_of(&perfmon, &found.extended),
        shares_offcore: generation.quirks.core_has_offcore && found.threads > 1,
    }
}

/// The counters that set each other back: those that can be reloaded, and of these the ones that can cause it (EAX and EBX, ECX and EDX
/// of CPUID.23H.2).
fn reload_of(perfmon: &Perfmon, extended: &Extended) -> Reload {
    let Some(maps) = extended.reload else { return Reload::NONE };
    let set = |general, fixed| Perfmon { general, fixed, ..*perfmon }.counters();
    let reloaded = set(maps.eax, maps.ebx).intersection(perfmon.counters());
    Reload { reloaded, windows: reloaded.intersection(set(maps.ecx, maps.edx)) }
}

/// The branch records, if they are such as the generation has.
fn lbr_of(generation: &Generation, capabilities: PerfCapabilities, found: &Found) -> Option<Lbr> {
    let format = capabilities.lbr_fmt() as u8;
    if format != generation.lbr_format {
        return None;
    }
    if format == ARCHITECTURAL_LBR {
        return Lbr::architectural(found.leaf_1c);
    }
    // HLE and RTM (CPUID.07H.0:EBX[4], [11]).
    Lbr::model_specific(format, found.leaf_7.ebx & (1 << 4 | 1 << 11) != 0)
}

fn pebs_of<P: Port>(
    generation: &Generation,
    perfmon: &Perfmon,
    capabilities: PerfCapabilities,
    found: &Found,
    port: &mut P,
) -> Option<Pebs> {
    let format = capabilities.pebs_rec_fmt() as u16;
    if format == ARCHITECTURAL {
        let (groups, counters) = found.extended.pebs?;
        let fixed = Perfmon { general: counters.eax, fixed: counters.ecx, ..*perfmon }.counters();
        let groups = cfg_c::groups(u64::from(groups.ebx) << 32);
        return Some(Pebs { format, counters: fixed.intersection(perfmon.counters()), groups });
    }
    // DS and DTES64 (CPUID.01H:EDX[21], ECX[2]): the debug store exists and has 64-bit fields.
    let debug_store = found.leaf_1.edx >> 21 & 1 == 1 && found.leaf_1.ecx >> 2 & 1 == 1;
    if !debug_store || MiscEnable(port.rdmsr(IA32_MISC_ENABLE)).pebs_unavailable() == 1 {
        return None;
    }
    let present = perfmon.counters();
    // PEBS_BASELINE: adaptive records, on every counter (20.8, 20.9).
    if format >= 4 && capabilities.pebs_baseline() == 1 {
        return Some(Pebs { format, counters: present, groups: MEMORY | GPRS | XMMS | LBRS });
    }
    let counters = CounterSet::general(generation.pebs_counters).intersection(present);
    (format < 4).then_some(Pebs { format, counters, groups: 0 })
}

/// What the kernel's perf refuses PEBS for as well.
fn erratum(generation: &Generation, machine: &Machine, microcode: u32) -> Option<Refusal> {
    if generation.errata.is_empty() {
        return None;
    }
    let stepping = (machine.model, machine.stepping);
    let entry = generation.errata.iter().find(|entry| (entry.model, entry.stepping) == stepping);
    let needed = entry.map_or(u32::MAX, |entry| entry.revision);
    (microcode < needed).then_some(Refusal::new(Reason::PebsErratum, [microcode.into(), needed.into()]))
}

impl Machine {
    /// Which of the programs of a session its core runs, below [`hybrid::CORE_TYPES`].
    #[must_use]
    pub const fn place(&self) -> usize {
        match &self.pmu {
            Ok(Pmu { interface: Interface::NetBurst(unit), .. }) => unit.place(),
            _ => hybrid::place(self.core_type),
        }
    }

    /// Fills in what this crate knows of [`Info`]; the rest is the kernel's. Called for each place that a processor has
    /// ([`Machine::place`]), in turn: the names of a hybrid one's PMUs are joined by "+", and the rest is the first one's.
    pub fn describe(&self, info: &mut Info) {
        if info.pmu_name[0] != 0 {
            return self.add_name(info);
        }
        info.vendor[..12].copy_from_slice(&self.vendor);
        (info.family, info.model, info.stepping) = (self.family, self.model, self.stepping);
        let mut perfmon = self.perfmon;
        info.pebs_format = u32::MAX;
        if let Ok(pmu) = &self.pmu {
            perfmon = pmu.perfmon;
            info.flags |= InfoFlags::USABLE;
            let name = pmu.generation.name.as_bytes();
            info.pmu_name[..name.len()].copy_from_slice(name);
            if let Ok(pebs) = pmu.pebs {
                info.pebs_format = pebs.format.into();
                info.pebs_counters = pebs.counters.general_bits().into();
                info.flags |= if pebs.groups & LBRS != 0 { InfoFlags::RECORDS_BRANCHES } else { 0 };
            }
            if let Interface::Amd(Amd { ibs: Some(ibs), .. }) = pmu.interface {
                let samplers = ibs.samplers(0);
                let flags =
                    [(Counter::IBS_FETCH, InfoFlags::IBS_FETCH), (Counter::IBS_OP, InfoFlags::IBS_OP)];
                for (_, flag) in flags.into_iter().filter(|(sampler, _)| samplers.contains(*sampler)) {
                    info.flags |= flag;
                }
            }
            info.branch_records = pmu.lbr.map_or(0, |lbr| lbr.depth);
            let calls = pmu.lbr.is_some_and(|lbr| lbr.call_stack);
            info.flags |= if calls { InfoFlags::BRANCH_CALLS } else { 0 };
        }
        if self.hypervisor {
            info.flags |= InfoFlags::HYPERVISOR;
        }
        info.perfmon_version = perfmon.version;
        (info.general_counters, info.general_width) = (perfmon.general.count_ones(), perfmon.general_width);
        (info.fixed_counters, info.fixed_width) = (perfmon.fixed.count_ones(), perfmon.fixed_width);
    }

    /// Adds the PMU of another type of core.
    fn add_name(&self, info: &mut Info) {
        let Ok(pmu) = &self.pmu else { return };
        if self.core_type == CoreType::Any {
            return;
        }
        let end = info.pmu_name.iter().position(|&byte| byte == 0).unwrap_or(info.pmu_name.len());
        let more = core::iter::once(b'+').chain(pmu.generation.name.bytes());
        // The last byte stays NUL.
        let room = info.pmu_name.len() - 1;
        for (place, byte) in info.pmu_name.iter_mut().take(room).skip(end).zip(more) {
            *place = byte;
        }
    }
}
