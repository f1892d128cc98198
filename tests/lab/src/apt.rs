//! apt's own client with a private state: no root, nothing of the host's package database is touched.

use crate::paths;
use crate::progress::step;
use crate::sources;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Debian release whose kernel, compilers and QEMU the lab uses: the oldest one with backports of a
/// kernel with CONFIG_RUST=y.
pub(crate) const RELEASE: &str = "trixie";

/// apt with its state, cache and configuration under one folder.
pub(crate) struct Apt {
    dir: PathBuf,
    cache: PathBuf,
    /// Other labs wait: apt's state and its folder of downloads serve one at a time.
    _lock: File,
}

impl Apt {
    /// Writes the private configuration under `cache/apt` and fetches the package indices.
    ///
    /// # Errors
    /// When the host's apt has no Debian archive configured, a file cannot be written, or apt-get fails.
    pub(crate) fn new(cache: &Path) -> Result<Self> {
        let dir = cache.join("apt");
        for folder in ["state/lists/partial", "cache/archives/partial", "log"] {
            let folder = dir.join(folder);
            fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
        }
        let lock = File::create(dir.join("lab.lock")).context("creating apt's lock")?;
        lock.lock().context("waiting for another lab's apt")?;
        let apt = Self { dir, cache: cache.to_path_buf(), _lock: lock };
        let list = sources::list_for(&sources::configured()?, &codename()?, RELEASE)?;
        // An empty status file: nothing counts as installed, so apt resolves the whole closure.
        apt.write("status", "")?;
        apt.write("lab.sources", &list)?;
        apt.pin("")?;
        apt.write("apt.conf", &apt.configuration()?)?;
        apt.update()?;
        Ok(apt)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.dir.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// The host's files are not read (its hooks would clean the host's caches), but how it reaches the
    /// network is taken over: proxies, certificates, time-outs.
    fn configuration(&self) -> Result<String> {
        let dump = Command::new("apt-config").arg("dump").output().context("running apt-config dump")?;
        let dump = String::from_utf8_lossy(&dump.stdout);
        let dir = self.dir.display();
        let mut text = format!(
            "Dir::Etc::main \"/dev/null\";\nDir::Etc::parts \"/dev/null\";\n\
             Dir::Etc::sourcelist \"{dir}/lab.sources\";\nDir::Etc::sourceparts \"/dev/null\";\n\
             Dir::Etc::preferences \"{dir}/preferences\";\nDir::Etc::preferencesparts \"/dev/null\";\n\
             Dir::State \"{dir}/state\";\nDir::State::status \"{dir}/status\";\n\
             Dir::Cache \"{dir}/cache\";\nDir::Log \"{dir}/log\";\n\
             APT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; }};\n\
             APT::Install-Recommends \"false\";\nAPT::Sandbox::User \"\";\nAcquire::Languages \"none\";\n"
        );
        for line in network_settings(&dump) {
            text += line;
            text += "\n";
        }
        Ok(text)
    }

    /// Sets apt's preferences (apt_preferences(5)).
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn pin(&self, preferences: &str) -> Result<()> {
        self.write("preferences", preferences)
    }

    fn get(&self, args: &[&str]) -> Command {
        let mut command = Command::new("apt-get");
        command.env("APT_CONFIG", self.dir.join("apt.conf")).env("DEBIAN_FRONTEND", "noninteractive");
        command.args(["--quiet", "--assume-yes"]).args(args);
        command
    }

    fn update(&self) -> Result<()> {
        // Without this, apt-get update reports a failed download as a warning only.
        let mut command = self.get(&["--error-on=any", "update"]);
        step("fetching the package indices", &paths::log(&self.cache, "apt-update"), &mut command)
    }

    /// The text of all package indices of `suite`.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn index(&self, suite: &str) -> Result<String> {
        let release = format!("Release: {suite}");
        let args = ["indextargets", "--format", "$(FILENAME)", "Created-By: Packages", &release];
        let output = self.get(&args).output().context("running apt-get indextargets")?;
        let files = String::from_utf8_lossy(&output.stdout);
        let mut text = String::new();
        for file in files.lines() {
            text += &fs::read_to_string(file).with_context(|| format!("reading the package index {file}"))?;
            text += "\n";
        }
        if text.is_empty() {
            bail!(
                "apt fetched no package index of {suite}; see {}",
                paths::log(&self.cache, "apt-update").display()
            );
        }
        Ok(text)
    }

