//! Where results go, and in which form.

use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;

use anyhow::{Context, Error, Result};
use serde::Serialize;

use super::{Counted, Slice, StatArgs, csv, text};
use crate::late_file::LateFile;

/// Standard error, standard output where no program writes to it, or a file. What is measured goes on when it cannot be written to.
pub(super) struct Out {
    file: Option<LateFile>,
    on_standard_error: bool,
    form: Form,
    intervals: bool,
    begun: bool,
    /// Why no more is written.
    failed: Option<io::Error>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Text,
    Json,
    Csv,
}

impl Out {
    /// As the options say.
    ///
    /// # Errors
    /// The file cannot be written to.
    pub(super) fn new(args: &StatArgs) -> Result<Self> {
        let open =
            |path: &PathBuf| LateFile::open(path).with_context(|| format!("cannot write {}", path.display()));
        let file = args.output.as_ref().map(open).transpose()?;
        let form = match (args.json, args.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv,
            _ => Form::Text,
        };
        Ok(Self {
            file,
            on_standard_error: args.on_standard_error(),
            form,
            intervals: args.interval.is_some(),
            begun: false,
            failed: None,
        })
    }

    /// An interval that has passed. When it cannot be written, it and those that follow are left out.
    ///
    /// # Errors
    /// There is no JSON of it.
    pub(super) fn interval(&mut self, slice: &Slice) -> Result<()> {
        let text = match self.form {
            Form::Text => text::interval(slice),
            Form::Json => line(slice)?,
            Form::Csv => self.csv_header() + &csv::slice(slice),
        };
        self.write(&text);
        Ok(())
    }

    /// Whether nobody will see another interval.
    pub(super) fn is_over(&self) -> bool {
        self.failed.is_some()
    }

    /// The whole measurement.
    ///
    /// # Errors
    /// It cannot be written to where it should be.
    pub(super) fn whole(&mut self, counted: &Counted) -> Result<()> {
        let text = match self.form {
            Form::Text => text::text(counted) + "\n",
            Form::Json if self.intervals => line(counted)?,
            Form::Json => serde_json::to_string_pretty(counted).context("cannot write JSON")? + "\n",
            Form::Csv => csv::whole(counted),
        };
        let header = if self.form == Form::Csv { csv::header() } else { String::new() };
        self.last(&header, &text)
    }

    /// Repeated measurements.
    ///
    /// # Errors
    /// They cannot be written to where they should be.
    pub(super) fn repeated<T: Serialize>(&mut self, all: &T, text: String, csv: String) -> Result<()> {
        let text = match self.form {
            Form::Text => text + "\n",
            Form::Json => serde_json::to_string_pretty(all).context("cannot write JSON")? + "\n",
            Form::Csv => csv,
        };
        self.last("", &text)
    }

    /// The columns' names, once.
    fn csv_header(&mut self) -> String {
        if std::mem::replace(&mut self.begun, true) { String::new() } else { csv::header() }
    }

    /// Writes the result. One that its file cannot take is shown on standard error, so that the measurement is not lost.
    fn last(&mut self, header: &str, text: &str) -> Result<()> {
        let with_header = [header, text].concat();
        self.write(if self.begun { text } else { &with_header });
        let Some(error) = self.failed.take().filter(|error| error.kind() != ErrorKind::BrokenPipe) else {
            return Ok(());
        };
        let Some(file) = &self.file else { return Err(Error::new(error).context("cannot write the result")) };
        // The failure itself is told; there is nowhere left to tell another one.
        let _ = io::stderr().write_all(with_header.as_bytes());
        let what = format!("cannot write {}, so that the result is shown here", file.path().display());
        Err(Error::new(error).context(what))
    }

    /// Writes, unless an earlier write failed.
    fn write(&mut self, text: &str) {
        if self.failed.is_none() {
            let written = match &mut self.file {
                Some(file) => file.write_all(text.as_bytes()),
                None if self.on_standard_error => io::stderr().write_all(text.as_bytes()),
                None => {
                    // An interval is shown as soon as it has passed, also through a pipe.
                    let mut output = io::stdout().lock();
                    output.write_all(text.as_bytes()).and_then(|()| output.flush())
                }
            };
            self.failed = written.err();
        }
    }
}

fn line<T: Serialize>(value: &T) -> Result<String> {
    Ok(serde_json::to_string(value).context("cannot write JSON")? + "\n")
}
