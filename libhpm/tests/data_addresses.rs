//! Computed data addresses against a processor: a program is executed step by step, and what each instruction accessed is known from
//! the registers *before* it.

mod traced;

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, OpAccess, OpKind};
use libhpm::analysis::address::{Access, Executed, Unknown};
use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};

use traced::{Stopped, loads, registers, start, value};

/// Instructions that are executed.
const STEPS: usize = 150_000;

/// Every address that the instruction will access in the wanted way, by the registers before it.
fn truth(instruction: &Instruction, before: &Stopped, wanted: Access) -> Vec<u64> {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let takes = |access: OpAccess| {
        let writes = matches!(
            access,
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
        match wanted {
            Access::Load => loads(access),
            Access::Store => writes,
            Access::Any => loads(access) || writes,
        }
    };
    let accesses = info.used_memory().iter().filter(|memory| takes(memory.access()));
    accesses
        .filter_map(|memory| memory.virtual_address(0, |register, _, _| value(before, register)))
        .collect()
}

/// Counts of what was computed.
#[derive(Debug, Default)]
struct Tally {
    given: usize,
    unknown: usize,
    loads_seen_in_memory: usize,
    reasons: std::collections::BTreeMap<Unknown, usize>,
}

/// A load of 8 bytes: what it loaded stands at the address, by the processor's own word.
fn check_memory(instruction: &Instruction, memory: &File, address: u64, after: &Stopped, tally: &mut Tally) {
    let plain = instruction.code() == Code::Mov_r64_rm64 && instruction.op1_kind() == OpKind::Memory;
    let mut bytes = [0; 8];
    if plain && memory.read_exact_at(&mut bytes, address).is_ok() {
        let loaded = value(after, instruction.op0_register()).unwrap();
        assert_eq!(u64::from_le_bytes(bytes), loaded, "{instruction:?} at {address:#x}");
        tally.loads_seen_in_memory += 1;
    }
}

#[test]
fn what_is_computed_is_what_the_processor_accessed() {
    let Some((mut child, pid)) = start(["ls", "-lR", "/usr/share/doc"]) else { return };
    let mut memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut tally = Tally::default();
    for _ in 0..STEPS {
        let before = ptrace::getregs(pid).unwrap();
        let mut code = [0; 16];
        let read = memory.read_at(&mut code, before.rip).unwrap_or(0);
        ptrace::step(pid, None).unwrap();
        match waitpid(pid, None).unwrap() {
            WaitStatus::Stopped(..) => {}
            _ => break,
        }
        if read == 0 {
            // The program was replaced: its memory is another one.
            memory = File::open(format!("/proc/{pid}/mem")).unwrap();
            continue;
        }
        let after = ptrace::getregs(pid).unwrap();
        let instruction = Decoder::with_ip(64, &code, before.rip, DecoderOptions::NONE).decode();
        let registers = registers(&after);
        let executed =
            Executed { code: &code[..read], ip: before.rip, bits: 64, next_ip: after.rip, after: &registers };
        for wanted in [Access::Load, Access::Store, Access::Any] {
            let true_addresses = truth(&instruction, &before, wanted);
            match executed.data_address(wanted) {
                Ok(address) => {
                    assert!(
                        !true_addresses.is_empty() && true_addresses.iter().all(|other| *other == address),
                        "{instruction:?} {wanted:?}: {address:#x}, in truth {true_addresses:x?}"
                    );
                    tally.given += 1;
                    if wanted == Access::Load {
                        check_memory(&instruction, &memory, address, &after, &mut tally);
                    }
                }
                Err(Unknown::NoAccess) => assert!(true_addresses.is_empty(), "{instruction:?} {wanted:?}"),
                Err(reason) => {
                    tally.unknown += 1;
                    *tally.reasons.entry(reason).or_default() += 1;
                }
            }
        }
    }
    child.kill().unwrap();
    let _ = child.wait();
    println!("{tally:?}");
    assert!(tally.given > STEPS / 4 && tally.loads_seen_in_memory > STEPS / 50, "{tally:?}");
    // What cannot be known is the smaller part by far.
    assert!(tally.unknown * 2 < tally.given, "{tally:?}");
}
