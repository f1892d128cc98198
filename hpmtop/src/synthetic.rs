//! A made-up system with as many threads as one likes, for the bench of frame times and for tests of large ones; and a made-up
//! trace, for tests of every screen and for their pictures.

mod memory;
mod shown;
mod trace;

pub use self::shown::Shown;
pub use self::trace::write_trace;

use libhpm::analysis::explore::QuantumEnd;
use libhpm::trace::{Clock, Event, EventUse, Meta};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::config::Config;
use crate::event::Event as StateEvent;
use crate::model::{Batch, EVENTS, Quantum, SourceFacts, ThreadNews};
use crate::state::State;
use crate::theme::ThemeName;
use crate::view::draw;

/// Length of its quanta and of its rounds, in ns.
const QUANTUM_NS: u64 = 1_000_000;
const ROUND_NS: u64 = 100_000_000;

/// A system whose threads run in turn on 16 CPUs.
pub struct Synthetic {
    state: State,
    threads: u32,
    now_ns: u64,
}

impl Synthetic {
    /// One with so many threads, ten in each process, that were there from the beginning.
    ///
    /// # Panics
    /// Never: its configuration is empty.
    #[must_use]
    pub fn new(threads: u32) -> Self {
        let event = |name: &str| Event { name: name.into(), mode: EventUse::Count, ..Event::default() };
        let meta = Meta {
            source: "driver".into(),
            events: ["cycles", "instructions", "l1d-load-miss"].map(event).into(),
            clock: Clock { tsc_khz: 1_000_000, ..Clock::default() },
            ..Meta::default()
        };
        let facts = SourceFacts {
            meta,
            target: "a made-up system".into(),
            slot_ns: ROUND_NS,
            ..SourceFacts::default()
        };
        let state = State::new(facts, Config::default(), ThemeName::Default).expect("an empty configuration");
        let mut made = Self { state, threads, now_ns: 0 };
        let news = |tid: u32| ThreadNews {
            ns: 0,
            pid: tid - tid % 10,
            tid,
            parent: None,
            name: format!("worker-{tid}"),
            ended: false,
        };
        let threads = (10..10 + threads).map(news).collect();
        made.state.update(StateEvent::Batch(Box::new(Batch { threads, ..Batch::default() })));
        made
    }

    /// A tenth of a second passes, in which every thread runs for two quanta.
    pub fn round(&mut self) {
        let from = self.now_ns;
        self.now_ns += ROUND_NS;
        let quantum = |n: u32| {
            let tid = 10 + n % self.threads;
            let start_ns = from + (u64::from(n) * 7919) % (ROUND_NS - QUANTUM_NS);
            let mut counts = [0; EVENTS];
            counts[..3].copy_from_slice(&[
                3_000_000,
                1_000_000 + u64::from(n % 97) * 50_000,
                u64::from(n % 89) * 100,
            ]);
            let ends = [QuantumEnd::Yielded, QuantumEnd::Preempted, QuantumEnd::Timer];
            Quantum {
                start_ns,
                end_ns: start_ns + QUANTUM_NS,
                cpu: n % 16,
                pid: tid - tid % 10,
                tid,
                end: Some(ends[n as usize % 3]),
                samples: n % 5,
                counts,
                ..Quantum::default()
            }
        };
        let mut quanta: Vec<Quantum> = (0..2 * self.threads).map(quantum).collect();
        quanta.sort_by_key(|quantum| quantum.end_ns);
        let batch = Batch { now_ns: self.now_ns, quanta, ..Batch::default() };
        self.state.update(StateEvent::Batch(Box::new(batch)));
    }

    /// Shows the screen with this number, from 1.
    pub fn show(&mut self, number: char) {
        use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
        self.state.update(StateEvent::Key(KeyEvent::new(KeyCode::Char(number), KeyModifiers::NONE)));
    }

    /// Draws a frame of this size; how many of its places are not empty.
    #[must_use]
    pub fn frame(&self, width: u16, height: u16) -> usize {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        draw(&self.state, area, &mut buffer);
        buffer.content().iter().filter(|cell| cell.symbol() != " ").count()
    }
}

/// Takes the terminal as `hpmtop` does, and panics in another thread: for the test that it is given back.
///
/// # Errors
/// There is no terminal.
///
/// # Panics
/// In another thread, which ends the program.
pub fn panic_on_screen() -> std::io::Result<()> {
    let taken = crate::terminal::Taken::take(true).map_err(std::io::Error::other)?;
    let panicking = std::thread::spawn(|| panic!("this was asked for"));
    let ended = panicking.join();
    drop(taken);
    ended.map_err(|_| std::io::Error::other("the panic has not ended the program"))
}
