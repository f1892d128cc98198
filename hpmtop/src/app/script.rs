//! Without a terminal: the keys of `--keys`, which nobody presses, and what is waited for between them and before something is printed.

use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::Headless;
use crate::event::Event;
use crate::keys::Key;
use crate::output::text;

/// Longest time until something is seen.
const PATIENCE: Duration = Duration::from_secs(60);

impl Headless {
    /// Presses the keys of `--keys`; a word that names no key is typed. Whether to go on.
    ///
    /// # Errors
    /// The source is lost, or something is not seen that should be.
    pub(crate) fn press_all(&mut self, keys: &str) -> Result<bool> {
        for word in keys.split_whitespace() {
            if let Some(ms) = word.strip_prefix("wait=").and_then(|ms| ms.parse().ok()) {
                self.wait(Duration::from_millis(ms))?;
                continue;
            }
            if let Some(wanted) = word.strip_prefix("sees=") {
                self.wait_until_seen(wanted)?;
                continue;
            }
            let typed = match Key::parse(word) {
                Some(key) => vec![key],
                None => word.chars().filter_map(|one| Key::parse(&one.to_string())).collect(),
            };
            for key in typed {
                self.press_key(key);
                if self.ended {
                    return Ok(false);
                }
                self.settle()?;
            }
        }
        Ok(!self.ended)
    }

    /// Takes events for so long.
    fn wait(&mut self, time: Duration) -> Result<()> {
        let until = Instant::now() + time;
        while self.take_one(until)? {}
        Ok(())
    }

    /// Takes events until a text is on the screen, or somebody wants the end.
    fn wait_until_seen(&mut self, wanted: &str) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        loop {
            let (width, height) = self.size;
            let seen = text(&self.state, width, height);
            if seen.contains(wanted) || self.ended {
                return Ok(());
            }
            if !self.take_one(until)? {
                bail!("`{wanted}` was not seen within {} s, but\n{seen}", PATIENCE.as_secs());
            }
        }
    }

    /// Waits until a program that was started has executed something, which can take longer than an interval; the beginning of the interval in
    /// which it has.
    pub(super) fn wait_until_begun(&mut self, interval: Duration) -> Result<Duration> {
        let give_up = Instant::now() + PATIENCE;
        while self.state.model().now_ns == 0 && self.state.model().over.is_none() && self.take_one(give_up)? {
        }
        Ok(beginning(self.state.model().now_ns, interval))
    }

    /// Waits until an interval of live measuring is over that ends so long after its beginning, and what happened in it has come.
    pub(super) fn wait_until_over(&mut self, end: Duration, interval: Duration) -> Result<()> {
        // Quanta end later than what they tell of, and come with the next batch.
        let slack = Duration::from_millis(150).min(interval / 4);
        let now = |session: &Self| Duration::from_nanos(session.state.model().now_ns);
        let give_up = Instant::now() + 2 * interval + slack;
        while now(self) < end + slack && self.state.model().over.is_none() {
            if !self.take_one(give_up)? {
                break;
            }
        }
        Ok(())
    }

    /// Takes the next event, if one comes in time and nobody wants the end.
    pub(super) fn take_one(&mut self, until: Instant) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        match self.events.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(Event::Lost(why)) => bail!("{why}"),
            Ok(event) => {
                self.update(event);
                Ok(true)
            }
            Err(RecvTimeoutError::Timeout) => Ok(false),
            Err(RecvTimeoutError::Disconnected) => bail!("the source has ended"),
        }
    }
}

/// The beginning of the interval in which a moment is.
pub(super) fn beginning(ns: u64, interval: Duration) -> Duration {
    let length = (interval.as_nanos() as u64).max(1);
    Duration::from_nanos(ns / length * length)
}
