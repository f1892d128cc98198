// SPDX-License-Identifier: GPL-2.0
//! A session's programs for each type of core, or for each logical processor of a core that share its PMU; most processors
//! have one type, whose logical processors share nothing. Of each there is one program, or with events that take turns one
//! for each turn.

use kernel::prelude::*;

use super::machine;
use super::rights;
use crate::hpm_abi::{Reason, SessionConfig, SEGMENT_BYTES};
use crate::hpm_core::hybrid::{check_types, place, CORE_TYPES};
use crate::hpm_core::turns::Turns;
use crate::hpm_core::{Pmu, Program, Refusal};

/// The programs, all of one request.
pub(super) struct Programs {
    /// Of the first place that the machine has.
    first: KVVec<Program>,
    /// That place.
    first_place: usize,
    /// Of the second, if it has two.
    second: Option<KVVec<Program>>,
}

impl Programs {
    /// The request as programs, checked against every PMU of the machine and the caller's rights. Not inlined, because a kernel
    /// stack has no room for more beside it.
    #[inline(never)]
    pub(super) fn new(config: &SessionConfig) -> Result<Self, Refusal> {
        check_types(config, |core_type| machine::pmu_of(place(core_type)).is_ok())?;
        let mut pmus = (0..CORE_TYPES).filter_map(|core| Some((core, machine::pmu_of(core).ok()?)));
        let (first_place, first) = match pmus.next() {
            Some((place, pmu)) => (place, turns_of(pmu, config)?),
            None => (0, turns_of(machine::pmu()?, config)?),
        };
        let second = pmus.next().map(|(_, pmu)| turns_of(pmu, config)).transpose()?;
        Ok(Self { first, first_place, second })
    }

    /// Makes segments as large as all programs that sample have use for, up to `most` bytes.
    pub(super) fn enlarge_segments(&mut self, most: u32) {
        let sampling = self.iter().filter(|program| program.samples());
        let bytes = sampling.map(|program| program.largest_segment(most)).min().unwrap_or(SEGMENT_BYTES);
        for program in [Some(&mut self.first), self.second.as_mut()].into_iter().flatten().flatten() {
            program.set_segment_bytes(bytes);
        }
    }

    /// The programs of the turns for this place; `None` when no CPU had it yet when the session was made.
    pub(super) fn on(&self, core: usize) -> Option<&[Program]> {
        if core == self.first_place {
            return Some(&self.first);
        }
        self.second.as_ref().map(|second| &second[..])
    }

    /// The first of them, or any where there is none.
    pub(super) fn first_on(&self, core: usize) -> &Program {
        self.on(core).and_then(<[Program]>::first).unwrap_or(self.any())
    }

    /// Any of them, for what all have in common.
    pub(super) fn any(&self) -> &Program {
        // `turns_of` makes at least one.
        &self.first[0]
    }

    /// Whether events take turns on some type of core.
    pub(super) fn take_turns(&self) -> bool {
        self.first.len() > 1 || self.second.as_ref().is_some_and(|second| second.len() > 1)
    }

    /// Whether hardware writes records for one of them into memory.
    pub(super) fn are_precise(&self) -> bool {
        self.iter().any(Program::is_precise)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Program> {
        [Some(&self.first), self.second.as_ref()].into_iter().flatten().flatten()
    }
}

fn turns_of(pmu: &Pmu, config: &SessionConfig) -> Result<KVVec<Program>, Refusal> {
    let turns = Turns::new(pmu, config)?;
    let mut programs = KVVec::new();
    for turn in 0..turns.count() {
        add(&mut programs, &turns, turn, pmu, config)?;
    }
    programs.iter_mut().try_for_each(rights::may_run)?;
    Ok(programs)
}

/// Makes the next program where it stays.
fn add(
    programs: &mut KVVec<Program>,
    turns: &Turns,
    turn: usize,
    pmu: &Pmu,
    config: &SessionConfig,
) -> Result<(), Refusal> {
    let no_memory = Refusal::new(Reason::NoMemory, [size_of::<Program>() as u64, 0]);
    programs.reserve(1, GFP_KERNEL_ACCOUNT).map_err(|_| no_memory)?;
    let place = programs.spare_capacity_mut().first_mut().ok_or(no_memory)?.write(Program::EMPTY);
    turns.program(turn, pmu, config, place)?;
    // SAFETY: There is room for one more, which has just been written.
    unsafe { programs.inc_len(1) };
    Ok(())
}
