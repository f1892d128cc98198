//! Model-specific registers of performance monitoring, named and laid out as in the SDM.
//! Addresses are from SDM Vol. 4, table 2-2; layouts from Vol. 3B chapter 20 ("Performance Monitoring").

/// IA32_PMC_GP0_CTR, the first general counter of version 6; four registers to each.
pub const IA32_PMC_GP0_CTR: u32 = 0x1900;
/// IA32_PMC_FX0_CTR, the first fixed counter of version 6; four registers to each.
pub const IA32_PMC_FX0_CTR: u32 = 0x1980;
/// IA32_PMC0, the first general counter; writes are sign-extended from bit 31 (20.2.8).
pub const IA32_PMC0: u32 = 0xC1;
/// IA32_PERFEVTSEL0, the first general counter's event select.
pub const IA32_PERFEVTSEL0: u32 = 0x186;
/// IA32_MISC_ENABLE.
pub const IA32_MISC_ENABLE: u32 = 0x1A0;
/// MSR_LBR_SELECT: which branches are recorded (18.8.2).
pub const MSR_LBR_SELECT: u32 = 0x1C8;
/// MSR_LASTBRANCH_TOS: the number of the newest branch record.
pub const MSR_LASTBRANCH_TOS: u32 = 0x1C9;
/// IA32_DEBUGCTL.
pub const IA32_DEBUGCTL: u32 = 0x1D9;
/// IA32_LBR_CTL: which branches are recorded, of architectural records (19.1).
pub const IA32_LBR_CTL: u32 = 0x14CE;
/// IA32_LBR_DEPTH: how many architectural branch records there are. A write clears all of them.
pub const IA32_LBR_DEPTH: u32 = 0x14CF;
/// IA32_FIXED_CTR0, the first fixed counter.
pub const IA32_FIXED_CTR0: u32 = 0x309;
/// IA32_PERF_CAPABILITIES.
pub const IA32_PERF_CAPABILITIES: u32 = 0x345;
/// IA32_FIXED_CTR_CTRL: four bits for each fixed counter.
pub const IA32_FIXED_CTR_CTRL: u32 = 0x38D;
/// IA32_PERF_GLOBAL_STATUS.
pub const IA32_PERF_GLOBAL_STATUS: u32 = 0x38E;
/// IA32_PERF_GLOBAL_CTRL.
pub const IA32_PERF_GLOBAL_CTRL: u32 = 0x38F;
/// IA32_PERF_GLOBAL_STATUS_RESET (IA32_PERF_GLOBAL_OVF_CTRL before PerfMon v4): a 1 clears that status bit.
pub const IA32_PERF_GLOBAL_STATUS_RESET: u32 = 0x390;
/// MSR_PEBS_DATA_CFG: the groups of adaptive records (20.9.2.3).
pub const MSR_PEBS_DATA_CFG: u32 = 0x3F2;
/// IA32_PEBS_BASE: physical address of architectural PEBS' buffer.
pub const IA32_PEBS_BASE: u32 = 0x3F4;
/// IA32_PEBS_INDEX: how far it is filled.
pub const IA32_PEBS_INDEX: u32 = 0x3F5;
/// IA32_PEBS_ENABLE.
pub const IA32_PEBS_ENABLE: u32 = 0x3F1;
/// IA32_A_PMC0, the full-width alias of [`IA32_PMC0`] (20.2.8).
pub const IA32_A_PMC0: u32 = 0x4C1;
/// IA32_DS_AREA: linear address of the DS management area.
pub const IA32_DS_AREA: u32 = 0x600;

