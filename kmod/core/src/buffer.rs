//! The buffer that hardware fills with records: described by the DS management area, or with architectural PEBS by
//! registers.

use super::ds;
use super::layout::RecordLayout;
use super::port::Port;
use super::registers::{PebsIndex, IA32_PEBS_BASE, IA32_PEBS_INDEX};
use super::segments::Segments;

/// Bytes of a page, of which IA32_PEBS_BASE bits 3:0 say how many the buffer has, as a power of two.
pub(super) const PAGE: u32 = 4096;
/// IA32_PEBS_INDEX counts in units of this many bytes.
const INDEX_UNIT: u32 = 16;

/// Where a segment is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Its physical address, which only architectural PEBS needs.
    pub(super) physical: u64,
    /// Bytes of it that are filled.
    pub(super) filled: u32,
}

/// Makes the segment at this place the buffer. The PMU must be stopped.
pub(super) fn describe<P: Port>(port: &mut P, layout: &RecordLayout, segments: &Segments, place: Place) {
    if layout.is_architectural() {
        let order = (segments.bytes() / PAGE).trailing_zeros();
        port.wrmsr(IA32_PEBS_BASE, place.physical | u64::from(order));
    } else {
        ds::set_buffer(port, segments.capacity(layout.record_size) * u32::from(layout.record_size));
    }
    set_index(port, layout, place.filled);
}

/// How far the segment is filled, in bytes from its start, whatever hardware says: whole records, but for architectural PEBS, whose records
/// say their sizes.
pub(super) fn filled<P: Port>(port: &mut P, layout: &RecordLayout, segments: &Segments) -> u32 {
    if !layout.is_architectural() {
        return ds::filled(port, layout.record_size, segments.bytes());
    }
    let written = PebsIndex(port.rdmsr(IA32_PEBS_INDEX)).wr() as u32 * INDEX_UNIT;
    written.min(segments.bytes())
}

/// Whether hardware has reached the interrupt threshold.
pub(super) fn threshold_reached<P: Port>(port: &mut P, layout: &RecordLayout) -> bool {
    if !layout.is_architectural() {
        return ds::threshold_reached(port);
    }
    let index = PebsIndex(port.rdmsr(IA32_PEBS_INDEX));
    index.wr() >= index.thresh()
}

/// Sets the byte of the segment at which the next record is written.
pub(super) fn set_index<P: Port>(port: &mut P, layout: &RecordLayout, offset: u32) {
    if !layout.is_architectural() {
        return ds::set_index(port, offset);
    }
    let index = PebsIndex(port.rdmsr(IA32_PEBS_INDEX)).with_wr((offset / INDEX_UNIT).into()).with_full(0);
    port.wrmsr(IA32_PEBS_INDEX, index.0);
}

/// Sets the byte of the segment from which on a PMI is raised.
pub(super) fn set_threshold<P: Port>(port: &mut P, layout: &RecordLayout, offset: u32) {
    if !layout.is_architectural() {
        return ds::set_threshold(port, offset);
    }
    let index = PebsIndex(port.rdmsr(IA32_PEBS_INDEX)).with_thresh((offset / INDEX_UNIT).into());
    port.wrmsr(IA32_PEBS_INDEX, index.0);
}
