//! Takes the parts of a record off its bytes, one after another.

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::{Error, Result};

/// What is left of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a>(pub(super) &'a [u8]);

impl<'a> Parts<'a> {
    /// The next part.
    pub(super) fn take<T: FromBytes + Immutable + KnownLayout>(&mut self) -> Result<&'a T> {
        let (part, rest) = T::ref_from_prefix(self.0).map_err(|_| short::<T>(self.0))?;
        self.0 = rest;
        Ok(part)
    }

    /// The next part, if the record has it.
    pub(super) fn take_if<T: FromBytes + Immutable + KnownLayout>(
        &mut self,
        present: bool,
    ) -> Result<Option<&'a T>> {
        present.then(|| self.take()).transpose()
    }

    /// The next `count` parts of the same kind.
    pub(super) fn take_many<T: FromBytes + Immutable + KnownLayout>(
        &mut self,
        count: usize,
    ) -> Result<&'a [T]> {
        let (parts, rest) =
            <[T]>::ref_from_prefix_with_elems(self.0, count).map_err(|_| short::<T>(self.0))?;
        self.0 = rest;
        Ok(parts)
    }
}

/// A part that is cut off, or begins at an odd place.
#[cold]
fn short<T>(bytes: &[u8]) -> Error {
    let part = std::any::type_name::<T>().rsplit("::").next().unwrap_or_default();
    Error::corrupt(format!("{} bytes at {:p} where a record has its {part}", bytes.len(), bytes.as_ptr()))
}
