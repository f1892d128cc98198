//! NetBurst's events to counters and, with them, ESCRs.
//!
//! A counter of one half takes its event from the ESCR of that half. An ESCR selects one event with one mask, for as many
//! counters as want the same. Blocks of counters have no ESCR in common, so that each is solved by itself: six uses of six
//! counters at most, all assignments tried, so that a set of events is refused only when none exists beside the ESCRs that tag.

use super::super::super::abi::{Reason, EVENTS_MAX};
use super::super::super::allocate::{Assignment, Counter};
use super::super::super::events::{Event, Way};
use super::super::super::Refusal;
use super::events::{escr_of, Encoding, EventRule};
use super::registers::{Block, COUNTERS};
use super::tags::Tags;
use super::Unit;

/// Counters of the largest block.
const BLOCK_MAX: usize = 6;

/// An event's use of a counter.
#[derive(Clone, Copy, Debug)]
struct Use {
    event: u8,
    sampling: bool,
    /// The counters that will do, one bit each.
    counters: u32,
    rule: &'static EventRule,
    /// The ESCR's value.
    escr: u32,
}

/// The uses of one block's counters, and who has which.
#[derive(Clone, Copy, Debug, Default)]
struct Uses {
    uses: [Option<Use>; BLOCK_MAX],
    counters: [u32; BLOCK_MAX],
}

impl Uses {
    /// Adds one, if all of them still find a counter.
    fn add(&mut self, tags: &Tags, wanted: Use) -> bool {
        let mut more = *self;
        let Some(free) = more.uses.iter_mut().find(|held| held.is_none()) else { return false };
        *free = Some(wanted);
        let solved = more.solve(tags, 0, 0);
        if solved {
            *self = more;
        }
        solved
    }

    /// Finds counters for the uses from `next` on, beside those that are `taken`.
    fn solve(&mut self, tags: &Tags, next: usize, taken: u32) -> bool {
        let Some(wanted) = self.uses.get(next).copied().flatten() else { return true };
        for counter in (0..COUNTERS).filter(|counter| (wanted.counters & !taken) >> counter & 1 == 1) {
            if !self.agrees(tags, next, &wanted, counter) {
                continue;
            }
            self.counters[next] = counter;
            if self.solve(tags, next + 1, taken | 1 << counter) {
                return true;
            }
        }
        false
    }

    /// Whether the ESCR of this counter is free, or selects the same for those before.
    fn agrees(&self, tags: &Tags, next: usize, wanted: &Use, counter: u32) -> bool {
        let escr = escr_of(wanted.rule, counter);
        let tagging = tags.escrs[escr.place()];
        let before = self.uses.iter().flatten().zip(self.counters).take(next);
        (tagging == 0 || tagging == wanted.escr)
            && before
                .filter(|(held, counter)| escr_of(held.rule, *counter) == escr)
                .all(|(held, _)| held.escr == wanted.escr)
    }
}

/// Gives every event whose bit is set in `active` the counter it needs, then, while counters last, each precise event a
/// second one for its count.
///
/// # Errors
/// [`Reason::NoCounter`] with the index of the first event that finds no place beside those before it.
pub fn assign(
    unit: &Unit,
    events: &[Event],
    active: u32,
    tags: &Tags,
) -> Result<[Assignment; EVENTS_MAX], Refusal> {
    let mut blocks = [Uses::default(); Block::ALL.len()];
    let mut add = |index: usize, event: &Event, sampling: bool| {
        let Some(rule) = Encoding(event.encoding).rule() else { return false };
        let counters = match event.sampling {
            Some(how) if sampling => how.counters,
            _ => event.counters,
        };
        let escr = Encoding(event.encoding).escr() | unit.qualification(event.privilege);
        let wanted = Use { event: index as u8, sampling, counters: counters.netburst_bits(), rule, escr };
        blocks[rule.pair.block() as usize].add(tags, wanted)
    };
    let wanted = || events.iter().enumerate().filter(|(index, _)| active >> index & 1 == 1);
    for (index, event) in wanted() {
        if !add(index, event, event.sampling.is_some()) {
            return Err(Refusal::new(Reason::NoCounter, [index as u64, 0]));
        }
    }
    for (index, event) in wanted().filter(|(_, event)| event.is_sampled(Way::Pebs)) {
        add(index, event, false);
    }
    let mut assignments = [Assignment::default(); EVENTS_MAX];
    for block in &blocks {
        for (held, counter) in block.uses.iter().flatten().zip(block.counters) {
            let assignment = &mut assignments[usize::from(held.event)];
            let counter = Some(Counter::netburst(counter));
            if held.sampling {
                assignment.sampling = counter;
            } else {
                assignment.counting = counter;
            }
        }
    }
    Ok(assignments)
}
