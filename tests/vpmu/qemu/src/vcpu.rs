//! What the plugin keeps for each vCPU: tallies that translated code adds to, and the model's state.

use crate::decode::Insn;
use crate::machine::Machine;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};
use vpmu::micro::GeometryError;
use vpmu::truth::CpuTruth;
use vpmu::{Basic, BasicCounts, Core, DataAccess, Pmu, Privilege, Registers, Retired};

/// Instruction tallies count up to this value, where the conditional callback at the next instruction boundary fires. Below
/// 2^31, so that the comparison's operand fits an instruction of the host.
pub(crate) const EXHAUSTED: u64 = 1 << 30;
/// At most so many instructions pass before the callback fires although no counter asks for it: the beat of housekeeping.
const BEAT: u64 = 1 << 26;
/// No data address is known.
pub(crate) const NO_ADDRESS: u64 = u64::MAX;

/// One vCPU's scoreboard entry. Translated code adds to it without a call; its size is a power of two, for which QEMU
/// computes the address by a shift.
#[repr(C)]
pub(crate) struct Slots {
    /// Retired instructions by privilege, starting at [`EXHAUSTED`] minus the number that may pass unobserved.
    instructions: [AtomicU64; 2],
    loads: [AtomicU64; 2],
    stores: [AtomicU64; 2],
    branches: [AtomicU64; 2],
    /// Address of the [`Insn`] that began last; 0 if unknown.
    last: AtomicU64,
    /// Not 0 if the next block must begin with a look at the boundary whatever the tallies say.
    attention: AtomicU64,
    /// Linear address of the last load and the last store, from level `DataAddresses` on.
    load_address: AtomicU64,
    store_address: AtomicU64,
    _pad: [AtomicU64; 4],
}

const _: () = assert!(size_of::<Slots>().is_power_of_two());

/// Offsets of the members that translated code works on.
pub(crate) mod offset {
    use super::{Privilege, Slots, offset_of};

    pub(crate) const LAST: usize = offset_of!(Slots, last);
    pub(crate) const ATTENTION: usize = offset_of!(Slots, attention);
    pub(crate) const LOAD_ADDRESS: usize = offset_of!(Slots, load_address);
    pub(crate) const STORE_ADDRESS: usize = offset_of!(Slots, store_address);

    const fn of(base: usize, privilege: Privilege) -> usize {
        base + privilege as usize * 8
    }
    pub(crate) const fn instructions(privilege: Privilege) -> usize {
        of(offset_of!(Slots, instructions), privilege)
    }
    pub(crate) const fn loads(privilege: Privilege) -> usize {
        of(offset_of!(Slots, loads), privilege)
    }
    pub(crate) const fn stores(privilege: Privilege) -> usize {
        of(offset_of!(Slots, stores), privilege)
    }
    pub(crate) const fn branches(privilege: Privilege) -> usize {
        of(offset_of!(Slots, branches), privilege)
    }
}

fn add(cell: &AtomicU64, n: i64) {
    // Translated code of this vCPU does not run meanwhile: a load and a store do, without a locked instruction.
    cell.store(cell.load(Ordering::Relaxed).wrapping_add_signed(n), Ordering::Relaxed);
}

impl Slots {
    fn read(&self) -> BasicCounts {
        let pair = |cells: &[AtomicU64; 2]| [0, 1].map(|p: usize| cells[p].load(Ordering::Relaxed));
        [pair(&self.instructions), pair(&self.loads), pair(&self.stores), pair(&self.branches)]
    }

    /// Adds `n` occurrences (1 or -1) of everything that `insn` counts at its beginning.
    pub(crate) fn tally(&self, insn: &Insn, n: i64) {
        let p = insn.privilege as usize;
        add(&self.instructions[p], n);
        if insn.loads && !insn.repeats {
            add(&self.loads[p], n);
        }
        if insn.stores && !insn.repeats {
            add(&self.stores[p], n);
        }
        if insn.branch.is_some() {
            add(&self.branches[p], n);
        }
    }

