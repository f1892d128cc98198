//! What is on its way into a folder while it is being made.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;

use super::folder::{PROFILE, ProfileFile, SELECTION, clear_runs, replace_runs, write_profile};

/// What the names of folders begin with that hold what is being made: a profile, and runs.
const PROFILING: &str = "profiling-";
const MEASURING: &str = "measuring-";

/// A folder in the one that its contents go to, as a rename must not leave its file system. It is removed at its end, and when
/// hpmctl was killed before, by the next one.
struct Work {
    folder: TempDir,
    /// Locked, which tells others that hpmctl lives.
    _lock: Option<File>,
}

impl Work {
    fn new(parent: &Path, prefix: &str) -> Result<Self> {
        remove_left_over(parent);
        let folder = tempfile::Builder::new().prefix(prefix).tempdir_in(parent);
        let folder = folder.with_context(|| format!("cannot write into {}", parent.display()))?;
        // A file system without locks keeps what is left over.
        let lock = File::open(folder.path()).ok().filter(|opened| opened.try_lock().is_ok());
        Ok(Self { folder, _lock: lock })
    }

    /// Makes a folder in it.
    fn folder(&self, name: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(name);
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }
}

/// Removes what was being made when hpmctl was killed. What cannot be removed is in nobody's way.
fn remove_left_over(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let (name, path) = (entry.file_name(), entry.path());
        let is_work = [PROFILING, MEASURING].iter().any(|prefix| name.to_string_lossy().starts_with(prefix));
        if is_work && File::open(&path).is_ok_and(|opened| opened.try_lock().is_ok()) {
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// A profile on its way into a folder, which keeps what it has until the profile is whole: a run that fails takes nothing away.
pub(super) struct Begun {
    folder: PathBuf,
    /// The folder was not there.
    made: bool,
    /// An option only so that it can go before the folder does.
    work: Option<Work>,
}

impl Begun {
    /// Makes the folder, if it is not there or holds an earlier profile.
    ///
    /// # Errors
    /// It is something else, or cannot be written to.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        remove_left_over(folder);
        let holds = || fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_some());
        let made = !folder.exists();
        if !made && !folder.join(PROFILE).exists() && holds() {
            bail!("{} is there and is no profile of methods: name another folder with -o", folder.display());
        }
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        let mut begun = Self { folder: folder.to_owned(), made, work: None };
        begun.work = Some(Work::new(folder, PROFILING)?);
        Ok(begun)
    }

    /// Makes a folder for what is needed only until the profile is there.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn work(&self, name: &str) -> Result<PathBuf> {
        self.work.as_ref().context("the profile is finished")?.folder(name)
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

/// Runs on their way into a folder, which keeps the earlier ones until all have come to their end.
pub(super) struct BegunRuns {
    folder: PathBuf,
    work: Work,
}

impl BegunRuns {
    /// Runs for a folder with a profile.
    ///
    /// # Errors
    /// It cannot be written to.
    pub(super) fn new(folder: &Path) -> Result<Self> {
        Ok(Self { folder: folder.to_owned(), work: Work::new(folder, MEASURING)? })
    }

    /// Where they are for now.
    pub(super) fn work(&self) -> &Path {
        self.work.folder.path()
    }

    /// Puts them in place of the earlier ones.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn finish(self) -> Result<()> {
        replace_runs(&self.folder, self.work())
    }
}
