//! What follows from a session's registers, for whoever loads, reads or explains them.

use super::super::abi::{EventSpec, SessionConfig, SessionFlags, SAMPLING_COUNTERS_MAX, SEGMENT_BYTES};
use super::super::allocate::{Counter, COUNTERS_MAX};
use super::super::buffer::PAGE;
use super::super::events::Way;
use super::super::ibs;
use super::super::turns::Pins;
use super::super::{segments, stacks};
use super::{Program, Samplers, SamplingCounter};

impl Program {
    /// The request, with the driver's defaults in the fields that were 0 for default.
    #[must_use]
    pub const fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// Events of the session.
    #[must_use]
    pub const fn event_count(&self) -> usize {
        self.config.event_count as usize
    }

    /// Whether hardware writes records through the debug store.
    #[must_use]
    pub fn uses_debug_store(&self) -> bool {
        self.pebs.is_some_and(|layout| !layout.is_architectural())
    }

    /// A bit for each event that is for this type of core.
    #[must_use]
    pub const fn events_here(&self) -> u32 {
        self.events_here
    }

    /// A bit for each event that is counted.
    #[must_use]
    pub const fn active(&self) -> u32 {
        self.active
    }

    /// [`super::super::abi::Quantum::active`]: a bit for each event of which nothing is missed, because it is counted, or because only
    /// cores of another type have it.
    #[must_use]
    pub const fn complete(&self) -> u16 {
        self.complete as u16
    }

    /// [`super::super::abi::Quantum::absent`]: a bit for each event that only cores of another type have.
    #[must_use]
    pub const fn absent(&self) -> u16 {
        (self.complete & !self.events_here) as u16
    }

    /// The counter of each sampled event.
    pub(in super::super) fn pins(&self) -> Pins {
        self.assignments.map(|assignment| assignment.sampling)
    }

    /// Whether this event is counted.
    #[must_use]
    pub const fn is_active(&self, event: usize) -> bool {
        self.active >> event & 1 == 1
    }

    /// Whether nothing of this event is missed, as [`Program::complete`] says.
    #[must_use]
    pub const fn is_complete(&self, event: usize) -> bool {
        self.complete >> event & 1 == 1
    }

    /// Whether nobody is told which thread counted what, so that a thread of the session may go on where another left off.
    #[must_use]
    pub const fn only_sums(&self) -> bool {
        self.config.quanta == 0 && self.config.markers == 0 && !self.has_counter_pages()
    }

    /// Whether user space can ask for counter pages.
    #[must_use]
    pub const fn has_counter_pages(&self) -> bool {
        self.config.flags & SessionFlags::COUNTER_PAGES != 0
    }

    /// Whether an event is sampled.
    #[must_use]
    pub const fn samples(&self) -> bool {
        self.records.is_some()
    }

    /// Whether hardware writes the records (PEBS).
    #[must_use]
    pub const fn is_precise(&self) -> bool {
        self.pebs_enable != 0
    }

    /// IA32_PEBS_ENABLE while no records can be written: the tags that NetBurst's events count.
    pub(in super::super) fn unarmed_pebs_enable(&self) -> u64 {
        self.netburst.pebs_enable.into()
    }

    /// Whether instruction-based sampling writes the records' registers.
    #[must_use]
    pub fn uses_ibs(&self) -> bool {
        self.way == Some(Way::Ibs)
    }

    /// [`Program::global_ctrl`] without IBS.
    pub(in super::super) fn global_ctrl_unarmed(&self) -> u64 {
        let samplers = ibs::SAMPLERS.iter().filter(|_| self.uses_ibs());
        samplers.fold(self.global_ctrl, |bits, sampler| bits & !(1 << sampler.bit()))
    }

    /// Whether something of an event is missed, so that its time has to be told.
    pub(in super::super) const fn misses(&self) -> bool {
        self.complete != (1 << self.config.event_count) - 1
    }

    /// Whether the period of an event is adapted to a rate.
    pub(in super::super) const fn adapts(&self) -> bool {
        self.records_a_look != u64::MAX
    }

    /// Records after which intervals are drawn anew, at the cut that ends them; `u64::MAX` where none are drawn.
    pub(in super::super) const fn records_a_draw(&self) -> u64 {
        self.records_a_draw
    }

    /// Whether its counters stand still while the kernel works, and hardware writes no record then, so that they need not be stopped
    /// while hpm looks at them, nor before a thread that never leaves the kernel: they count user mode alone, and one of them writes
    /// records, where it may.
    #[must_use]
    pub const fn rests_in_kernel(&self) -> bool {
        self.rests && !self.hides
    }

    /// Whether each cut, switch and PMI stops its counters, and then says anew which of them run, over what somebody else may have written.
    pub(in super::super) const fn restarts_at_cuts(&self) -> bool {
        self.samples() && !self.rests_in_kernel()
    }

    /// Whether this event counts at CPL 3, and at CPL 0.
    pub(in super::super) fn levels(&self, event: usize) -> (bool, bool) {
        let privilege = self.config.events[event].privilege;
        (privilege & EventSpec::USER != 0, privilege & EventSpec::KERNEL != 0)
    }