    pub(crate) fn exhausted(&self, privilege: Privilege) -> bool {
        self.instructions[privilege as usize].load(Ordering::Relaxed) >= EXHAUSTED
    }

    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    pub(crate) fn set_last(&self, insn: u64) {
        self.last.store(insn, Ordering::Relaxed);
    }

    pub(crate) fn attend(&self, wanted: bool) {
        self.attention.store(u64::from(wanted), Ordering::Relaxed);
    }

    pub(crate) fn asks_attention(&self) -> bool {
        self.attention.load(Ordering::Relaxed) != 0
    }

    /// `insn` accesses memory; of an access in parts the first counts.
    pub(crate) fn set_address(&self, insn: &Insn, store: bool, linear: u64) {
        let cell = if store { &self.store_address } else { &self.load_address };
        if self.address(store).is_none_or(|start| !insn.is_part_of_access(start, linear)) {
            cell.store(linear, Ordering::Relaxed);
        }
    }

    fn address(&self, store: bool) -> Option<u64> {
        let cell = if store { &self.store_address } else { &self.load_address };
        Some(cell.load(Ordering::Relaxed)).filter(|&linear| linear != NO_ADDRESS)
    }
}

/// A boundary whose settlement had to wait for the end of the block (under -icount).
pub(crate) struct Deferred {
    pub(crate) retired: Retired,
    pub(crate) registers: Registers,
}

/// The model's state of one vCPU.
pub(crate) struct State {
    pub(crate) pmu: Pmu,
    pub(crate) core: Core,
    pub(crate) truth: CpuTruth,
    /// What the scoreboard said when it was last collected.
    seen: BasicCounts,
    /// CR3, once known; translated code at level `Off` does not report its changes.
    pub(crate) cr3: Option<u64>,
    /// The data accesses of the instruction that began last, at level `Microarchitecture`.
    pub(crate) load: Option<DataAccess>,
    pub(crate) store: Option<DataAccess>,
    /// The instruction that began last is a branch whose outcome the model has not been told.
    pub(crate) open_branch: bool,
    /// An exception has been raised and not yet delivered.
    pub(crate) exception_raised: bool,
    /// Instructions until a PMI that skids is raised.
    pub(crate) skid_left: Option<u64>,
    pub(crate) deferred: Option<Deferred>,
}

impl State {
    /// # Errors
    /// If the caches the user asked for are impossible.
    pub(crate) fn new(machine: &Machine, index: u32, pmu: Pmu) -> Result<Self, GeometryError> {
        let profile = pmu.profile();
        Ok(Self {
            pmu,
            core: Core::new(profile, &machine.args.geometry_of(profile), machine.llc.clone())?,
            truth: machine.truth.cpu(index),
            seen: BasicCounts::default(),
            cr3: None,
            load: None,
            store: None,
            open_branch: false,
            exception_raised: false,
            skid_left: None,
            deferred: None,
        })
    }

    /// Tells the model and the truth what translated code has tallied since the last time.
    pub(crate) fn collect(&mut self, slots: &Slots) {
        let now = slots.read();
        let mut delta = BasicCounts::default();
        for basic in Basic::ALL.map(|basic| basic as usize) {
            for privilege in [0, 1] {
                delta[basic][privilege] = now[basic][privilege].wrapping_sub(self.seen[basic][privilege]);
            }
        }
        self.seen = now;
        if let Some(left) = &mut self.skid_left {
            let [user, kernel] = delta[Basic::Instruction as usize];
            *left = left.saturating_sub(user + kernel);
        }
        self.pmu.count_basic(&delta);
        self.truth.count_basic(&delta);
    }

    /// Sets the instruction tallies so that they are exhausted when a counter could overflow. An instruction counts at most
    /// once for each basic event (repeated string instructions ask for attention themselves), so the least headroom of
    /// any event is safe; it is asked again when it is used up.
    pub(crate) fn rearm(&mut self, slots: &Slots) {
        for privilege in Privilege::ALL {
            let least = self.pmu.headroom(privilege).into_iter().min().unwrap_or(BEAT);
            let allowed = least.min(self.skid_left.unwrap_or(BEAT)).clamp(1, BEAT);
            let start = EXHAUSTED - allowed;
            slots.instructions[privilege as usize].store(start, Ordering::Relaxed);
            self.seen[Basic::Instruction as usize][privilege as usize] = start;
        }
    }

