//! A file of `perf record`, made into a trace that is then read.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use libhpm::source::perf_data::import;
use libhpm::trace::{MapRow, QuantumRow, SampleRow, StackRow, ThreadRow, TraceReader, verify};

fuzz_target!(|bytes: &[u8]| {
    let Ok(temp) = tempfile::tempdir_in("/dev/shm") else { return };
    let (file, folder) = (temp.path().join("perf.data"), temp.path().join("t.hpm"));
    if fs::write(&file, bytes).is_err() || import(&file, &folder).is_err() {
        return;
    }
    let reader = TraceReader::open(&folder).expect("what was imported is a trace");
    let _ = verify(&reader);
    reader.rows::<SampleRow>().for_each(drop);
    reader.rows::<StackRow>().for_each(drop);
    reader.rows::<QuantumRow>().for_each(drop);
    reader.rows::<MapRow>().for_each(drop);
    reader.rows::<ThreadRow>().for_each(drop);
});
