//! Events to counters: a matching, so that a set of events is refused only when no assignment exists.

use super::abi::{Reason, EVENTS_MAX, SAMPLING_COUNTERS_MAX};
use super::events::{Event, Way};
use super::pmu::architectural::FIXED_COUNTERS_MAX;
use super::pmu::netburst::registers::COUNTERS as NETBURST_COUNTERS;
use super::Refusal;

/// Place of NetBurst's first counter.
const NETBURST: u32 = SAMPLING_COUNTERS_MAX as u32 + FIXED_COUNTERS_MAX;
/// Counters that an assignment may use: general ones first, then fixed ones, then NetBurst's.
pub const COUNTERS_MAX: usize = (NETBURST + NETBURST_COUNTERS) as usize;

/// One counter: its place among [`COUNTERS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter(u8);

impl Counter {
    /// The counter at this place.
    #[must_use]
    pub const fn at(place: usize) -> Self {
        Self(place as u8)
    }

    /// NetBurst's counter with this number.
    #[must_use]
    pub const fn netburst(number: u32) -> Self {
        Self((NETBURST + number) as u8)
    }

    /// Its place among [`COUNTERS_MAX`].
    #[must_use]
    pub const fn place(self) -> usize {
        self.0 as usize
    }

    /// Its bit in IA32_PERF_GLOBAL_CTRL, IA32_PERF_GLOBAL_STATUS, IA32_PEBS_ENABLE and a record's applicable counters; of
    /// NetBurst's its number, which stands for such a bit.
    #[must_use]
    pub const fn bit(self) -> u32 {
        match (self.as_fixed(), self.as_netburst()) {
            (Some(number), _) => 32 + number,
            (_, Some(number)) => number,
            _ => self.0 as u32,
        }
    }

    /// The number of a fixed counter.
    #[must_use]
    pub const fn as_fixed(self) -> Option<u32> {
        match (self.0 as u32).checked_sub(SAMPLING_COUNTERS_MAX as u32) {
            Some(number) if number < FIXED_COUNTERS_MAX => Some(number),
            _ => None,
        }
    }

    /// The number of a counter of NetBurst's.
    #[must_use]
    pub const fn as_netburst(self) -> Option<u32> {
        (self.0 as u32).checked_sub(NETBURST)
    }
}

/// IBS, of which AMD's processors have one for fetches and one for ops, at the places of fixed counters, of which they have
/// none. They count by themselves and can only be sampled.
impl Counter {
    /// The sampler of instruction fetches.
    pub const IBS_FETCH: Self = Self(SAMPLING_COUNTERS_MAX as u8);
    /// The sampler of ops.
    pub const IBS_OP: Self = Self(SAMPLING_COUNTERS_MAX as u8 + 1);
}

/// A set of counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CounterSet(u64);

impl CounterSet {
    /// None.
    pub const EMPTY: Self = Self(0);

    /// General counters, one bit each.
    #[must_use]
    pub const fn general(bits: u16) -> Self {
        Self(bits as u64 & ((1 << SAMPLING_COUNTERS_MAX) - 1))
    }

    /// Its general counters, one bit each.
    #[must_use]
    pub const fn general_bits(self) -> u16 {
        (self.0 & ((1 << SAMPLING_COUNTERS_MAX) - 1)) as u16
    }

    /// NetBurst's counters, one bit each.
    #[must_use]
    pub const fn netburst(bits: u32) -> Self {
        Self((bits as u64 & ((1 << NETBURST_COUNTERS) - 1)) << NETBURST)
    }

    /// NetBurst's counters of it, one bit each.
    #[must_use]
    pub const fn netburst_bits(self) -> u32 {
        (self.0 >> NETBURST) as u32
    }

    /// It without fixed counters.
    #[must_use]
    pub const fn without_fixed(self) -> Self {
        Self(self.0 & !(((1 << FIXED_COUNTERS_MAX) - 1) << SAMPLING_COUNTERS_MAX))
    }

    /// One fixed counter.
    #[must_use]
    pub const fn one_fixed(number: u32) -> Self {
        Self(1 << (SAMPLING_COUNTERS_MAX as u32 + number))
    }

    /// One counter.
    #[must_use]
    pub const fn one(counter: Counter) -> Self {
        Self(1 << counter.0)
    }

    /// Whether it is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Counters in both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Counters in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the counter is in it.
    #[must_use]
    pub const fn contains(self, counter: Counter) -> bool {
        self.0 >> counter.0 & 1 == 1
    }

    /// It without the counters of the other.
    #[must_use]
    pub const fn without_all(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    fn without(self, counter: Counter) -> Self {
        Self(self.0 & !(1 << counter.0))
    }

    /// Its counters, fixed ones first: they can count little else.
    pub fn iter(self) -> impl Iterator<Item = Counter> + Clone {
        (0..COUNTERS_MAX).rev().map(Counter::at).filter(move |&counter| self.contains(counter))
    }
}

/// Which counters serve an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assignment {
    /// The counter that counts it. `None` for an event whose count follows from its sampling counter: one that interrupts,
    /// or a precise one that found no second counter.
    pub counting: Option<Counter>,
    /// The counter that writes its records.
    pub sampling: Option<Counter>,
    /// The counter that measures windows of it.
    pub window: Option<Counter>,
}

