//! Writing results to standard output.

use std::io::{self, Write as _};

use anyhow::{Context, Result};

/// Writes a result and a line end. A reader that has seen enough, as `head`, is no error.
///
/// # Errors
/// Any other failure to write.
pub(crate) fn print(text: &str) -> Result<()> {
    match writeln!(io::stdout().lock(), "{text}") {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write the result")
        }
        _ => Ok(()),
    }
}
