//! A table as Parquet.

use std::io::{self, Write};

use ::parquet::arrow::ArrowWriter;
use ::parquet::errors::ParquetError;
use ::parquet::file::metadata::KeyValue;

use crate::trace::{Batches, Meta, Row};

/// Key of the file's metadata under which `meta.json` is found.
const META_KEY: &str = "hpm.meta";

/// Writes all rows of a table, with the columns of the trace, uncompressed; the file's metadata has the trace's `meta.json`.
///
/// # Errors
/// The output cannot be written.
pub fn write_parquet<R: Row>(
    batches: &mut Batches<R>,
    meta: &Meta,
    output: impl Write + Send,
) -> io::Result<()> {
    let mut writer = ArrowWriter::try_new(output, R::schema(), None).map_err(failed)?;
    for batch in batches {
        writer.write(&batch).map_err(failed)?;
    }
    writer.append_key_value_metadata(KeyValue::new(META_KEY.to_owned(), serde_json::to_string(meta)?));
    writer.close().map_err(failed)?;
    Ok(())
}

fn failed(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(reason) => io::Error::other(reason),
        other => io::Error::other(other),
    }
}
