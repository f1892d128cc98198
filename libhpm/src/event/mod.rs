//! Event names and their encodings.
//!
//! An event is written as
//! - a generic name (`l1d-load-miss`, `instructions`, …),
//! - the vendor's name, in any case, with `.` or `:` before the unit mask (`MEM_LOAD_RETIRED.L1_MISS`),
//! - raw, as perf writes it: `r01d1`, `cpu/event=0xd1,umask=0x01/`,
//! - a name with perf's terms: `cpu/mem-loads,ldlat=30/`; on a hybrid processor `cpu_core/…/`, `cpu_atom/…/` and `cpu_lowpower/…/` say which
//!   cores are meant, all of them being meant otherwise ([`parse_each`]),
//!
//! and may end in `:` and modifiers: `u` user mode only, `k` kernel mode only, `p` the encoding that PEBS can sample.
//!
//! The tables are our own rather than libpfm4's: that library encodes for another PMU than the running one only by an
//! environment variable read once per process, and building it would ask every user for make, a C compiler and libclang.

mod equivalent;
mod escr;
mod fits;
mod named;
mod parse;
mod pmu;
mod raw;
mod table;
mod wording;

#[cfg(test)]
mod tests;

pub use hpm_abi::CoreType;

pub use self::equivalent::{Equivalent, GENERICS, Generic};
pub use self::fits::{Counter, Fit, Misfit, Taken, fit};
pub use self::named::{base, on_each_core, place};
pub use self::parse::{companion, parse, parse_each, privilege, split_list};
pub use self::table::{Absent, Alias, Row, Sampling};

use self::parse::split_modifiers;
use self::table::Table;

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

    /// Whether it counts on the cores that [`core_pmus`] gives with this type. Where there is one PMU only, it is that of all cores that there
    /// are, also of a hybrid processor's whose others are switched off.
    #[must_use]
    pub fn is_for(&self, core_type: CoreType) -> bool {
        self.core_type == core_type || [self.core_type, core_type].contains(&CoreType::Any)
    }

    /// Whether it counts the same as another one, in the same modes, on the cores that both are for; there have to be some.
    #[must_use]
    pub fn counts_as(&self, other: &Self) -> bool {
        let what = |event: &Self| (event.encoding, event.extra, event.user, event.kernel);
        what(self) == what(other) && self.is_for(other.core_type)
    }

    /// The same event in user mode only, and named so.
    #[must_use]
    pub fn user_only(mut self) -> Self {
        let (_, modifiers) = split_modifiers(&self.name);
        let separator = if self.name.ends_with('/') || !modifiers.is_empty() { "" } else { ":" };
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

/// The types of cores that hybrid processors have.
pub const CORE_TYPES: [CoreType; 3] = [CoreType::Core, CoreType::Atom, CoreType::LowPower];

/// The PMUs of a processor's cores, by the name that the driver gives them together: a hybrid processor's is that of each type joined, as
/// in `goldencove+gracemont` and, on Arrow Lake-H, `lioncove+skymont+crestmont`.
pub fn core_pmus(name: &str) -> impl Iterator<Item = (CoreType, &str)> {
    let is_hybrid = name.contains('+');
    // Beside a generation that came after it Crestmont is that of the low-power cores.
    let is_older = move |pmu: &str| pmu == "crestmont" && !name.starts_with("redwoodcove");
    name.split('+').map(move |pmu| match type_in_hybrid(pmu) {
        _ if !is_hybrid => (CoreType::Any, pmu),
        _ if is_older(pmu) => (CoreType::LowPower, pmu),
        core_type => (core_type, pmu),
    })
}

/// Of which type the cores with this PMU are in hybrid processors; [`CoreType::Any`] where none has such. A hybrid processor's PMU has this
/// name alone, as those of other processors have, while cores of one type only are online.
#[must_use]
pub fn type_in_hybrid(pmu: &str) -> CoreType {
    match pmu {
        "goldencove" | "redwoodcove" | "lioncove" | "cougarcove" => CoreType::Core,
        "gracemont" | "crestmont" | "skymont" | "darkmont" => CoreType::Atom,
        _ => CoreType::Any,
    }
}

/// How an event says for which cores of a hybrid processor it is, as in `cpu_core/load/`; `None` where there is one type only.
#[must_use]
pub fn pmu_prefix(core_type: CoreType) -> Option<&'static str> {
    match core_type {
        CoreType::Any => None,
        CoreType::Core => Some("cpu_core"),
        CoreType::Atom => Some("cpu_atom"),
        CoreType::LowPower => Some("cpu_lowpower"),
    }
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
