//! Building hpm.ko for a prepared kernel.

use crate::kernels::Ready;
use crate::paths;
use crate::progress::step;
use crate::sandbox::{Bind, sandbox};
use crate::tree::Tree;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// Builds the module in `source`, if anything there has changed; returns the path of hpm.ko.
///
/// # Errors
/// When `source` is no Kbuild folder, or the build fails: the message ends with the compiler's.
pub(crate) fn build(tree: &Tree, kernel: &Ready, cache: &Path, source: &Path) -> Result<PathBuf> {
    let source = source.canonicalize().with_context(|| format!("{} does not exist", source.display()))?;
    if !source.join("Kbuild").exists() {
        bail!("{} has no Kbuild file, so there is no module to build in it", source.display());
    }
    let out = kernel.hpm();
    let (module, stamp) = (out.join("hpm.ko"), out.join("built-from"));
    let mut state = format!("{}\n{}\n", kernel.kernel.release, source.display());
    describe(&source, &mut state)?;
    if module.exists() && fs::read_to_string(&stamp).is_ok_and(|built| built == state) {
        return Ok(module);
    }
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    // Objects of another folder or kernel must not be taken for this one's.
    let origin: Vec<String> = state.lines().take(2).map(str::to_owned).collect();
    let same = fs::read_to_string(&stamp)
        .is_ok_and(|built| built.lines().take(2).eq(origin.iter().map(String::as_str)));
    if !same {
        crate::tree::discard(&out)?;
        fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    }
    make(tree, kernel, cache, &source)?;
    fs::write(&stamp, state).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(module)
}

fn make(tree: &Tree, kernel: &Ready, cache: &Path, source: &Path) -> Result<()> {
    let jobs = format!("-j{}", std::thread::available_parallelism().map_or(1, usize::from));
    let (chosen, mut binds) = kernel.kbuild();
    let mut argv = vec!["make".to_owned(), jobs];
    argv.extend(chosen);
    argv.extend(["M=/mnt/kmod", "MO=/mnt/out", "modules"].map(str::to_owned));
    binds.push(Bind { host: source.to_path_buf(), inside: "/mnt/kmod", writable: false });
    binds.push(Bind { host: kernel.hpm(), inside: "/mnt/out", writable: true });
    let title = format!("building hpm.ko for Linux {}", kernel.kernel.release);
    step(&title, &paths::log(cache, "module"), &mut sandbox(&tree.dir, &binds, &argv))
}

/// Adds name, size and time of every file below `folder` to `state`, in a fixed order.
fn describe(folder: &Path, state: &mut String) -> Result<()> {
    let list = || format!("listing {}", folder.display());
    let entries =
        fs::read_dir(folder).with_context(list)?.collect::<Result<Vec<_>, _>>().with_context(list)?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let meta = fs::symlink_metadata(&path).with_context(|| format!("looking at {}", path.display()))?;
        if meta.is_dir() {
            describe(&path, state)?;
            continue;
        }
        let time = meta.modified().with_context(|| format!("looking at {}", path.display()))?;
        let time = time.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        *state += &format!("{} {} {time}\n", path.display(), meta.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_change_below_the_folder_shows() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::create_dir(folder.path().join("core")).expect("a folder");
        let file = folder.path().join("core/a.rs");
        let mut seen = Vec::new();
        for text in ["one", "three"] {
            fs::write(&file, text).expect("a file");
            let mut state = String::new();
            describe(folder.path(), &mut state).expect("readable");
            seen.push(state);
        }
        assert!(seen[0].contains("core/a.rs 3 "), "{}", seen[0]);
        assert_ne!(seen[0], seen[1]);
    }
}
