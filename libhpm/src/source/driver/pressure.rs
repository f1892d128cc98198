//! Whether a recording has the time to wait for a disk.

use std::time::{Duration, Instant};

use hpm_abi::{SEGMENT_BYTES, SessionConfig};

use crate::session::Batch;

/// The driver's rings have to last so long, whichever fills first: a look's part of that waits already while the disk is written.
const LASTS: Duration = Duration::from_secs(8);
/// What is shorter says nothing of how fast they fill: looks come sooner for many reasons.
const WINDOW: Duration = Duration::from_secs(1);
/// A disk that took so long is not waited for again.
const SLOW: Duration = Duration::from_secs(1);

/// How fast the driver's rings fill.
#[derive(Debug)]
pub(super) struct Pressure {
    room: Room,
    /// What part of the ring that fills fastest was taken since then: 1.0 is all.
    taken: f64,
    since: Instant,
    pressed: bool,
    slow: bool,
}

/// What the driver has room for on each CPU; 0 where there is no such ring.
#[derive(Clone, Copy, Debug)]
struct Room {
    record_bytes: u64,
    quanta: u64,
    stack_bytes: u64,
}

impl Pressure {
    /// Of a session that begins now.
    pub(super) fn new(config: &SessionConfig) -> Self {
        let room = Room {
            record_bytes: u64::from(config.segments) * u64::from(SEGMENT_BYTES),
            quanta: config.quanta.into(),
            stack_bytes: config.stack_ring_bytes.into(),
        };
        Self { room, taken: 0.0, since: Instant::now(), pressed: false, slow: false }
    }

    /// Whether what was published, and is about to be written, leaves time to wait for the disk.
    pub(super) fn allows_waiting(&mut self, batch: &Batch<'_>) -> bool {
        let parts = (0..batch.cpus()).map(|cpu| self.room.part(batch.of_cpu(cpu).into_iter().flatten()));
        let most = parts.fold(0.0, f64::max);
        !self.is_pressed(most, Instant::now()) && !self.slow
    }

    fn is_pressed(&mut self, part: f64, now: Instant) -> bool {
        self.taken += part;
        let passed = now.saturating_duration_since(self.since);
        let too_fast = self.taken * LASTS.as_secs_f64() > passed.max(WINDOW).as_secs_f64();
        if passed >= WINDOW {
            (self.taken, self.since, self.pressed) = (0.0, now, too_fast);
        }
        self.pressed |= too_fast;
        self.pressed
    }

    /// The disk was waited for so long.
    pub(super) fn waited(&mut self, time: Duration) {
        self.slow |= time >= SLOW;
    }
}

impl Room {
    /// What part of the ring that they fill most these quanta take.
    fn part<'a>(&self, quanta: impl Iterator<Item = &'a hpm_abi::Quantum>) -> f64 {
        let (mut count, mut records, mut stacks) = (0_u64, 0_u64, 0_u64);
        for quantum in quanta {
            count += 1;
            records += u64::from(quantum.span_bytes);
            stacks += u64::from(quantum.stack_bytes);
        }
        let rings = [(records, self.record_bytes), (count, self.quanta), (stacks, self.stack_bytes)];
        let parts = rings.map(|(taken, room)| if room == 0 { 0.0 } else { taken as f64 / room as f64 });
        parts.into_iter().fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begun() -> Pressure {
        Pressure::new(&SessionConfig { segments: 32, quanta: 4096, ..SessionConfig::EMPTY })
    }

    #[test]
    fn the_ring_that_fills_fastest_counts_however_often_somebody_looks() {
        // A fifth of a ring a second leaves five seconds, a tenth ten.
        for (each_second, pressed) in [(0.2, true), (0.1, false)] {
            for looks in [1, 10, 100] {
                let mut pressure = begun();
                let mut now = pressure.since;
                for _ in 0..looks * 4 {
                    now += Duration::from_secs(1) / looks;
                    pressure.is_pressed(each_second / f64::from(looks), now);
                }
                assert_eq!(pressure.pressed, pressed, "{each_second}, {looks} looks a second");
            }
        }
    }

    #[test]
    fn a_burst_is_seen_at_once_and_forgotten_when_it_is_over() {
        let mut pressure = begun();
        let begin = pressure.since;
        let at = |ms| begin + Duration::from_millis(ms);
        assert!(pressure.is_pressed(0.25, at(100)));
        assert!(pressure.is_pressed(0.0, at(900)));
        assert!(pressure.is_pressed(0.0, at(1100)), "its second");
        assert!(!pressure.is_pressed(0.1, at(2200)));
    }

    #[test]
    fn any_ring_may_be_the_fullest_and_one_that_is_not_there_is_none() {
        let quantum = hpm_abi::Quantum { span_bytes: 64 << 10, stack_bytes: 100, ..hpm_abi::Quantum::EMPTY };
        let room = begun().room;
        assert_eq!(room.part([quantum].iter()), 1.0 / 32.0);
        assert_eq!(room.part(vec![hpm_abi::Quantum::EMPTY; 1024].iter()), 0.25);
        assert_eq!(Room { stack_bytes: 1000, ..room }.part([quantum].iter()), 0.1);
    }
}
