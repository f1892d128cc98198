//! Calls of an allocator's functions and their returns, as the kernel saw them, put together to what was allocated and freed.

use std::collections::{HashMap, HashSet};

use super::lives::{Happened, Life};

/// What a function of an allocator does (malloc(3), posix_memalign(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Malloc,
    Calloc,
    Realloc,
    ReallocArray,
    /// `aligned_alloc` and `memalign`.
    Aligned,
    PosixMemalign,
    Free,
}

/// Every one by its name. `valloc` and `pvalloc` take what `malloc` does.
pub(super) const FUNCTIONS: [(&str, Function); 10] = [
    ("malloc", Function::Malloc),
    ("calloc", Function::Calloc),
    ("realloc", Function::Realloc),
    ("reallocarray", Function::ReallocArray),
    ("aligned_alloc", Function::Aligned),
    ("memalign", Function::Aligned),
    ("posix_memalign", Function::PosixMemalign),
    ("valloc", Function::Malloc),
    ("pvalloc", Function::Malloc),
    ("free", Function::Free),
];

impl Function {
    /// How many bytes are asked for.
    fn bytes(self, [first, second, third]: [u64; 3]) -> u64 {
        match self {
            Self::Malloc => first,
            Self::Calloc => first.saturating_mul(second),
            Self::Realloc | Self::Aligned => second,
            Self::ReallocArray => second.saturating_mul(third),
            Self::PosixMemalign => third,
            Self::Free => 0,
        }
    }

    /// The object that it gives back, or makes another one of.
    fn ends(self, arguments: [u64; 3]) -> u64 {
        match self {
            Self::Free | Self::Realloc | Self::ReallocArray => arguments[0],
            _ => 0,
        }
    }
}

/// Something that a thread did.
#[derive(Debug)]
pub(super) struct Seen {
    /// CLOCK_MONOTONIC_RAW.
    pub(super) ns: u64,
    pub(super) pid: u32,
    pub(super) tid: u32,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    Called(Call),
    Returned {
        function: Function,
        value: u64,
        /// RSP then, and what lies there: posix_memalign's object is told by a variable of its caller's.
        stack: (u64, Vec<u8>),
    },
    /// The process was forked from this one.
    Forked(u32),
    /// The process executes a program from now on.
    Executed,
    /// The kernel has put the page there to which functions with a probe return.
    Trampoline(u64),
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) function: Function,
    pub(super) arguments: [u64; 3],
    /// RSP at the function's first instruction.
    pub(super) sp: u64,
    /// Return addresses, innermost first. The first is the kernel's trampoline when another function with a probe ended with a jump to this one.
    pub(super) frames: Vec<u64>,
}

/// What each process did, from what was seen since `began`, in any order, and how many calls and returns lack the other half. `began` is
/// the life of process `first`.
pub(super) fn lives(first: u32, began: u64, mut seen: Vec<Seen>) -> (Vec<Life>, u64) {
    // Each CPU's in order of time already, and one after the other.
    seen.sort_by_key(|seen| seen.ns);
    let mut lives = vec![Life { pid: first, forked_from: 0, began, entries: Vec::new() }];
    let mut current = HashMap::from([(first, 0)]);
    let mut threads: HashMap<u32, Thread> = HashMap::new();
    // Always the same, the highest page, as far as it is free.
    let trampolines: HashSet<u64> = seen
        .iter()
        .filter_map(|seen| if let What::Trampoline(page) = seen.what { Some(page) } else { None })
        .collect();
    let mut halves = 0;
    for Seen { ns, pid, tid, what } in seen {
        // Others run the same program.
        if !current.contains_key(&pid)
            && !matches!(what, What::Forked(parent) if current.contains_key(&parent))
        {
            continue;
        }
        let mut begin = |forked_from| {
            current.insert(pid, lives.len());
            lives.push(Life { pid, forked_from, began: ns, entries: Vec::new() });
        };
        let thread = threads.entry(tid).or_default();
        let happened = match what {
            What::Forked(parent) => {
                begin(parent);
                continue;
            }
            What::Executed => {
                begin(0);
                thread.open.clear();
                continue;
            }
            What::Trampoline(_) => continue,
            What::Called(call) => {
                let jumped = call.frames.first().is_some_and(|address| trampolines.contains(address));
                thread.called(ns, call, jumped)
            }
            What::Returned { function, value, stack } => thread.returned(ns, tid, function, value, &stack),
        };
        halves += std::mem::take(&mut thread.halves);
        if let Some(&life) = current.get(&pid) {
            lives[life].entries.extend(happened);
        }
    }
    lives.iter_mut().for_each(|life| life.entries.sort_by_key(|(ns, _)| *ns));
    (lives, halves)
}

