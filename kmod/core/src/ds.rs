//! The DS management area: where hardware writes PEBS records (SDM Vol. 3B 18.4.9, layout of 64-bit mode; 20.3.1.1.1).

use super::allocate::Counter;
use super::port::Port;

/// PEBS Buffer Base.
const PEBS_BUFFER_BASE: u32 = 0x20;
/// PEBS Index: where the next record goes; hardware advances it.
const PEBS_INDEX: u32 = 0x28;
/// PEBS Absolute Maximum: the first byte past the buffer.
const PEBS_ABSOLUTE_MAXIMUM: u32 = 0x30;
/// PEBS Interrupt Threshold: the index from which on a PMI is raised.
const PEBS_INTERRUPT_THRESHOLD: u32 = 0x38;
/// PEBS Counter 0 Reset; one 64-bit field for each counter follows. NetBurst has this one only, of 40 bits (18.15.7.3).
pub(super) const PEBS_COUNTER_RESET: u32 = 0x40;

/// The fields that describe the buffer, in their order.
pub(super) const BUFFER: [u32; 4] =
    [PEBS_BUFFER_BASE, PEBS_INDEX, PEBS_ABSOLUTE_MAXIMUM, PEBS_INTERRUPT_THRESHOLD];

/// Byte offset of a counter's reset field. The fixed counters' follow those of 8 general counters, from format 5 on of 32
/// (20.9.1; Linux's `MAX_PEBS_EVENTS_FMT4` and `MAX_PEBS_EVENTS`).
pub(super) const fn reset(format: u16, counter: Counter) -> u32 {
    let general = if format < 5 { 8 } else { 32 };
    let place = match counter.as_fixed() {
        Some(number) => general + number,
        None => counter.place() as u32,
    };
    PEBS_COUNTER_RESET + 8 * place
}

/// How far the current segment of so many bytes is filled, in bytes from its start: whole records, whatever the field holds.
pub(super) fn filled<P: Port>(port: &mut P, record_size: u16, segment_bytes: u32) -> u32 {
    let index = port.ds_read(PEBS_INDEX).saturating_sub(port.pebs_window());
    let bytes = index.min(u64::from(segment_bytes)) as u32;
    bytes - bytes % u32::from(record_size)
}

/// Whether hardware has reached the interrupt threshold.
pub(super) fn threshold_reached<P: Port>(port: &mut P) -> bool {
    port.ds_read(PEBS_INDEX) >= port.ds_read(PEBS_INTERRUPT_THRESHOLD)
}

/// Sets the index to this byte of the window.
pub(super) fn set_index<P: Port>(port: &mut P, offset: u32) {
    let window = port.pebs_window();
    port.ds_write(PEBS_INDEX, window + u64::from(offset));
}

/// Sets the interrupt threshold to this byte of the window.
pub(super) fn set_threshold<P: Port>(port: &mut P, offset: u32) {
    let window = port.pebs_window();
    port.ds_write(PEBS_INTERRUPT_THRESHOLD, window + u64::from(offset));
}

/// Describes the window as a buffer of `bytes`.
pub(super) fn set_buffer<P: Port>(port: &mut P, bytes: u32) {
    let window = port.pebs_window();
    port.ds_write(PEBS_BUFFER_BASE, window);
    port.ds_write(PEBS_ABSOLUTE_MAXIMUM, window + u64::from(bytes));
}
