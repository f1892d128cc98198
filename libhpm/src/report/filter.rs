//! Which samples and quanta a report is about.
//!
//! A [`Filter`] is made of clauses that all have to hold. Those of threads, CPUs and times also choose quanta; those of code
//! and data choose samples alone, because counts do not tell where they were made.

use std::fmt;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;

use super::{Condition, Sample};
use crate::trace::{QuantumRow, SampleRow, TraceReader};

/// Clauses that all have to hold; without any, everything is taken.
#[derive(Clone, Debug, Default)]
pub struct Filter(Vec<Clause>);

/// One of a filter's conditions. Of several places it is enough to be in one.
#[derive(Clone, Debug)]
pub enum Clause {
    /// Threads, by ID or by name at that time.
    Thread(Vec<String>),
    /// Processes, by ID.
    Process(Vec<u32>),
    /// Logical CPUs.
    Cpu(Vec<RangeInclusive<u32>>),
    /// From a TSC value to before another. A quantum belongs to the time at which it ends.
    Time(Range<u64>),
    /// The sample's own instruction.
    Code(Vec<CodePlace>),
    /// Functions of which one is somewhere on the stack.
    Stack(Vec<String>),
    /// The sample's data address.
    Data(Vec<DataPlace>),
    /// An expression holds.
    Holds(Condition),
}

/// Where code can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodePlace {
    /// A function, also where it was inlined.
    Function(String),
    /// Addresses in memory.
    Addresses(Range<u64>),
}

/// Where data can be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataPlace {
    /// What is mapped there, as [`Sample::region`] has it; of a file its name without folders will do, of `[heap]` `heap`.
    Region(String),
    /// Addresses in memory.
    Addresses(Range<u64>),
}

/// Times as people give them: `10ms..1.5s` since the trace began, `..20%`, `3s..`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeRange {
    from: Option<Moment>,
    to: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    Ns(f64),
    Percent(f64),
}

/// From when to when a trace is, and how fast its clock ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// TSC of the first quantum or sample.
    pub first_tsc: u64,
    /// TSC of the end of the last one.
    pub last_tsc: u64,
    /// TSC ticks per millisecond.
    pub tsc_khz: u64,
}

impl Span {
    /// That of a trace, by its quanta; by its samples when it has no quanta.
    #[must_use]
    pub fn of(reader: &TraceReader) -> Self {
        let widest = |all: Option<(u64, u64)>, (first, last): (u64, u64)| {
            Some(all.map_or((first, last), |(from, to)| (from.min(first), to.max(last))))
        };
        let quanta = reader.rows::<QuantumRow>().map(|row| (row.start_tsc, row.end_tsc)).fold(None, widest);
        let samples = || reader.rows::<SampleRow>().map(|row| (row.tsc, row.tsc)).fold(None, widest);
        let (first_tsc, last_tsc) = quanta.or_else(samples).unwrap_or_default();
        Self { first_tsc, last_tsc, tsc_khz: reader.meta().clock.tsc_khz }
    }
}

impl Filter {
    /// Adds a clause.
    pub fn add(&mut self, clause: Clause) {
        self.0.push(clause);
    }

    /// Whether everything is taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a clause chooses quanta.
    #[must_use]
    pub fn chooses_quanta(&self) -> bool {
        self.0.iter().any(Clause::is_of_quanta)
    }

    /// Whether a clause chooses samples in a way that counts cannot follow.
    #[must_use]
    pub fn chooses_code_or_data(&self) -> bool {
        !self.0.iter().all(Clause::is_of_quanta)
    }

    /// Whether a sample is taken, by its row and what that says.
    #[must_use]
    pub fn takes(&self, row: &SampleRow, sample: &Sample) -> bool {
        let place = self.0.iter().all(|clause| match clause {
            Clause::Code(places) => places.iter().any(|place| place.has(row, sample)),
            Clause::Stack(functions) => sample
                .chain
                .frames()
                .any(|frame| functions.iter().any(|name| frame.function.as_deref() == Some(name))),
            Clause::Data(places) => places.iter().any(|place| place.has(row, sample)),
            Clause::Holds(condition) => condition.holds(row, sample),
            Clause::Thread(_) | Clause::Process(_) | Clause::Cpu(_) | Clause::Time(_) => true,
        });
        place && self.takes_with_any_code(row, sample)
    }

