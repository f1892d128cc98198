//! The tables of a trace: one struct each, from which the Arrow schema follows.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema, SchemaRef};

use super::column::{Builder, Cell, Column};

/// A row of one table.
pub trait Row: Clone {
    /// Name of the table; its file is `NAME.arrows`.
    const TABLE: &'static str;
    /// One array for each column.
    type Arrays;
    /// The columns while they grow.
    type Columns: Columns<Self>;

    /// Columns in order.
    fn schema() -> SchemaRef;
    /// The batch's columns, found by name; `None` when one is missing or has another type.
    fn arrays(batch: &RecordBatch) -> Option<Self::Arrays>;
    /// The row with this index, which must be below the batch's number of rows.
    fn row(arrays: &Self::Arrays, index: usize) -> Self;
    /// About how many bytes the row takes.
    fn bytes(&self) -> usize;
}

/// The columns of a table while they grow.
pub trait Columns<R>: Default {
    /// Adds a row.
    fn push(&mut self, row: &R);
    /// The columns of everything since the last call, in order.
    fn take(&mut self) -> Vec<ArrayRef>;
}

/// Declares the struct of a row and how it maps to Arrow. A column has its field's name and type.
macro_rules! table {
    ($(#[$meta:meta])* $name:ident in $table:literal, $arrays:ident, $columns:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        #[doc = concat!("Columns of one batch of `", $table, "`.")]
        pub struct $arrays {
            $($field: <<$type as Column>::Cell as Cell>::Array,)*
        }

        #[doc = concat!("Columns of `", $table, "` while they grow.")]
        #[derive(Default)]
        pub struct $columns {
            $(pub(super) $field: <$type as Column>::Builder,)*
        }

        impl Columns<$name> for $columns {
            fn push(&mut self, row: &$name) {
                $(self.$field.push(&row.$field);)*
            }
            fn take(&mut self) -> Vec<ArrayRef> {
                vec![$(Arc::new(self.$field.take()),)*]
            }
        }

        impl Row for $name {
            const TABLE: &'static str = $table;
            type Arrays = $arrays;
            type Columns = $columns;

            fn schema() -> SchemaRef {
                Arc::new(Schema::new(vec![
                    $(Field::new(stringify!($field), <$type as Column>::Cell::data_type(), <$type>::NULLABLE),)*
                ]))
            }
            fn arrays(batch: &RecordBatch) -> Option<$arrays> {
                Some($arrays { $($field: column::<$type>(batch, stringify!($field))?,)* })
            }
            fn row(arrays: &$arrays, index: usize) -> Self {
                Self { $($field: Column::cell(&arrays.$field, index),)* }
            }
            fn bytes(&self) -> usize {
                0 $(+ Column::bytes(&self.$field))*
            }
        }
    };
}

/// A column by its name, if it has the type, and nulls only where the type allows them.
fn column<T: Column>(batch: &RecordBatch, name: &str) -> Option<<T::Cell as Cell>::Array> {
    let array = batch.column_by_name(name)?;
    if *array.data_type() != T::Cell::data_type() || (!T::NULLABLE && array.null_count() > 0) {
        return None;
    }
    array.as_any().downcast_ref().cloned()
}

/// The registers that a PEBS record holds, in its order (SDM Vol. 3B, "PEBS Record Format"): RFLAGS, RIP, RAX, RBX, RCX,
/// RDX, RSI, RDI, RBP, RSP, R8 to R15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers(pub [u64; Registers::COUNT]);

impl Registers {
    /// How many there are.
    pub const COUNT: usize = 18;
    /// Place of RFLAGS.
    pub const RFLAGS: usize = 0;
    /// Place of RIP.
    pub const RIP: usize = 1;
    /// Place of RAX.
    pub const RAX: usize = 2;
    /// Place of RDX.
    pub const RDX: usize = 5;
    /// Place of RSI.
    pub const RSI: usize = 6;
    /// Place of RDI.
    pub const RDI: usize = 7;
    /// Place of RBP.
    pub const RBP: usize = 8;
    /// Place of RSP.
    pub const RSP: usize = 9;

    /// The register at one of the places above.
    #[must_use]
    pub const fn at(&self, place: usize) -> u64 {
        self.0[place]
    }
}

table! {
    /// One uninterrupted stay of one thread on one CPU.
    QuantumRow in "quanta", QuantumArrays, QuantumColumns {
        /// Number of this quantum on its CPU, from 0; lost ones are numbered too. (`cpu`, `sequence`) is unique.
        sequence: u64,
        /// Logical CPU.
        cpu: u32,
        /// Thread-group ID (root PID namespace).
        pid: u32,
        /// Thread ID (root PID namespace).
        tid: u32,
        /// TSC at the start.
        start_tsc: u64,
        /// TSC at the end.
        end_tsc: u64,
        /// How it ended: the number of an [`hpm_abi::QuantumEnd`].
        end: u8,
        /// [`hpm_abi::QuantumFlags`] bits.
        flags: u16,
        /// User instruction pointer at the end; null when unknown.
        last_ip: Option<u64>,
        /// What each event of `meta.json` counted.
        counts: Vec<u64>,
        /// Period of each event of `meta.json`, in events per record; 0 for one that is only counted.
        periods: Vec<u64>,
        /// Precise records in this quantum.
        records: u32,
        /// Precise records that could not be written (events / period); of events within windows ([`super::Event::within`]) none is known.
        records_lost: u64,
    }
}

table! {
    /// One record.
    SampleRow in "samples", SampleArrays, SampleColumns {
        /// TSC of the record; of the end of its quantum where the record format has no time.
        tsc: u64,
        /// Logical CPU.
        cpu: u32,
        /// Thread-group ID.
        pid: u32,
        /// Thread ID.
        tid: u32,
        /// The quantum's `sequence` on this CPU.
        quantum: u64,
        /// Index of the event in `meta.json`.
        event: u8,
        /// Events that this record stands for; of an event within windows, how many had come in its window since the record before, which
        /// stand for no others ([`super::Event::weight`]).
        period: u64,
        /// Address of the instruction that caused the event, as close as [`super::Event::attribution`] says.
        ip: u64,
        /// Address of the next instruction, to which the registers belong; null where the record has none.
        next_ip: Option<u64>,
        /// Data linear address; null where the event has none.
        data_address: Option<u64>,
        /// The record's data source field as hardware wrote it.
        data_source: Option<u64>,
        /// Core cycles of the memory access ([`crate::record::Latency::access_cycles`]).
        latency_cycles: Option<u32>,
        /// Core cycles of the whole instruction ([`crate::record::Latency::instruction_cycles`]).
        instruction_latency_cycles: Option<u32>,
        /// Core cycles from the retirement before to the instruction's own.
        retire_latency_cycles: Option<u16>,
        /// Where the data was found: the number of a [`crate::record::Level`].
        level: Option<u8>,
        /// What other caches said: the number of a [`crate::record::Snoop`].
        snoop: Option<u8>,
        /// The access missed the second-level TLB.
        stlb_miss: Option<bool>,
        /// The access was locked.
        locked: Option<bool>,
        /// The load waited for an older store.
        blocked: Option<bool>,
        /// Last branch records, the newest first: from, to and IA32_LBR_x_INFO of each; null without any.
        branches: Option<Vec<u64>>,
        /// `id` of the call stack.
        stack: Option<u32>,
        /// Registers after the instruction.
        registers: Option<Registers>,
    }
}

table! {
    /// A call stack. Every distinct one is stored at least once, and before the first sample that names it.
    StackRow in "stacks", StackArrays, StackColumns {
        /// Number by which samples name it.
        id: u32,
        /// Addresses, innermost first: the instruction that caused the event, then return addresses.
        frames: Vec<u64>,
        /// The outermost frames are missing.
        truncated: bool,
    }
}

table! {
    /// A file mapped into a process. A later mapping replaces what it overlaps; an `exec` of the process removes all.
    MapRow in "maps", MapArrays, MapColumns {
        /// TSC when it was made, or first seen.
        tsc: u64,
        /// Thread-group ID.
        pid: u32,
        /// First address.
        start: u64,
        /// First address after it.
        end: u64,
        /// Byte of the file at `start`.
        file_offset: u64,
        /// The file, or `[vdso]`, `//anon`, … as `/proc/PID/maps` names it.
        path: String,
        /// The file's GNU build ID.
        build_id: Option<Vec<u8>>,
        /// Code can be run from it.
        executable: bool,
    }
}

/// What a [`ThreadRow`] tells.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadChange {
    /// The thread was there when recording began, or is a new thread of its process.
    Start = 1,
    /// The process runs another program from now on.
    Exec = 2,
    /// The thread ended.
    Exit = 3,
    /// The process is new, and began as a copy of `parent_pid`, whose mappings it has.
    Fork = 4,
    /// The thread has another name from now on.
    Rename = 5,
}

