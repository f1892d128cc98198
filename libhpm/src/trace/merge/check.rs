//! What cannot be merged, found before a folder is made.

use crate::trace::{
    AllocationRow, Cut, MarkerRow, Meta, QuantumRow, Row, SampleRow, TraceError, TraceReader,
};

/// Refuses what would become a trace that misleads: the same recording twice, whose events would count twice, one whose times cannot be
/// placed among those of others, and traces in which there is nothing.
///
/// # Errors
/// [`TraceError::Twice`], [`TraceError::Clockless`], [`TraceError::Unreadable`] or [`TraceError::Nothing`].
pub(super) fn check(readers: &[&TraceReader]) -> Result<(), TraceError> {
    for (place, &reader) in readers.iter().enumerate() {
        if let Some(other) = readers[..place].iter().find(|other| same(other, reader)) {
            let (one, other) = (other.name().to_owned(), reader.name().to_owned());
            return Err(TraceError::Twice { one, other });
        }
    }
    let held = readers.iter().map(|reader| holds(reader)).collect::<Result<Vec<bool>, _>>()?;
    let clockless = |reader: &TraceReader| readers.len() > 1 && reader.meta().clock.pairs.is_empty();
    if let Some((reader, _)) = readers.iter().zip(&held).find(|(reader, held)| **held && clockless(reader)) {
        return Err(TraceError::Clockless(reader.name().to_owned()));
    }
    match readers.first() {
        Some(first) if !held.contains(&true) => Err(TraceError::Nothing(first.name().to_owned())),
        _ => Ok(()),
    }
}

/// Whether two folders are one, or hold copies of one recording: no two have the same description, clock and first rows.
fn same(one: &TraceReader, other: &TraceReader) -> bool {
    let place = |reader: &TraceReader| reader.folder().canonicalize().ok();
    let first =
        |reader: &TraceReader| (reader.rows::<QuantumRow>().next(), reader.rows::<SampleRow>().next());
    // Reading goes no further than to the first difference.
    place(one).is_some_and(|folder| place(other) == Some(folder))
        || described(one.meta()) == described(other.meta())
            && first(one) != (None, None)
            && first(one) == first(other)
}

/// What two recordings cannot have in common with their first rows. How far each was written is no part of it.
fn described(meta: &Meta) -> (&str, Option<&super::ClockPair>, &[String], &[super::Merged]) {
    (&meta.machine.host_name, meta.clock.pairs.first(), &meta.command, &meta.merged)
}

/// Whether a trace has rows to merge.
fn holds(reader: &TraceReader) -> Result<bool, TraceError> {
    let mut cuts = Vec::new();
    let found = [
        any::<QuantumRow>(reader, &mut cuts),
        any::<SampleRow>(reader, &mut cuts),
        any::<MarkerRow>(reader, &mut cuts),
        reader.has::<AllocationRow>() && any::<AllocationRow>(reader, &mut cuts),
    ];
    match cuts.into_iter().next() {
        Some(cut) if !found.contains(&true) => {
            Err(TraceError::Unreadable { path: reader.name().to_owned(), cut })
        }
        _ => Ok(found.contains(&true)),
    }
}

