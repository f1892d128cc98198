//! From the address that missed to the field whose reference led there.
//!
//! A virtual machine's compiler knows for each load instruction which field its address came from (Schneider's thesis, §5.1.3).
//! This heap has no compiler, but it knows the object at an address, its type, and how many references to objects of that type
//! each field has brought into the mature space. A miss is shared among these fields by their numbers, as the thesis shares it
//! among the definitions that reach a load by their frequencies (§5.1.4).

use super::Marks;
use crate::heap::Heap;
use crate::layout::{Body, FieldId, Shape};
use crate::observe::Observer;
use crate::space::Space;

/// How many references collections of the nursery have found in each field, or in arrays of each type.
#[derive(Debug, Default)]
pub(crate) struct References(Vec<Vec<u64>>);

impl References {
    /// Counts one reference of an object of this type; arrays have all in one.
    pub(crate) fn count(&mut self, class: u16, field: usize) {
        let class = usize::from(class);
        if self.0.len() <= class {
            self.0.resize_with(class + 1, Vec::new);
        }
        let fields = &mut self.0[class];
        if fields.len() <= field {
            fields.resize(field + 1, 0);
        }
        fields[field] += 1;
    }

    fn of(&self, class: u16, field: usize) -> u64 {
        self.0.get(usize::from(class)).and_then(|fields| fields.get(field)).copied().unwrap_or(0)
    }

    /// Who refers to objects of a type, and how often: fields, and `None` for all arrays.
    fn to(&self, types: &[&Shape], target: u16) -> Vec<(Option<FieldId>, u64)> {
        let mut found = Vec::new();
        for (class, shape) in (0..).zip(types) {
            match shape.body {
                Body::References { element } if element == target => found.push((None, self.of(class, 0))),
                Body::Fields { references, .. } => {
                    let fields = (0..).zip(references).filter(|(_, field)| field.target == target);
                    found.extend(fields.map(|(field, _)| {
                        (Some(FieldId { class, field }), self.of(class, usize::from(field)))
                    }));
                }
                _ => {}
            }
        }
        found.retain(|(_, references)| *references > 0);
        found
    }
}

/// What is known of a missing load.
#[derive(Debug, Clone, PartialEq)]
pub struct Attribution {
    /// The fields through which it may have come, with their shares, which add up to 1 or less: the rest came through arrays.
    pub fields: Vec<(FieldId, f64)>,
    /// Size of the object that was missed.
    pub bytes: u32,
    /// Which of its bytes it was.
    pub offset: u32,
    /// Number of its type.
    pub class: u16,
    /// Where it starts.
    pub start: u32,
    /// The trials and the groups in which it was promoted.
    pub marks: Marks,
}

impl<O: Observer> Heap<O> {
    /// Attributes the miss of an address; `None` for the nursery, where layout is not advice's business, and for addresses at
    /// which there is no object any more.
    #[must_use]
    pub fn attribute(&self, address: u32) -> Option<Attribution> {
        let place = self.place(address).filter(|place| place.space != Space::Nursery)?;
        let sources = self.references.to(self.types, place.class);
        let all: u64 = sources.iter().map(|(_, references)| references).sum();
        let share =
            |(field, references): (Option<FieldId>, u64)| Some((field?, references as f64 / all as f64));
        Some(Attribution {
            fields: sources.into_iter().filter_map(share).collect(),
            bytes: self.peek_bytes(place.start)?,
            offset: address - place.start,
            class: place.class,
            start: place.start,
            marks: self.groups.marks(self.memory.peek_header(place.start).marks()),
        })
    }
}
