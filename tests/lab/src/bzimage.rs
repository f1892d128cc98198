//! Unpacking the ELF kernel from Debian's boot image.

use crate::kernel::Kernel;
use crate::sandbox::program;
use crate::tree::Tree;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Stdio;

/// Writes the ELF kernel to `target`: QEMU starts that directly, which saves the emulated decompression.
///
/// # Errors
/// When the boot image is not found, or is not compressed by zstd.
pub(crate) fn unpack(tree: &Tree, kernel: &Kernel, target: &Path) -> Result<()> {
    let folder = tree.host(&kernel.modules());
    // vmlinuz in the signed package, vmlinuz.unsigned in the other.
    let image =
        ["vmlinuz", "vmlinuz.unsigned"].map(|name| folder.join(name)).into_iter().find(|p| p.exists());
    let image =
        image.with_context(|| format!("{} left no boot image in {}", kernel.image, folder.display()))?;
    let bytes = fs::read(&image).with_context(|| format!("reading {}", image.display()))?;
    let payload =
        payload(&bytes).with_context(|| format!("{} is no boot image the lab knows", image.display()))?;
    let out = File::create(target).with_context(|| format!("creating {}", target.display()))?;
    let mut zstd = program(&tree.dir, "usr/bin/zstd")
        .args(["-d", "-c"])
        .stdin(Stdio::piped())
        .stdout(out)
        .spawn()
        .context("starting zstd")?;
    if let Some(mut stdin) = zstd.stdin.take() {
        stdin.write_all(payload).context("feeding zstd")?;
    }
    if !zstd.wait().context("waiting for zstd")?.success() {
        bail!("zstd could not unpack {}", image.display());
    }
    Ok(())
}

/// The compressed kernel in a boot image (Documentation/arch/x86/boot.rst: `setup_sects`, `payload_offset`,
/// `payload_length`), without the length that the kernel's build appends for its own decompressor.
fn payload(image: &[u8]) -> Option<&[u8]> {
    const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
    let word = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    let setup = (usize::from(*image.get(0x1f1)?) + 1) * 512;
    let start = setup + word(0x248)?;
    let end = start + word(0x24c)?.checked_sub(4)?;
    image.get(start..end).filter(|payload| payload.starts_with(&ZSTD_MAGIC))
}

#[cfg(test)]
mod tests {
    use super::payload;

    #[test]
    fn payload_is_cut_out_exactly() {
        let mut image = vec![0u8; 2048];
        image[0x1f1] = 1;
        image[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&12u32.to_le_bytes());
        image[1040..1048].copy_from_slice(&[0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3, 4]);
        assert_eq!(payload(&image), Some(&[0x28, 0xb5, 0x2f, 0xfd, 1, 2, 3, 4][..]));
        image[1040] = 0;
        assert_eq!(payload(&image), None);
        assert_eq!(payload(&image[..600]), None);
    }
}
