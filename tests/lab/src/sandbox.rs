//! Running programs of the package tree: alone with its libraries, or with the tree as the whole system.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

const LOADER: &str = "lib64/ld-linux-x86-64.so.2";
const LIBRARIES: &str = "usr/lib/x86_64-linux-gnu";

/// A program of `tree` run on this machine with the tree's own loader and libraries, which are newer than
/// the machine's.
pub(crate) fn program(tree: &Path, path: &str) -> Command {
    let mut command = Command::new(tree.join(LOADER));
    command.arg("--library-path").arg(tree.join(LIBRARIES)).arg(tree.join(path));
    command
}

/// A shell script that runs a program of `tree` under the name `name`, for use in the guest.
pub(crate) fn script(tree: &Path, path: &str, name: &str) -> String {
    let quoted = |path: PathBuf| quote(&path.to_string_lossy());
    format!(
        "#!/bin/sh\nexec {} --argv0 {} --library-path {} {} \"$@\"\n",
        quoted(tree.join(LOADER)),
        quote(name),
        quoted(tree.join(LIBRARIES)),
        quoted(tree.join(path)),
    )
}

/// Quotes for sh.
pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// A host folder shown inside a sandbox.
#[derive(Debug)]
pub(crate) struct Bind {
    /// Folder on the host.
    pub(crate) host: PathBuf,
    /// Where the sandbox sees it; below `/mnt`, which is a tmpfs, so that the tree needs no mount point.
    pub(crate) inside: &'static str,
    /// Whether the sandbox may write to it.
    pub(crate) writable: bool,
}

/// A command that sees `tree` as its root, with a /dev, /proc and /tmp of its own: nothing of the host's but
/// the binds. bubblewrap does this without root through a user namespace, and all its mounts vanish with it.
pub(crate) fn sandbox<S: AsRef<OsStr>>(tree: &Path, binds: &[Bind], argv: &[S]) -> Command {
    let mut command = program(tree, "usr/bin/bwrap");
    command.args(["--unshare-all", "--die-with-parent", "--bind"]).arg(tree).arg("/");
    command.args(["--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/mnt"]);
    for bind in binds {
        command.arg(if bind.writable { "--bind" } else { "--ro-bind" }).arg(&bind.host).arg(bind.inside);
    }
    command.args(["--clearenv", "--setenv", "PATH", "/usr/sbin:/usr/bin", "--setenv", "HOME", "/tmp"]);
    command.args(["--setenv", "LC_ALL", "C.UTF-8", "--chdir", "/mnt", "--"]).args(argv);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_survive_odd_paths() {
        let text = script(Path::new("/a b/it's"), "usr/bin/perf", "perf");
        assert!(text.contains("'/a b/it'\\''s/usr/bin/perf' \"$@\""), "{text}");
    }
}
