//! What a just-in-time compiler wrote of its code, a line for each function.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for (addresses, _) in libhpm::symbol::perf_map_functions(bytes) {
        assert!(addresses.start < addresses.end, "a function has no code");
    }
});
