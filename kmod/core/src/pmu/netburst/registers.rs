//! NetBurst's registers: addresses (SDM Vol. 4, table 2-2 of the Pentium 4 family; Vol. 3B table 18-63) and layouts.

/// MSR_BPU_COUNTER0, the first of 18 counters of [`WIDTH`] bits.
pub const MSR_BPU_COUNTER0: u32 = 0x300;
/// MSR_BPU_CCCR0, the first of as many counter configuration control registers.
pub const MSR_BPU_CCCR0: u32 = 0x360;
/// MSR_PEBS_MATRIX_VERT: which micro-operations replay tagging is for.
pub const MSR_PEBS_MATRIX_VERT: u32 = 0x3F2;

/// Counters of a core.
pub const COUNTERS: u32 = 18;
/// The counters that no event is given, one bit each: number 1, MSR_BPU_COUNTER1 with MSR_BPU_CCCR1, which an erratum breaks (Linux,
/// arch/x86/events/intel/p4.c: `p4_event_bind_map`, `__p4_pmu_enable_event`). Its registers are taken with the others, because its ESCRs
/// are those of counter 0.
pub const BROKEN_COUNTERS: u32 = 1 << 1;
/// Bits of a counter (18.15.2).
pub const WIDTH: u32 = 40;

/// A counter configuration control register (18.15.3; with Hyper-Threading 18.16.2).
pub struct Cccr;
impl Cccr {
    /// Enable: the counter counts.
    pub const ENABLE: u32 = 1 << 12;
    /// ESCR Select: which of the ESCRs of its block the counter counts for.
    pub const ESCR_SELECT: u32 = 7 << Self::ESCR_SELECT_SHIFT;
    /// Where it is.
    pub const ESCR_SELECT_SHIFT: u32 = 13;
    /// Active Thread, both bits: count whichever logical processors are active. Without Hyper-Threading "must be set to 11B".
    pub const ACTIVE_THREAD: u32 = 3 << 16;
    /// Compare: count cycles whose events are compared with the threshold, not events.
    pub const COMPARE: u32 = 1 << 18;
    /// Complement: those with at most the threshold; else those with more.
    pub const COMPLEMENT: u32 = 1 << 19;
    /// Threshold.
    pub const THRESHOLD: u32 = 0xF << 20;
    /// Edge: count rising edges of the comparison's result.
    pub const EDGE: u32 = 1 << 24;
    /// OVF_PMI_T0: an overflow interrupts logical processor 0, at the event after it. The next bit is for logical processor 1.
    pub const OVF_PMI_T0: u32 = 1 << 26;
    /// OVF: the counter has overflowed; stays set until software clears it.
    pub const OVF: u32 = 1 << 31;
}

/// An event selection control register (18.15.1; with Hyper-Threading 18.16.1).
pub struct Escr;
impl Escr {
    /// T1_USR: count logical processor 1 at CPL 1 to 3.
    pub const T1_USR: u32 = 1;
    /// T1_OS: count logical processor 1 at CPL 0.
    pub const T1_OS: u32 = 1 << 1;
    /// T0_USR, or without Hyper-Threading USR.
    pub const T0_USR: u32 = 1 << 2;
    /// T0_OS, or without Hyper-Threading OS.
    pub const T0_OS: u32 = 1 << 3;
    /// Tag Enable.
    pub const TAG_ENABLE: u32 = 1 << 4;
    /// Tag Value.
    pub const TAG_VALUE: u32 = 0xF << Self::TAG_VALUE_SHIFT;
    /// Where it is.
    pub const TAG_VALUE_SHIFT: u32 = 5;
    /// Event Mask.
    pub const EVENT_MASK: u32 = 0xFFFF << Self::EVENT_MASK_SHIFT;
    /// Where it is.
    pub const EVENT_MASK_SHIFT: u32 = 9;
    /// Event Select.
    pub const EVENT_SELECT: u32 = 0x3F << Self::EVENT_SELECT_SHIFT;
    /// Where it is.
    pub const EVENT_SELECT_SHIFT: u32 = 25;
}

/// IA32_PEBS_ENABLE of NetBurst (18.15.7.3, 18.16.3, table 19-33).
pub struct PebsEnable;
impl PebsEnable {
    /// What table 19-33 names of bits 12:0, 15 and 16: which replays are tagged.
    pub const REPLAYS: u32 = 0x1_8607;
    /// UOP Tag: replay tagging works.
    pub const UOP_TAG: u32 = 1 << 24;
    /// ENABLE_PEBS_MY_THR: the logical processor that writes the register writes records. 18.15.7.3 names bit 24 for it, where
    /// there is no other logical processor; tables 2-2 and 19-33 want bit 25 as well.
    pub const MY_THREAD: u32 = 1 << 25;
    /// ENABLE_PEBS_OTH_THR: the other one does.
    pub const OTHER_THREAD: u32 = 1 << 26;
}

