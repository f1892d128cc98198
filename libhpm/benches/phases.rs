//! What finding phases costs for each interval.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use libhpm::analysis::phase::change::{Cusum, pelt};
use libhpm::analysis::phase::synthetic::{Stream, labelled_set};
use libhpm::analysis::phase::{
    Base, BehaviourControl, Detector, Interval, Rules, Shares, Signal, Slicer, Stay,
};

const INTERVALS: usize = 10_000;

fn stream(name: &str) -> Stream {
    let recipe = labelled_set(0.2).into_iter().find(|recipe| recipe.name == name);
    recipe.map(|recipe| recipe.stream(INTERVALS, 1)).unwrap_or_default()
}

fn detector(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("phases");
    group.throughput(Throughput::Elements(INTERVALS as u64));
    for (name, signal) in
        [("one event", Signal::new(&[0], Base::Time)), ("two events", Signal::new(&[0, 1], Base::Time))]
    {
        let stream = stream("irregular");
        let mut detector = Detector::new(Rules::NoiseGated, signal);
        println!("{name}: {} bytes for a thread or process, none for an interval", detector.bytes());
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for interval in &stream.intervals {
                    black_box(detector.push(black_box(interval)));
                }
            });
        });
    }
    group.finish();
}

/// All that may run for a process while it is watched: its quanta become intervals, patterns, behaviours and changes.
fn live(criterion: &mut Criterion) {
    let stream = stream("irregular");
    let signal = Signal::new(&[0], Base::Time);
    let mut group = criterion.benchmark_group("live");
    group.throughput(Throughput::Elements(INTERVALS as u64));
    group.bench_function("everything", |bencher| {
        bencher.iter(|| {
            let mut slicer = Slicer::for_process(1);
            let mut detector = Detector::new(Rules::NoiseGated, signal);
            let (mut control, mut shares) = (BehaviourControl::new(signal), Shares::default());
            let mut changes = Cusum::new();
            for quantum in &stream.intervals {
                let Interval { start, on_cpu, counts, .. } = quantum;
                let stay = Stay { start: *start, end: start + on_cpu, counts, lost_before: false };
                let Ok(Some(interval)) = slicer.push(black_box(&stay)) else { continue };
                let step = detector.push(&interval);
                let recorded = control.decide();
                black_box(shares.take(control.learn(&interval), recorded));
                black_box(step.density.map(|density| changes.push(density)));
            }
        });
    });
    group.finish();
}

fn changes(criterion: &mut Criterion) {
    let stream = stream("irregular");
    let densities: Vec<f64> = stream.intervals.iter().map(|interval| interval.counts[0] as f64).collect();
    let mut group = criterion.benchmark_group("changes");
    group.throughput(Throughput::Elements(INTERVALS as u64));
    group.bench_function("online", |bencher| {
        let mut detector = Cusum::new();
        bencher.iter(|| {
            for &density in &densities {
                black_box(detector.push(black_box(density)));
            }
        });
    });
    group.sample_size(10);
    group.bench_function("PELT", |bencher| bencher.iter(|| pelt(black_box(&densities))));
    group.finish();
}

criterion_group!(benches, detector, live, changes);
criterion_main!(benches);
