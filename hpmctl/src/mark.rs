//! `hpmctl mark`: a marker from a script.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use libhpm::mark::Marks;

use crate::output::say;

/// Set a marker in the trace that is being recorded of the calling script.
///
/// It stands in the `markers` table of the trace, with its time and thread. This needs the hpm module; `hpmctl record --marks`
/// takes markers from a pipe on any machine. Programs set theirs by `hpm_mark.h` or `libhpm::mark`, without a system call.
#[derive(Args, Debug)]
pub(crate) struct MarkArgs {
    /// What happens now, in at most 24 bytes
    #[arg(value_parser = name)]
    name: String,
    /// A number of your own
    #[arg(default_value_t = 0)]
    value: u64,
}

pub(crate) fn run(args: &MarkArgs) -> Result<ExitCode> {
    if !Marks::open()?.mark(&args.name, args.value)? {
        // A script is run without a recording too.
        say("no recording measures this process, so the marker was not kept");
    }
    Ok(ExitCode::SUCCESS)
}

/// A marker's name.
///
/// # Errors
/// It has no byte, or more than a marker has room for.
pub(crate) fn name(text: &str) -> Result<String, String> {
    match text.len() {
        1..=24 => Ok(text.to_owned()),
        length => Err(format!("{length} bytes where 1 to 24 fit")),
    }
}
