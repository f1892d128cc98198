//! The walk backwards from a load to where its address came from.

use super::effect::Effect;
use super::trail::Trail;
use super::{EdgeCounts, Function, JOINS_MAX, Location, Origin, STEPS_MAX, Source};
use iced_x86::Register;

/// One search.
pub(super) struct Search<'a> {
    pub(super) function: &'a Function,
    pub(super) edges: &'a EdgeCounts,
    pub(super) known: &'a mut dyn FnMut(u64, Location) -> bool,
    pub(super) found: Vec<Origin>,
    /// Joins that lead here, each with what was looked for.
    pub(super) path: Vec<(usize, Location)>,
    pub(super) steps: usize,
}

impl Search<'_> {
    fn end(&mut self, source: Source, offset: Option<i64>, share: f64) {
        self.found.push(Origin { share, source, offset });
    }

    /// Looks for what a place holds before an instruction.
    ///
    /// Where `trail` tells which way was taken, only that one is gone.
    pub(super) fn walk(
        &mut self,
        mut index: usize,
        mut location: Location,
        mut offset: Option<i64>,
        share: f64,
        mut trail: Trail<'_>,
    ) {
        loop {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return self.end(Source::Other, offset, share);
            }
            let ip = self.function.instructions[index].ip();
            if (self.known)(ip, location) {
                return self.end(Source::Known { ip, location }, offset, share);
            }
            if let Some(previous) = trail.previous(self.function, index) {
                match self.step(previous, location, offset, share, trail) {
                    Some((next, moved)) => (index, location, offset) = (previous, next, moved),
                    None => return,
                }
                continue;
            }
            let before = &self.function.before[index];
            let previous = match before.as_slice() {
                [] if index == 0 && !matches!(location, Location::Slot(Register::RBP, _)) => {
                    return self.end(Source::Parameter(location), offset, share);
                }
                [] => return self.end(Source::Other, offset, share),
                &[one] if index > 0 && !self.may_be_entered(index) => one,
                _ => return self.join(index, location, offset, share),
            };
            match self.step(previous, location, offset, share, trail) {
                Some((next, moved)) => (index, location, offset) = (previous, next, moved),
                None => return,
            }
        }
    }

    /// Whether control can come here by a jump to a computed address.
    fn may_be_entered(&self, index: usize) -> bool {
        self.function.jumps_indirectly && self.function.before[index].is_empty()
    }

    /// Takes an instruction into account: where to look on before it, and for what with which offset; `None` where the search has ended.
    fn step(
        &mut self,
        index: usize,
        location: Location,
        offset: Option<i64>,
        share: f64,
        trail: Trail<'_>,
    ) -> Option<(Location, Option<i64>)> {
        let moved = |by: Option<i64>| offset.zip(by).map(|(offset, by)| offset.wrapping_add(by));
        match self.function.effect(&self.function.instructions[index], location) {
            Effect::None => Some((location, offset)),
            Effect::Moved(location, by) => Some((location, moved(by))),
            Effect::Is(source) => {
                self.end(source, offset, share);
                None
            }
            Effect::Either(other) => {
                if self.path.len() >= JOINS_MAX {
                    self.end(Source::Other, offset, share);
                    return None;
                }
                self.path.push((index, other));
                self.walk(index, other, offset, share / 2.0, trail);
                self.walk(index, location, offset, share / 2.0, trail);
                self.path.pop();
                None
            }
            Effect::EitherSource(source) => {
                self.end(source, offset, share / 2.0);
                self.walk(index, location, offset, share / 2.0, trail);
                None
            }
        }
    }

    /// Several ways lead here: each has its share.
    fn join(&mut self, index: usize, location: Location, offset: Option<i64>, share: f64) {
        if self.path.contains(&(index, location)) {
            // Around a loop: what comes from there came from here.
            return;
        }
        if self.path.len() >= JOINS_MAX {
            return self.end(Source::Other, offset, share);
        }
        self.path.push((index, location));
        let function = self.function;
        let to = function.instructions[index].ip();
        let ways = &function.before[index];
        let counts: Vec<u64> = ways
            .iter()
            .map(|&way| self.edges.get(&(function.instructions[way].ip(), to)).copied().unwrap_or(0))
            .collect();
        let all: u64 = counts.iter().sum();
        let mut entered = ways.len();
        if index == 0 {
            // The function's own entry is a way, too.
            entered += 1;
            self.end(Source::Parameter(location), offset, share / entered as f64);
        }
        for (&way, count) in ways.iter().zip(counts) {
            let part = if all > 0 && index > 0 { count as f64 / all as f64 } else { 1.0 / entered as f64 };
            if part > 0.0
                && let Some((location, offset)) = self.step(way, location, offset, share * part, Trail::NONE)
            {
                self.walk(way, location, offset, share * part, Trail::NONE);
            }
        }
        self.path.pop();
    }
}
