//! What the analyses say of a run, beside what is true of it.

use std::collections::BTreeMap;

use libhpm::analysis::locality::Space;
use libhpm::analysis::objects::{Life, Objects};
use libhpm::report::{Locator, References, Resolver};
use libhpm::symbol::FileFinder;
use libhpm::trace::SampleRow;

use crate::stepped::{Logged, Run};

/// Of the kinds of objects by the program's log: how many samples truly missed them.
pub(crate) fn true_misses(run: &Run) -> BTreeMap<String, f64> {
    let mut misses = BTreeMap::new();
    for address in &run.truth {
        let inside = |one: &&Logged| (one.address..one.address + one.bytes).contains(address);
        let kind = run.logged.iter().find(inside).map_or("none", |one| &one.kind);
        *misses.entry(kind.to_owned()).or_default() += 1.0;
    }
    misses
}

fn objects(run: &Run) -> Objects {
    let pid = run.reader.rows::<SampleRow>().next().unwrap().pid;
    let mut lives: Vec<Life> = run
        .logged
        .iter()
        .map(|one| Life {
            allocated: 1,
            freed: None,
            pid,
            address: one.address,
            bytes: one.bytes,
            site: one.kind.as_str().into(),
        })
        .collect();
    // So much later that the others are old.
    lives.push(Life {
        allocated: 50,
        freed: None,
        pid,
        address: 1 << 60,
        bytes: 1 << 30,
        site: "later".into(),
    });
    Objects::new(lives, 0)
}

/// What the analyses say.
pub(crate) struct Found {
    pub(crate) known: usize,
    pub(crate) wrong: Vec<(u64, u64)>,
    /// Known addresses that are in an object, or are not, and whose space says otherwise.
    pub(crate) misplaced: usize,
    pub(crate) references: References,
}

pub(crate) fn analyse(run: &Run) -> Found {
    let resolver = Resolver::new(&run.reader, FileFinder::default());
    let objects = objects(run);
    let mut locator = Locator::new(&run.reader.meta().events, FileFinder::default());
    run.reader.rows::<SampleRow>().for_each(|row| locator.note(&row));
    let mut references = References::new(run.reader.meta(), FileFinder::default());
    run.reader.rows::<SampleRow>().for_each(|row| references.note(&resolver, &mut locator, &row));
    let mut found = Found { known: 0, wrong: vec![], misplaced: 0, references };
    for (row, &truth) in run.reader.rows::<SampleRow>().zip(&run.truth) {
        let located = locator.locate(&resolver, &row, |address| {
            let (object, age) = objects.at(row.pid, row.tsc, address)?;
            Some((object, age < 4 << 20))
        });
        if let Ok(address) = located.access.address {
            found.known += 1;
            found.wrong.extend((address != truth).then_some((address, truth)));
            let inside = |one: &Logged| (one.address..one.address + one.bytes).contains(&truth);
            let is_object = run.logged.iter().any(inside);
            found.misplaced += usize::from((located.access.space == Space::Heap) != is_object);
        }
        found.references.add(&resolver, &mut locator, &row, &located, &objects);
    }
    found
}

/// Whether a field is meant; `*` stands for what a library calls its own.
pub(crate) fn is_like(field: &str, wanted: &str) -> bool {
    match wanted.split_once('*') {
        Some((first, last)) => field.starts_with(first) && field.ends_with(last),
        None => field == wanted,
    }
}

/// The share of all samples that a field has.
pub(crate) fn share(found: &Found, field: &str) -> f64 {
    let weights = found.references.weights();
    let table = weights.table();
    let weight = table.iter().find(|(one, _)| is_like(&one.to_string(), field));
    weight.map_or(0.0, |(_, weight)| weight.samples / weights.all().samples)
}
