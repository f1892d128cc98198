//! Which stock kernels there are for the lab: those with CONFIG_RUST=y that the index has complete.

use crate::apt::{Apt, RELEASE};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::fs;
use std::process::Command;

/// A stock kernel and the packages it comes in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Kernel {
    /// What `uname -r` says, for instance `7.3.4+deb13-amd64`.
    pub(crate) release: String,
    /// Version of all its packages, for instance `7.3.4-1~bpo13+1`.
    pub(crate) version: String,
    /// Package with the boot image.
    pub(crate) image: String,
    /// Package with the source, for instance `linux-source-7.3`.
    pub(crate) source: String,
    /// Version of the rustc package that built it.
    pub(crate) rustc: String,
}

impl Kernel {
    /// apt's preferences under which the kernel, QEMU and the right compiler are chosen together.
    pub(crate) fn preferences(&self) -> String {
        let pin = |sources: &str, pin: String, priority: u32| {
            format!("Package: {sources}\nPin: {pin}\nPin-Priority: {priority}\n\n")
        };
        pin("src:linux src:linux-signed-amd64", format!("version {}", self.version), 1001)
            + &pin("src:rustc", format!("version {}", self.rustc), 1001)
            + &pin("src:qemu src:seabios src:ipxe", format!("release n={RELEASE}-backports"), 990)
    }

    /// The packages that a run on this kernel needs: image, modules, headers.
    pub(crate) fn packages(&self) -> Vec<String> {
        let of = |kind: &str| format!("linux-{kind}-{}", self.release);
        vec![self.image.clone(), of("modules"), of("headers")]
    }

    /// The folder in the package tree that modules are built against.
    pub(crate) fn headers(&self) -> String {
        format!("/usr/src/linux-headers-{}", self.release)
    }

    /// The folder in the package tree with the kernel's modules and boot image.
    pub(crate) fn modules(&self) -> String {
        module_folder(&self.release)
    }
}

/// The same for the kernel of this release.
pub(crate) fn module_folder(release: &str) -> String {
    format!("/usr/lib/modules/{release}")
}

/// A kernel as the index alone shows it, before its configuration has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Candidate {
    release: String,
    version: String,
    image: String,
    source: String,
}

/// Finds the newest kernel with CONFIG_RUST=y; downloads header packages to read their configuration.
///
/// # Errors
/// When the index has none, or a download fails.
pub(crate) fn newest(apt: &Apt) -> Result<Kernel> {
    let mut rustcs: Vec<String> = Vec::new();
    for suite in [RELEASE.to_owned(), format!("{RELEASE}-backports")] {
        rustcs.extend(versions(&apt.index(&suite)?).remove("rustc").unwrap_or_default());
    }
    sort_newest_first(&mut rustcs, |version| version)?;
    choose(apt, &rustcs, candidates_of(apt)?)
}

/// Finds the kernel called `release`, or else the newest one that is older than `tree`, the package tree's own; the
/// tree's Rust compiler must be able to build modules for it.
///
/// # Errors
/// When the index has none, or a download fails.
pub(crate) fn other(apt: &Apt, tree: &Kernel, release: Option<&str>) -> Result<Kernel> {
    let mut wanted = Vec::new();
    let mut known = Vec::new();
    for candidate in candidates_of(apt)? {
        known.push(candidate.release.clone());
        let takes = match release {
            Some(release) => candidate.release == release,
            None => newer(&tree.version, &candidate.version)?,
        };
        if takes {
            wanted.push(candidate);
        }
    }
    if let (Some(release), true) = (release, wanted.is_empty()) {
        bail!("{RELEASE}-backports has no stock kernel {release}; it has {}", known.join(", "));
    }
    choose(apt, std::slice::from_ref(&tree.rustc), wanted)
}

/// The complete kernels of the index, newest first.
fn candidates_of(apt: &Apt) -> Result<Vec<Candidate>> {
    let backports = apt.index(&format!("{RELEASE}-backports"))?;
    let mut candidates = candidates(&versions(&backports));
    sort_newest_first(&mut candidates, |candidate| &candidate.version)?;
    Ok(candidates)
}

/// The first of `candidates` with CONFIG_RUST=y that one of the packages `rustcs` built.
fn choose(apt: &Apt, rustcs: &[String], candidates: Vec<Candidate>) -> Result<Kernel> {
    let mut refused = Vec::new();
    for candidate in candidates {
        let config = config_of(apt, &candidate)?;
        let Some(wanted) = rust_version(&config) else {
            refused.push(format!("{} has no CONFIG_RUST=y", candidate.release));
            continue;
        };
        let Some(rustc) = rustcs.iter().find(|version| version.starts_with(&format!("{wanted}+"))) else {
            refused
                .push(format!("{} was built by rustc {wanted}, which is not to be had", candidate.release));
            continue;
        };
        let Candidate { release, version, image, source } = candidate;
        return Ok(Kernel { release, version, image, source, rustc: rustc.clone() });
    }
    bail!(
        "{RELEASE}-backports has no such stock kernel that the module can be built for ({})",
        if refused.is_empty() { "no complete set of packages".to_owned() } else { refused.join("; ") }
    )
}

/// Package name to versions, of a Packages index (deb-src-index: stanzas of `Field: value`).
fn versions(index: &str) -> HashMap<&str, Vec<String>> {
    let mut found: HashMap<&str, Vec<String>> = HashMap::new();
    let mut package = "";
    for line in index.lines() {
        if let Some(name) = line.strip_prefix("Package: ") {
            package = name;
        } else if let Some(version) = line.strip_prefix("Version: ") {
            found.entry(package).or_default().push(version.to_owned());
        }
    }
    found
}

