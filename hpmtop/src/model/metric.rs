//! Columns and filters: expressions over what a thread or process did in a slot of time.

use libhpm::analysis::explore::{BUILT_IN, Definitions, of_each_core};
use libhpm::analysis::expression::{Bound, Expression, ExpressionError, Kind, Scope, Value};
use libhpm::event;
use serde::{Deserialize, Serialize};

use super::series::Slot;

/// What can be asked of a thread or process in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variable {
    Count(usize),
    OnCpu,
    Interval,
    Yields,
    Preemptions,
    Migrations,
    Quanta,
    Samples,
    Lost,
    Pid,
    Tid,
    Cpu,
    Threads,
    Name,
    Process,
    Command,
    Cgroup,
    Container,
    State,
}

/// Names of variables, and what they are: for the manual page and for who asks by a wrong name.
pub(crate) const VARIABLES: [(&str, Variable, Kind, &str); 20] = [
    ("on_cpu_ns", Variable::OnCpu, Kind::Number, "time on CPUs in the interval"),
    ("duration_ns", Variable::OnCpu, Kind::Number, "the same, by the explorer's name"),
    ("interval_ns", Variable::Interval, Kind::Number, "length of the interval"),
    ("yields", Variable::Yields, Kind::Number, "times that it blocked or yielded"),
    ("preemptions", Variable::Preemptions, Kind::Number, "times that it was pre-empted"),
    ("migrations", Variable::Migrations, Kind::Number, "times that it came back on another CPU"),
    ("quanta", Variable::Quanta, Kind::Number, "quanta that ended"),
    ("samples", Variable::Samples, Kind::Number, "samples"),
    ("lost", Variable::Lost, Kind::Number, "samples that were lost"),
    ("pid", Variable::Pid, Kind::Number, "process"),
    ("tid", Variable::Tid, Kind::Number, "thread; of a process its first one"),
    ("cpu", Variable::Cpu, Kind::Number, "CPU where it was last"),
    ("threads", Variable::Threads, Kind::Number, "threads of a process; 1 for a thread"),
    ("name", Variable::Name, Kind::Text, "name of the thread or process"),
    ("thread", Variable::Name, Kind::Text, "the same, by the explorer's name"),
    ("process", Variable::Process, Kind::Text, "name of the process"),
    ("command", Variable::Command, Kind::Text, "command line of the process"),
    ("cgroup", Variable::Cgroup, Kind::Text, "control group of the process"),
    (
        "container",
        Variable::Container,
        Kind::Text,
        "number of its container, the first 12 digits; empty without one",
    ),
    ("state", Variable::State, Kind::Text, "ran, idle or ended"),
];

/// A thread or process in a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Subject<'a> {
    pub(crate) pid: u32,
    pub(crate) tid: u32,
    pub(crate) cpu: Option<u32>,
    pub(crate) threads: usize,
    pub(crate) name: &'a str,
    pub(crate) process: &'a str,
    pub(crate) command: &'a str,
    pub(crate) cgroup: &'a str,
    pub(crate) ended: bool,
}

/// The names that hold in columns and filters.
struct Names<'a> {
    events: &'a [String],
    definitions: &'a Definitions,
}

impl Scope for Names<'_> {
    type Variable = Variable;

    fn variable(&self, name: &str) -> Option<(Variable, Kind)> {
        if let Some(index) = event::place(name, self.events) {
            return Some((Variable::Count(index), Kind::Number));
        }
        let found = VARIABLES.iter().find(|(known, ..)| *known == name);
        found.map(|(_, variable, kind, _)| (*variable, *kind))
    }

    fn definition(&self, name: &str) -> Option<Expression> {
        let defined = self.definitions.iter().find(|(known, _)| *known == name);
        let built_in = || BUILT_IN.iter().find(|(known, _)| *known == name).copied();
        match defined.or_else(built_in) {
            Some((_, text)) => Expression::parse(text).ok(),
            None => of_each_core(name, self.events),
        }
    }

    fn names(&self) -> Vec<String> {
        let events = self.events.iter().cloned();
        let known = VARIABLES.iter().map(|(name, ..)| (*name).to_owned());
        let built_in = BUILT_IN.iter().map(|(name, _)| (*name).to_owned());
        events.chain(known).chain(built_in).collect()
    }
}

