//! The terminal: taken while the screen is shown, and given back whatever happens.

use std::io::{self, BufWriter, Stdout, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result};
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{DisableMouseCapture, EnableMouseCapture};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use ratatui::layout::Rect;
use ratatui::{Terminal, TerminalOptions, Viewport};

/// Whether it is taken.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Exit status after a panic, as Rust's own.
const PANICKED: i32 = 101;

/// What is drawn to: through a buffer, so that a frame is one write.
pub(crate) type Screen = Terminal<CrosstermBackend<BufWriter<Stdout>>>;

/// The taken terminal; it is given back when this is dropped, and when any thread panics.
pub(crate) struct Taken {
    pub(crate) screen: Screen,
    mouse: bool,
}

impl Taken {
    /// Takes the terminal.
    ///
    /// # Errors
    /// It does not let itself be taken.
    pub(crate) fn take(mouse: bool) -> Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let taken = give_back();
            before(panic);
            if taken {
                // Whichever thread it was: the others would go on drawing, or wait for it.
                std::process::exit(PANICKED);
            }
        }));
        enter(mouse).context("the terminal cannot be taken")?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(1 << 16, io::stdout()));
        let (width, height) = size().context("the terminal does not tell its size")?;
        // A terminal that changes its size says so: asking before each frame would open the terminal's device each time.
        let viewport = Viewport::Fixed(Rect::new(0, 0, width, height));
        let screen = Terminal::with_options(backend, TerminalOptions { viewport })
            .context("the terminal cannot be drawn to")?;
        Ok(Self { screen, mouse })
    }

    /// Takes it again after it was given back; everything is drawn anew.
    ///
    /// # Errors
    /// It does not let itself be taken.
    pub(crate) fn again(&mut self) -> Result<()> {
        enter(self.mouse).context("the terminal cannot be taken again")?;
        self.redraw()
    }

    /// Lets everything be drawn anew. (`Terminal::clear` would ask the terminal where its cursor is, and the answer would go to
    /// the thread that waits for keys.)
    ///
    /// # Errors
    /// The terminal cannot be drawn to.
    pub(crate) fn redraw(&mut self) -> Result<()> {
        let (width, height) = size().context("the terminal does not tell its size")?;
        self.screen.resize(Rect::new(0, 0, width, height)).context("the terminal cannot be cleared")
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        give_back();
    }
}

fn enter(mouse: bool) -> io::Result<()> {
    TAKEN.store(true, Ordering::SeqCst);
    enable_raw_mode()?;
    let mut out = io::stdout();
    execute!(out, EnterAlternateScreen)?;
    if mouse {
        execute!(out, EnableMouseCapture)?;
    }
    Ok(())
}

/// Gives the terminal back, once; whether it was taken. What fails then cannot be helped: there is nobody left to be told.
pub(crate) fn give_back() -> bool {
    let taken = TAKEN.swap(false, Ordering::SeqCst);
    if taken {
        let mut out = io::stdout();
        let _ = execute!(out, DisableMouseCapture, LeaveAlternateScreen, ratatui::crossterm::cursor::Show);
        let _ = out.flush();
        let _ = disable_raw_mode();
    }
    taken
}
