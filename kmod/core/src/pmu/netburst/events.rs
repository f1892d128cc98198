//! NetBurst's events (SDM Vol. 3B, tables 19-28 and 19-29 and, of Prescott and later, 19-30), and how one is asked for.
//!
//! An encoding has at its places in the registers what an event sets there, the ESCR in bits 63:32 and the CCCR in bits
//! 31:0, and in bits 1:0, which a CCCR does not use, the [`Block`] of counters: block and ESCR Select together say which
//! ESCRs it needs. Everything else in the two registers is the driver's; cascading and forced overflows are not offered.
//!
//! Events of the tables that are left out: b2b_cycles, bnr, snoop and response, whose event masks no manual describes; and
//! uop_type, which counts nothing and only tags ([`super::tags`]).

use super::registers::{half_of, Block, Cccr, Escr, Pair, BROKEN_COUNTERS};
use super::{Share, Unit};

/// How the micro-operations that an event counts have been tagged (18.15.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tagging {
    /// It needs no tags.
    None,
    /// At the front end.
    FrontEnd,
    /// In execution.
    Execution,
    /// When they were replayed.
    Replay,
}

/// An event.
#[derive(Debug, PartialEq, Eq)]
pub struct EventRule {
    /// Its ESCRs.
    pub pair: Pair,
    /// Event Select.
    pub select: u8,
    /// The bits that its event masks are made of.
    pub mask_bits: u16,
    /// The ESCRs of the pair that can select it, one bit each.
    pub halves: u8,
    /// Whether it can be told which logical processor caused it (TS of table 19-34; else TI).
    pub per_thread: bool,
    /// The tags that it counts. Only events with tags can be sampled precisely.
    pub tagging: Tagging,
    /// Whether Prescott was the first to have it.
    pub since_prescott: bool,
}

const fn event(pair: Pair, select: u8, mask_bits: u16) -> EventRule {
    EventRule {
        pair,
        select,
        mask_bits,
        halves: 3,
        per_thread: true,
        tagging: Tagging::None,
        since_prescott: false,
    }
}

impl EventRule {
    const fn independent(mut self) -> Self {
        self.per_thread = false;
        self
    }

    const fn only_half(mut self, half: u8) -> Self {
        self.halves = 1 << half;
        self
    }

    const fn tagged(mut self, tagging: Tagging) -> Self {
        self.tagging = tagging;
        self
    }

    const fn since_prescott(mut self) -> Self {
        self.since_prescott = true;
        self
    }

    /// The counters that can count it for this logical processor, one bit each.
    #[must_use]
    pub fn counters(&self, unit: &Unit) -> u32 {
        let halves = (0..2).filter(|half| self.halves >> half & 1 == 1);
        let fed = halves.fold(0, |bits, half| bits | self.pair.block().counters(half));
        fed & unit.counter_bits() & !BROKEN_COUNTERS
    }

    /// The bits of an event mask with which it can be sampled precisely: those of micro-operations that retired.
    #[must_use]
    pub const fn precise_mask(&self) -> u32 {
        match self.tagging {
            Tagging::None => 0,
            Tagging::FrontEnd | Tagging::Replay => 1,
            Tagging::Execution => 0xF,
        }
    }
}

/// Every event, named as in the tables.
pub const EVENTS: [EventRule; 41] = [
    /* TC_deliver_mode */ event(Pair::Tc, 0x01, 0x00FF).independent(),
    /* BPU_fetch_request */ event(Pair::Bpu, 0x03, 0x0001),
    /* ITLB_reference */ event(Pair::Itlb, 0x18, 0x0007),
    /* memory_cancel */ event(Pair::Dac, 0x02, 0x000C),
    /* memory_complete */ event(Pair::Saat, 0x08, 0x0003),
    /* load_port_replay */ event(Pair::Saat, 0x04, 0x0002),
    /* store_port_replay */ event(Pair::Saat, 0x05, 0x0002),
    /* MOB_load_replay */ event(Pair::Mob, 0x03, 0x003A),
    /* page_walk_type */ event(Pair::Pmh, 0x01, 0x0003).independent(),
    /* BSQ_cache_reference */ event(Pair::Bsu, 0x0C, 0x073F),
    /* IOQ_allocation */ event(Pair::Fsb, 0x03, 0xEFFF),
    /* IOQ_active_entries */ event(Pair::Fsb, 0x1A, 0xEFFF).only_half(1),
    /* FSB_data_activity */ event(Pair::Fsb, 0x17, 0x003F).independent(),
    /* BSQ_allocation */ event(Pair::Bsu, 0x05, 0x3FEF).only_half(0),
    /* BSQ_active_entries */ event(Pair::Bsu, 0x06, 0x3FEF).only_half(1),
    /* SSE_input_assist */ event(Pair::Firm, 0x34, 0x8000).independent(),
    /* packed_SP_uop */ event(Pair::Firm, 0x08, 0x8000).independent(),
    /* packed_DP_uop */ event(Pair::Firm, 0x0C, 0x8000).independent(),
    /* scalar_SP_uop */ event(Pair::Firm, 0x0A, 0x8000).independent(),
    /* scalar_DP_uop */ event(Pair::Firm, 0x0E, 0x8000).independent(),
    /* 64bit_MMX_uop */ event(Pair::Firm, 0x02, 0x8000).independent(),
    /* 128bit_MMX_uop */ event(Pair::Firm, 0x1A, 0x8000).independent(),
    /* x87_FP_uop */ event(Pair::Firm, 0x04, 0x8000).independent(),
    /* TC_misc */ event(Pair::Tc, 0x06, 0x0010),
    /* global_power_events */ event(Pair::Fsb, 0x13, 0x0001),
    /* tc_ms_xfer */ event(Pair::Ms, 0x05, 0x0001),
    /* uop_queue_writes */ event(Pair::Ms, 0x09, 0x0007),
    /* retired_mispred_branch_type */ event(Pair::Tbpu, 0x05, 0x001E),
    /* retired_branch_type */ event(Pair::Tbpu, 0x04, 0x001E),
    /* resource_stall */ event(Pair::Alf, 0x01, 0x0020),
    /* WC_Buffer */ event(Pair::Dac, 0x05, 0x0003).independent(),
    /* front_end_event */ event(Pair::Cru2, 0x08, 0x0003).tagged(Tagging::FrontEnd),
    /* execution_event */ event(Pair::Cru2, 0x0C, 0x00FF).tagged(Tagging::Execution),
    /* replay_event */ event(Pair::Cru2, 0x09, 0x0003).tagged(Tagging::Replay),
    /* instr_retired */ event(Pair::Cru0, 0x02, 0x000F),
    /* uops_retired */ event(Pair::Cru0, 0x01, 0x0003),
    /* branch_retired */ event(Pair::Cru2, 0x06, 0x000F),
    /* mispred_branch_retired */ event(Pair::Cru0, 0x03, 0x0001),
    /* x87_assist */ event(Pair::Cru2, 0x03, 0x001F),
    /* machine_clear */ event(Pair::Cru2, 0x02, 0x0045),
    /* instr_completed */ event(Pair::Cru0, 0x07, 0x0003).since_prescott(),
];

