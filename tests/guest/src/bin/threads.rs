//! Threads that each read their own memory: `threads COUNT THOUSANDS`.
//!
//! Thread number i reads (i + 1) × THOUSANDS thousand elements, so that a sample
//! credited to the wrong thread shows in the shares. Each prints its thread ID and how many elements it read.

use std::hint::black_box;

/// Elements of one thread's array: 512 KiB of u64, larger than any first-level cache that is modelled, and than the second
/// level where only hits of the third are sampled. Those of five threads fit every last level.
const ELEMENTS: usize = 64 * 1024;

/// Reads `steps` elements, a cache line apart, and returns their sum.
#[inline(never)]
fn walk(array: &[u64], steps: usize) -> u64 {
    let mut at = 0;
    let mut sum = 0u64;
    for _ in 0..steps {
        sum = sum.wrapping_add(black_box(array[at]));
        at = (at + 8) % ELEMENTS;
    }
    sum
}

fn work(index: usize, thousands: usize) {
    // Of an array of zeros all pages would be the kernel's one page of zeros, which fits the first-level cache.
    let array = vec![1 + index as u64; ELEMENTS];
    let steps = (index + 1) * thousands * 1000;
    let sum = walk(&array, steps);
    let tid = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    println!("thread {} of process {} read {steps} elements, sum {sum}", tid.display(), std::process::id());
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<usize>());
    let (Some(Ok(count)), Some(Ok(thousands))) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: threads COUNT THOUSANDS");
        std::process::exit(2);
    };
    let threads: Vec<_> = (0..count).map(|i| std::thread::spawn(move || work(i, thousands))).collect();
    for thread in threads {
        if thread.join().is_err() {
            std::process::exit(1);
        }
    }
}
