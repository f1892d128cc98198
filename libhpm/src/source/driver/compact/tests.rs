use proptest::prelude::*;

use super::*;

/// Any quantum as words, without where its records and its stack were.
fn quantum() -> impl Strategy<Value = Quantum> {
    let common = (0..4_u64, any::<[u64; COMMON]>(), 0..20_u32, any::<[bool; SAMPLING_COUNTERS_MAX]>());
    let own = (any::<[u64; OWN]>(), any::<[u64; EVENTS_MAX]>(), any::<[u64; SAMPLING_COUNTERS_MAX]>());
    (common, own).prop_map(|((sequence, words, count_len, serves), (own, counts, periods))| {
        // Few kinds, so that some quanta have the same.
        let kind = words[0] % 3;
        let mut quantum = common_to(&words.map(|_| kind));
        set_own(&mut quantum, &own);
        (quantum.sequence, quantum.count_len) = (sequence, if kind == 0 { 2 } else { count_len });
        for (place, serves) in serves.into_iter().enumerate() {
            let serves = if kind == 0 { place == 1 } else { serves };
            quantum.counter_event[place] = if serves { place as u8 } else { NO_EVENT };
        }
        (quantum.counts, quantum.periods) = (counts, periods);
        quantum
    })
}

/// What of a quantum is asked for later.
pub(in crate::source::driver) fn needed(quantum: &Quantum) -> Quantum {
    let mut needed = *quantum;
    let counts = EVENTS_MAX.min(quantum.count_len as usize);
    needed.counts[counts..].fill(0);
    for (period, event) in needed.periods.iter_mut().zip(quantum.counter_event) {
        *period = if event == NO_EVENT { 0 } else { *period };
    }
    (needed.segment, needed.span_offset, needed.stack_offset) = (0, 0, 0);
    needed
}

proptest! {
    #[test]
    fn what_is_needed_of_quanta_comes_back(mut quanta in prop::collection::vec(quantum(), 0..9), place: u64) {
        // They lay anywhere.
        quanta.iter_mut().for_each(|quantum| (quantum.segment, quantum.stack_offset) = (place, place));
        // Often one behind the other.
        for number in 1..quanta.len() {
            if quanta[number].sequence != 0 {
                quanta[number].sequence = quanta[number - 1].sequence + 1;
            }
        }
        let mut back = Vec::new();
        for frame in quanta.chunk_by(goes_on) {
            let mut words = Vec::new();
            pack(frame, &mut words);
            let unpacked: Vec<Quantum> = unpack(&words).unwrap().collect();
            prop_assert_eq!(unpacked.len(), frame.len());
            back.extend(unpacked);
            // Other words are others, or none.
            for len in 0..words.len() {
                let fewer = unpack(&words[..len]).map_or(0, Iterator::count);
                prop_assert!(fewer < frame.len() || frame.is_empty());
            }
        }
        prop_assert_eq!(back, quanta.iter().map(needed).collect::<Vec<_>>());
    }

    #[test]
    fn no_words_are_too_odd(words: Vec<u64>) {
        let count = unpack(&words).map_or(0, Iterator::count);
        prop_assert!(count <= words.len() / OWN);
    }
}

#[test]
fn a_quantum_of_one_event_takes_a_cache_line() {
    let mut quantum = common_to(&[0; COMMON]);
    (quantum.count_len, quantum.counter_event) =
        (1, std::array::from_fn(|place| if place == 0 { 0 } else { NO_EVENT }));
    let mut packed = Vec::new();
    pack(&[quantum; 5], &mut packed);
    assert_eq!(packed.len(), COMMON + 5 * 8);
}
