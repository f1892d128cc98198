//! The whole loop on the cache model: samples, advice during the run, and its withdrawal when it does harm.

use std::cell::RefCell;
use std::rc::Rc;

use heap::advice::{Action, Advisor, Intervention, Log, Rules};
use heap::simulate::{Measured, Model};
use heap::workload::classes::{Entry, Text, Vector};
use heap::workload::{TYPES, Workload};
use heap::{Advice, Collector, Config, Heap};
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
    let Action::Reverted((low, _, _)) = back.action else { panic!("{:?}", back.action) };
    assert!(low > 0.05, "{:?}", back.action);
    assert!(back.period - bad.period <= 12, "{} periods", back.period - bad.period);
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