/// The pairs of ESCRs that events need. Each has the address of its first; the second, at the odd address behind it, feeds
/// the other counters of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair {
    /// Bus unit.
    Bsu,
    /// Front-side bus.
    Fsb,
    /// Floating point and SIMD.
    Firm,
    /// Data cache address control.
    Dac,
    /// Memory order buffer.
    Mob,
    /// Page miss handler.
    Pmh,
    /// Segmentation and address translation.
    Saat,
    /// Branch prediction unit.
    Bpu,
    /// Instruction TLB.
    Itlb,
    /// Retirement: MSR_CRU_ESCR0 and 1.
    Cru0,
    /// Register allocation.
    Rat,
    /// Micro-operation queue.
    Ms,
    /// Branches at retirement.
    Tbpu,
    /// Trace cache.
    Tc,
    /// Allocator.
    Alf,
    /// Retirement: MSR_CRU_ESCR2 and 3.
    Cru2,
}

impl Pair {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Bsu,
        Self::Fsb,
        Self::Firm,
        Self::Dac,
        Self::Mob,
        Self::Pmh,
        Self::Saat,
        Self::Bpu,
        Self::Itlb,
        Self::Cru0,
        Self::Rat,
        Self::Ms,
        Self::Tbpu,
        Self::Tc,
        Self::Alf,
        Self::Cru2,
    ];

    /// Address of the first.
    #[must_use]
    pub const fn address(self) -> u32 {
        match self {
            Self::Bsu => 0x3A0,
            Self::Fsb => 0x3A2,
            Self::Firm => 0x3A4,
            Self::Dac => 0x3A8,
            Self::Mob => 0x3AA,
            Self::Pmh => 0x3AC,
            Self::Saat => 0x3AE,
            Self::Bpu => 0x3B2,
            Self::Itlb => 0x3B6,
            Self::Cru0 => 0x3B8,
            Self::Rat => 0x3BC,
            Self::Ms => 0x3C0,
            Self::Tbpu => 0x3C2,
            Self::Tc => 0x3C4,
            Self::Alf => 0x3CA,
            Self::Cru2 => 0x3CC,
        }
    }

    /// The counters that the two feed (table 18-63).
    #[must_use]
    pub const fn block(self) -> Block {
        match self {
            Self::Bsu | Self::Fsb | Self::Mob | Self::Pmh | Self::Bpu | Self::Itlb => Block::Bpu,
            Self::Ms | Self::Tbpu | Self::Tc => Block::Ms,
            Self::Firm | Self::Dac | Self::Saat => Block::Flame,
            Self::Cru0 | Self::Rat | Self::Alf | Self::Cru2 => Block::Iq,
        }
    }

    /// The value of a CCCR's ESCR Select that chooses it (table 18-63).
    #[must_use]
    pub const fn escr_select(self) -> u32 {
        match self {
            Self::Ms => 0,
            Self::Bpu => 0,
            Self::Firm | Self::Tc | Self::Alf => 1,
            Self::Mob | Self::Saat | Self::Tbpu | Self::Rat => 2,
            Self::Itlb => 3,
            Self::Pmh | Self::Cru0 => 4,
            Self::Dac | Self::Cru2 => 5,
            Self::Fsb => 6,
            Self::Bsu => 7,
        }
    }

    /// One of the two.
    #[must_use]
    pub const fn half(self, half: u32) -> EscrId {
        EscrId((self as u32 * 2 + half) as u8)
    }
}

/// An ESCR: its place among those of [`Pair::ALL`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EscrId(u8);

impl EscrId {
    /// How many there are.
    pub const COUNT: usize = 2 * Pair::ALL.len();

    /// All of this half: 0 or 1.
    pub fn of_half(half: u32) -> impl Iterator<Item = Self> + Clone {
        Pair::ALL.into_iter().map(move |pair| pair.half(half))
    }

    /// Its place.
    #[must_use]
    pub const fn place(self) -> usize {
        self.0 as usize
    }

    /// Its address.
    #[must_use]
    pub const fn address(self) -> u32 {
        Pair::ALL[self.0 as usize / 2].address() + self.0 as u32 % 2
    }
}

/// Counters that are fed by the same ESCRs (table 18-63).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block {
    /// Counters 0 to 3.
    Bpu,
    /// Counters 4 to 7.
    Ms,
    /// Counters 8 to 11.
    Flame,
    /// Counters 12 to 17.
    Iq,
}

impl Block {
    /// All of them, in the order of their numbers in an encoding.
    pub const ALL: [Self; 4] = [Self::Bpu, Self::Ms, Self::Flame, Self::Iq];

    /// The counters that ESCRs of one half feed, one bit each.
    #[must_use]
    pub const fn counters(self, half: u32) -> u32 {
        let first = 3 << (self as u32 * 4 + 2 * half);
        match self {
            Self::Iq => first | 1 << (16 + half),
            _ => first,
        }
    }
}

/// The half of the ESCRs that feeds this counter.
#[must_use]
pub const fn half_of(counter: u32) -> u32 {
    if counter < 16 {
        counter >> 1 & 1
    } else {
        counter & 1
    }
}
