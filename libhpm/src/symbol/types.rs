//! Types of variables and fields, by DWARF.
//!
//! A register at an instruction has a type where a variable's location list says that the variable is in it; a field has the type of the
//! member at its offset, however deep it is nested. Whatever DWARF does not say plainly is `None`.

mod variables;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use gimli::{
    AttributeValue, DW_AT_byte_size, DW_AT_data_member_location, DW_AT_location, DW_AT_name, DW_AT_type,
    DebuggingInformationEntry, Dwarf, EndianArcSlice, LittleEndian, Operation, Unit, UnitOffset, UnitRef,
};

use self::variables::Variable;
use super::FileFinder;
use super::module::read_dwarf;
use crate::analysis::reference::Location;
use crate::elf;

type Reader = EndianArcSlice<LittleEndian>;
type Entry = DebuggingInformationEntry<Reader>;

/// Deepest nesting of fields within fields, and of names for types, that is followed.
const DEPTH_MAX: usize = 12;

/// A type: its unit, and its place in that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(usize, usize);

/// A field of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Its name; of a field within a field the path, as `head.next`.
    pub path: String,
    /// Where it begins in the structure.
    pub offset: u64,
    /// Its type.
    pub type_id: TypeId,
}

/// The debug information of a binary.
pub struct Types {
    dwarf: Dwarf<Reader>,
    units: Vec<Unit<Reader>>,
    /// Code of each unit.
    code: Vec<(Range<u64>, usize)>,
    /// Of units that were asked about: their subprograms.
    subprograms: HashMap<usize, Vec<(Range<u64>, UnitOffset)>>,
    functions: HashMap<u64, Arc<Vec<Variable>>>,
    /// Variables of the whole program, by address.
    globals: Option<HashMap<u64, TypeId>>,
}

impl Types {
    /// Of the file that was recorded as `path`; `None` when it has none that can be read.
    #[must_use]
    pub fn load(path: &str, finder: &FileFinder) -> Option<Self> {
        let recorded = Path::new(path);
        let dwarf = elf::read(&finder.here(recorded), |elf| {
            Ok(read_dwarf(recorded, elf, finder).or_else(|| {
                let debug_file = finder.debug_file(recorded, elf)?;
                elf::read(&debug_file, |debug| Ok(read_dwarf(&debug_file, debug, finder))).ok()?
            }))
        });
        let dwarf = dwarf.ok().flatten()?;
        let mut units = Vec::new();
        let mut headers = dwarf.units();
        while let Ok(Some(header)) = headers.next() {
            units.extend(dwarf.unit(header));
        }
        let mut code = Vec::new();
        for (number, unit) in units.iter().enumerate() {
            let Ok(mut ranges) = dwarf.unit_ranges(unit) else { continue };
            while let Ok(Some(range)) = ranges.next() {
                code.push((range.begin..range.end, number));
            }
        }
        Some(Self {
            dwarf,
            units,
            code,
            subprograms: HashMap::new(),
            functions: HashMap::new(),
            globals: None,
        })
    }

    /// The type of what a place holds before the instruction at an address that the linker gave, if a variable is there.
    pub fn variable_in(&mut self, address: u64, location: Location) -> Option<TypeId> {
        let unit = self.code.iter().find(|(range, _)| range.contains(&address))?.1;
        let (function, entry) = self.function(unit, address)?;
        let variables = match self.functions.get(&function) {
            Some(variables) => Arc::clone(variables),
            None => {
                let variables = Arc::new(self.variables(unit, entry));
                self.functions.insert(function, Arc::clone(&variables));
                variables
            }
        };
        let here = |variable: &&Variable| {
            variable.places.iter().any(|(range, place)| range.contains(&address) && *place == location)
        };
        // Of an inlined function a parameter and its argument can be in one place; they have one type.
        variables.iter().find(here).map(|variable| variable.type_id)
    }

    /// The type of the variable that begins at an address that the linker gave.
    pub fn global_at(&mut self, address: u64) -> Option<TypeId> {
        if self.globals.is_none() {
            let globals = (0..self.units.len()).flat_map(|unit| self.globals_of(unit)).collect();
            self.globals = Some(globals);
        }
        self.globals.as_ref()?.get(&address).copied()
    }

