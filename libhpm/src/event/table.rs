//! The shape of a PMU's table of events, and the short names in which the tables are written.

use super::raw::{CODE_BITS, is_netburst};

/// Events of one PMU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    /// By the vendor's names.
    pub(super) rows: &'static [Row],
    /// By generic names.
    pub(super) aliases: &'static [Alias],
    /// Generic names that other PMUs have.
    pub(super) absent: &'static [Absent],
}

/// What PEBS writes when it samples an event (SDM Vol. 3B 20.3.1.1.1 to 20.3.8, "Precise Events" and "Data Address
/// Profiling" of each microarchitecture). Events that one instruction can cause several times, as micro-operations
/// retired, are imprecise here although PEBS takes them: samples times period would not agree with the count, so the
/// driver does not sample them precisely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// No precise event: the sample's address is some instructions after the one that caused it.
    #[default]
    Imprecise,
    /// The instruction.
    Instruction,
    /// The instruction, and the address it loaded from.
    LoadAddress,
    /// The instruction, the address it stored to, and whether that hit the L1 data cache.
    StoreAddress,
    /// The instruction, and the address, latency and data source of its load.
    LoadLatency,
    /// The instruction, and the address, latency and data source of its store.
    StoreLatency,
    /// AMD's IBS: the instruction of an op, and if it loads or stores its address, of a load also latency and data source.
    Op,
    /// AMD's IBS: the instruction that was fetched.
    Fetch,
}

impl Sampling {
    /// Whether the sample names the instruction that caused it.
    #[must_use]
    pub fn is_precise(self) -> bool {
        self != Self::Imprecise
    }
}

pub(super) const NO: Sampling = Sampling::Imprecise;
pub(super) const PRECISE: Sampling = Sampling::Instruction;
pub(super) const LOAD: Sampling = Sampling::LoadAddress;
pub(super) const STORE: Sampling = Sampling::StoreAddress;
pub(super) const LOAD_LATENCY: Sampling = Sampling::LoadLatency;
pub(super) const STORE_LATENCY: Sampling = Sampling::StoreLatency;
pub(super) const OP: Sampling = Sampling::Op;
pub(super) const FETCH: Sampling = Sampling::Fetch;

/// General counters, one bit each: counter 0 only.
pub(super) const C0: u32 = 1;
/// Counter 1 only.
pub(super) const C1: u32 = 1 << 1;
/// Counter 2 only.
pub(super) const C2: u32 = 1 << 2;
/// Counter 3 only.
pub(super) const C3: u32 = 1 << 3;
/// Counters 0 and 1.
pub(super) const C0_1: u32 = 0x03;
/// Counters 0 to 2.
pub(super) const C0_2: u32 = 0x07;
/// Counters 0 to 3.
pub(super) const C0_3: u32 = 0x0f;
/// Counters 0 to 5.
pub(super) const C0_5: u32 = 0x3f;
/// Counters 0 to 7.
pub(super) const C0_7: u32 = 0xff;
/// Counters 2 to 7.
pub(super) const C2_7: u32 = 0xfc;
/// Counters 1 to 7.
pub(super) const C1_7: u32 = 0xfe;

/// One event of a PMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The vendor's name, event and unit mask separated by a dot.
    pub name: &'static str,
    /// Event select, unit mask, edge, invert and counter mask at their places in IA32_PERFEVTSELx; NetBurst's as
    /// [`hpm_abi::EventSpec::encoding`] says.
    pub encoding: u64,
    /// Value of the register that the event needs beside it (MSR_PEBS_LD_LAT_THRESHOLD, MSR_PEBS_FRONTEND); 0 for none.
    pub extra: u64,
    /// What a sample of it says.
    pub sampling: Sampling,
    /// General counters that can count it, or NetBurst's, one bit each.
    pub counters: u32,
    /// The fixed counter that counts it, too.
    pub fixed: Option<u8>,
    /// Hardware counts it only while it samples it.
    pub only_sampled: bool,
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
    /// How what it counts differs from what [`super::GENERICS`] says that the name means; empty when it does not.
    pub caveat: &'static str,
}

/// A generic name that this PMU has no event for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absent {
    /// The name.
    pub name: &'static str,
    /// Why, and what comes near.
    pub reason: &'static str,
}

