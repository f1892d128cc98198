//! What most tests begin with: events, requests, and a thread of a session on a CPU.

use hpm_abi::{EventMode, EventSpec, QuantumEnd, Scope, SessionConfig};
use hpm_core::Program;
use vpmu::profile::Hybrid;
use vpmu::{Options, Profile};

use super::core::Instruction::{self, Branch, Load, Plain, Store};
use super::{netburst, Rig};

pub const INSTRUCTIONS: u64 = 0x00C0;
pub const LOADS: u64 = 0x81D0;
pub const STORES: u64 = 0x82D0;
pub const BRANCHES: u64 = 0x04C4;
pub const PRECISE_INSTRUCTIONS: u64 = 0x01C0;

/// Instructions of a program that does a little of everything.
pub const MIX: [Instruction; 5] = [Plain, Load, Load, Store, Branch];

pub fn counted(encoding: u64) -> EventSpec {
    let mode = EventMode::Count as u8;
    EventSpec { encoding, mode, privilege: EventSpec::USER, ..EventSpec::default() }
}

pub fn precise(encoding: u64, period: u64) -> EventSpec {
    EventSpec { period, mode: EventMode::Precise as u8, ..counted(encoding) }
}

pub fn interrupting(encoding: u64, period: u64) -> EventSpec {
    EventSpec { period, mode: EventMode::Interrupt as u8, ..counted(encoding) }
}

pub fn config(events: &[EventSpec]) -> SessionConfig {
    let samples = events.iter().any(|event| event.mode != EventMode::Count as u8);
    let mut config = SessionConfig {
        scope: Scope::Process as u32,
        pid: 1,
        event_count: events.len() as u32,
        segments: if samples { 4 } else { 0 },
        quanta: 1024,
        ..SessionConfig::default()
    };
    config.events[..events.len()].copy_from_slice(events);
    config
}

/// Whether one instruction of this kind is one of this event.
pub fn is_event(event: &EventSpec, instruction: Instruction) -> bool {
    match event.encoding {
        INSTRUCTIONS | PRECISE_INSTRUCTIONS | 0x0100 => true,
        netburst::INSTRUCTIONS | netburst::INSTRUCTIONS_COMPLETED => true,
        netburst::BRANCHES => instruction == Instruction::Branch,
        netburst::FRONT_END if event.extra == netburst::TAG_LOADS => instruction == Instruction::Load,
        netburst::FRONT_END if event.extra == netburst::TAG_STORES => instruction == Instruction::Store,
        // AMD's cycles, ops and fetches, of which the model's instructions are one each, and its branches.
        0x0076 | 0x00C1 | 0x0080 | 0x1_0000_1F8E => true,
        0x00C2 => instruction == Instruction::Branch,
        LOADS | 0x010B => instruction == Instruction::Load,
        STORES | 0x020B => instruction == Instruction::Store,
        BRANCHES | 0x00C4 => instruction == Instruction::Branch,
        encoding => unreachable!("{encoding:#x} is not an event of these tests"),
    }
}

/// CPUs of a Skylake whose PMUs hpm holds.
pub fn acquired(cpus: usize) -> Rig {
    let mut rig = Rig::new(cpus, Options::default());
    rig.acquire();
    rig
}

/// A machine with a core of each type, of which the first is a performance core and the second an efficient core.
pub fn hybrid() -> Rig {
    hybrid_of(&vpmu::profile::ALDER_LAKE)
}

/// The same of this processor.
pub fn hybrid_of(performance: &'static Profile) -> Rig {
    let others = performance.hybrid.into_iter().flat_map(Hybrid::others);
    Rig::with(&std::iter::once(performance).chain(others).collect::<Vec<_>>(), Options::default())
}

/// One CPU with one thread of one session on it; the session, and the thread's ID.
pub fn one_thread(config: &SessionConfig) -> (Rig, usize, u32) {
    let mut rig = acquired(1);
    let session = rig.add_session(config);
    let tid = start_thread(&mut rig, session);
    (rig, session, tid)
}

/// Puts a new thread of the session on the first CPU; its ID.
pub fn start_thread(rig: &mut Rig, session: usize) -> u32 {
    let thread = rig.add_thread(Some(session));
    rig.switch(0, thread, QuantumEnd::Preempted);
    rig.users[thread].tid
}

/// Runs the thread of [`one_thread`] in twenty quanta: its counts are the truth, and it has as many records of each of these sampled events
/// as its own period makes of them.
pub fn each_keeps_its_period(rig: &mut Rig, session: usize, tid: u32, events: &[EventSpec]) {
    for _ in 0..20 {
        rig.run(0, 4997, &MIX);
        rig.cut(0, QuantumEnd::Timer);
        rig.read_all();
    }
    rig.stop(session);
    rig.read_all();
    let truth = rig.users[1].truth;
    let seen = &rig.sessions[session].reader.threads[&tid];
    assert_eq!(seen.counts, truth);
    for (event, spec) in events.iter().enumerate() {
        assert_eq!(seen.records[event], truth[event] / spec.period, "event {event}");
    }
}

/// Two new threads of a session, each of `rounds` times on the CPU that the other was on before: one loads 333 times, the
/// other 77 times. `then` comes after each round. Their IDs, and how often they loaded.
pub fn take_turns(
    rig: &mut Rig,
    session: usize,
    rounds: usize,
    mut then: impl FnMut(&mut Rig),
) -> [(u32, u64); 2] {
    let threads = [rig.add_thread(Some(session)), rig.add_thread(Some(session))];
    for round in 0..rounds {
        let cpu = round % 2;
        rig.switch(cpu, threads[0], QuantumEnd::Preempted);
        rig.switch(1 - cpu, threads[1], QuantumEnd::Preempted);
        rig.run(cpu, 333, &[Load]);
        rig.run(1 - cpu, 77, &[Load]);
        rig.switch(cpu, 0, QuantumEnd::Yielded);
        rig.switch(1 - cpu, 1, QuantumEnd::Yielded);
        then(rig);
    }
    let loads = [333, 77].map(|each| rounds as u64 * each);
    std::array::from_fn(|i| (rig.users[threads[i]].tid, loads[i]))
}

/// Runs a request, if the driver accepts it, on every CPU from taking the PMU to giving it back as it was. The model panics
/// at a fault.
pub fn exercise(mut rig: Rig, request: &SessionConfig) {
    if rig.pmus.iter().any(|pmu| Program::new(pmu, request).is_err()) {
        return;
    }
    let before = rig.registers();
    rig.acquire();
    let session = rig.add_session(request);
    let cpus = 0..rig.cores.len();
    for cpu in cpus.clone() {
        let thread = rig.add_thread(Some(session));
        rig.switch(cpu, thread, QuantumEnd::Preempted);
    }
    for cpu in cpus.clone() {
        rig.run_unjudged(cpu, 3000, &[Load, Store, Branch]);
        rig.cut(cpu, QuantumEnd::Flush);
        rig.run_unjudged(cpu, 300, &[Load]);
    }
    cpus.for_each(|cpu| rig.switch(cpu, cpu, QuantumEnd::Exit));
    rig.stop(session);
    rig.release();
    assert_eq!(rig.registers(), before);
}
