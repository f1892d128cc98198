//! What the preloaded library `libhpm_allocations.so` wrote of a program's allocations, as objects with their lives.

use std::fs;
use std::io;
use std::path::Path;

use super::lives::{Happened, Life, Times, join};
use super::{Allocated, TraceClock};
use crate::sys::clock::ClockPair;
use crate::trace::Allocations;

#[path = "../../allocations/src/format.rs"]
#[allow(dead_code, unreachable_pub, reason = "it is also a module of the library that writes")]
mod format;

pub(super) use format::FRAMES_MAX;
use format::{CHUNK_BYTES, HEADER_BYTES, MAGIC, entry, header};

/// Name of the library's file.
pub const LIBRARY: &str = "libhpm_allocations.so";
/// Environment variables that it reads: the folder for logs, bytes between recorded allocations, and most return addresses kept.
pub const VARIABLES: [&str; 3] = ["HPM_ALLOCATIONS", "HPM_ALLOCATIONS_BYTES", "HPM_ALLOCATIONS_FRAMES"];

/// The log of one process from its beginning, or from its last execve, on.
struct Log {
    life: Life,
    sampled_bytes: u64,
    monotonic_raw_ns: u64,
    lost: u64,
    damaged: bool,
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
    logs.sort_by_key(|log| log.life.began);
    for log in &logs {
        how.sampled_bytes = how.sampled_bytes.max(log.sampled_bytes);
        how.lost += log.lost;
        how.damaged += u64::from(log.damaged);
    }
    how.processes = logs.len() as u64;
    let times = logs.first().map(|first| Times { from: (first.life.began, first.monotonic_raw_ns), now });
    let mut objects = join(logs.into_iter().map(|log| log.life).collect());
    if let Some(times) = times {
        times.convert_ticks(&mut objects, clock);
    }
    Ok((objects, how))
}

/// A log; `None` for bytes that are none.
fn parse(bytes: &[u8]) -> Option<Log> {
    let words: Vec<u64> = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let head = words.get(..header::WORDS).filter(|head| head[header::MAGIC] == MAGIC)?;
    let life = Life {
        pid: head[header::PID] as u32,
        forked_from: head[header::FORKED_FROM] as u32,
        began: head[header::TSC],
        entries: Vec::new(),
    };
    let mut log = Log {
        life,
        sampled_bytes: head[header::SAMPLED_BYTES],
        monotonic_raw_ns: head[header::MONOTONIC_RAW_NS],
        lost: head[header::LOST],
        damaged: false,
    };
    let chunks = words.get(HEADER_BYTES / 8..).unwrap_or_default();
    for chunk in chunks.chunks(CHUNK_BYTES / 8) {
        if !chunk_entries(chunk, &mut log.life.entries) {
            log.damaged = true;
        }
    }
    log.life.entries.sort_by_key(|(tsc, _)| *tsc);
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
        let mut lives: Vec<Life> = logs.iter().map(|log| parse(log).unwrap().life).collect();
        lives.sort_by_key(|life| life.began);
        join(lives).into_iter().map(|one| (one.pid, one.address, one.bytes, one.tsc, one.freed_tsc)).collect()
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
        let Happened::Allocated { tid, frames, .. } = &parse(&bytes).unwrap().life.entries[1].1 else {
            panic!()
        };
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
