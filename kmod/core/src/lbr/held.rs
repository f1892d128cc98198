//! One CPU's branch records while hpm uses them: what was found there, and whose branches are in them now.

use super::super::abi::Reason;
use super::super::port::Port;
use super::super::registers::{
    DebugCtl, IA32_DEBUGCTL, IA32_LBR_CTL, IA32_LBR_DEPTH, MSR_LASTBRANCH_TOS, MSR_LBR_SELECT,
};
use super::super::threads::{Place, Threads};
use super::super::{Pmu, Refusal};
use super::entries::Entry;
use super::{Branches, Kind, Lbr, BRANCHES_MAX};

/// Whose branches are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Holder {
    pub(in super::super) session: u64,
    pub(in super::super) cpu: u32,
    /// The thread's place; without one nothing of it is kept.
    pub(in super::super) place: Option<Place>,
}

/// The branch records of one CPU. Large, and never moved: a kernel stack is small.
#[derive(Debug)]
pub(in super::super) struct LastBranches {
    /// What was found, once a session has used them.
    found: Found,
    /// What is programmed.
    programmed: Option<Branches>,
    /// Whose branches the records hold.
    holder: Option<Holder>,
}

/// The registers as found.
#[derive(Debug)]
struct Found {
    /// `None` before they were read.
    lbr: Option<Lbr>,
    debugctl: DebugCtl,
    /// MSR_LBR_SELECT or IA32_LBR_CTL.
    control: u64,
    /// MSR_LASTBRANCH_TOS or IA32_LBR_DEPTH.
    position: u64,
    /// FROM, TO and INFO of each record, as the registers have them.
    entries: [Entry; BRANCHES_MAX],
}

impl LastBranches {
    /// Not used yet.
    pub(in super::super) const fn new() -> Self {
        let found = Found {
            lbr: None,
            debugctl: DebugCtl(0),
            control: 0,
            position: 0,
            entries: [[0; 3]; BRANCHES_MAX],
        };
        Self { found, programmed: None, holder: None }
    }

    /// Refuses when somebody else has them recorded.
    pub(in super::super) fn check_idle<P: Port>(&self, port: &mut P, pmu: &Pmu) -> Result<(), Refusal> {
        let (None, Some(lbr)) = (self.found.lbr, pmu.lbr) else { return Ok(()) };
        let register = match lbr.kind {
            Kind::ModelSpecific { .. } => IA32_DEBUGCTL,
            Kind::Architectural { .. } => IA32_LBR_CTL,
        };
        let value = port.rdmsr(register);
        // Bit 0 of both: LBR, and LBREn.
        if value & 1 == 1 {
            return Err(Refusal::new(Reason::BranchesRunning, [register.into(), value]));
        }
        Ok(())
    }

    /// A thread starts to run: its branches are recorded from now on, after its own of before or none.
    pub(in super::super) fn enter<P: Port>(
        &mut self,
        port: &mut P,
        branches: &Branches,
        holder: Holder,
        threads: Threads<'_>,
    ) {
        if self.found.lbr.is_none() {
            self.found.read(port, branches.lbr);
        }
        if self.programmed.as_ref() != Some(branches) {
            branches.program(port);
            (self.programmed, self.holder) = (Some(*branches), None);
        }
        let stayed = holder.place.is_some_and(|place| threads.was_last_on(place, holder.cpu));
        let kept = stayed && self.holder == Some(holder);
        let saved = holder.place.and_then(|place| threads.calls(place)).filter(|_| branches.calls());
        // A deep sleep of the CPU empties the records (Linux: `lbr_is_reset_in_cstate`).
        let lost = kept && saved.is_some_and(|saved| !saved.is_empty() && branches.are_empty(port));
        if !kept || lost {
            match saved {
                Some(saved) => {
                    let mut calls = [0; BRANCHES_MAX];
                    let count = saved.load(&mut calls);
                    branches.write_calls(port, calls.get(..count).unwrap_or_default());
                }
                None => branches.clear(port),
            }
        }
        self.holder = Some(holder);
        branches.switch_on(port);
    }

