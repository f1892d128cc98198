//! A folder that goes with the program, also when a signal ends that.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;

use nix::sys::signal::{SigSet, Signal, kill, raise};
use nix::unistd::Pid;
use tempfile::TempDir;

/// Signals that would end a program, and lose what it has measured.
pub const ENDING: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

/// The folders that are there.
static FOLDERS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
/// Somebody else takes the signals, and ends properly then.
static HANDED_OVER: AtomicBool = AtomicBool::new(false);

/// How often a folder is removed into which another thread writes.
const ATTEMPTS: usize = 100;

/// A folder for temporary files. With the first one the thread that makes it, and those that it starts from then on, block the
/// signals that end a program; a thread of its own waits for them.
#[derive(Debug)]
pub struct ForNow(TempDir);

impl ForNow {
    /// Makes one.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<Self> {
        static WATCHED: Once = Once::new();
        WATCHED.call_once(watch);
        // Locked meanwhile, so that no signal finds a folder that is not among them.
        let mut folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::Builder::new().prefix("hpm-").tempdir()?;
        folders.push(folder.path().to_owned());
        Ok(Self(folder))
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

/// Leaves the signals that end the program to the caller, who blocks them and drops what has to be removed.
pub fn hand_over_signals() {
    HANDED_OVER.store(true, Ordering::Release);
}

/// Has a thread wait for signals that end the program. Without one they leave the folder, as they did.
fn watch() {
    let signals = heeded();
    if signals.thread_block().is_ok() {
        thread::spawn(move || wait(signals));
    }
}

/// Waits for one of the signals, removes the folders and ends as the signal would have.
fn wait(signals: SigSet) {
    let Ok(signal) = signals.wait() else { return };
    if HANDED_OVER.load(Ordering::Acquire) {
        // Once more, for who reads it elsewhere; this thread is gone then.
        let _ = kill(Pid::this(), signal);
        return;
    }
    let folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    for folder in folders.iter() {
        let _ = (0..ATTEMPTS).any(|_| fs::remove_dir_all(folder).is_ok() || !folder.exists());
    }
    let _ = SigSet::from(signal).thread_unblock();
    let _ = raise(signal);
}

/// The signals that end the program, without those that it was started to ignore, as by nohup (proc(5), `SigIgn`).
fn heeded() -> SigSet {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ENDING.into_iter().filter(|&signal: &Signal| ignored >> (signal as i32 - 1) & 1 == 0).collect()
}
