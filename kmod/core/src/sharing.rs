//! Sessions that share: where several measure one thread, one of them has the PMU at a time.
//!
//! One that does not share has it for as long as it measures the thread. Those that do take turns in slots of time; in each
//! round of slots all have one, in an order that differs from round to round, so that a thread which does the same thing every so often
//! does not do it in one session's slots alone.

use super::abi::{Quantum, QuantumEnd, QuantumFlags};
use super::markers::{Mark, Stretch};
use super::port::Rings;
use super::session::{Session, Thread};

/// Milliseconds that a turn lasts.
pub const SLOT_MS: u64 = 10;

/// The place of the session that has the PMU in this slot, of those that measure a thread: `covering` has a bit for the place of each,
/// `sharing` one for each that shares, whomever it measures. `None` when nobody measures the thread.
#[must_use]
pub const fn choose(covering: u64, sharing: u64, slot: u64) -> Option<u32> {
    if covering == 0 {
        return None;
    }
    let alone = covering & !sharing;
    if alone != 0 {
        return Some(alone.trailing_zeros());
    }
    let (sharers, mut left) = (covering.count_ones() as u64, covering);
    // Not 0: a place has a bit.
    let (Some(round), Some(turn)) = (slot.checked_div(sharers), slot.checked_rem(sharers)) else {
        return None;
    };
    let Some(mut skipped) = turn.wrapping_add(mixed(round)).checked_rem(sharers) else { return None };
    while skipped > 0 {
        left &= left.wrapping_sub(1);
        skipped -= 1;
    }
    Some(left.trailing_zeros())
}

/// A number that looks drawn at random, also for rounds that are equally far apart: the output function of SplitMix64 (Steele et al.,
/// OOPSLA'14, figure 13).
const fn mixed(round: u64) -> u64 {
    let once = round.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let twice = (once ^ once >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let thrice = (twice ^ twice >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    thrice ^ thrice >> 31
}

/// A stretch of time in which a session waited for its turn, while a thread ran that it measures too.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// Who ran.
    pub thread: Thread,
    /// Where.
    pub cpu: u32,
    /// TSC at the start.
    pub start_tsc: u64,
    /// TSC at the end.
    pub end_tsc: u64,
    /// Why it ended there.
    pub end: QuantumEnd,
    /// The thread's user instruction pointer then, or 0.
    pub last_ip: u64,
}

impl<R: Rings> Session<'_, R> {
    /// The session has waited: nothing was counted for it, and it is told so, in its sums and as a quantum ([`QuantumFlags::LENT`]).
    pub fn note_wait(&mut self, wait: &Wait) {
        let (program, state) = (self.program, &mut *self.state);
        // Who asks is told of a wait that goes on.
        let told = wait.start_tsc < state.told_tsc && state.told_tsc < wait.end_tsc;
        let wait = &Wait { start_tsc: if told { state.told_tsc } else { wait.start_tsc }, ..*wait };
        state.told_tsc = wait.end_tsc;
        state.absent = program.absent();
        // A TSC that was set back must not make the sum overflow.
        state.totals.lent_tsc += wait.end_tsc.saturating_sub(wait.start_tsc);
        if program.config().quanta == 0 {
            return;
        }
        if state.quanta.room_for(1).is_none() {
            self.take_back();
        }
        match self.state.quanta.room_for(1) {
            Some(number) => self.put_wait(number, wait),
            None => {
                self.state.totals.quanta_lost += 1;
                self.state.lost_before = true;
            }
        }
        self.state.sequence += 1;
        self.publish();
    }

    /// What was lost before is for the next quantum to tell that has counted something.
    fn put_wait(&mut self, number: u64, wait: &Wait) {
        let (program, state) = (self.program, &mut *self.state);
        let (counter_event, sampler_counter) = program.samplers();
        let quantum = Quantum {
            sequence: state.sequence,
            start_tsc: wait.start_tsc,
            end_tsc: wait.end_tsc,
            pid: wait.thread.pid,
            tid: wait.thread.tid,
            cpu: wait.cpu,
            end: wait.end as u16,
            flags: QuantumFlags::LENT,
            last_ip: wait.last_ip,
            count_len: program.event_count() as u32,
            // Nothing is missed of what cannot occur here.
            active: program.absent(),
            absent: program.absent(),
            counter_event,
            sampler_counter,
            ..Quantum::EMPTY
        };
        self.rings.write_quantum(state.quanta.place(number), |shown| *shown = quantum);
        state.quanta.produce_to(number + 1);
    }

    /// A thread sets markers while the session waits for its turn with it, since `wait` began; whether it keeps any.
    pub fn keep_waiting(&mut self, marks: impl IntoIterator<Item = Mark>, wait: &Wait) -> bool {
        if self.program.config().markers == 0 {
            return false;
        }
        let Wait { thread, cpu, start_tsc, end_tsc: now_tsc, .. } = *wait;
        self.keep(marks, &Stretch { thread, cpu, start_tsc, now_tsc });
        true
    }
}
