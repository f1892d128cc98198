//! A replay with a clock that can be stopped, set and made to run at another pace.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use anyhow::Result;
use libhpm::source::opened::Opened;
use libhpm::source::replay::{Replay, Speed};
use libhpm::source::{Nowhere, Source as _};
use libhpm::trace::{MarkerRow, QuantumRow, SampleRow, TraceReader};

use super::digest::Digest;
use super::{BEAT, Command, SUMS_EACH, common, facts, tell};
use crate::event::Event;
use crate::model::Playback;

/// Slots that a short trace is divided into.
const SLOTS: u64 = 60;
/// Most rows of a table that are looked at to learn how long a trace is.
const LOOKED_AT: usize = 2_000_000;

/// Lengths of slots that people can read.
const LENGTHS_MS: [u64; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

/// When the first quantum of a recording begins and the last one ends (TSC), as far as it is read; of a recording without quanta,
/// when the first and the last sample were taken.
fn span(reader: &TraceReader) -> (u64, u64) {
    let widest = |span: Option<(u64, u64)>, (start, end): (u64, u64)| {
        let (first, last) = span.unwrap_or((start, end));
        Some((first.min(start), last.max(end)))
    };
    let quanta = reader.rows::<QuantumRow>().take(LOOKED_AT).map(|row| (row.start_tsc, row.end_tsc));
    let samples = || reader.rows::<SampleRow>().take(LOOKED_AT).map(|row| (row.tsc, row.tsc));
    quanta.fold(None, widest).or_else(|| samples().fold(None, widest)).unwrap_or_default()
}

/// A length of slots that suits a trace: 1 s for long ones, less for short ones.
pub(super) fn slot_ns(reader: &TraceReader) -> u64 {
    let (first, last) = span(reader);
    let wished = (last - first) / reader.meta().clock.tsc_khz.max(1) / SLOTS;
    let length = LENGTHS_MS.iter().rev().find(|&&length| length <= wished);
    length.copied().unwrap_or(LENGTHS_MS[0]) * 1_000_000
}

/// The replay of a trace.
pub(super) struct Player {
    reader: Box<Opened>,
    replay: Replay,
    digest: Digest,
    events: SyncSender<Event>,
    /// Times of the markers, in order.
    markers: Vec<u64>,
    slot_ns: u64,
    position_ns: u64,
    duration_ns: u64,
    speed: f64,
    paused: bool,
    over: bool,
    /// How many sentences of what the trace lacks were told. A table that is cut off is known once its end was reached.
    missing: usize,
}

impl Player {
    pub(super) fn new(
        reader: Box<Opened>,
        digest: Digest,
        events: SyncSender<Event>,
        slot_ns: u64,
        (speed, paused): (f64, bool),
    ) -> Self {
        let replay = Replay::new(&reader, Speed::Unlimited);
        Self {
            reader,
            replay,
            digest,
            events,
            markers: Vec::new(),
            slot_ns,
            position_ns: 0,
            duration_ns: 0,
            speed,
            paused,
            over: false,
            missing: 0,
        }
    }

    pub(super) fn run(mut self, orders: &Receiver<Command>) -> Result<()> {
        self.replay.start(&mut self.digest)?;
        self.digest.begin(self.replay.first_tsc());
        self.duration_ns = self.digest.ns(span(&self.reader).1);
        let markers = self.reader.rows::<MarkerRow>();
        self.markers = markers.map(|row| self.digest.ns(row.tsc)).collect();
        self.markers.sort_unstable();
        let began = facts::Since::now();
        let (mut last, mut summed) = (Instant::now(), None::<Instant>);
        loop {
            let now = Instant::now();
            if !self.paused {
                let passed = now.duration_since(last).as_secs_f64() * self.speed * 1e9;
                self.go_to(self.position_ns.saturating_add(passed as u64))?;
            }
            last = now;
            if summed.is_none_or(|summed| summed.elapsed() >= SUMS_EACH) {
                summed = Some(now);
                self.digest.batch.cost = facts::cost(&began);
            }
            if !self.hand_on()? {
                return Ok(());
            }
            match orders.recv_timeout(BEAT) {
                Ok(Command::End) | Err(RecvTimeoutError::Disconnected) => {
                    self.digest.recorder.end(|| self.replay.totals())?;
                    return Ok(());
                }
                Ok(command) => {
                    self.obey(&command)?;
                    // What was asked for took time that does not belong to the replay.
                    last = Instant::now();
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn obey(&mut self, command: &Command) -> Result<()> {
        match *command {
            Command::Pause(paused) => {
                if !paused && self.over {
                    self.seek(0)?;
                }
                self.paused = paused;
            }
            Command::Step(ns) => {
                self.paused = true;
                self.seek(self.position_ns.saturating_add_signed(ns))?;
            }
            Command::Speed(speed) => self.speed = speed,
            Command::Seek(ns) => self.seek(ns)?,
            Command::Marker(forward) => self.seek_marker(forward)?,
            Command::NextPhase(pid) => self.run_to_phase(pid)?,
            Command::Sync(number) => {
                self.hand_on()?;
                self.digest.naming.sync(number);
            }
            _ => tell(&self.events, common(command, &mut self.digest, &self.replay)),
        }
        Ok(())
    }

    fn say(&self, text: &str) {
        let _ = self.events.send(Event::Said(text.to_owned()));
    }

    fn seek_marker(&mut self, forward: bool) -> Result<()> {
        let here = self.position_ns;
        let after = self.markers.partition_point(|&ns| ns <= here);
        let before = self.markers.partition_point(|&ns| ns < here);
        let to =
            if forward { self.markers.get(after) } else { before.checked_sub(1).map(|at| &self.markers[at]) };
        match to.copied() {
            Some(ns) => {
                self.paused = true;
                self.seek(ns)
            }
            None if self.markers.is_empty() => {
                self.say("the trace has no markers");
                Ok(())
            }
            None => {
                self.say(if forward { "no marker comes any more" } else { "there is no marker before" });
                Ok(())
            }
        }
    }

    /// Goes on in slots of the trace until a pattern is complete.
    fn run_to_phase(&mut self, pid: Option<u32>) -> Result<()> {
        self.digest.phases.change_of(None);
        self.paused = true;
        // Small steps, so that the replay stands near the change.
        let step = (self.slot_ns / 16).clamp(1_000_000, 20_000_000);
        while !self.over {
            self.go_to(self.position_ns + step)?;
            if self.digest.phases.change_of(pid).is_some() {
                return Ok(());
            }
        }
        self.say("no phase changes any more until the trace's end");
        Ok(())
    }

    /// To a time, forwards or backwards.
    fn seek(&mut self, ns: u64) -> Result<()> {
        let ns = ns.min(self.duration_ns.max(1));
        if ns < self.position_ns {
            self.replay = Replay::new(&self.reader, Speed::Unlimited);
            self.replay.start(&mut Nowhere)?;
            self.digest.reset();
            self.position_ns = 0;
            self.over = false;
        }
        self.go_to(ns)
    }

    /// Forwards to a time, handing on what comes on the way.
    fn go_to(&mut self, ns: u64) -> Result<()> {
        while !self.over && self.position_ns < ns {
            let next = ns.min(self.position_ns + 16 * self.slot_ns);
            self.replay.take_until(Duration::from_nanos(next), &mut self.digest)?;
            self.position_ns = next;
            if self.replay.is_over() {
                self.over = true;
                self.paused = true;
                self.position_ns = self.replay.elapsed().map_or(next, |elapsed| elapsed.as_nanos() as u64);
            }
            if self.digest.is_full() && !self.hand_on()? {
                break;
            }
        }
        Ok(())
    }

    /// Sends the batch and waits until the screen has room for it; whether there still is a screen.
    fn hand_on(&mut self) -> Result<bool> {
        let digest = &mut self.digest;
        digest.naming.flush_if_seen();
        digest.unknown.clear();
        digest.batch.now_ns = self.position_ns;
        digest.batch.totals = self.replay.totals().ok();
        digest.batch.playback =
            Some(Playback { paused: self.paused, speed: self.speed, duration_ns: Some(self.duration_ns) });
        digest.batch.recording = digest.recorder.folder();
        let missing = self.replay.missing();
        // Whoever went back has not reached those ends yet, but knows of them.
        if missing.len() > self.missing {
            self.missing = missing.len();
            digest.batch.missing = Some(missing);
        }
        digest.batch.over = self.over.then(|| "the trace's end".to_owned());
        if let Some(said) = digest.recorder.tick() {
            tell(&self.events, Ok(Some(said)));
        }
        let batch = digest.take_batch();
        Ok(self.events.send(Event::Batch(Box::new(batch))).is_ok())
    }
}
