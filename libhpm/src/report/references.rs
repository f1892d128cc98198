//! Misses by the reference through which the missed object was reached, and what is known of the objects at both ends.

mod callers;
mod known;
mod namer;
mod ways;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use iced_x86::Register;
use serde::Serialize;

use self::known::{Known, Seen};
use self::namer::{Named, Namer};
use self::ways::Ways;
use super::{Located, Locator, Resolver};
use crate::analysis::address::PLACES;
use crate::analysis::coallocation::layout::FieldHeat;
use crate::analysis::coallocation::{Candidate, Field, Pair, Weights};
use crate::analysis::objects::{Life, Objects};
use crate::analysis::reference::{EdgeCounts, Function, Location, Origin, Source, Trail};
use crate::symbol::{FileFinder, Loaded, Types};
use crate::trace::{Meta, SampleRow};

/// References within references whose types are looked for.
const DEPTH_MAX: usize = 8;

/// Why samples came through no known field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unattributed {
    /// The instruction is not known, or its code is not here.
    NoCode,
    /// The instruction does not load through a register.
    NoReference,
    /// The function was given the reference.
    Parameter,
    /// The reference is a variable's.
    Global,
    /// A function returned it.
    Returned,
    /// The address was computed, or lies in the function's frame.
    Other,
}

impl Unattributed {
    /// Why, in a few words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::NoCode => "the instruction or its code is not known",
            Self::NoReference => "it does not load through a register",
            Self::Parameter => "the function was given the reference",
            Self::Global => "the reference is a variable's",
            Self::Returned => "a function returned the reference",
            Self::Other => "the address was computed, or is the function's own frame",
        }
    }
}

/// Gives samples to fields.
pub struct References {
    finder: FileFinder,
    types: HashMap<Arc<str>, Option<Types>>,
    functions: HashMap<(usize, u64), Arc<Code>>,
    ways: Ways,
    origins: HashMap<(usize, u64), Arc<[Origin]>>,
    named: HashMap<(usize, u64, Register, i64), Option<Named>>,
    weights: Weights,
    unattributed: BTreeMap<Unattributed, f64>,
    pairs: BTreeMap<Pair, Known>,
    heat: BTreeMap<Arc<str>, Heat>,
    /// Binaries without types whose fields have no names by that.
    untyped: BTreeSet<Arc<str>>,
    /// Last time of a sample or an allocation.
    end: u64,
}

/// A function, and how often control took which way in it.
struct Code {
    function: Function,
    edges: EdgeCounts,
    name: Arc<str>,
    start: u64,
}

/// How often the fields of a structure were missed.
#[derive(Debug)]
struct Heat {
    bytes: u64,
    fields: Vec<FieldHeat>,
}

impl Heat {
    fn samples(&self) -> u64 {
        self.fields.iter().map(|field| field.samples).sum()
    }
}

/// A structure whose fields were missed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TypeHeat {
    /// Its name.
    pub name: Arc<str>,
    /// Its bytes.
    pub bytes: u64,
    /// All its fields with their samples.
    pub fields: Vec<FieldHeat>,
}

impl References {
    /// Of a trace as described, with binaries and their debug information where the finder finds them.
    #[must_use]
    pub fn new(meta: &Meta, finder: FileFinder) -> Self {
        Self {
            finder,
            types: HashMap::new(),
            functions: HashMap::new(),
            ways: Ways::new(meta),
            origins: HashMap::new(),
            named: HashMap::new(),
            weights: Weights::default(),
            unattributed: BTreeMap::new(),
            pairs: BTreeMap::new(),
            heat: BTreeMap::new(),
            untyped: BTreeSet::new(),
            end: 0,
        }
    }

    /// Takes note of a sample's branch records. To be told of all samples before the first is added.
    pub fn note(&mut self, resolver: &Resolver, locator: &mut Locator, row: &SampleRow) {
        self.end = self.end.max(row.tsc);
        self.ways.note(resolver, locator, row);
    }

    /// Why branch records were left out, in one sentence; `None` where there were none, or they were not.
    #[must_use]
    pub fn ways_left_out(&self) -> Option<&str> {
        self.ways.left_out()
    }

    /// Gives a sample to the fields that its reference came from. Returns the parts that each has.
    pub fn add(
        &mut self,
        resolver: &Resolver,
        locator: &mut Locator,
        row: &SampleRow,
        located: &Located,
        objects: &Objects,
    ) {
        let loaded = located.cause.and_then(|cause| {
            let loaded = locator.images().at(resolver.spaces(), row.pid, row.tsc, cause)?;
            Some((loaded.linked(cause), loaded))
        });
        let Some((ip, loaded)) = loaded else { return self.leave(Unattributed::NoCode, 1.0, row) };
        let Some(code) = self.code(&loaded, ip) else { return self.leave(Unattributed::NoCode, 1.0, row) };
        self.add_heat(&loaded, &code, ip);
        let origins = self.origins(row, &loaded, &code, ip);
        if origins.is_empty() {
            return self.leave(Unattributed::NoReference, 1.0, row);
        }
        let branches = self.ways.of(row);
        let sample =
            Sampled { row, located, objects, branches, ip, loaded: &loaded, code: &code, callee: None };
        for origin in origins.iter() {
            self.give(resolver, locator, &sample, origin);
        }
    }

