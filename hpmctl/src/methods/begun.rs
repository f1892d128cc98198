//! A profile while it is being made.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use super::folder::{PROFILE, ProfileFile, SELECTION, clear_runs, write_profile};

/// A profile on its way into a folder, which keeps what it has until the profile is whole: a run that fails takes nothing away.
pub(super) struct Begun {
    folder: PathBuf,
    /// The folder was not there.
    made: bool,
    /// In the folder, as a rename must not leave its file system; an option only so that it can go before the folder does.
    work: Option<TempDir>,
}

impl Begun {
    /// Makes the folder, if it is not there or holds an earlier profile.
    ///
    /// # Errors
    /// It is something else, or cannot be written to.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        let holds = || fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_some());
        let made = !folder.exists();
        if !made && !folder.join(PROFILE).exists() && holds() {
            bail!("{} is there and is no profile of methods: name another folder with -o", folder.display());
        }
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut begun = Self { folder: folder.to_owned(), made, work: None };
        let work = tempfile::Builder::new().prefix("profiling-").tempdir_in(folder);
        begun.work = Some(work.with_context(|| format!("cannot write into {}", folder.display()))?);
        Ok(begun)
    }

    /// Makes a folder for what is needed only until the profile is there.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn work(&self, name: &str) -> Result<PathBuf> {
        let path = self.work.as_ref().map_or(&*self.folder, TempDir::path).join(name);
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }

    /// Puts the profile in place of the earlier one, with which its selection and its runs go, and nothing else.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn finish(self, profile: &ProfileFile) -> Result<()> {
        let new = self.work("new")?;
        write_profile(&new, profile)?;
        clear_runs(&self.folder)?;
        let selection = self.folder.join(SELECTION);
        if selection.exists() {
            fs::remove_file(&selection).with_context(|| format!("cannot remove {}", selection.display()))?;
        }
        fs::rename(new.join(PROFILE), self.folder.join(PROFILE))
            .with_context(|| format!("cannot replace the profile in {}", self.folder.display()))
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        drop(self.work.take());
        if self.made {
            // Refused, as it should be, when it holds the profile.
            let _ = fs::remove_dir(&self.folder);
        }
    }
}
