//! Which counters can count events together, and why not.
//!
//! The driver decides when a session is opened, by its own rules; this tells beforehand, for any PMU that has a table. The
//! suite holds one against the other.

use std::fmt;

use super::raw::is_netburst;
use super::table::{Row, Sampling};
use super::{Event, escr, table};

/// A counter of a PMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    /// A general counter by its number.
    General(u8),
    /// A fixed counter by its number.
    Fixed(u8),
}

impl fmt::Display for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::General(number) => write!(f, "{number}"),
            Self::Fixed(number) => write!(f, "fixed {number}"),
        }
    }
}

impl Row {
    /// The counters that can count it: general ones first. None can count an event that is only sampled.
    #[must_use]
    pub fn counting(&self) -> Vec<Counter> {
        if self.only_sampled {
            return Vec::new();
        }
        let counters = u64::from(self.counters);
        let general = (0..64).filter(|number| counters >> number & 1 == 1).map(Counter::General);
        general.chain(self.fixed.map(Counter::Fixed)).collect()
    }
}

/// What one of the events takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The counters that can count it.
    pub counters: Vec<Counter>,
    /// The one of them that it gets.
    pub counter: Counter,
}

/// Events that fit, in the order in which they were given.
pub type Fit = Vec<Taken>;

/// Why events do not fit; events are named by their place in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The table has no such event select and unit mask, so that nothing is known of its counters.
    Unlisted(usize),
    /// Hardware counts it only while it samples it.
    OnlySampled(usize),
    /// These events share registers that select one event for several counters each (NetBurst's ESCRs), of which there are too
    /// few.
    Escrs(Vec<usize>),
    /// Two events need one register with different values.
    Register([usize; 2]),
    /// These events can be counted by these counters only, of which there are fewer.
    TooFew {
        /// The events.
        events: Vec<usize>,
        /// All that any of them can use.
        counters: Vec<Counter>,
    },
}

/// Counters for all events at once on one PMU, of which `general_counters` of the general ones can be used.
///
/// # Errors
/// [`Misfit`].
pub fn fit(events: &[Event], pmu: &str, general_counters: u32) -> Result<Fit, Misfit> {
    let usable = |counter: &Counter| match *counter {
        // Those of NetBurst's that are usable are not the first ones.
        Counter::General(number) => pmu.starts_with("netburst") || u32::from(number) < general_counters,
        Counter::Fixed(_) => true,
    };
    let mut allowed = Vec::with_capacity(events.len());
    for (index, event) in events.iter().enumerate() {
        let row = table(pmu).and_then(|table| table.encoded(event.encoding));
        let row = row.ok_or(Misfit::Unlisted(index))?;
        if row.only_sampled {
            return Err(Misfit::OnlySampled(index));
        }
        let mut counters = row.counting();
        // A fixed counter has no edge detection, inversion or counter mask.
        counters.retain(|counter| {
            usable(counter) && (matches!(counter, Counter::General(_)) || row.encoding == event.encoding)
        });
        allowed.push(counters);
    }
    check_registers(events)?;
    if events.iter().any(|event| is_netburst(event.encoding)) {
        return fit_escrs(events, allowed, general_counters);
    }
    let mut matching = Matching { allowed: &allowed, held: Vec::new() };
    for event in 0..events.len() {
        let mut tried = Vec::new();
        if !matching.place(event, &mut tried) {
            return Err(matching.too_few(event, tried));
        }
    }
    let mut held = matching.held;
    held.sort_unstable_by_key(|&(_, event)| event);
    Ok(held.into_iter().zip(allowed).map(|((counter, _), counters)| Taken { counters, counter }).collect())
}

/// As [`fit`] of NetBurst's events. All 18 counters can be used where no other logical processor has half of them.
fn fit_escrs(events: &[Event], allowed: Vec<Vec<Counter>>, general_counters: u32) -> Result<Fit, Misfit> {
    let bits = |counters: &Vec<Counter>| {
        counters.iter().fold(0, |bits, counter| match counter {
            Counter::General(number) => bits | 1 << number,
            Counter::Fixed(_) => bits,
        })
    };
    let counters: Vec<u32> = allowed.iter().map(bits).collect();
    let given = escr::fit(events, &counters, general_counters >= 18).map_err(Misfit::Escrs)?;
    let taken = |(counters, counter): (Vec<Counter>, u32)| Taken {
        counters,
        counter: Counter::General(counter as u8),
    };
    Ok(allowed.into_iter().zip(given).map(taken).collect())
}

