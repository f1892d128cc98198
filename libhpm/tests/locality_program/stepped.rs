//! A program is executed step by step on this machine's processor, and each load that misses in a model of a small cache becomes a sample.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory};
use libhpm::record::{Attribution, BranchType};
use libhpm::symbol::FileFinder;
use libhpm::trace::{Event, EventUse, MapRow, Meta, SampleRow, Totals, TraceReader, TraceWriter};
use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::traced::{Stopped, loads, registers, start, value};

/// Sets of the cache that is modelled, which is far smaller than the program's objects.
const SETS: usize = 8;

/// Lines of a set. So many that what each call uses (the stack, the table's head) stays, wherever the loader has put it.
const WAYS: usize = 8;

/// Last branch records of a processor since Skylake.
const BRANCHES: usize = 32;

/// An object by the program's own log.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) kind: String,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The next instruction, and registers (PEBS formats 0 and 1).
    Old,
    /// The instruction, and registers.
    Plain,
    /// The data address as well (of events of loads since Haswell).
    WithAddress,
    /// Both, and the last branches.
    WithBranches,
}

impl Record {
    /// Of an instruction that loaded from an address.
    fn sample(
        self,
        before: &Stopped,
        after: &Stopped,
        address: u64,
        branches: &VecDeque<[u64; 3]>,
    ) -> SampleRow {
        let with_address = matches!(self, Self::WithAddress | Self::WithBranches);
        let branches = || branches.iter().flatten().copied().collect();
        SampleRow {
            tsc: 100,
            period: 1,
            ip: if self == Self::Old { after.rip } else { before.rip },
            next_ip: Some(after.rip),
            registers: Some(registers(after)),
            data_address: with_address.then_some(address),
            branches: (self == Self::WithBranches).then(branches),
            ..SampleRow::default()
        }
    }
}

/// What came of a run.
pub(crate) struct Run {
    pub(crate) reader: TraceReader,
    /// The true data address of each sample.
    pub(crate) truth: Vec<u64>,
    pub(crate) logged: Vec<Logged>,
    _folder: tempfile::TempDir,
}

/// What is executed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// Its source, in `tests/guest`.
    pub(crate) source: &'static str,
    /// Its first argument.
    pub(crate) mode: &'static str,
    /// Its function whose loads are sampled.
    pub(crate) function: &'static str,
}

impl Program {
    fn build(self, folder: &Path) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/guest").join(self.source);
        let (compiler, arguments) = match source.extension().and_then(|extension| extension.to_str()) {
            Some("cpp") => ("c++", &["-O2", "-g", "-o"][..]),
            Some("rs") => ("rustc", &["--edition=2024", "-O", "-g", "-o"][..]),
            _ => ("cc", &["-O2", "-g", "-pthread", "-o"][..]),
        };
        let program = folder.join(source.file_stem().unwrap());
        let status = Command::new(compiler).args(arguments).arg(&program).arg(source).status().unwrap();
        assert!(status.success());
        program
    }
}

/// The address that an instruction loads from first, by the registers before it.
fn load(instruction: &Instruction, before: &Stopped) -> Option<u64> {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(instruction);
    let memory = info.used_memory().iter().find(|memory| loads(memory.access()))?;
    memory.virtual_address(0, |register, _, _| value(before, register))
}

/// A cache that forgets what was used least recently.
struct Cache([[u64; WAYS]; SETS]);

impl Cache {
    const EMPTY: Self = Self([[u64::MAX; WAYS]; SETS]);

    /// Whether an access misses; afterwards its line is there.
    fn misses(&mut self, address: u64) -> bool {
        let line = address / 64;
        let set = &mut self.0[line as usize % SETS];
        let found = set.iter().position(|&one| one == line);
        let way = found.unwrap_or(WAYS - 1);
        set[way] = line;
        set[..=way].rotate_right(1);
        found.is_none()
    }
}

/// The mappings of a stopped process, as rows.
fn mappings(pid: u32, writer: &mut TraceWriter) {
    for line in fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let (start, end) = words[0].split_once('-').unwrap();
        let path = words.get(5).map_or("//anon", |path| path);
        writer
            .map(&MapRow {
                tsc: 1,
                pid,
                start: hex(start),
                end: hex(end),
                file_offset: hex(words[2]),
                path: path.to_owned(),
                build_id: None,
                executable: words[1].contains('x'),
            })
            .unwrap();
    }
}

