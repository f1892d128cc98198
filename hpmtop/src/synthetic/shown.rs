//! The made-up trace on the screen, for the bench of frame times.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use clap::Parser as _;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::write_trace;
use crate::app::Headless;
use crate::cli::Cli;
use crate::view::draw;

/// A replay of the made-up trace that stands still.
pub struct Shown(Headless);

impl Shown {
    /// Writes the trace into a folder and opens it at 2.3 s, as the pictures of docs/hpmtop.md show it.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn new(folder: &Path) -> Result<Self> {
        let (trace, config) = (folder.join("made.hpm"), folder.join("config.toml"));
        write_trace(&trace)?;
        fs::write(&config, "").context("cannot write an empty configuration")?;
        let words = [
            "hpmtop".as_ref(),
            "--replay".as_ref(),
            trace.as_os_str(),
            "--config".as_ref(),
            config.as_os_str(),
        ];
        let cli = Cli::try_parse_from(words.into_iter().chain(["--at".as_ref(), "2.3s".as_ref()]))?;
        Headless::start(&cli).map(Self)
    }

    /// Presses keys, as `--keys` has them.
    ///
    /// # Errors
    /// The replay has ended, or the screen of this name is not shown then.
    pub fn press(&mut self, keys: &str, screen: &str) -> Result<()> {
        self.0.press_all(keys)?;
        let shown = self.0.state().screen_name();
        ensure!(shown == screen, "`{keys}` leads to {shown}");
        Ok(())
    }

    /// Draws a frame of this size; how many of its places are not empty.
    #[must_use]
    pub fn frame(&self, width: u16, height: u16) -> usize {
        let area = Rect::new(0, 0, width, height);
        let mut buffer = Buffer::empty(area);
        draw(self.0.state(), area, &mut buffer);
        buffer.content().iter().filter(|cell| cell.symbol() != " ").count()
    }
}
