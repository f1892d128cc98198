//! Where the words of a record are, for who reads many records that are laid out alike.

use super::Registers;

/// Places of a record's words (8 bytes each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Places {
    /// How many a record has.
    pub(crate) count: usize,
    /// Place of the address that [`super::Record::ip`] is.
    pub(crate) ip: usize,
    /// Place of the counters that the record is for.
    pub(crate) counters: usize,
    /// Place of the time, where the record has it.
    pub(crate) tsc: Option<usize>,
    /// Place of the data address, behind which its source is, where the record has them.
    pub(crate) address: Option<usize>,
    /// Where the registers are, if the record has them.
    pub(crate) registers: Option<Order>,
}

/// Places of the registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// From this place on in the order of [`Registers::to_array`].
    From(usize),
    /// Each one's, in that order.
    Each([u8; Registers::COUNT]),
}

impl Order {
    /// Place of a register, by its place in [`Registers::to_array`].
    pub(crate) fn place(&self, register: usize) -> usize {
        match self {
            Self::From(first) => first + register,
            Self::Each(places) => places[register].into(),
        }
    }

    /// The registers of a record, in the order of [`Registers::to_array`].
    pub(crate) fn of(&self, record: &[u64]) -> [u64; Registers::COUNT] {
        match self {
            Self::From(first) => record[*first..*first + Registers::COUNT].try_into().expect("as many"),
            Self::Each(places) => places.map(|place| record[usize::from(place)]),
        }
    }
}
