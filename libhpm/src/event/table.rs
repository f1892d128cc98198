//! The shape of a PMU's table of events.

/// Events of one PMU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    /// By the vendor's names.
    pub(super) rows: &'static [Row],
    /// By generic names.
    pub(super) aliases: &'static [Alias],
}

/// One event of a PMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The vendor's name, event and unit mask separated by a dot.
    pub name: &'static str,
    /// Event select, unit mask, edge, invert and counter mask at their places in IA32_PERFEVTSELx.
    pub encoding: u64,
    /// Whether the manual lists it as a precise (PEBS) event.
    pub precise: bool,
    /// What it counts.
    pub description: &'static str,
}

/// A generic name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The name.
    pub name: &'static str,
    /// The event it counts, by the vendor's name.
    pub counted: &'static str,
    /// The event it samples precisely, which counts the same.
    pub sampled: &'static str,
}

pub(super) const fn row(name: &'static str, encoding: u64, precise: bool, description: &'static str) -> Row {
    Row { name, encoding, precise, description }
}

pub(super) const fn alias(name: &'static str, counted: &'static str, sampled: &'static str) -> Alias {
    Alias { name, counted, sampled }
}

impl Table {
    /// The row with a vendor's name; case, and `:` instead of `.`, do not matter.
    pub(super) fn vendor(&self, name: &str) -> Option<&'static Row> {
        let same = |row: &&Row| {
            row.name.len() == name.len()
                && row.name.bytes().zip(name.bytes()).all(|(a, b)| match b {
                    b':' => a == b'.',
                    b => a.eq_ignore_ascii_case(&b),
                })
        };
        self.rows.iter().find(same)
    }

    /// The rows that a generic name counts and samples.
    pub(super) fn generic(&self, name: &str) -> Option<(&'static Row, &'static Row)> {
        let alias = self.aliases.iter().find(|alias| alias.name.eq_ignore_ascii_case(name))?;
        Some((self.vendor(alias.counted)?, self.vendor(alias.sampled)?))
    }
}
