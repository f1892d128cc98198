//! The guest's file system: the host's root, read-only, under a tmpfs that takes the writes.

use anyhow::{Context, Result};
use lab_init::{GUEST_DIR, RunSpec, TAG_ROOT, Tool};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::unistd::{chdir, chroot, sethostname};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// 9p requests of up to 512 KiB, and the guest's page cache in front of them: nobody else changes these files
/// during a run.
const NINEP_OPTIONS: &str = "trans=virtio,version=9p2000.L,msize=524288,cache=loose";

/// File systems of the kernel's own, which the new root needs as well.
const KERNEL_MOUNTS: [(&str, &str); 3] = [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")];

fn mount_fs(source: &str, target: &Path, kind: &str, flags: MsFlags, options: &str) -> Result<()> {
    fs::create_dir_all(target).with_context(|| format!("creating {}", target.display()))?;
    mount(Some(source), target, Some(kind), flags, Some(options))
        .with_context(|| format!("mounting {kind} ({source}) at {}", target.display()))
}

/// Mounts /proc, /sys and /dev in the initramfs.
///
/// # Errors
/// When a mount fails.
pub(crate) fn mount_early() -> Result<()> {
    for (kind, target) in KERNEL_MOUNTS {
        mount_fs(kind, Path::new(target), kind, MsFlags::empty(), "")?;
    }
    Ok(())
}

/// Makes the overlay of the host's root the root of this process, and mounts everything a command expects.
///
/// # Errors
/// When a mount fails; the message names it.
pub(crate) fn enter(spec: &RunSpec) -> Result<()> {
    let root = Path::new("/root");
    mount_fs(TAG_ROOT, Path::new("/lower"), "9p", MsFlags::MS_RDONLY, NINEP_OPTIONS)?;
    mount_fs("tmpfs", Path::new("/upper"), "tmpfs", MsFlags::empty(), "")?;
    for folder in ["/upper/data", "/upper/work"] {
        fs::create_dir(folder).with_context(|| format!("creating {folder}"))?;
    }
    let layers = "lowerdir=/lower,upperdir=/upper/data,workdir=/upper/work";
    mount_fs("overlay", root, "overlay", MsFlags::empty(), layers)?;
    for (_, target) in KERNEL_MOUNTS {
        let to = root.join(target.trim_start_matches('/'));
        mount(Some(target), &to, None::<&str>, MsFlags::MS_MOVE, None::<&str>)
            .with_context(|| format!("moving {target} to {}", to.display()))?;
    }
    chdir(root).context("entering the new root")?;
    mount(Some("."), "/", None::<&str>, MsFlags::MS_MOVE, None::<&str>).context("moving the new root")?;
    chroot(".").context("changing the root")?;
    chdir("/").context("entering the new root")?;
    mount_rest(spec)
}

fn mount_rest(spec: &RunSpec) -> Result<()> {
    let none = MsFlags::empty();
    mount_fs("tmpfs", Path::new("/run"), "tmpfs", none, "mode=755")?;
    mount_fs("devpts", Path::new("/dev/pts"), "devpts", none, "mode=620,ptmxmode=666")?;
    mount_fs("tmpfs", Path::new("/dev/shm"), "tmpfs", none, "mode=1777")?;
    // These two also appear by themselves on first use on most systems; perf looks for events there.
    mount_fs("tracefs", Path::new("/sys/kernel/tracing"), "tracefs", none, "")?;
    mount_fs("debugfs", Path::new("/sys/kernel/debug"), "debugfs", none, "")?;
    for (target, link) in [("/proc/self/fd", "fd"), ("fd/0", "stdin"), ("fd/1", "stdout"), ("fd/2", "stderr")]
    {
        symlink(target, Path::new("/dev").join(link)).with_context(|| format!("linking /dev/{link}"))?;
    }
    sethostname("lab").context("naming the machine")?;
    let release = nix::sys::utsname::uname().context("asking for the kernel's release")?;
    let modules = Path::new("/lib/modules").join(release.release());
    fs::create_dir_all(&modules).with_context(|| format!("creating {}", modules.display()))?;
    mount(Some(&spec.module_tree), &modules, None::<&str>, MsFlags::MS_BIND, None::<&str>)
        .with_context(|| format!("showing {} as {}", spec.module_tree.display(), modules.display()))?;
    for share in &spec.shares {
        mount_fs(&share.tag, &share.path, "9p", none, NINEP_OPTIONS)?;
    }
    Ok(())
}

/// Writes the lab's tools and the module under test to `/run/lab`; returns where the module is.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn install_tools(spec: &RunSpec, hpm: Option<&[u8]>) -> Result<Option<PathBuf>> {
    let bin = Path::new(GUEST_DIR).join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("creating {}", bin.display()))?;
    for Tool { name, script } in &spec.tools {
        let path = bin.join(name);
        fs::write(&path, script).with_context(|| format!("writing {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .with_context(|| format!("making {} executable", path.display()))?;
    }
    let Some(hpm) = hpm else {
        return Ok(None);
    };
    let path = Path::new(GUEST_DIR).join("hpm.ko");
    fs::write(&path, hpm).with_context(|| format!("writing {}", path.display()))?;
    Ok(Some(path))
}

/// Unmounts the shares, so that what the page cache still holds reaches the host.
pub(crate) fn flush_shares() {
    nix::unistd::sync();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    // Innermost first: a share may lie below another one.
    for line in mounts.lines().rev() {
        let mut fields = line.split(' ');
        if let (Some(tag), Some(target), Some("9p")) = (fields.next(), fields.next(), fields.next())
            && tag != TAG_ROOT
            && let Err(error) = umount2(unescape(target).as_str(), MntFlags::empty())
        {
            eprintln!("lab-init: unmounting {target}: {error}");
        }
    }
}

/// Undoes the octal escapes of /proc/self/mounts (proc_pid_mounts(5)): space, tab, newline, backslash.
fn unescape(path: &str) -> String {
    path.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::unescape;

    #[test]
    fn mount_points_with_spaces_are_decoded() {
        assert_eq!(unescape("/a\\040b\\134040c"), "/a b\\040c");
    }
}
