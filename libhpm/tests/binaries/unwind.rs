//! Unwinding: a real program is executed one instruction at a time, as if each had caused a precise record.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command};

use libhpm::address_space::AddressSpaces;
use libhpm::symbol::{FileFinder, Symbolizer};
use libhpm::trace::{MapRow, Registers};
use libhpm::unwind::{CallStack, Snapshot, StackUnwinder};
use nix::sys::ptrace;
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::programs::{self, Linker};

/// Enough for one round of the program's main loop, with its sorting.
const STEPS: usize = 20_000;

/// The program, stopped.
struct Traced {
    child: Child,
    pid: Pid,
    memory: File,
    spaces: AddressSpaces,
    stack_end: u64,
}

impl Traced {
    fn start(temp: &TempDir, linker: Linker) -> Self {
        let child = Command::new(programs::build_with(temp.path(), linker)).spawn().unwrap();
        let pid = Pid::from_raw(child.id().try_into().unwrap());
        // The loader has mapped the C library once the program has used some time of its own.
        while !fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().contains("libc.so") {
            std::thread::yield_now();
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
        ptrace::attach(pid).unwrap();
        waitpid(pid, None).unwrap();
        let mut spaces = AddressSpaces::default();
        let mut stack_end = 0;
        for line in fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let (start, end) = words[0].split_once('-').unwrap();
            let [start, end, file_offset] =
                [start, end, words[2]].map(|text| u64::from_str_radix(text, 16).unwrap());
            let path = words.get(5).copied().unwrap_or_default().to_owned();
            if path == "[stack]" {
                stack_end = end;
            }
            if words[1].contains('x') {
                let pid = child.id();
                spaces.map(&MapRow {
                    pid,
                    start,
                    end,
                    file_offset,
                    path,
                    executable: true,
                    ..MapRow::default()
                });
            }
        }
        let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
        Self { child, pid, memory, spaces, stack_end }
    }

    fn step(&self) {
        ptrace::step(self.pid, None).unwrap();
        waitpid(self.pid, None).unwrap();
    }

    fn registers(&self) -> Registers {
        let r = ptrace::getregs(self.pid).unwrap();
        Registers([
            r.eflags, r.rip, r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10,
            r.r11, r.r12, r.r13, r.r14, r.r15,
        ])
    }

    /// The stack found from these registers and the stack as it is now, with at most this many bytes of it.
    fn unwind(
        &self,
        unwinder: &mut StackUnwinder,
        ip: u64,
        registers: &Registers,
        bytes: usize,
    ) -> CallStack {
        self.unwind_at(unwinder, 0, ip, registers, bytes)
    }

    /// The same for a record of another time.
    fn unwind_at(
        &self,
        unwinder: &mut StackUnwinder,
        tsc: u64,
        ip: u64,
        registers: &Registers,
        bytes: usize,
    ) -> CallStack {
        let sp = registers.at(Registers::RSP);
        let mut stack = vec![0; bytes.min((self.stack_end - sp).try_into().unwrap())];
        self.memory.read_exact_at(&mut stack, sp).unwrap();
        unwinder.unwind(&self.spaces, &Snapshot { pid: self.child.id(), tsc, ip, registers, stack: &stack })
    }

    fn names(&self, symbolizer: &mut Symbolizer, stack: &CallStack) -> Vec<String> {
        let mut names = Vec::new();
        for (depth, &address) in stack.frames.iter().enumerate() {
            let frames = symbolizer.frames(&self.spaces, self.child.id(), 0, address - u64::from(depth > 0));
            names.extend(frames.iter().map(|frame| frame.function.as_deref().unwrap_or("?").to_owned()));
        }
        names
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_stack_of_an_instruction_is_found_from_the_registers_after_it() {
    stacks_of_each_instruction(Linker::Gnu);
}

#[test]
fn code_that_shares_a_page_of_its_file_is_unwound_as_well() {
    stacks_of_each_instruction(Linker::Lld);
}

fn stacks_of_each_instruction(linker: Linker) {
    let temp = TempDir::new().unwrap();
    let traced = Traced::start(&temp, linker);
    let (mut unwinder, mut symbolizer) =
        (StackUnwinder::default(), Symbolizer::new(FileFinder::default(), []));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..STEPS {
        let before = traced.registers();
        let ip = before.at(Registers::RIP);
        // No instruction is mapped at 0, so this is the stack of the registers as they are.
        let mut expected = traced.unwind(&mut unwinder, 0, &before, 65024);
        expected.frames[0] = ip;
        traced.step();
        let found = traced.unwind(&mut unwinder, ip, &traced.registers(), 65024);
        let names = traced.names(&mut symbolizer, &found);
        assert_eq!(found, expected, "{names:?}");
        assert!(!found.truncated, "{names:?}");
        assert_eq!(names.last().map(String::as_str), Some("_start"), "{names:?}");
        seen.insert(names);
    }
    let deep = seen.iter().find(|names| names[0] == "inlined" && names[2] == "compare").unwrap();
    let own: Vec<&str> =
        deep.iter().map(String::as_str).filter(|name| !name.contains(['?', '_', ':'])).collect();
    let middle = own.iter().position(|&name| name == "sorting").unwrap();
    assert_eq!(own[..3], ["inlined", "innermost", "compare"]);
    assert_eq!(own[middle..], ["sorting", "middle", "middle", "middle", "middle", "main"]);
}

#[test]
fn a_stack_copied_in_part_is_truncated() {
    let temp = TempDir::new().unwrap();
    let traced = Traced::start(&temp, Linker::Gnu);
    let mut unwinder = StackUnwinder::default();
    let registers = traced.registers();
    let ip = registers.at(Registers::RIP);
    let whole = traced.unwind(&mut unwinder, 0, &registers, 65024);
    let part = traced.unwind(&mut unwinder, 0, &registers, 64);
    assert!(!whole.truncated && part.truncated);
    assert!(part.frames.len() < whole.frames.len());
    assert_eq!(part.frames[..], whole.frames[..part.frames.len()]);
    let none = traced.unwind(&mut unwinder, ip, &registers, 0);
    assert_eq!(none.frames[0], ip);
    assert!(none.truncated);
}

#[test]
fn files_mapped_after_an_earlier_record_are_known_to_a_later_one() {
    let temp = TempDir::new().unwrap();
    let mut traced = Traced::start(&temp, Linker::Gnu);
    let registers = traced.registers();
    let mappings = std::mem::take(&mut traced.spaces).at(traced.child.id(), 0);
    for mapping in mappings {
        let libhpm::address_space::Mapping { start, end, file_offset, path, .. } = mapping;
        let (pid, path) = (traced.child.id(), path.to_string());
        traced.spaces.map(&MapRow { tsc: 100, pid, start, end, file_offset, path, ..MapRow::default() });
    }
    let mut unwinder = StackUnwinder::default();
    let mut at = |tsc| traced.unwind_at(&mut unwinder, tsc, 0, &registers, 65024);
    assert!(at(50).truncated);
    assert!(!at(150).truncated);
}

#[test]
fn code_without_tables_gives_a_truncated_stack() {
    let mut registers = Registers([0; Registers::COUNT]);
    registers.0[Registers::RIP] = 0x1000;
    let snapshot = Snapshot { pid: 1, tsc: 0, ip: 0xffc, registers: &registers, stack: &[0; 64] };
    let stack = StackUnwinder::default().unwind(&AddressSpaces::default(), &snapshot);
    assert_eq!(stack, CallStack { frames: vec![0xffc], truncated: true });
}
