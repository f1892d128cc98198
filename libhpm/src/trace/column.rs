//! How a Rust value becomes a cell of an Arrow column and back.

use std::sync::Arc;

use arrow_array::types::{ArrowPrimitiveType, UInt8Type, UInt16Type, UInt32Type, UInt64Type};
use arrow_array::{
    Array, BinaryArray, BooleanArray, FixedSizeListArray, ListArray, PrimitiveArray, StringArray,
};
use arrow_buffer::{BooleanBufferBuilder, Buffer, NullBuffer, OffsetBuffer};
use arrow_schema::{DataType, Field};

use super::row::Registers;

/// A value that a cell can hold, and how it is stored.
pub trait Cell: Sized {
    /// Holds cells.
    type Array: Array + Clone + 'static;
    /// Collects cells.
    type Values: Values<Self>;

    /// The Arrow type.
    fn data_type() -> DataType;
    /// The value of a cell that is not null.
    fn value(array: &Self::Array, row: usize) -> Self;
    /// About how many bytes the value takes besides its place in the column.
    fn bytes(&self) -> usize {
        0
    }
}

/// Cells of a column while it grows, in the memory that becomes its array.
pub trait Values<T: Cell>: Default {
    /// Adds a cell.
    fn push(&mut self, value: &T);
    /// Adds places for so many nulls.
    fn push_absent(&mut self, rows: usize);
    /// Everything since the last call; `None` says that no cell is null.
    fn take(&mut self, nulls: Option<NullBuffer>) -> T::Array;
}

/// A type that a table's field can have: a value, or an optional one for a column that can be null.
pub trait Column: Sized {
    /// What the cells hold.
    type Cell: Cell;
    /// The column while it grows.
    type Builder: Builder<Self>;
    /// Whether a cell can be null.
    const NULLABLE: bool;

    /// The cell of this row, which must exist.
    fn cell(array: &<Self::Cell as Cell>::Array, row: usize) -> Self;
    /// About how many bytes the cell takes.
    fn bytes(&self) -> usize;
}

/// A column while it grows. Each cell goes straight to where the file is written from: to keep rows and turn them into columns later
/// takes several times the instructions.
pub trait Builder<T: Column>: Default {
    /// Adds a cell.
    fn push(&mut self, field: &T);
    /// Everything since the last call.
    fn take(&mut self) -> <T::Cell as Cell>::Array;
}

/// A column that is never null.
pub struct Full<T: Cell>(T::Values);

impl<T: Cell> Default for Full<T> {
    fn default() -> Self {
        Self(T::Values::default())
    }
}

impl<T: Cell + Column<Cell = T>> Builder<T> for Full<T> {
    fn push(&mut self, field: &T) {
        self.0.push(field);
    }
    fn take(&mut self) -> T::Array {
        self.0.take(None)
    }
}

impl<T: Cell<Values = Vec<T>> + Copy> Full<T> {
    /// Adds the same cell so many times.
    pub(super) fn repeat(&mut self, value: T, rows: usize) {
        self.0.resize(self.0.len() + rows, value);
    }

    /// Adds these cells.
    pub(super) fn extend(&mut self, values: impl Iterator<Item = T>) {
        self.0.extend(values);
    }
}

/// A column that can be null. Most are wholly null or not at all, so nulls are only counted as long as there is nothing else, and
/// which cells are null is kept only of a mixed column.
pub struct Sparse<T: Cell> {
    /// Empty while there are only nulls.
    values: T::Values,
    rows: usize,
    present: usize,
    validity: Option<BooleanBufferBuilder>,
}

impl<T: Cell> Default for Sparse<T> {
    fn default() -> Self {
        Self { values: T::Values::default(), rows: 0, present: 0, validity: None }
    }
}

impl<T: Cell> Sparse<T> {
    /// Adds so many nulls.
    #[inline]
    pub(super) fn absent(&mut self, rows: usize) {
        if self.present > 0 {
            self.values.push_absent(rows);
            self.note(false, rows);
        }
        self.rows += rows;
    }

