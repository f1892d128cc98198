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
    /// Of each place ([`crate::hpm_core::detect::Machine::place`]); none where the machine has no such place.
    of: [KVVec<Program>; CORE_TYPES],
    /// The first place that has some.
    first: usize,
}

impl Programs {
    /// The request as programs, checked against every PMU of the machine and the caller's rights. Not inlined, because a kernel
    /// stack has no room for more beside it.
    #[inline(never)]
    pub(super) fn new(config: &SessionConfig) -> Result<Self, Refusal> {
        check_types(config, |core_type| machine::pmu_of(place(core_type)).is_ok())?;
        let first = (0..CORE_TYPES).find(|&place| machine::pmu_of(place).is_ok());
        let none = || machine::pmu().err().unwrap_or(Refusal::new(Reason::NoPmu, [0; 2]));
        let mut of = [const { KVVec::new() }; CORE_TYPES];
        for (place, programs) in of.iter_mut().enumerate() {
            if let Ok(pmu) = machine::pmu_of(place) {
                *programs = turns_of(pmu, config)?;
            }
        }
        Ok(Self { of, first: first.ok_or_else(none)? })
    }

    /// Makes segments as large as all programs that sample have use for, up to `most` bytes.
    pub(super) fn enlarge_segments(&mut self, most: u32) {
        let sampling = self.iter().filter(|program| program.samples());
        let bytes = sampling.map(|program| program.largest_segment(most)).min().unwrap_or(SEGMENT_BYTES);
        for program in self.of.iter_mut().flatten() {
            program.set_segment_bytes(bytes);
        }
    }

    /// The programs of the turns for this place; `None` when no CPU had it yet when the session was made.
    pub(super) fn on(&self, core: usize) -> Option<&[Program]> {
        self.of.get(core).map(|programs| &programs[..]).filter(|programs| !programs.is_empty())
    }

    /// The first of them, or any where there is none.
    pub(super) fn first_on(&self, core: usize) -> &Program {
        self.on(core).and_then(<[Program]>::first).unwrap_or(self.any())
    }

    /// Any of them, for what all have in common.
    pub(super) fn any(&self) -> &Program {
        // `turns_of` makes at least one.
        &self.of[self.first][0]
    }

    /// Whether events take turns on some type of core.
    pub(super) fn take_turns(&self) -> bool {
        self.of.iter().any(|programs| programs.len() > 1)
    }

    /// Whether hardware writes records for one of them into memory.
    pub(super) fn are_precise(&self) -> bool {
        self.iter().any(Program::is_precise)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Program> {
        self.of.iter().flatten()
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
