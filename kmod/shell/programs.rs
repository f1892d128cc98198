// SPDX-License-Identifier: GPL-2.0
//! A session's program for each type of core; one on a processor that is not hybrid.

use kernel::alloc::KBox;
use kernel::prelude::*;

use super::machine;
use super::rights;
use crate::hpm_abi::{Reason, SessionConfig};
use crate::hpm_core::hybrid::{check_types, place, CORE_TYPES};
use crate::hpm_core::{Pmu, Program, Refusal};

/// The programs, all of one request.
pub(super) struct Programs {
    /// Of the first type that the machine has.
    first: KBox<Program>,
    /// Of the second, if the processor is hybrid.
    second: Option<KBox<Program>>,
}

impl Programs {
    /// The request as programs, checked against every PMU of the machine and the caller's rights.
    pub(super) fn new(config: &SessionConfig) -> Result<Self, Refusal> {
        check_types(config, |core_type| machine::pmu_of(place(core_type)).is_ok())?;
        let mut pmus = (0..CORE_TYPES).filter_map(|core| machine::pmu_of(core).ok());
        let first = match pmus.next() {
            Some(pmu) => program(pmu, config)?,
            None => program(machine::pmu()?, config)?,
        };
        Ok(Self { first, second: pmus.next().map(|pmu| program(pmu, config)).transpose()? })
    }

    /// The program for cores of the type at this place.
    pub(super) fn on(&self, core: usize) -> &Program {
        match &self.second {
            Some(second) if core != 0 => second,
            _ => &self.first,
        }
    }

    /// Any of them, for what all have in common.
    pub(super) fn any(&self) -> &Program {
        &self.first
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Program> {
        [Some(&*self.first), self.second.as_deref()].into_iter().flatten()
    }
}

/// Not inlined, because a program is large for a kernel stack.
#[inline(never)]
fn program(pmu: &Pmu, config: &SessionConfig) -> Result<KBox<Program>, Refusal> {
    let no_memory = |_| Refusal::new(Reason::NoMemory, [size_of::<Program>() as u64, 0]);
    let mut program = KBox::new(Program::new(pmu, config)?, GFP_KERNEL).map_err(no_memory)?;
    rights::may_run(&mut program)?;
    Ok(program)
}
