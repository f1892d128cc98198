//! Profile control (§3.3): when the expensive part of recording may pause, because what the program does is known.

use super::detector::Step;
use super::metrics::Profile;

/// Intervals of a pause after which profiling is enabled again, whatever is predicted.
const RECHECK_AFTER: u32 = 64;
/// Intervals for which it is then enabled.
const RECHECK_FOR: u32 = 8;

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
    /// Do not take it, and let nothing stand for it: what simple skipping does, never [`Control`].
    Skip,
}

impl Action {
    /// Whether a profile is taken.
    #[must_use]
    pub fn records(self) -> bool {
        !matches!(self, Self::Replay | Self::Skip)
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

/// The profile that comes of these actions: what was taken, and for each replayed interval the mean of those in the local buffer.
/// `profiles` has each interval's samples by function, as they would all have been taken.
#[must_use]
pub fn replay(actions: &[Action], profiles: &[Vec<(u32, u64)>]) -> Profile {
    let mut result = Profile::default();
    let mut buffer = Profile::default();
    let mut stored = 0_u32;
    for (action, samples) in actions.iter().zip(profiles) {
        match action {
            Action::Skip => {}
            Action::Replay if stored > 0 => result.add_scaled(&buffer, 1.0 / f64::from(stored)),
            Action::Replay => {}
            Action::Record | Action::Store { .. } => {
                samples.iter().for_each(|&(function, weight)| result.add(function.into(), weight as f64));
            }
        }
        if let Action::Store { first } = action {
            if *first {
                buffer.clear();
                stored = 0;
            }
            samples.iter().for_each(|&(function, weight)| buffer.add(function.into(), weight as f64));
            stored += 1;
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::super::{Base, Detector, Interval, Rules, Signal, synthetic::labelled_set};
    use super::*;

    fn actions(intervals: &[Interval]) -> Vec<Action> {
        let mut detector = Detector::new(Rules::Published, Signal::new(&[0], Base::Time));
        let mut control = Control::new();
        let decide = |interval: &Interval| {
            let action = control.decide();
            control.learn(&detector.push(interval));
            action
        };
        intervals.iter().map(decide).collect()
    }

    #[test]
    fn a_program_that_repeats_is_paused_with_rechecks() {
        let bursts = labelled_set(0.0).into_iter().find(|recipe| recipe.name == "bursts").unwrap();
        let actions = actions(&bursts.stream(2000, 1).intervals);
        assert!(actions[..8].iter().all(|action| *action == Action::Record), "nothing has recurred yet");
        assert!(actions.contains(&Action::Store { first: true }));
        let first = actions.iter().position(|action| *action == Action::Replay).unwrap();
        assert!(actions[..first].iter().any(|action| matches!(action, Action::Store { .. })));
        let paused = actions.iter().filter(|action| !action.records()).count();
        assert!(paused > 500, "{paused}");
        let longest =
            actions.chunk_by(|a, b| a == b).filter(|run| run[0] == Action::Replay).map(<[_]>::len).max();
        assert!(longest <= Some(RECHECK_AFTER as usize), "{longest:?}");
    }

    #[test]
    fn noise_is_not_paused_for_long() {
        let none = labelled_set(0.3).pop().unwrap();
        let actions = actions(&none.stream(300, 1).intervals);
        let recorded = actions.iter().filter(|action| action.records()).count();
        assert!(recorded > 200, "{recorded}");
    }

    #[test]
    fn replayed_intervals_are_the_mean_of_the_buffer() {
        let profiles = [vec![(1, 10)], vec![(2, 4)], vec![(3, 8)], vec![(9, 99)], vec![(9, 99)]];
        let store = |first| Action::Store { first };
        let profile =
            replay(&[Action::Record, store(true), store(false), Action::Replay, Action::Skip], &profiles);
        let mut expected = Profile::default();
        for (function, weight) in [(1, 10.0), (2, 4.0 + 2.0), (3, 8.0 + 4.0)] {
            expected.add(function, weight);
        }
        assert_eq!(profile, expected);
    }
}