    /// Gives a part of a sample to the field that it came from.
    fn give(&mut self, resolver: &Resolver, locator: &mut Locator, sample: &Sampled<'_>, origin: &Origin) {
        let why = match origin.source {
            Source::Field { ip, base, displacement } => {
                return self.add_reference(sample, origin, (ip, base, displacement), false);
            }
            Source::Element { ip, base, displacement } => {
                return self.add_reference(sample, origin, (ip, base, displacement), true);
            }
            Source::Parameter(location) => {
                if self.give_in_caller(resolver, locator, sample, origin, location) {
                    return;
                }
                Unattributed::Parameter
            }
            Source::Global(_) => Unattributed::Global,
            Source::Returned { .. } => Unattributed::Returned,
            Source::Known { .. } | Source::Other => Unattributed::Other,
        };
        self.leave(why, origin.share, sample.row);
    }

    /// The weights (Table 5.1).
    #[must_use]
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Samples that came through no known field, by reason, the most frequent first.
    #[must_use]
    pub fn unattributed(&self) -> Vec<(Unattributed, f64)> {
        let mut all: Vec<_> = self.unattributed.iter().map(|(why, samples)| (*why, *samples)).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all
    }

    /// Binaries whose fields have no names because they have no debug information that can be read.
    pub fn untyped(&self) -> impl Iterator<Item = &str> {
        self.untyped.iter().map(|path| &**path)
    }

    /// The pairs of objects with what is known of them.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        let own = |pair: &Pair| self.heat.get(&pair.field.parent).map(|heat| heat.samples() as f64);
        self.pairs.iter().map(|(pair, known)| known.candidate(pair, own(pair))).collect()
    }

    /// Structures with the samples of their fields, the one with most samples first.
    #[must_use]
    pub fn heat(&self) -> Vec<TypeHeat> {
        let mut all: Vec<TypeHeat> = self
            .heat
            .iter()
            .map(|(name, heat)| TypeHeat {
                name: Arc::clone(name),
                bytes: heat.bytes,
                fields: heat.fields.clone(),
            })
            .collect();
        let samples = |one: &TypeHeat| self.heat[&one.name].samples();
        all.sort_by(|a, b| samples(b).cmp(&samples(a)).then_with(|| a.name.cmp(&b.name)));
        all
    }

    fn leave(&mut self, why: Unattributed, share: f64, row: &SampleRow) {
        self.weights.leave(share, row.period);
        *self.unattributed.entry(why).or_default() += share;
    }

    fn code(&mut self, loaded: &Loaded, ip: u64) -> Option<Arc<Code>> {
        let (extent, name) = loaded.image.function_at(ip)?;
        let image = Arc::as_ptr(&loaded.image) as usize;
        let key = (image, extent.start);
        if !self.functions.contains_key(&key) {
            let function =
                Function::new(loaded.image.function_code(&extent), extent.start, loaded.image.bits);
            let edges = self.ways.edges(image, &extent, &function);
            self.functions.insert(key, Arc::new(Code { function, edges, name, start: extent.start }));
        }
        self.functions.get(&key).cloned()
    }

    /// Where a sample's reference came from: by its own branch records if it has some; else by what others say of the ways to it.
    fn origins(&mut self, row: &SampleRow, loaded: &Loaded, code: &Code, ip: u64) -> Arc<[Origin]> {
        let own = callers::linked(loaded, self.ways.of(row));
        let origins = |trail| code.function.origins(ip, &code.edges, trail, &mut |_, _| false).into();
        if !own.is_empty() {
            return origins(Trail::new(&own, ip));
        }
        let key = (Arc::as_ptr(&loaded.image) as usize, ip);
        Arc::clone(self.origins.entry(key).or_insert_with(|| origins(Trail::NONE)))
    }

    fn add_reference(
        &mut self,
        sample: &Sampled<'_>,
        origin: &Origin,
        load: (u64, Register, i64),
        element: bool,
    ) {
        let Sampled { row, located, objects, .. } = *sample;
        let parent_address = sample.parent_address(load);
        let parent = parent_address.and_then(|address| objects.number_at(row.pid, row.tsc, address));
        let parent = parent.map(|number| &objects.lives()[number]);
        let named = self.named(sample.loaded, sample.code, load, element);
        let named = named.unwrap_or_else(|| unnamed(sample, load, element, parent, parent_address));
        self.weights.add(&named.field, origin.share, row.period, located.access.young);
        let pair = Pair { field: named.field.clone(), child: Arc::clone(&named.child) };
        let child = located.access.object.as_ref();
        let seen = Seen {
            origin,
            period: row.period,
            access: &located.access,
            named: &named,
            parent,
            parent_address,
            child: child.and_then(|object| objects.lives().get(object.number as usize)),
            end: self.end,
        };
        self.pairs.entry(pair).or_default().add(&seen);
    }

    /// The name of the field that a load reads.
    fn named(
        &mut self,
        loaded: &Loaded,
        code: &Code,
        load: (u64, Register, i64),
        element: bool,
    ) -> Option<Named> {
        let (ip, base, displacement) = load;
        let key = (Arc::as_ptr(&loaded.image) as usize, ip, base, displacement);
        if let Some(known) = self.named.get(&key) {
            return known.clone();
        }
        let path = Arc::clone(&loaded.image.path);
        let types = self.types.entry(path).or_insert_with_key(|path| Types::load(path, &self.finder));
        if types.is_none() {
            self.untyped.insert(Arc::clone(&loaded.image.path));
        }
        let named = types.as_mut().and_then(|types| {
            let mut namer = Namer { types, loaded, code };
            if element { namer.element(ip, base, displacement) } else { namer.field(ip, base, displacement) }
        });
        self.named.insert(key, named.clone());
        named
    }

    /// Counts a sample for the field that its own instruction accesses.
    fn add_heat(&mut self, loaded: &Loaded, code: &Code, ip: u64) {
        let Some((base, displacement)) = code.function.operand(ip) else { return };
        let path = Arc::clone(&loaded.image.path);
        let types = self.types.entry(path).or_insert_with_key(|path| Types::load(path, &self.finder));
        let Some(types) = types else { return };
        let mut namer = Namer { types, loaded, code };
        let Some((structure, offset)) = namer.referent(ip, Location::Register(base), DEPTH_MAX) else {
            return;
        };
        let Some(member) = u64::try_from(offset.wrapping_add(displacement))
            .ok()
            .and_then(|offset| types.member_at(structure, offset))
        else {
            return;
        };
        let Some(name) = types.name(structure) else { return };
        let heat = self.heat.entry(name).or_insert_with(|| Heat {
            bytes: types.bytes(structure).unwrap_or(0),
            fields: types
                .fields(structure)
                .into_iter()
                .map(|(member, bytes)| FieldHeat {
                    name: member.path.into(),
                    offset: member.offset,
                    bytes,
                    samples: 0,
                })
                .collect(),
        });
        if let Some(field) = heat.fields.iter_mut().find(|field| field.offset == member.offset) {
            field.samples += 1;
        }
    }
}

