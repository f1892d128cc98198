//! How a Rust value becomes a cell of an Arrow column and back.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, BinaryArray, BooleanArray, FixedSizeListArray, ListArray, PrimitiveArray, StringArray,
};
use arrow_buffer::{BooleanBuffer, NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field};

use super::row::Registers;

/// A value that a cell can hold, and how it is stored.
pub trait Cell: Sized {
    /// Holds cells.
    type Array: Array + Clone + 'static;

    /// The Arrow type.
    fn data_type() -> DataType;
    /// A column of these cells; `None` is null.
    fn array<'a>(cells: impl Cells<'a, Self>) -> Self::Array
    where
        Self: 'a;
    /// The value of a cell that is not null.
    fn value(array: &Self::Array, row: usize) -> Self;
    /// About how many bytes the value takes besides its place in the column.
    fn bytes(&self) -> usize {
        0
    }
}

/// The cells of a column, which can be gone through several times.
pub trait Cells<'a, T: 'a>: ExactSizeIterator<Item = Option<&'a T>> + Clone {}

impl<'a, T: 'a, I: ExactSizeIterator<Item = Option<&'a T>> + Clone> Cells<'a, T> for I {}

/// A type that a table's field can have: a value, or an optional one for a column that can be null.
pub trait Column: Sized {
    /// What the cells hold.
    type Cell: Cell;
    /// Whether a cell can be null.
    const NULLABLE: bool;

    /// A column of these fields. A column at once takes a fraction of the instructions that a row at a time would.
    fn array<'a>(fields: impl ExactSizeIterator<Item = &'a Self> + Clone) -> <Self::Cell as Cell>::Array
    where
        Self: 'a;
    /// The cell of this row, which must exist.
    fn cell(array: &<Self::Cell as Cell>::Array, row: usize) -> Self;
    /// About how many bytes the cell takes.
    fn bytes(&self) -> usize;
}

impl<T: Cell> Column for Option<T> {
    type Cell = T;
    const NULLABLE: bool = true;

    fn array<'a>(fields: impl ExactSizeIterator<Item = &'a Self> + Clone) -> T::Array
    where
        Self: 'a,
    {
        T::array(fields.map(Self::as_ref))
    }
    fn cell(array: &T::Array, row: usize) -> Self {
        array.is_valid(row).then(|| T::value(array, row))
    }
    fn bytes(&self) -> usize {
        size_of::<T>() + self.as_ref().map_or(0, T::bytes)
    }
}

/// Columns that are never null.
macro_rules! columns {
    ($($rust:ty),*) => {$(
        impl Column for $rust {
            type Cell = Self;
            const NULLABLE: bool = false;

            fn array<'a>(
                fields: impl ExactSizeIterator<Item = &'a Self> + Clone,
            ) -> <Self as Cell>::Array {
                <Self as Cell>::array(fields.map(Some))
            }
            fn cell(array: &<Self as Cell>::Array, row: usize) -> Self {
                Self::value(array, row)
            }
            fn bytes(&self) -> usize {
                size_of::<Self>() + Cell::bytes(self)
            }
        }
    )*};
}
columns!(u8, u16, u32, u64, bool, String, Vec<u64>);

/// Which cells are not null; `None` when all are. Most columns are wholly the one or the other.
fn validity<'a, T: 'a>(cells: impl Cells<'a, T>) -> Option<NullBuffer> {
    let all = cells.len();
    match cells.clone().filter(Option::is_none).count() {
        0 => None,
        nulls if nulls == all => Some(NullBuffer::new_null(all)),
        _ => Some(cells.map(|cell| cell.is_some()).collect::<Vec<bool>>().into()),
    }
}

macro_rules! unsigned_cells {
    ($($rust:ty: $arrow:ty),*) => {$(
        impl Cell for $rust {
            type Array = PrimitiveArray<$arrow>;

            fn data_type() -> DataType {
                <$arrow>::DATA_TYPE
            }
            fn array<'a>(cells: impl Cells<'a, Self>) -> Self::Array {
                let nulls = validity(cells.clone());
                let numbers: Vec<Self> = match &nulls {
                    Some(nulls) if nulls.null_count() == nulls.len() => vec![0; nulls.len()],
                    _ => cells.map(|cell| cell.copied().unwrap_or(0)).collect(),
                };
                PrimitiveArray::new(numbers.into(), nulls)
            }
            fn value(array: &Self::Array, row: usize) -> Self {
                array.value(row)
            }
        }
    )*};
}
unsigned_cells!(u8: UInt8Type, u16: UInt16Type, u32: UInt32Type, u64: UInt64Type);

