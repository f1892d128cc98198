//! Which counters of a Pentium 4 can count events together: an ESCR selects one event with its masks for half of a block's
//! counters, so that it is not enough for each event to find a counter of its own (SDM Vol. 3B, table 18-63 of 2016).

use super::Event;

/// Counters of the largest block.
const BLOCK_MAX: usize = 6;

/// An event's place in the list, the counters that can count it, one bit each, and the register that must select it.
struct Wanted {
    index: usize,
    counters: u32,
    /// ESCR Select, and what the ESCR holds.
    escr: (u64, u64),
}

/// A counter for each of the events, of which `counters` says the counters. `whole`: no other logical processor shares them,
/// else those of the first one's half.
///
/// # Errors
/// The places of the events that do not fit one block together.
pub(super) fn fit(events: &[Event], counters: &[u32], whole: bool) -> Result<Vec<u32>, Vec<usize>> {
    let usable: u32 =
        (0..18).filter(|&counter| whole || half(counter) == 0).map(|counter| 1 << counter).sum();
    let mut given = vec![0; events.len()];
    for block in 0..4 {
        let of_block =
            events.iter().zip(counters).enumerate().filter(|(_, (event, _))| event.encoding & 3 == block);
        let wanted: Vec<Wanted> = of_block
            .map(|(index, (event, counters))| Wanted {
                index,
                counters: counters & usable,
                escr: (event.encoding >> 13 & 7, event.encoding >> 32),
            })
            .collect();
        let tags: Vec<_> = events.iter().filter_map(|event| tagging(event, block)).collect();
        let mut chosen = Vec::new();
        if wanted.len() > BLOCK_MAX || !place(&wanted, &tags, &mut chosen) {
            return Err(wanted.iter().map(|wanted| wanted.index).collect());
        }
        for (wanted, counter) in wanted.iter().zip(chosen) {
            given[wanted.index] = counter;
        }
    }
    Ok(given)
}

/// An ESCR that tags for one of the events, and so selects nothing else: ESCR Select, its half, and what it holds (tables
/// 19-32 and 19-33). Of the pairs of which either will do the driver takes the first.
fn tagging(event: &Event, block: u64) -> Option<(u64, u32, u64)> {
    const EXECUTION: u64 = 0x0C << 25;
    const REPLAY: u64 = 0x09 << 25;
    let escr = |select: u64, mask: u64| select << 25 | mask << 9;
    match (event.encoding >> 57 << 25, block, event.extra) {
        (EXECUTION, 2, upstream) if upstream != 0 => Some((1, 0, upstream >> 32)),
        (REPLAY, 0, 0x1_0000_0200) => Some((2, 0, escr(0x03, 0x30))),
        (REPLAY, 2, 0x1_0000_0400) => Some((2, 1, escr(0x04, 0x02))),
        (REPLAY, 2, 0x2_0000_0400) => Some((2, 0, escr(0x05, 0x02))),
        _ => None,
    }
}

/// Finds counters for those behind the ones that are `chosen` already: all assignments are tried, of six at most.
fn place(wanted: &[Wanted], tags: &[(u64, u32, u64)], chosen: &mut Vec<u32>) -> bool {
    let Some(next) = wanted.get(chosen.len()) else { return true };
    for counter in (0..18).filter(|counter| next.counters >> counter & 1 == 1) {
        let agrees = wanted.iter().zip(&*chosen).all(|(held, &other)| {
            let same_escr = half(other) == half(counter) && held.escr.0 == next.escr.0;
            other != counter && (!same_escr || held.escr == next.escr)
        });
        let tagged = tags
            .iter()
            .any(|&(select, of, value)| (select, of) == (next.escr.0, half(counter)) && value != next.escr.1);
        if agrees && !tagged {
            chosen.push(counter);
            if place(wanted, tags, chosen) {
                return true;
            }
            chosen.pop();
        }
    }
    false
}

/// Which ESCR of a pair feeds this counter.
fn half(counter: u32) -> u32 {
    if counter < 16 { counter >> 1 & 1 } else { counter & 1 }
}