fn value<'a>(variable: Variable, subject: &Subject<'a>, slot: &Slot, interval_ns: u64) -> Value<'a> {
    Value::Number(match variable {
        Variable::Count(index) => slot.counts.get(index).map_or(f64::NAN, |&count| count as f64),
        Variable::OnCpu => slot.on_cpu_ns as f64,
        Variable::Interval => interval_ns as f64,
        Variable::Yields => slot.yields.into(),
        Variable::Preemptions => slot.preemptions.into(),
        Variable::Migrations => slot.migrations.into(),
        Variable::Quanta => slot.quanta.into(),
        Variable::Samples => slot.samples.into(),
        Variable::Lost => slot.lost as f64,
        Variable::Pid => subject.pid.into(),
        Variable::Tid => subject.tid.into(),
        Variable::Cpu => subject.cpu.map_or(f64::NAN, f64::from),
        Variable::Threads => subject.threads as f64,
        Variable::Name => return Value::Text(subject.name),
        Variable::Process => return Value::Text(subject.process),
        Variable::Command => return Value::Text(subject.command),
        Variable::Cgroup => return Value::Text(subject.cgroup),
        Variable::Container => return Value::Text(super::container(subject.cgroup)),
        Variable::State => {
            return Value::Text(match (subject.ended, slot.on_cpu_ns) {
                (true, _) => "ended",
                (_, 0) => "idle",
                _ => "ran",
            });
        }
    })
}

/// How a number is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// `12.3` of a hundred.
    Percent,
    /// `1.23`.
    Ratio,
    /// `1.2k`.
    #[default]
    Count,
}

/// A column as the configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ColumnSpec {
    /// The heading.
    pub(crate) title: String,
    /// What is computed.
    pub(crate) expression: String,
    /// How it is shown.
    #[serde(default)]
    pub(crate) format: Format,
    /// Whether it is among the columns.
    #[serde(default = "shown")]
    pub(crate) shown: bool,
}

fn shown() -> bool {
    true
}

/// What everybody wants to see, as far as it can be had: (heading, expression, format, shown, what it is).
pub(crate) const COLUMNS: [(&str, &str, Format, bool); 15] = [
    ("cpu%", "on_cpu_ns / interval_ns * 100", Format::Percent, true),
    ("off%", "max(0, threads - on_cpu_ns / interval_ns) / threads * 100", Format::Percent, true),
    ("ipc", "ipc", Format::Ratio, true),
    ("ghz", "ghz", Format::Ratio, false),
    ("l1/ki", "l1d_mpki", Format::Ratio, true),
    ("l2/ki", "l2_mpki", Format::Ratio, false),
    ("llc/ki", "cache-misses / instructions * 1000", Format::Ratio, true),
    ("br/ki", "branch_mpki", Format::Ratio, true),
    ("flt/s", "page-faults / interval_ns * 1G", Format::Count, true),
    ("maj/s", "major-faults / interval_ns * 1G", Format::Count, true),
    ("yld/s", "yields / interval_ns * 1G", Format::Count, true),
    ("pre/s", "preemptions / interval_ns * 1G", Format::Count, true),
    ("mig/s", "migrations / interval_ns * 1G", Format::Count, true),
    ("smp/s", "samples / interval_ns * 1G", Format::Count, false),
    ("lost", "lost", Format::Count, false),
];

/// The columns for these events: those that can be computed from them.
pub(crate) fn default_columns(events: &[String], definitions: &Definitions) -> Vec<ColumnSpec> {
    let spec = |&(title, expression, format, shown): &(&str, &str, Format, bool)| ColumnSpec {
        title: title.to_owned(),
        expression: expression.to_owned(),
        format,
        shown,
    };
    let all = COLUMNS.iter().map(spec);
    all.filter(|spec| Column::new(spec, events, definitions).is_ok()).collect()
}

/// A column that can be computed.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) title: String,
    pub(crate) format: Format,
    /// It is computed of counts alone, or of counts and time on a CPU, so that it can be told of any stretch of time.
    pub(crate) of_counts: bool,
    bound: Bound<Variable>,
}

impl Column {
    /// Understands a column.
    ///
    /// # Errors
    /// [`ExpressionError`], such as for an event that is not measured.
    pub(crate) fn new(
        spec: &ColumnSpec,
        events: &[String],
        definitions: &Definitions,
    ) -> Result<Self, ExpressionError> {
        let bound = Expression::parse(&spec.expression)?.bind(&Names { events, definitions })?;
        let (title, format) = (spec.title.clone(), spec.format);
        let mut column = Self { title, format, of_counts: false, bound };
        column.of_counts = column.is_of_counts();
        Ok(column)
    }

    /// Asks for the value of a stretch that has nothing but counts and time, and of one that has more.
    fn is_of_counts(&self) -> bool {
        let asked = std::cell::Cell::new((false, true));
        self.bound.number(&|variable| {
            let (counts, only) = asked.get();
            let is_count = matches!(variable, Variable::Count(_));
            asked.set((
                counts || is_count,
                only && (is_count || matches!(variable, Variable::OnCpu | Variable::Interval)),
            ));
            Value::Number(1.0)
        });
        asked.get() == (true, true)
    }

