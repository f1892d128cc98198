//! How this process's allocator deals with the kernel.

/// Most bytes at the end of the heap that are kept, and the largest piece that comes from it: the most that the C library takes.
const KEPT: i32 = 32 << 20;

/// Has the allocator keep what is freed (up to 32 MiB at the end of the heap) for the next allocation, also of large pieces, instead of
/// giving it back to the kernel: whoever allocates and frees the same again and again would otherwise pay for each page with a fault.
/// Where the C library has no such setting nothing happens.
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    for parameter in [libc::M_TRIM_THRESHOLD, libc::M_MMAP_THRESHOLD] {
        // SAFETY: mallopt changes only settings of the allocator, under its own lock.
        unsafe { libc::mallopt(parameter, KEPT) };
    }
}