impl Assignment {
    /// No counter.
    pub const NONE: Self = Self { counting: None, sampling: None, window: None };
}

/// What an event needs a counter for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Counting,
    Sampling,
    Window,
}

/// A use of a counter: event index, and what for.
type Use = (usize, Role);

struct Matching<'a> {
    events: &'a [Event],
    uses: [Option<Use>; COUNTERS_MAX],
}

impl Matching<'_> {
    fn allowed(&self, (index, role): Use) -> CounterSet {
        let event = &self.events[index];
        match role {
            Role::Counting => event.counters,
            Role::Sampling => event.sampling.map_or(CounterSet::EMPTY, |how| how.counters),
            Role::Window => event.window,
        }
    }

    /// The counters that a use may have, fixed ones first: they can count little else. For records the lowest of the general ones
    /// come first: from Ice Lake on general counter 0 samples with precise distribution, on the small cores from Crestmont on 1 as well
    /// (perfmon's "PDIST counters"; Linux: `icl_get_event_constraints`, `tnt_get_event_constraints` for Gracemont, `cmt_get_event_constraints`).
    fn order(&self, wanted: Use) -> impl Iterator<Item = Counter> {
        let (allowed, (index, role)) = (self.allowed(wanted), wanted);
        let records = role == Role::Sampling && self.events[index].is_sampled(Way::Pebs);
        let lowest_first = if records { SAMPLING_COUNTERS_MAX } else { 0 };
        let places = (lowest_first..COUNTERS_MAX).rev().chain(0..lowest_first);
        places.map(Counter::at).filter(move |&counter| allowed.contains(counter))
    }

    /// Finds a counter for one more use, a free one if there is one, else moving others when that helps (an augmenting path of
    /// bipartite matching). `untried` shrinks with each counter looked at, which bounds both the work and the depth to
    /// [`COUNTERS_MAX`].
    fn place(&mut self, wanted: Use, untried: &mut CounterSet) -> bool {
        let is_free = |counter: &Counter| self.uses[counter.place()].is_none();
        if let Some(counter) = self.order(wanted).find(is_free) {
            self.uses[counter.place()] = Some(wanted);
            return true;
        }
        for counter in self.order(wanted) {
            if !untried.contains(counter) {
                continue;
            }
            *untried = untried.without(counter);
            if self.uses[counter.place()].is_some_and(|holder| self.place(holder, untried)) {
                self.uses[counter.place()] = Some(wanted);
                return true;
            }
        }
        false
    }

    fn add(&mut self, wanted: Use) -> bool {
        let mut untried = CounterSet(u64::MAX);
        self.place(wanted, &mut untried)
    }
}

/// Gives every event whose bit is set in `active` the counters it needs (one of IBS two: IBS tells no count; and where windows are, what
/// they set back tells none), then, while counters last, each event of PEBS a second one for its count.
///
/// # Errors
/// [`Reason::NoCounter`] with the index of the first event that finds no place beside those before it.
pub fn allocate(events: &[Event], active: u32) -> Result<[Assignment; EVENTS_MAX], Refusal> {
    let mut matching = Matching { events, uses: [None; COUNTERS_MAX] };
    let is_wanted = |index: usize, event: &Event| active >> index & 1 == 1 && !event.is_none();
    let wanted = || events.iter().enumerate().filter(move |(index, event)| is_wanted(*index, event));
    for (index, event) in wanted() {
        let sampled = event.sampling.is_some();
        let counted = !sampled || event.is_sampled(Way::Ibs) || event.windowed;
        let roles =
            [(sampled, Role::Sampling), (!event.window.is_empty(), Role::Window), (counted, Role::Counting)];
        for (_, role) in roles.into_iter().filter(|(needed, _)| *needed) {
            if !matching.add((index, role)) {
                return Err(Refusal::new(Reason::NoCounter, [index as u64, 0]));
            }
        }
    }
    for (index, _) in wanted().filter(|(_, event)| event.is_sampled(Way::Pebs) && !event.windowed) {
        matching.add((index, Role::Counting));
    }
    let mut assignments = [Assignment::NONE; EVENTS_MAX];
    for (place, held) in matching.uses.iter().enumerate() {
        let counter = Some(Counter::at(place));
        match *held {
            Some((index, Role::Counting)) => assignments[index].counting = counter,
            Some((index, Role::Sampling)) => assignments[index].sampling = counter,
            Some((index, Role::Window)) => assignments[index].window = counter,
            None => {}
        }
    }
    Ok(assignments)
}
