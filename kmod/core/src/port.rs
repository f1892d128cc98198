//! What the logic needs of its surroundings: one CPU's registers, and one session's memory on that CPU.

use super::abi::{CounterPage, CpuControl, CpuStatus, Marker, Quantum};
use super::interrupt::Registers;
use super::stacks::Collected;

/// The PMU of the CPU the caller runs on. Every call is made with interrupts off (or from the PMI's NMI), so that the
/// CPU cannot change under it. Implementations hold no state that an NMI could find half written: the NMI handler uses
/// another instance.
pub trait Port {
    /// RDMSR. Only registers that detection has shown to exist are asked for.
    fn rdmsr(&mut self, register: u32) -> u64;
    /// WRMSR. Only registers that detection has shown to exist, with no reserved bit set.
    fn wrmsr(&mut self, register: u32, value: u64);
    /// RDPMC with this ECX: a general counter's number, or a fixed counter's with bit 30 set (SDM Vol. 2B, RDPMC).
    fn rdpmc(&mut self, index: u32) -> u64;
    /// RDTSC.
    fn rdtsc(&mut self) -> u64;
    /// Writes the local APIC's LVTPC so that PMIs come as NMIs again: hardware sets its mask bit with each PMI
    /// (SDM Vol. 3A 11.5.1).
    fn unmask_pmi(&mut self);
    /// Whether LVTPC is masked: a PMI has come since it was last unmasked.
    fn pmi_is_masked(&mut self) -> bool;
    /// Whether hpm holds the PMU of another logical processor of this one's core. Asked while CPUs' PMUs are taken or given
    /// back, one after another.
    fn sibling_is_held(&mut self) -> bool;
    /// The interrupt of an overflow, or of a sample, may still be on its way although it has been served: until the TSC is
    /// this, [`super::acknowledge`] takes an NMI for it. Asked for where the hardware keeps no note of whose NMI it is.
    fn expect_pmi(&mut self, until_tsc: u64);
    /// What [`Port::expect_pmi`] said last; 0 when it was never called.
    fn expected_pmi(&mut self) -> u64;
    /// Registers of the code that the PMI interrupted; with `user_only` those with which the current thread last was in user
    /// mode. `None` when it has none, when they cannot be had now, or when the PMI's NMI is over.
    fn registers(&mut self, user_only: bool) -> Option<Registers>;
    /// Linear address of this CPU's DS management area, for IA32_DS_AREA. Constant.
    fn ds_area(&mut self) -> u64;
    /// Reads the 64-bit field at this byte offset of the DS management area. Hardware writes it too (volatile).
    fn ds_read(&mut self, offset: u32) -> u64;
    /// Writes the 64-bit field at this byte offset of the DS management area (volatile). Called with the PMU off.
    fn ds_write(&mut self, offset: u32, value: u64);
    /// Linear address of the window through which hardware writes PEBS records, of a segment's size at least. Constant.
    fn pebs_window(&mut self) -> u64;
    /// Reads the 64-bit word at this byte offset of the segment that is mapped, or shown (volatile). Only offsets that records cover.
    fn pebs_read(&mut self, offset: u32) -> u64;
}

/// The memory that a session shares with user space on this CPU. The numbers are kept and checked by this crate;
/// implementations only move bytes.
pub trait Rings {
    /// Maps the session's segment in this slot (0 to segments - 1) into [`Port::pebs_window`] and flushes the old
    /// translations of this CPU. Called with the PMU off, also from the NMI: no lock, no allocation.
    fn map_segment(&mut self, slot: u32);
    /// The physical address of what [`Rings::map_segment`] would map, which is contiguous and aligned to its size: architectural PEBS
    /// writes there, and needs no window. From now on [`Port::pebs_read`] reads it. Called as [`Rings::map_segment`] is.
    fn show_segment(&mut self, slot: u32) -> u64;
    /// Takes the session's segment out of the window, if it is there; what was mapped there before hpm is back. Called with
    /// PEBS off; another session's counters may run.
    fn unmap_segment(&mut self);
    /// The session's counter page with this number, if it has been made.
    fn counter_page(&self, number: usize) -> Option<&CounterPage>;
    /// Writes the words to the session's segment in this slot (0 to segments - 1), from this byte offset on, through the
    /// kernel's own mapping of it: for records that the driver writes. `offset` is a multiple of 8, and the words lie
    /// within the segment. Also from the NMI. Not visible to user space until a quantum names them.
    fn write_record(&mut self, slot: u32, offset: u32, words: &[u64]);
    /// Has a quantum written to this slot (0 to quanta - 1) of the ring, where it is made: it is large. `write` is given what was last
    /// written there, or zeroes, and need not write all of it. Not visible until [`Rings::publish`].
    fn write_quantum(&mut self, slot: u32, write: impl FnOnce(&mut Quantum));
    /// Writes the marker to this slot (0 to markers - 1) of the ring. Not visible until [`Rings::publish`].
    fn write_marker(&mut self, slot: u32, marker: &Marker);
    /// Stores every field of this CPU's status, each with release order, after all bytes it covers.
    fn publish(&mut self, status: &CpuStatus);
    /// Loads this CPU's control page, each field once, with acquire order. Any value may come; this crate clamps it.
    fn control(&mut self) -> CpuControl;
    /// Loads [`CpuControl::rate`] alone.
    fn rate(&mut self) -> u64;
    /// Loads [`CpuControl::pause`] alone, as each cut does.
    fn pause(&mut self) -> u64;
    /// Writes the words to byte `place` of the stack ring, a multiple of 8, which has room for them.
    fn write_stack(&mut self, place: u32, words: &[u64]);
    /// Copies up to `bytes` from the user address `from` of the current thread to byte `place` of the stack ring, without
    /// faulting or sleeping. A page that is not there (never touched, or swapped out) reads zero if one behind it is, and
    /// makes the stack incomplete. `place + bytes` lies within the ring.
    fn copy_stack(&mut self, from: u64, place: u32, bytes: u32) -> Collected;
    /// Follows the frame pointers of the current thread from `rbp` on, without faulting or sleeping, and writes the return
    /// addresses, at most `frames` of 8 bytes, to byte `place` of the stack ring, which has room for them. Each frame holds
    /// the caller's RBP and the return address (System V ABI for AMD64, 3.2.2); the chain ends where RBP is 0.
    fn follow_frames(&mut self, rbp: u64, place: u32, frames: u32) -> Collected;
}
