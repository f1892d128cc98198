//! Multiplexing: events that do not fit the counters together take turns, each turn a program of its own.
//!
//! Sampled events stay on in every turn, on the same counters, because a sampling position is a counter's. The counted ones
//! queue for counters, and for the registers that some need beside their encodings: the one that has waited longest goes
//! first, then every other that fits beside it in the order of the queue; who has had a turn goes to the end. The order of
//! turns is fixed when the session is made: it ends when all who have to wait have had equally many, or [`TURNS_MAX`] is
//! reached, and then begins again.

use super::abi::{EventMode, Reason, SessionConfig, SessionFlags, EVENTS_MAX};
use super::allocate::Counter;
use super::{Pmu, Program, Refusal};

/// Most turns: each event alone.
pub const TURNS_MAX: usize = EVENTS_MAX;

/// What an event lacks that it may have in a turn of its own: a counter, or the register beside its encoding that another
/// event needs with another value.
const WAIT_FOR: [Reason; 2] = [Reason::NoCounter, Reason::ExtraConflict];

/// The sampled events' counters, which they have in every turn; by event.
pub(super) type Pins = [Option<Counter>; EVENTS_MAX];

/// A session's turns on one PMU. Small, because a kernel stack is: its programs are made one by one.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    /// The events of each turn, a bit each.
    events: [u32; TURNS_MAX],
    count: usize,
    pins: Pins,
}

impl Turns {
    /// The turns of a request: one, or with [`SessionFlags::MULTIPLEX`] as many as it takes.
    ///
    /// # Errors
    /// Those of [`Program::new`] when the request multiplexes; else [`Turns::program`] has them.
    pub fn new(pmu: &Pmu, request: &SessionConfig) -> Result<Self, Refusal> {
        let mut all = Self { events: [u32::MAX; TURNS_MAX], count: 1, pins: [None; EVENTS_MAX] };
        if request.flags & SessionFlags::MULTIPLEX == 0 {
            return Ok(all);
        }
        match Outline::new(pmu, request, u32::MAX, &all.pins) {
            Ok(_) => return Ok(all),
            Err(refusal) if !WAIT_FOR.contains(&refusal.reason) => return Err(refusal),
            Err(_) => {}
        }
        let base = Outline::new(pmu, request, sampled(request), &all.pins)?;
        all.pins = base.pins;
        let mut queue = Queue::new(base.events_here & !base.active);
        for turn in &mut all.events {
            *turn = fill(pmu, request, &base, queue.waiting());
            if let Some(&longest) = queue.waiting().first().filter(|&&event| *turn >> event & 1 == 0) {
                // Not even alone beside the sampled events: the same refusal with its detail.
                Outline::new(pmu, request, base.active | 1 << longest, &base.pins)?;
                return Err(Refusal::new(Reason::NoCounter, [longest.into(), 0]));
            }
            queue.move_to_the_end(*turn);
        }
        all.count = fair_length(&all.events);
        Ok(all)
    }

    /// How many there are.
    #[must_use]
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Writes the program of one turn, for the PMU and the request that the turns were made for.
    ///
    /// # Errors
    /// As [`Program::new`].
    pub fn program(
        &self,
        turn: usize,
        pmu: &Pmu,
        request: &SessionConfig,
        into: &mut Program,
    ) -> Result<(), Refusal> {
        into.write(pmu, request, self.events.get(turn).copied().unwrap_or(0), &self.pins)
    }
}

/// Of a program what is needed to go on from it.
struct Outline {
    active: u32,
    events_here: u32,
    pins: Pins,
}

impl Outline {
    /// Not inlined, because a program is large for a kernel stack, and is gone on return.
    #[inline(never)]
    fn new(pmu: &Pmu, request: &SessionConfig, active: u32, pins: &Pins) -> Result<Self, Refusal> {
        let mut program = Program::EMPTY;
        program.write(pmu, request, active, pins)?;
        Ok(Self { active: program.active(), events_here: program.events_here(), pins: program.pins() })
    }
}

/// The events of a turn, a bit each: those of `base`, and of the waiting ones all that fit beside those before them.
fn fill(pmu: &Pmu, request: &SessionConfig, base: &Outline, waiting: &[u8]) -> u32 {
    waiting.iter().fold(base.active, |turn, event| {
        let wider = turn | 1 << event;
        match Outline::new(pmu, request, wider, &base.pins) {
            Ok(_) => wider,
            Err(_) => turn,
        }
    })
}

fn sampled(request: &SessionConfig) -> u32 {
    let events = request.events.iter().take(request.event_count as usize).enumerate();
    events.filter(|(_, event)| event.mode != EventMode::Count as u8).map(|(index, _)| 1 << index).sum()
}

/// After how many turns all events that ever wait have had equally many.
fn fair_length(turns: &[u32; TURNS_MAX]) -> usize {
    let (any, all) = turns.iter().fold((0, u32::MAX), |(any, all), turn| (any | turn, all & turn));
    let mut had = [0u8; EVENTS_MAX];
    for (length, turn) in turns.iter().enumerate() {
        for (event, had) in had.iter_mut().enumerate() {
            *had += (turn >> event & 1) as u8;
        }
        let mut waiters =
            (0..EVENTS_MAX).filter(|event| (any & !all) >> event & 1 == 1).map(|event| had[event]);
        let first = waiters.next().unwrap_or(1);
        if first > 0 && waiters.all(|had| had == first) {
            return length + 1;
        }
    }
    TURNS_MAX
}

/// Set in every [`Turn`] that is kept as a word.
const KEPT: u64 = 1 << 63;

/// Where a thread is in the session's turns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Turn {
    /// Place of the turn's program in the session's.
    pub(super) number: u8,
    /// TSC ticks of the turn that are used up.
    pub(super) used: u64,
}

impl Turn {
    /// As one word, which is not 0.
    pub(super) const fn packed(self) -> u64 {
        KEPT | self.used << 8 | self.number as u64
    }

    /// From one word; `None` from 0.
    pub(super) const fn unpacked(word: u64) -> Option<Self> {
        if word & KEPT == 0 {
            return None;
        }
        Some(Self { number: word as u8, used: (word & !KEPT) >> 8 })
    }

    /// The turn after `ticks` more, one of `turns` that last `length` each.
    pub(super) fn after(self, ticks: u64, turns: usize, length: u64) -> Self {
        let used = self.used.saturating_add(ticks);
        if used < length {
            return Self { used, ..self };
        }
        let next = self.number + 1;
        Self { number: if usize::from(next) < turns { next } else { 0 }, used: 0 }
    }
}

/// The counted events, the one that has waited longest first.
struct Queue {
    order: [u8; EVENTS_MAX],
    length: usize,
}

impl Queue {
    fn new(events: u32) -> Self {
        let mut queue = Self { order: [0; EVENTS_MAX], length: 0 };
        for event in (0..EVENTS_MAX).filter(|event| events >> event & 1 == 1) {
            queue.order[queue.length] = event as u8;
            queue.length += 1;
        }
        queue
    }

    fn waiting(&self) -> &[u8] {
        &self.order[..self.length]
    }

    fn move_to_the_end(&mut self, taken: u32) {
        let was = self.order;
        let mut place = 0;
        for wanted in [0, 1] {
            for &event in was.iter().take(self.length).filter(|&&event| taken >> event & 1 == wanted) {
                self.order[place] = event;
                place += 1;
            }
        }
    }
}
