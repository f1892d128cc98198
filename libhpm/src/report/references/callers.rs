//! What a function was given is followed into its caller, by the sample's branch records: most of what C programs miss in strings is
//! missed in `strcmp` and its like.

use iced_x86::Register;

use super::{References, Sampled};
use crate::analysis::reference::{Location, Origin, Trail};
use crate::report::{Locator, Resolver};
use crate::symbol::Loaded;

/// Calls that are followed, at most.
const CALLERS_MAX: usize = 8;
/// Bytes of an entry of the procedure linkage table (System V AMD64 ABI, 5.2).
const LINKAGE_BYTES: u64 = 16;

/// Branch records by the addresses that the linker gave to a binary.
pub(super) fn linked(loaded: &Loaded, branches: &[[u64; 3]]) -> Vec<(u64, u64)> {
    branches.iter().map(|&[from, to, _]| (loaded.linked(from), loaded.linked(to))).collect()
}

impl References {
    /// Gives a part of a sample, whose reference the function was given in a place, to the fields that its caller had it from; false
    /// where the caller is not known.
    pub(super) fn give_in_caller(
        &mut self,
        resolver: &Resolver,
        locator: &mut Locator,
        sample: &Sampled<'_>,
        origin: &Origin,
        location: Location,
    ) -> bool {
        // What lies on the stack has another distance from the stack pointer there.
        let is_register = matches!(location, Location::Register(_));
        let Some((call, branches)) = sample.call().filter(|_| is_register && sample.depth() < CALLERS_MAX)
        else {
            return false;
        };
        let Some((call, branches, loaded)) = self.before_linkage(resolver, locator, sample, call, branches)
        else {
            return false;
        };
        let ip = loaded.linked(call);
        let Some(code) = self.code(&loaded, ip) else { return false };
        let own = linked(&loaded, branches);
        let trail = Trail::new(&own, ip);
        let origins = code.function.origins_of(ip, location, &code.edges, trail, &mut |_, _| false);
        let caller = Sampled { branches, ip, loaded: &loaded, code: &code, callee: Some(sample), ..*sample };
        for there in &origins {
            let offset = origin.offset.zip(there.offset).map(|(here, there)| here.wrapping_add(there));
            let origin = Origin { share: origin.share * there.share, source: there.source, offset };
            self.give(resolver, locator, &caller, &origin);
        }
        !origins.is_empty()
    }

    /// The call itself where control came through an entry of the procedure linkage table, which no function covers; with the records
    /// that are older, and the caller's binary.
    fn before_linkage<'a>(
        &mut self,
        resolver: &Resolver,
        locator: &mut Locator,
        sample: &Sampled<'_>,
        from: u64,
        branches: &'a [[u64; 3]],
    ) -> Option<(u64, &'a [[u64; 3]], Loaded)> {
        let mut at =
            |address| locator.images().at(resolver.spaces(), sample.row.pid, sample.row.tsc, address);
        let loaded = at(from)?;
        if self.code(&loaded, loaded.linked(from)).is_some() {
            return Some((from, branches, loaded));
        }
        let (&[call, entry, _], older) = branches.split_first()?;
        let is_linkage = entry <= from && from - entry < LINKAGE_BYTES;
        is_linkage.then(|| at(call)).flatten().map(|loaded| (call, older, loaded))
    }
}

impl<'a> Sampled<'a> {
    /// Where its function was called from, with the records that are older.
    fn call(&self) -> Option<(u64, &'a [[u64; 3]])> {
        let own = linked(self.loaded, self.branches);
        let (from, older) = Trail::new(&own, self.ip).entry(&self.code.function)?;
        Some((from.wrapping_add(self.loaded.bias), &self.branches[self.branches.len() - older..]))
    }

    /// How many calls are between it and the sample.
    fn depth(&self) -> usize {
        std::iter::successors(self.callee, |one| one.callee).count()
    }

    /// Whether a register that a caller had set still has its value where the sample is.
    pub(super) fn is_kept_by_callees(&self, register: Register) -> bool {
        std::iter::successors(self.callee, |one| one.callee)
            .all(|one| one.code.function.never_writes(register))
    }
}
