//! Probes on the functions of a program's own allocator: for programs that are linked statically, into which nothing can be preloaded.
//!
//! The kernel stops the program at each call and each return of such a function and writes what its registers hold into a ring (uprobes,
//! perf_event_open(2)); that costs some microseconds each, where the preloaded library needs a twentieth. What was seen stays in memory
//! until the end.
//!
//! A call without its return, and a return without its call, count as lost, so that what is said to be lost is the most that can be.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use object::{Object, ObjectSymbol};

use super::calls::{Call, FUNCTIONS, Function, Seen, What, lives};
use super::lives::{Times, join};
use super::{Allocated, TraceClock};
use crate::elf::{self, Segments};
use crate::sideband::{Change, Entry, Parser, possible_cpus};
use crate::source::perf::record::{self, Taken, Timed};
use crate::sys::clock::ClockPair;
use crate::sys::perf::{
    self, Attach, Attributes, EventId, Inherit, PerfEvent, Ring, SAMPLE_CALLCHAIN, SAMPLE_EVENT,
    SAMPLE_USER_STACK, Sampling, USER_REGISTERS,
};
use crate::trace::{Allocations, Registers};
use crate::{Error, Result};

/// Bytes of the ring of a CPU, as far as the user may have them: some 15,000 calls.
const RING_BYTES: usize = 4 << 20;
/// Bytes of stack with a call: its return address; and with a return of posix_memalign: its caller's variables.
const STACK_AT_CALL: u32 = 8;
const STACK_AT_RETURN: u32 = 1024;
/// Most return addresses of an allocation, as of the preloaded library.
const FRAMES_MAX: usize = super::log::FRAMES_MAX;

/// How the kernel names the page to which functions with a probe return.
const TRAMPOLINE: &str = "[uprobes]";

/// Whether a program has no dynamic linker, which could preload a library. False for what is not an ELF file.
#[must_use]
pub fn is_static(program: &Path) -> bool {
    elf::read(program, |elf| Ok(elf.section_by_name(".interp").is_none())).unwrap_or(false)
}

/// Probes on a program that has yet to be executed, and on what it forks.
#[derive(Debug)]
pub struct Probes {
    rings: Vec<Ring>,
    /// Events whose records go to the rings.
    events: Vec<PerfEvent>,
    /// What the events are of; goes after them.
    places: perf::Probes,
    /// By the kernel's number: the function, and whether it returns.
    by_id: HashMap<u64, (Function, bool)>,
    parser: Parser,
    pid: u32,
    began: ClockPair,
    seen: Vec<Seen>,
    lost: u64,
}

impl Probes {
    /// Probes on the functions that a program defines, for a process that will execute it.
    ///
    /// # Errors
    /// [`Error::NoAllocator`] when its symbols name no `malloc`; [`Error::Probes`] when the kernel has no probes, or this user may not use them.
    pub fn of_program(pid: i32, program: &Path) -> Result<Self> {
        let functions = functions(program).map_err(Error::io("read the program's symbols"))?;
        if !functions.iter().any(|(_, function)| *function == Function::Malloc) {
            return Err(Error::NoAllocator { program: program.to_owned() });
        }
        let mut probes = Self {
            rings: Vec::new(),
            events: Vec::new(),
            places: perf::Probes::new(program).map_err(refused)?,
            by_id: HashMap::new(),
            parser: Parser::new(SAMPLE_EVENT | SAMPLE_CALLCHAIN | SAMPLE_USER_STACK, USER_REGISTERS),
            pid: pid as u32,
            began: ClockPair::now(),
            seen: Vec::new(),
            lost: 0,
        };
        let events = probes.define(&functions).map_err(refused)?;
        for cpu in possible_cpus() {
            probes.open(Attach::ThreadOnExec(pid), cpu, &events).map_err(refused)?;
        }
        Ok(probes)
    }

    /// Defines what happens at the functions' beginnings and ends.
    fn define(&mut self, functions: &[(u64, Function)]) -> io::Result<Vec<(EventId, Function, bool)>> {
        let mut events = Vec::new();
        for &(offset, function) in functions {
            for at_return in [false, true] {
                if function != Function::Free || !at_return {
                    events.push((self.places.define(offset, at_return)?, function, at_return));
                }
            }
        }
        Ok(events)
    }

    /// Opens the ring of a CPU and what writes to it.
    fn open(&mut self, attach: Attach, cpu: u32, events: &[(EventId, Function, bool)]) -> io::Result<()> {
        let reports =
            Attributes { event: EventId::DUMMY, sampling: Sampling::Never, sideband: true, ..ATTRIBUTES };
        let dummy = match PerfEvent::open(&reports, attach, Some(cpu), None) {
            // The CPU is offline.
            Err(reason) if reason.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
            result => result?,
        };
        let ring = Ring::map(dummy, RING_BYTES)?;
        for &(event, function, at_return) in events {
            let stack_bytes = match function {
                Function::PosixMemalign if at_return => STACK_AT_RETURN,
                _ => STACK_AT_CALL,
            };
            let attributes = Attributes { event, stack_bytes, ..ATTRIBUTES };
            let event = PerfEvent::open(&attributes, attach, Some(cpu), None)?;
            event.send_to(&ring)?;
            self.by_id.insert(event.id()?, (function, at_return));
            self.events.push(event);
        }
        self.rings.push(ring);
        Ok(())
    }

