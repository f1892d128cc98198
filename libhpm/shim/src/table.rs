//! Functions by address: which are logged. Filled once for each function, then only read.

use std::sync::atomic::{AtomicU64, Ordering};

/// Places, a power of two. Functions that find none are decided anew each time.
const PLACES: usize = 1 << 17;
/// Places that are looked at from the one where a function belongs.
const PROBES: usize = 64;
const LOGGED: u64 = 1 << 62;
const SKIPPED: u64 = 1 << 63;
const ADDRESS: u64 = LOGGED - 1;

static TABLE: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// Places for a function, the first one where it belongs.
fn places(address: u64) -> impl Iterator<Item = &'static AtomicU64> {
    // Fibonacci hashing (Knuth, The Art of Computer Programming, 6.4).
    let first = (address.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 47) as usize;
    (0..PROBES).map(move |probe| &TABLE[(first + probe) % PLACES])
}

/// Whether a function is logged; `None` when that has not been decided.
#[inline]
pub(crate) fn decision(address: u64) -> Option<bool> {
    for place in places(address) {
        let entry = place.load(Ordering::Relaxed);
        if entry & ADDRESS == address {
            return Some(entry & LOGGED != 0);
        }
        if entry == 0 {
            return None;
        }
    }
    None
}

/// Remembers a decision.
pub(crate) fn decide(address: u64, logged: bool) {
    let entry = address & ADDRESS | if logged { LOGGED } else { SKIPPED };
    for place in places(address) {
        match place.compare_exchange(0, entry, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(other) if other & ADDRESS == address & ADDRESS => {
                place.store(entry, Ordering::Relaxed);
                return;
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions_are_remembered() {
        assert_eq!(decision(0x1234), None);
        for function in 0..1000 {
            decide(0x5555_0000_0000 + 16 * function, function % 3 == 0);
        }
        for function in 0..1000 {
            assert_eq!(decision(0x5555_0000_0000 + 16 * function), Some(function % 3 == 0));
        }
        assert_eq!(decision(0x5555_0000_0008), None);
    }
}
