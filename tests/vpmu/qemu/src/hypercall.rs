//! What guest programs can ask of the plugin: `CPUID` with EAX = [`LEAF`] and the function in ECX.

use crate::here::{Gpr, Here};
use crate::report;
use crate::vcpu::State;
use vpmu::event::Event;
use vpmu::truth::CpuReport;

/// The leaf that no processor has: "HPM" and a zero byte.
pub(crate) const LEAF: u32 = 0x4850_4d00;
/// What function 0 returns in EAX.
const PRESENT: u64 = 0x4850_4d21;

/// Is the plugin there?
const PROBE: u32 = 0;
/// Labels the current address space with the tag in RBX.
const LABEL: u32 = 1;
/// Opens the window RBX.
const OPEN_WINDOW: u32 = 2;
/// Closes the window RBX.
const CLOSE_WINDOW: u32 = 3;
/// Writes the truth report now.
const REPORT: u32 = 4;
/// Returns one of [`sum`]'s numbers, named by bits 15:8 of ECX, in EBX and (its upper half) EDX.
const SUM: u32 = 5;
/// Nobody wants the truth of what comes now: nothing is observed that no counter asks for, until the next label, window or sum.
const REST: u32 = 6;

/// Executes what ECX names: a function in its lowest byte, and what that asks for above. EAX becomes [`PRESENT`] if that was
/// done, 0 if there is no such function, window or number.
pub(crate) fn call(here: &Here, state: &mut State, ecx: u32) {
    let tag = here.gpr(Gpr::Rbx);
    let mut answer = PRESENT;
    // Windows are cut at collected counts.
    crate::boundary::know_address_space(here, state);
    state.collect(here.slots());
    let (function, which) = (ecx & 0xff, ecx >> 8);
    if function != SUM && which != 0 {
        here.set_gpr(Gpr::Rax, 0);
        return;
    }
    match function {
        PROBE => {}
        LABEL | OPEN_WINDOW => {
            here.machine.mode.require(here, here.machine.args.truth_level);
            if function == LABEL {
                state.truth.label(tag);
            } else {
                state.truth.open_window(tag);
            }
        }
        CLOSE_WINDOW if state.truth.close_window(tag) => {}
        REPORT => {
            report::write(here.machine, Some(here.vcpu.index));
        }
        SUM => {
            here.machine.mode.require(here, here.machine.args.truth_level);
            report::collect_others(here.machine, Some(here.vcpu.index));
            match sum(&here.machine.truth.report().cpus, which) {
                Some(sum) => {
                    here.set_gpr(Gpr::Rbx, sum & 0xffff_ffff);
                    here.set_gpr(Gpr::Rdx, sum >> 32);
                }
                None => answer = 0,
            }
        }
        REST => here.machine.mode.rest(),
        _ => answer = 0,
    }
    here.set_gpr(Gpr::Rax, answer);
}

/// What all CPUs together have done since observation began: 0 instructions at CPL 3, 1 at CPL 0, 2 accesses to PMU registers
/// (`RDMSR`, `WRMSR`, `RDPMC`), 3 PMIs, 4 PEBS records written, 5 loads at CPL 3 that missed the first-level data cache, 6 `RDPMC` alone.
fn sum(cpus: &[CpuReport], which: u32) -> Option<u64> {
    let number: fn(&CpuReport) -> u64 = match which {
        0 => |cpu| cpu.counts.of(Event::Instruction).user,
        1 => |cpu| cpu.counts.of(Event::Instruction).kernel,
        2 => |cpu| cpu.activity.rdmsr + cpu.activity.wrmsr + cpu.activity.rdpmc,
        3 => |cpu| cpu.activity.pmis,
        4 => |cpu| cpu.activity.pebs_written,
        5 => |cpu| cpu.counts.of(Event::LoadL1Miss).user,
        6 => |cpu| cpu.activity.rdpmc,
        _ => return None,
    };
    Some(cpus.iter().map(number).sum())
}
