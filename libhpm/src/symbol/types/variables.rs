//! Which variable is in a register or on the stack when.

use std::ops::Range;

use gimli::{
    AttributeValue, DW_AT_abstract_origin, DW_AT_frame_base, DW_AT_location, DW_AT_specification, Operation,
    UnitOffset,
};
use iced_x86::Register;

use super::{Entry, Reader, TypeId, Types};
use crate::analysis::reference::Location;

/// A variable of a function, and where it is when.
#[derive(Debug)]
pub(super) struct Variable {
    pub(super) type_id: TypeId,
    pub(super) places: Vec<(Range<u64>, Location)>,
}

/// The scopes around an entry, from the subprogram inwards, each with its depth and its code.
#[derive(Default)]
struct Scopes(Vec<(isize, Vec<Range<u64>>)>);

impl Scopes {
    fn enter(&mut self, depth: isize, ranges: Vec<Range<u64>>) {
        self.leave(depth);
        self.0.push((depth, ranges));
    }

    fn leave(&mut self, depth: isize) {
        self.0.truncate(self.0.partition_point(|(outer, _)| *outer < depth));
    }

    /// The code in which an entry at this depth means something.
    fn around(&mut self, depth: isize) -> &[Range<u64>] {
        self.leave(depth);
        self.0.iter().rev().find(|(_, ranges)| !ranges.is_empty()).map_or(&[], |(_, ranges)| ranges)
    }
}

fn opens_scope(entry: &Entry) -> bool {
    matches!(
        entry.tag(),
        gimli::DW_TAG_subprogram
            | gimli::DW_TAG_inlined_subroutine
            | gimli::DW_TAG_lexical_block
            | gimli::DW_TAG_try_block
            | gimli::DW_TAG_catch_block
    )
}

impl Types {
    /// The subprogram that has an address: where it begins, and its entry.
    pub(super) fn function(&mut self, unit: usize, address: u64) -> Option<(u64, UnitOffset)> {
        if !self.subprograms.contains_key(&unit) {
            let found = self.find_subprograms(unit);
            self.subprograms.insert(unit, found);
        }
        let found = self.subprograms.get(&unit)?.iter().find(|(range, _)| range.contains(&address))?;
        Some((found.0.start, found.1))
    }

    fn find_subprograms(&self, number: usize) -> Vec<(Range<u64>, UnitOffset)> {
        let unit = self.unit(number);
        let mut found = Vec::new();
        let mut entries = unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            if entry.tag() != gimli::DW_TAG_subprogram {
                continue;
            }
            found.extend(self.ranges(number, entry).into_iter().map(|range| (range, entry.offset())));
        }
        found
    }

    /// The code of a subprogram, or of a scope in one; none for a scope that has no more than the one around it.
    fn ranges(&self, number: usize, entry: &Entry) -> Vec<Range<u64>> {
        let mut found = Vec::new();
        let Ok(mut ranges) = self.unit(number).die_ranges(entry) else { return found };
        while let Ok(Some(range)) = ranges.next() {
            found.push(range.begin..range.end);
        }
        found
    }

    /// The variables of a subprogram, those of functions that were inlined into it included.
    pub(super) fn variables(&self, number: usize, function: UnitOffset) -> Vec<Variable> {
        let unit = self.unit(number);
        let mut variables = Vec::new();
        let Ok(mut entries) = unit.entries_at_offset(function) else { return variables };
        let mut frame = None;
        let mut scopes = Scopes::default();
        while let Ok(Some(entry)) = entries.next_dfs() {
            if scopes.0.is_empty() {
                frame = self.frame_base(number, entry);
            } else if entry.depth() <= 0 {
                break;
            }
            if opens_scope(entry) {
                scopes.enter(entry.depth(), self.ranges(number, entry));
            }
            if !matches!(entry.tag(), gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter) {
                continue;
            }
            let Some(type_id) = self.declared_type(number, entry) else { continue };
            let places = self.places(number, entry, frame, scopes.around(entry.depth()));
            if !places.is_empty() {
                variables.push(Variable { type_id, places });
            }
        }
        variables
    }

    /// The type of an entry, or of what it is an instance of.
    pub(super) fn declared_type(&self, unit: usize, entry: &Entry) -> Option<TypeId> {
        if let Some(found) = self.type_of(unit, entry) {
            return Some(found);
        }
        let origin =
            entry.attr_value(DW_AT_abstract_origin).or_else(|| entry.attr_value(DW_AT_specification))?;
        let TypeId(unit, offset) = self.referred(unit, &origin)?;
        self.type_of(unit, &self.units[unit].entry(UnitOffset(offset)).ok()?)
    }

    /// Where `DW_OP_fbreg` counts from: RBP and so many bytes.
    fn frame_base(&self, unit: usize, function: &Entry) -> Option<(Register, i64)> {
        let AttributeValue::Exprloc(expression) = function.attr_value(DW_AT_frame_base)? else { return None };
        match expression.operations(self.units[unit].encoding()).next() {
            // With a frame pointer the canonical frame address is 16 bytes above what RBP points at (System V AMD64 ABI, 3.2.2); without one
            // it is found nowhere, and no slot is taken for it.
            Ok(Some(Operation::CallFrameCFA)) => Some((Register::RBP, 16)),
            Ok(Some(Operation::Register { register })) => Some((general(register)?, 0)),
            _ => None,
        }
    }

    fn places(
        &self,
        unit: usize,
        entry: &Entry,
        frame: Option<(Register, i64)>,
        scope: &[Range<u64>],
    ) -> Vec<(Range<u64>, Location)> {
        let mut places = Vec::new();
        let Some(value) = entry.attr_value(DW_AT_location) else { return places };
        let encoding = self.units[unit].encoding();
        let place = |expression: gimli::Expression<Reader>| {
            let mut operations = expression.operations(encoding);
            let first = operations.next().ok().flatten()?;
            if operations.next().ok().flatten().is_some() {
                return None;
            }
            match first {
                Operation::Register { register } => Some(Location::Register(general(register)?)),
                Operation::FrameOffset { offset } => {
                    let (base, behind) = frame?;
                    Some(Location::Slot(base, offset.wrapping_add(behind)))
                }
                Operation::RegisterOffset { register, offset, .. } => {
                    Some(Location::Slot(general(register)?, offset))
                }
                _ => None,
            }
        };
        if let AttributeValue::Exprloc(expression) = value {
            // One place for as long as the variable's scope lasts (DWARF 5, 2.6); behind that the register is another's.
            if let Some(place) = place(expression) {
                places.extend(scope.iter().map(|range| (range.clone(), place)));
            }
        } else if let Ok(Some(mut list)) = self.unit(unit).attr_locations(value) {
            while let Ok(Some(one)) = list.next() {
                places.extend(place(one.data).map(|place| (one.range.begin..one.range.end, place)));
            }
        }
        places
    }
}

/// A register by its number in DWARF (System V AMD64 ABI, figure 3.36).
fn general(register: gimli::Register) -> Option<Register> {
    const ORDER: [Register; 16] = [
        Register::RAX,
        Register::RDX,
        Register::RCX,
        Register::RBX,
        Register::RSI,
        Register::RDI,
        Register::RBP,
        Register::RSP,
        Register::R8,
        Register::R9,
        Register::R10,
        Register::R11,
        Register::R12,
        Register::R13,
        Register::R14,
        Register::R15,
    ];
    ORDER.get(usize::from(register.0)).copied()
}
