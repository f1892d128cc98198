//! Showing the analysis of a trace again and again while it is being recorded.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::opened::open_trace;
use crate::output::{print, say, warn};

/// Moves to the upper left corner and clears the screen (ECMA-48: CUP, ED 2).
const CLEAR: &[u8] = b"\x1b[H\x1b[2J";

/// Once, or for as long as the trace grows.
#[derive(Args, Debug)]
pub(crate) struct FollowArgs {
    /// While the trace is being recorded, show it anew each SECONDS [default: 2], and once more when it is complete
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = clap::value_parser!(u64).range(1..))]
    follow: Option<u64>,
}

impl FollowArgs {
    /// Prints what `output` makes of the trace, and its warnings beside it.
    ///
    /// # Errors
    /// Those of `output`, but of a trace that grows, in which there may be nothing to show yet; or the output cannot be written.
    pub(crate) fn show(
        &self,
        trace: &Path,
        mut output: impl FnMut() -> Result<(String, Vec<String>)>,
    ) -> Result<()> {
        loop {
            // Before it is read: what is complete now is read as a whole.
            // A file of `perf record` does not grow, and would be made a trace only for the question.
            let grows = trace.is_dir() && open_trace(trace)?.is_growing();
            match (output(), self.follow.filter(|_| grows)) {
                (Ok((text, warnings)), follow) => {
                    self.clear()?;
                    warn(&warnings);
                    print(text.trim_end())?;
                    let Some(seconds) = follow else { return Ok(()) };
                    sleep(Duration::from_secs(seconds));
                }
                (Err(error), None) => return Err(error),
                (Err(error), Some(seconds)) => {
                    say(format_args!("nothing to show yet: {error}"));
                    sleep(Duration::from_secs(seconds));
                }
            }
        }
    }

    /// On a terminal each replaces the one before.
    fn clear(&self) -> Result<()> {
        let mut stdout = io::stdout().lock();
        if self.follow.is_some() && stdout.is_terminal() {
            stdout.write_all(CLEAR)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It is imported each time that it is opened, which may take long.
    #[test]
    fn a_file_is_opened_only_for_its_output() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut outputs = 0;
        let output = || {
            outputs += 1;
            Ok((String::new(), vec![]))
        };
        FollowArgs { follow: Some(1) }.show(file.path(), output).unwrap();
        assert_eq!(outputs, 1);
    }
}
