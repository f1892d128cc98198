//! Event names and their encodings.
//!
//! An event is written as
//! - a generic name (`l1d-load-miss`, `instructions`, …),
//! - the vendor's name, in any case, with `.` or `:` before the unit mask (`MEM_LOAD_RETIRED.L1_MISS`),
//! - raw, as perf writes it: `r01d1`, `cpu/event=0xd1,umask=0x01/`,
//! - a name with perf's terms: `cpu/mem-loads,ldlat=30/`; on a hybrid processor `cpu_core/…/` and `cpu_atom/…/` say which
//!   cores are meant,
//!
//! and may end in `:` and modifiers: `u` user mode only, `k` kernel mode only, `p` the encoding that PEBS can sample.
//!
//! The tables are our own rather than libpfm4's: that library encodes for another PMU than the running one only by an
//! environment variable read once per process, and building it would ask every user for make, a C compiler and libclang.

mod equivalent;
mod escr;
mod fits;
mod pmu;
mod raw;
mod table;
mod wording;

pub use hpm_abi::CoreType;

pub use self::equivalent::{Equivalent, GENERICS, Generic};
pub use self::fits::{Counter, Fit, Misfit, Taken, fit};
pub use self::table::{Absent, Alias, Row, Sampling};

use self::raw::{Filters, Request, is_netburst, syntax};
use self::table::Table;
use crate::{Error, Result};

/// An event, encoded for one PMU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// As it was asked for.
    pub name: String,
    /// Event select, unit mask, edge, invert and counter mask at their places in IA32_PERFEVTSELx (SDM Vol. 3B 20.2.1.1).
    pub encoding: u64,
    /// The encoding that counts the same and can be sampled precisely; equal to `encoding` where there is no other.
    pub precise_encoding: u64,
    /// Value of the register that the event needs beside its encoding ([`hpm_abi::EventSpec::extra`]); 0 for none.
    pub extra: u64,
    /// The cores of a hybrid processor that it is for.
    pub core_type: CoreType,
    /// What a sample of `precise_encoding` says.
    pub sampling: Sampling,
    /// Whether a sample must be precise: asked for by `:p`.
    pub must_be_precise: bool,
    /// Counted at CPL 3.
    pub user: bool,
    /// Counted at CPL 0.
    pub kernel: bool,
    /// What it counts; empty for a raw encoding.
    pub description: &'static str,
}

impl Event {
    /// Whether the privilege was left open, so that both levels are counted.
    #[must_use]
    pub fn any_privilege(&self) -> bool {
        self.user && self.kernel
    }

    /// Whether it is sampled by PEBS: by its table, or because that was asked for. Else an interrupt samples it.
    #[must_use]
    pub fn sampled_precisely(&self) -> bool {
        self.must_be_precise || self.sampling.is_precise()
    }

    /// The same event in user mode only, and named so.
    #[must_use]
    pub fn user_only(mut self) -> Self {
        let separator = if self.name.ends_with('/') { "" } else { ":" };
        self.name = format!("{}{separator}u", self.name);
        self.kernel = false;
        self
    }
}

/// The table of a PMU by the name that the driver gives it ([`hpm_abi::Info::pmu_name`]).
fn table(pmu: &str) -> Option<&'static Table> {
    pmu::TABLES.iter().find(|(name, _)| *name == pmu).map(|(_, table)| table)
}

/// The PMUs that have a table, oldest first.
pub fn pmus() -> impl Iterator<Item = &'static str> {
    pmu::TABLES.iter().map(|(name, _)| *name)
}

/// The PMUs of a processor's cores, by the name that the driver gives them together: a hybrid processor's is
/// `CORE+ATOM`, as in `goldencove+gracemont`.
pub fn core_pmus(name: &str) -> impl Iterator<Item = (CoreType, &str)> {
    let (core, atom) = name.split_once('+').map_or((name, None), |(core, atom)| (core, Some(atom)));
    let core_type = if atom.is_some() { CoreType::Core } else { CoreType::Any };
    std::iter::once((core_type, core)).chain(atom.map(|atom| (CoreType::Atom, atom)))
}

/// The events of a PMU by the vendor's names; empty for a PMU without a table.
#[must_use]
pub fn vendor_names(pmu: &str) -> &'static [Row] {
    table(pmu).map_or(&[], |table| table.rows)
}

/// The generic names of a PMU's events; empty for a PMU without a table.
#[must_use]
pub fn generic_names(pmu: &str) -> &'static [Alias] {
    table(pmu).map_or(&[], |table| table.aliases)
}

/// The generic names that a PMU has no event for; empty for a PMU without a table.
#[must_use]
pub fn absent_names(pmu: &str) -> &'static [Absent] {
    table(pmu).map_or(&[], |table| table.absent)
}

/// What a PMU makes of a generic name; `None` for a PMU without a table, and for what is no generic name.
#[must_use]
pub fn equivalent(name: &str, pmu: &str) -> Option<Equivalent> {
    table(pmu)?.equivalent(name)
}

