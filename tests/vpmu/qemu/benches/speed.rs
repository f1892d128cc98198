//! How fast a guest runs at each level of instrumentation: `cargo bench -p vpmu-qemu`, after `cargo run -p lab -- build`.
//!
//! The guest runs a loop of five instructions, one load and one store among them, a short and a long time. The difference of
//! QEMU's CPU times is the loop's; other work on the machine hardly disturbs it.

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::process::Command;

/// Instructions of one turn of the loop.
const INSTRUCTIONS: f64 = 5.0;

fn main() {
    let guest = common::build_guest("speed");
    for (level, name, turns) in [
        (1, "nothing enabled", 400_000_000),
        (2, "basic", 100_000_000),
        (3, "data addresses", 40_000_000),
        (4, "everything", 4_000_000),
    ] {
        let short = cpu_seconds(&guest, level, turns / 10);
        let long = cpu_seconds(&guest, level, turns);
        let instructions = INSTRUCTIONS * f64::from(turns - turns / 10);
        println!("{name}: {:.0} million instructions per CPU second", instructions / (long - short) / 1e6);
    }
}

/// CPU time, in seconds, that QEMU takes for so many turns of the loop at this level.
fn cpu_seconds(guest: &Path, level: u64, turns: u32) -> f64 {
    let mut machine = common::machine(guest, "");
    // The guest takes a number of ten digits or more for a level and a number of turns.
    machine.arg("-append").arg((level * 1_000_000_000 + u64::from(turns)).to_string());
    let output = Command::new("bash")
        .args(["-c", "TIMEFORMAT='%U'; time \"$@\" > /dev/null 2> /dev/null", "bash"])
        .arg(machine.get_program())
        .args(machine.get_args())
        .output()
        .expect("bash starts");
    let said = String::from_utf8_lossy(&output.stderr);
    said.trim().parse().unwrap_or_else(|_| panic!("bash said {said:?} instead of a time"))
}
