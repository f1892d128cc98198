//! A model of x86 performance-monitoring hardware, written from the vendors' manuals.
//!
//! The model is a plain, deterministic library: no clock, no I/O, no emulator. An adapter (a QEMU plugin, or
//! a test) owns one [`Pmu`] and one [`Core`] per logical CPU and
//!
//! 1. routes `RDMSR`/`WRMSR`/`RDPMC`/`CPUID` to [`Pmu`];
//! 2. observes as much of the instruction stream as [`Pmu::demand`] asks for;
//! 3. reports it ([`Pmu::count_basic`], [`Pmu::count`]), never letting more basic events pass than
//!    [`Pmu::headroom`] allows;
//! 4. calls [`Pmu::settle`] at the instruction boundary whenever [`Pmu::needs_settle`] says so. Overflow,
//!    PEBS records and performance-monitoring interrupts (PMIs) happen there and nowhere else, through
//!    [`Bus`].
//!
//! What really happened is kept apart, in [`truth`]: it is fed by the adapter's observations, never by the
//! PMU's registers, so that a test can compare the two.
//!
//! "SDM" is the Intel 64 and IA-32 Architectures Software Developer's Manual. Sections, tables and figures of
//! Vol. 3 are numbered as in the editions of 2016, where Vol. 3B chapter 18 is "Performance Monitoring" and
//! 18.13 is Skylake. The tables of model-specific registers, then Vol. 3C chapter 35, are cited as Vol. 4
//! chapter 2, where they have been since. What came after Skylake is cited by the editions since 2023, where
//! chapter 19 is "Last Branch Records" and chapter 20 "Performance Monitoring". AMD's manuals are named in
//! [`profile::amd`].

pub mod bus;
pub mod event;
pub mod micro;
pub mod pmu;
pub mod profile;
pub mod truth;

pub use bus::{Bus, DataAccess, PageFault, Registers, Retired};
pub use event::{Basic, BasicCounts, Event, EventSet, MicroEvents, Privilege};
pub use micro::{
    BranchKind, CacheGeometry, Core, DataOutcome, DataSource, Geometry, GeometryError, Indexing, SharedCache,
};
pub use pmu::{
    CpuidRegs, Demand, GeneralProtection, Options, PebsOutcome, Pmu, PmuCore, RestoreError, Settlement,
    Snapshot,
};
pub use profile::Profile;