    /// Makes the callback at the next boundary fire.
    pub(crate) fn exhaust(&mut self, slots: &Slots, privilege: Privilege) {
        self.collect(slots);
        slots.instructions[privilege as usize].store(EXHAUSTED, Ordering::Relaxed);
        self.seen[Basic::Instruction as usize][privilege as usize] = EXHAUSTED;
    }

    /// Translated code has not reported what happened lately.
    pub(crate) fn forget_stream(&mut self) {
        self.open_branch = false;
        self.cr3 = None;
    }

    /// Whether the boundary has work for the model.
    pub(crate) fn is_due(&self) -> bool {
        self.deferred.is_none() && (self.pmu.needs_settle() || self.skid_left == Some(0))
    }

    /// The instruction that retired last, as the model wants to know it.
    pub(crate) fn retired(&self, last: Option<&Insn>, next_pc: u64, slots: &Slots) -> Retired {
        let Some(last) = last else {
            // Nothing is known of the instruction before the first that was observed.
            return Retired {
                pc: next_pc,
                next_pc,
                privilege: Privilege::Kernel,
                load: None,
                store: None,
                locked: false,
            };
        };
        let access = |modelled: Option<DataAccess>, does: bool, store: bool| {
            let addressed = || slots.address(store).map(|linear| DataAccess { linear, outcome: None });
            does.then(|| modelled.or_else(addressed)).flatten()
        };
        Retired {
            pc: last.pc,
            next_pc,
            privilege: last.privilege,
            load: access(self.load, last.loads, false),
            store: access(self.store, last.stores, true),
            locked: last.locked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vpmu::BranchKind;

    fn slots() -> Slots {
        Slots {
            instructions: Default::default(),
            loads: Default::default(),
            stores: Default::default(),
            branches: Default::default(),
            last: AtomicU64::default(),
            attention: AtomicU64::default(),
            load_address: AtomicU64::default(),
            store_address: AtomicU64::default(),
            _pad: Default::default(),
        }
    }

    fn call(privilege: Privilege) -> Insn {
        Insn {
            pc: 0x1000,
            physical: 0x1000,
            size: 5,
            privilege,
            loads: false,
            stores: true,
            wide: 0,
            branch: Some(BranchKind::DirectCall),
            repeats: false,
            locked: false,
            software_interrupt: false,
            special: None,
        }
    }

    #[test]
    fn what_did_not_retire_is_taken_back_wholly() {
        let slots = slots();
        slots.tally(&call(Privilege::User), 1);
        assert_eq!(slots.read(), [[1, 0], [0, 0], [1, 0], [1, 0]]);
        slots.tally(&call(Privilege::Kernel), 1);
        slots.tally(&call(Privilege::User), -1);
        assert_eq!(slots.read(), [[0, 1], [0, 0], [0, 1], [0, 1]]);
    }

    #[test]
    fn an_access_in_parts_has_the_address_of_the_first() {
        let slots = slots();
        let insn = Insn { wide: 32, ..call(Privilege::User) };
        slots.load_address.store(NO_ADDRESS, Ordering::Relaxed);
        slots.set_address(&insn, false, 0x7ff0);
        slots.set_address(&insn, false, 0x8000);
        assert_eq!(slots.address(false), Some(0x7ff0));
        slots.set_address(&insn, false, 0x8010);
        assert_eq!(slots.address(false), Some(0x8010), "beyond its 32 bytes");
    }

    #[test]
    fn a_repeated_string_instruction_tallies_its_accesses_elsewhere() {
        let slots = slots();
        slots.tally(&Insn { repeats: true, branch: None, ..call(Privilege::User) }, 1);
        assert_eq!(slots.read(), [[1, 0], [0, 0], [0, 0], [0, 0]]);
    }
}
