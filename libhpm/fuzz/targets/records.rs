//! Records of hardware and of the driver: format and size as a quantum gives them, then the bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use libhpm::record::Records;

fuzz_target!(|input: (u16, u16, &[u8])| {
    let (format, size, bytes) = input;
    // Formats are small numbers, but for some: each is met often enough.
    for format in [format % 8, format] {
        let Ok(records) = Records::new(format, size, bytes) else { continue };
        let found = records.count();
        assert!(found <= bytes.len(), "{found} records of {} bytes", bytes.len());
    }
});
