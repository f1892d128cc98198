//! Objects in libgc's heap: each goes there when it is made, and never moves.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::{PAGE_BYTES, Ranges};
use crate::layout::{Body, Shape};
use crate::raw::Area;
use crate::raw::libgc::{Kind, Libgc, NoLibgc, WITHOUT_REFERENCES, check_counts};
use crate::roots::Roots;

/// The space.
#[derive(Debug)]
pub(crate) struct LibgcSpace {
    libgc: Libgc,
    /// Of objects by how many references they begin with.
    kinds: BTreeMap<u32, Kind>,
    arrays: Kind,
}

impl LibgcSpace {
    /// libgc with a heap of so many bytes for objects of these types, its memory, and where everything is in that.
    ///
    /// # Errors
    /// libgc is not there, or this process cannot have it.
    pub(crate) fn start(
        library: &str,
        bytes: u32,
        types: &[&Shape],
        roots: &Rc<Roots>,
    ) -> Result<(Self, Area, Ranges), NoLibgc> {
        let counts = types.iter().map(|shape| shape.fields().len() as u32).filter(|count| *count > 0);
        let counts: std::collections::BTreeSet<u32> = counts.collect();
        check_counts(counts.len())?;
        let roots = Rc::clone(roots);
        let (libgc, area) = Libgc::start(library, bytes, Box::new(move || roots.addresses()))?;
        let kinds = counts.into_iter().map(|count| (count, libgc.kind(Some(count)))).collect();
        let arrays = libgc.kind(None);
        let all = PAGE_BYTES..PAGE_BYTES + bytes;
        let nothing = |at: u32| -> Range<u32> { at..at };
        let ranges = Ranges { nursery: nothing(all.start), large: nothing(all.end), mature: all };
        Ok((Self { libgc, kinds, arrays }, area, ranges))
    }

    fn kind(&self, shape: &Shape) -> Kind {
        match shape.body {
            Body::References { .. } => self.arrays,
            Body::Data { .. } => WITHOUT_REFERENCES,
            Body::Fields { references, .. } => {
                self.kinds.get(&(references.len() as u32)).copied().unwrap_or(WITHOUT_REFERENCES)
            }
        }
    }

    /// Room for an object of this type.
    pub(crate) fn allocate(&self, shape: &Shape, bytes: u32) -> Option<u32> {
        let kind = self.kind(shape);
        self.libgc.allocate(bytes, kind).or_else(|| {
            // It does not collect when nothing was allocated since it did: what was let go meanwhile it does not know.
            self.libgc.collect();
            self.libgc.allocate(bytes, kind)
        })
    }

    /// Whether new objects of this type are zeros.
    pub(crate) fn clears(&self, shape: &Shape) -> bool {
        self.kind(shape).is_cleared
    }

    pub(crate) fn collect(&self) {
        self.libgc.collect();
    }

    pub(crate) fn collections(&self) -> u64 {
        self.libgc.collections()
    }

    pub(crate) fn used_pages(&self) -> u32 {
        self.libgc.used_bytes().div_ceil(PAGE_BYTES)
    }

    /// Start and size of the cell that an address is in.
    pub(crate) fn cell(&self, address: u32) -> Option<(u32, u32)> {
        self.libgc.cell(address)
    }
}
