//! Where in memory the samples of the process are that is looked at: kinds of memory, objects, lines, and the fields through which
//! missed objects were reached.

use std::rc::Rc;

use libhpm::analysis::address::Unknown;
use libhpm::analysis::coallocation::{Advice, Field, Rules, Weight, advise};
use libhpm::analysis::locality::{Access, By, Entry, Profile, Sharing, Sum};
use libhpm::analysis::objects::Objects;
use libhpm::report::{Locator, References, Resolver, Unattributed};
use libhpm::symbol::FileFinder;
use libhpm::trace::{Allocations, EventUse, Meta, SampleRow};

use super::Look;
use super::standing::{Change, Follower, Standing};

/// Samples after which sums begin anew with those that are recent, so that memory does not grow.
const SAMPLES_MAX: u64 = 1 << 15;
/// Rows of each table that are told.
const ROWS_MAX: usize = 300;
/// Bytes that its process allocates until an object is not young any more, as `hpmctl locality` has it.
const NURSERY_BYTES: u64 = 4 << 20;

/// What is told of where in memory samples are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// Indices of the sampled events, in the order of the sums.
    pub(crate) events: Vec<usize>,
    /// All samples of each.
    pub(crate) all: Vec<Sum>,
    /// Kinds of memory.
    pub(crate) spaces: Vec<Entry>,
    /// Objects where allocations were recorded, else pages.
    pub(crate) objects: Vec<Entry>,
    /// Places of allocation where allocations were recorded, else variables.
    pub(crate) places: Vec<Entry>,
    /// Cache lines, first those that threads share.
    pub(crate) lines: Vec<Entry>,
    /// Samples whose address hardware or the kernel gave, and those whose address was computed.
    pub(crate) given: u64,
    pub(crate) computed: u64,
    /// Samples without, by reason, the most frequent first.
    pub(crate) unknown: Vec<(Unknown, u64)>,
    /// Why fields cannot be told of the event that is looked at.
    pub(crate) no_fields: Option<&'static str>,
    /// Why fields are told without branch records although there are some.
    pub(crate) ways_left_out: Option<String>,
    pub(crate) fields: Vec<(Field, Weight)>,
    /// All samples of the event, whether they came through a field or not, and the latter by reason.
    pub(crate) weight: Weight,
    pub(crate) unattributed: Vec<(Unattributed, f64)>,
    pub(crate) advice: Vec<(Advice, Standing)>,
    /// Fields whose layout was changed and of which there is no advice (any more), because they are not missed.
    pub(crate) silent: Vec<(String, Standing)>,
    pub(crate) allocations: Option<Allocations>,
    /// Sums have begun anew, because there were too many samples.
    pub(crate) partial: bool,
}

/// What is known so far.
pub(super) struct Gathered {
    meta: Meta,
    finder: FileFinder,
    events: Vec<usize>,
    /// The event that is looked at.
    event: usize,
    objects: Rc<Objects>,
    locator: Locator,
    references: References,
    profiles: [Profile; 4],
    follower: Follower,
    given: u64,
    computed: u64,
    unknown: Vec<(Unknown, u64)>,
    samples: u64,
    partial: bool,
}

impl Gathered {
    pub(super) fn new(
        meta: &Meta,
        look: &Look,
        objects: Rc<Objects>,
        slot_ticks: u64,
        finder: FileFinder,
    ) -> Self {
        let sampled = |&event: &usize| meta.events[event].mode != EventUse::Count;
        let events: Vec<usize> = (0..meta.events.len()).filter(sampled).collect();
        Self {
            profiles: profiles(meta, events.len()),
            locator: Locator::new(&meta.events, finder.clone()),
            references: References::new(meta, finder.clone()),
            follower: Follower::new(slot_ticks),
            meta: meta.clone(),
            finder,
            event: look.event,
            events,
            objects,
            given: 0,
            computed: 0,
            unknown: Vec::new(),
            samples: 0,
            partial: false,
        }
    }

    /// Learns from a sample what helps to understand others.
    pub(super) fn note(&mut self, resolver: &Resolver, row: &SampleRow) {
        self.locator.note(row);
        if self.tells_fields() {
            self.references.note(resolver, &mut self.locator, row);
        }
    }

    /// Whether samples of the event name the instruction that missed.
    fn tells_fields(&self) -> bool {
        self.meta.events.get(self.event).is_some_and(|event| event.mode == EventUse::Precise)
    }

    /// Takes a sample; the process's layout was changed at these times.
    pub(super) fn add(&mut self, resolver: &Resolver, row: &SampleRow, changes: &[Change]) {
        self.note(resolver, row);
        if self.tells_fields() {
            self.follower.advance(row.tsc, self.references.weights(), changes);
        }
        self.count(resolver, row);
    }

