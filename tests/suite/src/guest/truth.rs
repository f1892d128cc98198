//! What the machine has done so far, by the PMU model's own counts (hypercall 5 of tests/vpmu/qemu).

use std::arch::x86_64::__cpuid_count;
use std::ops::Sub;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// The leaf that the model answers, and what it answers.
const LEAF: u32 = 0x4850_4d00;
const PRESENT: u32 = 0x4850_4d21;
const SUM: u32 = 5;

/// Sums over all CPUs, or what became of them from one moment to another.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sums {
    /// Instructions in user mode.
    pub(crate) user: i64,
    /// Instructions in kernel mode.
    pub(crate) kernel: i64,
    /// RDMSR, WRMSR and RDPMC of the PMU.
    pub(crate) accesses: i64,
    /// Performance-monitoring interrupts.
    pub(crate) pmis: i64,
    /// PEBS records.
    pub(crate) records: i64,
    /// Loads in user mode that missed the first-level data cache; 0 where the model does not follow accesses.
    pub(crate) misses: i64,
    /// Of the accesses, those by RDPMC, which read a counter and are no access to a model-specific register.
    pub(crate) rdpmc: i64,
}

impl Sums {
    /// The sums now. The first call begins them, where the lab was started with `truth-level`.
    ///
    /// # Errors
    /// The lab runs without the model.
    pub(super) fn now() -> Result<Self> {
        let [user, kernel, accesses, pmis, records, misses, rdpmc] = [0, 1, 2, 3, 4, 5, 6].map(sum);
        Ok(Self {
            user: user?,
            kernel: kernel?,
            accesses: accesses?,
            pmis: pmis?,
            records: records?,
            misses: misses?,
            rdpmc: rdpmc?,
        })
    }

    /// Instructions in both modes.
    pub(crate) fn instructions(&self) -> i64 {
        self.user + self.kernel
    }
}

fn sum(which: u32) -> Result<i64> {
    let answer = __cpuid_count(LEAF, SUM | which << 8);
    ensure!(answer.eax == PRESENT, "no PMU model answers CPUID leaf {LEAF:#x}");
    Ok((u64::from(answer.edx) << 32 | u64::from(answer.ebx)).cast_signed())
}

impl Sub for Sums {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            user: self.user - earlier.user,
            kernel: self.kernel - earlier.kernel,
            accesses: self.accesses - earlier.accesses,
            pmis: self.pmis - earlier.pmis,
            records: self.records - earlier.records,
            misses: self.misses - earlier.misses,
            rdpmc: self.rdpmc - earlier.rdpmc,
        }
    }
}
