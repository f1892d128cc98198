//! Which micro-operations are tagged, for the events that count tagged ones at retirement (SDM Vol. 3B 18.15.6, tables 19-31
//! to 19-33).
//!
//! An event says it by [`EventSpec::extra`]: front_end_event and execution_event by the encoding of the upstream event whose
//! ESCR tags, with Tag Enable and Tag Value for execution_event; replay_event by the bits of IA32_PEBS_ENABLE, and in bits
//! 63:32 those of MSR_PEBS_MATRIX_VERT. The tags are the same for all events of a session, also while they take turns, because
//! two logical processors share the registers of replay tagging. Hence instr_retired, which tells instructions that are tagged at
//! the front end from others (table 19-31), tells them by the tags of the session's front_end_event.

use super::super::super::abi::{EventSpec, Reason, EVENTS_MAX};
use super::super::super::registers::IA32_PEBS_ENABLE;
use super::super::super::Refusal;
use super::events::{Encoding, EventRule, Tagging};
use super::registers::{Escr, EscrId, Pair, PebsEnable};
use super::{Share, Unit};

/// Masks of uop_type: TAGLOADS and TAGSTORES.
const UOP_TYPE_MASK: u32 = 6;
const UOP_TYPE_SELECT: u32 = 2;
/// The one event of MSR_FIRM_ESCR0 and 1 that table 19-32 does not have.
const SSE_INPUT_ASSIST: u8 = 0x34;

/// A metric of table 19-33.
struct Replay {
    pebs_enable: u32,
    matrix_vert: u32,
    upstream: Option<Upstream>,
}

/// The event that must be selected upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Upstream {
    pair: Pair,
    /// The ESCRs of the pair that will do, one bit each.
    halves: u8,
    /// Select, mask and tag of the ESCR.
    value: u32,
}

const fn upstream(pair: Pair, halves: u8, select: u32, mask: u32) -> Option<Upstream> {
    let value = select << Escr::EVENT_SELECT_SHIFT | mask << Escr::EVENT_MASK_SHIFT;
    Some(Upstream { pair, halves, value })
}

const fn replay(pebs_enable: u32, matrix_vert: u32) -> Replay {
    Replay { pebs_enable, matrix_vert, upstream: None }
}

const REPLAYS: [Replay; 9] = [
    /* 1stL_cache_load_miss_retired */ replay(1, 1),
    /* 2ndL_cache_load_miss_retired */ replay(1 << 1, 1),
    /* DTLB_load_miss_retired */ replay(1 << 2, 1),
    /* DTLB_store_miss_retired */ replay(1 << 2, 1 << 1),
    /* DTLB_all_miss_retired */ replay(1 << 2, 3),
    /* Tagged_mispred_branch */ replay(1 << 15 | 1 << 16, 1 << 4),
    /* MOB_load_replay_retired: MOB_load_replay with PARTIAL_DATA and UNALGN_ADDR */
    Replay { upstream: upstream(Pair::Mob, 3, 0x03, 0x30), ..replay(1 << 9, 1) },
    /* split_load_retired: load_port_replay with SPLIT_LD, in MSR_SAAT_ESCR1 */
    Replay { upstream: upstream(Pair::Saat, 2, 0x04, 0x02), ..replay(1 << 10, 1) },
    /* split_store_retired: store_port_replay with SPLIT_ST, in MSR_SAAT_ESCR0 */
    Replay { upstream: upstream(Pair::Saat, 1, 0x05, 0x02), ..replay(1 << 10, 1 << 1) },
];

/// What one event needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
struct Tag {
    pebs_enable: u32,
    matrix_vert: u32,
    upstream: Option<Upstream>,
}

/// What a session's events need together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tags {
    /// IA32_PEBS_ENABLE, without the bits by which records are written.
    pub pebs_enable: u32,
    /// MSR_PEBS_MATRIX_VERT.
    pub matrix_vert: u32,
    /// ESCRs that tag; 0 for all others.
    pub escrs: [u32; EscrId::COUNT],
}

impl Tags {
    /// No tags.
    pub const NONE: Self = Self { pebs_enable: 0, matrix_vert: 0, escrs: [0; EscrId::COUNT] };

    /// The tags of these events, of which the entries without a rule are for nobody. `pebs`: IA32_PEBS_ENABLE exists.
    ///
    /// # Errors
    /// [`Reason::ExtraMissing`], [`Reason::ExtraBits`], [`Reason::ExtraConflict`], [`Reason::SharedEvent`] or
    /// [`Reason::NoPebs`].
    pub fn of(unit: &Unit, events: &[EventSpec], pebs: bool) -> Result<Self, Refusal> {
        let mut all = Self::NONE;
        let mut replay: Option<(u32, u32)> = None;
        for (index, event) in events.iter().enumerate().take(EVENTS_MAX) {
            let Some(rule) = Encoding(event.encoding).rule() else { continue };
            let tag = check(unit, rule, index, event)?;
            if rule.tagging == Tagging::Replay {
                if !pebs {
                    return Err(Refusal::new(Reason::NoPebs, [index as u64, 0]));
                }
                let wanted = (tag.pebs_enable, tag.matrix_vert);
                if replay.is_some_and(|other| other != wanted) {
                    return Err(conflict(index, IA32_PEBS_ENABLE));
                }
                replay = Some(wanted);
                (all.pebs_enable, all.matrix_vert) = (tag.pebs_enable | PebsEnable::UOP_TAG, tag.matrix_vert);
            }
            if let Some(upstream) = tag.upstream {
                all.add(unit, index, upstream, event.privilege)?;
            }
        }
        Ok(all)
    }