    /// Whether a quantum is taken, as far as it can be told: by its thread, whose name is given, its CPU and its time.
    #[must_use]
    pub fn takes_quantum(&self, row: &QuantumRow, name: &str) -> bool {
        let who = Who { pid: row.pid, tid: row.tid, name, cpu: row.cpu, tsc: row.end_tsc };
        self.0.iter().all(|clause| clause.takes(&who))
    }

    /// Whether a quantum is taken by its thread, whose name is given, and its CPU, whenever it was.
    #[must_use]
    pub fn takes_at_some_time(&self, row: &QuantumRow, name: &str) -> bool {
        let who = Who { pid: row.pid, tid: row.tid, name, cpu: row.cpu, tsc: row.end_tsc };
        self.0.iter().all(|clause| matches!(clause, Clause::Time(_)) || clause.takes(&who))
    }

    /// Whether a sample is taken by its thread, CPU and time, whatever its code and data.
    #[must_use]
    pub fn takes_with_any_code(&self, row: &SampleRow, sample: &Sample) -> bool {
        let who = Who { pid: row.pid, tid: row.tid, name: &sample.thread_name, cpu: row.cpu, tsc: row.tsc };
        self.0.iter().all(|clause| clause.takes(&who))
    }

    /// The times that are taken.
    #[must_use]
    pub fn times(&self) -> Range<u64> {
        let times = self
            .0
            .iter()
            .filter_map(|clause| if let Clause::Time(range) = clause { Some(range) } else { None });
        times.fold(0..u64::MAX, |all, range| all.start.max(range.start)..all.end.min(range.end))
    }
}

/// Who ran where, when.
struct Who<'a> {
    pid: u32,
    tid: u32,
    name: &'a str,
    cpu: u32,
    tsc: u64,
}

impl Clause {
    fn is_of_quanta(&self) -> bool {
        matches!(self, Self::Thread(_) | Self::Process(_) | Self::Cpu(_) | Self::Time(_))
    }

    /// True for a clause that says nothing of that.
    fn takes(&self, who: &Who<'_>) -> bool {
        match self {
            Self::Thread(threads) => {
                threads.iter().any(|thread| thread.parse() == Ok(who.tid) || thread == who.name)
            }
            Self::Process(pids) => pids.contains(&who.pid),
            Self::Cpu(cpus) => cpus.iter().any(|range| range.contains(&who.cpu)),
            Self::Time(range) => range.contains(&who.tsc),
            Self::Code(_) | Self::Stack(_) | Self::Data(_) | Self::Holds(_) => true,
        }
    }
}

impl CodePlace {
    fn has(&self, row: &SampleRow, sample: &Sample) -> bool {
        match self {
            Self::Function(name) => {
                sample.chain.calls[0].iter().any(|frame| frame.function.as_deref() == Some(name))
            }
            Self::Addresses(range) => range.contains(&row.ip),
        }
    }
}

impl DataPlace {
    fn has(&self, row: &SampleRow, sample: &Sample) -> bool {
        match (self, &sample.region) {
            (Self::Addresses(range), _) => row.data_address.is_some_and(|address| range.contains(&address)),
            (Self::Region(_), None) => false,
            (Self::Region(name), Some(region)) => {
                let short = region.trim_matches(['[', ']']).rsplit('/').next();
                **region == **name || short == Some(name)
            }
        }
    }
}

/// `0xA-0xB`, the second address excluded; `None` for what does not look like it.
fn addresses(text: &str) -> Option<Result<Range<u64>, String>> {
    let (first, after) = text.strip_prefix("0x")?.split_once('-')?;
    let hex = |digits: &str| u64::from_str_radix(digits.trim_start_matches("0x"), 16);
    Some(match (hex(first), hex(after)) {
        (Ok(first), Ok(after)) if first < after => Ok(first..after),
        _ => Err(format!("`{text}` are no addresses: write 0xFIRST-0xAFTER, the greater one last")),
    })
}