    /// The thread leaves: nothing is recorded any more, and its calls are kept.
    pub(in super::super) fn leave<P: Port>(&self, port: &mut P, threads: Threads<'_>) {
        let (Some(branches), Some(holder)) = (&self.programmed, self.holder) else { return };
        branches.switch_off(port);
        let Some(place) = holder.place else { return };
        threads.note_last_on(place, holder.cpu);
        if let Some(saved) = threads.calls(place).filter(|_| branches.calls()) {
            let mut calls = [0; BRANCHES_MAX];
            let count = branches.read_calls(port, &mut calls);
            saved.store(calls.get(..count).unwrap_or_default());
        }
    }

    /// The thread that runs has replaced its program: what it did before says nothing any more.
    pub(in super::super) fn restart<P: Port>(&self, port: &mut P) {
        if let Some(branches) = &self.programmed {
            branches.switch_off(port);
            branches.clear(port);
            branches.switch_on(port);
        }
    }

    /// The session leaves this CPU.
    pub(in super::super) fn forget(&mut self, session: u64) {
        if self.holder.is_some_and(|holder| holder.session == session) {
            self.holder = None;
        }
    }

    /// Gives everything back as it was found.
    pub(in super::super) fn release<P: Port>(&mut self, port: &mut P) {
        if let Some(branches) = self.programmed.take() {
            branches.switch_off(port);
        }
        self.holder = None;
        self.found.restore(port);
    }
}

impl Found {
    fn read<P: Port>(&mut self, port: &mut P, lbr: Lbr) {
        self.debugctl = DebugCtl(port.rdmsr(IA32_DEBUGCTL));
        let (control, position) = registers(&lbr);
        self.control = port.rdmsr(control);
        self.position = port.rdmsr(position);
        let bank = lbr.bank();
        for (number, [from, to, info]) in (0..self.entries_of(&lbr)).zip(&mut self.entries) {
            (*from, *to) = (port.rdmsr(bank.from + number), port.rdmsr(bank.to + number));
            *info = bank.info.map_or(0, |register| port.rdmsr(register + number));
        }
        self.lbr = Some(lbr);
    }

    /// How many records there are at the position that was found: IA32_LBR_x beyond the depth do not exist.
    fn entries_of(&self, lbr: &Lbr) -> u32 {
        match lbr.kind {
            Kind::ModelSpecific { .. } => lbr.depth,
            Kind::Architectural { .. } => (self.position as u32).min(lbr.depth),
        }
    }

    fn restore<P: Port>(&mut self, port: &mut P) {
        let Some(lbr) = self.lbr.take() else { return };
        let (control, position) = registers(&lbr);
        // Before the records: writing a depth clears them.
        port.wrmsr(position, self.position);
        let bank = lbr.bank();
        for (number, [from, to, info]) in (0..self.entries_of(&lbr)).zip(&self.entries) {
            port.wrmsr(bank.from + number, lbr.written(*from));
            port.wrmsr(bank.to + number, *to);
            if let Some(register) = bank.info {
                port.wrmsr(register + number, *info);
            }
        }
        port.wrmsr(control, self.control);
        let now = DebugCtl(port.rdmsr(IA32_DEBUGCTL));
        let was =
            now.with_lbr(self.debugctl.lbr()).with_freeze_lbrs_on_pmi(self.debugctl.freeze_lbrs_on_pmi());
        if was != now {
            port.wrmsr(IA32_DEBUGCTL, was.0);
        }
    }
}

/// The registers that say what is recorded, and where the newest record is or how many there are.
const fn registers(lbr: &Lbr) -> (u32, u32) {
    match lbr.kind {
        Kind::ModelSpecific { .. } => (MSR_LBR_SELECT, MSR_LASTBRANCH_TOS),
        Kind::Architectural { .. } => (IA32_LBR_CTL, IA32_LBR_DEPTH),
    }
}
