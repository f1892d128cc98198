//! Registers that events need beside their encoding: which event gets which, with what value.

use super::abi::Reason;
use super::events::Event;
use super::pmu::{ExtraRegister, ExtraRule, Generation};
use super::registers::PerfEvtSel;
use super::Refusal;

/// The value of each of [`ExtraRegister::ALL`]; `None` for one that no event needs.
pub type Extras = [Option<u64>; ExtraRegister::ALL.len()];

/// Least threshold of a load latency that hardware compares with (SDM Vol. 3B 20.3.1.1.2).
const LATENCY_MIN: u64 = 3;

/// Checks the value that the event at `index` asks for.
///
/// # Errors
/// [`Reason::ExtraMissing`] when it needs one and has none, [`Reason::ExtraBits`] for bits that the register, or an event
/// without one, does not take.
pub fn check(
    generation: &Generation,
    index: usize,
    encoding: u64,
    extra: u64,
) -> Result<Option<(ExtraRegister, u64)>, Refusal> {
    let bits = |refused| Refusal::new(Reason::ExtraBits, [index as u64, refused]);
    let Some(rule) = generation.extra(encoding) else {
        return if extra == 0 { Ok(None) } else { Err(bits(extra)) };
    };
    if extra == 0 {
        return Err(Refusal::new(Reason::ExtraMissing, [index as u64, rule.register.address().into()]));
    }
    if extra & !rule.bits != 0 {
        return Err(bits(extra & !rule.bits));
    }
    if rule.register == ExtraRegister::LoadLatency && extra < LATENCY_MIN {
        return Err(bits(extra));
    }
    Ok(Some((rule.register, extra)))
}

/// Gives each event whose bit is set in `active` its register. Two events with one value share it; an event whose register
/// holds another value takes the register's sibling, and its encoding.
///
/// # Errors
/// [`Reason::ExtraConflict`] with the index of the first event that finds none, and the register.
pub fn assign(generation: &Generation, events: &mut [Event], active: u32) -> Result<Extras, Refusal> {
    let mut values: Extras = [None; ExtraRegister::ALL.len()];
    for (index, event) in events.iter_mut().enumerate().filter(|(index, _)| active >> index & 1 == 1) {
        let Some((own, value)) = event.extra else { continue };
        let sibling =
            own.sibling().and_then(|register| with_register(generation, register)).map(|rule| rule.register);
        let candidates = [Some(own), sibling];
        let holds = |wanted: Option<u64>| {
            candidates.iter().flatten().copied().find(|register| values[register.place()] == wanted)
        };
        let register = holds(Some(value))
            .or_else(|| holds(None))
            .ok_or(Refusal::new(Reason::ExtraConflict, [index as u64, own.address().into()]))?;
        values[register.place()] = Some(value);
        if register != own {
            if let Some(rule) = with_register(generation, register) {
                event.encoding = renamed(event.encoding, rule.encoding);
                if let Some(how) = &mut event.sampling {
                    how.encoding = renamed(how.encoding, rule.encoding);
                }
                event.extra = Some((register, value));
            }
        }
    }
    Ok(values)
}

/// The one event that uses this offcore register.
fn with_register(generation: &Generation, register: ExtraRegister) -> Option<&'static ExtraRule> {
    generation.extra.iter().find(|rule| rule.register == register)
}

/// The encoding with another event select and unit mask.
fn renamed(encoding: u64, event: u16) -> u64 {
    let [select, unit_mask] = event.to_le_bytes();
    PerfEvtSel(encoding).with_event_select(select.into()).with_unit_mask(unit_mask.into()).0
}
