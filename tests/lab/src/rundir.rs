//! The folders of past and present runs: logs, outcome and truth of each, under `target/lab/runs`.

use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Ended runs that are kept.
const KEPT: usize = 30;

/// The folder of one run.
pub(crate) struct RunDir {
    path: PathBuf,
    /// Held until the run has ended, so that no other lab removes or reuses the folder.
    _lock: File,
}

impl RunDir {
    /// Creates the folder of a run that starts now, and removes old ones.
    ///
    /// # Errors
    /// When `name` is no plain name or such a run is going on, or the folder cannot be created.
    pub(crate) fn create(cache: &Path, name: Option<&str>) -> Result<Self> {
        let runs = cache.join("runs");
        fs::create_dir_all(&runs).with_context(|| format!("creating {}", runs.display()))?;
        prune(&runs);
        let name = match name {
            Some(name) if is_plain(name) => name.to_owned(),
            Some(name) => bail!("{name} cannot name a run: use letters, digits, '-' and '_'"),
            None => format!("run-{}", std::process::id()),
        };
        let path = runs.join(&name);
        fs::create_dir_all(&path).with_context(|| format!("creating {}", path.display()))?;
        let lock = try_lock(&path).with_context(|| format!("a run called {name} is going on"))?;
        for file in ["truth.json", "status.json", "console.log", "qemu.log"] {
            crate::tree::discard(&path.join(file))?;
        }
        Ok(Self { path, _lock: lock })
    }

    /// A file of this run.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Makes this run the one that `lab truth` and `lab dmesg` show.
    ///
    /// # Errors
    /// When the link cannot be made.
    pub(crate) fn publish(&self) -> Result<()> {
        let link = self.path.with_file_name("last");
        let new = self.path.join("last");
        let name = self.path.file_name().context("a run has a name")?;
        crate::tree::discard(&new)?;
        // Renamed over the old link, because another lab may be doing the same.
        symlink(name, &new).and_then(|()| fs::rename(&new, &link)).context("marking the last run")
    }
}

/// A file of the run `name`, or of the last one.
///
/// # Errors
/// When there is no such run or it left no such file.
pub(crate) fn find(cache: &Path, name: Option<&str>, file: &str) -> Result<PathBuf> {
    let path = cache.join("runs").join(name.unwrap_or("last"));
    if !path.exists() {
        match name {
            Some(name) => bail!("there is no run called {name} (or it is too long ago)"),
            None => bail!("there was no run yet: start one with `lab run -- COMMAND`"),
        }
    }
    let file = path.join(file);
    if !file.exists() {
        bail!("the run left no {}", file.display());
    }
    Ok(file)
}

fn is_plain(name: &str) -> bool {
    name != "last" && !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
}

fn try_lock(path: &Path) -> Option<File> {
    let lock = File::create(path.join("lock")).ok()?;
    lock.try_lock().ok().map(|()| lock)
}

/// Removes all but the newest ended runs. Failing to is no reason not to run.
fn prune(runs: &Path) {
    let time =
        |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
    let mut paths: Vec<PathBuf> = fs::read_dir(runs)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.is_dir() && !path.is_symlink())
        .collect();
    paths.sort_by_key(|path| std::cmp::Reverse(time(path)));
    for path in paths.iter().skip(KEPT) {
        if let Some(_lock) = try_lock(path)
            && let Err(error) = crate::tree::discard(path)
        {
            eprintln!("lab: {error:#}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lock outlives its `RunDir` for as long as a process that another test is just starting holds a copy of every
    /// descriptor, between fork and exec.
    fn eventually(what: impl Fn() -> bool, why: &str) {
        let start = std::time::Instant::now();
        while !what() {
            assert!(start.elapsed().as_secs() < 30, "{why}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    #[test]
    fn a_name_is_taken_while_its_run_goes_on() {
        let cache = tempfile::tempdir().expect("a temporary folder");
        let first = RunDir::create(cache.path(), Some("a")).expect("free");
        fs::write(first.file("truth.json"), "{}").expect("a file");
        assert!(RunDir::create(cache.path(), Some("a")).is_err());
        assert!(RunDir::create(cache.path(), Some("../a")).is_err());
        first.publish().expect("a link");
        drop(first);
        assert!(find(cache.path(), None, "truth.json").is_ok());
        eventually(|| RunDir::create(cache.path(), Some("a")).is_ok(), "free again");
        assert!(
            find(cache.path(), Some("a"), "truth.json").is_err(),
            "an old file must not pass for a new one"
        );
    }

    #[test]
    fn old_runs_go_and_running_ones_stay() {
        let cache = tempfile::tempdir().expect("a temporary folder");
        let running = RunDir::create(cache.path(), Some("running")).expect("free");
        for number in 0..KEPT + 3 {
            RunDir::create(cache.path(), Some(&format!("r{number}"))).expect("free");
        }
        let runs = cache.path().join("runs");
        let left = || fs::read_dir(&runs).expect("there").count();
        eventually(
            || {
                prune(&runs);
                left() <= KEPT + 1
            },
            "all but the newest and the running one are gone",
        );
        assert!(left() >= KEPT, "{}", left());
        assert!(running.file("lock").exists());
    }
}