/// What a thread is in.
#[derive(Default)]
struct Thread {
    /// Calls that have not returned, and when they were made.
    open: Vec<(u64, Call)>,
    /// Calls and returns without the other half.
    halves: u64,
}

impl Thread {
    /// Notes a call, to which the function before it may have jumped; what ends with it already.
    fn called(&mut self, ns: u64, mut call: Call, jumped: bool) -> Vec<(u64, Happened)> {
        // A call whose return was lost: a stack grows downwards, and where it has not grown, only a call that took the place of another one
        // is inside of it.
        while self.open.last().is_some_and(|(_, last)| last.sp < call.sp || last.sp == call.sp && !jumped) {
            self.open.pop();
            self.halves += 1;
        }
        if jumped {
            call.frames.remove(0);
        }
        if call.function != Function::Free {
            self.open.push((ns, call));
            return vec![];
        }
        // An allocator's own calls of its functions are a part of what it was called for.
        if self.open.is_empty() && call.arguments[0] != 0 {
            return vec![(ns, Happened::Freed { address: call.arguments[0] })];
        }
        vec![]
    }

    /// Ends a call; what came of it, if no other call was the reason for it.
    fn returned(
        &mut self,
        ns: u64,
        tid: u32,
        function: Function,
        value: u64,
        stack: &(u64, Vec<u8>),
    ) -> Vec<(u64, Happened)> {
        let Some(place) = self.open.iter().rposition(|(_, call)| call.function == function) else {
            self.halves += 1;
            return vec![];
        };
        self.halves += (self.open.len() - place - 1) as u64;
        let Some((began, call)) = self.open.drain(place..).next() else { return vec![] };
        if place > 0 {
            return vec![];
        }
        let address = match function {
            Function::PosixMemalign if value == 0 => word(stack, call.arguments[0]).unwrap_or(0),
            Function::PosixMemalign => 0,
            _ => value,
        };
        let (bytes, old) = (function.bytes(call.arguments), function.ends(call.arguments));
        let mut happened = Vec::new();
        if old != 0 && (address != 0 || bytes == 0) {
            // Before the old memory can be another thread's.
            happened.push((began, Happened::Freed { address: old }));
        }
        if address != 0 {
            happened.push((ns, Happened::Allocated { tid, address, bytes, frames: call.frames }));
        }
        happened
    }
}