/// What a sample of the event with this encoding says, on one PMU.
#[must_use]
pub fn sampling(encoding: u64, pmu: &str) -> Sampling {
    table(pmu).map_or(Sampling::Imprecise, |table| table.sampling(encoding))
}

/// Splits a comma-separated list of events; commas between slashes belong to a raw event.
#[must_use]
pub fn split_list(list: &str) -> Vec<&str> {
    let mut in_slashes = false;
    list.split(|c: char| {
        in_slashes ^= c == '/';
        c == ',' && !in_slashes
    })
    .collect()
}

/// Encodes an event for a PMU, or for the two PMUs of a hybrid processor: see [`core_pmus`].
///
/// # Errors
/// [`Error::UnknownEvent`] with the nearest names, [`Error::EventAbsent`], or [`Error::EventSyntax`].
pub fn parse(text: &str, pmu: &str) -> Result<Event> {
    let (body, modifiers) = split_modifiers(text);
    let request = Request::new(body)?;
    let mut event = match request.core_type {
        CoreType::Any => on_every_core(text, &request, pmu)?,
        wanted => {
            let (_, pmu) = core_pmus(pmu).find(|(core_type, _)| *core_type == wanted).ok_or_else(|| {
                syntax(text, "this processor has cores of one type only: write `cpu/…/` instead")
            })?;
            encode(text, &request, pmu)?
        }
    };
    if modifiers.contains(['u', 'k']) {
        (event.user, event.kernel) = (modifiers.contains('u'), modifiers.contains('k'));
    }
    if modifiers.contains('p') {
        event.encoding = event.precise_encoding;
        event.must_be_precise = true;
    }
    Ok(event)
}

