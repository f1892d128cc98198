//! Programs that nobody here wrote: fetched as Debian's source packages, and compiled.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::consumers::tools::output;

/// A program of a Debian source package.
pub(crate) struct Source {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
    /// Folders of C files, below the package's own.
    pub(crate) folders: &'static [&'static str],
    /// Files there that are other programs.
    pub(crate) without: &'static [&'static str],
    /// Files elsewhere.
    pub(crate) with: &'static [&'static str],
    /// Folders of headers, besides the package's own.
    pub(crate) includes: &'static [&'static str],
    pub(crate) flags: &'static [&'static str],
}

impl Source {
    /// Compiles it with debug information.
    ///
    /// # Errors
    /// There is no gcc, or it fails.
    pub(crate) fn compile(&self, unpacked: &Path, program: &Path, flags: &[&str]) -> Result<()> {
        let mut files: Vec<PathBuf> = self.with.iter().map(|file| unpacked.join(file)).collect();
        for folder in self.folders {
            for entry in fs::read_dir(unpacked.join(folder))? {
                let path = entry?.path();
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if name.ends_with(".c") && !self.without.contains(&name.as_str()) {
                    files.push(path);
                }
            }
        }
        files.sort();
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-g", "-w", "-I"]).arg(unpacked);
        for folder in self.includes {
            gcc.arg("-I").arg(unpacked.join(folder));
        }
        gcc.args(self.flags).args(flags).arg("-o").arg(program);
        output(gcc.args(files).arg("-lm")).map(drop)
    }
}

/// The folder of a source package, fetched once by apt's own client with a state of its own.
///
/// # Errors
/// apt has no sources, no such package, or cannot fetch it.
pub(crate) fn unpacked(root: &Path, package: &str) -> Result<PathBuf> {
    let folder = root.join("target/sources").join(package);
    let inner = || -> Result<PathBuf> {
        let mut entries = fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path()));
        entries.find(|path| path.is_dir()).context("no folder came of it")
    };
    if let Ok(found) = inner() {
        return Ok(found);
    }
    fs::create_dir_all(&folder)?;
    let state = root.join("target/sources/apt");
    for part in ["lists/partial", "archives/partial"] {
        fs::create_dir_all(state.join(part))?;
    }
    let targets = ["indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages"];
    let archives = output(Command::new("apt-get").args(targets))?;
    let mut list = String::new();
    archives.lines().for_each(|archive| {
        let _ = writeln!(list, "deb-src {archive}");
    });
    let (sources, status) = (state.join("sources.list"), state.join("status"));
    fs::write(&sources, list)?;
    fs::write(&status, "")?;
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["--quiet", "--option=Debug::NoLocking=1", "--option=Dir::Etc::sourceparts=-"]);
        for (option, path) in [
            ("Dir::Etc::sourcelist", &sources),
            ("Dir::State::status", &status),
            ("Dir::State::lists", &state.join("lists")),
            ("Dir::Cache", &state),
        ] {
            command.arg(format!("--option={option}={}", path.display()));
        }
        command.args(words).current_dir(&folder);
        command
    };
    output(&mut apt(&["update"]))?;
    output(&mut apt(&["source", "--download-only", package]))?;
    // Debian's changes are of its packaging; the programs are as their authors wrote them.
    let archive = fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path())).find(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.contains(".orig.tar") && !name.ends_with(".asc")
    });
    let archive = archive.with_context(|| format!("{package} has no archive of its authors"))?;
    output(Command::new("tar").arg("--extract").arg("--file").arg(archive).current_dir(&folder))?;
    inner()
}
