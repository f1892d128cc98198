//! Records what a program allocates and frees. `hpmctl record --allocations` preloads this library (LD_PRELOAD), which then stands before
//! the C library's `malloc` and its relatives, and C++'s `operator new`; they still do the work.
//!
//! Each thread writes into a chunk of the process's log ([`mod@format`]) that is mapped shared: no system call but one for each few
//! thousand entries, no lock, and nothing to be done at the end. An allocation is recorded with its return addresses as far as frame
//! pointers lead; the first one needs none. With `HPM_ALLOCATIONS_BYTES` only one allocation in so many bytes is recorded, drawn as
//! tcmalloc draws (exponentially distributed distances), and of the frees only those of recorded objects.
//!
//! Unsafe code stands in `ffi` alone.

mod ffi;
pub mod format;