/// The event on cores of all types, which must have it in one encoding.
fn on_every_core(text: &str, request: &Request<'_>, pmu: &str) -> Result<Event> {
    let mut events = core_pmus(pmu).map(|(_, pmu)| encode(text, request, pmu));
    let first = events.next().expect("a name has at least one part")?;
    match events.next().transpose()? {
        Some(other) if other != first => Err(syntax(
            text,
            "the core types of this processor encode it differently: name one, as in `cpu_core/…/` or `cpu_atom/…/`",
        )),
        _ => Ok(first),
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
        let terms = if whose == Filters::Select { "edge, inv and cmask" } else { "e, cmpl and thr" };
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
    let tags_loads = event.sampling == Sampling::LoadLatency && event.core_type != CoreType::Atom;
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

/// Separates the modifiers at the end: after the last colon, or after the closing slash of a raw event.
fn split_modifiers(text: &str) -> (&str, &str) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn encoding(text: &str) -> u64 {
        parse(text, "skylake").unwrap_or_else(|e| panic!("{e}")).encoding
    }

    proptest::proptest! {
        /// Whatever is typed: an event or an error in a sentence, and no panic.
        #[test]
        fn any_text_is_an_event_or_an_error(
            text in "[a-z0-9_.:/=,~-]{0,24}|(cpu|cpu_core|cpu_atom)/[a-z]{0,8}=0?x?[0-9a-f]{0,20}[,/]?[a-z]{0,4}/?[ukp:]{0,4}|r[0-9a-f]{0,20}(:[ukp]{0,4})?|\\PC{0,12}",
            pmu in proptest::sample::select(vec!["skylake", "nehalem", "goldencove", "goldencove+gracemont", "nothing"]),
        ) {
            if let Err(error) = parse(&text, pmu) {
                proptest::prop_assert!(!error.to_string().is_empty());
            }
            proptest::prop_assert_eq!(split_list(&text).join(","), text);
        }
    }

    #[test]
    fn every_way_to_name_a_load_that_missed_l1() {
        for text in [
            "l1d-load-miss",
            "MEM_LOAD_RETIRED.L1_MISS",
            "mem_load_retired:l1_miss",
            "r8d1",
            "cpu/event=0xd1,umask=8/",
        ] {
            assert_eq!(encoding(text), 0x08d1, "{text}");
        }
    }

    #[test]
    fn modifiers_restrict_the_privilege() {
        let levels = |text: &str| parse(text, "skylake").map(|e| (e.user, e.kernel)).unwrap();
        assert_eq!(levels("cycles"), (true, true));
        assert_eq!(levels("cycles:u"), (true, false));
        assert_eq!(levels("MEM_LOAD_RETIRED:L1_MISS:kp"), (false, true));
        assert_eq!(levels("cpu/event=0x3c/u"), (true, false));
        assert_eq!(levels("cycles:uk"), (true, true));
    }

    #[test]
    fn a_generic_name_is_sampled_by_its_precise_encoding() {
        let branch = parse("branch", "skylake").unwrap();
        assert_eq!((branch.encoding, branch.precise_encoding), (0x00c4, 0x04c4));
        assert_eq!(encoding("branch:p"), 0x04c4);
    }

    #[test]
    fn restricting_to_user_mode_shows_in_the_name() {
        assert_eq!(parse("cycles", "skylake").unwrap().user_only().name, "cycles:u");
        let raw = parse("cpu/event=0x3c/", "skylake").unwrap().user_only().name;
        assert_eq!(raw, "cpu/event=0x3c/u");
        assert!(!parse(&raw, "skylake").unwrap().kernel);
    }

    #[test]
    fn unknown_names_suggest_near_ones() {
        let say = |name| parse(name, "skylake").unwrap_err().to_string();
        insta::assert_snapshot!(
            [
                say("l1d-lod-miss"),
                say("MEM_LOAD_RETIRED:L1_MIS"),
                say("xyzzy"),
                say("r200d1"),
                say("cpu/frob=1/")
            ]
            .join("\n")
        );
    }

    #[test]
    fn commas_inside_slashes_do_not_split() {
        assert_eq!(
            split_list("cycles,cpu/event=0xd1,umask=8/u,r1c4"),
            ["cycles", "cpu/event=0xd1,umask=8/u", "r1c4"]
        );
    }

    #[test]
    fn a_name_without_an_event_says_why() {
        let error = parse("l1d-load-miss", "sandybridge").unwrap_err().to_string();
        assert!(error.contains("those that missed"), "{error}");
    }

    #[test]
    fn thresholds_are_part_of_the_name_or_a_term() {
        let event = |text: &str| parse(text, "skylake").unwrap();
        let latency = event("MEM_TRANS_RETIRED.LOAD_LATENCY_GT_64");
        assert_eq!((latency.encoding, latency.extra), (0x01cd, 64));
        assert_eq!((latency.sampling, latency.sampled_precisely()), (Sampling::LoadLatency, true));
        let term = event("cpu/mem-loads,ldlat=30/up");
        assert_eq!((term.encoding, term.extra, term.kernel), (0x01cd, 30, false));
        let raw = event("cpu/event=0xcd,umask=1,ldlat=30/");
        assert_eq!((raw.sampling, raw.extra), (Sampling::LoadLatency, 30));
    }

    #[test]
    fn what_pebs_cannot_sample_is_sampled_by_interrupts_unless_asked() {
        let precisely = |text: &str| parse(text, "skylake").unwrap().sampled_precisely();
        assert!(!precisely("cycles") && precisely("cycles:p"));
        assert!(precisely("branch") && precisely("r08d1") && !precisely("r01a2"));
    }

    #[test]
    fn golden_cove_tags_loads_only_beside_another_event() {
        let companion = |text: &str, pmu: &str| companion(&parse(text, pmu).unwrap(), pmu);
        let beside = companion("cpu/mem-loads,ldlat=30/u", "goldencove").unwrap();
        assert_eq!((beside.encoding, beside.extra, beside.kernel), (0x8203, 0, false));
        assert!(companion("load", "goldencove").is_none() && companion("mem-loads", "icelake").is_none());
        assert!(companion("cpu_core/mem-loads/", "goldencove+gracemont").is_some());
        assert!(companion("cpu_atom/mem-loads/", "goldencove+gracemont").is_none());
    }

    #[test]
    fn a_hybrid_processor_has_two_tables() {
        let hybrid = |text: &str| parse(text, "goldencove+gracemont");
        assert_eq!(hybrid("cycles").unwrap().core_type, CoreType::Any);
        let (core, atom) = (hybrid("cpu_core/load/").unwrap(), hybrid("cpu_atom/load/u").unwrap());
        assert_eq!((core.core_type, core.encoding), (CoreType::Core, 0x81d0));
        assert_eq!((atom.core_type, atom.encoding, atom.kernel), (CoreType::Atom, 0x81d0, false));
        assert_eq!(hybrid("cpu_atom/mem-loads/").unwrap().encoding, 0x05d0);
        let error = hybrid("mem-loads").unwrap_err().to_string();
        assert!(error.contains("cpu_core/…/"), "{error}");
        assert!(parse("cpu_atom/load/", "skylake").is_err());
    }

    /// Every PMU has or explains every generic name, every alias names rows that exist, the sampled one precise where the
    /// alias says it differs, and no name stands twice.
    #[test]
    fn the_tables_are_consistent() {
        let mut generics: Vec<&str> = GENERICS.iter().map(|generic| generic.name).collect();
        generics.sort_unstable();
        for (pmu, table) in &pmu::TABLES {
            let aliases = table.aliases.iter().map(|alias| alias.name);
            let mut names: Vec<&str> = aliases.chain(table.absent.iter().map(|absent| absent.name)).collect();
            names.sort_unstable();
            assert_eq!(names, generics, "{pmu}");
            assert!(table.absent.iter().all(|absent| !absent.reason.is_empty()), "{pmu}");
            for alias in table.aliases {
                let found = table.generic(alias.name);
                let (_, sampled) = found.unwrap_or_else(|| panic!("{pmu}: {} names no row", alias.name));
                let precise = alias.counted == alias.sampled || sampled.sampling.is_precise();
                assert!(precise, "{pmu}: {} samples an imprecise event", alias.name);
            }
            for row in table.rows {
                assert_eq!(raw::check(row.encoding, row.name).ok(), Some(row.encoding), "{}", row.name);
                assert_eq!(table.vendor(row.name), Some(row), "{pmu}: {} twice", row.name);
                assert_eq!(table.sampling(row.encoding), row.sampling, "{pmu}: {}", row.name);
            }
        }
    }
}