/// A sample being given to fields.
#[derive(Clone, Copy)]
struct Sampled<'a> {
    row: &'a SampleRow,
    located: &'a Located,
    objects: &'a Objects,
    /// Branch records, the newest first; of a caller those that are older than its call.
    branches: &'a [[u64; 3]],
    /// Its instruction, by the linker's address; of a caller its call.
    ip: u64,
    loaded: &'a Loaded,
    code: &'a Code,
    /// Of a caller: in which function the sample, or the next call on the way to it, is.
    callee: Option<&'a Sampled<'a>>,
}

impl Sampled<'_> {
    /// Where the field was that the reference was loaded from, if the register that pointed there still does.
    fn parent_address(&self, (load, base, displacement): (u64, Register, i64)) -> Option<u64> {
        let registers = self.row.registers.filter(|_| self.row.next_ip.is_some())?;
        if !self.code.function.is_kept(base, load, self.ip) || !self.is_kept_by_callees(base) {
            return None;
        }
        let place = PLACES.iter().position(|place| *place == base)?;
        Some(registers.at(place + 2).wrapping_add(displacement as u64))
    }
}

impl Code {
    /// An instruction of it, as `name+12`.
    fn place(&self, ip: u64) -> Arc<str> {
        format!("[{}+{:#x}]", self.name, ip.wrapping_sub(self.start)).into()
    }
}

/// A field without a name: what allocated its object stands for its type; where that is not known either, the load is all there is.
fn unnamed(
    sample: &Sampled<'_>,
    load: (u64, Register, i64),
    element: bool,
    parent: Option<&Life>,
    parent_address: Option<u64>,
) -> Named {
    let (type_name, offset) = match (parent, parent_address) {
        (Some(life), Some(address)) => (Arc::clone(&life.site), address.wrapping_sub(life.address)),
        _ => (sample.code.place(load.0), load.2.unsigned_abs()),
    };
    let name = if element { "[]".into() } else { format!("+{offset}").into() };
    let child = sample.located.access.object.as_ref();
    Named {
        field: Field { parent: type_name, name },
        offset: if parent.is_some() { offset } else { 0 },
        parent_bytes: 0,
        child: child.map_or_else(|| "?".into(), |object| Arc::clone(&object.site)),
        child_is_structure: true,
        child_bytes: 0,
        array: element,
    }
}