/// The word at an address, if it lies in the copied piece of stack.
fn word((sp, bytes): &(u64, Vec<u8>), address: u64) -> Option<u64> {
    let offset = usize::try_from(address.checked_sub(*sp)?).ok()?;
    bytes.get(offset..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the kernel notes returns.
    const TRAMPOLINE: u64 = 0x7fff_f000;

    fn seen(ns: u64, what: What) -> Seen {
        Seen { ns, pid: 7, tid: 7, what }
    }

    fn call(ns: u64, function: Function, arguments: [u64; 3], sp: u64, from: u64) -> Seen {
        seen(ns, What::Called(Call { function, arguments, sp, frames: vec![from, 0x99] }))
    }

    fn end(ns: u64, function: Function, value: u64) -> Seen {
        seen(ns, What::Returned { function, value, stack: (0x1000, 0xabc_u64.to_le_bytes().to_vec()) })
    }

    fn allocated(address: u64, bytes: u64, from: u64) -> Happened {
        Happened::Allocated { tid: 7, address, bytes, frames: vec![from, 0x99] }
    }

    fn entries(seen: Vec<Seen>) -> Vec<(u64, Happened)> {
        entries_and_halves(seen).0
    }

    fn entries_and_halves(mut seen: Vec<Seen>) -> (Vec<(u64, Happened)>, u64) {
        seen.push(Seen { ns: 1, pid: 7, tid: 7, what: What::Trampoline(TRAMPOLINE) });
        let (lives, halves) = lives(7, 0, seen);
        let [life] = <[Life; 1]>::try_from(lives).unwrap();
        (life.entries, halves)
    }

    #[test]
    fn every_function_has_its_size_and_its_object() {
        use Function::*;
        let cases = [
            (Malloc, [5, 0, 0], 0x10, allocated(0x10, 5, 1)),
            (Calloc, [5, 6, 0], 0x10, allocated(0x10, 30, 1)),
            (Realloc, [0, 6, 0], 0x10, allocated(0x10, 6, 1)),
            (ReallocArray, [0, 6, 7], 0x10, allocated(0x10, 42, 1)),
            (Aligned, [64, 8, 0], 0x40, allocated(0x40, 8, 1)),
            (PosixMemalign, [0x1000, 64, 9], 0, allocated(0xabc, 9, 1)),
        ];
        for (function, arguments, value, expected) in cases {
            let found = entries(vec![call(1, function, arguments, 100, 1), end(2, function, value)]);
            assert_eq!(found, [(2, expected)], "{function:?}");
        }
    }

    #[test]
    fn what_ends_with_a_jump_is_the_outer_call() {
        // reallocarray jumps to realloc and that to malloc: all three return at once.
        let found = entries_and_halves(vec![
            call(1, Function::ReallocArray, [0, 3, 40], 100, 1),
            call(2, Function::Realloc, [0, 120, 0], 100, TRAMPOLINE),
            call(3, Function::Malloc, [120, 120, 0], 100, TRAMPOLINE),
            end(4, Function::Malloc, 0x60),
            end(5, Function::Realloc, 0x60),
            end(6, Function::ReallocArray, 0x60),
        ]);
        assert_eq!(found, (vec![(6, allocated(0x60, 120, 1))], 0));
    }

    #[test]
    fn what_fails_allocates_nothing_and_frees_nothing() {
        let huge = [
            call(1, Function::Realloc, [0x50, 1 << 60, 0], 100, 1),
            end(2, Function::Realloc, 0),
            call(3, Function::PosixMemalign, [0x1000, 64, 9], 100, 1),
            end(4, Function::PosixMemalign, 12),
            call(5, Function::PosixMemalign, [0x9999, 64, 9], 100, 1),
            end(6, Function::PosixMemalign, 0),
            call(7, Function::Free, [0, 0, 0], 100, 1),
        ];
        assert_eq!(entries(huge.into()), []);
    }

    #[test]
    fn an_allocators_own_calls_are_a_part_of_the_outer_one() {
        // realloc frees and allocates by its own functions, calloc jumps to malloc.
        let found = entries(vec![
            call(1, Function::Realloc, [0x50, 6, 0], 100, 1),
            call(2, Function::Malloc, [6, 0, 0], 60, 3),
            end(3, Function::Malloc, 0x60),
            call(4, Function::Free, [0x50, 0, 0], 60, 3),
            end(5, Function::Realloc, 0x60),
            call(6, Function::Calloc, [2, 3, 0], 100, 4),
            call(7, Function::Malloc, [6, 0, 0], 100, TRAMPOLINE),
            end(8, Function::Malloc, 0x70),
            end(9, Function::Calloc, 0x70),
        ]);
        let expected =
            [(1, Happened::Freed { address: 0x50 }), (5, allocated(0x60, 6, 1)), (9, allocated(0x70, 6, 4))];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_return_that_was_lost_spoils_nothing_but_itself() {
        // From the same place, from another one of the same function, and from its caller.
        for (sp, from) in [(100, 1), (100, 2), (120, 2)] {
            let found = entries_and_halves(vec![
                call(1, Function::Malloc, [5, 0, 0], 100, 1),
                call(2, Function::Free, [0x30, 0, 0], sp, from),
                call(3, Function::Malloc, [6, 0, 0], sp, from),
                end(4, Function::Malloc, 0x20),
            ]);
            let expected = vec![(2, Happened::Freed { address: 0x30 }), (4, allocated(0x20, 6, from))];
            assert_eq!(found, (expected, 1), "{sp}");
        }
        assert_eq!(
            entries_and_halves(vec![end(4, Function::Malloc, 0x20)]),
            (vec![], 1),
            "its call was lost"
        );
    }

    #[test]
    fn forks_and_execs_begin_lives() {
        let child = |ns, what| Seen { ns, pid: 8, tid: 8, what };
        let stranger = Seen { ns: 6, pid: 9, tid: 9, what: What::Executed };
        let (all, halves) =
            lives(7, 5, vec![stranger, child(30, What::Executed), child(20, What::Forked(7))]);
        assert_eq!(halves, 0);
        let found: Vec<_> = all.iter().map(|life| (life.pid, life.forked_from, life.began)).collect();
        assert_eq!(found, [(7, 0, 5), (8, 7, 20), (8, 0, 30)]);
    }
}
