//! Where things lie: the project's sources, and the lab's cache under `target/lab`.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// The project's root folder.
pub(crate) fn project() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The lab's cache: `target/lab`, or the folder that `HPM_LAB_DIR` names.
///
/// # Errors
/// When it cannot be created.
pub(crate) fn cache() -> Result<PathBuf> {
    let dir = std::env::var_os("HPM_LAB_DIR").map_or_else(|| project().join("target/lab"), PathBuf::from);
    std::fs::create_dir_all(&dir).with_context(|| format!("creating the lab's cache {}", dir.display()))?;
    dir.canonicalize().with_context(|| format!("resolving {}", dir.display()))
}

/// The log file of a build step.
pub(crate) fn log(cache: &Path, step: &str) -> PathBuf {
    cache.join("logs").join(format!("{step}.log"))
}
