//! Profile control (§3.3): when the expensive part of recording may pause, because what the program does is known.

/// Intervals of a pause after which profiling is enabled again, whatever is predicted.
const RECHECK_AFTER: u32 = 64;
/// Intervals for which it is then enabled.
const RECHECK_FOR: u32 = 8;

use super::detector::Step;

/// What to do with an interval's profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Take it.
    Record,
    /// Take it, and keep it in the local buffer as well. `first` says that the buffer is to be emptied before.
    Store {
        /// The buffer holds another phase.
        first: bool,
    },
    /// Do not take it: the buffer's mean stands for it.
    Replay,
}

impl Action {
    /// Whether a profile is taken.
    #[must_use]
    pub fn records(self) -> bool {
        self != Self::Replay
    }
}

/// Decides, interval by interval, from what the [`super::Detector`] found. A decision holds for the interval *after* the step it was
/// made from, because the detector knows an interval only when it is over.
#[derive(Clone, Copy, Debug, Default)]
pub struct Control {
    mode: Mode,
    /// Something is in the local buffer.
    stored: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum Mode {
    #[default]
    Usual,
    Storing {
        first: bool,
    },
    Paused {
        intervals: u32,
    },
    Rechecking {
        intervals: u32,
    },
}

impl Control {
    /// Profiles as usual, until something recurs.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// What to do with the next interval.
    pub fn decide(&mut self) -> Action {
        match &mut self.mode {
            Mode::Usual => Action::Record,
            Mode::Storing { first } => {
                self.stored = true;
                Action::Store { first: std::mem::take(first) }
            }
            Mode::Paused { intervals } if *intervals < RECHECK_AFTER => {
                *intervals += 1;
                Action::Replay
            }
            Mode::Paused { .. } => {
                self.mode = Mode::Rechecking { intervals: 1 };
                Action::Record
            }
            Mode::Rechecking { intervals } if *intervals < RECHECK_FOR => {
                *intervals += 1;
                Action::Record
            }
            Mode::Rechecking { .. } => {
                self.mode = Mode::Paused { intervals: 1 };
                Action::Replay
            }
        }
    }

    /// Takes what the interval brought.
    pub fn learn(&mut self, step: &Step) {
        let Some(occurrence) = step.occurrence else { return };
        self.mode = match (occurrence.recurrent, occurrence.changed, self.mode) {
            // Nothing recurs: the profile is taken as usual.
            (false, _, _) => Mode::Usual,
            (true, true, _) => Mode::Storing { first: true },
            // The same prediction again; with nothing in the buffer there is nothing to replay.
            (true, false, Mode::Usual) if !self.stored => Mode::Storing { first: true },
            (true, false, Mode::Usual | Mode::Storing { .. }) => Mode::Paused { intervals: 0 },
            (true, false, mode) => mode,
        };
    }
}
