//! How each performance-monitoring unit is programmed, as pure logic over a register port.
//!
//! | step | module |
//! |---|---|
//! | CPUID to a known PMU | [`mod@detect`], [`pmu`] |
//! | a request to events that the PMU has | [`config`], [`events`], [`extra`] |
//! | what a record holds | [`layout`] |
//! | which events count on which cores | [`hybrid`] |
//! | events to counters | [`allocate`], in turns where they do not fit: [`turns`] |
//! | counters to register values | [`program`], [`registers`] |
//! | threads on and off one CPU | [`engine`], `hardware`, `ds`, [`interrupt`], [`ibs`], [`threads`] |
//! | what a thread reads of itself | [`counters`] |
//! | which branches a thread took last, and which calls it is in | [`lbr`] |
//! | what a session without the right to the kernel sees | `privacy` |
//! | what user space sees | `quantum`, [`stacks`], [`markers`], [`session`], [`rings`], [`segments`] |
//! | how often is sampled | [`period`], `windows`, [`guard`] |
//! | who may run when | [`gate`] |
//! | whose threads are measured | [`processes`] |
//! | for which of several sessions | [`sharing`] |
//! | what else happens in processes | [`reports`] |
//!
//! The crate knows nothing of an operating system: registers, the debug-store area and the shared rings are reached
//! through the traits of [`port`]. It is compiled twice: by cargo for the host, and by path into `hpm.ko` (edition 2021,
//! no `crate::` paths).
#![no_std]
#![forbid(unsafe_code)]

// Under cargo the shared bytes are a crate; in the kernel module (Kbuild passes `--cfg MODULE`) the module's root holds
// them as a sibling module of this one. Everything here says `super::abi`.
#[cfg(MODULE)]
pub use super::hpm_abi as abi;
#[cfg(not(MODULE))]
pub use hpm_abi as abi;

mod addresses;
pub mod allocate;
mod buffer;
mod cfg_c;
pub mod config;
pub mod counters;
pub mod detect;
mod ds;
pub mod engine;
pub mod events;
pub mod extra;
pub mod gate;
pub mod guard;
mod hardware;
pub mod hybrid;
pub mod ibs;
pub mod interrupt;
pub mod layout;
pub mod lbr;
pub mod markers;
mod meter;
pub mod period;
pub mod pmu;
pub mod port;
mod privacy;
pub mod processes;
pub mod program;
mod quantum;
mod records;
pub mod refusal;
pub mod registers;
pub mod reports;
pub mod rings;
pub mod segments;
pub mod session;
pub mod sharing;
pub mod stacks;
pub mod threads;
pub mod turns;
mod windows;

pub use self::detect::{detect, Cpuid, CpuidRegisters, Machine};
pub use self::engine::Engine;
pub use self::gate::Gate;
pub use self::guard::{Limits, THROTTLE_MS};
pub use self::hardware::acknowledge;
pub use self::pmu::Pmu;
pub use self::port::{Port, Rings};
pub use self::program::Program;
pub use self::refusal::Refusal;
pub use self::session::{has_filled, quarters, CpuSession, CpuTotals, Session, Thread};
pub use self::threads::{ThreadSlot, ThreadTally, Threads};