    /// Adds cells that are not null: `push` adds so many.
    pub(super) fn present(&mut self, rows: usize, push: impl FnOnce(&mut T::Values)) {
        if rows == 0 {
            return;
        }
        if self.present < self.rows {
            if self.present == 0 {
                self.values.push_absent(self.rows);
            }
            self.note(true, rows);
        }
        push(&mut self.values);
        self.rows += rows;
        self.present += rows;
    }

    /// Keeps that the next rows are valid or not, in a column that has both, or will have.
    #[cold]
    fn note(&mut self, valid: bool, rows: usize) {
        let before = self.rows;
        let validity = self.validity.get_or_insert_with(|| {
            let mut validity = BooleanBufferBuilder::new(before + rows);
            validity.append_n(before, !valid);
            validity
        });
        validity.append_n(rows, valid);
    }
}

impl<T: Cell> Builder<Option<T>> for Sparse<T> {
    fn push(&mut self, field: &Option<T>) {
        match field {
            Some(value) => self.present(1, |values| values.push(value)),
            None => self.absent(1),
        }
    }
    fn take(&mut self) -> T::Array {
        let nulls = match (self.validity.take(), self.present) {
            (Some(mut validity), _) => Some(NullBuffer::new(validity.finish())),
            (None, 0) => {
                self.values.push_absent(self.rows);
                (self.rows > 0).then(|| NullBuffer::new_null(self.rows))
            }
            (None, _) => None,
        };
        (self.rows, self.present) = (0, 0);
        self.values.take(nulls)
    }
}

impl<T: Cell> Column for Option<T> {
    type Cell = T;
    type Builder = Sparse<T>;
    const NULLABLE: bool = true;

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
            type Builder = Full<Self>;
            const NULLABLE: bool = false;

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

/// What was collected; the next batch is about as long.
fn taken<V>(values: &mut Vec<V>) -> Vec<V> {
    let next = Vec::with_capacity(values.len());
    std::mem::replace(values, next)
}

macro_rules! unsigned_cells {
    ($($rust:ty: $arrow:ty),*) => {$(
        impl Cell for $rust {
            type Array = PrimitiveArray<$arrow>;
            type Values = Vec<Self>;

            fn data_type() -> DataType {
                <$arrow>::DATA_TYPE
            }
            fn value(array: &Self::Array, row: usize) -> Self {
                array.value(row)
            }
        }

        impl Values<$rust> for Vec<$rust> {
            fn push(&mut self, value: &$rust) {
                self.push(*value);
            }
            fn push_absent(&mut self, rows: usize) {
                self.resize(self.len() + rows, 0);
            }
            fn take(&mut self, nulls: Option<NullBuffer>) -> PrimitiveArray<$arrow> {
                PrimitiveArray::new(taken(self).into(), nulls)
            }
        }
    )*};
}
unsigned_cells!(u8: UInt8Type, u16: UInt16Type, u32: UInt32Type, u64: UInt64Type);

impl Cell for bool {
    type Array = BooleanArray;
    type Values = Vec<Self>;

    fn data_type() -> DataType {
        DataType::Boolean
    }
    fn value(array: &Self::Array, row: usize) -> Self {
        array.value(row)
    }
}

impl Values<bool> for Vec<bool> {
    fn push(&mut self, value: &bool) {
        self.push(*value);
    }
    fn push_absent(&mut self, rows: usize) {
        self.resize(self.len() + rows, false);
    }
    fn take(&mut self, nulls: Option<NullBuffer>) -> BooleanArray {
        BooleanArray::new(taken(self).into(), nulls)
    }
}

/// Lists, one behind the other, and where each ends.
pub struct Lists<V> {
    elements: Vec<V>,
    /// Ends of the lists, behind a 0.
    offsets: Vec<i32>,
}

impl<V> Default for Lists<V> {
    fn default() -> Self {
        Self { elements: Vec::new(), offsets: vec![0] }
    }
}

impl<V: Copy> Lists<V> {
    fn add(&mut self, list: &[V]) {
        self.elements.extend_from_slice(list);
        self.close(1);
    }

    /// Ends so many lists here. A batch is written long before its elements are too many for an offset.
    fn close(&mut self, lists: usize) {
        self.offsets.resize(self.offsets.len() + lists, self.elements.len() as i32);
    }

