//! Facts of the PMUs of Intel's NetBurst microarchitecture (Pentium 4, family 15): which event selection
//! control registers (ESCRs) there are and which counters each can feed.

use super::netburst_events::EVENTS;
use crate::event::EventSet;

/// A PMU of the NetBurst microarchitecture (SDM Vol. 3B 18.15, with Hyper-Threading 18.16): 18 counters, each with its
/// counter configuration control register (CCCR), fed by events that ESCRs select.
#[derive(Debug)]
pub struct Netburst {
    /// The ESCRs, which differ by model.
    pub escrs: &'static [Escr],
    /// What the ESCRs can select.
    pub events: &'static [NetburstEvent],
    /// Logical processors that share counters, CCCRs and ESCRs: 1 or 2.
    pub threads: u8,
}

/// An event selection control register (SDM Vol. 3B, table 18-63).
#[derive(Debug)]
pub struct Escr {
    /// Its name, for example `MSR_CRU_ESCR2`.
    pub name: &'static str,
    /// Its address.
    pub address: u32,
    /// The value of CCCR.ESCR_SELECT by which a counter chooses it.
    pub select: u8,
    /// The counters that can choose it, as a bit mask.
    pub counters: u32,
}

/// An event class: an event select, and what each bit of the event mask adds (SDM Vol. 3B, tables 19-28 and 19-29).
#[derive(Debug)]
pub struct NetburstEvent {
    /// Intel's name, for example `branch_retired`.
    pub name: &'static str,
    /// Addresses of the ESCRs that can select it.
    pub escrs: &'static [u32],
    /// ESCR.EVENT_SELECT.
    pub select: u8,
    /// Whether it cannot be qualified by logical processor ("TI" in table 19-34).
    pub thread_independent: bool,
    /// Whether it supports PEBS.
    pub precise: bool,
    /// What sets of mask bits count. Sets of several bits come before their parts and stand for them.
    pub masks: &'static [Masked],
}

/// What some bits of an event mask, if all of them are set, make the event count.
#[derive(Debug)]
pub struct Masked {
    /// Bits of ESCR.EVENT_MASK.
    pub mask: u16,
    /// What they count.
    pub counts: Meaning,
}

