//! The earlier trace that a recording replaces.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use libhpm::trace::{TraceError, TraceReader};
use tempfile::TempDir;

use crate::output::warn;

/// Its name while it stands aside.
const ASIDE: &str = "earlier.hpm";

/// A file in a trace's folder that hpm did not write.
fn foreign(trace: &Path) -> Result<Option<OsString>> {
    let entries = fs::read_dir(trace).with_context(|| format!("cannot read {}", trace.display()))?;
    let names: Vec<OsString> = entries
        .map(|entry| Ok(entry?.file_name()))
        .collect::<std::io::Result<_>>()
        .with_context(|| format!("cannot read {}", trace.display()))?;
    let is_own = |name: &OsString| {
        let name = name.to_str().unwrap_or_default();
        ["meta.json", "explore.json"].contains(&name.strip_suffix(".new").unwrap_or(name))
            || name.ends_with(".arrows")
    };
    Ok(names.into_iter().find(|name| !is_own(name)))
}

/// A trace that stands aside until the recording that replaces it has begun. It comes back when that comes to nothing.
pub(super) struct Earlier {
    /// Where it was.
    place: PathBuf,
    /// Holds it, in the folder that it was in, as a rename must not leave its file system; `None` once it was removed.
    aside: Option<TempDir>,
}

impl Earlier {
    /// Whether a recording may replace what is at its place.
    ///
    /// # Errors
    /// It is no trace, one that is being recorded, one that holds other files, or the one that is to be replayed.
    pub(super) fn check(place: &Path, replayed: Option<&Path>) -> Result<()> {
        match TraceReader::open(place) {
            Ok(trace) if trace.is_growing() => {
                bail!("{} is being recorded: name another folder with -o", place.display())
            }
            Ok(_) | Err(TraceError::Version { .. }) => {}
            Err(error) => return Err(error).context("--force replaces nothing but traces"),
        }
        if let Some(name) = foreign(place)? {
            let name = Path::new(&name).display();
            bail!(
                "{} holds `{name}`, too, which --force would remove: take it elsewhere first",
                place.display()
            );
        }
        let real = |path: &Path| fs::canonicalize(path).ok();
        if replayed.is_some_and(|replayed| real(replayed) == real(place)) {
            bail!("{} cannot be replaced by a copy of itself: name another folder with -o", place.display());
        }
        Ok(())
    }

    /// Puts it aside.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn put_aside(place: &Path) -> Result<Self> {
        let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let moved = tempfile::Builder::new().prefix(".hpmctl-").tempdir_in(parent).and_then(|aside| {
            fs::rename(place, aside.path().join(ASIDE))?;
            Ok(aside)
        });
        let aside = moved.with_context(|| format!("cannot replace {}", place.display()))?;
        Ok(Self { place: place.to_owned(), aside: Some(aside) })
    }

    /// Removes it, as another one has its place now.
    pub(super) fn remove(mut self) {
        let Some(aside) = self.aside.take() else { return };
        let path = aside.path().to_owned();
        if let Err(reason) = aside.close() {
            warn(&[format!(
                "the earlier trace, which is {} now, cannot be removed: {reason}",
                path.display()
            )]);
        }
    }
}

impl Drop for Earlier {
    fn drop(&mut self) {
        let Some(aside) = self.aside.take() else { return };
        // What was written of the recording that came to nothing.
        if TraceReader::open(&self.place).is_ok() {
            let _ = fs::remove_dir_all(&self.place);
        }
        if let Err(reason) = fs::rename(aside.path().join(ASIDE), &self.place) {
            let path = aside.keep().join(ASIDE);
            warn(&[format!(
                "the earlier trace is {} now, as it cannot be put back: {reason}",
                path.display()
            )]);
        }
    }
}
