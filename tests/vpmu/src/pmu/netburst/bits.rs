//! Bit fields of NetBurst's control registers (SDM Vol. 3B 18.16.1 and 18.16.2, with Hyper-Threading).

/// An event selection control register.
pub(super) mod escr {
    /// T0_OS, T0_USR, T1_OS and T1_USR by logical processor and privilege level (user, kernel).
    pub(crate) const QUALIFIERS: [[u64; 2]; 2] = [[1 << 2, 1 << 3], [1 << 0, 1 << 1]];
    /// Tag enable (4) and tag value (8:5) mark what execution_event counts; the model tags nothing by them.
    pub(crate) const DEFINED: u64 = 0x7FFF_FFFF;

    pub(crate) fn mask(escr: u64) -> u16 {
        (escr >> 9) as u16
    }

    pub(crate) fn select(escr: u64) -> u8 {
        (escr >> 25 & 0x3F) as u8
    }
}

/// A counter configuration control register.
pub(super) mod cccr {
    /// One of the CASCNTxINTOy bits, in those CCCRs of the IQ group that have one (18.15.5.7, table 18-65).
    pub(crate) const EXTENDED_CASCADE: u64 = 1 << 11;
    pub(crate) const ENABLE: u64 = 1 << 12;
    pub(crate) const COMPARE: u64 = 1 << 18;
    pub(crate) const COMPLEMENT: u64 = 1 << 19;
    pub(crate) const EDGE: u64 = 1 << 24;
    pub(crate) const FORCE_OVF: u64 = 1 << 25;
    /// OVF_PMI_T0 and OVF_PMI_T1.
    pub(crate) const OVF_PMI: [u64; 2] = [1 << 26, 1 << 27];
    pub(crate) const CASCADE: u64 = 1 << 30;
    pub(crate) const OVF: u64 = 1 << 31;
    /// All but bit 11, in every CCCR.
    pub(crate) const DEFINED: u64 = 0xCFFF_F000;

    pub(crate) fn escr_select(cccr: u64) -> u8 {
        (cccr >> 13 & 7) as u8
    }

    pub(crate) fn active_thread(cccr: u64) -> u64 {
        cccr >> 16 & 3
    }

    pub(crate) fn threshold(cccr: u64) -> u64 {
        cccr >> 20 & 0xF
    }
}

/// IA32_PEBS_ENABLE, also called MSR_PEBS_ENABLE (Vol. 4, table of family 15, 3F1H; Vol. 3B 18.16.3).
pub(super) mod pebs_enable {
    /// First-level cache misses, second-level cache misses, TLB misses, split accesses (table 19-33).
    pub(crate) const L1_MISS: u64 = 1 << 0;
    pub(crate) const L2_MISS: u64 = 1 << 1;
    pub(crate) const TLB_MISS: u64 = 1 << 2;
    pub(crate) const SPLIT: u64 = 1 << 10;
    /// Tagged_mispred_branch sets both bits.
    pub(crate) const MISPREDICTED: u64 = 1 << 15 | 1 << 16;
    /// UOP_TAG: enables replay tagging.
    pub(crate) const UOP_TAG: u64 = 1 << 24;
    /// PEBS for the logical processor that executes the `WRMSR`.
    pub(crate) const MY_THREAD: u64 = 1 << 25;
    /// PEBS for the other one.
    pub(crate) const OTHER_THREAD: u64 = 1 << 26;
    /// The metrics' bits: 12:0 by the register's table, and those of tagged_mispred_branch.
    pub(crate) const METRICS: u64 = 0x1FFF | MISPREDICTED;
}

/// MSR_PEBS_MATRIX_VERT (table 19-33): which micro-operations are tagged.
pub(super) mod matrix {
    pub(crate) const LOADS: u64 = 1 << 0;
    pub(crate) const STORES: u64 = 1 << 1;
    pub(crate) const BRANCHES: u64 = 1 << 4;
    pub(crate) const DEFINED: u64 = LOADS | STORES | BRANCHES;
}

/// uop_type (table 19-31): event select and mask bits.
pub(super) mod uop_type {
    pub(crate) const SELECT: u8 = 0x02;
    pub(crate) const TAGLOADS: u16 = 1 << 1;
    pub(crate) const TAGSTORES: u16 = 1 << 2;
}

/// load_port_replay and store_port_replay (table 19-28): event selects, and the mask bit for split accesses.
pub(super) mod port_replay {
    pub(crate) const LOAD_SELECT: u8 = 0x04;
    pub(crate) const STORE_SELECT: u8 = 0x05;
    pub(crate) const SPLIT: u16 = 1 << 1;
}
