//! The loops: one that draws, and one that only prints.

mod outside;
mod script;

use std::fs::File;
use std::io::{self, IsTerminal as _};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::CommandFactory as _;
use libhpm::for_now::ENDING;
use nix::sys::signal::{SigSet, Signal};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::Rect;

use self::outside::{configuration, hear_keys, hear_signals, list_keys, pass_on, print, setup, suspend};
use self::script::beginning;
use crate::cli::Cli;
use crate::collect::{Collector, Command};
use crate::config::Config;
use crate::event::Event;
use crate::keys::{Key, KeyMap};
use crate::output;
use crate::screens::bindings;
use crate::state::{Effect, State};
use crate::terminal::Taken;
use crate::theme::ThemeName;
use crate::view::{draw, parse_moment};

/// Events that may wait; a source that is faster waits, or puts its batches together.
const WAITING: usize = 256;
/// Shortest time between two frames.
const FRAME: Duration = Duration::from_millis(25);
/// Signals that only a taken terminal has to answer.
const OF_TERMINAL: [Signal; 2] = [Signal::SIGTSTP, Signal::SIGCONT];

/// Does what the command line asks for.
///
/// # Errors
/// One sentence that says what is wrong.
pub(crate) fn run(cli: Cli) -> Result<()> {
    if let Some(shell) = cli.completions {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut Cli::command(), "hpmtop", &mut text);
        return print(&text).map(drop);
    }
    if let Some(folder) = &cli.man {
        std::fs::create_dir_all(folder)
            .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
            .with_context(|| format!("cannot write to {}", folder.display()))?;
        return Ok(());
    }
    if cli.list_keys {
        let config = configuration(&cli)?;
        return print(list_keys(&KeyMap::new(&bindings(), &config.keys)?).as_bytes()).map(drop);
    }
    let prints = cli.prints();
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    if !prints && !is_terminal {
        bail!(
            "this is not a terminal: --once and --batch print for files and pipes, --screenshot writes a picture"
        );
    }
    let mut output = tempfile::tempfile().context("cannot make a file for the program's output")?;
    let mut headless = Headless::with_output(&cli, &output)?;
    let done = if prints { headless.print(&cli) } else { headless.interact(&cli) };
    // The collector ends the program, whose last words come then. Nobody may wait for room to send by now.
    let Headless { collector, events, .. } = headless;
    drop(events);
    drop(collector);
    let passed = pass_on(&mut output);
    done.and(passed)
}

/// A state with what feeds it, but without a terminal.
pub(crate) struct Headless {
    state: State,
    /// What the collector and others tell; given up before the collector is, which may wait for room in it.
    events: Receiver<Event>,
    collector: Collector,
    sender: SyncSender<Event>,
    config: Option<PathBuf>,
    size: (u16, u16),
    synced: u64,
    /// Somebody wants the end.
    ended: bool,
}

impl Headless {
    /// One for a replay.
    ///
    /// # Errors
    /// The trace cannot be read, or the command line is wrong.
    pub(crate) fn start(cli: &Cli) -> Result<Self> {
        Self::with_output(cli, &tempfile::tempfile()?)
    }

    fn with_output(cli: &Cli, output: &File) -> Result<Self> {
        let config = configuration(cli)?;
        let setup = setup(cli, &config, output)?;
        // What ends the program does it in its own time, so that a recording is finished and the measured program ended.
        // Threads inherit the mask; the measured program, which was forked before, does not.
        let of_terminal = OF_TERMINAL.into_iter().filter(|_| !cli.prints());
        let signals: SigSet = ENDING.into_iter().chain(of_terminal).collect();
        signals.thread_block().context("cannot block signals")?;
        let (sender, events) = sync_channel(WAITING);
        hear_signals(&sender, signals)?;
        let (collector, facts) = Collector::start(setup, sender.clone())?;
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let usual = if no_colour { ThemeName::None } else { config.theme.unwrap_or_default() };
        let mut state = State::new(facts, config, cli.theme.unwrap_or(usual))?;
        let size = if !cli.screenshot.is_empty() { cli.size } else { (200, 60) };
        state.set_area(Rect::new(0, 0, size.0, size.1));
        let path = cli.config.clone().or_else(Config::path);
        let mut session =
            Self { state, events, collector, sender, config: path, size, synced: 0, ended: false };
        if let Some(name) = &cli.screen {
            let place = crate::screens::ALL.iter().position(|(other, ..)| other == name).unwrap_or(0);
            session
                .press_key(Key::parse(&(place + 1).to_string()).context("there are fewer than ten screens")?);
        }
        if let Some(at) = &cli.at {
            session.seek(at)?;
        }
        Ok(session)
    }

