//! A table as comma-separated values (RFC 4180, with line feeds). Null is empty. A list of one number for each event becomes a column for each
//! event, `counts.cycles`; other lists have their numbers separated by spaces.

use std::io::{self, Write};

use arrow_array::cast::AsArray;
use arrow_array::types::{UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use arrow_schema::DataType;

use crate::trace::{Batches, Meta, Row};

/// Columns with a number for each event.
const OF_EVENTS: [&str; 2] = ["counts", "periods"];

/// Writes a head line with the columns' names, and all rows of a table.
///
/// # Errors
/// The output cannot be written.
pub fn write_csv<R: Row>(batches: &mut Batches<R>, meta: &Meta, output: &mut dyn Write) -> io::Result<()> {
    let schema = R::schema();
    let mut head = Vec::new();
    for field in schema.fields() {
        match OF_EVENTS.contains(&field.name().as_str()) {
            true => head.extend(meta.events.iter().map(|event| format!("{}.{}", field.name(), event.name))),
            false => head.push(field.name().clone()),
        }
    }
    output.write_all(csv_line(&head).as_bytes())?;
    batches.try_for_each(|batch| rows(&batch, meta.events.len(), output))
}

fn rows(batch: &RecordBatch, events: usize, output: &mut dyn Write) -> io::Result<()> {
    let schema = batch.schema();
    let mut cells = Vec::new();
    for row in 0..batch.num_rows() {
        cells.clear();
        for (field, column) in schema.fields().iter().zip(batch.columns()) {
            let text = if column.is_valid(row) { cell(column.as_ref(), row) } else { String::new() };
            if OF_EVENTS.contains(&field.name().as_str()) {
                // A damaged row may have fewer numbers than there are events.
                let numbers = text.split(' ').chain(std::iter::repeat("")).take(events);
                cells.extend(numbers.map(str::to_owned));
            } else {
                cells.push(text);
            }
        }
        output.write_all(csv_line(&cells).as_bytes())?;
    }
    Ok(())
}

/// One line of comma-separated values, with a line feed; what has a comma, a quote or a line end in it stands in quotes.
#[must_use]
pub fn csv_line<S: AsRef<str>>(cells: impl IntoIterator<Item = S>) -> String {
    let mut line = String::new();
    for (number, cell) in cells.into_iter().enumerate() {
        if number > 0 {
            line.push(',');
        }
        let cell = cell.as_ref();
        if cell.contains(['"', ',', '\r', '\n']) {
            line.push('"');
            line.push_str(&cell.replace('"', "\"\""));
            line.push('"');
        } else {
            line.push_str(cell);
        }
    }
    line.push('\n');
    line
}

fn cell(column: &dyn Array, row: usize) -> String {
    match column.data_type() {
        DataType::UInt8 => column.as_primitive::<UInt8Type>().value(row).to_string(),
        DataType::UInt16 => column.as_primitive::<UInt16Type>().value(row).to_string(),
        DataType::UInt32 => column.as_primitive::<UInt32Type>().value(row).to_string(),
        DataType::UInt64 => column.as_primitive::<UInt64Type>().value(row).to_string(),
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        DataType::Binary => {
            column.as_binary::<i32>().value(row).iter().map(|byte| format!("{byte:02x}")).collect()
        }
        DataType::List(_) => numbers(column.as_list::<i32>().value(row).as_ref()),
        DataType::FixedSizeList(..) => numbers(column.as_fixed_size_list().value(row).as_ref()),
        // No table has another type.
        other => unreachable!("a column of {other}"),
    }
}

fn numbers(list: &dyn Array) -> String {
    let numbers: Vec<String> =
        list.as_primitive::<UInt64Type>().values().iter().map(u64::to_string).collect();
    numbers.join(" ")
}

#[cfg(test)]
mod tests {
    use super::csv_line;

    #[test]
    fn fields_that_need_it_are_quoted() {
        assert_eq!(
            csv_line(["a", "b,c", "say \"no\"", "", "two\nlines"]),
            "a,\"b,c\",\"say \"\"no\"\"\",,\"two\nlines\"\n"
        );
    }
}
