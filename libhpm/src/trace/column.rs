//! How a Rust value becomes a cell of an Arrow column and back.

use std::sync::Arc;

use arrow_array::builder::{
    ArrayBuilder, BinaryBuilder, BooleanBuilder, FixedSizeListBuilder, ListBuilder, PrimitiveBuilder,
    StringBuilder,
};
use arrow_array::types::{ArrowPrimitiveType, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, BinaryArray, BooleanArray, FixedSizeListArray, ListArray, PrimitiveArray, StringArray,
};
use arrow_schema::{DataType, Field};

use super::row::Registers;

/// A value that a cell can hold, and how it is stored.
pub trait Cell: Sized {
    /// Collects cells.
    type Builder: ArrayBuilder;
    /// Holds cells.
    type Array: Array + Clone + 'static;

    /// The Arrow type.
    fn data_type() -> DataType;
    /// An empty builder.
    fn builder() -> Self::Builder;
    /// Adds one cell; `None` is null.
    fn append(value: Option<&Self>, builder: &mut Self::Builder);
    /// The value of a cell that is not null.
    fn value(array: &Self::Array, row: usize) -> Self;
    /// About how many bytes the value takes besides its place in the column.
    fn bytes(&self) -> usize {
        0
    }
}

/// A type that a table's field can have: a value, or an optional one for a column that can be null.
pub trait Column: Sized {
    /// What the cells hold.
    type Cell: Cell;
    /// Whether a cell can be null.
    const NULLABLE: bool;

    /// Adds one cell.
    fn append(&self, builder: &mut <Self::Cell as Cell>::Builder);
    /// The cell of this row, which must exist.
    fn cell(array: &<Self::Cell as Cell>::Array, row: usize) -> Self;
    /// About how many bytes the cell takes.
    fn bytes(&self) -> usize;
}

impl<T: Cell> Column for Option<T> {
    type Cell = T;
    const NULLABLE: bool = true;

    fn append(&self, builder: &mut T::Builder) {
        T::append(self.as_ref(), builder);
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

            fn append(&self, builder: &mut <Self as Cell>::Builder) {
                Cell::append(Some(self), builder);
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

macro_rules! unsigned_cells {
    ($($rust:ty: $arrow:ty),*) => {$(
        impl Cell for $rust {
            type Builder = PrimitiveBuilder<$arrow>;
            type Array = PrimitiveArray<$arrow>;

            fn data_type() -> DataType {
                <$arrow>::DATA_TYPE
            }
            fn builder() -> Self::Builder {
                Self::Builder::new()
            }
            fn append(value: Option<&Self>, builder: &mut Self::Builder) {
                builder.append_option(value.copied());
            }
            fn value(array: &Self::Array, row: usize) -> Self {
                array.value(row)
            }
        }
    )*};
}
unsigned_cells!(u8: UInt8Type, u16: UInt16Type, u32: UInt32Type, u64: UInt64Type);

impl Cell for bool {
    type Builder = BooleanBuilder;
    type Array = BooleanArray;

    fn data_type() -> DataType {
        DataType::Boolean
    }
    fn builder() -> Self::Builder {
        Self::Builder::new()
    }
    fn append(value: Option<&Self>, builder: &mut Self::Builder) {
        builder.append_option(value.copied());
    }
    fn value(array: &Self::Array, row: usize) -> Self {
        array.value(row)
    }
}

impl Cell for String {
    type Builder = StringBuilder;
    type Array = StringArray;

    fn data_type() -> DataType {
        DataType::Utf8
    }
    fn builder() -> Self::Builder {
        Self::Builder::new()
    }
    fn append(value: Option<&Self>, builder: &mut Self::Builder) {
        builder.append_option(value);
    }
    fn value(array: &Self::Array, row: usize) -> Self {
        array.value(row).to_owned()
    }
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Cell for Vec<u8> {
    type Builder = BinaryBuilder;
    type Array = BinaryArray;

    fn data_type() -> DataType {
        DataType::Binary
    }
    fn builder() -> Self::Builder {
        Self::Builder::new()
    }
    fn append(value: Option<&Self>, builder: &mut Self::Builder) {
        builder.append_option(value);
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
    type Builder = ListBuilder<PrimitiveBuilder<UInt64Type>>;
    type Array = ListArray;

    fn data_type() -> DataType {
        DataType::List(element())
    }
    fn builder() -> Self::Builder {
        ListBuilder::new(PrimitiveBuilder::new()).with_field(element())
    }
    fn append(value: Option<&Self>, builder: &mut Self::Builder) {
        builder.values().append_slice(value.map_or(&[], Vec::as_slice));
        builder.append(value.is_some());
    }
    fn value(array: &Self::Array, row: usize) -> Self {
        numbers(array.value(row).as_ref())
    }
    fn bytes(&self) -> usize {
        self.len() * 8
    }
}

impl Cell for Registers {
    type Builder = FixedSizeListBuilder<PrimitiveBuilder<UInt64Type>>;
    type Array = FixedSizeListArray;

    fn data_type() -> DataType {
        DataType::FixedSizeList(element(), Registers::COUNT as i32)
    }
    fn builder() -> Self::Builder {
        FixedSizeListBuilder::new(PrimitiveBuilder::new(), Registers::COUNT as i32).with_field(element())
    }
    fn append(value: Option<&Self>, builder: &mut Self::Builder) {
        // A fixed-size list has room for its elements even where it is null.
        let words = value.map_or([0; Registers::COUNT], |registers| registers.0);
        builder.values().append_slice(&words);
        builder.append(value.is_some());
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
