//! The simplest predictor: the next value is like the last one. (The other baseline, "nothing ever changes", needs no code.)

use super::online::Alarm;

/// A value that differs from the last one by more than this part of the larger one is a change.
const THRESHOLD: f64 = 0.1;

/// Declares a change wherever a value is not like the last one.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastValue {
    index: usize,
    last: Option<f64>,
}

impl LastValue {
    /// A detector that has seen nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next value.
    pub fn push(&mut self, value: f64) -> Option<Alarm> {
        let index = self.index;
        self.index += 1;
        let last = self.last.replace(value)?;
        let differs = (value - last).abs() > THRESHOLD * value.abs().max(last.abs());
        differs.then_some(Alarm { found: index, changed: index })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_is_no_change() {
        let mut baseline = LastValue::new();
        let found: Vec<usize> = [10.0, 10.9, 9.9, 12.0, 12.0, 0.0, 0.0]
            .into_iter()
            .filter_map(|value| baseline.push(value))
            .map(|alarm| alarm.found)
            .collect();
        assert_eq!(found, [3, 5]);
    }
}