    /// Descriptors that become readable when [`Probes::take`] should be called.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(AsFd::as_fd)
    }

    /// Takes what the kernel has written.
    pub fn take(&mut self) {
        let Self { rings, by_id, parser, seen, lost, .. } = self;
        for ring in rings {
            ring.drain(|kind, misc, body| match record::parse(parser, kind, misc, body) {
                Some(Timed { ns, what: record::What::Sample(taken) }) => {
                    seen.extend(by_id.get(&taken.id).and_then(|of| sample(ns, *taken, *of)));
                }
                Some(Timed { what: record::What::Report(entry), .. }) => match report(&entry) {
                    Ok(found) => seen.extend(found),
                    Err(count) => *lost += count,
                },
                _ => {}
            });
        }
    }

    /// Ends the probes; the objects, and how they were recorded.
    #[must_use]
    pub fn finish(mut self, clock: TraceClock) -> (Vec<Allocated>, Allocations) {
        self.take();
        let Self { pid, began, seen, lost, .. } = self;
        let (lives, halves) = lives(pid, began.monotonic_raw_ns, seen);
        let processes = lives.iter().filter(|life| !life.entries.is_empty()).count() as u64;
        let mut objects = join(lives);
        let times = Times { from: (began.tsc, began.monotonic_raw_ns), now: ClockPair::now() };
        times.convert_ns(&mut objects, clock);
        (objects, Allocations { processes, lost: lost + halves, ..Allocations::default() })
    }
}

fn refused(reason: io::Error) -> Error {
    match reason.raw_os_error() {
        Some(libc::EMFILE) => Error::io("open probes, some twenty for each CPU (raise `ulimit -n`)")(reason),
        _ => Error::Probes(reason),
    }
}

/// What all have in common.
const ATTRIBUTES: Attributes = Attributes {
    event: EventId::DUMMY,
    sampling: Sampling::Period(1),
    sample_type: SAMPLE_EVENT | SAMPLE_CALLCHAIN | SAMPLE_USER_STACK,
    stack_bytes: STACK_AT_CALL,
    user_chain: true,
    user: true,
    kernel: false,
    inherit: Inherit::All,
    disabled: true,
    sideband: false,
    switches: false,
};

/// Where in its file a program has the functions of its allocator, each place once.
fn functions(program: &Path) -> io::Result<Vec<(u64, Function)>> {
    elf::read(program, |elf| {
        let segments = Segments::of(elf);
        let mut found: Vec<(u64, Function)> = Vec::new();
        for symbol in elf.symbols().chain(elf.dynamic_symbols()).filter(|symbol| symbol.is_definition()) {
            let name = symbol.name()?;
            let Some((_, function)) = FUNCTIONS.into_iter().find(|(of, _)| *of == name) else { continue };
            let Some(offset) = segments.offset_of(symbol.address()) else { continue };
            if found.iter().all(|(other, _)| *other != offset) {
                found.push((offset, function));
            }
        }
        Ok(found)
    })
}

/// What a sample at a function's first instruction or after its return tells.
fn sample(ns: u64, taken: Taken, (function, at_return): (Function, bool)) -> Option<Seen> {
    let registers = taken.registers?;
    let sp = registers.at(Registers::RSP);
    let what = if at_return {
        let stack = if function == Function::PosixMemalign { taken.stack } else { vec![] };
        What::Returned { function, value: registers.at(Registers::RAX), stack: (sp, stack) }
    } else {
        let arguments = [Registers::RDI, Registers::RSI, Registers::RDX].map(|place| registers.at(place));
        let mut frames: Vec<u64> =
            taken.stack.first_chunk().map(|word| u64::from_le_bytes(*word)).into_iter().collect();
        // Behind the function itself; newer kernels know that its caller has no frame pointer of it yet, others miss the caller.
        let known = usize::from(taken.chain.get(1) == frames.first());
        frames.extend(taken.chain.iter().skip(1 + known).take(FRAMES_MAX - 1));
        What::Called(Call { function, arguments, sp, frames })
    };
    Some(Seen { ns, pid: taken.pid, tid: taken.tid, what })
}

/// What a report tells of a process, if anything; how many records found no room.
fn report(entry: &Entry) -> std::result::Result<Option<Seen>, u64> {
    let what = match &entry.change {
        &Change::Fork { parent_pid, .. } if parent_pid != entry.pid => What::Forked(parent_pid),
        Change::Name { exec: true, .. } => What::Executed,
        Change::Map(mapping) if mapping.path == TRAMPOLINE => What::Trampoline(mapping.start),
        &Change::Lost(count) => return Err(count),
        _ => return Ok(None),
    };
    Ok(Some(Seen { ns: entry.monotonic_raw_ns, pid: entry.pid, tid: entry.tid, what }))
}
