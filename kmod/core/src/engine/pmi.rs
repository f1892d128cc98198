//! A PMI: whose it is, and what is done for it.

use super::super::abi::QuantumEnd;
use super::super::buffer;
use super::super::interrupt;
use super::super::meter::Meter;
use super::super::port::{Port, Rings};
use super::super::program::Program;
use super::super::quantum::{Ending, Stay};
use super::super::session::Session;
use super::super::stacks;
use super::{Engine, Unit};

impl Engine {
    /// An NMI has come: true when it was hpm's PMI, which is then acknowledged and LVTPC unmasked. `session` is the
    /// one that [`Engine::loaded`] names.
    pub fn pmi<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: Option<&mut Session<'_, R>>,
        last_ip: u64,
    ) -> bool {
        let Some(hardware) = &self.unit.hardware else { return false };
        let mut meter = Meter::new(port);
        let begun = meter.rdtsc();
        let stay = self.stay.as_ref().filter(|stay| stay.armed);
        let ready = match (&session, stay) {
            (Some(session), Some(stay)) if stay.session == session.id => {
                has_ready(&mut meter, session.program)
            }
            _ => false,
        };
        let ours = ready && hardware.acknowledge_records(&mut meter) || hardware.acknowledge(&mut meter);
        if let Some(session) = session {
            session.state.totals.pmis += u64::from(ours);
            meter.charge(&mut session.state.totals);
            if ours {
                self.serve(port, session, last_ip, begun);
                self.thaw(port, session);
            }
        }
        ours
    }

    /// Does the work of a PMI that was acknowledged inside a section, the `nth` of that section.
    pub fn service<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: Option<&mut Session<'_, R>>,
        last_ip: u64,
        nth: u32,
    ) {
        if let Some(session) = session {
            self.unit.guard.look_for_storm(nth);
            let totals = &mut session.state.totals;
            totals.pmis += 1;
            // What `acknowledge` has done, which had no session to charge it to.
            totals.msr_reads += 1;
            totals.msr_writes += 1;
            let begun = port.rdtsc();
            self.serve(port, session, last_ip, begun);
            self.thaw(port, session);
        }
    }

    /// Goes on recording branches that the PMI has frozen.
    fn thaw<P: Port, R: Rings>(&self, port: &mut P, session: &Session<'_, R>) {
        let running = self.measures(session);
        if let (Some(branches), Some(hardware), true) =
            (&session.program.branches, &self.unit.hardware, running)
        {
            branches.thaw(port, hardware.perfmon_version());
        }
    }

    /// Cuts the quantum whose records have reached the threshold; another cut may have done it already. The handler has
    /// worked since `begun`.
    fn serve<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: &mut Session<'_, R>,
        last_ip: u64,
        begun: u64,
    ) {
        let armed = |stay: &&Stay| stay.armed && stay.session == session.id;
        let Some(stay) = self.stay.as_ref().filter(armed) else { return };
        session.select(stay.turn);
        let mut meter = Meter::new(port);
        let full = match session.program.pebs {
            Some(layout) => buffer::threshold_reached(&mut meter, &layout),
            None => self.unit.handle_interrupts(&mut meter, session, stay),
        };
        let ending = Ending { end: QuantumEnd::Pmi, last_ip };
        if full {
            self.cut_metered(&mut meter, session, ending);
        }
        let now = meter.rdtsc();
        self.unit.guard.add_pmi(now.saturating_sub(begun), &session.limits);
        if self.unit.guard.is_throttled() && self.stay.as_ref().is_some_and(|stay| stay.armed) {
            self.cut_metered(&mut meter, session, ending);
        }
        meter.charge(&mut session.state.totals);
    }
}
impl Unit {
    /// Writes the records of counters that interrupt. Whether the quantum is to be cut: the segment is full, or the record
    /// is to have a stack.
    fn handle_interrupts<P: Port, R: Rings>(
        &mut self,
        port: &mut P,
        session: &mut Session<'_, R>,
        stay: &Stay,
    ) -> bool {
        let Some(hardware) = &mut self.hardware else { return false };
        self.intruded |= hardware.notice_others(port);
        hardware.set_global_ctrl(port, 0);
        let full = interrupt::handle(hardware, &mut self.values, port, session, stay);
        hardware.set_global_ctrl(port, session.program.global_ctrl);
        let any = session.state.handled.records.iter().any(|&records| records > 0);
        full || stacks::bytes_wanted(session.program) > 0 && any
    }
}

/// Whether the debug store says that the records are there which a PMI is for: then no register has to.
fn has_ready<P: Port>(port: &mut P, program: &Program) -> bool {
    program.pebs.is_some_and(|layout| !layout.is_architectural() && buffer::threshold_reached(port, &layout))
}
