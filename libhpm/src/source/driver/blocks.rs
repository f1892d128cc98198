//! A file that grows past the page cache.
//!
//! What a recording writes while the program runs is read again minutes later, if at all. In the page cache it costs thousands of the
//! kernel's instructions for each page, and takes memory that caches what the program reads. So blocks are written by `O_DIRECT`
//! (open(2)) from a buffer that is used over and over. Where the file system does not have that, or is in memory, all is the same but
//! that the page cache is in between.
//!
//! A write past the page cache lasts as long as the disk takes, so that this is for who can wait ([`Blocks::wait_for_disk`]).

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use memmap2::{MmapMut, MmapOptions};
use nix::fcntl::{FcntlArg, OFlag, fcntl};

/// Bytes that are written as one, at a multiple of them, from memory at one: what hardly a disk's sectors exceed.
pub(super) const BLOCK: usize = 4096;
/// Bytes of the buffer: what comes in some seconds is mostly written as one.
const BUFFER: usize = 256 * BLOCK;

/// The file. Its end is filled up with zeros to a whole block.
pub(super) struct Blocks {
    file: File,
    /// Whether writes go past the page cache, and whether they may.
    waits: bool,
    can_wait: bool,
    /// Pages of memory of its own: no place of any other is aligned so.
    buffer: MmapMut,
    /// Bytes of it that are taken.
    taken: usize,
    /// Of these, how many are in the file.
    written: usize,
    /// Where in the file the buffer begins, a multiple of [`BLOCK`].
    offset: u64,
}

impl Blocks {
    /// Creates the file.
    ///
    /// # Errors
    /// It is there already, or cannot be.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        // Its pages are there before anything is measured.
        let buffer = MmapOptions::new().len(BUFFER).populate().map_anon()?;
        let file = File::create_new(path)?;
        // Not when it is created: a file system that refuses has then created it all the same.
        let can_wait = fcntl(&file, FcntlArg::F_SETFL(OFlag::O_DIRECT)).is_ok();
        Ok(Self { file, waits: can_wait, can_wait, buffer, taken: 0, written: 0, offset: 0 })
    }

    /// Whether to write past the page cache from now on, which waits for the disk, where that can be done; else through it.
    ///
    /// # Errors
    /// fcntl(2)'s.
    pub(super) fn wait_for_disk(&mut self, wait: bool) -> io::Result<()> {
        let wait = wait && self.can_wait;
        if self.waits != wait {
            let flags = if wait { OFlag::O_DIRECT } else { OFlag::empty() };
            fcntl(&self.file, FcntlArg::F_SETFL(flags))?;
            self.waits = wait;
        }
        Ok(())
    }

    /// Adds bytes to the file's end. They are in the file after [`Blocks::flush`] at the latest.
    ///
    /// # Errors
    /// Writing failed.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BUFFER - self.taken));
            self.buffer[self.taken..][..now.len()].copy_from_slice(now);
            self.taken += now.len();
            if self.taken == BUFFER {
                self.flush()?;
            }
            bytes = later;
        }
        Ok(())
    }

    /// Writes what was added. The block that is not full stays in the buffer, and is written again when more has come.
    ///
    /// # Errors
    /// Writing failed, and all or nothing of it may be there.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if self.written == self.taken {
            return Ok(());
        }
        let end = self.taken.next_multiple_of(BLOCK);
        self.buffer[self.taken..end].fill(0);
        self.write(end)?;
        let whole = self.taken - self.taken % BLOCK;
        self.buffer.copy_within(whole..self.taken, 0);
        self.offset += whole as u64;
        self.taken -= whole;
        self.written = self.taken;
        Ok(())
    }

    fn write(&mut self, len: usize) -> io::Result<()> {
        match self.file.write_all_at(&self.buffer[..len], self.offset) {
            // The file system wants larger blocks than ours, a limit cuts one off, or whoever serves it cannot do it after all. Where the
            // reason is another one it comes again.
            Err(_) if self.waits => {
                self.can_wait = false;
                self.wait_for_disk(false)?;
                self.file.write_all_at(&self.buffer[..len], self.offset)
            }
            written => written,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// What was added is in the file, in order and followed by less than a block of zeros, whenever it is looked at.
        #[test]
        fn file_has_what_was_added(
            looks in prop::collection::vec((prop::collection::vec(0..3 * BUFFER / 2, 0..4), any::<bool>()), 1..6),
        ) {
            let temp = tempfile::tempdir_in(".").unwrap();
            let path = temp.path().join("blocks");
            let mut blocks = Blocks::create(&path).unwrap();
            let mut wanted = Vec::new();
            for (pieces, wait) in looks {
                for len in pieces {
                    let piece: Vec<u8> = (wanted.len()..).take(len).map(|at| (at % 251 + 1) as u8).collect();
                    blocks.push(&piece).unwrap();
                    wanted.extend(piece);
                }
                blocks.flush().unwrap();
                let (there, padding) = (std::fs::read(&path).unwrap(), wanted.len().next_multiple_of(BLOCK));
                prop_assert_eq!(there.len(), padding);
                prop_assert!(there[..wanted.len()] == wanted && there[wanted.len()..].iter().all(|&byte| byte == 0));
                blocks.wait_for_disk(wait).unwrap();
            }
        }
    }

    #[test]
    fn nothing_else_is_replaced() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("there");
        std::fs::write(&path, "kept").unwrap();
        assert_eq!(Blocks::create(&path).err().map(|error| error.kind()), Some(io::ErrorKind::AlreadyExists));
        assert_eq!(std::fs::read(&path).unwrap(), b"kept");
    }
}
