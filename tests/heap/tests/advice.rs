//! The whole loop on the cache model: samples, advice during the run, and its withdrawal when it does harm.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use heap::advice::{Action, Advisor, Allotment, Intervention, Log, Rules, Sample, Samples, Shown};
use heap::simulate::{Measured, Model};
use heap::workload::classes::{Chars, Entry, Numbers, Text, Texts, Vector, Vertex};
use heap::workload::{TYPES, Workload};
use heap::{Advice, Collector, Config, Handle, Heap};
use libhpm::analysis::coallocation::{Exposure, Group};
use vpmu::profile::PRESCOTT;

const SCALE: u32 = 25;
const LIMIT_BYTES: u32 = 3 << 20;
/// Accesses in a period.
const PERIOD: u64 = 1_000_000;

/// Runs db, and returns what its last iteration did.
fn db(
    collector: Collector,
    advice: Advice,
    rules: Option<Rules>,
    iterations: u32,
) -> (Measured, Rc<RefCell<Log>>, heap::Statistics) {
    let model = Model::new(&PRESCOTT).unwrap();
    model.sample(100);
    let mut heap = Heap::new(Config { collector, limit_bytes: LIMIT_BYTES }, TYPES, model.clone()).unwrap();
    model.set_ranges(heap.ranges());
    heap.advise(advice);
    let mut log = Rc::default();
    if let Some(rules) = rules {
        let (advisor, its_log) = Advisor::new(model.clone(), rules);
        heap.set_hook(Some(Box::new(advisor)));
        log = its_log;
    }
    let mut before = model.measured();
    for _ in 0..iterations {
        before = model.measured();
        Workload::Db.run(&mut heap, SCALE).unwrap();
    }
    (model.measured().since(&before), log, heap.statistics())
}

fn rules() -> Rules {
    Rules::new(PERIOD, 64)
}

#[test]
fn advice_comes_during_the_run_and_saves_misses() {
    let (base, _, _) = db(Collector::MarkSweep, Advice::none(), None, 3);
    let (advised, log, done) = db(Collector::MarkSweep, Advice::none(), Some(rules()), 3);
    let log = log.borrow();
    let fields: Vec<_> = log.decisions.iter().map(|decision| (decision.field, &decision.action)).collect();
    assert!(fields.contains(&(Text::value().id(), &Action::Advised)), "{fields:?}");
    assert!(done.co_allocated_pairs > 1000, "{done:?}");
    let (old, new) = (base.program().l1_misses, advised.program().l1_misses);
    assert!(new * 100 < old * 85, "{old} misses without advice, {new} with it");
    assert_eq!(base.program().accesses, advised.program().accesses, "the program does the same");
}

/// In db each type is referred to by one field only, so that the heap's attribution by references and what the program knows
/// agree, sample by sample.
#[test]
fn the_heap_attributes_misses_to_the_fields_that_the_program_followed() {
    let (_, log, _) = db(Collector::MarkSweep, Advice::none(), Some(rules()), 2);
    let log = log.borrow();
    for field in [Text::value().id(), Vector::element_data().id(), Entry::items().id()] {
        let by_heap = log.weights.get(&field).map_or(0.0, |weight| weight.samples);
        let told = log.told.get(&field).copied().unwrap_or(0.0);
        assert!(told > 50.0, "{}: {told}", field.name(TYPES));
        assert!((by_heap - told).abs() <= 0.05 * told, "{}: {by_heap}, {told}", field.name(TYPES));
    }
}

#[test]
fn a_bad_layout_is_noticed_and_taken_back() {
    let field = Text::value().id();
    let mut rules = rules();
    rules.intervention = Some(Intervention { after_periods: 8, field, gap: 128 });
    let (_, log, done) = db(Collector::MarkSweep, Advice::none().with(field, 0), Some(rules), 8);
    assert!(done.separated_pairs > 100, "{done:?}");
    let log = log.borrow();
    let of_field: Vec<_> = log.decisions.iter().filter(|decision| decision.field == field).collect();
    let [bad, back] = of_field[..] else { panic!("{:?}", log.decisions) };
    assert_eq!(bad.action, Action::Intervened(128));
    // It hurts, or it is too unlikely to help.
    let (Action::Reverted(shown) | Action::NotShown(shown)) = back.action else {
        panic!("{:?}", back.action)
    };
    assert!(shown.change.is_some_and(|(_, likeliest, _)| likeliest > 0.0), "{shown:?}");
    assert!(back.period - bad.period <= 3, "{} periods", back.period - bad.period);
}