    /// Takes a sample that was taken before sums began anew.
    pub(super) fn add_again(&mut self, resolver: &Resolver, row: &SampleRow) {
        self.count(resolver, row);
        self.follower.forget(self.references.weights());
    }

    fn count(&mut self, resolver: &Resolver, row: &SampleRow) {
        let Some(place) = self.events.iter().position(|&event| event == usize::from(row.event)) else {
            return;
        };
        let objects = &self.objects;
        let located = self.locator.locate(resolver, row, |address| {
            let (object, age) = objects.at(row.pid, row.tsc, address)?;
            Some((object, age < NURSERY_BYTES))
        });
        self.samples += 1;
        match located.access.address {
            Ok(_) if located.by_hardware => self.given += 1,
            Ok(_) => self.computed += 1,
            Err(reason) => match self.unknown.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, samples)) => *samples += 1,
                None => self.unknown.push((reason, 1)),
            },
        }
        if usize::from(row.event) == self.event && self.tells_fields() {
            self.references.add(resolver, &mut self.locator, row, &located, &self.objects);
        }
        let access = Access { event: place, ..located.access };
        self.profiles.iter_mut().for_each(|profile| profile.add(&access));
    }

    /// Whether sums have to begin anew.
    pub(super) fn is_full(&self) -> bool {
        self.samples >= SAMPLES_MAX
    }

    /// Begins sums anew; what came of changed layouts is kept.
    pub(super) fn begin_anew(&mut self) {
        self.profiles = profiles(&self.meta, self.events.len());
        self.locator = Locator::new(&self.meta.events, self.finder.clone());
        self.references = References::new(&self.meta, self.finder.clone());
        (self.given, self.computed, self.samples) = (0, 0, 0);
        self.unknown.clear();
        self.partial = true;
    }

    /// What there is to be told.
    pub(super) fn told(&mut self, changes: &[Change]) -> Memory {
        let weights = self.references.weights();
        if let Some((last, _)) = changes.last() {
            // So that a change is seen before the next miss.
            self.follower.advance(*last, weights, changes);
        }
        let rows = |profile: &Profile| {
            let mut entries = profile.entries();
            if profile.by() == By::Line {
                entries.sort_by_key(|entry| order(entry.sharing));
            }
            entries.truncate(ROWS_MAX);
            entries
        };
        let [spaces, objects, places, lines] = &self.profiles;
        let mut unknown = self.unknown.clone();
        unknown.sort_by_key(|(reason, samples)| (std::cmp::Reverse(*samples), *reason));
        let mut fields = weights.table();
        fields.truncate(ROWS_MAX);
        let advice = advise(self.references.candidates(), weights.all(), &Rules::default());
        let advised: Vec<String> = advice.iter().map(|one| one.candidate.pair.field.to_string()).collect();
        let standing = |one: Advice| {
            let standing = self.follower.standing(&one.candidate.pair.field, one.verdict);
            (one, standing)
        };
        Memory {
            events: self.events.clone(),
            all: spaces.all().to_vec(),
            spaces: rows(spaces),
            objects: rows(objects),
            places: rows(places),
            lines: rows(lines),
            given: self.given,
            computed: self.computed,
            unknown,
            no_fields: (!self.tells_fields()).then_some(
                "not sampled precisely: its samples do not name the instruction that missed, so that no field can be told",
            ),
            ways_left_out: self.references.ways_left_out().map(str::to_owned),
            fields,
            weight: weights.all(),
            unattributed: self.references.unattributed(),
            silent: self.follower.changed().filter(|(field, _)| !advised.contains(field)).collect(),
            advice: advice.into_iter().take(ROWS_MAX).map(standing).collect(),
            allocations: self.meta.allocations,
            partial: self.partial,
        }
    }
}

/// Kinds of memory; objects or pages; places of allocation or variables; lines.
fn profiles(meta: &Meta, events: usize) -> [Profile; 4] {
    let has_objects = meta.allocations.is_some();
    let objects = if has_objects { By::Object } else { By::Page };
    let places = if has_objects { By::Site } else { By::Symbol };
    [By::Space, objects, places, By::Line].map(|by| Profile::new(by, events))
}

/// What can be mended comes first.
fn order(sharing: Option<Sharing>) -> u8 {
    match sharing {
        Some(Sharing::False) => 0,
        Some(Sharing::True) => 1,
        Some(Sharing::ReadOnly) => 2,
        None => 3,
    }
}
