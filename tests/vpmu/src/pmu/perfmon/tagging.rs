//! Which loads the load latency facility follows.
//!
//! "When the load-latency facility is enabled, load operations are randomly selected by hardware and tagged
//! [...]. The MEM_TRANS_RETIRED event for load latency counts only tagged retired loads" (SDM Vol. 3B
//! 18.9.4.2). How often is not said. Here every load is tagged, or one in so many on average
//! ([`crate::Options::loads_per_tag`]), by a generator that is the same in every run.

use crate::event::{Event, EventSet, MicroEvents};
use serde::{Deserialize, Serialize};

/// Decides load by load.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Tagger {
    state: u64,
}

impl Tagger {
    pub(super) fn new() -> Self {
        // Any number but 0, which the generator does not leave.
        Self { state: 0x9E37_79B9_7F4A_7C15 }
    }

    /// `events` as the counters may see them: without the load, if it is one and not tagged.
    pub(super) fn filter(&mut self, events: &MicroEvents, loads_per_tag: u32) -> MicroEvents {
        if loads_per_tag <= 1 || !events.once.contains(Event::LoadLatency) || self.tags(loads_per_tag) {
            return *events;
        }
        let once = events.once.difference(EventSet::of(&[Event::LoadLatency]));
        MicroEvents { once, load_latency_cycles: 0, ..*events }
    }

    /// Marsaglia's xorshift with shifts 13, 7 and 17 ("Xorshift RNGs", Journal of Statistical Software 8 (14),
    /// 2003).
    fn tags(&mut self, one_in: u32) -> bool {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 32).is_multiple_of(one_in.into())
    }
}
