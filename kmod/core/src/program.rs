//! A session's events as register values: made once, the same on every CPU.

use super::abi::SessionConfig;
use super::{Pmu, Refusal};

/// What a session writes to the PMU, and how its counters map to its events.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    config: SessionConfig,
}

impl Program {
    /// Checks every field of the request against this PMU and assigns the counters.
    ///
    /// # Errors
    /// The reason, with its detail, why the request is not valid, or cannot be met by this PMU.
    pub fn new(_pmu: &Pmu, config: &SessionConfig) -> Result<Self, Refusal> {
        Ok(Self { config: *config })
    }

    /// The request, with the driver's defaults in the fields that were 0 for default.
    #[must_use]
    pub const fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// Whether hardware writes records (the session has a precise event).
    #[must_use]
    pub const fn samples(&self) -> bool {
        todo!()
    }

    /// Whether an event counts at CPL 0.
    #[must_use]
    pub const fn sees_kernel(&self) -> bool {
        todo!()
    }
}
