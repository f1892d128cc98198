//! Making everything ready for a run: the tree, the kernel, PID 1, the plugin and hpm.ko, each only if it is not already.

use crate::cli::Options;
use crate::kernels::{self, Ready as Kernel};
use crate::tree::Tree;
use crate::{host, module, paths};
use anyhow::{Context, Result};
use std::fs::File;
use std::path::{Path, PathBuf};

/// What a run is made of.
pub(crate) struct Ready {
    /// The package tree.
    pub(crate) tree: Tree,
    /// The kernel that boots.
    pub(crate) kernel: Kernel,
    /// PID 1.
    pub(crate) init: PathBuf,
    /// The PMU plugin.
    pub(crate) plugin: Option<PathBuf>,
    /// The module.
    pub(crate) hpm: Option<PathBuf>,
    /// Held while the built files are read: no other lab rebuilds them meanwhile.
    pub(crate) build_lock: File,
    /// Held as long as the tree is used: no other lab replaces it meanwhile.
    pub(crate) tree_lock: File,
}

/// Fetches and builds what `options` ask for.
///
/// # Errors
/// When a step fails: the message names it and its log.
pub(crate) fn ready(cache: &Path, options: &Options) -> Result<Ready> {
    let (tree, tree_lock) = tree(cache)?;
    let kernel = kernels::ready(&tree, cache, &options.kernel)?;
    let build_lock = build_lock(cache)?;
    let init = host::init(cache)?;
    let plugin = match (&options.plugin, options.no_plugin) {
        (_, true) => None,
        (Some(file), false) => {
            Some(file.canonicalize().with_context(|| format!("there is no plugin {}", file.display()))?)
        }
        (None, false) => Some(host::plugin(cache)?),
    };
    let source = options.kmod.clone().unwrap_or_else(|| paths::project().join("kmod"));
    let hpm = if options.no_module { None } else { Some(module::build(&tree, &kernel, cache, &source)?) };
    Ok(Ready { tree, kernel, init, plugin, hpm, build_lock, tree_lock })
}

/// The tree and a shared lock on it. Fetching takes the lock for itself alone.
///
/// # Errors
/// When it cannot be fetched or unpacked.
pub(crate) fn tree(cache: &Path) -> Result<(Tree, File)> {
    let lock = lock_file(cache, "tree")?;
    loop {
        lock.lock_shared().context("waiting for another lab's download")?;
        if let Some(tree) = Tree::open(cache) {
            return Ok((tree, lock));
        }
        lock.unlock().context("releasing the lock on the tree")?;
        lock.lock().context("waiting for other labs to end")?;
        if Tree::open(cache).is_none() {
            Tree::fetch(cache)?;
        }
        lock.unlock().context("releasing the lock on the tree")?;
    }
}

/// The lock that whoever builds, or reads what was built, holds.
///
/// # Errors
/// The system's.
pub(crate) fn build_lock(cache: &Path) -> Result<File> {
    let lock = lock_file(cache, "build")?;
    lock.lock().context("waiting for another lab's build")?;
    Ok(lock)
}

fn lock_file(cache: &Path, name: &str) -> Result<File> {
    let path = cache.join(format!("{name}.lock"));
    File::create(&path).with_context(|| format!("creating {}", path.display()))
}
