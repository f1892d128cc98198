//! The initramfs: PID 1, the stock modules it needs, hpm.ko and what to run.

use crate::kernel::Kernel;
use crate::sandbox::program;
use crate::tree::Tree;
use anyhow::{Context, Result, bail};
use cpio::newc;
use lab_init::{HPM_PATH, MODULES_DIR, RunSpec, SPEC_PATH};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Stock modules that PID 1 loads: the host's files (9p over virtio, overlay) and, for tests and perf, the
/// model-specific registers.
const WANTED: [&str; 4] = ["9pnet_virtio", "9p", "overlay", "msr"];

/// Unpacks the modules that PID 1 loads into the folder `to`, numbered in the order they have to be loaded.
///
/// # Errors
/// When the kernel's package has no such module, or it cannot be unpacked.
pub(crate) fn unpack_modules(tree: &Tree, kernel: &Kernel, to: &Path) -> Result<()> {
    let folder = tree.host(&kernel.modules());
    let index = fs::read_to_string(folder.join("modules.dep")).context("reading modules.dep")?;
    for (number, path) in load_order(&index, &WANTED)?.into_iter().enumerate() {
        let name = path.rsplit('/').next().unwrap_or(&path).trim_end_matches(".xz");
        let target = to.join(format!("{number}-{name}"));
        let out = File::create(&target).with_context(|| format!("creating {}", target.display()))?;
        let mut xz = program(&tree.dir, "usr/bin/xz");
        let status =
            xz.args(["-d", "-c"]).arg(folder.join(&path)).stdout(out).status().context("running xz")?;
        if !status.success() {
            bail!("xz could not unpack the stock kernel's {path}");
        }
    }
    Ok(())
}

/// File names of the modules in the folder `loaded`, in order.
///
/// # Errors
/// When the folder cannot be listed.
pub(crate) fn module_names(loaded: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(loaded).with_context(|| format!("listing {}", loaded.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        names.push(entry.context("listing the unpacked modules")?.file_name().to_string_lossy().into_owned());
    }
    // Single digits: WANTED and its dependencies are fewer than ten.
    names.sort();
    Ok(names)
}

/// The wanted modules after what they depend on, as paths below the modules' folder (modules.dep(5)).
fn load_order(index: &str, wanted: &[&str]) -> Result<Vec<String>> {
    let mut order: Vec<String> = Vec::new();
    for name in wanted {
        let is_wanted = |path: &str| path.rsplit('/').next().and_then(|f| f.split('.').next()) == Some(*name);
        let line = index.lines().filter_map(|line| line.split_once(':')).find(|(path, _)| is_wanted(path));
        let (path, needs) = line.with_context(|| format!("the stock kernel has no module {name}"))?;
        // modules.dep lists the nearest dependency first.
        for path in needs.split_whitespace().rev().chain([path]) {
            if !order.iter().any(|known| known == path) {
                order.push(path.to_owned());
            }
        }
    }
    Ok(order)
}

/// Writes the initramfs of one run; the modules that `spec` names lie in the folder `loaded`.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn write(to: &Path, loaded: &Path, init: &Path, hpm: Option<&Path>, spec: &RunSpec) -> Result<()> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
    let file = File::create(to).with_context(|| format!("creating {}", to.display()))?;
    let mut archive = Archive { out: BufWriter::new(file), inode: 0 };
    for folder in ["/lab", MODULES_DIR, "/dev", "/root"] {
        archive.add(folder, 0o040_755, &[])?;
    }
    archive.add_console()?;
    archive.add("/init", 0o100_755, &read(init)?)?;
    for name in &spec.modules {
        archive.add(&format!("{MODULES_DIR}/{name}"), 0o100_644, &read(&loaded.join(name))?)?;
    }
    if let Some(hpm) = hpm {
        archive.add(HPM_PATH, 0o100_644, &read(hpm)?)?;
    }
    archive.add(SPEC_PATH, 0o100_644, &serde_json::to_vec(spec).context("encoding the run")?)?;
    archive.finish()
}

struct Archive {
    out: BufWriter<File>,
    inode: u32,
}

impl Archive {
    fn add(&mut self, path: &str, mode: u32, bytes: &[u8]) -> Result<()> {
        self.inode += 1;
        let size = u32::try_from(bytes.len()).context("a file of the initramfs is too large")?;
        let entry = newc::Builder::new(path.trim_start_matches('/')).mode(mode).ino(self.inode).nlink(1);
        let mut writer = entry.write(&mut self.out, size);
        writer.write_all(bytes).with_context(|| format!("adding {path} to the initramfs"))?;
        writer.finish().with_context(|| format!("adding {path} to the initramfs"))?;
        Ok(())
    }

    /// The kernel opens this for PID 1's standard streams before PID 1 can mount devtmpfs (char 5:1).
    fn add_console(&mut self) -> Result<()> {
        self.inode += 1;
        let node = newc::Builder::new("dev/console").mode(0o020_600).ino(self.inode).nlink(1);
        node.rdev_major(5)
            .rdev_minor(1)
            .write(&mut self.out, 0)
            .finish()
            .context("adding the console to the initramfs")?;
        Ok(())
    }

    fn finish(self) -> Result<()> {
        let mut out = newc::trailer(self.out).context("ending the initramfs")?;
        out.flush().context("ending the initramfs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_first_and_once() {
        let index = "kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz\n\
                     kernel/net/9p/9pnet.ko.xz: kernel/fs/netfs/netfs.ko.xz\nkernel/x/msr.ko.xz:\n";
        let order = load_order(index, &["9p", "msr"]).expect("all there");
        let expected = [
            "kernel/fs/netfs/netfs.ko.xz",
            "kernel/net/9p/9pnet.ko.xz",
            "kernel/fs/9p/9p.ko.xz",
            "kernel/x/msr.ko.xz",
        ];
        assert_eq!(order, expected);
        assert!(load_order(index, &["overlay"]).is_err());
    }

    #[test]
    fn archive_reads_back() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (to, init) = (folder.path().join("i.cpio"), folder.path().join("init"));
        fs::write(&init, b"#!").expect("a file");
        let loaded = folder.path().join("load");
        fs::create_dir_all(&loaded).expect("a folder");
        fs::write(loaded.join("0-m.ko"), [7; 5]).expect("a file");
        let spec = RunSpec {
            argv: vec!["true".into()],
            env: vec![],
            cwd: "/".into(),
            shares: vec![],
            modules: module_names(&loaded).expect("one"),
            hpm_params: None,
            tools: vec![],
            module_tree: "/m".into(),
            terminal: None,
        };
        write(&to, &loaded, &init, None, &spec).expect("written");
        let mut names = Vec::new();
        let mut reader = newc::Reader::new(File::open(&to).expect("there")).expect("an entry");
        while !reader.entry().is_trailer() {
            names.push((reader.entry().name().to_owned(), reader.entry().file_size(), reader.entry().mode()));
            reader = newc::Reader::new(reader.finish().expect("skipped")).expect("an entry");
        }
        assert!(names.contains(&("lab/modules/0-m.ko".into(), 5, 0o100_644)), "{names:?}");
        assert!(names.contains(&("init".into(), 2, 0o100_755)), "{names:?}");
        assert!(!names.iter().any(|(name, ..)| name == "lab/hpm.ko"), "{names:?}");
    }
}