    /// Adds `packages` and everything they depend on to the folder `tree`. A file that is there stays: labs that run
    /// meanwhile use it, and it comes from a package of the same release.
    ///
    /// # Errors
    /// When apt-get or dpkg-deb fails: the message names the log.
    pub(crate) fn add(&self, what: &str, packages: &[String], tree: &Path) -> Result<()> {
        self.clean()?;
        let mut command = self.get(&["--download-only", "install", "--"]);
        command.args(packages);
        step(&format!("downloading {what}"), &paths::log(&self.cache, "apt-download"), &mut command)?;
        let debs = debs(&self.dir.join("cache/archives"))?;
        fs::create_dir_all(tree).with_context(|| format!("creating {}", tree.display()))?;
        // xargs, because dpkg-deb takes one package at a time; two at once, because xz is slow.
        let one = "set -o pipefail; dpkg-deb --fsys-tarfile \"$2\" | tar -xp --skip-old-files -C \"$1\"";
        let script = format!(
            "tree=$1; shift; printf '%s\\0' \"$@\" | xargs -0 -P2 -n1 bash -c '{one}' bash \"$tree\""
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(tree).args(&debs);
        step(&format!("unpacking {what}"), &paths::log(&self.cache, "unpack"), &mut command)?;
        self.clean()
    }

    /// Downloads one package without its dependencies into `folder`.
    ///
    /// # Errors
    /// When apt-get fails: the message names the log.
    pub(crate) fn download_one(&self, package: &str, folder: &Path) -> Result<PathBuf> {
        let mut command = self.get(&["download", "--", package]);
        command.current_dir(folder);
        step(&format!("fetching {package}"), &paths::log(&self.cache, "apt-download-one"), &mut command)?;
        debs(folder)?.pop().with_context(|| format!("apt-get left no .deb file of {package}"))
    }

    fn clean(&self) -> Result<()> {
        let output = self.get(&["clean"]).output().context("running apt-get clean")?;
        if !output.status.success() {
            bail!("apt-get clean failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }
}

fn debs(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry.with_context(|| format!("listing {}", folder.display()))?.path();
        if path.extension().is_some_and(|e| e == "deb") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The lines of an `apt-config dump` that say how to reach the network.
fn network_settings(dump: &str) -> impl Iterator<Item = &str> {
    const OTHER: [&str; 3] = ["Acquire::IndexTargets", "Acquire::GzipIndexes", "Acquire::Languages"];
    dump.lines()
        .filter(|line| line.starts_with("Acquire::") && !OTHER.iter().any(|other| line.starts_with(other)))
}

/// The machine's own release, from os-release(5).
fn codename() -> Result<String> {
    let text = fs::read_to_string("/etc/os-release").context("reading /etc/os-release")?;
    let name = text.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let name = name.context("/etc/os-release names no release: the lab needs a Debian machine")?;
    Ok(name.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::network_settings;

    #[test]
    fn proxies_are_kept_and_index_settings_are_not() {
        let dump = "APT::Get \"x\";\nAcquire::http::Proxy \"http://p:1\";\nAcquire::Languages \"none\";\n\
                    Acquire::IndexTargets::deb \"\";\nAcquire::Retries \"3\";\n";
        let kept: Vec<&str> = network_settings(dump).collect();
        assert_eq!(kept, ["Acquire::http::Proxy \"http://p:1\";", "Acquire::Retries \"3\";"]);
    }
}
