//! Where results go, and in which form.

use std::fs::File;
use std::io::{self, Write};

use anyhow::{Context, Result};
use serde::Serialize;

use super::{Counted, Slice, StatArgs, csv, text};

/// Standard error, or a file.
pub(super) struct Out {
    to: Box<dyn Write>,
    form: Form,
    intervals: bool,
    begun: bool,
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
    /// The file cannot be made.
    pub(super) fn new(args: &StatArgs) -> Result<Self> {
        let to: Box<dyn Write> = match &args.output {
            Some(file) => {
                let made = File::create(file).with_context(|| format!("cannot write {}", file.display()))?;
                Box::new(made)
            }
            None => Box::new(io::stderr()),
        };
        let form = match (args.json, args.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv,
            _ => Form::Text,
        };
        Ok(Self { to, form, intervals: args.interval.is_some(), begun: false })
    }

    /// An interval that has passed.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn interval(&mut self, slice: &Slice) -> Result<()> {
        let text = match self.form {
            Form::Text => text::interval(slice),
            Form::Json => line(slice)?,
            Form::Csv => self.csv_header() + &csv::slice(slice),
        };
        self.write(&text)
    }

    /// The whole measurement.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn whole(&mut self, counted: &Counted) -> Result<()> {
        let text = match self.form {
            Form::Text => text::text(counted) + "\n",
            Form::Json if self.intervals => line(counted)?,
            Form::Json => serde_json::to_string_pretty(counted).context("cannot write JSON")? + "\n",
            Form::Csv => self.csv_header() + &csv::whole(counted),
        };
        self.write(&text)
    }

    /// Repeated measurements.
    ///
    /// # Errors
    /// They cannot be written.
    pub(super) fn repeated<T: Serialize>(&mut self, all: &T, text: String, csv: String) -> Result<()> {
        let text = match self.form {
            Form::Text => text + "\n",
            Form::Json => serde_json::to_string_pretty(all).context("cannot write JSON")? + "\n",
            Form::Csv => csv,
        };
        self.write(&text)
    }

    /// The columns' names, once.
    fn csv_header(&mut self) -> String {
        if std::mem::replace(&mut self.begun, true) { String::new() } else { csv::header() }
    }

    fn write(&mut self, text: &str) -> Result<()> {
        self.to.write_all(text.as_bytes()).and_then(|()| self.to.flush()).context("cannot write the result")
    }
}

fn line<T: Serialize>(value: &T) -> Result<String> {
    Ok(serde_json::to_string(value).context("cannot write JSON")? + "\n")
}
