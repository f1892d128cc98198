//! The general registers of a record.

/// RFLAGS, RIP and the sixteen general registers.
const COUNT: usize = 18;
/// Those that IA-32 has of them.
pub(super) const COUNT_32: usize = 10;

/// Registers after the instruction that caused the event, in the order of their record.
#[derive(Clone, Copy, Debug)]
pub struct Registers<'a>(Words<'a>);

/// The words of a record that they are.
#[derive(Clone, Copy, Debug)]
enum Words<'a> {
    /// PEBS formats 0 to 3 and interrupt records, in the order of [`Registers::to_array`].
    Fixed(&'a [u64; COUNT]),
    /// Adaptive and architectural PEBS: RFLAGS, RIP, RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI, R8 to R15 (SDM Vol. 3B
    /// 20.9.2.2.3, "GPRs").
    Adaptive(&'a [u64; COUNT]),
    /// EFLAGS, EIP and the eight general registers of IA-32, in the order of [`Registers::to_array`].
    Narrow(&'a [u32; COUNT_32]),
}

/// For each place of [`Registers::to_array`] the place in [`Words::Adaptive`].
pub(super) const ADAPTIVE: [u8; COUNT] = [0, 1, 2, 5, 3, 4, 8, 9, 7, 6, 10, 11, 12, 13, 14, 15, 16, 17];

impl<'a> Registers<'a> {
    /// How many there are.
    pub const COUNT: usize = COUNT;

    #[inline]
    pub(super) fn fixed(words: &'a [u64; COUNT]) -> Self {
        Self(Words::Fixed(words))
    }

    #[inline]
    pub(super) fn adaptive(words: &'a [u64; COUNT]) -> Self {
        Self(Words::Adaptive(words))
    }

    pub(super) fn narrow(words: &'a [u32; COUNT_32]) -> Self {
        Self(Words::Narrow(words))
    }

    /// RFLAGS, RIP, RAX, RBX, RCX, RDX, RSI, RDI, RBP, RSP, R8 to R15; those that the record does not have are 0.
    #[must_use]
    pub fn to_array(self) -> [u64; COUNT] {
        match self.0 {
            Words::Fixed(words) => *words,
            Words::Adaptive(words) => ADAPTIVE.map(|place| words[usize::from(place)]),
            Words::Narrow(words) => {
                std::array::from_fn(|place| words.get(place).map_or(0, |&word| word.into()))
            }
        }
    }

    /// RIP: the instruction to which the registers belong, which is the next one for a precise record.
    #[must_use]
    #[inline]
    pub fn rip(self) -> u64 {
        match self.0 {
            Words::Fixed(words) | Words::Adaptive(words) => words[1],
            Words::Narrow(words) => words[1].into(),
        }
    }
}
