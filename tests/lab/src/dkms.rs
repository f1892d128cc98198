//! Building the module as an installed system does: by dkms(8), from the source that `make install` leaves.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::kernels::{Build, Ready};
use crate::paths;
use crate::progress::step;
use crate::sandbox::{Bind, sandbox};
use crate::tree::{Tree, discard};

/// Adds and builds what lies in `source` for a stock kernel; the folder in which dkms has left the module.
///
/// # Errors
/// When the folder is not named MODULE-VERSION, the kernel is no stock one, or dkms fails: the message ends with its last lines.
pub(crate) fn build(tree: &Tree, kernel: &Ready, cache: &Path, source: &Path) -> Result<PathBuf> {
    let source = source.canonicalize().with_context(|| format!("{} does not exist", source.display()))?;
    let name = source.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (Some((module, version)), Some(above)) = (name.rsplit_once('-'), source.parent()) else {
        bail!("{} is not named MODULE-VERSION, as dkms wants it", source.display());
    };
    let Build::Headers(headers) = &kernel.kernel.build else {
        bail!("dkms builds for kernels whose headers are packaged");
    };
    let out = cache.join("dkms");
    if out.exists() {
        discard(&out)?;
    }
    fs::create_dir_all(&out).with_context(|| format!("creating {}", out.display()))?;
    let release = &kernel.kernel.release;
    let common = format!("-m {module} -v {version} --dkmstree /mnt/dkms --sourcetree /mnt/source");
    let script = format!("dkms add {common} && dkms build {common} -k {release} --kernelsourcedir {headers}");
    let binds = [
        Bind { host: above.to_path_buf(), inside: "/mnt/source", writable: false },
        Bind { host: out.clone(), inside: "/mnt/dkms", writable: true },
    ];
    let title = format!("dkms builds {name} for Linux {release}");
    step(&title, &paths::log(cache, "dkms"), &mut sandbox(&tree.dir, &binds, &["sh", "-c", &script]))?;
    let built = out.join(module).join(version).join(release).join("x86_64/module");
    let files = fs::read_dir(&built).with_context(|| format!("dkms has left no {}", built.display()))?;
    let is_module =
        |file: fs::DirEntry| file.file_name().to_string_lossy().starts_with(&format!("{module}.ko"));
    if !files.flatten().any(is_module) {
        bail!("dkms has left no {module}.ko in {}", built.display());
    }
    Ok(built)
}
