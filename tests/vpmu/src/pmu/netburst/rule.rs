//! What a counter counts, as its CCCR, the ESCR it chooses and the tagging registers say.

use super::Unit;
use super::bits::{cccr, escr, matrix, pebs_enable, port_replay, uop_type};
use super::counter::basics;
use crate::event::{Basic, BasicCounts, Event as E, EventSet};
use crate::pmu::Demand;
use crate::pmu::cycles::CycleFilter;
use crate::profile::{Meaning, NetburstEvent, RAT_ESCRS, SAAT_ESCR0, SAAT_ESCR1, Term};

/// What a counter counts. The default counts nothing.
#[derive(Debug, Clone, Default)]
pub(super) struct Rule {
    /// For each logical processor, at which privilege levels.
    pub(super) privileges: [[bool; 2]; 2],
    /// The sum of these events,
    pub(super) sum: EventSet,
    /// and one for each of these that an access or branch meets,
    pub(super) terms: Vec<Term>,
    /// and instructions by tag.
    instructions: Option<ByTag>,
    /// Cycle-wise counting.
    pub(super) filter: Option<CycleFilter>,
    /// The logical processor for which an overflow arms PEBS.
    pub(super) pebs: Option<usize>,
    /// Every increment is an overflow.
    pub(super) force_overflow: bool,
}

/// Instructions that front-end tagging has tagged, or not.
#[derive(Debug, Clone, Copy)]
struct ByTag {
    loads: bool,
    stores: bool,
    wanted: bool,
}

/// How far a rule lets a basic event run ahead.
pub(super) enum Limit {
    /// It does not count that event.
    None,
    /// It must see each one by itself.
    Each,
    /// Until the counter overflows.
    Overflow,
}

impl Rule {
    pub(super) fn is_on(&self, thread: usize) -> bool {
        self.privileges[thread] != [false; 2] && self.counts()
    }

    fn counts(&self) -> bool {
        !self.sum.is_empty() || !self.terms.is_empty() || self.instructions.is_some() || self.filter.is_some()
    }

    /// What must be observed for it.
    pub(super) fn demand(&self) -> Demand {
        if !self.is_on(0) && !self.is_on(1) {
            Demand::Nothing
        } else if self.filter.is_some()
            || self.instructions.is_some()
            || !self.terms.is_empty()
            || !self.sum.difference(basics()).is_empty()
        {
            Demand::Microarchitecture
        } else {
            Demand::Basic
        }
    }

    pub(super) fn limits(&self, basic: Basic) -> Limit {
        let counted = self.sum.contains(basic.into());
        if self.instructions.is_some() && basic == Basic::Instruction || counted && self.filter.is_some() {
            Limit::Each
        } else if counted {
            Limit::Overflow
        } else {
            Limit::None
        }
    }

    /// How many of the basic events at `privilege` it counts.
    pub(super) fn basic(&self, delta: &BasicCounts, privilege: usize) -> u64 {
        let of = |basic: Basic| delta[basic as usize][privilege];
        let sum: u64 =
            Basic::ALL.iter().filter(|&&basic| self.sum.contains(basic.into())).map(|&b| of(b)).sum();
        // At most one instruction: the limit is `Each`.
        let by_tag = self.instructions.map_or(0, |by_tag| {
            let tagged = by_tag.loads && of(Basic::Load) > 0 || by_tag.stores && of(Basic::Store) > 0;
            if tagged == by_tag.wanted { of(Basic::Instruction) } else { 0 }
        });
        sum + by_tag
    }
}

impl Unit {
    /// What counter `index` counts.
    pub(super) fn rule(&self, index: usize) -> Rule {
        let control = self.registers.cccr[index];
        if control & cccr::ENABLE == 0 || !self.active(control) {
            return Rule::default();
        }
        let Some((event, select)) = self.selected(index, control) else { return Rule::default() };
        let mut rule = Rule {
            privileges: qualified(event, select),
            filter: filter(control),
            pebs: self.pebs_thread(index).filter(|_| event.precise),
            force_overflow: control & cccr::FORCE_OVF != 0,
            ..Rule::default()
        };
        let mut mask = escr::mask(select);
        for masked in event.masks {
            if mask & masked.mask == masked.mask {
                mask &= !masked.mask;
                self.apply(masked.counts, &mut rule);
            }
        }
        rule
    }

    /// ACTIVE_THREAD (18.16.2): none, one, both, any. Whoever counts is active itself.
    fn active(&self, control: u64) -> bool {
        match cccr::active_thread(control) {
            0b00 => false,
            0b01 => self.threads == 1,
            0b10 => self.threads == 2,
            _ => true,
        }
    }

    /// The event that the ESCR chosen by a CCCR selects, and that ESCR's value.
    fn selected(&self, index: usize, control: u64) -> Option<(&'static NetburstEvent, u64)> {
        let facts = self.facts;
        let chosen = facts
            .escrs
            .iter()
            .position(|escr| escr.select == cccr::escr_select(control) && escr.counters >> index & 1 != 0)?;
        let select = self.registers.escr[chosen];
        let address = facts.escrs[chosen].address;
        let found =
            |event: &&NetburstEvent| event.select == escr::select(select) && event.escrs.contains(&address);
        facts.events.iter().find(found).map(|event| (event, select))
    }

