//! Names of fields, by what DWARF says of the values in registers and in the function's frame.

use std::sync::Arc;

use iced_x86::Register;

use super::{Code, DEPTH_MAX};
use crate::analysis::coallocation::Field;
use crate::analysis::reference::{Location, Source, Trail};
use crate::symbol::{Loaded, TypeId, Types};

/// A field that has a name.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) field: Field,
    /// Where it is in its structure.
    pub(super) offset: u64,
    pub(super) parent_bytes: u64,
    pub(super) child: Arc<str>,
    pub(super) child_is_structure: bool,
    /// Of a structure; else 0.
    pub(super) child_bytes: u64,
    /// The parent is an array.
    pub(super) array: bool,
}

/// Names what code of one binary does with typed values.
pub(super) struct Namer<'a> {
    pub(super) types: &'a mut Types,
    pub(super) loaded: &'a Loaded,
    pub(super) code: &'a Code,
}

impl Namer<'_> {
    pub(super) fn field(&mut self, ip: u64, base: Register, displacement: i64) -> Option<Named> {
        let (structure, offset) = self.referent(ip, Location::Register(base), DEPTH_MAX)?;
        if !self.types.is_structure(structure) {
            // A certain element of an array of references.
            return self.element(ip, base, displacement);
        }
        let offset = u64::try_from(offset.wrapping_add(displacement)).ok()?;
        let member = self.types.member_at(structure, offset)?;
        let child = self.types.referent(member.type_id)?;
        let field = Field { parent: self.types.name(structure)?, name: member.path.as_str().into() };
        Some(Named {
            parent_bytes: self.types.bytes(structure)?,
            ..self.child(field, member.offset, child, false)
        })
    }

    /// What is known of a field by what it refers to.
    fn child(&self, field: Field, offset: u64, child: TypeId, array: bool) -> Named {
        let child_is_structure = self.types.is_structure(child);
        let bytes = self.types.bytes(child).filter(|_| child_is_structure);
        Named {
            field,
            offset,
            parent_bytes: 0,
            child_is_structure,
            child_bytes: bytes.unwrap_or(0),
            child: self.types.name(child).unwrap_or_else(|| "?".into()),
            array,
        }
    }

    /// An array's element. An array that is no field is named after what it consists of.
    pub(super) fn element(&mut self, ip: u64, base: Register, displacement: i64) -> Option<Named> {
        let (whole, offset) = self.referent(ip, Location::Register(base), DEPTH_MAX)?;
        let (parent, name, element, parent_bytes, offset) = if self.types.is_structure(whole) {
            let offset = u64::try_from(offset.wrapping_add(displacement)).ok()?;
            let member = self.types.member_at(whole, offset)?;
            let element = self.types.element(member.type_id)?;
            let name = format!("{}[]", member.path);
            (self.types.name(whole)?, name, element, self.types.bytes(whole)?, member.offset)
        } else {
            let child = self.types.name(self.types.referent(whole)?)?;
            (format!("{child}*[]").into(), "[]".to_owned(), whole, 0, 0)
        };
        let child = self.types.referent(element)?;
        let field = Field { parent, name: name.into() };
        Some(Named { parent_bytes, ..self.child(field, offset, child, true) })
    }

    /// What the value of a place before an instruction refers to, and the bytes between its beginning and where the value points.
    pub(super) fn referent(&mut self, ip: u64, location: Location, depth: usize) -> Option<(TypeId, i64)> {
        if let Some(found) = self.types.variable_in(ip, location) {
            return Some((self.types.referent(found)?, 0));
        }
        let depth = depth.checked_sub(1)?;
        let types = &mut *self.types;
        let mut known = |ip: u64, location: Location| types.variable_in(ip, location).is_some();
        let origins = self.code.function.origins_of(ip, location, &self.code.edges, Trail::NONE, &mut known);
        origins.into_iter().find_map(|origin| {
            let offset = origin.offset?;
            let (id, at) = match origin.source {
                Source::Known { ip, location } => {
                    let found = self.types.variable_in(ip, location)?;
                    (self.types.referent(found)?, 0)
                }
                Source::Field { ip, base, displacement } => {
                    let (structure, at) = self.referent(ip, Location::Register(base), depth)?;
                    let at = u64::try_from(at.wrapping_add(displacement)).ok()?;
                    let found = match self.types.member_at(structure, at) {
                        Some(member) => member.type_id,
                        None => structure,
                    };
                    (self.types.referent(found)?, 0)
                }
                Source::Element { ip, base, displacement } => {
                    let (whole, at) = self.referent(ip, Location::Register(base), depth)?;
                    let at = u64::try_from(at.wrapping_add(displacement)).ok();
                    let member = at.and_then(|at| self.types.member_at(whole, at));
                    let element = member.and_then(|member| self.types.element(member.type_id));
                    (self.types.referent(element.unwrap_or(whole))?, 0)
                }
                Source::Global(address) => self.global(address)?,
                Source::Returned { target: Some(target), .. } => {
                    let found = self.types.returned_by(target)?;
                    (self.types.referent(found)?, 0)
                }
                Source::Returned { .. } | Source::Parameter(_) | Source::Other => return None,
            };
            Some((id, at + offset))
        })
    }

    /// What a variable refers to, if it is a reference; else the variable itself is referred to.
    fn global(&mut self, address: u64) -> Option<(TypeId, i64)> {
        let (extent, _) = self.loaded.image.variable_at(address)?;
        let variable = self.types.global_at(extent.start)?;
        if self.types.is_structure(variable) {
            let inside = (address - extent.start) as i64;
            let member = self
                .types
                .member_at(variable, inside as u64)
                .and_then(|member| self.types.referent(member.type_id));
            return Some(member.map_or((variable, inside), |referent| (referent, 0)));
        }
        Some((self.types.referent(variable)?, 0))
    }
}
