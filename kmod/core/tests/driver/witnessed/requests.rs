//! Sessions of random events, most of which the PMU has.

use hpm_abi::{EventMode, EventSpec, SessionConfig};
use hpm_core::pmu::netburst::events::{EventRule, Tagging, EVENTS};
use hpm_core::pmu::netburst::registers::{Cccr, Escr};
use hpm_core::pmu::{Generation, Interface};
use hpm_core::registers::PerfEvtSel;
use hpm_core::Pmu;
use proptest::prelude::*;

use crate::rig::netburst::{TAG_LOADS, TAG_STORES};
use crate::rig::scene::{config, counted};

/// Edge detect and inversion, and counter masks up to 3.
const QUALIFIERS: u64 = 1 << 18 | 1 << 23 | 3 << 24;

/// An event in any use, now and then with bits that the PMU does not have.
fn event(pmu: &Pmu) -> BoxedStrategy<EventSpec> {
    match pmu.interface {
        Interface::NetBurst(_) => of_netburst().boxed(),
        Interface::Architectural | Interface::Amd(_) => of_tables(pmu.generation).boxed(),
    }
}

fn of_tables(generation: &'static Generation) -> impl Strategy<Value = EventSpec> {
    let selects: Vec<u16> = generation.events.iter().map(|rule| rule.select).collect();
    // Without a register beside the encoding.
    let plain = generation
        .precise
        .iter()
        .map(|rule| rule.encoding)
        .filter(|encoding| generation.extra(*encoding).is_none());
    let sampled: Vec<u64> = plain.chain([0xC0]).collect();
    let bits = (any::<u16>(), any::<u64>(), 0..8u8, any::<bool>());
    let counted = (prop::sample::select(selects), bits, 1..4u8, 100..4000u64).prop_map(
        move |(select, (unit_mask, more, kind, odd), privilege, period)| {
            let rule = generation.event(select).expect("of the table");
            let unit_mask = if kind == 7 && odd { unit_mask } else { unit_mask & rule.unit_mask_bits };
            let qualifiers = if kind >= 5 { more & QUALIFIERS } else { 0 };
            let select = u64::from(select);
            let select = PerfEvtSel(select & 0xFF | (select >> 8) << 32 | qualifiers);
            let encoding = select.with_whole_unit_mask(unit_mask).0;
            let extra = generation.extra(encoding).map_or(0, |rule| more & rule.bits);
            let event = EventSpec { privilege, extra, ..counted(encoding) };
            match kind {
                4 => EventSpec { mode: EventMode::Interrupt as u8, period, ..event },
                _ => event,
            }
        },
    );
    prop_oneof![8 => counted, 1 => precise(sampled)]
}

fn precise(encodings: Vec<u64>) -> impl Strategy<Value = EventSpec> {
    (prop::sample::select(encodings), 1..4u8, 100..4000u64, any::<bool>()).prop_map(
        |(encoding, privilege, period, randomise)| EventSpec {
            mode: EventMode::Precise as u8,
            privilege,
            period,
            flags: if randomise { EventSpec::RANDOMISE } else { 0 },
            ..counted(encoding)
        },
    )
}

/// An encoding of a rule with this mask.
fn encoding_of(rule: &EventRule, mask: u16) -> u64 {
    let escr = u32::from(rule.select) << Escr::EVENT_SELECT_SHIFT | u32::from(mask) << Escr::EVENT_MASK_SHIFT;
    let cccr = rule.pair.escr_select() << Cccr::ESCR_SELECT_SHIFT | rule.pair.block() as u32;
    u64::from(escr) << 32 | u64::from(cccr)
}

/// Events without tags, and those of loads and stores tagged at the front end.
fn of_netburst() -> impl Strategy<Value = EventSpec> {
    let told = |rule: &&EventRule| matches!(rule.tagging, Tagging::None | Tagging::FrontEnd);
    let rules: Vec<&EventRule> = EVENTS.iter().filter(told).collect();
    let bits = (any::<u16>(), any::<u32>(), 0..8u8, any::<bool>());
    (prop::sample::select(rules), bits, 1..4u8, 100..4000u64).prop_map(
        |(rule, (mask, more, kind, odd), privilege, period)| {
            let mask = if kind == 7 && odd { mask } else { mask & rule.mask_bits };
            let compare = Cccr::COMPARE | more & (Cccr::COMPLEMENT | Cccr::EDGE | 3 << 20);
            let filter = if kind == 6 { u64::from(compare) } else { 0 };
            let extra = match rule.tagging {
                Tagging::FrontEnd if odd => TAG_LOADS,
                Tagging::FrontEnd => TAG_STORES,
                _ => 0,
            };
            let event = EventSpec { privilege, extra, ..counted(encoding_of(rule, mask) | filter) };
            match kind {
                4 => EventSpec { mode: EventMode::Interrupt as u8, period, ..event },
                5 => EventSpec { mode: EventMode::Precise as u8, period, ..event },
                _ => event,
            }
        },
    )
}

/// A session of one to five events.
pub(crate) fn session(pmu: &Pmu) -> impl Strategy<Value = SessionConfig> {
    (prop::collection::vec(event(pmu), 1..6), 2..8u32).prop_map(|(events, segments)| {
        let mut config = config(&events);
        if config.segments > 0 {
            (config.segments, config.segment_bytes) = (segments, u32::MAX);
        }
        config
    })
}