fn any<R: Row>(reader: &TraceReader, cuts: &mut Vec<Cut>) -> bool {
    let mut rows = reader.rows::<R>();
    let found = rows.next().is_some();
    if !found {
        cuts.extend(rows.cut());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::BranchType;
    use crate::trace::{Allocations, ClockPair, Event, Totals, TraceWriter, merge, verify};
    use std::path::{Path, PathBuf};

    /// A trace of so many quanta from this time on.
    fn write(folder: PathBuf, quanta: u64, start: u64) -> TraceReader {
        write_as(Meta::default(), folder, quanta, start)
    }

    fn write_as(mut meta: Meta, folder: PathBuf, quanta: u64, start: u64) -> TraceReader {
        meta.clock.pairs = vec![ClockPair { tsc: start, monotonic_raw_ns: start, realtime_ns: start }];
        let mut writer = TraceWriter::create(&folder, meta).unwrap();
        for sequence in 0..quanta {
            let row = QuantumRow { sequence, start_tsc: start, end_tsc: start, ..QuantumRow::default() };
            writer.quantum(&row).unwrap();
            writer.flush().unwrap();
        }
        writer.finish(Totals::default()).unwrap();
        TraceReader::open(folder).unwrap()
    }

    /// Two with quanta, and one without.
    fn three(folder: &Path) -> [TraceReader; 3] {
        [("a.hpm", 3, 1000), ("b.hpm", 3, 2000), ("c.hpm", 0, 3000)]
            .map(|(name, quanta, start)| write(folder.join(name), quanta, start))
    }

    fn cut(folder: &Path, table: &str, bytes: u64) {
        let file = std::fs::File::options().write(true).open(folder.join(table)).unwrap();
        file.set_len(bytes).unwrap();
    }

    #[test]
    fn the_same_trace_is_not_merged_twice() {
        let temp = tempfile::tempdir().unwrap();
        let a = write(temp.path().join("a.hpm"), 3, 1000);
        let copy = write(temp.path().join("copy.hpm"), 3, 1000);
        let other = write(temp.path().join("b.hpm"), 3, 2000);
        let folder = temp.path().join("m.hpm");
        for again in [&a, &copy] {
            let error = merge(&[&a, &other, again], &folder).unwrap_err().to_string();
            assert!(error.contains("counted twice; name it once"), "{error}");
        }
        assert!(!folder.exists());
        assert_eq!(merge(&[&a, &other], &folder).unwrap().rows, (6, 0));
    }

    #[test]
    fn a_trace_whose_clock_stands_alone_is_not_placed_among_others() {
        let temp = tempfile::tempdir().unwrap();
        let a = write(temp.path().join("a.hpm"), 3, 1000);
        let mut writer = TraceWriter::create(temp.path().join("b.hpm"), Meta::default()).unwrap();
        writer.quantum(&QuantumRow { end_tsc: 5, ..QuantumRow::default() }).unwrap();
        writer.finish(Totals::default()).unwrap();
        let alone = TraceReader::open(temp.path().join("b.hpm")).unwrap().called("b.data");
        let folder = temp.path().join("m.hpm");
        let error = merge(&[&a, &alone], &folder).unwrap_err().to_string();
        assert!(error.starts_with("b.data does not say how its clock stands"), "{error}");
        assert_eq!(merge(&[&alone], &folder).unwrap().merged[0].folder, "b.data");
    }

    #[test]
    fn a_trace_in_which_nothing_can_be_read_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let [a, b, empty] = three(temp.path());
        let folder = temp.path().join("m.hpm");
        cut(b.folder(), "quanta.arrows", 20);
        let error = merge(&[&a, &b], &folder).unwrap_err().to_string();
        assert!(error.contains("b.hpm") && error.contains("leave it out"), "{error}");
        let error = merge(&[&empty], &folder).unwrap_err().to_string();
        assert!(error.contains("no quantum and no sample"), "{error}");
        assert!(!folder.exists());
    }

    #[test]
    fn what_was_recorded_in_different_ways_is_told() {
        let temp = tempfile::tempdir().unwrap();
        let merged = |ways: &[(u64, Option<Vec<BranchType>>)]| {
            let temp = tempfile::tempdir_in(temp.path()).unwrap();
            let traces: Vec<TraceReader> = (1..)
                .zip(ways)
                .map(|(number, (sampled_bytes, branches))| {
                    let how =
                        Allocations { sampled_bytes: *sampled_bytes, processes: 1, ..Allocations::default() };
                    let (source, branches) = ("driver".into(), branches.clone());
                    let meta = Meta { source, branches, allocations: Some(how), ..Meta::default() };
                    write_as(meta, temp.path().join(format!("{number}.hpm")), 1, number * 1000)
                })
                .collect();
            let folder = temp.path().join("m.hpm");
            merge(&traces.iter().collect::<Vec<_>>(), &folder).unwrap();
            let meta = TraceReader::open(&folder).unwrap().meta().clone();
            (meta.allocations.unwrap().uneven, meta.branches)
        };
        let (all, call) = (Some(BranchType::ALL.to_vec()), Some(vec![BranchType::Call]));
        let none = Some(Vec::new());
        assert_eq!(merged(&[(512, all.clone()), (512, call.clone())]), (false, call));
        assert_eq!(merged(&[(512, none), (0, all.clone())]), (true, all.clone()));
        assert_eq!(merged(&[(0, all), (0, None)]), (false, None));
    }

    #[test]
    fn traces_of_one_cpu_are_numbered_by_time_and_gaps_stay() {
        let temp = tempfile::tempdir().unwrap();
        let write = |name: &str, rows: [(u64, u64); 3]| {
            let mut meta = Meta { events: vec![Event::default()], ..Meta::default() };
            meta.clock.tsc_khz = 1_000_000;
            let now = rows[0].1;
            meta.clock.pairs = vec![ClockPair { tsc: now, monotonic_raw_ns: now, realtime_ns: now }];
            let folder = temp.path().join(name);
            let mut writer = TraceWriter::create(&folder, meta).unwrap();
            for (sequence, tsc) in rows {
                let row = QuantumRow {
                    sequence,
                    start_tsc: tsc - 5,
                    end_tsc: tsc,
                    counts: vec![0],
                    periods: vec![0],
                    ..QuantumRow::default()
                };
                writer.quantum(&row).unwrap();
                writer.sample(&SampleRow { quantum: sequence, tsc, ..SampleRow::default() }).unwrap();
            }
            writer.finish(Totals { quanta: 3, records: 3, ..Totals::default() }).unwrap();
            TraceReader::open(folder).unwrap()
        };
        // Side by side, and of the second one three quanta were lost.
        let (a, b) = (
            write("a.hpm", [(0, 1000), (1, 1020), (2, 1040)]),
            write("b.hpm", [(0, 1001), (4, 1021), (5, 1041)]),
        );
        for (number, order) in [[&b, &a], [&a, &b]].iter().enumerate() {
            let folder = temp.path().join(format!("{number}.hpm"));
            merge(order, &folder).unwrap();
            let merged = TraceReader::open(&folder).unwrap();
            assert!(verify(&merged).is_good(), "{:?}", verify(&merged));
            let quanta: Vec<u64> = merged.rows::<QuantumRow>().map(|row| row.sequence).collect();
            assert_eq!(quanta, [0, 1, 2, 6, 7, 8]);
            let samples: Vec<u64> = merged.rows::<SampleRow>().map(|row| row.quantum).collect();
            assert_eq!(samples, quanta, "each names its own");
        }
    }

    #[test]
    fn a_merged_trace_says_what_its_own_lacked() {
        let temp = tempfile::tempdir().unwrap();
        let [a, b, empty] = three(temp.path());
        let length = b.folder().join("quanta.arrows").metadata().unwrap().len();
        cut(b.folder(), "quanta.arrows", length * 2 / 3);
        let folder = temp.path().join("m.hpm");
        let outcome = merge(&[&a, &b, &empty], &folder).unwrap();
        let merged = TraceReader::open(&folder).unwrap();
        let missing = &merged.meta().missing;
        assert!(missing.len() == 1 && missing[0].contains("b.hpm: the table `quanta`"), "{missing:?}");
        assert!(outcome.notes.contains(&missing[0]) && !verify(&merged).is_good());
        assert!(outcome.notes.iter().any(|note| note.contains("c.hpm holds nothing")), "{outcome:?}");
    }
}