/// Without small objects there is nothing to advise.
#[test]
fn arrays_of_numbers_are_left_alone() {
    let model = Model::new(&PRESCOTT).unwrap();
    model.sample(100);
    let config = Config { collector: Collector::MarkSweep, limit_bytes: LIMIT_BYTES };
    let mut heap = Heap::new(config, TYPES, model.clone()).unwrap();
    let (advisor, log) = Advisor::new(model.clone(), rules());
    heap.set_hook(Some(Box::new(advisor)));
    Workload::Matrix.run(&mut heap, 60).unwrap();
    assert!(log.borrow().samples > 100);
    assert_eq!(log.borrow().decisions, []);
}

/// Samples that a function makes, and a clock that each look at them finds so much later.
struct Made<F> {
    now: u64,
    step: u64,
    next: F,
}

impl<F: FnMut() -> Vec<Sample>> Made<F> {
    fn each(step: u64, next: F) -> Self {
        Self { now: 0, step, next }
    }
}

impl<F: FnMut() -> Vec<Sample>> Samples for Made<F> {
    fn take(&mut self, _all: bool) -> Result<Vec<Sample>, String> {
        self.now += self.step;
        Ok((self.next)())
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn interval(&self) -> u64 {
        1
    }

    fn collector_share(&self, _: Duration) -> f64 {
        0.0
    }
}

#[test]
fn a_period_ends_although_a_sample_comes_in_the_same_look() {
    let config = Config { collector: Collector::MarkSweep, limit_bytes: LIMIT_BYTES };
    let mut heap: Heap = Heap::new(config, TYPES, ()).unwrap();
    let text = heap.allocate::<Text>().unwrap();
    let chars = heap.allocate_data::<Chars>(5).unwrap();
    heap.set(heap.at(&text), Text::value(), Some(heap.at(&chars)));
    heap.collect_nursery();
    let address = heap.at(&chars).address();
    let samples = Made::each(PERIOD, move || vec![Sample { address, field: None }]);
    let (advisor, log) = Advisor::new(samples, rules());
    heap.set_hook(Some(Box::new(advisor)));
    (0..64).for_each(|_| heap.safe_point());
    let log = log.borrow();
    // One look each 16 safe points; the last sample belongs to the period that it began.
    assert_eq!(log.series[&Text::value().id()].misses, [0.0, 1.0, 1.0, 1.0]);
}

/// Half of the pairs, and by chance: neither all, nor every second one.
#[test]
fn pairs_are_divided_by_chance_and_marked() {
    let config = Config { collector: Collector::MarkSweep, limit_bytes: LIMIT_BYTES };
    let mut heap: Heap = Heap::new(config, TYPES, ()).unwrap();
    let field = Text::value().id();
    heap.advise(Advice::none().with(field, 0));
    heap.put_on_trial(field.class, Some(Allotment { trial: 7, treated: 8, control: None }));
    let texts: Vec<_> = (0..1000)
        .map(|_| {
            let text = heap.allocate::<Text>().unwrap();
            let chars = heap.allocate_data::<Chars>(5).unwrap();
            heap.set(heap.at(&text), Text::value(), Some(heap.at(&chars)));
            text
        })
        .collect();
    heap.collect_nursery();
    heap.verify().unwrap();
    let mut counted = Exposure::default();
    for text in &texts {
        let text = heap.at(text);
        let chars = heap.get(text, Text::value()).unwrap();
        let mark = |address| heap.attribute(address).unwrap().marks.iter().next().unwrap();
        let (parent, child) = (mark(text.address()), mark(chars.address()));
        assert_eq!(parent, child);
        assert_eq!(parent.trial, 7);
        assert_eq!(chars.address() == text.address() + 24, parent.group == Group::Treated);
        counted.count(parent.group);
    }
    assert_eq!(heap.exposure(7), counted);
    assert!((400..600).contains(&counted.treated), "{counted:?}");
    assert_eq!(heap.statistics().co_allocated_pairs, counted.treated);
    // Full collections keep the marks.
    heap.collect_all();
    let marked = texts
        .iter()
        .filter(|text| heap.attribute(heap.at(text).address()).unwrap().marks.iter().count() == 1);
    assert_eq!(marked.count(), 1000);
}

/// An entry with its vector and that one's array, 12, 24 and 48 bytes.
fn entry(heap: &mut Heap) -> Handle<Entry> {
    let entry = heap.allocate::<Entry>().unwrap();
    let vector = heap.allocate::<Vector>().unwrap();
    let data = heap.allocate_references::<Texts>(10).unwrap();
    heap.set(heap.at(&entry), Entry::items(), Some(heap.at(&vector)));
    heap.set(heap.at(&vector), Vector::element_data(), Some(heap.at(&data)));
    entry
}

/// Addresses of the three.
fn addresses(heap: &Heap, entry: &Handle<Entry>) -> [u32; 3] {
    let vector = heap.get(heap.at(entry), Entry::items()).unwrap();
    let data = heap.get(vector, Vector::element_data()).unwrap();
    [heap.at(entry).address(), vector.address(), data.address()]
}

/// Both references of a path on trial at the same time: each pair is counted by its own trial, and the one's choice says nothing of the other's.
#[test]
fn layouts_that_share_objects_are_tried_at_the_same_time() {
    let config = Config { collector: Collector::MarkSweep, limit_bytes: LIMIT_BYTES };
    let mut heap: Heap = Heap::new(config, TYPES, ()).unwrap();
    let fields = [Entry::items().id(), Vector::element_data().id()];
    heap.advise(Advice::none().with(fields[0], 0).with(fields[1], 0));
    for (trial, field) in (1..).zip(fields) {
        heap.put_on_trial(field.class, Some(Allotment { trial, treated: 8, control: None }));
    }
    let entries: Vec<_> = (0..2000).map(|_| entry(&mut heap)).collect();
    heap.collect_nursery();
    heap.verify().unwrap();
    let mut groups = [[0_u32; 2]; 2];
    for entry in &entries {
        let [entry, vector, data] = addresses(&heap, entry);
        let group = |address: u32, trial: u16| {
            let marks = heap.attribute(address).unwrap().marks;
            marks.iter().find(|mark| mark.trial == trial).map(|mark| mark.group)
        };
        let (first, second) = (group(vector, 1).unwrap(), group(vector, 2).unwrap());
        assert_eq!(
            (group(entry, 1), group(data, 1), group(data, 2)),
            (Some(first), Some(first), Some(second))
        );
        let is_treated = [first, second].map(|group| group == Group::Treated);
        assert_eq!([vector == entry + 12, data == vector + 24], is_treated);
        // What lies before a pair in its row is part of what that changes.
        assert_eq!(group(entry, 2), is_treated[0].then_some(second));
        groups[usize::from(is_treated[0])][usize::from(is_treated[1])] += 1;
    }
    for trial in [1, 2] {
        let Exposure { treated, control } = heap.exposure(trial);
        assert_eq!(treated + control, 2000);
    }
    assert!(groups.as_flattened().iter().all(|count| (400..600).contains(count)), "{groups:?}");
}

/// 12, 24 and 48 bytes have a cell of 96 together. Where the last full collections left little, only two of them lie together; and what the heap
/// looks like just after everything was dropped does not count.
#[test]
fn rows_that_waste_room_are_for_heaps_with_plenty() {
    let config = Config { collector: Collector::MarkSweep, limit_bytes: LIMIT_BYTES };
    let mut heap: Heap = Heap::new(config, TYPES, ()).unwrap();
    heap.advise(Advice::none().with(Entry::items().id(), 0).with(Vector::element_data().id(), 0));
    let follows = |heap: &mut Heap| {
        let made = entry(heap);
        heap.collect_nursery();
        let [entry, vector, data] = addresses(heap, &made);
        [vector == entry + 12, data == vector + 24]
    };
    assert_eq!(follows(&mut heap), [true, true]);
    let large = heap.allocate_data::<Numbers>(LIMIT_BYTES * 13 / 16 / 8).unwrap();
    heap.collect_all();
    drop(large);
    heap.collect_all();
    assert_eq!(follows(&mut heap), [true, false]);
    (0..8).for_each(|_| heap.collect_all());
    assert_eq!(follows(&mut heap), [true, true]);
}

/// Vertices of a graph are looked at from all their neighbours, their edges once a search: moving each next to its edges would take the
/// vertices apart.
#[test]
fn what_is_visited_without_its_field_is_left_alone() {
    let model = Model::new(&PRESCOTT).unwrap();
    model.sample(1000);
    let config = Config { collector: Collector::MarkSweep, limit_bytes: 7 << 20 };
    let mut heap = Heap::new(config, TYPES, model.clone()).unwrap();
    model.set_ranges(heap.ranges());
    let (advisor, log) = Advisor::new(model, Rules::new(5_000_000, 64));
    heap.set_hook(Some(Box::new(advisor)));
    (0..3).for_each(|_| assert!(Workload::Graph.run(&mut heap, 100).is_ok()));
    let log = log.borrow();
    assert!(log.weights[&Vertex::edges().id()].samples > 300.0, "{:?}", log.weights);
    assert_eq!(log.decisions, []);
}

#[test]
fn a_layout_of_which_nothing_was_shown_is_tried_again_after_as_many_samples() {
    let config = Config { collector: Collector::MarkSweep, limit_bytes: LIMIT_BYTES };
    let mut heap: Heap = Heap::new(config, TYPES, ()).unwrap();
    let addresses = Rc::new(RefCell::new(Vec::new()));
    let (hit, mut random) = (Rc::clone(&addresses), fastrand::Rng::with_seed(1));
    // They hit objects at random, in the same way whatever their layout is.
    let samples = Made::each(PERIOD / 4, move || {
        let any = |_| Some(Sample { address: random.choice(&*hit.borrow()).copied()?, field: None });
        (0..20).filter_map(any).collect()
    });
    let (advisor, log) = Advisor::new(samples, rules());
    heap.set_hook(Some(Box::new(advisor)));
    for _ in 0..20 {
        // All are made anew, so that they are divided by the trial that there is.
        let texts: Vec<Handle<Text>> = (0..1000)
            .map(|_| {
                let text = heap.allocate::<Text>().unwrap();
                let chars = heap.allocate_data::<Chars>(5).unwrap();
                heap.set(heap.at(&text), Text::value(), Some(heap.at(&chars)));
                text
            })
            .collect();
        heap.collect_nursery();
        let chars = texts.iter().map(|text| heap.get(heap.at(text), Text::value()).unwrap().address());
        *addresses.borrow_mut() = chars.collect();
        (0..160).for_each(|_| heap.safe_point());
    }
    let log = log.borrow();
    let samples = log.weights[&Text::value().id()].samples;
    let actions: Vec<&Action> = log.decisions.iter().map(|decision| &decision.action).collect();
    let [Action::Advised, Action::NotShown(first), Action::Advised, Action::NotShown(second), ..] =
        actions[..]
    else {
        panic!("{samples} samples: {actions:?}")
    };
    let of = |shown: &Shown| shown.samples.treated + shown.samples.control;
    assert!(of(first) > 50 && of(second) > 50, "{actions:?}");
    // Each time the field has to have twice the samples, so that there are few trials.
    assert!(actions.len() <= 2 * (samples / 100.0).log2().ceil() as usize, "{samples} samples: {actions:?}");
}
