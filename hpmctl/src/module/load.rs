//! Finding hpm.ko and having the kernel take it, or saying why it does not.

use std::env;
use std::ffi::CString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module};

use super::{SYSFS, is_loaded, may_load};

/// `MODULE_INIT_COMPRESSED_FILE` (finit_module(2)), which nix does not name.
const COMPRESSED: ModuleInitFlags = ModuleInitFlags::from_bits_retain(4);

/// What the kernel's answer is explained by.
struct Kernel {
    /// `uname -r`.
    release: String,
    /// The chosen mode of `/sys/kernel/security/lockdown`, unless it is `none`.
    lockdown: Option<String>,
    /// No module can be loaded before the next boot.
    modules_disabled: bool,
    /// This process may load modules.
    may_load: bool,
}

pub(super) fn run(path: Option<&Path>, parameters: &[String]) -> Result<()> {
    if is_loaded() {
        bail!("hpm is already loaded; `hpmctl module status` tells more, `hpmctl module unload` makes room");
    }
    let kernel = Kernel::running()?;
    let found = match path {
        Some(path) => path.to_owned(),
        None => find(&kernel.release)?,
    };
    let file = File::open(&found).with_context(|| format!("cannot open {}", found.display()))?;
    let compressed = found.extension().is_some_and(|extension| extension != "ko");
    let flags = if compressed { COMPRESSED } else { ModuleInitFlags::empty() };
    let words = CString::new(parameters.join(" ")).context("a parameter holds a NUL byte")?;
    match finit_module(&file, &words, flags) {
        Ok(()) => Ok(()),
        Err(errno) => {
            let bytes = fs::read(&found).unwrap_or_default();
            bail!("{}", sentence(errno, &found, built_for(&bytes).as_deref(), &kernel))
        }
    }
}

/// hpm.ko beside this program, in the project that it was built in, or installed for the running kernel.
fn find(release: &str) -> Result<PathBuf> {
    let program = env::current_exe().context("cannot tell where this program is")?;
    let folders = program.ancestors().skip(1);
    let beside = folders.clone().take(1).map(|folder| folder.join("hpm.ko"));
    let built =
        folders.filter(|folder| folder.join("kmod/Kbuild").exists()).map(|folder| folder.join("kmod/hpm.ko"));
    if let Some(path) = beside.chain(built).find(|path| path.exists()) {
        return Ok(path);
    }
    let modules = Path::new("/lib/modules").join(release);
    let index = fs::read_to_string(modules.join("modules.dep")).unwrap_or_default();
    if let Some(path) = installed(&index) {
        return Ok(modules.join(path));
    }
    let headers = modules.join("build");
    if headers.exists() && !headers.join("scripts/target.json").exists() {
        bail!(
            "there is no hpm.ko for Linux {release}, and its headers hold no Rust metadata to build one with: see \
             kmod/README.md, \"Build\""
        );
    }
    bail!(
        "there is no hpm.ko for Linux {release}: build it as kmod/README.md says, or name the file with --path"
    )
}

/// The path of hpm.ko in an index of modules (modules.dep(5)).
fn installed(index: &str) -> Option<&str> {
    let paths = index.lines().filter_map(|line| Some(line.split_once(':')?.0));
    paths.into_iter().find(|path| path.rsplit('/').next().is_some_and(|name| name.starts_with("hpm.ko")))
}

/// The kernel release that a module was built for: the first word of its version magic. `None` when it is compressed, or no
/// module.
fn built_for(module: &[u8]) -> Option<String> {
    const FIELD: &[u8] = b"\0vermagic=";
    let start = module.windows(FIELD.len()).position(|bytes| bytes == FIELD)? + FIELD.len();
    let magic = module[start..].split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(magic).split(' ').next()?.to_owned())
}

impl Kernel {
    fn running() -> Result<Self> {
        let release =
            fs::read_to_string("/proc/sys/kernel/osrelease").context("cannot tell the kernel's release")?;
        let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
        let mode = lockdown.split_once('[').and_then(|(_, rest)| Some(rest.split_once(']')?.0.to_owned()));
        let disabled = fs::read_to_string("/proc/sys/kernel/modules_disabled").unwrap_or_default();
        Ok(Self {
            release: release.trim().to_owned(),
            lockdown: mode.filter(|mode| mode != "none"),
            modules_disabled: disabled.trim() == "1",
            may_load: may_load(),
        })
    }
}

