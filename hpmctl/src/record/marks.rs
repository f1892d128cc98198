//! Markers from scripts: a line `NAME [VALUE]` on a pipe is a marker of the moment at which it is read.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use libhpm::source::Sink;
use libhpm::trace::MarkerRow;
use nix::fcntl::OFlag;

use crate::mark;

use crate::output::{counted, say};

/// A longer line is no marker; its rest is not kept.
const LINE_MAX: usize = 256;
/// Bytes that are read at a time.
const CHUNK: usize = 64 * 1024;
/// Chunks that are read before the source is looked at again: a writer that never pauses must not hold the recording up.
const CHUNKS: usize = 16;

/// The pipe and what has come through it.
pub(super) struct MarkPipe {
    /// As it was named.
    name: String,
    pipe: File,
    /// The beginning of a line whose end has not come yet.
    begun: Vec<u8>,
    markers: u64,
    bad: u64,
}

impl MarkPipe {
    /// Opens a named pipe, or the pipe that this process has as the descriptor with this number.
    ///
    /// # Errors
    /// There is none, or it is something else than a pipe.
    pub(super) fn open(name: &str) -> Result<Self> {
        let number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let path = if number { PathBuf::from("/proc/self/fd").join(name) } else { name.into() };
        let kind = match std::fs::metadata(&path) {
            Ok(metadata) => metadata.file_type(),
            Err(error) if error.kind() == ErrorKind::NotFound && number => bail!(
                "--marks {name}: descriptor {name} is not open: open one with `{name}<>PIPE` in the shell, or name the pipe"
            ),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("--marks {name}: there is no such pipe; `mkfifo {name}` makes one")
            }
            Err(error) => return Err(error).with_context(|| format!("--marks {name}")),
        };
        if !kind.is_fifo() {
            bail!("--marks {name}: it is no pipe; `mkfifo` makes one");
        }
        // Open for writing too, it has no end when a writer goes, and none has to be there yet.
        let pipe =
            OpenOptions::new().read(true).write(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path);
        let pipe = pipe.with_context(|| format!("--marks {name}: it cannot be opened"))?;
        Ok(Self { name: name.into(), pipe, begun: Vec::new(), markers: 0, bad: 0 })
    }

    /// Becomes readable when lines come.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }

    /// Hands over the lines that are there, as markers at the time that `now` says.
    ///
    /// # Errors
    /// The pipe cannot be read, or the sink fails.
    pub(super) fn take(&mut self, now: impl Fn() -> u64, sink: &mut dyn Sink) -> Result<()> {
        let mut chunk = [0; CHUNK];
        for _ in 0..CHUNKS {
            match self.pipe.read(&mut chunk) {
                Ok(0) => return Ok(()),
                Ok(length) => self.lines(&chunk[..length], now(), sink)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).with_context(|| format!("cannot read {}", self.name)),
            }
        }
        Ok(())
    }

    fn lines(&mut self, bytes: &[u8], now: u64, sink: &mut dyn Sink) -> Result<()> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, whole) = piece.strip_suffix(b"\n").map_or((piece, false), |text| (text, true));
            // One byte more than fits says that it is too long.
            let room = (LINE_MAX + 1).saturating_sub(self.begun.len());
            self.begun.extend_from_slice(&text[..text.len().min(room)]);
            if whole {
                let line = std::mem::take(&mut self.begun);
                self.line(&line, now, sink)?;
            }
        }
        Ok(())
    }

    fn line(&mut self, line: &[u8], tsc: u64, sink: &mut dyn Sink) -> Result<()> {
        match parse(line) {
            Ok(None) => {}
            Ok(Some((name, value))) => {
                self.markers += 1;
                // Whose it is a pipe does not say.
                let row = MarkerRow { tsc, pid: None, tid: None, text: name, value: Some(value) };
                sink.marker(&row)?;
            }
            Err(reason) => {
                self.bad += 1;
                if self.bad == 1 {
                    say(format_args!(
                        "{}: not a marker: {reason}; a line is NAME [VALUE] (more such lines are only counted)",
                        self.name
                    ));
                }
            }
        }
        Ok(())
    }

    /// Takes what is left, a last line without its end included, and says what has come.
    ///
    /// # Errors
    /// As [`MarkPipe::take`].
    pub(super) fn finish(mut self, now: impl Fn() -> u64, sink: &mut dyn Sink) -> Result<String> {
        self.take(&now, sink)?;
        let rest = std::mem::take(&mut self.begun);
        self.line(&rest, now(), sink)?;
        let bad = match self.bad {
            0 => String::new(),
            1 => ", 1 line was not understood".into(),
            bad => format!(", {bad} lines were not understood"),
        };
        Ok(format!("{} read from the pipe {}{bad}", counted(self.markers, "marker"), self.name))
    }
}

