//! Call stacks by each method.

use anyhow::Result;

use super::programs::{built, record_with, succeed};

/// The methods of `hpmctl record --stacks`, each with a trace of its name.
pub(crate) const METHODS: [&str; 2] = ["dwarf", "fp"];

/// Records a program of known calls by each method.
pub(super) fn run() -> Result<()> {
    for method in METHODS {
        let option = format!("--stacks={method}");
        succeed(record_with(&format!("{method}.hpm"), &[&option])?.arg(built("calls")?))?;
    }
    Ok(())
}