    /// What the function that begins at an address returns.
    pub fn returned_by(&mut self, address: u64) -> Option<TypeId> {
        let unit = self.code.iter().find(|(range, _)| range.contains(&address))?.1;
        let (start, entry) = self.function(unit, address)?;
        let entry = self.units[unit].entry(entry).ok()?;
        if start == address { self.type_of(unit, &entry) } else { None }
    }

    /// What a reference refers to; `None` for what is no reference.
    #[must_use]
    pub fn referent(&self, id: TypeId) -> Option<TypeId> {
        let (id, entry) = self.plain(id)?;
        match entry.tag() {
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => self.type_of(id.0, &entry),
            // What wraps a single reference, as `unique_ptr`, `NonNull` or `Option<Box<_>>`.
            gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type => {
                let member = self.member_at(id, 0)?;
                let (_, leaf) = self.plain(member.type_id)?;
                (leaf.tag() == gimli::DW_TAG_pointer_type).then(|| self.referent(member.type_id))?
            }
            _ => None,
        }
    }

    /// What an array consists of; `None` for what is no array.
    #[must_use]
    pub fn element(&self, id: TypeId) -> Option<TypeId> {
        let (id, entry) = self.plain(id)?;
        (entry.tag() == gimli::DW_TAG_array_type).then(|| self.type_of(id.0, &entry))?
    }

    /// The name of a type, without qualifiers; of an array that of its element and `[]`.
    #[must_use]
    pub fn name(&self, id: TypeId) -> Option<Arc<str>> {
        let (id, entry) = self.plain(id)?;
        if entry.tag() == gimli::DW_TAG_array_type {
            return Some(format!("{}[]", self.name(self.type_of(id.0, &entry)?)?).into());
        }
        self.text(id.0, &entry).map(Into::into)
    }

    /// Bytes of a type.
    #[must_use]
    pub fn bytes(&self, id: TypeId) -> Option<u64> {
        self.plain(id)?.1.attr_value(DW_AT_byte_size)?.udata_value()
    }

    /// Whether it is a structure, whose fields have names; not a number or an array.
    #[must_use]
    pub fn is_structure(&self, id: TypeId) -> bool {
        self.plain(id).is_some_and(|(_, entry)| is_structure(&entry))
    }

    /// The innermost field at an offset of a structure.
    #[must_use]
    pub fn member_at(&self, id: TypeId, offset: u64) -> Option<Member> {
        self.member(id, offset, DEPTH_MAX)
    }

    /// All innermost fields of a structure, in the order of their offsets, with their bytes.
    #[must_use]
    pub fn fields(&self, id: TypeId) -> Vec<(Member, u64)> {
        let bytes = self.bytes(id).unwrap_or(0);
        let mut fields: Vec<(Member, u64)> = Vec::new();
        let mut offset = 0;
        while offset < bytes {
            match self.member_at(id, offset) {
                Some(member) if member.offset == offset => {
                    let size = self.bytes(member.type_id).unwrap_or(1).max(1);
                    fields.push((member, size));
                    offset += size;
                }
                _ => offset += 1,
            }
        }
        fields
    }

    fn member(&self, id: TypeId, offset: u64, depth: usize) -> Option<Member> {
        let (id, entry) = self.plain(id)?;
        if depth == 0 || !is_structure(&entry) {
            return None;
        }
        let mut found: Option<Member> = None;
        for (name, start, type_id) in self.members(id, &entry) {
            let bytes = self.bytes(type_id).unwrap_or(0);
            if !(start..start.saturating_add(bytes.max(1))).contains(&offset) {
                continue;
            }
            let direct = Member { path: name.clone(), offset: start, type_id };
            let inner = self.member(type_id, offset - start, depth - 1).map(|inner| Member {
                path: if name.is_empty() { inner.path } else { format!("{name}.{}", inner.path) },
                offset: start + inner.offset,
                type_id: inner.type_id,
            });
            let member = inner.unwrap_or(direct);
            // Of variants that share their place the one with a reference there is meant: it was followed.
            let refers = |member: &Member| {
                self.plain(member.type_id).is_some_and(|(_, one)| one.tag() == gimli::DW_TAG_pointer_type)
            };
            if found.as_ref().is_none_or(|known| !refers(known) && refers(&member)) {
                found = Some(member);
            }
        }
        found
    }

