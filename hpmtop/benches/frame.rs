//! How long a frame takes, and how long a tenth of a second of quanta takes to be taken in, with 500 threads.

use criterion::{Criterion, criterion_group, criterion_main};
use hpmtop::synthetic::Synthetic;

fn frames(criterion: &mut Criterion) {
    for (number, name) in [('1', "processes"), ('2', "time"), ('4', "phases"), ('5', "machine")] {
        let mut system = Synthetic::new(500);
        (0..40).for_each(|_| system.round());
        system.show(number);
        for (width, height) in [(80, 24), (200, 60)] {
            let id = format!("frame/{name}/{width}x{height}");
            criterion.bench_function(&id, |bencher| bencher.iter(|| system.frame(width, height)));
        }
    }
    let mut system = Synthetic::new(500);
    criterion.bench_function("round/1000 quanta of 500 threads", |bencher| bencher.iter(|| system.round()));
}

criterion_group!(benches, frames);
criterion_main!(benches);
