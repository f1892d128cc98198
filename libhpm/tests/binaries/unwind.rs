//! Unwinding: a real program is executed one instruction at a time, as if each had caused a precise record.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, Stdio};

use libhpm::address_space::AddressSpaces;
use libhpm::symbol::{FileFinder, Symbolizer};
use libhpm::trace::{MapRow, Registers};
use libhpm::unwind::{CallStack, Snapshot, StackUnwinder};
use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
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
    /// The program in its main loop.
    fn start(temp: &TempDir, linker: Linker) -> Self {
        let program = programs::build_with(temp.path(), linker);
        let mut child = Command::new(program).stdout(Stdio::piped()).spawn().unwrap();
        let mut running = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut running).unwrap();
        ptrace::attach(pid_of(&child)).unwrap();
        waitpid(pid_of(&child), None).unwrap();
        Self::stopped(child)
    }

    /// The program before its first instruction, which is the loader's.
    fn start_at_exec(temp: &TempDir) -> Self {
        let program = programs::build(temp.path());
        let mut shell = Command::new("sh");
        shell.args(["-c", "read -r line; exec \"$0\" >/dev/null"]).arg(program).stdin(Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let pid = pid_of(&child);
        ptrace::attach(pid).unwrap();
        waitpid(pid, None).unwrap();
        ptrace::setoptions(pid, ptrace::Options::PTRACE_O_TRACEEXEC).unwrap();
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
        ptrace::cont(pid, None).unwrap();
        while !matches!(waitpid(pid, None).unwrap(), WaitStatus::PtraceEvent(..)) {
            ptrace::cont(pid, None).unwrap();
        }
        Self::stopped(child)
    }

    fn stopped(child: Child) -> Self {
        let pid = child.id();
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
        Self { pid: pid_of(&child), child, memory, spaces, stack_end }
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

    /// Executes one instruction; its stack found from the registers after it must be the one that was there before it.
    fn step_and_compare(&self, unwinder: &mut StackUnwinder) -> CallStack {
        let before = self.registers();
        let ip = before.at(Registers::RIP);
        // No instruction is mapped at 0, so this is the stack of the registers as they are.
        let mut expected = self.unwind(unwinder, 0, &before, 65024);
        expected.frames[0] = ip;
        // An imprecise sample's registers are those before the instruction.
        assert_eq!(self.unwind(unwinder, ip, &before, 65024), expected);
        self.step();
        let found = self.unwind(unwinder, ip, &self.registers(), 65024);
        assert_eq!(found, expected);
        assert!(!found.truncated, "{found:x?}");
        found
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

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap())
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
    let mut seen = BTreeSet::new();
    for _ in 0..STEPS {
        let found = traced.step_and_compare(&mut unwinder);
        let names = traced.names(&mut symbolizer, &found);
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
fn the_loader_is_unwound_to_its_first_instruction() {
    let temp = TempDir::new().unwrap();
    let traced = Traced::start_at_exec(&temp);
    let mut unwinder = StackUnwinder::default();
    let first = traced.registers().at(Registers::RIP);
    for _ in 0..STEPS {
        let stack = traced.step_and_compare(&mut unwinder);
        let outermost = stack.frames.last().unwrap();
        assert!((first..first + 64).contains(outermost), "{first:#x} {stack:x?}");
    }
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
        let executable = true;
        traced.spaces.map(&MapRow {
            tsc: 100,
            pid,
            start,
            end,
            file_offset,
            path,
            executable,
            ..MapRow::default()
        });
    }
    let at = |unwinder: &mut StackUnwinder, tsc| traced.unwind_at(unwinder, tsc, 0, &registers, 65024);
    let mut unwinder = StackUnwinder::default();
    // Without tables the walk guesses by frame pointers; where the program was stopped, they may lead to the end or not.
    at(&mut unwinder, 50);
    let later = at(&mut unwinder, 150);
    assert!(!later.truncated);
    assert_eq!(later, at(&mut StackUnwinder::default(), 150), "as if it had not looked before");
}

#[test]
fn code_without_tables_gives_a_truncated_stack() {
    let mut registers = Registers([0; Registers::COUNT]);
    registers.0[Registers::RIP] = 0x1000;
    let snapshot = Snapshot { pid: 1, tsc: 0, ip: 0xffc, registers: &registers, stack: &[0; 64] };
    let stack = StackUnwinder::default().unwind(&AddressSpaces::default(), &snapshot);
    assert_eq!(stack, CallStack { frames: vec![0xffc], truncated: true });
}

mod damaged {
    use std::path::PathBuf;
    use std::sync::OnceLock;

    use object::{Object as _, ObjectSection as _};
    use proptest::prelude::*;

    use super::*;

    /// Where the test pretends the program was mapped.
    const BASE: u64 = 0x5555_0000_0000;

    /// The program, and where its code is in the file.
    fn program() -> &'static (TempDir, PathBuf, std::ops::Range<u64>) {
        static BUILT: OnceLock<(TempDir, PathBuf, std::ops::Range<u64>)> = OnceLock::new();
        BUILT.get_or_init(|| {
            let temp = TempDir::new().unwrap();
            let program = programs::build(temp.path());
            let bytes = fs::read(&program).unwrap();
            let elf = object::File::parse(&*bytes).unwrap();
            let (start, size) = elf.section_by_name(".text").unwrap().file_range().unwrap();
            (temp, program, start..start + size)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        /// Registers and stacks of a program that went astray give some stack, and end.
        #[test]
        fn any_registers_and_any_stack_give_an_end(
            place in any::<prop::sample::Index>(),
            registers: [u64; Registers::COUNT],
            stack in prop::collection::vec(any::<u8>(), 0..256),
            near_end: bool,
        ) {
            let (_, path, code) = program();
            let mut spaces = AddressSpaces::default();
            let path = path.to_str().unwrap().to_owned();
            spaces.map(&MapRow { pid: 1, start: BASE, end: BASE + (1 << 20), path, executable: true, ..MapRow::default() });
            let mut registers = Registers(registers);
            let ip = BASE + code.start + place.index((code.end - code.start) as usize) as u64;
            registers.0[Registers::RIP] = ip;
            if near_end {
                registers.0[Registers::RSP] = u64::MAX - u64::from(registers.0[0] as u8);
            }
            let snapshot = Snapshot { pid: 1, tsc: 0, ip, registers: &registers, stack: &stack };
            let found = StackUnwinder::default().unwind(&spaces, &snapshot);
            prop_assert!(found.frames.contains(&ip));
        }
    }
}