    /// Bits of a sampler's control register beside its counts.
    pub(in super::super) fn ibs_control(&self, sampler: Counter) -> u64 {
        let mut bits = self.ibs.iter().zip(ibs::SAMPLERS);
        bits.find(|(_, counter)| *counter == sampler).map_or(0, |(bits, _)| *bits)
    }

    /// Whether this event counts at CPL 0.
    pub(in super::super) fn event_sees_kernel(&self, event: usize) -> bool {
        self.config.events[event].privilege & EventSpec::KERNEL != 0
    }

    /// Whether the session has branches recorded.
    #[must_use]
    pub const fn records_branches(&self) -> bool {
        self.branches.is_some()
    }

    /// Whether each thread's calls are followed by branch records, so that they must be kept while it does not run
    /// ([`super::super::Threads::with_calls`]).
    #[must_use]
    pub fn follows_calls(&self) -> bool {
        self.branches.is_some_and(|branches| branches.calls())
    }

    /// Whether an event counts at CPL 0.
    #[must_use]
    pub fn sees_kernel(&self) -> bool {
        self.config.events.iter().any(|event| event.privilege & EventSpec::KERNEL != 0)
    }

    /// From now on the session sees user mode only: [`super::super::Rings::map_segment`] must put memory into the window that
    /// user space never maps, from which records are moved into the session's segments without those of kernel mode.
    pub fn hide_kernel(&mut self) {
        self.hides = self.pebs.is_some();
    }

    /// Whether hardware must write the records into memory that user space never maps ([`Program::hide_kernel`]).
    #[must_use]
    pub const fn hides_kernel(&self) -> bool {
        self.hides
    }

    /// Bytes of the largest segments, up to `most`, that the session may have; to be asked once it is known whether it sees the kernel. Where
    /// the driver looks at each record, or wants an interrupt after each, no more than [`SEGMENT_BYTES`]: what it does in one interrupt
    /// must be bounded. Nor where hardware fills less than that ([`Program::filled_bytes`]).
    #[must_use]
    pub fn largest_segment(&self, most: u32) -> u32 {
        let looks = self.hides_kernel() || self.has_several_samplers() || stacks::bytes_wanted(self) > 0;
        match &self.pebs {
            Some(layout) if !looks && !self.fills_a_page => {
                segments::largest(self.config.segments, most, layout.is_architectural())
            }
            _ => SEGMENT_BYTES,
        }
    }

    /// Has the session's memory divided into segments of so many bytes.
    pub fn set_segment_bytes(&mut self, bytes: u32) {
        self.config.segment_bytes = bytes;
    }

    /// Bytes of each segment that are filled with records: all, or the first page where hardware's buffer must not be larger
    /// ([`super::super::pmu::Quirks::one_page_of_records`]).
    #[must_use]
    pub const fn filled_bytes(&self) -> u32 {
        if self.fills_a_page {
            PAGE
        } else {
            self.config.segment_bytes
        }
    }

    /// The counters whose overflows are sampled.
    pub fn sampling_counters(&self) -> impl Iterator<Item = &SamplingCounter> + '_ {
        self.sampling.get(..self.sampling_count.into()).unwrap_or_default().iter()
    }

    /// Records after which the wished rates should be looked at again, if they have not been before: those of a quarter of a second.
    /// `u64::MAX` where a period does not adapt.
    pub(in super::super) const fn records_a_look(&self) -> u64 {
        self.records_a_look
    }

    /// Whether more than one counter writes records, so that a record must be asked which it is for.
    pub(in super::super) const fn has_several_samplers(&self) -> bool {
        self.sampling_count > 1
    }

    /// A bit for each counter that writes records, at its place in IA32_PERF_GLOBAL_STATUS.
    pub(in super::super) fn sampling_bits(&self) -> u64 {
        self.sampling_counters().fold(0, |bits, sampler| bits | 1 << sampler.counter.bit())
    }

    /// The counter that counts this event, if not its sampling counter does.
    #[must_use]
    pub fn counting_counter(&self, event: usize) -> Option<Counter> {
        self.assignments[event].counting
    }

    /// Counters that are read at each cut: all that count, and those that write records for an event without a second
    /// counter.
    pub fn read_counters(&self) -> impl Iterator<Item = Counter> + '_ {
        let mut left = self.reads;
        core::iter::from_fn(move || {
            let place = left.trailing_zeros() as usize;
            left &= left.wrapping_sub(1);
            (place < COUNTERS_MAX).then_some(Counter::at(place))
        })
    }

    /// Writes [`super::super::abi::Quantum::periods`]: those of the events that are sampled on this type of core.
    pub(in super::super) fn show(
        &self,
        periods: &[u64; SAMPLING_COUNTERS_MAX],
        shown: &mut [u64; SAMPLING_COUNTERS_MAX],
    ) {
        *shown = [0; SAMPLING_COUNTERS_MAX];
        for place in self.sampling_counters().map(|sampler| usize::from(sampler.place)) {
            shown[place] = periods[place];
        }
    }

    /// [`super::super::abi::Quantum::counter_event`] and [`super::super::abi::Quantum::sampler_counter`].
    #[must_use]
    pub const fn samplers(&self) -> Samplers {
        self.samplers
    }
}