/// Declares a register's layout as `high:low => name`, with a getter and a `with_` setter for each field.
macro_rules! register {
    ($(#[$meta:meta])* $register:ident {
        $($(#[$field_meta:meta])* $high:literal : $low:literal => $get:ident, $with:ident;)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $register(pub u64);

        impl $register {
            $(
                $(#[$field_meta])*
                #[must_use]
                pub const fn $get(self) -> u64 {
                    (self.0 >> $low) & (u64::MAX >> (63 - ($high - $low)))
                }

                /// This register with the field set; bits that do not fit are dropped.
                #[must_use]
                pub const fn $with(self, value: u64) -> Self {
                    let mask = u64::MAX >> (63 - ($high - $low));
                    Self(self.0 & !(mask << $low) | (value & mask) << $low)
                }
            )*
        }
    };
}

pub(super) use register;

register! {
    /// IA32_PERFEVTSELx (20.2.1.1).
    PerfEvtSel {
        /// Event Select.
        7:0 => event_select, with_event_select;
        /// Unit Mask.
        15:8 => unit_mask, with_unit_mask;
        /// USR: count at CPL 1 to 3.
        16:16 => usr, with_usr;
        /// OS: count at CPL 0.
        17:17 => os, with_os;
        /// E: edge detect.
        18:18 => edge, with_edge;
        /// INT: raise a PMI on overflow. Clear for a counter that writes PEBS records.
        20:20 => int, with_int;
        /// EN: enable.
        22:22 => en, with_en;
        /// INV: invert the comparison with the counter mask.
        23:23 => inv, with_inv;
        /// CMASK: counter mask.
        31:24 => cmask, with_cmask;
        /// Adaptive_Record: with PEBS, write what MSR_PEBS_DATA_CFG says, not the basic group alone (20.9.2.1).
        34:34 => adaptive_record, with_adaptive_record;
        /// EQ: with CMASK, compare for equality (version 6, where CPUID.23H.0:EBX bit 1 says so).
        36:36 => eq, with_eq;
        /// RDPMC_USR_DISABLE: in user mode RDPMC reads this counter as 0 (version 6, where CPUID.23H.0:EBX bit 2 says so).
        37:37 => rdpmc_usr_disable, with_rdpmc_usr_disable;
        /// UMASK2: eight more bits of the unit mask (version 6, where CPUID.23H.0:EBX bit 0 says so).
        47:40 => unit_mask2, with_unit_mask2;
    }
}

impl PerfEvtSel {
    /// Unit mask and UMASK2 as one number of 16 bits, as Intel's event lists and perf write it.
    #[must_use]
    pub const fn whole_unit_mask(self) -> u16 {
        (self.unit_mask() | self.unit_mask2() << 8) as u16
    }

    /// This register with [`PerfEvtSel::whole_unit_mask`] set.
    #[must_use]
    pub const fn with_whole_unit_mask(self, value: u16) -> Self {
        let [low, high] = value.to_le_bytes();
        self.with_unit_mask(low as u64).with_unit_mask2(high as u64)
    }
}

register! {
    /// IA32_PERF_CAPABILITIES (20.8).
    PerfCapabilities {
        /// LBR format (18.4.8.1).
        5:0 => lbr_fmt, with_lbr_fmt;
        /// PEBS record format.
        11:8 => pebs_rec_fmt, with_pebs_rec_fmt;
        /// PEBS_BASELINE: adaptive records, on every counter (20.9).
        14:14 => pebs_baseline, with_pebs_baseline;
        /// FW_WRITE: the full-width aliases from [`IA32_A_PMC0`] exist.
        13:13 => fw_write, with_fw_write;
    }
}

register! {
    /// IA32_DEBUGCTL (18.4.1). The kernel has bits of its own in it.
    DebugCtl {
        /// LBR: record branches, where the records are model-specific.
        0:0 => lbr, with_lbr;
        /// FREEZE_LBRS_ON_PMI.
        11:11 => freeze_lbrs_on_pmi, with_freeze_lbrs_on_pmi;
    }
}

register! {
    /// IA32_MISC_ENABLE (Vol. 4, table 2-2).
    MiscEnable {
        /// Performance Monitoring Available.
        7:7 => performance_monitoring_available, with_performance_monitoring_available;
        /// PEBS Unavailable.
        12:12 => pebs_unavailable, with_pebs_unavailable;
    }
}

register! {
    /// IA32_PERF_GLOBAL_STATUS (20.2.2): one bit for each general counter, from 32 on for each fixed one, and these.
    GlobalStatus {
        /// OvfBuf (DS_BUFFER): the PEBS index has reached the interrupt threshold.
        62:62 => ovf_buf, with_ovf_buf;
        /// The index of architectural PEBS has reached its threshold.
        54:54 => arch_pebs, with_arch_pebs;
        /// LBR_FRZ: a PMI has frozen the branch records (from version 4 on, 18.4.7).
        58:58 => lbr_frz, with_lbr_frz;
    }
}

register! {
    /// IA32_PEBS_INDEX, in units of 16 bytes (Intel Architecture Instruction Set Extensions, "Architectural PEBS").
    PebsIndex {
        /// WR: where the next record goes.
        26:4 => wr, with_wr;
        /// FULL: the buffer had no room for a record.
        31:31 => full, with_full;
        /// EN: records are written.
        32:32 => en, with_en;
        /// THRESH: the value of WR from which on a PMI is raised.
        58:36 => thresh, with_thresh;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_set_and_read_at_its_place() {
        let select = PerfEvtSel(0).with_event_select(0xD1).with_unit_mask(0x08).with_usr(1).with_en(1);
        assert_eq!(select.0, 0x0041_08D1);
        assert_eq!(select.with_cmask(0x1ff).0, 0xFF41_08D1);
        assert_eq!(select.with_cmask(0xff).with_cmask(1).cmask(), 1);
        let wide = PerfEvtSel(0xD1).with_whole_unit_mask(0x0117);
        assert_eq!((wide.0, wide.whole_unit_mask()), (0x0100_0000_17D1, 0x0117));
        assert_eq!(GlobalStatus(1 << 62).ovf_buf(), 1);
        assert_eq!(PerfCapabilities(0x33C5).pebs_rec_fmt(), 3);
    }
}
