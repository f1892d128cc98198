//! Switching the recording of branches on and off.

use super::super::port::Port;
use super::super::registers::{
    DebugCtl, GlobalStatus, IA32_DEBUGCTL, IA32_LBR_CTL, IA32_LBR_DEPTH, IA32_PERF_GLOBAL_STATUS_RESET,
    MSR_LBR_SELECT,
};
use super::{BranchFilter, Branches, Kind};

/// IA32_LBR_CTL (SDM Vol. 3B 19.1): LBREn, OS, USR, CALL_STACK; from bit 16 on the types of branches.
const LBR_EN: u64 = 1;
const OS: u64 = 1 << 1;
const USR: u64 = 1 << 2;
const CALL_STACK: u64 = 1 << 3;
const TYPES_SHIFT: u32 = 16;

/// MSR_LBR_SELECT (18.8.2, 18.10): a 1 in a bit but the last *suppresses* those branches.
const CPL_EQ_0: u64 = 1;
const CPL_NEQ_0: u64 = 1 << 1;
const EN_CALLSTACK: u64 = 1 << 9;
/// The bit of each [`BranchFilter`] type, in their order: JCC, NEAR_REL_JMP, NEAR_IND_JMP, NEAR_REL_CALL, NEAR_IND_CALL,
/// NEAR_RET, FAR_BRANCH.
const SELECTS: [u64; 7] = [1 << 2, 1 << 7, 1 << 6, 1 << 3, 1 << 4, 1 << 5, 1 << 8];
/// What a call stack is made of.
const CALLS: u32 = BranchFilter::CALL | BranchFilter::INDIRECT_CALL | BranchFilter::RETURN;

impl Branches {
    const fn recorded_types(&self) -> u32 {
        if self.calls() {
            CALLS
        } else {
            self.types
        }
    }

    /// MSR_LBR_SELECT.
    fn select(&self) -> u64 {
        let types = self.recorded_types();
        let suppressed = SELECTS.iter().enumerate().filter(|(type_, _)| types >> type_ & 1 == 0);
        suppressed.fold(0, |select, (_, bit)| select | bit)
            | if self.kernel { 0 } else { CPL_EQ_0 }
            | if self.user { 0 } else { CPL_NEQ_0 }
            | if self.calls() { EN_CALLSTACK } else { 0 }
    }

    /// IA32_LBR_CTL while nothing is recorded.
    fn lbr_ctl(&self) -> u64 {
        u64::from(self.recorded_types()) << TYPES_SHIFT
            | if self.kernel { OS } else { 0 }
            | if self.user { USR } else { 0 }
            | if self.calls() { CALL_STACK } else { 0 }
    }

    /// Says what is recorded. Recording is off; what was recorded may be lost.
    pub(super) fn program<P: Port>(&self, port: &mut P) {
        match self.lbr.kind {
            Kind::ModelSpecific { .. } => port.wrmsr(MSR_LBR_SELECT, self.select()),
            Kind::Architectural { .. } => {
                port.wrmsr(IA32_LBR_CTL, self.lbr_ctl());
                port.wrmsr(IA32_LBR_DEPTH, self.depth.into());
            }
        }
    }

    /// Records from now on. The kernel's branches are frozen by a PMI, since its handler would overwrite them; the kernel's
    /// other bits of IA32_DEBUGCTL stay.
    pub(super) fn switch_on<P: Port>(&self, port: &mut P) {
        if let Kind::Architectural { .. } = self.lbr.kind {
            port.wrmsr(IA32_LBR_CTL, self.lbr_ctl() | LBR_EN);
        }
        self.set_debugctl(port, true);
    }

    /// Records nothing any more.
    pub(super) fn switch_off<P: Port>(&self, port: &mut P) {
        if let Kind::Architectural { .. } = self.lbr.kind {
            port.wrmsr(IA32_LBR_CTL, self.lbr_ctl());
        }
        self.set_debugctl(port, false);
    }

    /// Goes on recording after a PMI, which may have frozen the records: from version 4 on by a status bit, before by
    /// IA32_DEBUGCTL.LBR (18.4.7).
    pub(in super::super) fn thaw<P: Port>(&self, port: &mut P, perfmon_version: u32) {
        if self.kernel && perfmon_version < 4 {
            self.set_debugctl(port, true);
        }
        self.thaw_status(port, perfmon_version);
    }

    /// Clears the status bit of a PMI that came when no thread ran any more, as in the section of its switch: until then nothing
    /// is recorded, whatever is switched on.
    pub(in super::super) fn thaw_status<P: Port>(&self, port: &mut P, perfmon_version: u32) {
        if self.kernel && perfmon_version >= 4 {
            port.wrmsr(IA32_PERF_GLOBAL_STATUS_RESET, GlobalStatus(0).with_lbr_frz(1).0);
        }
    }

    fn set_debugctl<P: Port>(&self, port: &mut P, on: bool) {
        let model_specific = matches!(self.lbr.kind, Kind::ModelSpecific { .. });
        if !model_specific && !self.kernel {
            return;
        }
        let found = DebugCtl(port.rdmsr(IA32_DEBUGCTL));
        let mut wanted = found;
        if model_specific {
            wanted = wanted.with_lbr(on.into());
        }
        if self.kernel {
            wanted = wanted.with_freeze_lbrs_on_pmi(on.into());
        }
        if wanted != found {
            port.wrmsr(IA32_DEBUGCTL, wanted.0);
        }
    }
}
