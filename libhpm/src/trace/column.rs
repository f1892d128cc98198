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

/// A type that a table's field can have.
pub trait Column: Sized {
    /// Collects cells.
    type Builder: ArrayBuilder;
    /// Holds cells.
    type Array: Array + Clone + 'static;
    /// Whether a cell can be null.
    const NULLABLE: bool;

    /// The Arrow type.
    fn data_type() -> DataType;
    /// An empty builder.
    fn builder() -> Self::Builder;
    /// Adds one cell.
    fn append(&self, builder: &mut Self::Builder);
    /// The cell of this row, which must exist.
    fn cell(array: &Self::Array, row: usize) -> Self;
    /// About how many bytes the cell takes.
    fn bytes(&self) -> usize;
}

macro_rules! unsigned_columns {
    ($($rust:ty: $arrow:ty),*) => {$(
        impl Column for $rust {
            type Builder = PrimitiveBuilder<$arrow>;
            type Array = PrimitiveArray<$arrow>;
            const NULLABLE: bool = false;

            fn data_type() -> DataType {
                <$arrow>::DATA_TYPE
            }
            fn builder() -> Self::Builder {
                Self::Builder::new()
            }
            fn append(&self, builder: &mut Self::Builder) {
                builder.append_value(*self);
            }
            fn cell(array: &Self::Array, row: usize) -> Self {
                array.value(row)
            }
            fn bytes(&self) -> usize {
                size_of::<Self>()
            }
        }

        impl Column for Option<$rust> {
            type Builder = PrimitiveBuilder<$arrow>;
            type Array = PrimitiveArray<$arrow>;
            const NULLABLE: bool = true;

            fn data_type() -> DataType {
                <$arrow>::DATA_TYPE
            }
            fn builder() -> Self::Builder {
                Self::Builder::new()
            }
            fn append(&self, builder: &mut Self::Builder) {
                builder.append_option(*self);
            }
            fn cell(array: &Self::Array, row: usize) -> Self {
                array.is_valid(row).then(|| array.value(row))
            }
            fn bytes(&self) -> usize {
                size_of::<$rust>()
            }
        }
    )*};
}
unsigned_columns!(u8: UInt8Type, u16: UInt16Type, u32: UInt32Type, u64: UInt64Type);

impl Column for bool {
    type Builder = BooleanBuilder;
    type Array = BooleanArray;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::Boolean
    }
    fn builder() -> Self::Builder {
        Self::Builder::new()
    }
    fn append(&self, builder: &mut Self::Builder) {
        builder.append_value(*self);
    }
    fn cell(array: &Self::Array, row: usize) -> Self {
        array.value(row)
    }
    fn bytes(&self) -> usize {
        1
    }
}

impl Column for String {
    type Builder = StringBuilder;
    type Array = StringArray;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::Utf8
    }
    fn builder() -> Self::Builder {
        Self::Builder::new()
    }
    fn append(&self, builder: &mut Self::Builder) {
        builder.append_value(self);
    }
    fn cell(array: &Self::Array, row: usize) -> Self {
        array.value(row).to_owned()
    }
    fn bytes(&self) -> usize {
        self.len() + 4
    }
}

impl Column for Option<String> {
    type Builder = StringBuilder;
    type Array = StringArray;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Utf8
    }
    fn builder() -> Self::Builder {
        Self::Builder::new()
    }
    fn append(&self, builder: &mut Self::Builder) {
        builder.append_option(self.as_deref());
    }
    fn cell(array: &Self::Array, row: usize) -> Self {
        array.is_valid(row).then(|| array.value(row).to_owned())
    }
    fn bytes(&self) -> usize {
        self.as_ref().map_or(0, String::len) + 4
    }
}

impl Column for Option<Vec<u8>> {
    type Builder = BinaryBuilder;
    type Array = BinaryArray;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::Binary
    }
    fn builder() -> Self::Builder {
        Self::Builder::new()
    }
    fn append(&self, builder: &mut Self::Builder) {
        builder.append_option(self.as_deref());
    }
    fn cell(array: &Self::Array, row: usize) -> Self {
        array.is_valid(row).then(|| array.value(row).to_vec())
    }
    fn bytes(&self) -> usize {
        self.as_ref().map_or(0, Vec::len) + 4
    }
}

/// The element of both kinds of list: an unsigned 64-bit number, never null.
fn element() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::UInt64, false))
}

impl Column for Vec<u64> {
    type Builder = ListBuilder<PrimitiveBuilder<UInt64Type>>;
    type Array = ListArray;
    const NULLABLE: bool = false;

    fn data_type() -> DataType {
        DataType::List(element())
    }
    fn builder() -> Self::Builder {
        ListBuilder::new(PrimitiveBuilder::new()).with_field(element())
    }
    fn append(&self, builder: &mut Self::Builder) {
        builder.values().append_slice(self);
        builder.append(true);
    }
    fn cell(array: &Self::Array, row: usize) -> Self {
        numbers(array.value(row).as_ref())
    }
    fn bytes(&self) -> usize {
        self.len() * 8 + 4
    }
}

impl Column for Option<Registers> {
    type Builder = FixedSizeListBuilder<PrimitiveBuilder<UInt64Type>>;
    type Array = FixedSizeListArray;
    const NULLABLE: bool = true;

    fn data_type() -> DataType {
        DataType::FixedSizeList(element(), Registers::COUNT as i32)
    }
    fn builder() -> Self::Builder {
        FixedSizeListBuilder::new(PrimitiveBuilder::new(), Registers::COUNT as i32).with_field(element())
    }
    fn append(&self, builder: &mut Self::Builder) {
        // A fixed-size list has room for its elements even where it is null.
        let values = self.map_or([0; Registers::COUNT], |registers| registers.0);
        builder.values().append_slice(&values);
        builder.append(self.is_some());
    }
    fn cell(array: &Self::Array, row: usize) -> Self {
        if array.is_null(row) {
            return None;
        }
        numbers(array.value(row).as_ref()).try_into().ok().map(Registers)
    }
    fn bytes(&self) -> usize {
        Registers::COUNT * 8
    }
}

/// The numbers of one list.
fn numbers(list: &dyn Array) -> Vec<u64> {
    list.as_any()
        .downcast_ref::<PrimitiveArray<UInt64Type>>()
        .map_or_else(Vec::new, |values| values.values().to_vec())
}