    /// What it comes to.
    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Lets something happen, and carries out what follows.
    #[cfg(test)]
    pub(crate) fn send(&mut self, event: Event) {
        self.update(event);
    }

    /// Lets something happen, and carries out nothing.
    #[cfg(test)]
    pub(crate) fn only_update(&mut self, event: Event) {
        self.state.update(event);
    }

    /// Gives the terminal that is not there another size.
    #[cfg(test)]
    pub(crate) fn resize(&mut self, (width, height): (u16, u16)) {
        self.state.set_area(Rect::new(0, 0, width, height));
    }

    /// Asks the collector for something.
    pub(crate) fn ask(&self, command: Command) {
        self.collector.ask(command);
    }

    /// To a time of the replay. Its length is known with the first batch.
    fn seek(&mut self, at: &str) -> Result<()> {
        self.settle()?;
        if self.ended {
            return Ok(());
        }
        let whole = self.state.model().playback.and_then(|playback| playback.duration_ns);
        let ns = parse_moment(at, whole)
            .with_context(|| format!("`{at}` is no time: write 1.5s, 250ms or 40%"))?;
        self.ask(Command::Seek(ns));
        self.settle()
    }

    /// Takes everything that has come, until it is told that nothing is on its way any more, or somebody wants the end.
    fn settle(&mut self) -> Result<()> {
        self.settle_once()?;
        // What came can have led to further questions.
        for _ in 0..3 {
            if !self.state.awaits_names() {
                break;
            }
            self.settle_once()?;
        }
        Ok(())
    }

    fn settle_once(&mut self) -> Result<()> {
        self.synced += 1;
        self.ask(Command::Sync(self.synced));
        loop {
            match self.events.recv_timeout(Duration::from_secs(60)) {
                Ok(Event::Synced(number)) if number == self.synced => return Ok(()),
                Ok(Event::Lost(why)) => bail!("{why}"),
                Ok(event) => drop(self.update(event)),
                Err(_) => bail!("the source has told nothing for a minute"),
            }
            if self.ended {
                return Ok(());
            }
        }
    }

    /// Takes an event; whether to go on, and how.
    fn update(&mut self, event: Event) -> Vec<Effect> {
        let effects = self.state.update(event);
        self.ended |= effects.contains(&Effect::Quit);
        effects.into_iter().filter_map(|effect| self.carry_out(effect)).collect()
    }

    /// Does what has to be done outside; hands back what only the loop can do.
    fn carry_out(&mut self, effect: Effect) -> Option<Effect> {
        let said = match effect {
            Effect::Ask(command) => {
                self.ask(command);
                return None;
            }
            Effect::Screenshot(path) => output::screenshot(&self.state, &path, self.size)
                .map(|()| format!("written to {}", path.display())),
            Effect::Dump(path) => {
                output::dump(&self.state, &path).map(|()| format!("written to {}", path.display()))
            }
            Effect::Save => match &self.config {
                Some(path) => self.state.config.write(path).map(|()| format!("saved to {}", path.display())),
                None => {
                    Err(anyhow!("there is no place for a configuration: set HOME, or name one with --config"))
                }
            },
            other => return Some(other),
        };
        self.state.message = Some(said.unwrap_or_else(|error| format!("{error:#}")));
        None
    }

    /// Presses a key; what only a terminal can do is handed back.
    #[cfg(test)]
    pub(crate) fn press(&mut self, key: &str) -> Vec<Effect> {
        Key::parse(key).map_or_else(Vec::new, |key| self.press_key(key))
    }

    fn press_key(&mut self, key: Key) -> Vec<Effect> {
        let (code, modifiers) = key.pressed();
        self.update(Event::Key(KeyEvent::new(code, modifiers)))
    }