/// What is counted.
#[derive(Debug, Clone, Copy)]
pub enum Meaning {
    /// The sum of these events.
    Sum(EventSet),
    /// One for each of these conditions that an access or branch meets.
    Terms(&'static [Term]),
    /// Instructions that front-end tagging has tagged, or has not.
    Instructions {
        /// Whether those that are tagged.
        tagged: bool,
    },
    /// Micro-operations that front-end tagging has tagged (18.15.6.2).
    FrontEndTagged,
    /// Micro-operations that replay tagging has tagged (18.15.6.4).
    ReplayTagged,
}

/// A condition on what one access or branch did.
#[derive(Debug, Clone, Copy)]
pub struct Term {
    /// It did at least one of these,
    pub any: EventSet,
    /// all of these,
    pub every: EventSet,
    /// and none of these.
    pub none: EventSet,
}

/// Address of MSR_RAT_ESCR0 and MSR_RAT_ESCR1, whose uop_type tags at the front end.
pub const RAT_ESCRS: [u32; 2] = [0x3BC, 0x3BD];
/// Address of MSR_SAAT_ESCR0, whose store_port_replay chooses the stores that replay tagging tags.
pub const SAAT_ESCR0: u32 = 0x3AE;
/// Address of MSR_SAAT_ESCR1, whose load_port_replay chooses the loads that replay tagging tags.
pub const SAAT_ESCR1: u32 = 0x3AF;

const BPU_0: u32 = 0b11;
const BPU_2: u32 = 0b11 << 2;
const MS_0: u32 = 0b11 << 4;
const MS_2: u32 = 0b11 << 6;
const FLAME_0: u32 = 0b11 << 8;
const FLAME_2: u32 = 0b11 << 10;
/// Counters 12, 13 and 16.
const IQ_0: u32 = 0b11 << 12 | 1 << 16;
/// Counters 14, 15 and 17.
const IQ_2: u32 = 0b11 << 14 | 1 << 17;

const fn escr(name: &'static str, address: u32, select: u8, counters: u32) -> Escr {
    Escr { name, address, select, counters }
}

/// The ESCRs of models 3, 4 and 6. MSR_IQ_ESCR0 and MSR_IQ_ESCR1 (3BAH, 3BBH) are "not available on later processors",
/// only on models 1 and 2 (table 18-63, note 1).
const ESCRS: &[Escr] = &[
    escr("MSR_BSU_ESCR0", 0x3A0, 7, BPU_0),
    escr("MSR_BSU_ESCR1", 0x3A1, 7, BPU_2),
    escr("MSR_FSB_ESCR0", 0x3A2, 6, BPU_0),
    escr("MSR_FSB_ESCR1", 0x3A3, 6, BPU_2),
    escr("MSR_FIRM_ESCR0", 0x3A4, 1, FLAME_0),
    escr("MSR_FIRM_ESCR1", 0x3A5, 1, FLAME_2),
    escr("MSR_FLAME_ESCR0", 0x3A6, 0, FLAME_0),
    escr("MSR_FLAME_ESCR1", 0x3A7, 0, FLAME_2),
    escr("MSR_DAC_ESCR0", 0x3A8, 5, FLAME_0),
    escr("MSR_DAC_ESCR1", 0x3A9, 5, FLAME_2),
    escr("MSR_MOB_ESCR0", 0x3AA, 2, BPU_0),
    escr("MSR_MOB_ESCR1", 0x3AB, 2, BPU_2),
    escr("MSR_PMH_ESCR0", 0x3AC, 4, BPU_0),
    escr("MSR_PMH_ESCR1", 0x3AD, 4, BPU_2),
    escr("MSR_SAAT_ESCR0", SAAT_ESCR0, 2, FLAME_0),
    escr("MSR_SAAT_ESCR1", SAAT_ESCR1, 2, FLAME_2),
    escr("MSR_U2L_ESCR0", 0x3B0, 3, FLAME_0),
    escr("MSR_U2L_ESCR1", 0x3B1, 3, FLAME_2),
    escr("MSR_BPU_ESCR0", 0x3B2, 0, BPU_0),
    escr("MSR_BPU_ESCR1", 0x3B3, 0, BPU_2),
    escr("MSR_IS_ESCR0", 0x3B4, 1, BPU_0),
    escr("MSR_IS_ESCR1", 0x3B5, 1, BPU_2),
    escr("MSR_ITLB_ESCR0", 0x3B6, 3, BPU_0),
    escr("MSR_ITLB_ESCR1", 0x3B7, 3, BPU_2),
    escr("MSR_CRU_ESCR0", 0x3B8, 4, IQ_0),
    escr("MSR_CRU_ESCR1", 0x3B9, 4, IQ_2),
    escr("MSR_RAT_ESCR0", RAT_ESCRS[0], 2, IQ_0),
    escr("MSR_RAT_ESCR1", RAT_ESCRS[1], 2, IQ_2),
    escr("MSR_SSU_ESCR0", 0x3BE, 3, IQ_0),
    escr("MSR_MS_ESCR0", 0x3C0, 0, MS_0),
    escr("MSR_MS_ESCR1", 0x3C1, 0, MS_2),
    escr("MSR_TBPU_ESCR0", 0x3C2, 2, MS_0),
    escr("MSR_TBPU_ESCR1", 0x3C3, 2, MS_2),
    escr("MSR_TC_ESCR0", 0x3C4, 1, MS_0),
    escr("MSR_TC_ESCR1", 0x3C5, 1, MS_2),
    escr("MSR_IX_ESCR0", 0x3C8, 5, BPU_0),
    escr("MSR_IX_ESCR1", 0x3C9, 5, BPU_2),
    escr("MSR_ALF_ESCR0", 0x3CA, 1, IQ_0),
    escr("MSR_ALF_ESCR1", 0x3CB, 1, IQ_2),
    escr("MSR_CRU_ESCR2", 0x3CC, 5, IQ_0),
    escr("MSR_CRU_ESCR3", 0x3CD, 5, IQ_2),
    escr("MSR_CRU_ESCR4", 0x3E0, 6, IQ_0),
    escr("MSR_CRU_ESCR5", 0x3E1, 6, IQ_2),
];

/// The PMU of models 3, 4 and 6 with Hyper-Threading.
pub(super) static HYPER_THREADED: Netburst = Netburst { escrs: ESCRS, events: EVENTS, threads: 2 };

impl Term {
    /// Whether what happened, as one access or branch, meets the condition.
    #[must_use]
    pub fn holds(&self, happened: EventSet) -> bool {
        let any = self.any.is_empty() || !happened.intersection(self.any).is_empty();
        any && self.every.difference(happened).is_empty() && happened.intersection(self.none).is_empty()
    }
}
