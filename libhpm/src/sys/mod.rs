//! System calls and memory that others write: the only unsafe code of the library.
//!
//! | module | unsafe because |
//! |---|---|
//! | [`device`] | ioctl hands the driver a pointer to an argument |
//! | [`counters`] | counter pages are written by the driver |
//! | `fault` | RDPMC has no safe wrapper, and may fault: a handler of SIGSEGV |
//! | [`rings`] | the session's areas are written by the driver and by hardware |
//! | [`marks`] | a page that the driver reads while the program writes |
//! | [`perf`] | perf_event_open, and a ring that the kernel writes |
//! | [`child`] | fork: between fork and exec only async-signal-safe functions may run |
//! | [`clock`] | RDTSC has no safe wrapper |
//! | [`memory`] | mallopt has no safe wrapper |
//! | [`probe`] | as [`device`] and [`rings`], for tests of the driver |
//! | [`priority`] | getpriority and setpriority have no safe wrapper |
//! | [`pidfd`] | pidfd_open has no safe wrapper |
//!
//! Everything exported is safe to call.
#![allow(unsafe_code, reason = "the boundary to the kernel; see the table above")]

pub mod child;
pub mod clock;
pub mod counters;
pub mod device;
mod fault;
pub mod marks;
pub mod memory;
pub mod perf;
pub mod pidfd;
pub mod priority;
pub mod probe;
pub mod rings;
