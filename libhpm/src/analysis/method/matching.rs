//! Entries matched with exits, also where functions were left without one: by an exception, or by `longjmp`.

use std::collections::HashMap;

use super::{Counts, MAX_COUNTS};

/// What an event says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// A function was entered.
    Enter,
    /// A function is about to return.
    Exit,
    /// The same, made after the function had given its frame back: by a jump to what makes events, as the last thing that it
    /// does. The event's stack pointer is then that of the caller.
    TailExit,
    /// Nothing was entered or left: only time and counts are known, as at a thread's begin and end.
    Mark,
}

/// An entry or exit of a thread, in the order in which they happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallEvent {
    /// What happened.
    pub kind: CallKind,
    /// Which function.
    pub function: u32,
    /// Something that differs between places in the code from which events come.
    pub site: u16,
    /// Stack pointer where the event was made. Stacks grow towards lower addresses.
    pub frame: u64,
    /// Time of the thread, in any unit. An event that is earlier than the one before is taken to come at the same time.
    pub time: u64,
    /// What the thread had counted.
    pub counts: Counts,
}

/// How an invocation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum End {
    /// With its exit event.
    Returned,
    /// Without one, because a function further out went on: an exception or `longjmp`. Its time is that of the event that
    /// shows it, so the handler's time up to there is counted too.
    Unwound,
    /// Not at all: the thread's events end first.
    Unfinished,
}

/// One invocation of a function, with all that it called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Invocation {
    /// Which function.
    pub function: u32,
    /// When it was entered, in the events' time.
    pub entered: u64,
    /// Time until it was left.
    pub total: u64,
    /// The part of `total` that is not of functions that it called.
    pub own: u64,
    /// What the thread had counted when it was entered.
    pub before: Counts,
    /// What was counted until it was left.
    pub counts: Counts,
    /// No other invocation of the same function surrounds it.
    pub outermost: bool,
    /// How it ended.
    pub end: End,
}

/// Takes calls, as [`CallMatcher`] makes them of events.
pub trait Calls {
    /// A function is entered from the invocation with the number `caller`; returns the new invocation's number, which means
    /// something to this trait's implementer alone.
    fn enter(&mut self, caller: Option<usize>, function: u32) -> usize;

    /// The invocation with this number has ended.
    fn leave(&mut self, number: usize, invocation: &Invocation);
}

/// What did not come in pairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mismatches {
    /// Invocations that were left without an exit event.
    pub unwound: u64,
    /// Invocations that were still open at the end.
    pub unfinished: u64,
    /// Exit events of functions that nobody had entered: of what was entered before the first event, or of code that changes
    /// stacks (coroutines, handlers on a stack of their own), which is not followed.
    pub orphans: u64,
    /// Events that were earlier than the one before.
    pub backwards: u64,
}

impl std::ops::AddAssign for Mismatches {
    fn add_assign(&mut self, other: Self) {
        self.unwound += other.unwound;
        self.unfinished += other.unfinished;
        self.orphans += other.orphans;
        self.backwards += other.backwards;
    }
}

#[derive(Clone, Copy, Debug)]
struct Open {
    function: u32,
    site: u16,
    frame: u64,
    entered: u64,
    counts: Counts,
    /// Time of what it called.
    callees: u64,
    number: usize,
}

/// Matches the events of one thread.
///
/// The stack pointer tells what is still open. A function that was entered further in (at a lower address) than an event is
/// gone when the event happens. Functions that the compiler put into others share a stack pointer; of these an exit ends the
/// last one of its name, and what was entered after it is gone. An entry from the same place with the same
/// stack pointer as one that is open is its repetition, after a `longjmp` back.
#[derive(Clone, Debug, Default)]
pub struct CallMatcher {
    open: Vec<Open>,
    /// Open invocations of each function.
    active: HashMap<u32, u32>,
    last: Option<(u64, Counts)>,
    mismatches: Mismatches,
}

