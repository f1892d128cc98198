//! Precise sampling against the model: threads, migration, loss, stacks.

mod rig;

use hpm_abi::QuantumEnd;
use rig::core::Instruction::{Branch, Load, Plain, Store};
use rig::{config, counted, precise, Rig, INSTRUCTIONS, LOADS};
use vpmu::Options;

const MIX: [rig::core::Instruction; 5] = [Plain, Load, Load, Store, Branch];

fn rig(cpus: usize) -> Rig {
    let mut rig = Rig::new(cpus, Options::default());
    rig.acquire();
    rig
}

#[test]
fn one_thread_is_sampled_every_period() {
    let mut rig = rig(1);
    let session = rig.add_session(&config(&[precise(LOADS, 1000), counted(INSTRUCTIONS)]));
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    rig.run(0, 500_000, &MIX);
    rig.stop(session);
    rig.read_all();
    let seen = &rig.sessions[session].reader.threads[&rig.users[thread].tid];
    assert_eq!(seen.counts[..2], [200_000, 500_000]);
    assert_eq!(seen.records[0], 200);
    assert_eq!(seen.records_lost, 0);
    assert_eq!(rig.sessions[session].totals().records, 200);
}
