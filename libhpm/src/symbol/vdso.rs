//! The code that the kernel gives every process (vdso(7)): no file has it, but this process has it as every other one.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::files::FileFinder;
use super::module::Module;

/// What it is called where it is mapped.
pub(super) const NAME: &str = "[vdso]";

/// The symbols of this machine's; `None` where it cannot be read, or is of another kernel than the one with this release.
pub(super) fn load(kernel_release: &str) -> Option<Module> {
    let running = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    if running.trim() != kernel_release {
        return None;
    }
    let file = image().ok()?;
    let path = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
    let module = Module::load(&path, None, &FileFinder::default()).ok()?.ok()?;
    Some(module.renamed(NAME))
}

/// A file in memory with it.
fn image() -> io::Result<File> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let range = maps
        .lines()
        .find(|line| line.ends_with(NAME))
        .and_then(|line| line.split_once(' ')?.0.split_once('-'));
    let hex = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let range = range.and_then(|(start, end)| Some((hex(start)?, hex(end)?)));
    let (start, end) = range.ok_or(io::ErrorKind::NotFound)?;
    let mut bytes = vec![0; (end - start) as usize];
    File::open("/proc/self/mem")?.read_exact_at(&mut bytes, start)?;
    let mut file = File::from(memfd_create("vdso", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(&bytes)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machines_own_is_known() {
        let Ok(file) = image() else { return };
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let module = load(release.trim()).unwrap();
        let size = file.metadata().unwrap().len();
        let mut names: Vec<_> =
            (0..size).step_by(8).filter_map(|offset| module.frames(offset)[0].function.clone()).collect();
        names.dedup();
        assert!(names.iter().any(|name| name.contains("clock_gettime")), "{names:?}");
        assert_eq!(&*module.frames(0)[0].module, NAME);
        assert!(load("another").is_none());
    }
}
