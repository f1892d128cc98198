//! A trace of which one file is damaged, or whose rows wait in a file that is: the first byte says which, the rest is its content.
#![no_main]

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use libhpm::trace::{
    MapRow, Meta, QuantumRow, SampleRow, StackRow, ThreadRow, TraceReader, TraceWriter, verify,
};

/// What was reported and has not become rows.
const DEFERRED: &str = "deferred.raw";

/// The files of a small trace, in the order of their names.
fn whole() -> &'static [(String, Vec<u8>)] {
    static FILES: OnceLock<Vec<(String, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        let temp = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let folder = temp.path().join("t.hpm");
        let mut writer = TraceWriter::create(&folder, Meta::default()).expect("a trace");
        let stack = writer.stack(&[0x1000, 0x2000], false).expect("a stack");
        writer.quantum(&QuantumRow { counts: vec![7], ..QuantumRow::default() }).expect("a quantum");
        writer.sample(&SampleRow { stack: Some(stack), ..SampleRow::default() }).expect("a sample");
        drop(writer);
        let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(&folder)
            .expect("the folder")
            .flatten()
            .map(|entry| {
                (entry.file_name().to_string_lossy().into_owned(), fs::read(entry.path()).expect("a file"))
            })
            .collect();
        files.sort();
        // Where it is not the damaged one there is none.
        files.push((DEFERRED.to_owned(), Vec::new()));
        files
    })
}

fn read(folder: &Path) {
    let Ok(reader) = TraceReader::open(folder) else { return };
    let _ = verify(&reader);
    reader.rows::<SampleRow>().for_each(drop);
    reader.rows::<StackRow>().for_each(drop);
    reader.rows::<QuantumRow>().for_each(drop);
    reader.rows::<MapRow>().for_each(drop);
    reader.rows::<ThreadRow>().for_each(drop);
}

fuzz_target!(|bytes: &[u8]| {
    let Some((which, content)) = bytes.split_first() else { return };
    let Ok(temp) = tempfile::tempdir_in("/dev/shm") else { return };
    let damaged = usize::from(*which) % whole().len();
    for (place, (name, whole)) in whole().iter().enumerate() {
        let content = if place == damaged { content } else { whole };
        if place != damaged && name == DEFERRED {
            continue;
        }
        if fs::write(temp.path().join(name), content).is_err() {
            return;
        }
    }
    read(temp.path());
});