impl ThreadChange {
    /// The change with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Start),
            2 => Some(Self::Exec),
            3 => Some(Self::Exit),
            4 => Some(Self::Fork),
            5 => Some(Self::Rename),
            _ => None,
        }
    }
}

table! {
    /// A change in the life of a thread.
    ThreadRow in "threads", ThreadArrays, ThreadColumns {
        /// TSC of the change.
        tsc: u64,
        /// Thread-group ID.
        pid: u32,
        /// Thread ID.
        tid: u32,
        /// The process it was forked from, for a [`ThreadChange::Fork`].
        parent_pid: Option<u32>,
        /// Name (`comm`) from then on.
        name: String,
        /// [`ThreadChange`] as its number.
        what: u8,
    }
}

table! {
    /// A kernel function, as `/proc/kallsyms` showed it while recording. Addresses change at each boot.
    KernelSymbolRow in "kernel_symbols", KernelSymbolArrays, KernelSymbolColumns {
        /// First address; the function reaches to the next symbol.
        address: u64,
        /// Name.
        name: String,
        /// The module it belongs to; null for the kernel itself.
        module: Option<String>,
    }
}

table! {
    /// A point in time that somebody named.
    MarkerRow in "markers", MarkerArrays, MarkerColumns {
        /// TSC.
        tsc: u64,
        /// Thread-group ID that it concerns; null for all.
        pid: Option<u32>,
        /// Thread ID that it concerns; null for all.
        tid: Option<u32>,
        /// What happened.
        text: String,
        /// The program's own number; null for a marker that no program set.
        value: Option<u64>,
    }
}

impl MarkerRow {
    /// Text where samples pause and where they go on ([`super::PhaseGuided`]); the value is the behaviour that the program was in.
    pub const PAUSED: &str = "samples paused";
    /// See [`Self::PAUSED`].
    pub const RESUMED: &str = "samples resumed";

    /// Whether the recorder set it, not a program or its user: their markers have a process, or come from a pipe, whose lines have
    /// names of one word.
    #[must_use]
    pub fn is_recorders(&self) -> bool {
        self.pid.is_none() && [Self::PAUSED, Self::RESUMED].contains(&self.text.as_str())
    }
}

table! {
    /// An object that a program allocated. The table is there only when allocations were recorded.
    AllocationRow in "allocations", AllocationArrays, AllocationColumns {
        /// TSC of its allocation.
        tsc: u64,
        /// TSC at which it was freed; null for one that was not.
        freed_tsc: Option<u64>,
        /// Thread-group ID.
        pid: u32,
        /// Thread that allocated it.
        tid: u32,
        /// First byte.
        address: u64,
        /// Bytes asked for.
        bytes: u64,
        /// `id` of the call stack of the allocation, which begins with the return address into the function that asked.
        stack: Option<u32>,
    }
}
