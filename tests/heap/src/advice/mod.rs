//! Which objects to allocate together, and how that is found out while the program runs.

mod advisor;
mod attribute;
mod groups;
mod live;
mod trials;

pub use advisor::{Action, Advisor, Decision, Intervention, Log, Rules};
pub use attribute::Attribution;
pub(crate) use attribute::References;
pub(crate) use groups::Groups;
pub use groups::{Allotment, Mark, Marks};
pub use live::Live;
pub use trials::Shown;

use std::time::Duration;

use crate::layout::FieldId;

/// A load of the program that missed the first-level data cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Offset from the start of the heap's memory.
    pub address: u32,
    /// The field whose reference led there, where whoever took the sample knows it.
    pub field: Option<FieldId>,
}

/// Where samples come from.
pub trait Samples {
    /// Those since the last time. With `all` also those that hardware has not handed over yet, which may take a system call: before
    /// objects move, because addresses mean other objects afterwards.
    ///
    /// # Errors
    /// In one sentence: why there are none any more.
    fn take(&mut self, all: bool) -> Result<Vec<Sample>, String>;

    /// What time it is, on a clock that stands still while the program does.
    fn now(&self) -> u64;

    /// How many misses a sample stands for.
    fn interval(&self) -> u64;

    /// Share of the time that collections took, from 0 to 1. `collecting` is how long they took by the clock.
    fn collector_share(&self, collecting: Duration) -> f64;
}

/// How an object and the one that its advised field refers to are laid out together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pairing {
    /// Number of the field among the type's references.
    pub field: u16,
    /// Empty bytes between the two: 0 to co-allocate. Anything else is the bad layout of the thesis's Figure 5.14, to see
    /// whether it is noticed; it is rounded up to a multiple of 4 and is at least a header.
    pub gap: u32,
}

/// For each type the field whose object is promoted together with it, if any: that with the most misses (Schneider's
/// thesis, §5.1.5).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Advice(Vec<Option<Pairing>>);

impl Advice {
    /// No advice: each object is allocated for itself.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Advice to allocate what this field refers to with its parent, `gap` bytes apart.
    #[must_use]
    pub fn with(mut self, field: FieldId, gap: u32) -> Self {
        self.set(field.class, Some(Pairing { field: field.field, gap }));
        self
    }

    /// Changes what is advised for a type.
    pub fn set(&mut self, class: u16, pairing: Option<Pairing>) {
        let place = usize::from(class);
        if self.0.len() <= place {
            self.0.resize(place + 1, None);
        }
        self.0[place] = pairing;
    }

    /// What is advised for a type.
    #[inline]
    #[must_use]
    pub fn of(&self, class: u16) -> Option<Pairing> {
        self.0.get(usize::from(class)).copied().flatten()
    }

    /// The advised fields.
    pub fn fields(&self) -> impl Iterator<Item = (FieldId, u32)> {
        let numbered = (0..).zip(&self.0);
        numbered.filter_map(|(class, pairing)| {
            let Pairing { field, gap } = (*pairing)?;
            Some((FieldId { class, field }, gap))
        })
    }
}
