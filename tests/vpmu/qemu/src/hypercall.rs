//! What guest programs can ask of the plugin: `CPUID` with EAX = [`LEAF`] and the function in ECX.

use crate::here::{Gpr, Here};
use crate::report;
use crate::vcpu::State;

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

/// Executes function `function`. EAX becomes [`PRESENT`] if that was done, 0 if there is no such function or window.
pub(crate) fn call(here: &Here, state: &mut State, function: u32) {
    let tag = here.gpr(Gpr::Rbx);
    let mut answer = PRESENT;
    // Windows are cut at collected counts.
    crate::boundary::know_address_space(here, state);
    state.collect(here.slots());
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
        _ => answer = 0,
    }
    here.set_gpr(Gpr::Rax, answer);
}
