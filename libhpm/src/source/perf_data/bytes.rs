//! Numbers in bytes, in the order of x86.

/// Two bytes at a place.
pub(super) fn u16_at(bytes: &[u8], place: u64) -> Option<u16> {
    at(bytes, place).map(u16::from_le_bytes)
}

/// Four bytes.
pub(super) fn u32_at(bytes: &[u8], place: u64) -> Option<u32> {
    at(bytes, place).map(u32::from_le_bytes)
}

/// Eight bytes.
pub(super) fn u64_at(bytes: &[u8], place: u64) -> Option<u64> {
    at(bytes, place).map(u64::from_le_bytes)
}

fn at<const N: usize>(bytes: &[u8], place: u64) -> Option<[u8; N]> {
    bytes.get(usize::try_from(place).ok()?..)?.first_chunk().copied()
}
