//! `make install` into a folder of its own: what it puts there, that the module builds from it, and that nothing stays.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::check::Tally;

/// Installs, builds the installed source, and uninstalls.
pub(crate) fn check(root: &Path, tally: &mut Tally) {
    let folder = root.join("target/suite/install");
    tally.run("make install puts everything below DESTDIR", || installs(root, &folder));
    tally.run("dkms builds hpm.ko from the installed source", || builds(root, &folder));
    tally.run("make uninstall leaves nothing", || {
        run(make(root, &folder, "uninstall"))?;
        let left = files(&folder)?;
        ensure!(left.is_empty(), "it left {left:?}");
        Ok(String::new())
    });
}

fn make(root: &Path, folder: &Path, target: &str) -> Command {
    let mut command = Command::new("make");
    command.arg(target).arg(format!("DESTDIR={}", folder.display())).args(["PREFIX=/usr"]).current_dir(root);
    command
}

/// Runs a command that must succeed.
fn run(mut command: Command) -> Result<()> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

fn installs(root: &Path, folder: &Path) -> Result<String> {
    if folder.exists() {
        fs::remove_dir_all(folder).context("removing what an earlier check left")?;
    }
    run(make(root, folder, "install"))?;
    let source = source(folder)?;
    let version = source.file_name().and_then(|name| name.to_str()?.strip_prefix("hpm-")).unwrap_or_default();
    let dkms = fs::read_to_string(source.join("dkms.conf")).context("there is no dkms.conf")?;
    ensure!(
        dkms.contains(&format!("PACKAGE_VERSION=\"{version}\"")),
        "dkms.conf is of another version: {dkms}"
    );
    for file in [
        "usr/bin/hpmctl",
        "usr/lib/hpm/libhpm_methods.so",
        "usr/bin/hpmtop",
        "usr/share/man/man1/hpmtop.1",
        "usr/share/zsh/site-functions/_hpmtop",
        "usr/share/man/man1/hpmctl-report.1",
        "usr/share/bash-completion/completions/hpmctl",
        "usr/lib/udev/rules.d/70-hpm.rules",
        "usr/lib/sysusers.d/hpm.conf",
    ] {
        ensure!(folder.join(file).is_file(), "there is no {file}");
    }
    ensure!(!folder.join("usr/lib/modules-load.d").exists(), "the module would be loaded at boot unasked");
    Ok(format!("{} files", files(folder)?.len()))
}

/// The module's source below the folder.
fn source(folder: &Path) -> Result<PathBuf> {
    let mut sources = fs::read_dir(folder.join("usr/src")).context("there is no /usr/src")?;
    Ok(sources.next().context("/usr/src is empty")??.path())
}

/// As for a kernel that the user installs later; the lab has dkms and a kernel.
fn builds(root: &Path, folder: &Path) -> Result<String> {
    let mut lab = Command::new(root.join("target/release/lab"));
    lab.arg("dkms").arg(source(folder)?).current_dir(root);
    run(lab)?;
    Ok(String::new())
}

/// Every file below a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}