    fn split(&mut self) -> (OffsetBuffer<i32>, Vec<V>) {
        let offsets = taken(&mut self.offsets);
        self.offsets.push(0);
        (OffsetBuffer::new(offsets.into()), taken(&mut self.elements))
    }
}

impl Cell for String {
    type Array = StringArray;
    type Values = Lists<u8>;

    fn data_type() -> DataType {
        DataType::Utf8
    }
    fn value(array: &Self::Array, row: usize) -> Self {
        array.value(row).to_owned()
    }
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Values<String> for Lists<u8> {
    fn push(&mut self, value: &String) {
        self.add(value.as_bytes());
    }
    fn push_absent(&mut self, rows: usize) {
        self.close(rows);
    }
    fn take(&mut self, nulls: Option<NullBuffer>) -> StringArray {
        let (offsets, bytes) = self.split();
        StringArray::new(offsets, Buffer::from_vec(bytes), nulls)
    }
}

impl Cell for Vec<u8> {
    type Array = BinaryArray;
    type Values = Lists<u8>;

    fn data_type() -> DataType {
        DataType::Binary
    }
    fn value(array: &Self::Array, row: usize) -> Self {
        array.value(row).to_vec()
    }
    fn bytes(&self) -> usize {
        self.len()
    }
}

impl Values<Vec<u8>> for Lists<u8> {
    fn push(&mut self, value: &Vec<u8>) {
        self.add(value);
    }
    fn push_absent(&mut self, rows: usize) {
        self.close(rows);
    }
    fn take(&mut self, nulls: Option<NullBuffer>) -> BinaryArray {
        let (offsets, bytes) = self.split();
        BinaryArray::new(offsets, Buffer::from_vec(bytes), nulls)
    }
}

/// The element of both kinds of list: an unsigned 64-bit number, never null.
fn element() -> Arc<Field> {
    Arc::new(Field::new("item", DataType::UInt64, false))
}

impl Cell for Vec<u64> {
    type Array = ListArray;
    type Values = Lists<u64>;

    fn data_type() -> DataType {
        DataType::List(element())
    }
    fn value(array: &Self::Array, row: usize) -> Self {
        numbers(array.value(row).as_ref())
    }
    fn bytes(&self) -> usize {
        self.len() * 8
    }
}

impl Values<Vec<u64>> for Lists<u64> {
    fn push(&mut self, value: &Vec<u64>) {
        self.add(value);
    }
    fn push_absent(&mut self, rows: usize) {
        self.close(rows);
    }
    fn take(&mut self, nulls: Option<NullBuffer>) -> ListArray {
        let (offsets, words) = self.split();
        ListArray::new(element(), offsets, Arc::new(PrimitiveArray::<UInt64Type>::from(words)), nulls)
    }
}

impl Cell for Registers {
    type Array = FixedSizeListArray;
    type Values = Vec<[u64; Self::COUNT]>;

    fn data_type() -> DataType {
        DataType::FixedSizeList(element(), Registers::COUNT as i32)
    }
    fn value(array: &Self::Array, row: usize) -> Self {
        // The length is part of the column's type, which was checked.
        Self(numbers(array.value(row).as_ref()).try_into().unwrap_or([0; Registers::COUNT]))
    }
}

impl Values<Registers> for Vec<[u64; Registers::COUNT]> {
    fn push(&mut self, value: &Registers) {
        self.push(value.0);
    }
    fn push_absent(&mut self, rows: usize) {
        // A fixed-size list has room for its elements even where it is null.
        self.resize(self.len() + rows, [0; Registers::COUNT]);
    }
    fn take(&mut self, nulls: Option<NullBuffer>) -> FixedSizeListArray {
        let words = Arc::new(PrimitiveArray::<UInt64Type>::from(taken(self).into_flattened()));
        FixedSizeListArray::new(element(), Registers::COUNT as i32, words, nulls)
    }
}

/// The numbers of one list.
fn numbers(list: &dyn Array) -> Vec<u64> {
    list.as_any()
        .downcast_ref::<PrimitiveArray<UInt64Type>>()
        .map_or_else(Vec::new, |values| values.values().to_vec())
}
