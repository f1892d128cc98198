//! Quanta as the bytes that they are.

use hpm_abi::Quantum;

/// Words of 8 bytes in a quantum.
pub const QUANTUM_WORDS: usize = size_of::<Quantum>() / 8;
const _: () = assert!(size_of::<Quantum>().is_multiple_of(8) && align_of::<Quantum>() == 8);

/// A quantum's bytes.
#[must_use]
pub fn bytes_of(quantum: &Quantum) -> &[u8] {
    // SAFETY: A quantum is `repr(C)` of integers and arrays of them that leave no padding (hpm_abi asserts its size and places), so that
    // each of its bytes has a value.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(quantum).cast(), size_of::<Quantum>()) }
}

/// The quanta that these words are; what is behind the last whole one is left out.
#[must_use]
pub fn quanta_in(words: &[u64]) -> &[Quantum] {
    let len = words.len() / QUANTUM_WORDS;
    // SAFETY: So many quanta lie within the words, whose alignment is a quantum's; every bit pattern is one.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantum_is_what_its_bytes_say() {
        let mut words: Vec<u64> = (1..=2 * QUANTUM_WORDS as u64 + 3).collect();
        words[1] = 77;
        let quanta = quanta_in(&words);
        assert_eq!((quanta.len(), quanta[0].sequence, quanta[0].start_tsc), (2, 1, 77));
        assert_eq!(quanta[1].sequence, QUANTUM_WORDS as u64 + 1);
        let (bytes, _) = bytes_of(&quanta[1]).as_chunks();
        let again: Vec<u64> = bytes.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect();
        assert_eq!(again, words[QUANTUM_WORDS..2 * QUANTUM_WORDS]);
    }
}