    /// Name, offset and type of each direct member, those of base classes and of an enumeration's variants included.
    fn members(&self, id: TypeId, entry: &Entry) -> Vec<(String, u64, TypeId)> {
        let unit = self.unit(id.0);
        let mut members = Vec::new();
        let Ok(mut entries) = unit.entries_at_offset(entry.offset()) else { return members };
        let mut skip_below = isize::MAX;
        let mut first = true;
        while let Ok(Some(child)) = entries.next_dfs() {
            let depth = child.depth();
            if !std::mem::take(&mut first) && depth <= 0 {
                break;
            }
            if depth > skip_below {
                continue;
            }
            skip_below = isize::MAX;
            match child.tag() {
                gimli::DW_TAG_member | gimli::DW_TAG_inheritance => {
                    let location = child.attr_value(DW_AT_data_member_location);
                    // A static member of C++ has no place in the object.
                    let is_union = entry.tag() == gimli::DW_TAG_union_type;
                    let start = match location {
                        Some(value) => value.udata_value(),
                        None => is_union.then_some(0),
                    };
                    let name = self.text(id.0, child).unwrap_or_default();
                    if let (Some(start), Some(type_id)) = (start, self.type_of(id.0, child)) {
                        members.push((name, start, type_id));
                    }
                }
                gimli::DW_TAG_variant_part | gimli::DW_TAG_variant => {}
                _ if depth > 0 => skip_below = depth,
                _ => {}
            }
        }
        members
    }

    fn unit(&self, number: usize) -> UnitRef<'_, Reader> {
        UnitRef::new(&self.dwarf, &self.units[number])
    }

    fn text(&self, unit: usize, entry: &Entry) -> Option<String> {
        let value = entry.attr_value(DW_AT_name)?;
        let text = self.unit(unit).attr_string(value).ok()?;
        Some(gimli::Reader::to_string_lossy(&text).ok()?.into_owned())
    }

    /// The type that an entry names.
    fn type_of(&self, unit: usize, entry: &Entry) -> Option<TypeId> {
        self.referred(unit, &entry.attr_value(DW_AT_type)?)
    }

    /// The entry that an attribute refers to, in this unit or, after optimisation of the whole program, in another.
    fn referred(&self, unit: usize, value: &AttributeValue<Reader>) -> Option<TypeId> {
        match *value {
            AttributeValue::UnitRef(offset) => Some(TypeId(unit, offset.0)),
            AttributeValue::DebugInfoRef(offset) => {
                let holds = |one: &Unit<Reader>| offset.to_unit_offset(&one.header);
                let (number, offset) =
                    self.units.iter().enumerate().find_map(|(number, one)| Some((number, holds(one)?)))?;
                Some(TypeId(number, offset.0))
            }
            _ => None,
        }
    }

    /// A type without other names and qualifiers.
    fn plain(&self, mut id: TypeId) -> Option<(TypeId, Entry)> {
        for _ in 0..DEPTH_MAX {
            let entry = self.units[id.0].entry(UnitOffset(id.1)).ok()?;
            match entry.tag() {
                gimli::DW_TAG_typedef
                | gimli::DW_TAG_const_type
                | gimli::DW_TAG_volatile_type
                | gimli::DW_TAG_restrict_type
                | gimli::DW_TAG_atomic_type => id = self.type_of(id.0, &entry)?,
                _ => return Some((id, entry)),
            }
        }
        None
    }

    fn globals_of(&self, number: usize) -> Vec<(u64, TypeId)> {
        let unit = self.unit(number);
        let mut globals = Vec::new();
        let mut entries = unit.entries();
        while let Ok(Some(entry)) = entries.next_dfs() {
            if entry.tag() != gimli::DW_TAG_variable {
                continue;
            }
            let Some(AttributeValue::Exprloc(expression)) = entry.attr_value(DW_AT_location) else {
                continue;
            };
            let address = match expression.operations(unit.encoding()).next() {
                Ok(Some(Operation::Address { address })) => Some(address),
                Ok(Some(Operation::AddressIndex { index })) => unit.address(index).ok(),
                _ => None,
            };
            if let (Some(address), Some(type_id)) = (address, self.declared_type(number, entry)) {
                globals.push((address, type_id));
            }
        }
        globals
    }
}

fn is_structure(entry: &Entry) -> bool {
    matches!(entry.tag(), gimli::DW_TAG_structure_type | gimli::DW_TAG_class_type | gimli::DW_TAG_union_type)
}
