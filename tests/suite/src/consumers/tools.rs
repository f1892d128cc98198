//! The programs that open exports: found on this machine, or fetched into `target/consumers` without root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::stamp;

/// Where they are.
pub(super) struct Tools {
    /// Python with pyarrow and DuckDB.
    pub(super) python: PathBuf,
    /// Node's modules, with speedscope, puppeteer-core and the Firefox Profiler's command line.
    pub(super) modules: PathBuf,
    pub(super) chromium: PathBuf,
    pub(super) pprof: PathBuf,
    /// Where Debian packages are unpacked.
    unpacked: PathBuf,
}

impl Tools {
    /// Finds them, and fetches what is missing.
    pub(super) fn fetch(root: &Path) -> Result<Self> {
        let folder = root.join("target/consumers");
        fs::create_dir_all(&folder)?;
        let venv = folder.join("venv");
        stamp(&folder.join("python.stamp"), || {
            output(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
            output(Command::new(venv.join("bin/pip")).args(["install", "--quiet", "pyarrow", "duckdb"]))
                .map(drop)
        })?;
        stamp(&folder.join("node-2.stamp"), || {
            let install = [
                "install",
                "--silent",
                "--no-audit",
                "--no-fund",
                "speedscope",
                "puppeteer-core",
                "@firefox-devtools/profiler-cli",
                "--prefix",
            ];
            output(Command::new("npm").args(install).arg(&folder)).map(drop)
        })?;
        let unpacked = folder.join("debian");
        let chromium = debian(
            &unpacked,
            "chromium-headless-shell",
            &["usr/bin", "usr/lib/chromium"],
            "chromium-headless-shell",
        )?;
        let pprof = debian(
            &unpacked,
            "golang-go",
            &["usr/lib/go-1.19/pkg/tool/linux_amd64", "usr/lib/go/pkg/tool/linux_amd64"],
            "pprof",
        )?;
        Ok(Self {
            python: venv.join("bin/python"),
            modules: folder.join("node_modules"),
            chromium,
            pprof,
            unpacked,
        })
    }

    /// The folder of libpfm4's headers, and its archive: the shared library is in another package, which apt does not fetch where the
    /// machine has it.
    pub(super) fn libpfm4(root: &Path) -> Result<(PathBuf, PathBuf)> {
        let unpacked = root.join("target/consumers/debian");
        fs::create_dir_all(&unpacked)?;
        let header = debian(&unpacked, "libpfm4-dev", &["usr/include/perfmon"], "pfmlib.h")?;
        let archive = debian(&unpacked, "libpfm4-dev", &["usr/lib/x86_64-linux-gnu", "usr/lib"], "libpfm.a")?;
        let headers = header.ancestors().nth(2).context("the header is in no folder")?;
        Ok((headers.to_owned(), archive))
    }

    /// Lets a program find the libraries that were unpacked with it.
    pub(super) fn libraries(&self, command: &mut Command) {
        let libraries = self.unpacked.join("usr/lib/x86_64-linux-gnu");
        // PulseAudio's libraries find each other by a path of the whole machine.
        let folders = [libraries.join("pulseaudio"), libraries];
        command.env("LD_LIBRARY_PATH", folders.map(|folder| folder.display().to_string()).join(":"));
    }
}

/// A program in one of these folders of the machine, or of a Debian package that is unpacked with all that it needs and this
/// machine has not.
pub(crate) fn debian(unpacked: &Path, package: &str, folders: &[&str], program: &str) -> Result<PathBuf> {
    let find = |root: &Path| {
        // The folder of libraries has the program itself, the other a script that starts it from /usr/lib.
        let own = folders.iter().rev().map(|folder| root.join(folder).join(program));
        own.into_iter().find(|path| path.is_file())
    };
    if let Some(found) = find(Path::new("/")) {
        return Ok(found);
    }
    stamp(&unpacked.with_file_name(format!("{package}.stamp")), || unpack(unpacked, package))?;
    find(unpacked).with_context(|| format!("the package {package} has no {program} in {folders:?}"))
}

fn unpack(unpacked: &Path, package: &str) -> Result<()> {
    let downloads = unpacked.with_file_name("downloads");
    fs::create_dir_all(&downloads)?;
    let plan = output(Command::new("apt-get").args([
        "install",
        "--print-uris",
        "--quiet=2",
        "--no-install-recommends",
        "--option=Debug::NoLocking=1",
        package,
    ]))?;
    // 'ADDRESS' NAME_VERSION_ARCHITECTURE.deb SIZE HASH
    let names: Vec<&str> =
        plan.lines().filter_map(|line| line.split_whitespace().nth(1)?.split('_').next()).collect();
    ensure!(!names.is_empty(), "apt knows no package {package}: {plan}");
    output(Command::new("apt-get").args(["download", "--quiet=2"]).args(&names).current_dir(&downloads))?;
    for entry in fs::read_dir(&downloads)? {
        let path = entry?.path();
        output(Command::new("dpkg-deb").arg("--extract").arg(&path).arg(unpacked))?;
        fs::remove_file(path)?;
    }
    Ok(())
}

/// What a command prints; its messages when it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("{command:?} cannot be started"))?;
    if !output.status.success() {
        bail!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}
