//! Where the files of the recorded machine are: an option of every command that names functions.

use std::path::PathBuf;

use clap::Args;
use libhpm::symbol::FileFinder;

/// Where binaries and their debug information are.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct FilesArgs {
    /// Folder with the recorded machine's files, when it is another machine
    #[arg(long, value_name = "DIR", value_parser = crate::cli::folder)]
    symfs: Option<PathBuf>,
    /// Folder with separate debug information, searched before /usr/lib/debug (can be given several times)
    #[arg(long = "debug-dir", value_name = "DIR", value_parser = crate::cli::folder)]
    debug_dirs: Vec<PathBuf>,
}

impl FilesArgs {
    /// What looks there.
    pub(crate) fn finder(&self) -> FileFinder {
        FileFinder { symfs: self.symfs.clone(), debug_dirs: self.debug_dirs.clone() }
    }
}