/// Executes the program and samples each of its missing loads from `first_step` of its own functions on; `None` where the kernel does
/// not let us.
pub(crate) fn run(program: Program, objects: u32, steps: u32, record: Record) -> Option<Run> {
    let folder = tempfile::tempdir().unwrap();
    let Program { mode, function, .. } = program;
    let program = program.build(folder.path());
    let log = folder.path().join("objects.log");
    let place = libhpm::symbol::Place::of_symbol(function);
    let code = libhpm::symbol::Code::around(&place, &program, None, &FileFinder::default()).unwrap().unwrap();
    let linked = code.instructions[0].address..code.instructions.last().unwrap().address + 1;
    let (objects, steps) = (objects.to_string(), steps.to_string());
    let (mut child, pid) =
        start([program.as_os_str(), mode.as_ref(), objects.as_ref(), steps.as_ref(), log.as_os_str()])?;
    let attribution = if record == Record::Old { Attribution::Next } else { Attribution::Cause };
    let event = Event {
        name: "l1d-load-miss".into(),
        mode: EventUse::Precise,
        attribution,
        period: 1,
        user: true,
        ..Event::default()
    };
    let branches = Some(BranchType::ALL.to_vec());
    let meta = Meta { source: "driver".into(), events: vec![event], branches, ..Meta::default() };
    let trace = folder.path().join("run.hpm");
    let mut writer = TraceWriter::create(&trace, meta).unwrap();
    let truth = step_through(pid, &program, &linked, record, &mut writer);
    let _ = child.kill();
    let _ = child.wait();
    writer.finish(Totals::default()).unwrap();
    let mut text = String::new();
    File::open(&log).unwrap().read_to_string(&mut text).unwrap();
    let logged = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let address = u64::from_str_radix(words.get(1)?.strip_prefix("0x")?, 16).ok()?;
        Some(Logged { kind: words[0].to_owned(), address, bytes: words.get(2)?.parse().ok()? })
    });
    let logged = logged.collect();
    Some(Run { reader: TraceReader::open(trace).unwrap(), truth, logged, _folder: folder })
}

/// Lets the program run to the function, then goes through it and what it calls step by step, and runs again between its calls.
fn step_through(
    pid: Pid,
    program: &Path,
    linked: &std::ops::Range<u64>,
    record: Record,
    writer: &mut TraceWriter,
) -> Vec<u64> {
    let number = pid.as_raw() as u32;
    // The exec stops the program.
    ptrace::setoptions(pid, ptrace::Options::PTRACE_O_TRACEEXEC).unwrap();
    ptrace::cont(pid, None).unwrap();
    while !matches!(waitpid(pid, None).unwrap(), WaitStatus::PtraceEvent(..)) {
        ptrace::cont(pid, None).unwrap();
    }
    let path = program.to_str().unwrap();
    let base = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let base = base.lines().find(|line| line.ends_with(path)).unwrap();
    let base = u64::from_str_radix(base.split('-').next().unwrap(), 16).unwrap();
    let start = base + linked.start;
    // A trap where the function begins.
    let memory = fs::OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem")).unwrap();
    let mut first = [0];
    memory.read_exact_at(&mut first, start).unwrap();
    let mut cache = Cache::EMPTY;
    let mut branches: VecDeque<[u64; 3]> = VecDeque::new();
    let (mut truth, mut mapped) = (Vec::new(), false);
    loop {
        memory.write_all_at(&[0xcc], start).unwrap();
        ptrace::cont(pid, None).unwrap();
        if !matches!(waitpid(pid, None).unwrap(), WaitStatus::Stopped(..)) {
            return truth;
        }
        memory.write_all_at(&first, start).unwrap();
        let mut before = ptrace::getregs(pid).unwrap();
        before.rip -= 1;
        ptrace::setregs(pid, before).unwrap();
        if !std::mem::replace(&mut mapped, true) {
            mappings(number, writer);
        }
        let frame = before.rsp;
        // Its return takes the address of its caller off the stack.
        while before.rsp <= frame {
            let mut code = [0; 16];
            memory.read_exact_at(&mut code, before.rip).unwrap();
            let instruction = Decoder::with_ip(64, &code, before.rip, DecoderOptions::NONE).decode();
            let load = load(&instruction, &before);
            ptrace::step(pid, None).unwrap();
            waitpid(pid, None).unwrap();
            let after = ptrace::getregs(pid).unwrap();
            if let Some(address) = load.filter(|&address| cache.misses(address)) {
                let sample = record.sample(&before, &after, address, &branches);
                writer.sample(&SampleRow { pid: number, tid: number, ..sample }).unwrap();
                truth.push(address);
            }
            if instruction.flow_control() != FlowControl::Next && after.rip != instruction.next_ip() {
                branches.truncate(BRANCHES - 1);
                branches.push_front([before.rip, after.rip, 0]);
            }
            before = after;
        }
    }
}