impl CallMatcher {
    /// A matcher for a thread of which nothing has been seen.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next event.
    pub fn push(&mut self, event: &CallEvent, calls: &mut impl Calls) {
        let mut event = *event;
        if let Some((last, _)) = self.last
            && event.time < last
        {
            self.mismatches.backwards += 1;
            event.time = last;
        }
        self.last = Some((event.time, event.counts));
        match event.kind {
            CallKind::Enter => self.enter(&event, calls),
            CallKind::Exit | CallKind::TailExit => self.exit(&event, calls),
            CallKind::Mark => {}
        }
    }

    /// Ends what is still open, at the last event's time.
    pub fn finish(&mut self, calls: &mut impl Calls) -> Mismatches {
        let Some((time, counts)) = self.last else { return self.mismatches };
        self.close_down_to(0, (time, &counts), End::Unfinished, calls);
        std::mem::take(self).mismatches
    }

    /// How many invocations are open.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.open.len()
    }

    fn enter(&mut self, event: &CallEvent, calls: &mut impl Calls) {
        let again = |open: &Open| {
            open.frame == event.frame && open.function == event.function && open.site == event.site
        };
        let gone = self.first_gone(event.frame);
        let same_frame =
            self.open[..gone].iter().rposition(|open| open.frame != event.frame).map_or(0, |at| at + 1);
        let gone = self.open[same_frame..gone].iter().position(again).map_or(gone, |at| same_frame + at);
        self.close_down_to(gone, (event.time, &event.counts), End::Unwound, calls);
        let number = calls.enter(self.open.last().map(|open| open.number), event.function);
        *self.active.entry(event.function).or_default() += 1;
        self.open.push(Open {
            function: event.function,
            site: event.site,
            frame: event.frame,
            entered: event.time,
            counts: event.counts,
            callees: 0,
            number,
        });
    }

    fn exit(&mut self, event: &CallEvent, calls: &mut impl Calls) {
        let gone = self.first_gone(event.frame);
        let at = (event.time, &event.counts);
        let is_its = |open: &Open| open.function == event.function;
        let place = if event.kind == CallKind::TailExit {
            let place = self.open[gone..].iter().rposition(is_its).map(|place| gone + place);
            if place.is_none() {
                self.close_down_to(gone, at, End::Unwound, calls);
            }
            place
        } else {
            self.close_down_to(gone, at, End::Unwound, calls);
            self.open.iter().rposition(is_its)
        };
        match place {
            Some(place) => {
                self.close_down_to(place + 1, at, End::Unwound, calls);
                self.close_down_to(place, at, End::Returned, calls);
            }
            None => self.mismatches.orphans += 1,
        }
    }

    /// The first of the open invocations that lie further in than `frame`.
    fn first_gone(&self, frame: u64) -> usize {
        self.open.iter().rposition(|open| open.frame >= frame).map_or(0, |last| last + 1)
    }

    fn close_down_to(&mut self, left: usize, at: (u64, &Counts), end: End, calls: &mut impl Calls) {
        while self.open.len() > left {
            let Some(open) = self.open.pop() else { return };
            match end {
                End::Returned => {}
                End::Unwound => self.mismatches.unwound += 1,
                End::Unfinished => self.mismatches.unfinished += 1,
            }
            let total = at.0.saturating_sub(open.entered);
            if let Some(caller) = self.open.last_mut() {
                caller.callees += total;
            }
            let active = self.active.entry(open.function).or_default();
            *active = active.saturating_sub(1);
            let outermost = *active == 0;
            let mut counts = [0; MAX_COUNTS];
            for ((count, after), before) in counts.iter_mut().zip(at.1).zip(&open.counts) {
                *count = after.saturating_sub(*before);
            }
            let own = total.saturating_sub(open.callees);
            let Open { function, entered, counts: before, number, .. } = open;
            let invocation = Invocation { function, entered, total, own, before, counts, outermost, end };
            calls.leave(number, &invocation);
        }
    }
}
