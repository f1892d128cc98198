//! Why a request cannot be met.

use super::abi::{Envelope, Reason};

/// A refusal: what crosses the ABI beside an errno.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason.
    pub reason: Reason,
    /// What it is about; see each [`Reason`].
    pub detail: [u64; 2],
}

impl Refusal {
    /// A refusal with up to two details.
    #[must_use]
    pub const fn new(reason: Reason, detail: [u64; 2]) -> Self {
        Self { reason, detail }
    }

    /// A refusal of the field at this byte offset of the argument.
    #[must_use]
    pub const fn field(offset: usize) -> Self {
        Self::new(Reason::Field, [offset as u64, 0])
    }

    /// Writes the refusal where user space reads it.
    pub fn describe(&self, envelope: &mut Envelope) {
        envelope.reason = self.reason as u32;
        envelope.detail = self.detail;
    }
}