    fn apply(&self, counts: Meaning, rule: &mut Rule) {
        match counts {
            Meaning::Sum(events) => rule.sum = rule.sum.union(events),
            Meaning::Terms(terms) => rule.terms.extend(terms),
            Meaning::FrontEndTagged => {
                let (loads, stores) = self.front_end_tags();
                let tags = [(loads, E::Load), (stores, E::Store)];
                tags.iter().filter(|(tagged, _)| *tagged).for_each(|&(_, event)| rule.sum.insert(event));
            }
            Meaning::Instructions { tagged } => match (self.front_end_tags(), tagged) {
                ((false, false), false) => rule.sum.insert(E::Instruction),
                ((false, false), true) => {}
                ((loads, stores), wanted) => rule.instructions = Some(ByTag { loads, stores, wanted }),
            },
            Meaning::ReplayTagged => rule.terms.extend(self.replay_tags()),
        }
    }

    /// Whether loads and stores are tagged at the front end: by uop_type in a RAT ESCR, which no counter needs to choose
    /// (18.15.6.2, table 19-31).
    fn front_end_tags(&self) -> (bool, bool) {
        let tag = |mask: u16| RAT_ESCRS.iter().any(|&address| self.selects(address, uop_type::SELECT, mask));
        (tag(uop_type::TAGLOADS), tag(uop_type::TAGSTORES))
    }

    /// Whether the ESCR at `address` selects this event with at least these mask bits.
    fn selects(&self, address: u32, event: u8, mask: u16) -> bool {
        let index = self.facts.escrs.iter().position(|escr| escr.address == address);
        index.is_some_and(|index| {
            let select = self.registers.escr[index];
            escr::select(select) == event && escr::mask(select) & mask == mask
        })
    }

    /// What replay tagging tags (18.15.6.4, table 19-33): a micro-operation once, whatever it met.
    fn replay_tags(&self) -> Vec<Term> {
        let (enable, vert) = (self.registers.metrics, self.registers.matrix);
        if enable & pebs_enable::UOP_TAG == 0 {
            return Vec::new();
        }
        let on = |metric: u64, kind: u64| enable & metric == metric && vert & kind != 0;
        let split = |kind: u64, address: u32, event: u8| {
            on(pebs_enable::SPLIT, kind) && self.selects(address, event, port_replay::SPLIT)
        };
        let loads = any(&[
            (on(pebs_enable::L1_MISS, matrix::LOADS), E::LoadL1Miss),
            // The second level is the last.
            (on(pebs_enable::L2_MISS, matrix::LOADS), E::LoadL3Miss),
            (on(pebs_enable::TLB_MISS, matrix::LOADS), E::LoadStlbMiss),
            (split(matrix::LOADS, SAAT_ESCR1, port_replay::LOAD_SELECT), E::LoadSplit),
        ]);
        let stores = any(&[
            (on(pebs_enable::TLB_MISS, matrix::STORES), E::StoreStlbMiss),
            (split(matrix::STORES, SAAT_ESCR0, port_replay::STORE_SELECT), E::StoreSplit),
        ]);
        let branches = any(&[(on(pebs_enable::MISPREDICTED, matrix::BRANCHES), E::BranchMispredicted)]);
        [loads, stores, branches].into_iter().filter(|term| !term.any.is_empty()).collect()
    }

    /// The logical processor whose PEBS counter `index` is, if its PEBS is enabled (18.16.3): 16 and 17 are those of logical
    /// processors 0 and 1.
    pub(super) fn pebs_thread(&self, index: usize) -> Option<usize> {
        index.checked_sub(16).filter(|&thread| self.registers.pebs[thread])
    }
}

/// Any of the events that are marked.
fn any(events: &[(bool, E)]) -> Term {
    let mut any = EventSet::EMPTY;
    events.iter().filter(|(marked, _)| *marked).for_each(|&(_, event)| any.insert(event));
    Term { any, every: EventSet::EMPTY, none: EventSet::EMPTY }
}

/// Where an event counts (18.16.4): by logical processor and privilege level, or, if it cannot be qualified by logical
/// processor, on both at every level that is chosen for either.
fn qualified(event: &NetburstEvent, select: u64) -> [[bool; 2]; 2] {
    let chosen = escr::QUALIFIERS.map(|levels| levels.map(|bit| select & bit != 0));
    if !event.thread_independent {
        return chosen;
    }
    let either = [0, 1].map(|privilege: usize| chosen[0][privilege] || chosen[1][privilege]);
    [either; 2]
}

/// COMPARE, COMPLEMENT, THRESHOLD and EDGE (18.15.5.2): more than the threshold, or at most the threshold, makes a count
/// of one; EDGE, which needs COMPARE, counts only when that becomes true.
fn filter(control: u64) -> Option<CycleFilter> {
    (control & cccr::COMPARE != 0).then(|| CycleFilter {
        cmask: cccr::threshold(control) + 1,
        invert: control & cccr::COMPLEMENT != 0,
        equal: false,
        edge: control & cccr::EDGE != 0,
    })
}
