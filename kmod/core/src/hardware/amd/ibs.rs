//! Instruction-based sampling of one CPU.

use super::super::super::abi::Reason;
use super::super::super::allocate::Counter;
use super::super::super::ibs::{register_of, runs, waits, Ibs, Levels, Sample, SAMPLERS};
use super::super::super::port::Port;
use super::super::super::Refusal;
use super::note_served;

/// IBS on a CPU whose counters hpm holds.
#[derive(Clone, Copy, Debug)]
pub(in super::super::super) struct HeldIbs {
    ibs: Ibs,
    /// The control registers as found, in the order of [`SAMPLERS`]; `None` while they are not hpm's.
    found: Option<[u64; SAMPLERS.len()]>,
    /// The values from which the samplers go on.
    values: [u64; SAMPLERS.len()],
}

/// The place of a sampler.
fn place_of(sampler: Counter) -> usize {
    usize::from(sampler == Counter::IBS_OP)
}

impl HeldIbs {
    /// IBS that is not hpm's yet.
    pub(super) const fn new(ibs: Ibs) -> Self {
        Self { ibs, found: None, values: [0; SAMPLERS.len()] }
    }

    /// Takes IBS, which the kernel's reservation of counters does not cover. Nothing when hpm has it.
    ///
    /// # Errors
    /// [`Reason::CountersRunning`] when somebody else samples with it.
    pub(in super::super::super) fn hold<P: Port>(&mut self, port: &mut P) -> Result<(), Refusal> {
        if self.found.is_some() {
            return Ok(());
        }
        let mut found = [0; SAMPLERS.len()];
        for (value, sampler) in found.iter_mut().zip(SAMPLERS) {
            let register = register_of(sampler);
            *value = port.rdmsr(register);
            if runs(sampler, *value) {
                return Err(Refusal::new(Reason::CountersRunning, [register.into(), *value]));
            }
        }
        self.found = Some(found);
        Ok(())
    }

    /// Gives IBS back as it was found. It must be stopped: a sampler that runs is somebody else's, and left to him.
    pub(super) fn release<P: Port>(&mut self, port: &mut P) {
        if let Some(found) = self.found.take() {
            note_served(port);
            for (value, sampler) in found.into_iter().zip(SAMPLERS) {
                let register = register_of(sampler);
                if !runs(sampler, port.rdmsr(register)) {
                    port.wrmsr(register, value);
                }
            }
        }
    }

    /// Forgets a sample that waits, and all counts. IBS must be stopped: as in [`HeldIbs::release`].
    pub(super) fn clear<P: Port>(&mut self, port: &mut P) {
        if self.found.is_none() {
            return;
        }
        for (value, sampler) in self.values.iter_mut().zip(SAMPLERS) {
            let register = register_of(sampler);
            if *value != 0 && !runs(sampler, port.rdmsr(register)) {
                port.wrmsr(register, 0);
            }
            *value = 0;
        }
        note_served(port);
    }

    /// Stops those samplers whose bits are set.
    pub(super) fn stop<P: Port>(&mut self, port: &mut P, bits: u64) {
        let Some(_) = self.found else { return };
        for (value, sampler) in self.values.iter_mut().zip(SAMPLERS) {
            if bits >> sampler.bit() & 1 == 1 {
                // What stops may lose its count, as by an erratum; the value before is where it goes on.
                *value = self.ibs.stop(port, sampler);
            }
        }
    }

    /// Starts those samplers whose bits are set.
    pub(super) fn start<P: Port>(&self, port: &mut P, bits: u64) {
        let Some(_) = self.found else { return };
        for (value, sampler) in self.values.iter().zip(SAMPLERS) {
            if bits >> sampler.bit() & 1 == 1 {
                self.ibs.start(port, sampler, *value);
            }
        }
    }

    /// Whether a sampler runs although its bit of `running` is clear, or the other way round.
    pub(super) fn is_foreign<P: Port>(&self, port: &mut P, running: u64) -> bool {
        self.found.is_some()
            && SAMPLERS.into_iter().any(|sampler| {
                let ours = running >> sampler.bit() & 1 == 1;
                runs(sampler, port.rdmsr(register_of(sampler))) != ours
            })
    }

    /// Has a sampler sample after `left` more events, once it is started. `control` are the event's own bits.
    pub(in super::super::super) fn set(&mut self, sampler: Counter, control: u64, left: u64) {
        self.values[place_of(sampler)] = self.ibs.control(sampler, control, left);
    }

    /// Has a sampler whose sample was taken sample again, a period later on average.
    pub(in super::super::super) fn set_next(&mut self, sampler: Counter, control: u64, period: u64) {
        let next = self.ibs.next(sampler, self.values[place_of(sampler)], period);
        self.set(sampler, control, next);
    }

    /// How many events a sampler that was stopped had left.
    pub(in super::super::super) fn left(&self, sampler: Counter) -> u64 {
        self.ibs.left(sampler, self.values[place_of(sampler)])
    }

    /// The sample that waits in the registers of a sampler that was stopped, if one does. Its interrupt may still come.
    pub(in super::super::super) fn take<P: Port>(
        &self,
        port: &mut P,
        sampler: Counter,
        levels: Levels,
    ) -> Option<Sample> {
        let value = self.values[place_of(sampler)];
        if !waits(sampler, value) {
            return None;
        }
        note_served(port);
        let sample = self.ibs.read(port, sampler, value, levels);
        // Nothing waits any more: else every NMI would be taken for this sampler's until it is started again.
        port.wrmsr(register_of(sampler), 0);
        Some(sample)
    }
}
