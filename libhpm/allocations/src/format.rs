//! The log of one process: a page with a header, then chunks, each written by one thread at a time.
//!
//! All of it consists of little-endian words of 8 bytes in memory that is shared with the file, so that nothing is lost when the
//! process is killed. What was not written is 0. `libhpm` reads it by this same file.

/// First word of a log: "hpmalloc" and the format's version.
pub const MAGIC: u64 = u64::from_le_bytes(*b"hpmallo1");
/// Bytes of the header's page.
pub const HEADER_BYTES: usize = 4096;
/// Bytes of a chunk.
pub const CHUNK_BYTES: usize = 64 << 10;
/// Words of a chunk.
pub const CHUNK_WORDS: usize = CHUNK_BYTES / 8;
/// Most return addresses of an allocation.
pub const FRAMES_MAX: usize = 64;

/// Places of words in the header.
pub mod header {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// Process.
    pub const PID: usize = 1;
    /// The process that it was forked from, if it has not executed a program since; else 0.
    pub const FORKED_FROM: usize = 2;
    /// Mean number of bytes between two recorded allocations; 0 when all are recorded.
    pub const SAMPLED_BYTES: usize = 3;
    /// TSC when the log was begun.
    pub const TSC: usize = 4;
    /// CLOCK_MONOTONIC_RAW then, in ns.
    pub const MONOTONIC_RAW_NS: usize = 5;
    /// Allocations that found no room.
    pub const LOST: usize = 6;
    /// How many words there are.
    pub const WORDS: usize = 7;
}

/// What an entry is: bits 7:0 of its first word. 0 ends a chunk.
pub mod entry {
    /// The thread that writes from here on: bits 39:8 of the word. One word.
    pub const THREAD: u64 = 1;
    /// An allocation: frames in bits 15:8, bytes in bits 63:16; then TSC, address, and the return addresses, innermost first.
    pub const ALLOCATE: u64 = 2;
    /// The end of an object: then TSC and address.
    pub const FREE: u64 = 3;
}

/// The first word of an allocation; sizes of 2^48 bytes and more cannot succeed.
#[must_use]
pub const fn allocation(frames: usize, bytes: usize) -> u64 {
    entry::ALLOCATE | (frames as u64) << 8 | (bytes as u64) << 16
}
