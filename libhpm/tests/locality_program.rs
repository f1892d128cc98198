//! Data addresses, spaces and references of a real program against what it truly did.
//!
//! The program is executed step by step on this machine's processor, its loads go through a model of a small cache, and each miss becomes
//! a sample as PEBS would write it: the instruction, and the registers after it. The analyses see no data address. They are judged by the
//! address that the registers *before* the instruction gave, and by the program's own log of its objects.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory, OpAccess, Register};
use libhpm::analysis::coallocation::{Rules, Verdict, advise};
use libhpm::analysis::locality::Space;
use libhpm::analysis::objects::{Life, Objects};
use libhpm::record::Attribution;
use libhpm::report::{Locator, References, Resolver};
use libhpm::symbol::FileFinder;
use libhpm::trace::{Event, EventUse, MapRow, Meta, Registers, SampleRow, Totals, TraceReader, TraceWriter};
use nix::libc::user_regs_struct;
use nix::sys::ptrace;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// Lines of the cache that is modelled: direct-mapped, far smaller than the program's objects.
const LINES: usize = 64;

/// An object by the program's own log.
#[derive(Clone, Debug)]
struct Logged {
    kind: String,
    address: u64,
    bytes: u64,
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Record {
    /// The next instruction, and registers (PEBS formats 0 and 1).
    Old,
    /// The instruction, and registers.
    Plain,
    /// The data address as well (of events of loads since Haswell).
    WithAddress,
}

/// What came of a run.
struct Run {
    reader: TraceReader,
    /// The true data address of each sample.
    truth: Vec<u64>,
    logged: Vec<Logged>,
    _folder: tempfile::TempDir,
}

fn build(folder: &Path) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/guest/locality.c");
    let program = folder.join("locality");
    let status =
        Command::new("cc").args(["-O2", "-g", "-pthread", "-o"]).arg(&program).arg(source).status().unwrap();
    assert!(status.success());
    program
}

fn value(from: &user_regs_struct, register: Register) -> Option<u64> {
    let whole = match register.full_register() {
        Register::RAX => from.rax,
        Register::RBX => from.rbx,
        Register::RCX => from.rcx,
        Register::RDX => from.rdx,
        Register::RSI => from.rsi,
        Register::RDI => from.rdi,
        Register::RBP => from.rbp,
        Register::RSP => from.rsp,
        Register::R8 => from.r8,
        Register::R9 => from.r9,
        Register::R10 => from.r10,
        Register::R11 => from.r11,
        Register::R12 => from.r12,
        Register::R13 => from.r13,
        Register::R14 => from.r14,
        Register::R15 => from.r15,
        Register::FS => from.fs_base,
        segment if segment.is_segment_register() => 0,
        _ => return None,
    };
    Some(if register.size() == 4 { whole & 0xffff_ffff } else { whole })
}

fn registers(from: &user_regs_struct) -> Registers {
    Registers([
        from.eflags,
        from.rip,
        from.rax,
        from.rbx,
        from.rcx,
        from.rdx,
        from.rsi,
        from.rdi,
        from.rbp,
        from.rsp,
        from.r8,
        from.r9,
        from.r10,
        from.r11,
        from.r12,
        from.r13,
        from.r14,
        from.r15,
    ])
}