/// `NAME [VALUE]`; nothing for an empty line.
fn parse(line: &[u8]) -> Result<Option<(String, u64)>, String> {
    if line.len() > LINE_MAX {
        return Err(format!("a line has more than {LINE_MAX} bytes"));
    }
    let line = std::str::from_utf8(line).map_err(|_| "a line is no UTF-8".to_owned())?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let (name, value) = match words[..] {
        [] => return Ok(None),
        [name] => (name, "0"),
        [name, value] => (name, value),
        _ => return Err(format!("`{}` has more than two words", line.trim())),
    };
    let name = mark::name(name).map_err(|reason| format!("the name `{name}` has {reason}"))?;
    let value = value.parse().map_err(|_| format!("`{value}` is no whole number from 0 to 2^64 - 1"))?;
    Ok(Some((name, value)))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use libhpm::trace::TraceError;
    use nix::sys::stat::Mode;
    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct Kept(Vec<(u64, String, Option<u64>)>);

    impl Sink for Kept {
        fn marker(&mut self, row: &MarkerRow) -> Result<(), TraceError> {
            assert_eq!((row.pid, row.tid), (None, None));
            self.0.push((row.tsc, row.text.clone(), row.value));
            Ok(())
        }
    }

    fn pipe() -> (tempfile::TempDir, MarkPipe, File) {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("marks");
        nix::unistd::mkfifo(&path, Mode::S_IRWXU).unwrap();
        let pipe = MarkPipe::open(path.to_str().unwrap()).unwrap();
        let writer = OpenOptions::new().write(true).open(&path).unwrap();
        (temp, pipe, writer)
    }

    #[test]
    fn lines_are_markers_of_the_time_at_which_they_are_read() {
        let (_temp, mut pipe, mut writer) = pipe();
        let mut kept = Kept::default();
        pipe.take(|| 1, &mut kept).unwrap();
        writer.write_all(b"begin\n\n  round 7 \nro").unwrap();
        pipe.take(|| 2, &mut kept).unwrap();
        writer.write_all(b"und 8\nend").unwrap();
        // A pipe without writers has not ended.
        drop(writer);
        pipe.take(|| 3, &mut kept).unwrap();
        let said = pipe.finish(|| 4, &mut kept).unwrap();
        let expected = [(2, "begin", 0), (2, "round", 7), (3, "round", 8), (4, "end", 0)];
        assert_eq!(kept.0, expected.map(|(tsc, name, value)| (tsc, name.to_owned(), Some(value))));
        assert!(said.starts_with("4 markers read from the pipe /") && said.ends_with("/marks"), "{said}");
    }

    #[test]
    fn what_is_no_marker_is_counted() {
        let (_temp, mut pipe, mut writer) = pipe();
        let mut kept = Kept::default();
        for line in
            [&b"a b c"[..], b"a -1", b"a 1.5", b"\xff", b"a_name_with_more_than_24_bytes", &[b'x'; 9999]]
        {
            writer.write_all(line).unwrap();
            writer.write_all(b"\nok 1\n").unwrap();
        }
        pipe.take(|| 1, &mut kept).unwrap();
        assert_eq!((kept.0.len(), pipe.bad), (6, 6));
        assert!(pipe.finish(|| 1, &mut kept).unwrap().ends_with(", 6 lines were not understood"));
    }

    #[test]
    fn what_is_no_pipe_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let refused = |name: &str| MarkPipe::open(name).err().map(|error| format!("{error:#}")).unwrap();
        let missing = temp.path().join("marks");
        assert!(refused(missing.to_str().unwrap()).contains("there is no such pipe; `mkfifo "));
        assert!(refused(temp.path().to_str().unwrap()).contains("it is no pipe"));
        assert!(refused("99999").contains("descriptor 99999 is not open"));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_lines_are_cut(lines in "([a-z]{0,30}( [0-9]{1,25})?\n){0,20}", cuts in prop::collection::vec(1..50_usize, 1..20)) {
            let feed = |sizes: &mut dyn Iterator<Item = usize>| {
                let (_temp, mut pipe, _writer) = pipe();
                let mut kept = Kept::default();
                let mut rest = lines.as_bytes();
                while !rest.is_empty() {
                    let (piece, left) = rest.split_at(sizes.next().unwrap_or(usize::MAX).min(rest.len()));
                    pipe.lines(piece, 1, &mut kept).unwrap();
                    rest = left;
                }
                (kept.0, pipe.bad)
            };
            prop_assert_eq!(feed(&mut std::iter::empty()), feed(&mut cuts.iter().copied().cycle()));
        }
    }
}