/// The plain amd64 kernels (no cloud, no PREEMPT_RT) whose image, modules and source the index also has, at
/// the version of the headers. New kernels appear package by package, so this is not a matter of course.
fn candidates(index: &HashMap<&str, Vec<String>>) -> Vec<Candidate> {
    let has = |name: &str, version: &String| index.get(name).is_some_and(|all| all.contains(version));
    let mut found = Vec::new();
    for (name, versions) in index {
        let Some(release) = name.strip_prefix("linux-headers-") else { continue };
        let Some(abi) = release.strip_suffix("-amd64").filter(|abi| !abi.contains('-')) else { continue };
        let series: Vec<&str> = abi.split('.').take(2).collect();
        let source = format!("linux-source-{}", series.join("."));
        for version in versions {
            let images = [format!("linux-binary-{release}"), format!("linux-binary-unsigned-{release}")];
            let Some(image) = images.into_iter().find(|image| has(image, version)) else { continue };
            if has(&format!("linux-modules-{release}"), version) && has(&source, version) {
                found.push(Candidate {
                    release: release.to_owned(),
                    version: version.clone(),
                    image,
                    source: source.clone(),
                });
            }
        }
    }
    found
}

/// Sorts by Debian's version order, newest first.
fn sort_newest_first<T>(items: &mut [T], version: impl Fn(&T) -> &String) -> Result<()> {
    let mut failure = None;
    items.sort_by(|a, b| match newer(version(a), version(b)) {
        Ok(true) => Ordering::Less,
        Ok(false) => newer(version(b), version(a))
            .map_or(Ordering::Equal, |newer| if newer { Ordering::Greater } else { Ordering::Equal }),
        Err(error) => {
            failure = Some(error);
            Ordering::Equal
        }
    });
    failure.map_or(Ok(()), Err)
}

/// Whether `a` is newer than `b`, which dpkg decides (deb-version(7)).
fn newer(a: &str, b: &str) -> Result<bool> {
    let status = Command::new("dpkg").args(["--compare-versions", a, "gt", b]).status();
    Ok(status.context("running dpkg --compare-versions")?.success())
}

fn config_of(apt: &Apt, candidate: &Candidate) -> Result<String> {
    let folder = tempfile::tempdir().context("creating a temporary folder")?;
    let name = format!("linux-headers-{}", candidate.release);
    let deb = apt.download_one(&format!("{name}={}", candidate.version), folder.path())?;
    let status = Command::new("dpkg-deb").arg("-x").arg(&deb).arg(folder.path()).status();
    if !status.context("running dpkg-deb")?.success() {
        bail!("dpkg-deb could not unpack {}", deb.display());
    }
    let config = folder.path().join("usr/src").join(&name).join(".config");
    fs::read_to_string(&config).with_context(|| format!("{name} has no .config"))
}

/// The version of rustc a kernel with CONFIG_RUST=y was built by, for instance `1.85.1`.
fn rust_version(config: &str) -> Option<String> {
    config.lines().find(|line| *line == "CONFIG_RUST=y")?;
    // init/Kconfig: major * 100000 + minor * 100 + patch.
    let number = config.lines().find_map(|line| line.strip_prefix("CONFIG_RUSTC_VERSION="))?;
    let number: u32 = number.parse().ok()?;
    Some(format!("{}.{}.{}", number / 100_000, number / 100 % 1000, number % 100))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index() -> String {
        let mut text = String::new();
        let mut add = |name: &str, version: &str| {
            text += &format!("Package: {name}\nVersion: {version}\nDescription: x\n\n");
        };
        for (abi, version, image) in [
            ("7.2.9+deb13", "7.2.9-1~bpo13+1", "binary"),
            ("7.2.12+deb13", "7.2.12-1~bpo13+1", "binary-unsigned"),
        ] {
            add(&format!("linux-headers-{abi}-amd64"), version);
            add(&format!("linux-headers-{abi}-rt-amd64"), version);
            add(&format!("linux-headers-{abi}-common"), version);
            add(&format!("linux-modules-{abi}-amd64"), version);
            add(&format!("linux-modules-{abi}-rt-amd64"), version);
            add(&format!("linux-{image}-{abi}-amd64"), version);
            add(&format!("linux-{image}-{abi}-rt-amd64"), version);
            add("linux-source-7.2", version);
        }
        // Still incomplete: no image yet.
        add("linux-headers-7.3.1+deb13-amd64", "7.3.1-1~bpo13+1");
        add("linux-modules-7.3.1+deb13-amd64", "7.3.1-1~bpo13+1");
        add("linux-source-7.3", "7.3.1-1~bpo13+1");
        text
    }

    #[test]
    fn the_newest_complete_kernel_comes_first() {
        let text = index();
        let mut found = candidates(&versions(&text));
        sort_newest_first(&mut found, |candidate| &candidate.version).expect("dpkg runs");
        let names: Vec<&str> = found.iter().map(|candidate| candidate.release.as_str()).collect();
        assert_eq!(names, ["7.2.12+deb13-amd64", "7.2.9+deb13-amd64"]);
        assert_eq!(found[0].image, "linux-binary-unsigned-7.2.12+deb13-amd64");
        assert_eq!(found[0].source, "linux-source-7.2");
    }

    #[test]
    fn rust_version_needs_config_rust() {
        assert_eq!(rust_version("CONFIG_RUST=y\nCONFIG_RUSTC_VERSION=108501\n").as_deref(), Some("1.85.1"));
        assert_eq!(rust_version("CONFIG_RUSTC_VERSION=108501\n# CONFIG_RUST is not set\n"), None);
    }
}
