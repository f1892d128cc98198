//! What the preloaded library `libhpm_allocations.so` wrote of a program's allocations, as objects with their lives.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use crate::sys::clock::ClockPair;
use crate::trace::Allocations;

#[path = "../allocations/src/format.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is also a module of the library that writes")]
mod format;

use format::{CHUNK_BYTES, HEADER_BYTES, MAGIC, entry, header};

/// Name of the library's file.
pub const LIBRARY: &str = "libhpm_allocations.so";
/// Environment variables that it reads: the folder for logs, bytes between recorded allocations, and most return addresses kept.
pub const VARIABLES: [&str; 3] = ["HPM_ALLOCATIONS", "HPM_ALLOCATIONS_BYTES", "HPM_ALLOCATIONS_FRAMES"];

/// The clock of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceClock {
    /// TSC ticks.
    Tsc,
    /// CLOCK_MONOTONIC_RAW in ns.
    MonotonicRaw,
}

/// An allocated object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// When, on the trace's clock.
    pub tsc: u64,
    /// When it was freed; `None` when it was not.
    pub freed_tsc: Option<u64>,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// First byte.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// Return addresses, innermost first.
    pub frames: Vec<u64>,
}

/// The log of one process from its beginning, or from its last execve, on.
struct Log {
    pid: u32,
    forked_from: u32,
    sampled_bytes: u64,
    tsc: u64,
    monotonic_raw_ns: u64,
    lost: u64,
    damaged: bool,
    /// TSC, then what happened, in order of time.
    entries: Vec<(u64, Happened)>,
}

enum Happened {
    Allocated { tid: u32, address: u64, bytes: u64, frames: Vec<u64> },
    Freed { address: u64 },
}

/// Reads the logs in a folder. `now` is a moment after the last of them was begun; it tells the TSC's rate.
///
/// # Errors
/// The folder cannot be read. A log that is damaged is read as far as it goes, and counted.
pub fn read(folder: &Path, clock: TraceClock, now: ClockPair) -> io::Result<(Vec<Allocated>, Allocations)> {
    let mut logs = Vec::new();
    let mut how = Allocations::default();
    for file in fs::read_dir(folder)? {
        let path = file?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            match parse(&fs::read(&path)?) {
                Some(log) => logs.push(log),
                None => how.damaged += 1,
            }
        }
    }
    logs.sort_by_key(|log| log.tsc);
    for log in &logs {
        how.sampled_bytes = how.sampled_bytes.max(log.sampled_bytes);
        how.lost += log.lost;
        how.damaged += u64::from(log.damaged);
    }
    how.processes = logs.len() as u64;
    let times = logs.first().map(|first| Times { from: (first.tsc, first.monotonic_raw_ns), now, clock });
    let mut objects = join(logs);
    if let Some(times) = times {
        for object in &mut objects {
            object.tsc = times.of(object.tsc);
            object.freed_tsc = object.freed_tsc.map(|tsc| times.of(tsc));
        }
    }
    Ok((objects, how))
}

/// Converts times of logs to those of a trace.
struct Times {
    /// TSC and CLOCK_MONOTONIC_RAW of one moment.
    from: (u64, u64),
    now: ClockPair,
    clock: TraceClock,
}

impl Times {
    fn of(&self, tsc: u64) -> u64 {
        if self.clock == TraceClock::Tsc {
            return tsc;
        }
        let (from_tsc, from_ns) = self.from;
        let ticks = i128::from(self.now.tsc) - i128::from(from_tsc);
        let ns = i128::from(self.now.monotonic_raw_ns) - i128::from(from_ns);
        let since = (i128::from(tsc) - i128::from(from_tsc)) * ns / ticks.max(1);
        u64::try_from(i128::from(from_ns) + since).unwrap_or(0)
    }
}

/// Ends objects where they were freed, and where their process executed another program; a process that was forked has its parent's.
fn join(logs: Vec<Log>) -> Vec<Allocated> {
    let mut objects: Vec<Allocated> = Vec::new();
    // Of each process: its objects that live, by address. A log begins where the one before it of the same process ends.
    let mut living: HashMap<u32, HashMap<u64, usize>> = HashMap::new();
    // A fork copies what its parent had then, so that logs are taken in order of their beginning and the parent's in full before: what it
    // frees after the fork is told by time.
    for log in logs {
        if let Some(before) = living.insert(log.pid, HashMap::new()) {
            before.values().for_each(|&object| objects[object].freed_tsc = Some(log.tsc));
        }
        if log.forked_from != 0 {
            let inherited: Vec<Allocated> = objects
                .iter()
                .filter(|object| object.pid == log.forked_from && object.tsc <= log.tsc)
                .filter(|object| object.freed_tsc.is_none_or(|freed| freed > log.tsc))
                .map(|object| Allocated { pid: log.pid, freed_tsc: None, tsc: log.tsc, ..object.clone() })
                .collect();
            for object in inherited {
                living.entry(log.pid).or_default().insert(object.address, objects.len());
                objects.push(object);
            }
        }
        let own = living.entry(log.pid).or_default();
        for (tsc, happened) in log.entries {
            match happened {
                Happened::Freed { address } => {
                    if let Some(object) = own.remove(&address) {
                        objects[object].freed_tsc = Some(tsc);
                    }
                }
                Happened::Allocated { tid, address, bytes, frames } => {
                    // One whose end was not recorded has ended when its memory is given out again.
                    if let Some(before) = own.insert(address, objects.len()) {
                        objects[before].freed_tsc = Some(tsc);
                    }
                    objects.push(Allocated {
                        tsc,
                        freed_tsc: None,
                        pid: log.pid,
                        tid,
                        address,
                        bytes,
                        frames,
                    });
                }
            }
        }
    }
    objects
}

