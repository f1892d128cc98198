//! From an event's name, as it is typed, to its encoding.

use super::raw::{Filters, Request, is_netburst, syntax};
use super::table::Row;
use super::{
    CoreType, Event, Sampling, base, core_pmus, generic_names, pmu_prefix, sampling, table, type_in_hybrid,
    vendor_names,
};
use crate::{Error, Result};

/// The encodings that mean the same on cores of every type: the architectural events (SDM Vol. 3B 20.2.1.2), which the driver takes for all.
const ARCHITECTURAL: [u64; 7] = [0x003C, 0x00C0, 0x013C, 0x4F2E, 0x412E, 0x00C4, 0x00C5];

/// Splits a comma-separated list of events, which may have blanks around the commas; commas between slashes belong to a raw event.
#[must_use]
pub fn split_list(list: &str) -> Vec<&str> {
    let mut in_slashes = false;
    list.split(|c: char| {
        in_slashes ^= c == '/';
        c == ',' && !in_slashes
    })
    .map(str::trim)
    .collect()
}

/// Encodes an event for a PMU, or for the PMUs of a hybrid processor: see [`core_pmus`].
///
/// # Errors
/// [`Error::UnknownEvent`] with the nearest names, [`Error::EventAbsent`], or [`Error::EventSyntax`].
pub fn parse(text: &str, pmu: &str) -> Result<Event> {
    let (body, modifiers) = split_modifiers(text);
    let (_, user, kernel) = privilege(text);
    let request = Request::new(body)?;
    let mut event = match request.core_type {
        CoreType::Any => on_every_core(text, &request, pmu)?,
        wanted => {
            // Of the type that is not online the driver says so: it alone knows whether the processor is hybrid.
            let may_be_hybrid = type_in_hybrid(pmu) != CoreType::Any;
            let is_wanted = |core_type| core_type == wanted || core_type == CoreType::Any && may_be_hybrid;
            let of_wanted = core_pmus(pmu).find(|(core_type, _)| is_wanted(*core_type));
            let (_, pmu) = of_wanted.ok_or_else(|| syntax(text, &no_such_cores(pmu)))?;
            encode(text, &request, pmu)?
        }
    };
    (event.user, event.kernel) = (user, kernel);
    if modifiers.contains('p') {
        event.encoding = event.precise_encoding;
        event.must_be_precise = true;
    }
    Ok(event)
}

/// The events that a text means on a PMU: one, or, of a name on a hybrid processor that is no architectural event's, one for each type of cores
/// that has it, named as those that are meant for one type.
///
/// # Errors
/// Those of [`parse`].
pub fn parse_each(text: &str, pmu: &str) -> Result<Vec<Event>> {
    parse(text, pmu).map(|event| vec![event]).or_else(|error| {
        let ((CoreType::Any, term), (_, modifiers)) = (base(text), split_modifiers(text)) else {
            return Err(error);
        };
        let prefixes = core_pmus(pmu).filter_map(|(core_type, _)| pmu_prefix(core_type));
        let of_each = prefixes.filter_map(|prefix| parse(&format!("{prefix}/{term}/{modifiers}"), pmu).ok());
        Some(of_each.collect::<Vec<_>>()).filter(|events| !events.is_empty()).ok_or(error)
    })
}

/// The event on cores of all types, which must mean the same by it: the driver knows that only of architectural ones.
fn on_every_core(text: &str, request: &Request<'_>, pmu: &str) -> Result<Event> {
    let mut events = core_pmus(pmu).map(|(_, pmu)| encode(text, request, pmu));
    let first = events.next().expect("a name has at least one part")?;
    for other in events {
        // Of an encoding that was given as a number the driver says whether it has to be told for which cores it is.
        let means_one = request.name.is_none() || ARCHITECTURAL.contains(&first.encoding);
        if other? != first || !means_one {
            return Err(syntax(
                text,
                "each type of this processor's cores has one of its own by this name: name one, as in `cpu_core/…/` or `cpu_atom/…/`",
            ));
        }
    }
    Ok(first)
}

/// Why an event is for no cores of this PMU's processor.
fn no_such_cores(pmu: &str) -> String {
    let written: Vec<_> = core_pmus(pmu)
        .map(|(core_type, _)| format!("`{}/…/`", pmu_prefix(core_type).unwrap_or("cpu")))
        .collect();
    match &written[..] {
        [one] => format!("this processor has cores of one type only: write {one} instead"),
        several => format!("this processor has no such cores online: write {} instead", several.join(" or ")),
    }
}

