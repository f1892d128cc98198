//! The messages of profile.proto (github.com/google/pprof, proto/profile.proto), with the fields that are written.

use prost::Message;

/// `perftools.profiles.Profile`.
#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub(in super::super) sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub(in super::super) sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    pub(in super::super) mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    pub(in super::super) location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    pub(in super::super) function: Vec<Function>,
    #[prost(string, repeated, tag = "6")]
    pub(in super::super) string_table: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(in super::super) time_nanos: i64,
    #[prost(int64, tag = "10")]
    pub(in super::super) duration_nanos: i64,
    #[prost(message, optional, tag = "11")]
    pub(in super::super) period_type: Option<ValueType>,
    #[prost(int64, tag = "12")]
    pub(in super::super) period: i64,
    #[prost(int64, repeated, tag = "13")]
    pub(in super::super) comment: Vec<i64>,
    #[prost(int64, tag = "14")]
    pub(in super::super) default_sample_type: i64,
}

/// Name and unit of a value, as places in the string table.
#[derive(Clone, Copy, PartialEq, Message)]
pub(in super::super) struct ValueType {
    #[prost(int64, tag = "1")]
    pub(in super::super) kind: i64,
    #[prost(int64, tag = "2")]
    pub(in super::super) unit: i64,
}

/// Equal stacks with the sum of their values.
#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct Sample {
    /// Innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub(in super::super) location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    pub(in super::super) value: Vec<i64>,
    #[prost(message, repeated, tag = "3")]
    pub(in super::super) label: Vec<Label>,
}

/// What else is known of a sample.
#[derive(Clone, Copy, PartialEq, Message)]
pub(in super::super) struct Label {
    #[prost(int64, tag = "1")]
    pub(in super::super) key: i64,
    #[prost(int64, tag = "2")]
    pub(in super::super) str: i64,
    #[prost(int64, tag = "3")]
    pub(in super::super) num: i64,
}

/// A file with code. Everything is resolved already, so that no reader looks for the file.
#[derive(Clone, Copy, PartialEq, Message)]
pub(in super::super) struct Mapping {
    #[prost(uint64, tag = "1")]
    pub(in super::super) id: u64,
    #[prost(int64, tag = "5")]
    pub(in super::super) filename: i64,
    #[prost(bool, tag = "7")]
    pub(in super::super) has_functions: bool,
    #[prost(bool, tag = "8")]
    pub(in super::super) has_filenames: bool,
    #[prost(bool, tag = "9")]
    pub(in super::super) has_line_numbers: bool,
    #[prost(bool, tag = "10")]
    pub(in super::super) has_inline_frames: bool,
}

/// A place in the code.
#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct Location {
    #[prost(uint64, tag = "1")]
    pub(in super::super) id: u64,
    #[prost(uint64, tag = "2")]
    pub(in super::super) mapping_id: u64,
    /// Innermost first: inlined functions, then the one that has the code.
    #[prost(message, repeated, tag = "4")]
    pub(in super::super) line: Vec<Line>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(in super::super) struct Line {
    #[prost(uint64, tag = "1")]
    pub(in super::super) function_id: u64,
    #[prost(int64, tag = "2")]
    pub(in super::super) line: i64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(in super::super) struct Function {
    #[prost(uint64, tag = "1")]
    pub(in super::super) id: u64,
    #[prost(int64, tag = "2")]
    pub(in super::super) name: i64,
    #[prost(int64, tag = "4")]
    pub(in super::super) filename: i64,
}
