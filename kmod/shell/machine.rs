// SPDX-License-Identifier: GPL-2.0
//! What the machine is: detected once, when the module is loaded.

use core::arch::x86_64::__cpuid_count;

use kernel::bindings;
use kernel::cpu::{nr_cpu_ids, CpuId};
use kernel::sync::SetOnce;

use super::interrupts::{local_interrupt_disable, LocalInterruptDisabled};
use super::port::LivePort;
use super::rights;
use super::sys;
use crate::hpm_abi::{Info, InfoFlags, Reason};
use crate::hpm_core::detect::{detect, Cpuid, CpuidRegisters, Machine};
use crate::hpm_core::hybrid::CORE_TYPES;
use crate::hpm_core::{Pmu, Refusal};

/// The machine as seen from a core of each type, or from each logical processor of a core that share its PMU, in the order
/// of [`Machine::place`].
static MACHINES: [SetOnce<Machine>; CORE_TYPES] = [const { SetOnce::new() }; CORE_TYPES];

struct Instruction;

impl Cpuid for Instruction {
    fn cpuid(&mut self, leaf: u32, subleaf: u32) -> CpuidRegisters {
        // SAFETY: Every x86-64 processor has CPUID.
        let answer = unsafe { __cpuid_count(leaf, subleaf) };
        CpuidRegisters { eax: answer.eax, ebx: answer.ebx, ecx: answer.ecx, edx: answer.edx }
    }

    fn microcode(&mut self) -> u32 {
        sys::microcode()
    }
}

/// Finds out what the machine is, before anything else here is asked.
pub(super) fn set_up() {
    let irq = local_interrupt_disable();
    identify(&irq);
}

/// Finds out what the core is that runs; its [`Machine::place`].
pub(super) fn identify(_irq: &LocalInterruptDisabled) -> usize {
    // SAFETY: Detection only reads, with interrupts off.
    let mut port = unsafe { LivePort::new(None, core::ptr::null(), None, 0) };
    let machine = detect(&mut Instruction, &mut port);
    let place = machine.place();
    if let Some(known) = MACHINES.get(place) {
        // False when another of the same place was first, which saw the same.
        known.populate(machine);
    }
    place
}

/// The machine as seen from a core of the first type that it has.
fn first() -> Option<&'static Machine> {
    MACHINES.iter().find_map(SetOnce::as_ref)
}

fn pmu_in(machine: Option<&'static Machine>) -> Result<&'static Pmu, Refusal> {
    match machine.map(|machine| &machine.pmu) {
        Some(Ok(pmu)) => Ok(pmu),
        Some(Err(refusal)) => Err(*refusal),
        None => Err(Refusal::new(Reason::NoPmu, [0; 2])),
    }
}

/// The PMU, or why hpm cannot program it. On a hybrid processor that of the P-cores, which has at least the counters of
/// the others.
pub(super) fn pmu() -> Result<&'static Pmu, Refusal> {
    pmu_in(first())
}

/// The PMU of cores of the type at this place.
pub(super) fn pmu_of(core: usize) -> Result<&'static Pmu, Refusal> {
    pmu_in(MACHINES.get(core).and_then(SetOnce::as_ref))
}

/// Whether one session at a time can use the PMU.
pub(super) fn serves_one_session() -> bool {
    pmu().is_ok_and(Pmu::serves_one_session)
}

/// Whether Processor Trace runs on this CPU: perf's NMI handler then acknowledges PMIs that are not its own.
pub(super) fn processor_trace_runs() -> bool {
    /// SDM Vol. 3C 33.2.8.2: TraceEn is bit 0.
    const IA32_RTIT_CTL: u32 = 0x570;
    /// CPUID.(EAX=07H,ECX=0):EBX[25].
    const PROCESSOR_TRACE: u32 = 1 << 25;
    static EXISTS: SetOnce<bool> = SetOnce::new();
    if EXISTS.as_ref().is_none() {
        // Asked once: in a virtual machine CPUID is slow.
        EXISTS
            .populate(Instruction.cpuid(0, 0).eax >= 7 && Instruction.cpuid(7, 0).ebx & PROCESSOR_TRACE != 0);
    }
    EXISTS.as_ref() == Some(&true) && sys::rdmsr(IA32_RTIT_CTL).is_some_and(|control| control & 1 != 0)
}