/// A log; `None` for bytes that are none.
fn parse(bytes: &[u8]) -> Option<Log> {
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let head = words.get(..header::WORDS).filter(|head| head[header::MAGIC] == MAGIC)?;
    let mut log = Log {
        pid: head[header::PID] as u32,
        forked_from: head[header::FORKED_FROM] as u32,
        sampled_bytes: head[header::SAMPLED_BYTES],
        tsc: head[header::TSC],
        monotonic_raw_ns: head[header::MONOTONIC_RAW_NS],
        lost: head[header::LOST],
        damaged: false,
        entries: Vec::new(),
    };
    let chunks = words.get(HEADER_BYTES / 8..).unwrap_or_default();
    for chunk in chunks.chunks(CHUNK_BYTES / 8) {
        if !chunk_entries(chunk, &mut log.entries) {
            log.damaged = true;
        }
    }
    log.entries.sort_by_key(|(tsc, _)| *tsc);
    Some(log)
}

/// Takes the entries of a chunk; false where they are none.
fn chunk_entries(mut words: &[u64], entries: &mut Vec<(u64, Happened)>) -> bool {
    let mut tid = 0;
    while let [first, rest @ ..] = words {
        let kind = first & 0xff;
        words = match (kind, rest) {
            (0, _) => return *first == 0,
            (entry::THREAD, rest) => {
                tid = (first >> 8) as u32;
                rest
            }
            (entry::FREE, &[tsc, address, ref rest @ ..]) => {
                entries.push((tsc, Happened::Freed { address }));
                rest
            }
            (entry::ALLOCATE, &[tsc, address, ref rest @ ..]) => {
                let Some((frames, rest)) = rest.split_at_checked((first >> 8 & 0xff) as usize) else {
                    return false;
                };
                let (bytes, frames) = (first >> 16, frames.to_vec());
                entries.push((tsc, Happened::Allocated { tid, address, bytes, frames }));
                rest
            }
            _ => return false,
        };
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A log of these words, the first chunk's.
    fn log(pid: u64, forked_from: u64, tsc: u64, words: &[u64]) -> Vec<u8> {
        let mut all = vec![0; (HEADER_BYTES + CHUNK_BYTES) / 8];
        all[..header::WORDS].copy_from_slice(&[MAGIC, pid, forked_from, 0, tsc, 1_000_000, 0]);
        all[HEADER_BYTES / 8..][..words.len()].copy_from_slice(words);
        all.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn allocation(tsc: u64, address: u64, bytes: usize) -> [u64; 4] {
        [format::allocation(1, bytes), tsc, address, 0x77]
    }

    fn objects(logs: &[Vec<u8>]) -> Vec<(u32, u64, u64, u64, Option<u64>)> {
        let mut logs: Vec<Log> = logs.iter().map(|log| parse(log).unwrap()).collect();
        logs.sort_by_key(|log| log.tsc);
        join(logs).into_iter().map(|one| (one.pid, one.address, one.bytes, one.tsc, one.freed_tsc)).collect()
    }

    #[test]
    fn objects_end_where_they_are_freed_whichever_thread_does() {
        let words = [
            &[entry::THREAD | 5 << 8][..],
            &allocation(10, 0x1000, 24),
            &[entry::FREE, 30, 0x1000],
            &allocation(40, 0x1000, 100),
            // Another thread's, written into the chunk later.
            &[entry::THREAD | 6 << 8],
            &[entry::FREE, 20, 0x2000],
            &allocation(15, 0x2000, 8),
        ];
        let bytes = log(1, 0, 1, &words.concat());
        let expected =
            [(1, 0x1000, 24, 10, Some(30)), (1, 0x2000, 8, 15, Some(20)), (1, 0x1000, 100, 40, None)];
        assert_eq!(objects(std::slice::from_ref(&bytes)), expected);
        let Happened::Allocated { tid, frames, .. } = &parse(&bytes).unwrap().entries[1].1 else { panic!() };
        assert_eq!((*tid, frames.as_slice()), (6, &[0x77][..]));
    }

    #[test]
    fn forks_inherit_and_execs_end() {
        let parent = log(1, 0, 1, &[&allocation(10, 0x1000, 24)[..], &[entry::FREE, 90, 0x1000]].concat());
        let child = log(2, 1, 50, &[entry::FREE, 60, 0x1000]);
        let executed = log(1, 0, 95, &allocation(100, 0x9000, 1));
        let expected =
            [(1, 0x1000, 24, 10, Some(90)), (2, 0x1000, 24, 50, Some(60)), (1, 0x9000, 1, 100, None)];
        assert_eq!(objects(&[parent, child, executed]), expected);
        let left = log(3, 0, 1, &allocation(10, 0x1000, 24));
        let after = log(3, 0, 70, &[]);
        assert_eq!(
            objects(&[left, after]),
            [(3, 0x1000, 24, 10, Some(70))],
            "a new program has no old objects"
        );
    }

    #[test]
    fn times_are_those_of_the_trace() {
        let now = ClockPair { tsc: 2_000_100, monotonic_raw_ns: 1_500_000, realtime_ns: 0 };
        let times = |clock| Times { from: (100, 500_000), now, clock };
        assert_eq!(times(TraceClock::Tsc).of(1_000_100), 1_000_100);
        assert_eq!(times(TraceClock::MonotonicRaw).of(1_000_100), 1_000_000);
    }

    proptest! {
        /// Whatever is in the file, it is read or refused.
        #[test]
        fn no_bytes_are_too_odd(words in prop::collection::vec(prop_oneof![0_u64..4, any::<u64>()], 0..200), cut in 0_usize..9000) {
            let mut bytes = log(1, 0, 1, &words);
            bytes.truncate(cut);
            let _ = parse(&bytes);
        }
    }
}
