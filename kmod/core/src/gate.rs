//! Keeps the PMI's NMI out of an engine that the interrupted code is using.
//!
//! An NMI cannot be masked, so it may arrive inside any section that works on the CPU's engine. The protocol, for one CPU:
//!
//! - A section starts with [`Gate::enter`], which succeeds always except in an NMI that interrupted another section.
//! - The NMI that is refused does not touch the engine: it calls [`super::acknowledge`], which uses registers
//!   that no section depends on, and, if the PMI was hpm's, [`Gate::defer`].
//! - A section ends with [`Gate::leave`]; while that says false, a PMI was deferred meanwhile: serve it with
//!   [`super::Engine::service`], which is told how many there were, and leave again.
//!
//! Sections stop the PMU first, so a PMI inside one was already on its way or came after the PMU was started again at
//! the section's end.

use core::sync::atomic::{AtomicU8, Ordering};

const FREE: u8 = 0;
const BUSY: u8 = 1;
const BUSY_PMI_DEFERRED: u8 = 2;

/// One CPU's gate. Used only by that CPU, with interrupts off or from its NMI.
#[derive(Debug, Default)]
pub struct Gate(AtomicU8);

impl Gate {
    /// An open gate.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU8::new(FREE))
    }

    /// Starts a section. False when the caller is an NMI that interrupted one.
    #[must_use]
    pub fn enter(&self) -> bool {
        self.0.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// From the NMI that was refused: leaves its work to the interrupted section.
    pub fn defer(&self) {
        self.0.store(BUSY_PMI_DEFERRED, Ordering::Relaxed);
    }

    /// Ends the section. False when a PMI was deferred: the caller still holds the gate, and serves the PMI first.
    #[must_use]
    pub fn leave(&self) -> bool {
        if self.0.compare_exchange(BUSY, FREE, Ordering::Release, Ordering::Relaxed).is_ok() {
            return true;
        }
        self.0.store(BUSY, Ordering::Relaxed);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::Gate;

    #[test]
    fn a_deferred_pmi_keeps_the_gate_closed_until_served() {
        let gate = Gate::new();
        assert!(gate.enter());
        assert!(!gate.enter(), "an NMI inside the section");
        gate.defer();
        assert!(!gate.leave());
        assert!(!gate.enter(), "the section still holds the gate");
        assert!(gate.leave());
        assert!(gate.enter());
    }
}