impl FromStr for CodePlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        addresses(text)
            .map_or_else(|| Ok(Self::Function(text.to_owned())), |range| range.map(Self::Addresses))
    }
}

impl FromStr for DataPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        addresses(text).map_or_else(|| Ok(Self::Region(text.to_owned())), |range| range.map(Self::Addresses))
    }
}

impl FromStr for TimeRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "`{text}` are no times: write FROM..TO, such as 10ms..1.5s, 1..2 (seconds), ..20% or 3s.."
            )
        };
        let (from, to) = text.split_once("..").ok_or_else(wrong)?;
        let moment = |text: &str| match text.trim() {
            "" => Ok(None),
            text => moment(text).map(Some).ok_or_else(wrong),
        };
        let times = Self { from: moment(from)?, to: moment(to)? };
        let is_mixed = |one: &str, other: &str| is_bare(one) && other.trim().ends_with('%');
        if is_mixed(from, to) || is_mixed(to, from) {
            // Seconds would be read, and a part of the trace is likely to be meant.
            return Err(format!(
                "`{text}` has a `%` at one end only: write it, or a time's unit, at the other too"
            ));
        }
        // Of a time and a part of the trace only the trace tells.
        match (times.from, times.to) {
            (Some(Moment::Ns(from)), Some(Moment::Ns(to)))
            | (Some(Moment::Percent(from)), Some(Moment::Percent(to)))
                if from >= to =>
            {
                Err(format!("no time is in `{text}`: write the earlier time first"))
            }
            _ => Ok(times),
        }
    }
}

/// Whether it is a number without a unit, and not 0, which needs none.
fn is_bare(text: &str) -> bool {
    text.trim().parse::<f64>().is_ok_and(|number| number != 0.0)
}

/// A number of seconds, or with `%`, `ns`, `us`, `ms` or `s`.
fn moment(text: &str) -> Option<Moment> {
    let split = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    match unit {
        "%" => (number <= 100.0).then_some(Moment::Percent(number)),
        "ns" => Some(Moment::Ns(number)),
        "us" | "µs" => Some(Moment::Ns(number * 1e3)),
        "ms" => Some(Moment::Ns(number * 1e6)),
        "s" | "" => Some(Moment::Ns(number * 1e9)),
        _ => None,
    }
}

impl TimeRange {
    /// The times in a trace.
    #[must_use]
    pub fn in_trace(self, span: Span) -> Range<u64> {
        let length = span.last_tsc.saturating_sub(span.first_tsc);
        let tsc = |moment: Moment| {
            let ticks = match moment {
                Moment::Ns(ns) => ns * span.tsc_khz as f64 / 1e6,
                Moment::Percent(percent) => length as f64 * percent / 100.0,
            };
            span.first_tsc.saturating_add(ticks.round() as u64)
        };
        self.from.map_or(0, tsc)..self.to.map_or(u64::MAX, tsc)
    }
}

