//! How long a frame of each screen takes, and how long a tenth of a second of quanta takes to be taken in, with 500 threads.

use criterion::{Criterion, criterion_group, criterion_main};
use hpmtop::synthetic::{Shown, Synthetic};

const SIZES: [(u16, u16); 2] = [(80, 24), (200, 60)];
/// Every screen, and the keys that lead to what is seen in its picture.
const SCREENS: [(&str, &str); 6] = [
    ("processes", "1"),
    ("time", "2"),
    ("process", "1 Enter"),
    ("phases", "1 Enter 4"),
    ("locality", "1 g j Enter 5"),
    ("machine", "6"),
];

/// Screens whose tables grow with threads, of 500 threads that all ran.
fn many_threads(criterion: &mut Criterion) {
    for (number, name) in [('1', "processes"), ('2', "time"), ('6', "machine")] {
        let mut system = Synthetic::new(500);
        (0..40).for_each(|_| system.round());
        system.show(number);
        for (width, height) in SIZES {
            let id = format!("500 threads/{name}/{width}x{height}");
            criterion.bench_function(&id, |bencher| bencher.iter(|| system.frame(width, height)));
        }
    }
    let mut system = Synthetic::new(500);
    criterion.bench_function("round/1000 quanta of 500 threads", |bencher| bencher.iter(|| system.round()));
}

/// Every screen, of the made-up trace.
fn screens(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut shown = Shown::new(folder.path()).expect("the made-up trace is shown");
    for (name, keys) in SCREENS {
        shown.press(keys, name).expect("the keys lead to the screen");
        for (width, height) in SIZES {
            let id = format!("frame/{name}/{width}x{height}");
            criterion.bench_function(&id, |bencher| bencher.iter(|| shown.frame(width, height)));
        }
    }
}

criterion_group!(benches, screens, many_threads);
criterion_main!(benches);