    /// Finds an ESCR for an upstream event. At the front end all tags are alike, so that there is one such event.
    fn add(&mut self, unit: &Unit, index: usize, wanted: Upstream, privilege: u8) -> Result<(), Refusal> {
        let qualification = unit.qualification(EventSpec::USER | EventSpec::KERNEL);
        let halves = (0..2).filter(|half| wanted.halves >> half & 1 == 1);
        let own = |escr: &EscrId| unit.escrs().any(|own| own == *escr);
        let mut escrs = halves.map(|half| wanted.pair.half(half)).filter(own);
        let front_end = wanted.pair == Pair::Rat;
        let usable = escrs.find(|escr| {
            let held = self.escrs[escr.place()] & !qualification;
            held == 0 || held == wanted.value || front_end
        });
        let escr = usable.ok_or(conflict(index, wanted.pair.address()))?;
        // Two upstream events with a tag in common would be counted together.
        let other = self.escrs[escr.place() ^ 1];
        if other != 0 && other & !qualification != wanted.value && other & wanted.value & Escr::TAG_VALUE != 0
        {
            return Err(conflict(index, escr.address()));
        }
        let held = &mut self.escrs[escr.place()];
        if *held != 0 && *held & !qualification != wanted.value {
            return Err(conflict(index, escr.address()));
        }
        *held |= wanted.value | unit.qualification(privilege);
        Ok(())
    }
}

fn conflict(index: usize, register: u32) -> Refusal {
    Refusal::new(Reason::ExtraConflict, [index as u64, register.into()])
}

/// What the event at `index` asks to have tagged.
fn check(unit: &Unit, rule: &EventRule, index: usize, event: &EventSpec) -> Result<Tag, Refusal> {
    let (extra, bits) = (event.extra, |bits| Refusal::new(Reason::ExtraBits, [index as u64, bits]));
    if rule.tagging == Tagging::None {
        return if extra == 0 { Ok(Tag::default()) } else { Err(bits(extra)) };
    }
    if extra == 0 {
        let register = match rule.tagging {
            Tagging::FrontEnd => Pair::Rat.address(),
            Tagging::Execution => Pair::Firm.address(),
            _ => IA32_PEBS_ENABLE,
        };
        return Err(Refusal::new(Reason::ExtraMissing, [index as u64, register.into()]));
    }
    let tag = match rule.tagging {
        Tagging::Replay => replay_of(extra),
        Tagging::FrontEnd => front_end_of(Encoding(extra)),
        _ => execution_of(Encoding(event.encoding), Encoding(extra)),
    };
    let tag = tag.ok_or(bits(extra))?;
    // The ESCRs of split accesses belong to one half each, and what execution tagging looks for belongs to no logical
    // processor (TI of table 19-34).
    let halves = tag.upstream.map_or(3, |upstream| upstream.halves);
    if unit.share != Share::Whole && (halves != 3 || rule.tagging == Tagging::Execution) {
        return Err(Refusal::new(Reason::SharedEvent, [index as u64, 0]));
    }
    Ok(tag)
}

fn replay_of(extra: u64) -> Option<Tag> {
    let (pebs_enable, matrix_vert) = (extra as u32, (extra >> 32) as u32);
    let same = |replay: &&Replay| (replay.pebs_enable, replay.matrix_vert) == (pebs_enable, matrix_vert);
    let found = REPLAYS.iter().find(same)?;
    Some(Tag { pebs_enable, matrix_vert, upstream: found.upstream })
}

/// uop_type, with any of its masks.
fn front_end_of(upstream: Encoding) -> Option<Tag> {
    let value = UOP_TYPE_SELECT << Escr::EVENT_SELECT_SHIFT | upstream.mask() << Escr::EVENT_MASK_SHIFT;
    let valid = upstream.pair() == Some(Pair::Rat)
        && upstream == whole(Pair::Rat, value)
        && upstream.mask() & !UOP_TYPE_MASK == 0
        && upstream.mask() != 0;
    valid.then_some(Tag { upstream: Some(Upstream { pair: Pair::Rat, halves: 3, value }), ..Tag::default() })
}

/// An event of table 19-32 with Tag Enable, and as Tag Value those of the four tags that execution_event counts.
fn execution_of(event: Encoding, upstream: Encoding) -> Option<Tag> {
    let rule = upstream.rule().filter(|rule| rule.pair == Pair::Firm && rule.select != SSE_INPUT_ASSIST)?;
    let value = upstream.escr();
    let tags = (value & Escr::TAG_VALUE) >> Escr::TAG_VALUE_SHIFT;
    let counted = (event.mask() | event.mask() >> 4) & 0xF;
    let known = Escr::EVENT_SELECT | Escr::EVENT_MASK | Escr::TAG_ENABLE | Escr::TAG_VALUE;
    let valid = upstream == whole(Pair::Firm, value)
        && value & !known == 0
        && value & Escr::TAG_ENABLE != 0
        && upstream.mask() == u32::from(rule.mask_bits)
        && tags == counted;
    valid.then_some(Tag { upstream: Some(Upstream { pair: Pair::Firm, halves: 3, value }), ..Tag::default() })
}

/// The encoding that has this value for an ESCR of the pair.
const fn whole(pair: Pair, escr: u32) -> Encoding {
    let low = pair.escr_select() << super::registers::Cccr::ESCR_SELECT_SHIFT | pair.block() as u32;
    Encoding((escr as u64) << 32 | low as u64)
}