    /// Prints, or writes a picture, without a terminal.
    fn print(&mut self, cli: &Cli) -> Result<()> {
        let interval = Duration::from_nanos(self.state.model().source.slot_ns);
        let replay = self.state.model().source.replay;
        let mut left = if cli.batch.is_some() { cli.batch.filter(|count| *count > 0) } else { Some(1) };
        let mut next = Duration::ZERO;
        let (mut headings, mut told) = (String::new(), None);
        if replay && cli.batch.is_none() && cli.at.is_none() {
            self.seek("100%")?;
        }
        if !cli.command.is_empty() {
            next = self.wait_until_begun(interval)?;
        }
        while !self.ended {
            next += interval;
            match (replay, cli.batch) {
                (true, Some(_)) => {
                    self.ask(Command::Seek(next.as_nanos() as u64));
                    self.settle()?;
                }
                (true, None) => {}
                (false, _) => self.wait_until_over(next, interval)?,
            }
            // Asking takes up to a beat of the collector, in which the next of short intervals can end.
            if replay || self.state.awaits_names() {
                self.settle()?;
            }
            if !replay {
                // What was held up goes on with what is shown now, and tells nothing twice.
                let (at, over) = (self.state.model().told_at_ns(), self.state.model().over.is_some());
                next = next.max(beginning(at, interval));
                match (told.replace(at) == Some(at), over) {
                    (true, true) => return Ok(()),
                    (true, false) => continue,
                    (false, _) => {}
                }
            }
            if !self.press_all(&cli.keys)? {
                return Ok(());
            }
            if !cli.screenshot.is_empty() {
                let mut paths = cli.screenshot.iter();
                return paths.try_for_each(|path| output::screenshot(&self.state, path, cli.size));
            }
            let text = output::document(&self.state, cli.format, &mut headings);
            if !print(text.as_bytes())? {
                return Ok(());
            }
            left = left.map(|left| left - 1);
            if left == Some(0) || self.state.model().over.is_some() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Draws and reacts until somebody wants the end.
    fn interact(&mut self, cli: &Cli) -> Result<()> {
        let mut terminal = Taken::take(!cli.no_mouse)?;
        hear_keys(&self.sender)?;
        self.draw_and_react(&mut terminal)?;
        self.verdict()
    }

    /// What is left to be told when the screen is closed.
    pub(crate) fn verdict(&self) -> Result<()> {
        self.state.lost().map_or(Ok(()), |why| bail!("{why}"))
    }

    fn draw_and_react(&mut self, terminal: &mut Taken) -> Result<()> {
        let mut drawn: Option<Instant> = None;
        let (mut is_stale, mut slot) = (true, (0, 0));
        while !self.ended {
            if is_stale {
                let due = drawn.map_or(Duration::ZERO, |drawn| FRAME.saturating_sub(drawn.elapsed()));
                // Everything that has come goes into one frame.
                thread::sleep(due);
                self.frame(terminal)?;
                drawn = Some(Instant::now());
                slot = self.state.model().shown_slot();
            }
            is_stale = false;
            let mut event = self.events.recv().map_err(|_| anyhow!("the source has ended"))?;
            loop {
                is_stale |= !matches!(event, Event::Batch(_));
                for effect in self.update(event) {
                    match effect {
                        Effect::Quit => return Ok(()),
                        Effect::Suspend => suspend(terminal)?,
                        _ => terminal.redraw()?,
                    }
                }
                match self.events.try_recv() {
                    Ok(next) => event = next,
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => bail!("the source has ended"),
                }
            }
            is_stale |= self.shows_batches() || self.state.model().shown_slot() != slot;
        }
        Ok(())
    }

    /// Whether what is shown changes with everything that is measured, and not only when an interval is over: drawing what has not
    /// changed would be most of what the screen costs.
    fn shows_batches(&self) -> bool {
        let model = self.state.model();
        let is_first = model.now_ns < model.source.slot_ns;
        is_first || model.playback.is_some() || self.state.screen().shows_quanta()
    }

    fn frame(&mut self, terminal: &mut Taken) -> Result<()> {
        let state = &mut self.state;
        let mut seen = Rect::default();
        terminal
            .screen
            .draw(|frame| {
                seen = frame.area();
                state.set_area(seen);
                draw(state, seen, frame.buffer_mut());
            })
            .context("the terminal cannot be drawn to")?;
        self.size = (seen.width, seen.height);
        Ok(())
    }
}

impl Key {
    /// What a terminal reports when it is pressed.
    fn pressed(self) -> (KeyCode, KeyModifiers) {
        let ctrl = self.plain().is_none();
        let modifiers = if ctrl { KeyModifiers::CONTROL } else { KeyModifiers::NONE };
        (self.code(), modifiers)
    }
}