impl Cell for bool {
    type Array = BooleanArray;

    fn data_type() -> DataType {
        DataType::Boolean
    }
    fn array<'a>(cells: impl Cells<'a, Self>) -> Self::Array {
        let nulls = validity(cells.clone());
        let bits = match &nulls {
            Some(nulls) if nulls.null_count() == nulls.len() => BooleanBuffer::new_unset(nulls.len()),
            _ => cells.map(|cell| cell.copied().unwrap_or(false)).collect::<Vec<bool>>().into(),
        };
        BooleanArray::new(bits, nulls)
    }
    fn value(array: &Self::Array, row: usize) -> Self {
        array.value(row)
    }
}

impl Cell for String {
    type Array = StringArray;

    fn data_type() -> DataType {
        DataType::Utf8
    }
    fn array<'a>(cells: impl Cells<'a, Self>) -> Self::Array {
        cells.collect()
    }
    fn value(array: &Self::Array, row: usize) -> Self {
        array.value(row).to_owned()
    }
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Cell for Vec<u8> {
    type Array = BinaryArray;

    fn data_type() -> DataType {
        DataType::Binary
    }
    fn array<'a>(cells: impl Cells<'a, Self>) -> Self::Array {
        cells.collect()
    }
    fn value(array: &Self::Array, row: usize) -> Self {
        array.value(row).to_vec()
    }
    fn bytes(&self) -> usize {
        self.len()
    }
}

/// The element of both kinds of list: an unsigned 64-bit number, never null.
fn element() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::UInt64, false))
}

impl Cell for Vec<u64> {
    type Array = ListArray;

    fn data_type() -> DataType {
        DataType::List(element())
    }
    fn array<'a>(cells: impl Cells<'a, Self>) -> Self::Array {
        if cells.clone().all(|cell| cell.is_none()) {
            return ListArray::new_null(element(), cells.len());
        }
        let nulls = validity(cells.clone());
        let lengths = cells.clone().map(|cell| cell.map_or(0, Vec::len));
        let offsets = OffsetBuffer::from_lengths(lengths);
        let words: Vec<u64> = cells.flatten().flatten().copied().collect();
        let words = Arc::new(PrimitiveArray::<UInt64Type>::from(words));
        ListArray::new(element(), offsets, words, nulls)
    }
    fn value(array: &Self::Array, row: usize) -> Self {
        numbers(array.value(row).as_ref())
    }
    fn bytes(&self) -> usize {
        self.len() * 8
    }
}

impl Cell for Registers {
    type Array = FixedSizeListArray;

    fn data_type() -> DataType {
        DataType::FixedSizeList(element(), Registers::COUNT as i32)
    }
    fn array<'a>(cells: impl Cells<'a, Self>) -> Self::Array {
        let nulls = validity(cells.clone());
        let mut words = Vec::with_capacity(cells.len() * Self::COUNT);
        // A fixed-size list has room for its elements even where it is null.
        cells.for_each(|cell| {
            words.extend_from_slice(&cell.map_or([0; Self::COUNT], |registers| registers.0))
        });
        let words = Arc::new(PrimitiveArray::<UInt64Type>::from(words));
        FixedSizeListArray::new(element(), Self::COUNT as i32, words, nulls)
    }
    fn value(array: &Self::Array, row: usize) -> Self {
        // The length is part of the column's type, which was checked.
        Self(numbers(array.value(row).as_ref()).try_into().unwrap_or([0; Registers::COUNT]))
    }
}

/// The numbers of one list.
fn numbers(list: &dyn Array) -> Vec<u64> {
    list.as_any()
        .downcast_ref::<PrimitiveArray<UInt64Type>>()
        .map_or_else(Vec::new, |values| values.values().to_vec())
}
