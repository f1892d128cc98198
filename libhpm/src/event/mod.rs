//! Event names and their encodings.
//!
//! An event is written as
//! - a generic name (`l1d-load-miss`, `instructions`, …),
//! - the vendor's name, in any case, with `.` or `:` before the unit mask (`MEM_LOAD_RETIRED.L1_MISS`),
//! - raw, as perf writes it: `r01d1`, `cpu/event=0xd1,umask=0x01/`,
//!
//! and may end in `:` and modifiers: `u` user mode only, `k` kernel mode only, `p` the encoding that PEBS can sample.
//!
//! The tables are our own rather than libpfm4's: that library encodes for another PMU than the running one only by an
//! environment variable read once per process, and building it would ask every user for make, a C compiler and libclang.

mod raw;
mod skylake;
mod table;

pub use self::table::{Alias, Row};

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
    static SKYLAKE: Table = skylake::SKYLAKE;
    (pmu == "skylake").then_some(&SKYLAKE)
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

/// Encodes an event for a PMU.
///
/// # Errors
/// [`Error::UnknownEvent`] with the nearest names, or [`Error::EventSyntax`].
pub fn parse(text: &str, pmu: &str) -> Result<Event> {
    let (name, modifiers) = split_modifiers(text);
    let privilege = modifiers.contains(['u', 'k']);
    let mut event = Event {
        name: text.to_owned(),
        encoding: 0,
        precise_encoding: 0,
        user: !privilege || modifiers.contains('u'),
        kernel: !privilege || modifiers.contains('k'),
        description: "",
    };
    let table = table(pmu);
    if let Some(encoding) = raw::parse(name).transpose()? {
        (event.encoding, event.precise_encoding) = (encoding, encoding);
    } else if let Some((counted, sampled)) = table.and_then(|table| table.generic(name)) {
        (event.encoding, event.precise_encoding) = (counted.encoding, sampled.encoding);
        event.description = counted.description;
    } else if let Some(row) = table.and_then(|table| table.vendor(name)) {
        (event.encoding, event.precise_encoding) = (row.encoding, row.encoding);
        event.description = row.description;
    } else {
        return Err(Error::UnknownEvent { name: name.into(), pmu: pmu.into(), near: nearest(name, pmu) });
    }
    if modifiers.contains('p') {
        event.encoding = event.precise_encoding;
    }
    Ok(event)
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

    /// Every alias names rows that exist, the sampled one precise where the alias says it differs.
    #[test]
    fn the_tables_are_consistent() {
        let table = table("skylake").unwrap();
        for alias in table.aliases {
            let (_, sampled) =
                table.generic(alias.name).unwrap_or_else(|| panic!("{} names no row", alias.name));
            assert!(
                alias.counted == alias.sampled || sampled.precise,
                "{} samples an imprecise event",
                alias.name
            );
        }
        for row in table.rows {
            assert_eq!(raw::check(row.encoding, row.name).ok(), Some(row.encoding), "{}", row.name);
            assert_eq!(
                table.vendor(row.name).map(|found| found.encoding),
                Some(row.encoding),
                "{} twice",
                row.name
            );
        }
    }
}
