//! The live terminal screen of hpm: who runs where, what the counters of each thread say, where the samples are, and which
//! phases repeat.
//!
//! A collector thread (`collect`) takes rows from a source and digests them into batches; the `model` is what is known,
//! bounded; the `state` is what is shown and changes by events only; `view` and `screens` draw it and change nothing.
//! Names for samples come from a thread of their own (`symbols`), so that neither drawing nor measuring waits for files.

mod app;
mod cli;
mod collect;
mod config;
mod event;
mod keys;
mod model;
mod output;
mod screens;
mod state;
mod symbols;
pub mod synthetic;
mod terminal;
mod theme;
mod view;

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;

/// Runs the program.
#[must_use]
pub fn main() -> ExitCode {
    match app::run(cli::Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where standard error is closed or full, the status is all that can be told.
            let _ = writeln!(io::stderr(), "hpmtop: {}", libhpm::text::lines(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}
