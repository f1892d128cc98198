//! The whole loop on the cache model: samples, advice during the run, and its withdrawal when it does harm.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use heap::advice::{Action, Advisor, Allotment, Intervention, Log, Rules, Sample, Samples};
use heap::simulate::{Measured, Model};
use heap::workload::classes::{Chars, Entry, Text, Vector};
use heap::workload::{TYPES, Workload};
use heap::{Advice, Collector, Config, Heap};
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

/// A clock that every look finds a period later, with a sample each time.
struct Ticking {
    now: u64,
    address: u32,
}

impl Samples for Ticking {
    fn take(&mut self, _all: bool) -> Result<Vec<Sample>, String> {
        self.now += PERIOD;
        Ok(vec![Sample { address: self.address, field: None }])
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
    let (advisor, log) = Advisor::new(Ticking { now: 0, address: heap.at(&chars).address() }, rules());
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
        let mark = |address| heap.attribute(address).unwrap().mark.unwrap();
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
    let marked = texts.iter().filter(|text| heap.attribute(heap.at(text).address()).unwrap().mark.is_some());
    assert_eq!(marked.count(), 1000);
}