/// Why the kernel did not take the module, and what to do (finit_module(2); kernel/module/main.c and signing.c).
fn sentence(errno: Errno, path: &Path, built_for: Option<&str>, kernel: &Kernel) -> String {
    let path = path.display();
    match errno {
        Errno::EPERM if !kernel.may_load => {
            "only root may load a module (CAP_SYS_MODULE): run `hpmctl module load` as root".to_owned()
        }
        Errno::EPERM if kernel.modules_disabled => {
            "the kernel takes no module before the next boot (sysctl kernel.modules_disabled)".to_owned()
        }
        Errno::EPERM | Errno::ENOKEY | Errno::EKEYREJECTED | Errno::EBADMSG | Errno::ENOPKG => {
            let why = match &kernel.lockdown {
                Some(mode) => format!("it is locked down ({mode}), which Secure Boot may have switched on"),
                None => "it takes signed modules only".to_owned(),
            };
            format!(
                "the kernel refuses {path} for want of a signature it trusts: {why}; sign it with a key that is enrolled (mokutil)"
            )
        }
        Errno::ENOEXEC => match built_for {
            Some(release) if release != kernel.release => {
                format!(
                    "{path} was built for Linux {release}, but this is Linux {}: build it for this one",
                    kernel.release
                )
            }
            Some(_) => format!(
                "{path} was built for a Linux {} of another configuration: build it again",
                kernel.release
            ),
            None => format!("{path} is no kernel module"),
        },
        Errno::ENOENT => format!(
            "the kernel lacks something that {path} needs, as `dmesg` tells: hpm needs Linux with CONFIG_RUST=y, and a \
             module built for exactly this one"
        ),
        Errno::EEXIST => format!("hpm is already loaded ({SYSFS})"),
        Errno::EINVAL => format!("the kernel refuses {path} or one of its parameters, as `dmesg` tells"),
        other => format!("{path} cannot be loaded: {}; `dmesg` may tell more", other.desc()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Kernel {
        Kernel { release: "7.3.4".into(), lockdown: None, modules_disabled: false, may_load: true }
    }

    #[test]
    fn each_refusal_is_explained() {
        let say =
            |errno, built_for, kernel: &Kernel| sentence(errno, Path::new("/x/hpm.ko"), built_for, kernel);
        let unprivileged = Kernel { may_load: false, ..kernel() };
        let closed = Kernel { modules_disabled: true, ..kernel() };
        let locked = Kernel { lockdown: Some("integrity".into()), ..kernel() };
        let all = [
            say(Errno::EPERM, None, &unprivileged),
            say(Errno::EPERM, None, &closed),
            say(Errno::EPERM, None, &locked),
            say(Errno::EKEYREJECTED, None, &kernel()),
            say(Errno::ENOEXEC, Some("7.2.12"), &kernel()),
            say(Errno::ENOEXEC, Some("7.3.4"), &kernel()),
            say(Errno::ENOEXEC, None, &kernel()),
            say(Errno::ENOENT, Some("7.3.4"), &kernel()),
            say(Errno::EINVAL, Some("7.3.4"), &kernel()),
            say(Errno::ENOMEM, Some("7.3.4"), &kernel()),
        ];
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn the_release_is_read_from_the_module() {
        let module =
            b"\x7fELF..\0license=GPL\0vermagic=7.3.4+deb13-amd64 SMP preempt mod_unload \0name=hpm\0";
        assert_eq!(built_for(module).as_deref(), Some("7.3.4+deb13-amd64"));
        assert_eq!(built_for(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn an_installed_module_is_found_under_any_folder_and_compression() {
        let index = "kernel/a.ko.xz: kernel/b.ko.xz\nupdates/dkms/hpm.ko.xz:\nkernel/xhpm.ko:\n";
        assert_eq!(installed(index), Some("updates/dkms/hpm.ko.xz"));
        assert_eq!(installed("kernel/xhpm.ko:\n"), None);
    }
}
