//! The PMU model as a QEMU TCG plugin: a guest on stock QEMU 11.1 gets the PMU that the crate `vpmu` models.
//!
//! `WRMSR`, `RDMSR`, `RDPMC` and `CPUID` are executed by the model and skipped in QEMU (`msr`). While some counter is
//! enabled, translated code tallies retired instructions, loads, stores and branches without a call (`translate`), and calls
//! the model at exactly the instruction boundary where a counter could have overflowed (`boundary`). More is observed only
//! when a counter needs it (`mode`, `memory`).
//!
//! See README.md beside this crate for arguments, measurements and limits.

mod apic;
mod args;
mod boundary;
mod bus;
mod callbacks;
mod decode;
mod eilvt;
mod ffi;
mod here;
mod hypercall;
mod install;
mod internals;
mod machine;
mod memory;
mod mode;
mod msr;
mod pcrel;
mod pmi;
mod registers;
mod report;
mod translate;
mod vcpu;
