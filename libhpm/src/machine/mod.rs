//! What this machine can do: the facts that `hpmctl doctor` reports, and who holds the PMU.

mod facts;
mod findings;
mod holders;

pub use self::facts::{DriverFacts, Facts, Hypervisor, Pmu, Processor, pmu_name, vendor};
pub use self::findings::{Finding, Status, assess};
pub use self::holders::{Holder, Holders, driver_users};

#[cfg(test)]
mod tests;
