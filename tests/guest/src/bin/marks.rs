//! Two threads that mark each round of their work: markers `round` with the values 0, 1, … by each one's marker page, then
//! `done` with their number by a system call.
//!
//! Without arguments there are 300 long rounds; with one there are 2000 short ones, whose markers come faster than the
//! driver looks, so that the library must ask it to.
use std::hint::black_box;

use libhpm::mark::Marks;

fn work(marks: &Marks, rounds: u64, length: u64) -> libhpm::Result<()> {
    let mut here = marks.thread()?;
    for round in 0..rounds {
        here.mark("round", round)?;
        (0..length).for_each(|number| {
            black_box(number);
        });
    }
    assert!(marks.mark("done", rounds)?, "nothing measures this program");
    Ok(())
}

fn main() -> libhpm::Result<()> {
    let fast = std::env::args().count() > 1;
    let (rounds, length) = if fast { (2000, 0) } else { (300, 20_000) };
    let marks = Marks::open()?;
    std::thread::scope(|scope| {
        let other = scope.spawn(|| work(&marks, rounds, length));
        work(&marks, rounds, length)?;
        other.join().expect("the other thread")
    })
}