    /// A number as the column shows it.
    pub(crate) fn shown(&self, number: f64) -> String {
        match self.format {
            _ if !number.is_finite() => "-".to_owned(),
            Format::Percent => format!("{number:.1}"),
            Format::Ratio => format!("{number:.2}"),
            Format::Count => crate::view::si(number),
        }
    }

    /// What it comes to; not a number where it cannot be computed.
    pub(crate) fn value(&self, subject: &Subject<'_>, slot: &Slot, interval_ns: u64) -> f64 {
        self.bound.number(&|variable| value(variable, subject, slot, interval_ns))
    }
}

/// A filter.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub(crate) text: String,
    bound: Bound<Variable>,
}

impl Condition {
    /// Understands a filter: an expression, or a single word that the name has to contain.
    ///
    /// # Errors
    /// [`ExpressionError`].
    pub(crate) fn new(
        text: &str,
        events: &[String],
        definitions: &Definitions,
    ) -> Result<Self, ExpressionError> {
        let names = Names { events, definitions };
        let is_word = text.chars().all(|one| one.is_alphanumeric() || "_-./:".contains(one));
        let expression = if is_word && names.variable(text).is_none() && names.definition(text).is_none() {
            let pattern = text.replace('.', "\\\\.");
            Expression::parse(&format!("name ~ \"{pattern}\" or command ~ \"{pattern}\""))?
        } else {
            Expression::parse(text)?
        };
        Ok(Self { text: text.to_owned(), bound: expression.bind(&names)? })
    }

    /// Whether it holds.
    pub(crate) fn holds(&self, subject: &Subject<'_>, slot: &Slot, interval_ns: u64) -> bool {
        self.bound.is_true(&|variable| value(variable, subject, slot, interval_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUBJECT: Subject<'_> = Subject {
        pid: 7,
        tid: 8,
        cpu: Some(1),
        threads: 2,
        name: "worker",
        process: "server",
        command: "server --all",
        cgroup: "/",
        ended: false,
    };

    fn slot() -> Slot {
        let mut slot = Slot { on_cpu_ns: 500, preemptions: 3, ..Slot::default() };
        slot.counts[..2].copy_from_slice(&[100, 250]);
        slot
    }

    fn number(expression: &str) -> Result<f64, ExpressionError> {
        let events = ["cycles:u".to_owned(), "instructions".to_owned()];
        let spec = ColumnSpec {
            title: String::new(),
            expression: expression.to_owned(),
            format: Format::Count,
            shown: true,
        };
        Column::new(&spec, &events, &Definitions::default())
            .map(|column| column.value(&SUBJECT, &slot(), 1000))
    }

    #[test]
    fn metrics_are_those_of_the_expression_language() {
        assert_eq!(number("ipc"), Ok(2.5));
        assert_eq!(number("on_cpu_ns / interval_ns * 100"), Ok(50.0));
        assert_eq!(number("preemptions + pid"), Ok(10.0));
        assert!(number("l1d_mpki").is_err(), "that event was not counted");
    }

    #[test]
    fn only_columns_that_can_be_had_are_shown() {
        let titles = |events: &[&str]| -> Vec<String> {
            let events: Vec<String> = events.iter().map(ToString::to_string).collect();
            default_columns(&events, &Definitions::default()).into_iter().map(|spec| spec.title).collect()
        };
        let software = titles(&["cpu-clock", "page-faults"]);
        assert!(software.contains(&"flt/s".to_owned()) && !software.contains(&"ipc".to_owned()));
        assert!(titles(&["cycles", "instructions"]).contains(&"ipc".to_owned()));
        let hybrid = titles(&["instructions", "cpu_core/l1d-load-miss/", "cpu_atom/l1d-load-miss/"]);
        assert_eq!(hybrid, titles(&["instructions", "l1d-load-miss"]), "misses of both types of core");
    }

    #[test]
    fn a_word_is_looked_for_in_names() {
        let holds = |text| {
            Condition::new(text, &[], &Definitions::default())
                .map(|condition| condition.holds(&SUBJECT, &slot(), 1000))
        };
        assert_eq!([holds("work"), holds("--all"), holds("nobody")], [Ok(true), Ok(true), Ok(false)]);
        assert_eq!([holds("pid == 7"), holds("preemptions > 3")], [Ok(true), Ok(false)]);
        assert!(holds("pid ==").is_err());
    }
}