/// The register that an event needs beside its encoding, and its value. Of each kind there is one: of NetBurst's, one set of
/// tags for each event that counts tags.
fn register(event: &Event) -> Option<((bool, u64), u64)> {
    let kind = (event.sampling == Sampling::LoadLatency, event.encoding >> 57);
    (event.extra != 0).then_some((kind, event.extra))
}

fn check_registers(events: &[Event]) -> Result<(), Misfit> {
    let registers = || events.iter().enumerate().filter_map(|(index, event)| Some((index, register(event)?)));
    for (first, (kind, value)) in registers() {
        let other = registers().find(|(_, (other, other_value))| *other == kind && *other_value != value);
        if let Some((second, _)) = other {
            return Err(Misfit::Register([first, second]));
        }
    }
    Ok(())
}

/// Bipartite matching by augmenting paths, so that events are refused only when no assignment exists.
struct Matching<'a> {
    /// The counters of each event.
    allowed: &'a [Vec<Counter>],
    held: Vec<(Counter, usize)>,
}

impl Matching<'_> {
    /// Finds a counter for one more event, moving others when that helps. `tried` gathers the counters looked at.
    fn place(&mut self, event: usize, tried: &mut Vec<Counter>) -> bool {
        // Fixed counters can count little else.
        for &counter in self.allowed[event].iter().rev() {
            if tried.contains(&counter) {
                continue;
            }
            tried.push(counter);
            let holder = self.held.iter().position(|&(held, _)| held == counter);
            match holder {
                None => {
                    self.held.push((counter, event));
                    return true;
                }
                Some(place) => {
                    let (_, other) = self.held[place];
                    if self.place(other, tried) {
                        // What `other` held before stands at the same place; it has a new entry at the end.
                        self.held[place] = (counter, event);
                        return true;
                    }
                }
            }
        }
        false
    }

    /// After a search in vain all counters tried are held, by events that can use no others (Hall's theorem).
    fn too_few(&self, event: usize, mut tried: Vec<Counter>) -> Misfit {
        let holders =
            self.held.iter().filter(|(counter, _)| tried.contains(counter)).map(|&(_, event)| event);
        let mut events: Vec<usize> = holders.chain([event]).collect();
        events.sort_unstable();
        tried.sort_unstable();
        Misfit::TooFew { events, counters: tried }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{parse, split_list};

    fn fitted(names: &str, pmu: &str, general: u32) -> Result<Vec<Counter>, Misfit> {
        let events: Vec<Event> =
            split_list(names).into_iter().map(|name| parse(name, pmu).unwrap()).collect();
        Ok(fit(&events, pmu, general)?.into_iter().map(|taken| taken.counter).collect())
    }

    #[test]
    fn events_move_so_that_all_fit() {
        use Counter::{Fixed, General};
        assert_eq!(fitted("cycles,instructions", "skylake", 4), Ok(vec![Fixed(1), Fixed(0)]));
        // The first takes the only counter that the second can use, and must give way.
        assert_eq!(fitted("branch,l1d-load-miss", "core2", 2), Ok(vec![General(1), General(0)]));
        // Two general counters, and the fixed one.
        assert!(fitted("cycles,cycles,cycles", "core2", 2).is_ok());
    }

    #[test]
    fn what_does_not_fit_is_explained_by_the_events_that_compete() {
        let counters = |numbers: &[u8]| numbers.iter().map(|&number| Counter::General(number)).collect();
        assert_eq!(
            fitted("instructions,l1d-load-miss,branch,l2-load-miss", "core2", 2),
            Err(Misfit::TooFew { events: vec![1, 3], counters: counters(&[0]) })
        );
        assert_eq!(
            fitted("branch,branch-miss,load", "core2", 2),
            Err(Misfit::TooFew { events: vec![0, 1, 2], counters: counters(&[0, 1]) })
        );
        assert_eq!(fitted("cycles,mem-loads", "skylake", 4), Err(Misfit::OnlySampled(1)));
        assert_eq!(fitted("cycles,r00ff", "skylake", 4), Err(Misfit::Unlisted(1)));
        assert_eq!(
            fitted("FRONTEND_RETIRED.L1I_MISS,cycles,FRONTEND_RETIRED.ITLB_MISS", "skylake", 4),
            Err(Misfit::Register([0, 2]))
        );
    }

    #[test]
    fn fixed_counters_count_events_as_they_are() {
        assert_eq!(fitted("cycles", "skylake", 0), Ok(vec![Counter::Fixed(1)]));
        let masked = fitted("cpu/event=0x3c,cmask=1/", "skylake", 0);
        assert_eq!(masked, Err(Misfit::TooFew { events: vec![0], counters: vec![] }));
    }
}
