//! Reads an Arrow IPC stream that may have been cut off or damaged.
//!
//! arrow-ipc decodes the batches, but its own stream reader takes lengths and places from the file on trust and panics
//! on wrong ones (seen with 60.1), so they are checked here first (Arrow columnar format 1.5, "Encapsulated message
//! format": the marker FFFFFFFF, the metadata's length, metadata, body).

use std::collections::HashMap;
use std::io::{ErrorKind, Read};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::read_record_batch;
use arrow_ipc::{self as ipc, Message, MessageHeader, root_as_message};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};

/// Starts a message.
const MARKER: [u8; 4] = [0xff; 4];

/// The batches of a stream.
pub(super) struct BatchStream<I> {
    input: I,
    schema: SchemaRef,
}

impl<I: Read> BatchStream<I> {
    /// Reads the head of a stream, which must be that of a table with these columns.
    pub(super) fn open(mut input: I, schema: SchemaRef) -> Result<Self, ArrowError> {
        let metadata = metadata(&mut input)?.ok_or_else(cut)?;
        let found = message(&metadata)?
            .header_as_schema()
            .ok_or_else(|| damaged("does not begin with a schema"))
            .and_then(try_fb_to_schema)?;
        if found.fields() != schema.fields() {
            return Err(damaged("has not the columns of this table"));
        }
        Ok(Self { input, schema })
    }

    /// The next batch; `None` at the end of the stream, also when its end mark is missing.
    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let Some(metadata) = metadata(&mut self.input)? else { return Ok(None) };
        let message = message(&metadata)?;
        let batch = match message.header_type() {
            MessageHeader::RecordBatch => message.header_as_record_batch(),
            _ => None,
        };
        let batch = batch.ok_or_else(|| damaged("has something else where a batch should be"))?;
        let length = u64::try_from(message.bodyLength()).map_err(|_| damaged("has a negative length"))?;
        check(&batch, length, &self.schema)?;
        let body = Buffer::from_vec(read_bytes(&mut self.input, length)?);
        let schema = SchemaRef::clone(&self.schema);
        read_record_batch(&body, batch, schema, &HashMap::new(), None, &message.version()).map(Some)
    }
}

/// The metadata of the next message; `None` at the end of the stream.
fn metadata(input: &mut impl Read) -> Result<Option<Vec<u8>>, ArrowError> {
    let mut head = [0; 8];
    match input.read(&mut head[..1])? {
        0 => return Ok(None),
        _ => input.read_exact(&mut head[1..]).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => cut(),
            _ => error.into(),
        })?,
    }
    let [m0, m1, m2, m3, l0, l1, l2, l3] = head;
    if [m0, m1, m2, m3] != MARKER {
        return Err(damaged("has something else where a batch should begin"));
    }
    match u32::from_le_bytes([l0, l1, l2, l3]) {
        0 => Ok(None),
        length => read_bytes(input, length.into()).map(Some),
    }
}

fn message(metadata: &[u8]) -> Result<Message<'_>, ArrowError> {
    root_as_message(metadata).map_err(|_| damaged("has damaged metadata"))
}

/// Refuses lengths and places that do not lie within a body of this length, or do not fit the columns.
fn check(batch: &ipc::RecordBatch<'_>, body: u64, schema: &Schema) -> Result<(), ArrowError> {
    let within = |buffer: &ipc::Buffer, unit: u64| {
        let (offset, length) = (u64::try_from(buffer.offset()).ok()?, u64::try_from(buffer.length()).ok()?);
        let fits = offset.checked_add(length)? <= body && offset % 8 == 0 && length % unit == 0;
        fits.then_some(())
    };
    let units: Vec<u64> = schema.fields().iter().flat_map(|field| units(field.data_type())).collect();
    let buffers = batch.buffers().is_some_and(|buffers| {
        buffers.len() == units.len()
            && buffers.iter().zip(units).all(|(buffer, unit)| within(buffer, unit).is_some())
    });
    // A value takes at least one bit.
    let values = i64::try_from(body.saturating_mul(8)).unwrap_or(i64::MAX);
    let nodes = batch.nodes().is_some_and(|nodes| {
        nodes.iter().all(|node| {
            (0..=values).contains(&node.length()) && (0..=node.length()).contains(&node.null_count())
        })
    });
    if buffers && nodes && (0..=values).contains(&batch.length()) && batch.compression().is_none() {
        Ok(())
    } else {
        Err(damaged("has a batch with impossible lengths"))
    }
}

/// Bytes of one element of each of the buffers that a column of this type has ("Buffer listing for each layout").
fn units(data_type: &DataType) -> Vec<u64> {
    let (own, child) = match data_type {
        DataType::Utf8 | DataType::Binary => (vec![1, 4, 1], None),
        DataType::List(child) => (vec![1, 4], Some(child)),
        DataType::FixedSizeList(child, _) => (vec![1], Some(child)),
        other => (vec![1, other.primitive_width().map_or(1, |width| width as u64)], None),
    };
    own.into_iter().chain(child.into_iter().flat_map(|child| units(child.data_type()))).collect()
}

/// Reads this many bytes, without asking for memory that a damaged length alone would justify.
fn read_bytes(input: &mut impl Read, length: u64) -> Result<Vec<u8>, ArrowError> {
    let mut bytes = Vec::new();
    input.take(length).read_to_end(&mut bytes)?;
    if bytes.len() as u64 == length { Ok(bytes) } else { Err(cut()) }
}

fn cut() -> ArrowError {
    ArrowError::IpcError("it ends in the middle of a batch".to_owned())
}

fn damaged(what: &str) -> ArrowError {
    ArrowError::IpcError(format!("it {what}"))
}
