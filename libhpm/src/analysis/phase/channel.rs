//! The dual-channel selection (§3.2): one prediction for the whole program out of those of its patterns.

use super::distance::{Repetition, within_tolerance};

/// Hotness goes no higher: four predictions of the greatest confidence.
const HOTNESS_MAX: u8 = 60;

/// What is expected of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// Its behaviour repeats after this time, in TSC ticks on a CPU.
    pub length: u64,
    /// Hotness of the channel, 0 to 60.
    pub confidence: u8,
}

#[derive(Clone, Copy, Debug, Default)]
struct Channel {
    length: u64,
    hotness: u8,
}

/// The two channels.
#[derive(Clone, Copy, Debug, Default)]
pub struct Channels {
    channels: [Channel; 2],
}

impl Channels {
    /// The hottest channel; of equals the first one. `None` while both are cold.
    #[must_use]
    pub fn best(&self) -> Option<Prediction> {
        let [first, second] = self.channels;
        let best = if second.hotness > first.hotness { second } else { first };
        (best.hotness > 0).then_some(Prediction { length: best.length, confidence: best.hotness })
    }

    /// Takes what a pattern predicts.
    pub fn update(&mut self, predicted: Repetition) {
        let matches =
            |channel: &Channel| channel.hotness > 0 && within_tolerance(predicted.length, channel.length);
        let any = self.channels.iter().any(matches);
        for channel in &mut self.channels {
            channel.hotness = if matches(channel) {
                HOTNESS_MAX.min(channel.hotness + predicted.confidence)
            } else {
                channel.hotness.saturating_sub(1)
            };
        }
        if !any {
            let [first, second] = &mut self.channels;
            let coldest = if second.hotness < first.hotness { second } else { first };
            *coldest = Channel { length: predicted.length, hotness: predicted.confidence };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(predictions: &[(u64, u8)]) -> Channels {
        let mut channels = Channels::default();
        for &(length, confidence) in predictions {
            channels.update(Repetition { length, confidence });
        }
        channels
    }

    #[test]
    fn agreeing_predictions_make_a_channel_hot() {
        assert_eq!(Channels::default().best(), None);
        assert_eq!(
            after(&[(1000, 3), (1050, 4), (990, 5)]).best(),
            Some(Prediction { length: 1000, confidence: 12 })
        );
        assert_eq!(after(&[(1000, 15); 9]).best(), Some(Prediction { length: 1000, confidence: 60 }));
    }

    #[test]
    fn a_new_habit_takes_over_when_the_old_one_has_cooled() {
        let mut old = vec![(1000, 5); 2];
        old.push((300, 4));
        assert_eq!(after(&old).best().unwrap().length, 1000);
        old.extend([(300, 4), (300, 4)]);
        assert_eq!(after(&old).best(), Some(Prediction { length: 300, confidence: 12 }));
    }

    #[test]
    fn one_prediction_can_match_both_channels() {
        let mut channels = after(&[(1000, 5), (1150, 5)]);
        channels.update(Repetition { length: 1080, confidence: 3 });
        assert_eq!(channels.channels.map(|channel| channel.hotness), [4 + 3, 5 + 3]);
    }

    #[test]
    fn the_coldest_channel_is_replaced() {
        let channels = after(&[(1000, 9), (300, 4), (50, 2)]);
        assert_eq!(channels.channels.map(|channel| channel.length), [1000, 50]);
    }
}