/// An encoding, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding(pub u64);

/// The bits of an encoding's lower half that name the block.
const BLOCK: u32 = 3;
/// The bits of a CCCR that restrict what is counted.
const FILTER: u32 = Cccr::COMPARE | Cccr::COMPLEMENT | Cccr::THRESHOLD | Cccr::EDGE;
/// The bits of a CCCR that an event sets.
const CCCR: u32 = Cccr::ESCR_SELECT | FILTER;

impl Encoding {
    /// What an event sets in its ESCR.
    #[must_use]
    pub const fn escr(self) -> u32 {
        (self.0 >> 32) as u32
    }

    const fn low(self) -> u32 {
        self.0 as u32
    }

    /// What it sets in its counter's CCCR.
    #[must_use]
    pub const fn cccr(self) -> u32 {
        self.low() & CCCR
    }

    /// Event Mask.
    #[must_use]
    pub const fn mask(self) -> u32 {
        (self.escr() & Escr::EVENT_MASK) >> Escr::EVENT_MASK_SHIFT
    }

    /// Without comparison, threshold and edge.
    #[must_use]
    pub const fn is_plain(self) -> bool {
        self.low() & FILTER == 0
    }

    /// The ESCRs that block and ESCR Select name.
    #[must_use]
    pub fn pair(self) -> Option<Pair> {
        let block = Block::ALL[(self.low() & BLOCK) as usize];
        let select = (self.low() & Cccr::ESCR_SELECT) >> Cccr::ESCR_SELECT_SHIFT;
        Pair::ALL.into_iter().find(|pair| pair.block() == block && pair.escr_select() == select)
    }

    /// The event, whatever its mask.
    #[must_use]
    pub fn rule(self) -> Option<&'static EventRule> {
        let pair = self.pair()?;
        let select = (self.escr() & Escr::EVENT_SELECT) >> Escr::EVENT_SELECT_SHIFT;
        EVENTS.iter().find(|rule| rule.pair == pair && u32::from(rule.select) == select)
    }
}

/// The event that this logical processor has with this encoding.
///
/// # Errors
/// The bits that are refused.
pub fn check(unit: &Unit, encoding: u64) -> Result<&'static EventRule, u64> {
    let encoding = Encoding(encoding);
    let escr = Escr::EVENT_SELECT | Escr::EVENT_MASK;
    let allowed = u64::from(escr) << 32 | u64::from(CCCR | BLOCK);
    if encoding.0 & !allowed != 0 {
        return Err(encoding.0 & !allowed);
    }
    let named = u64::from(Escr::EVENT_SELECT) << 32 | u64::from(Cccr::ESCR_SELECT | BLOCK);
    let rule = encoding.rule().filter(|rule| !rule.since_prescott || unit.prescott);
    let rule = rule.ok_or(encoding.0 & named)?;
    let mask = u64::from(Escr::EVENT_MASK) << 32;
    let refused = encoding.mask() & !u32::from(rule.mask_bits);
    if refused != 0 {
        return Err(u64::from(refused) << (32 + Escr::EVENT_MASK_SHIFT));
    }
    if encoding.mask() == 0 {
        return Err(mask);
    }
    // Complement, threshold and edge have no effect without the comparison (18.15.3).
    if encoding.low() & Cccr::COMPARE == 0 && !encoding.is_plain() {
        return Err(u64::from(encoding.low() & FILTER));
    }
    Ok(rule)
}

/// The ESCR that a counter takes this event from.
#[must_use]
pub const fn escr_of(rule: &EventRule, counter: u32) -> super::registers::EscrId {
    rule.pair.half(half_of(counter))
}

/// Whether what the event counts can be told apart by logical processors, where there are several.
#[must_use]
pub fn is_own(unit: &Unit, rule: &EventRule) -> bool {
    rule.per_thread || unit.share == Share::Whole
}

/// Whether the event can be sampled precisely, in this form (table 19-29, "Can Support PEBS").
#[must_use]
pub fn is_precise(encoding: u64) -> bool {
    let encoding = Encoding(encoding);
    let mask = encoding.rule().map_or(0, EventRule::precise_mask);
    encoding.is_plain() && encoding.mask() & !mask == 0
}
