//! Many threads that wake again and again and do next to nothing, until the program is ended: `wakers THREADS MILLISECONDS`.

use std::hint::black_box;
use std::thread::{sleep, spawn};
use std::time::Duration;

fn main() {
    let mut numbers = std::env::args().skip(1).filter_map(|word| word.parse::<u64>().ok());
    let (Some(threads), Some(milliseconds)) = (numbers.next(), numbers.next()) else {
        eprintln!("wakers: say how many threads, and how many milliseconds each sleeps");
        std::process::exit(2);
    };
    let wakes = move || {
        loop {
            sleep(Duration::from_millis(milliseconds));
            black_box((0..black_box(2000_u64)).sum::<u64>());
        }
    };
    let running: Vec<_> = (0..threads).map(|_| spawn(wakes)).collect();
    println!("running");
    for thread in running {
        // It does not end by itself.
        let _ = thread.join();
    }
}
