//! Branch prediction: a gshare direction predictor (McFarling, WRL Technical Note TN-36, 1993), a branch
//! target buffer for indirect branches, a return stack.
//!
//! Intel does not publish its predictors; this one is a textbook's, so that predictable branches are
//! predicted and unpredictable ones are not.

use super::BranchKind;
use crate::profile::Microarchitecture;

#[derive(Debug, Clone)]
pub(super) struct Predictor {
    /// Two-bit saturating counters; 2 and 3 predict "taken".
    directions: Vec<u8>,
    /// The directions of the last conditional branches, most recent in bit 0.
    history: usize,
    /// Branch and its last target, direct-mapped.
    targets: Vec<(u64, u64)>,
    /// Return addresses, a ring: the oldest is overwritten.
    returns: Vec<u64>,
    top: usize,
}

impl Predictor {
    pub(super) fn new(parameters: &Microarchitecture) -> Self {
        Self {
            directions: vec![1; 1 << parameters.direction_bits],
            history: 0,
            targets: vec![(0, 0); 1 << parameters.target_bits],
            returns: vec![0; parameters.return_stack.into()],
            top: 0,
        }
    }

    /// A branch retires; whether it was mispredicted. Direct targets are known at decode and never
    /// mispredicted; far branches are not predicted.
    pub(super) fn retire(&mut self, pc: u64, fallthrough: u64, next: u64, kind: BranchKind) -> bool {
        match kind {
            BranchKind::Conditional => self.conditional(pc, next != fallthrough),
            BranchKind::DirectJump | BranchKind::Far => false,
            BranchKind::IndirectJump => self.indirect(pc, next),
            BranchKind::DirectCall => {
                self.push(fallthrough);
                false
            }
            BranchKind::IndirectCall => {
                self.push(fallthrough);
                self.indirect(pc, next)
            }
            BranchKind::Return => self.pop() != next,
        }
    }

    fn conditional(&mut self, pc: u64, taken: bool) -> bool {
        let mask = self.directions.len() - 1;
        let counter = &mut self.directions[(pc as usize ^ self.history) & mask];
        let predicted = *counter >= 2;
        *counter = if taken { (*counter + 1).min(3) } else { counter.saturating_sub(1) };
        self.history = (self.history << 1 | usize::from(taken)) & mask;
        predicted != taken
    }

    fn indirect(&mut self, pc: u64, target: u64) -> bool {
        let mask = self.targets.len() - 1;
        let entry = &mut self.targets[pc as usize & mask];
        let mispredicted = *entry != (pc, target);
        *entry = (pc, target);
        mispredicted
    }

    fn push(&mut self, address: u64) {
        self.top = (self.top + 1) % self.returns.len();
        self.returns[self.top] = address;
    }

    fn pop(&mut self) -> u64 {
        let address = self.returns[self.top];
        self.top = (self.top + self.returns.len() - 1) % self.returns.len();
        address
    }
}
