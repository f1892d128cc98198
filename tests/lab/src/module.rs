//! Building hpm.ko against the stock kernel's headers.

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
pub(crate) fn build(tree: &Tree, cache: &Path, source: &Path) -> Result<PathBuf> {
    let source = source.canonicalize().with_context(|| format!("{} does not exist", source.display()))?;
    if !source.join("Kbuild").exists() {
        bail!("{} has no Kbuild file, so there is no module to build in it", source.display());
    }
    let out = cache.join("module");
    let (module, stamp) = (out.join("hpm.ko"), out.join("built-from"));
    let mut state = format!("{}\n{}\n", tree.kernel.version, source.display());
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
    make(tree, cache, &source, &out)?;
    fs::write(&stamp, state).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(module)
}

fn make(tree: &Tree, cache: &Path, source: &Path, out: &Path) -> Result<()> {
    let headers = tree.headers();
    let jobs = format!("-j{}", std::thread::available_parallelism().map_or(1, usize::from));
    let argv = ["make", &jobs, "-C", &headers, "M=/mnt/kmod", "MO=/mnt/out", "modules"];
    let binds = [
        Bind { host: source, inside: "/mnt/kmod", writable: false },
        Bind { host: out, inside: "/mnt/out", writable: true },
    ];
    step("building hpm.ko", &paths::log(cache, "module"), &mut sandbox(&tree.dir, &binds, &argv))
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