pub(super) const fn row(
    name: &'static str,
    encoding: u64,
    sampling: Sampling,
    counters: u32,
    description: &'static str,
) -> Row {
    // Latencies are measured only of loads that hardware tags to sample them.
    let only_sampled = matches!(sampling, Sampling::LoadLatency);
    Row { name, encoding, extra: 0, sampling, counters, fixed: None, only_sampled, description }
}

/// Two lists of rows as one.
pub(super) const fn joined<const A: usize, const B: usize, const BOTH: usize>(
    one: &[Row; A],
    other: &[Row; B],
) -> [Row; BOTH] {
    assert!(A + B == BOTH);
    let mut all = [row("", 0, NO, 0, ""); BOTH];
    let mut place = 0;
    while place < BOTH {
        all[place] = if place < A { one[place] } else { other[place - A] };
        place += 1;
    }
    all
}

impl Row {
    /// The row with a value for its register.
    pub(super) const fn with_extra(mut self, extra: u64) -> Self {
        self.extra = extra;
        self
    }

    /// The row of an event that this fixed counter counts, too.
    pub(super) const fn on_fixed(mut self, counter: u8) -> Self {
        self.fixed = Some(counter);
        self
    }

    /// The row of an event that hardware counts only while it samples it.
    pub(super) const fn only_sampled(mut self) -> Self {
        self.only_sampled = true;
        self
    }
}

pub(super) const fn alias(name: &'static str, counted: &'static str, sampled: &'static str) -> Alias {
    Alias { name, counted, sampled, caveat: "" }
}

impl Alias {
    /// The name with what has to be known about it here.
    pub(super) const fn but(mut self, caveat: &'static str) -> Self {
        self.caveat = caveat;
        self
    }
}

pub(super) const fn absent(name: &'static str, reason: &'static str) -> Absent {
    Absent { name, reason }
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

    /// An event of which several masks are named, one after another, each with a row of its own: their encodings together.
    /// Only of a PMU whose masks are bits that add up: NetBurst's.
    pub(super) fn masks(&self, name: &str) -> Option<Row> {
        let name = name.replace(':', ".");
        let (event, masks) = name.split_once('.')?;
        let mut rows = masks.split('.').map(|mask| self.vendor(&format!("{event}.{mask}")));
        let first = *rows.next()??;
        let add_up = is_netburst(first.encoding);
        let add = |all: Row, row: Option<&'static Row>| {
            let row = row.filter(|row| add_up && row.sampling == NO && all.sampling == NO)?;
            Some(Row { encoding: all.encoding | row.encoding, ..all })
        };
        rows.try_fold(first, add)
    }

    /// What a generic name stands for.
    pub(super) fn alias(&self, name: &str) -> Option<&'static Alias> {
        self.aliases.iter().find(|alias| alias.name.eq_ignore_ascii_case(name))
    }

    /// The rows that a generic name counts and samples.
    pub(super) fn generic(&self, name: &str) -> Option<(&'static Row, &'static Row)> {
        let alias = self.alias(name)?;
        Some((self.vendor(alias.counted)?, self.vendor(alias.sampled)?))
    }

    /// Why the PMU has no event for a generic name.
    pub(super) fn absent(&self, name: &str) -> Option<&'static str> {
        self.absent.iter().find(|absent| absent.name.eq_ignore_ascii_case(name)).map(|absent| absent.reason)
    }

    /// What a sample of the event with this encoding says.
    pub(super) fn sampling(&self, encoding: u64) -> Sampling {
        self.encoded(encoding).map_or(Sampling::Imprecise, |row| row.sampling)
    }

    /// The row of an encoding: the event's own, else, as edge, invert and counter mask only restrict what counts, the row with
    /// its event select and unit mask.
    pub(super) fn encoded(&self, encoding: u64) -> Option<&'static Row> {
        // NetBurst's have the ESCR's event select and mask, the CCCR's ESCR select, and the block.
        const NETBURST: u64 = 0xffff_ffff_0000_e003;
        let event = if is_netburst(encoding) { NETBURST } else { CODE_BITS };
        let with = |mask: u64| self.rows.iter().find(move |row| (row.encoding ^ encoding) & mask == 0);
        with(u64::MAX).or_else(|| with(event))
    }
}