impl fmt::Display for TimeRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |moment: Option<Moment>| match moment {
            None => String::new(),
            Some(Moment::Percent(percent)) => format!("{percent}%"),
            Some(Moment::Ns(ns)) if ns >= 1e9 => format!("{}s", ns / 1e9),
            Some(Moment::Ns(ns)) => format!("{}ms", ns / 1e6),
        };
        write!(f, "{}..{}", shown(self.from), shown(self.to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Extent;
    use crate::report::fixture::sample;

    fn takes(clause: Clause) -> bool {
        let row = SampleRow {
            tsc: 500,
            cpu: 1,
            pid: 10,
            tid: 11,
            ip: 0x1234,
            data_address: Some(0x9000),
            ..SampleRow::default()
        };
        let mut of = sample(&["leaf", "main"], Extent::Whole);
        of.region = Some("[heap]".into());
        let mut filter = Filter::default();
        assert!(filter.takes(&row, &of));
        filter.add(clause);
        filter.takes(&row, &of)
    }

    #[test]
    fn each_clause_takes_what_it_names() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let code = |text: &str| Clause::Code(vec![text.parse().unwrap()]);
        let data = |text: &str| Clause::Data(vec![text.parse().unwrap()]);
        for (clause, taken) in [
            (Clause::Thread(words(&["other", "worker"])), true),
            (Clause::Thread(words(&["11"])), true),
            (Clause::Thread(words(&["10", "work"])), false),
            (Clause::Process(vec![10]), true),
            (Clause::Process(vec![11]), false),
            (Clause::Cpu(vec![0..=0, 1..=3]), true),
            (Clause::Cpu(vec![2..=3]), false),
            (Clause::Time(500..501), true),
            (Clause::Time(0..500), false),
            (code("leaf"), true),
            (code("main"), false),
            (code("0x1234-0x1235"), true),
            (code("0x1200-0x1234"), false),
            (Clause::Stack(words(&["main"])), true),
            (Clause::Stack(words(&["mai"])), false),
            (data("heap"), true),
            (data("[heap]"), true),
            (data("stack"), false),
            (data("0x9000-0xa000"), true),
            (data("0x8000-0x9000"), false),
        ] {
            assert_eq!(takes(clause.clone()), taken, "{clause:?}");
        }
    }

    #[test]
    fn quanta_are_chosen_by_who_ran_where_and_when() {
        let row = QuantumRow { cpu: 2, pid: 5, tid: 6, start_tsc: 10, end_tsc: 20, ..QuantumRow::default() };
        let mut filter = Filter::default();
        filter.add(Clause::Code(vec![CodePlace::Function("f".into())]));
        assert!(
            filter.takes_quantum(&row, "name") && !filter.chooses_quanta() && filter.chooses_code_or_data()
        );
        filter.add(Clause::Time(15..30));
        filter.add(Clause::Time(12..25));
        assert!(filter.takes_quantum(&row, "name") && filter.chooses_quanta());
        assert_eq!(filter.times(), 15..25);
        let early = QuantumRow { end_tsc: 11, ..row.clone() };
        assert!(filter.takes_at_some_time(&early, "name") && !filter.takes_quantum(&early, "name"));
        filter.add(Clause::Thread(vec!["another".into()]));
        assert!(!filter.takes_quantum(&row, "name"));
    }

    #[test]
    fn times_are_given_in_units_or_in_parts_of_the_trace() {
        let span = Span { first_tsc: 1000, last_tsc: 3000, tsc_khz: 2_000_000 };
        let range = |text: &str| text.parse::<TimeRange>().unwrap().in_trace(span);
        assert_eq!(range("100ns..1us"), 1200..3000);
        assert_eq!(range("25%..50%"), 1500..2000);
        assert_eq!(range("..0.5us"), 0..2000);
        assert_eq!(range("1ms.."), 2_001_000..u64::MAX);
        assert_eq!(range("1..2.5"), range("1s..2500ms"), "bare numbers are seconds");
        assert_eq!(range("0..50%"), range("0%..50%"));
        for mixed in ["20..40%", "20%..40"] {
            assert!(mixed.parse::<TimeRange>().unwrap_err().contains("at one end only"), "{mixed}");
        }
        for wrong in ["", "1ms", "1", "1..x", "...", "ms..", "101%..", "-1s..", "1h..2h"] {
            assert!(wrong.parse::<TimeRange>().unwrap_err().contains("are no times"), "{wrong}");
        }
        for empty in ["5s..1s", "1ms..1ms", "40%..20%"] {
            assert!(empty.parse::<TimeRange>().unwrap_err().contains("no time is in"), "{empty}");
        }
        assert!(range("1ms..10%").is_empty());
    }

    #[test]
    fn addresses_that_run_backwards_are_refused() {
        assert!("0x20-0x10".parse::<CodePlace>().is_err() && "0x20-0xzz".parse::<DataPlace>().is_err());
        assert_eq!("a-b".parse::<CodePlace>(), Ok(CodePlace::Function("a-b".into())));
    }
}