/// The address that an instruction loads from first, by the registers before it.
fn load(code: &[u8], before: &user_regs_struct) -> Option<u64> {
    let instruction = Decoder::with_ip(64, code, before.rip, DecoderOptions::NONE).decode();
    let mut factory = InstructionInfoFactory::new();
    let loads = |access| matches!(access, OpAccess::Read | OpAccess::ReadWrite | OpAccess::CondRead);
    let info = factory.info(&instruction);
    let memory = info.used_memory().iter().find(|memory| loads(memory.access()))?;
    memory.virtual_address(0, |register, _, _| value(before, register))
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
fn run(mode: &str, objects: u32, steps: u32, record: Record, function: &str) -> Option<Run> {
    let folder = tempfile::tempdir().unwrap();
    let program = build(folder.path());
    let log = folder.path().join("objects.log");
    let place = libhpm::symbol::Place::of_symbol(function);
    let code = libhpm::symbol::Code::around(&place, &program, &FileFinder::default()).unwrap().unwrap();
    let linked = code.instructions[0].address..code.instructions.last().unwrap().address + 1;
    let script = "read line; exec \"$@\"";
    let mut child = Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(&program)
        .args([mode, &objects.to_string(), &steps.to_string()])
        .arg(&log)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    if ptrace::attach(pid).is_err() {
        child.kill().unwrap();
        child.wait().unwrap();
        return None;
    }
    waitpid(pid, None).unwrap();
    drop(child.stdin.take());
    let attribution = if record == Record::Old { Attribution::Next } else { Attribution::Cause };
    let event = Event {
        name: "l1d-load-miss".into(),
        mode: EventUse::Precise,
        attribution,
        period: 1,
        user: true,
        ..Event::default()
    };
    let meta = Meta { source: "driver".into(), events: vec![event], ..Meta::default() };
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

/// Lets the program run to the function, then goes through it step by step, and runs again between its calls.
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
    let function = base + linked.start..base + linked.end;
    // A trap where the function begins.
    let memory = fs::OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem")).unwrap();
    let mut first = [0];
    memory.read_exact_at(&mut first, function.start).unwrap();
    let mut cache = [u64::MAX; LINES];
    let (mut truth, mut mapped) = (Vec::new(), false);
    loop {
        memory.write_all_at(&[0xcc], function.start).unwrap();
        ptrace::cont(pid, None).unwrap();
        if !matches!(waitpid(pid, None).unwrap(), WaitStatus::Stopped(..)) {
            return truth;
        }
        memory.write_all_at(&first, function.start).unwrap();
        let mut before = ptrace::getregs(pid).unwrap();
        before.rip -= 1;
        ptrace::setregs(pid, before).unwrap();
        if !std::mem::replace(&mut mapped, true) {
            mappings(number, writer);
        }
        while function.contains(&before.rip) {
            let mut code = [0; 16];
            memory.read_exact_at(&mut code, before.rip).unwrap();
            let load = load(&code, &before);
            ptrace::step(pid, None).unwrap();
            waitpid(pid, None).unwrap();
            let after = ptrace::getregs(pid).unwrap();
            if let Some(address) = load {
                let line = address / 64;
                let slot = &mut cache[line as usize % LINES];
                if std::mem::replace(slot, line) != line {
                    let ip = if record == Record::Old { after.rip } else { before.rip };
                    writer
                        .sample(&SampleRow {
                            tsc: 100,
                            pid: number,
                            tid: number,
                            period: 1,
                            ip,
                            next_ip: Some(after.rip),
                            registers: Some(registers(&after)),
                            data_address: (record == Record::WithAddress).then_some(address),
                            ..SampleRow::default()
                        })
                        .unwrap();
                    truth.push(address);
                }
            }
            before = after;
        }
    }
}

/// Of the kinds of objects by the program's log: how many samples truly missed them.
fn true_misses(run: &Run) -> BTreeMap<String, f64> {
    let mut misses = BTreeMap::new();
    for address in &run.truth {
        let inside = |one: &&Logged| (one.address..one.address + one.bytes).contains(address);
        let kind = run.logged.iter().find(inside).map_or("none", |one| &one.kind);
        *misses.entry(kind.to_owned()).or_default() += 1.0;
    }
    misses
}

fn objects(run: &Run) -> Objects {
    let pid = run.reader.rows::<SampleRow>().next().unwrap().pid;
    let mut lives: Vec<Life> = run
        .logged
        .iter()
        .map(|one| Life {
            allocated: 1,
            freed: None,
            pid,
            address: one.address,
            bytes: one.bytes,
            site: one.kind.as_str().into(),
        })
        .collect();
    // So much later that the others are old.
    lives.push(Life {
        allocated: 50,
        freed: None,
        pid,
        address: 1 << 60,
        bytes: 1 << 30,
        site: "later".into(),
    });
    Objects::new(lives)
}

/// What the analyses say.
struct Found {
    known: usize,
    wrong: Vec<(u64, u64)>,
    /// Known addresses that are in an object, or are not, and whose space says otherwise.
    misplaced: usize,
    references: References,
}

fn analyse(run: &Run) -> Found {
    let resolver = Resolver::new(&run.reader, FileFinder::default());
    let objects = objects(run);
    let mut locator = Locator::new(&run.reader.meta().events, FileFinder::default());
    run.reader.rows::<SampleRow>().for_each(|row| locator.note(&row));
    let mut found =
        Found { known: 0, wrong: vec![], misplaced: 0, references: References::new(FileFinder::default()) };
    for (row, &truth) in run.reader.rows::<SampleRow>().zip(&run.truth) {
        let located = locator.locate(&resolver, &row, |address| {
            let (object, age) = objects.at(row.pid, row.tsc, address)?;
            Some((object, age < 4 << 20))
        });
        if let Ok(address) = located.access.address {
            found.known += 1;
            found.wrong.extend((address != truth).then_some((address, truth)));
            let inside = |one: &Logged| (one.address..one.address + one.bytes).contains(&truth);
            let is_object = run.logged.iter().any(inside);
            found.misplaced += usize::from((located.access.space == Space::Heap) != is_object);
        }
        found.references.add(&resolver, &mut locator, &row, &located, &objects);
    }
    found
}

/// The share of all samples that a field has.
fn share(found: &Found, field: &str) -> f64 {
    let weights = found.references.weights();
    let table = weights.table();
    let weight = table.iter().find(|(one, _)| one.to_string() == field);
    weight.map_or(0.0, |(_, weight)| weight.samples / weights.all().samples)
}

#[test]
fn dbs_references_have_the_weights_of_its_own_log() {
    let Some(run) = run("db", 400, 1500, Record::WithAddress, "visit") else { return };
    let found = analyse(&run);
    let misses = true_misses(&run);
    let all = run.truth.len() as f64;
    println!("{} samples, {} known; true misses {misses:?}", run.truth.len(), found.known);
    println!("{:?}", found.references.weights().table());
    assert!(run.truth.len() > 3000, "{}", run.truth.len());
    assert!(found.wrong.is_empty(), "{:x?}", found.wrong);
    let fields = [
        ("entry*[]::[]", "entry"),
        ("entry::items", "vector"),
        ("vector::elements", "elements"),
        ("string*[]::[]", "string"),
        ("string::value", "characters"),
    ];
    for (field, kind) in fields {
        let (weight, truth) = (share(&found, field), misses.get(kind).copied().unwrap_or(0.0) / all);
        assert!((weight - truth).abs() < 0.05, "{field} has {weight}, {kind} were missed with {truth}");
        assert!(truth > 0.1, "{kind}: {truth}");
    }
    let weights = found.references.weights();
    let advice = advise(found.references.candidates(), weights.all(), &Rules::default());
    let together: Vec<String> = advice
        .iter()
        .filter(|one| one.verdict == Verdict::CoAllocate)
        .map(|one| one.candidate.pair.field.to_string())
        .collect();
    println!("together: {together:?}");
    for wanted in ["entry::items", "vector::elements", "string::value"] {
        assert!(together.iter().any(|one| one == wanted), "{wanted} is not in {together:?}");
    }
    assert!(!together.iter().any(|one| one.contains("[]") || one == "database::index"), "{together:?}");
}

/// As the formats of PEBS do that name the next instruction: what is given is right as well.
#[test]
fn addresses_are_right_where_the_next_instruction_is_reported() {
    let Some(run) = run("db", 400, 800, Record::Old, "visit") else { return };
    let found = analyse(&run);
    println!("{} samples, {} known", run.truth.len(), found.known);
    assert!(found.wrong.is_empty(), "{:x?}", found.wrong);
}

#[test]
fn lists_and_trees_are_attributed() {
    for (mode, function, field, kind) in
        [("table", "look_up", "node::next", "node"), ("tree", "search", "page::children[]", "page")]
    {
        let Some(run) = run(mode, 600, 700, Record::Plain, function) else { return };
        let found = analyse(&run);
        println!("{mode}: {} samples, {} known; {:?}", run.truth.len(), found.known, true_misses(&run));
        println!("{:?} {:?}", found.references.weights().table(), found.references.unattributed());
        assert!(found.wrong.is_empty(), "{mode}: {:x?}", found.wrong);
        assert_eq!(found.misplaced, 0, "{mode}");
        // Half of each sample came from what the function was given, as long as no branch records tell better.
        assert!(share(&found, field) > 0.35, "{mode}: {field} has {}", share(&found, field));
        assert!(true_misses(&run)[kind] > 0.2 * run.truth.len() as f64, "{mode}");
    }
}