/// Whether the interrupt of instruction-based sampling comes as an NMI on this CPU: firmware or the kernel's perf has chosen its
/// entry of the local APIC's extended vector table, and the kernel's perf has set it up when it started. hpm changes neither.
pub(super) fn check_ibs_interrupt(_irq: &LocalInterruptDisabled) -> Result<(), Refusal> {
    /// IBS_CTL (APM Vol. 2, 13.3): LvtOffset is bits 3:0, LvtOffsetVal bit 8.
    const IBS_CTL: u32 = 0xC001_103A;
    /// Of an entry: bit 16 masks it, bits 10:8 are the message type, 4 is NMI (APM Vol. 2, 16.4).
    const ENTRY: u32 = 1 << 16 | 0x700;
    const NMI: u32 = 0x400;
    let control = sys::rdmsr(IBS_CTL).unwrap_or(0);
    let entry = if control >> 8 & 1 == 1 { sys::eilvt(control as u32 & 0xf) } else { None };
    match entry {
        Some(entry) if entry & ENTRY == NMI => Ok(()),
        entry => Err(Refusal::new(Reason::IbsInterrupt, [control, entry.unwrap_or(0).into()])),
    }
}

/// CPU numbers run from 0 to this minus one.
pub(super) fn cpu_count() -> u32 {
    nr_cpu_ids()
}

/// Whether a CPU with this number can ever come online.
pub(super) fn is_possible(cpu: u32) -> bool {
    // SAFETY: The mask is constant after boot and `cpu` below its size.
    unsafe { bindings::cpumask_test_cpu(cpu as i32, &raw mut bindings::__cpu_possible_mask) }
}

/// Whether the CPU with this number is online. It stays so while the caller holds the CPU hotplug lock.
pub(super) fn is_online(cpu: u32) -> bool {
    // SAFETY: The mask is only read, and `cpu` below its size.
    unsafe { bindings::cpumask_test_cpu(cpu as i32, &raw mut bindings::__cpu_online_mask) }
}

/// The CPU that runs.
pub(super) fn this_cpu() -> u32 {
    CpuId::current().as_u32()
}

/// TSC ticks per millisecond.
pub(super) fn tsc_khz() -> u64 {
    // SAFETY: Set at boot; refined once, by a store of one word.
    u64::from(unsafe { (&raw const bindings::tsc_khz).read_volatile() }).max(1)
}

/// TSC ticks as ns.
pub(super) fn tsc_to_ns(ticks: u64) -> u64 {
    scale(ticks, 1_000_000, tsc_khz())
}

/// ns as TSC ticks.
pub(super) fn ns_to_tsc(ns: u64) -> u64 {
    scale(ns, tsc_khz(), 1_000_000)
}

/// `value * by / over` without an intermediate that overflows while the result does not; saturates.
fn scale(value: u64, by: u64, over: u64) -> u64 {
    if let Some(product) = value.checked_mul(by) {
        return product / over;
    }
    let whole = (value / over).saturating_mul(by);
    whole.saturating_add((value % over).saturating_mul(by) / over)
}

/// Fills in what the processor and the kernel are.
pub(super) fn describe(info: &mut Info) {
    for machine in MACHINES.iter().filter_map(SetOnce::as_ref) {
        machine.describe(info);
    }
    info.cpus = cpu_count();
    info.tsc_khz = tsc_khz() as u32;
    if sys::has_pti() {
        info.flags |= InfoFlags::PTI;
    }
    if rights::msrs_locked_down() {
        info.flags |= InfoFlags::LOCKED_DOWN;
    }
}