/// The event on one PMU, in both privilege levels.
fn encode(text: &str, request: &Request<'_>, pmu: &str) -> Result<Event> {
    let table = table(pmu);
    let mut event = Event {
        name: text.to_owned(),
        encoding: request.encoding,
        precise_encoding: request.encoding,
        extra: request.extra.unwrap_or(0),
        core_type: request.core_type,
        sampling: sampling(request.encoding, pmu),
        must_be_precise: false,
        user: true,
        kernel: true,
        description: "",
    };
    let Some(name) = request.name else { return Ok(event) };
    let same = |row: Row| (row, row);
    let vendor = || table.and_then(|table| table.vendor(name)).copied().map(same);
    let masks = || table.and_then(|table| table.masks(name)).map(same);
    let generic = table.and_then(|table| table.generic(name)).map(|(counted, sampled)| (*counted, *sampled));
    let Some((counted, sampled)) = generic.or_else(vendor).or_else(masks) else {
        return Err(match table.and_then(|table| table.absent(name)) {
            Some(reason) => Error::EventAbsent { name: name.into(), pmu: pmu.into(), reason },
            None => Error::UnknownEvent { name: name.into(), pmu: pmu.into(), near: nearest(name, pmu) },
        });
    };
    let whose = if is_netburst(counted.encoding) { Filters::Netburst } else { Filters::Select };
    if request.filters.is_some_and(|filters| filters != whose) {
        let terms = if whose == Filters::Select { "edge, inv, cmask and eq" } else { "e, cmpl and thr" };
        return Err(syntax(text, &format!("on this PMU the terms that restrict an event are {terms}")));
    }
    event.encoding |= counted.encoding;
    event.precise_encoding |= sampled.encoding;
    event.extra = request.extra.unwrap_or(counted.extra);
    event.sampling = sampled.sampling;
    event.description = counted.description;
    Ok(event)
}

/// The event that has to be counted beside this one, or this one never occurs: Golden Cove tags loads for their latency only
/// while LD_BLOCKS.STORE_FORWARD is counted too (Linux: `mem-loads-aux`, `PMU_FL_MEM_LOADS_AUX`).
#[must_use]
pub fn companion(event: &Event, pmu: &str) -> Option<Event> {
    let (_, pmu) = core_pmus(pmu).next()?;
    // The first PMU is that of the P-cores.
    let tags_loads = event.sampling == Sampling::LoadLatency && event.is_for(CoreType::Core);
    let row = table(pmu).filter(|_| tags_loads && pmu == "goldencove")?.vendor("LD_BLOCKS.STORE_FORWARD")?;
    Some(Event {
        name: row.name.to_owned(),
        encoding: row.encoding,
        precise_encoding: row.encoding,
        extra: 0,
        sampling: row.sampling,
        must_be_precise: false,
        description: row.description,
        ..event.clone()
    })
}

/// An event's name without its modifiers, and whether these have it counted in user mode and in kernel mode: in both where they
/// name neither.
#[must_use]
pub fn privilege(text: &str) -> (&str, bool, bool) {
    let (body, modifiers) = split_modifiers(text);
    let has = |mode: char| modifiers.contains(mode) || !modifiers.contains(['u', 'k']);
    (body, has('u'), has('k'))
}

/// Separates the modifiers at the end: after the last colon, or after the closing slash of a raw event.
pub(super) fn split_modifiers(text: &str) -> (&str, &str) {
    let only_modifiers = |tail: &str| tail.chars().all(|c| matches!(c, 'u' | 'k' | 'p'));
    match text.rsplit_once(':') {
        Some((name, tail)) if !tail.is_empty() && only_modifiers(tail) => (name, tail),
        _ => match text.rfind('/') {
            Some(slash) if only_modifiers(&text[slash + 1..]) => text.split_at(slash + 1),
            _ => (text, ""),
        },
    }
}

/// Up to three names that look like `name`, best first.
fn nearest(name: &str, pmu: &str) -> Vec<String> {
    /// Below this, names have too little in common to be what was meant.
    const SIMILAR: f64 = 0.75;
    let wanted = name.to_ascii_lowercase().replace(':', ".");
    let names =
        generic_names(pmu).iter().map(|alias| alias.name).chain(vendor_names(pmu).iter().map(|row| row.name));
    let mut scored: Vec<(f64, &str)> = names
        .map(|name| (strsim::jaro_winkler(&wanted, &name.to_ascii_lowercase()), name))
        .filter(|(score, _)| *score >= SIMILAR)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(3).map(|(_, name)| name.to_owned()).collect()
}
