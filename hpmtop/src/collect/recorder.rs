//! A recording that is begun from the screen: the rows from then on, and what they refer to from before.

use std::path::PathBuf;
use std::sync::Arc;

use libhpm::source::Sink;
use libhpm::symbol::kernel_symbols;
use libhpm::trace::{
    MapRow, MarkerRow, Meta, Part, QuantumRow, SampleRow, ThreadRow, Totals, TraceError, TraceWriter,
};

use super::present::Present;

/// Writes a trace while it is asked to, and keeps what a recording that begins later refers to.
pub(crate) struct Recorder {
    meta: Meta,
    present: Present,
    writer: Option<(TraceWriter, Arc<PathBuf>)>,
    /// What the recording holds of the session.
    part: Part,
    /// TSC of the last quantum's end.
    last_tsc: u64,
    /// Why a recording ended that nobody has ended.
    failure: Option<String>,
}

impl Recorder {
    pub(crate) fn new(meta: Meta) -> Self {
        Self {
            meta,
            present: Present::default(),
            writer: None,
            part: Part::default(),
            last_tsc: 0,
            failure: None,
        }
    }

    /// What there is now.
    pub(crate) fn present(&self) -> &Present {
        &self.present
    }

    /// The folder being written.
    pub(crate) fn folder(&self) -> Option<Arc<PathBuf>> {
        self.writer.as_ref().map(|(_, folder)| Arc::clone(folder))
    }

    /// Begins a recording, when the session has these sums.
    ///
    /// # Errors
    /// Its folder cannot be written.
    pub(crate) fn begin(&mut self, folder: PathBuf, now: Totals) -> Result<String, TraceError> {
        let mut writer = TraceWriter::create(&folder, self.meta.clone())?;
        if self.meta.events.iter().any(|event| event.kernel) {
            for symbol in kernel_symbols().unwrap_or_default() {
                writer.kernel_symbol(&symbol)?;
            }
        }
        // What was there before is there when the recording begins: its time begins now.
        let tsc = self.last_tsc;
        self.present.maps().try_for_each(|row| writer.map(&MapRow { tsc, ..row.clone() }))?;
        self.present.threads().try_for_each(|row| writer.thread(&ThreadRow { tsc, ..row.clone() }))?;
        self.part = Part::beginning(now);
        let said = format!("recording to {}", folder.display());
        self.writer = Some((writer, Arc::new(folder)));
        Ok(said)
    }

    /// Ends the recording, for which it asks for the session's sums; what it holds.
    ///
    /// # Errors
    /// The rest cannot be written, or there are no sums.
    pub(crate) fn end(
        &mut self,
        now: impl FnOnce() -> libhpm::Result<Totals>,
    ) -> libhpm::Result<Option<String>> {
        let Some((writer, folder)) = self.writer.take() else { return Ok(None) };
        self.part.look(now()?, false);
        let totals = self.part.end();
        let said = format!("{}: {} quanta, {} samples", folder.display(), totals.quanta, totals.records);
        writer.finish(totals)?;
        Ok(Some(said))
    }

    /// Writes what waits for long; why the recording has ended, if it just has.
    pub(crate) fn tick(&mut self) -> Option<String> {
        self.write(|writer| writer.tick());
        self.failure.take()
    }

    /// A recording that cannot be written is given up; the screen goes on.
    fn write(&mut self, write: impl FnOnce(&mut TraceWriter) -> Result<(), TraceError>) {
        if let Some((writer, _)) = &mut self.writer
            && let Err(error) = write(writer)
        {
            self.failure = Some(format!("the recording has ended: {error}"));
            self.writer = None;
        }
    }
}

impl Sink for Recorder {
    fn quantum(&mut self, row: &QuantumRow) -> Result<(), TraceError> {
        self.last_tsc = self.last_tsc.max(row.end_tsc);
        if self.writer.is_some() {
            self.part.add_quantum(row);
            self.write(|writer| writer.quantum(row));
        }
        Ok(())
    }

    fn sample(&mut self, row: &SampleRow) -> Result<(), TraceError> {
        self.write(|writer| writer.sample(row));
        Ok(())
    }

    fn map(&mut self, row: &MapRow) -> Result<(), TraceError> {
        self.present.map(row);
        self.write(|writer| writer.map(row));
        Ok(())
    }

    fn thread(&mut self, row: &ThreadRow) -> Result<(), TraceError> {
        self.present.thread(row);
        self.write(|writer| writer.thread(row));
        Ok(())
    }

    fn marker(&mut self, row: &MarkerRow) -> Result<(), TraceError> {
        self.write(|writer| writer.marker(row));
        Ok(())
    }

    fn stack(&mut self, frames: &[u64], truncated: bool) -> Result<u32, TraceError> {
        let mut number = 0;
        self.write(|writer| writer.stack(frames, truncated).map(|id| number = id));
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use libhpm::trace::{ThreadChange, TraceReader};

    use super::*;

    #[test]
    fn a_recording_that_begins_late_has_what_it_refers_to() {
        let temp = tempfile::tempdir().unwrap();
        let mut recorder = Recorder::new(Meta::default());
        let map = |pid, path: &str| MapRow { pid, path: path.into(), end: 9, ..MapRow::default() };
        let thread = |pid, what: ThreadChange, parent| ThreadRow {
            pid,
            tid: pid,
            parent_pid: parent,
            name: format!("p{pid}"),
            what: what as u8,
            ..ThreadRow::default()
        };
        recorder.thread(&thread(1, ThreadChange::Start, None)).unwrap();
        recorder.map(&map(1, "/bin/a")).unwrap();
        recorder.thread(&thread(2, ThreadChange::Fork, Some(1))).unwrap();
        recorder.map(&map(3, "/bin/gone")).unwrap();
        recorder.thread(&thread(3, ThreadChange::Exit, None)).unwrap();
        recorder.quantum(&QuantumRow { end_tsc: 4, ..QuantumRow::default() }).unwrap();
        let folder = temp.path().join("a.hpm");
        let now = |lost| Totals {
            quanta_lost: lost,
            running_tsc: vec![lost],
            on_cpu_tsc: 2 * lost,
            ..Totals::default()
        };
        recorder.begin(folder.clone(), now(2)).unwrap();
        assert!(recorder.begin(folder.clone(), now(2)).is_err(), "it exists");
        recorder.quantum(&QuantumRow { end_tsc: 5, ..QuantumRow::default() }).unwrap();
        assert!(recorder.end(|| Ok(now(9))).unwrap().unwrap().contains("1 quanta"));
        let reader = TraceReader::open(&folder).unwrap();
        let mut maps: Vec<(u32, String)> = reader.rows::<MapRow>().map(|row| (row.pid, row.path)).collect();
        maps.sort();
        assert_eq!(maps, [(1, "/bin/a".to_owned()), (2, "/bin/a".to_owned())]);
        assert!(reader.rows::<MapRow>().all(|row| row.tsc == 4), "they are there when it begins");
        assert_eq!(reader.rows::<ThreadRow>().count(), 2);
        assert_eq!(reader.rows::<QuantumRow>().count(), 1);
        let totals = reader.meta().totals.clone().unwrap();
        assert_eq!((totals.quanta_lost, totals.running_tsc, totals.on_cpu_tsc), (7, vec![7], 14));
        assert!(reader.meta().complete && recorder.end(|| Ok(now(9))).unwrap().is_none());
    }
}
