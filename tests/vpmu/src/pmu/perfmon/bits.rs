//! Bit fields of the control and status registers (SDM Vol. 3B, figures 18-1 to 18-13; Vol. 4, table 2-2).

/// IA32_PERFEVTSELx (figure 18-6).
pub(super) mod evtsel {
    pub(crate) const USR: u64 = 1 << 16;
    pub(crate) const OS: u64 = 1 << 17;
    pub(crate) const E: u64 = 1 << 18;
    pub(crate) const INT: u64 = 1 << 20;
    pub(crate) const EN: u64 = 1 << 22;
    pub(crate) const INV: u64 = 1 << 23;
    pub(crate) const CMASK: u64 = 0xFF << 24;
    /// All defined bits. AnyThread (21) is among them in versions 3 and 4: the modelled core runs one thread,
    /// so it makes no difference to what is counted. Pin control (19) is accepted and has no pin to drive.
    pub(crate) const DEFINED: u64 = 0xFFFF_FFFF;
    /// AnyThread, reserved before version 3 and where `CPUID.0AH:EDX[15]` says it is deprecated.
    pub(crate) const ANY_THREAD: u64 = 1 << 21;
    /// Adaptive_Record, where there is adaptive PEBS (Vol. 3B 20.9.2.1).
    pub(crate) const ADAPTIVE_RECORD: u64 = 1 << 34;
    /// EQ, where `CPUID.23H.0:EBX[1]` says so (ISE).
    pub(crate) const EQ: u64 = 1 << 36;
    /// RDPMC_USR_DISABLE, where `CPUID.23H.0:EBX[2]` says so (ISE).
    pub(crate) const RDPMC_USR_DISABLE: u64 = 1 << 37;
    /// UnitMask2, where `CPUID.23H.0:EBX[0]` says so (ISE).
    pub(crate) const UMASK2: u64 = 0xFF << 40;
    /// What says which event it is.
    pub(crate) const EVENT: u64 = 0xFFFF | UMASK2;
    /// Event select alone.
    pub(crate) const SELECT: u64 = 0xFF;
}

/// One 4-bit field of IA32_FIXED_CTR_CTRL (figure 18-7); bit 2 is AnyThread.
pub(super) mod fixed_ctrl {
    pub(crate) const OS: u64 = 1;
    pub(crate) const USR: u64 = 1 << 1;
    pub(crate) const PMI: u64 = 1 << 3;
    /// The field's defined bits, with AnyThread and without.
    pub(crate) const DEFINED: u64 = 0b1111;
    pub(crate) const DEFINED_WITHOUT_ANY_THREAD: u64 = 0b1011;
    /// FC0_Adaptive_Record, where there is adaptive PEBS (Vol. 3B 20.9.2.1); at the same distance as the
    /// fields.
    pub(crate) const ADAPTIVE_RECORD: u64 = 1 << 32;
    /// FC0_RDPMC_USR_DISABLE, as in IA32_PERFEVTSELx; at the same distance.
    pub(crate) const RDPMC_USR_DISABLE: u64 = 1 << 33;
}

/// IA32_PERF_GLOBAL_STATUS beside the counters' overflow bits (figure 18-10).
pub(super) mod status {
    /// The buffer of architectural PEBS has reached its threshold.
    pub(crate) const PEBS_THRESHOLD: u64 = 1 << 54;
    pub(crate) const LBR_FRZ: u64 = 1 << 58;
    pub(crate) const CTR_FRZ: u64 = 1 << 59;
    pub(crate) const OVF_UNCORE: u64 = 1 << 61;
    pub(crate) const OVF_BUFFER: u64 = 1 << 62;
    pub(crate) const COND_CHGD: u64 = 1 << 63;
}

/// IA32_DEBUGCTL (Vol. 3B 17.4.1).
pub(super) mod debugctl {
    pub(crate) const LBR: u64 = 1;
    pub(crate) const FREEZE_LBRS_ON_PMI: u64 = 1 << 11;
    pub(crate) const FREEZE_PERFMON_ON_PMI: u64 = 1 << 12;
}
