//! What hpmtop's ribbon of phases showed, against what the detector says of the same run.

use std::path::Path;

use anyhow::Result;

use crate::check::Tally;
use crate::guest::screens::{C_OPTIONS, C_PROGRAM, LAB};
use crate::lab::{self, Boot};
use crate::screen::pictures::RIBBON;
use crate::screen::ribbon;

/// Compiles the program that is shown.
///
/// # Errors
/// There is no compiler, or it fails.
pub(crate) fn prepare(root: &Path, folder: &Path) -> Result<()> {
    lab::compile_with(root, folder, C_PROGRAM, C_OPTIONS)
}

/// The ribbon changes in time.
pub(crate) fn compare(boot: &Boot, tally: &mut Tally) {
    tally.run(RIBBON, || ribbon::judge(&boot.folder, &LAB));
}
