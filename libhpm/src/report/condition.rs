//! Conditions on samples in the language that hpm has for metrics and filters ([`crate::analysis::expression`]):
//! `latency_cycles > 200 and function ~ "^hash"`.

use std::fmt;

use super::{Sample, Span};
use crate::analysis::expression::{Bound, Expression, ExpressionError, Kind, Scope, Value};
use crate::record::Level;
use crate::trace::{Event, SampleRow};

/// A condition that can be held against samples of one trace.
#[derive(Clone)]
pub struct Condition {
    text: String,
    bound: Bound<Variable>,
    span: Span,
    events: Vec<String>,
}

/// What can be asked of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variable {
    Time,
    Cpu,
    Pid,
    Tid,
    Period,
    Address,
    Line,
    DataAddress,
    Latency,
    Event,
    Thread,
    Function,
    Module,
    File,
    Region,
    Level,
}

/// A name, its kind, and what it stands for.
pub type SampleName = (&'static str, Kind, &'static str);

/// Every name that a condition on samples can use.
pub const SAMPLE_NAMES: [SampleName; 16] = [
    ("time_ns", Kind::Number, "time since the trace began"),
    ("cpu", Kind::Number, "logical CPU"),
    ("pid", Kind::Number, "process ID"),
    ("tid", Kind::Number, "thread ID"),
    (
        "period",
        Kind::Number,
        "events that the sample stands for; within windows it stands for none but these",
    ),
    ("address", Kind::Number, "address that the linker gave to the instruction"),
    ("line", Kind::Number, "line of the source file"),
    ("data_address", Kind::Number, "address of the data"),
    ("latency_cycles", Kind::Number, "core cycles of the memory access"),
    ("event", Kind::Text, "the event's name"),
    ("thread", Kind::Text, "the thread's name"),
    ("function", Kind::Text, "the function, which may be inlined"),
    ("module", Kind::Text, "the file that has the code"),
    ("file", Kind::Text, "the source file"),
    ("region", Kind::Text, "what is mapped where the data is"),
    ("level", Kind::Text, "cache or memory where the data was found"),
];

/// What they are, in this order.
const VARIABLES: [Variable; 16] = [
    Variable::Time,
    Variable::Cpu,
    Variable::Pid,
    Variable::Tid,
    Variable::Period,
    Variable::Address,
    Variable::Line,
    Variable::DataAddress,
    Variable::Latency,
    Variable::Event,
    Variable::Thread,
    Variable::Function,
    Variable::Module,
    Variable::File,
    Variable::Region,
    Variable::Level,
];

/// The names of samples.
struct Names;

impl Scope for Names {
    type Variable = Variable;

    fn variable(&self, name: &str) -> Option<(Variable, Kind)> {
        let place = SAMPLE_NAMES.iter().position(|(known, ..)| *known == name)?;
        Some((VARIABLES[place], SAMPLE_NAMES[place].1))
    }

    fn definition(&self, _name: &str) -> Option<Expression> {
        None
    }

    fn names(&self) -> Vec<String> {
        SAMPLE_NAMES.iter().map(|(name, ..)| (*name).to_owned()).collect()
    }
}

impl Condition {
    /// Reads a condition for the samples of a trace with these events and times.
    ///
    /// # Errors
    /// [`ExpressionError`].
    pub fn new(text: &str, events: &[Event], span: Span) -> Result<Self, ExpressionError> {
        let bound = Expression::parse(text)?.bind(&Names)?;
        let events = events.iter().map(|event| event.name.clone()).collect();
        Ok(Self { text: text.to_owned(), bound, span, events })
    }

    /// Whether it holds. Of what a sample does not tell, a number is not a number and a text empty.
    #[must_use]
    pub fn holds(&self, row: &SampleRow, sample: &Sample) -> bool {
        self.bound.is_true(&|variable| self.value(variable, row, sample))
    }

    fn value<'a>(&'a self, variable: Variable, row: &SampleRow, sample: &'a Sample) -> Value<'a> {
        let number = |number: Option<u64>| Value::Number(number.map_or(f64::NAN, |number| number as f64));
        let text = |text: Option<&'a str>| Value::Text(text.unwrap_or_default());
        let frame = &sample.chain.calls[0][0];
        match variable {
            Variable::Time => {
                let ticks = row.tsc.saturating_sub(self.span.first_tsc) as f64;
                Value::Number(ticks * 1e6 / self.span.tsc_khz as f64)
            }
            Variable::Cpu => number(Some(row.cpu.into())),
            Variable::Pid => number(Some(row.pid.into())),
            Variable::Tid => number(Some(row.tid.into())),
            Variable::Period => number(Some(row.period)),
            Variable::Address => number(Some(sample.chain.linked_address)),
            Variable::Line => number(frame.line.map(Into::into)),
            Variable::DataAddress => number(row.data_address),
            Variable::Latency => number(row.latency_cycles.map(Into::into)),
            Variable::Event => text(self.events.get(usize::from(row.event)).map(String::as_str)),
            Variable::Thread => Value::Text(&sample.thread_name),
            Variable::Function => text(frame.function.as_deref()),
            Variable::Module => Value::Text(&frame.module),
            Variable::File => text(frame.file.as_deref()),
            Variable::Region => text(sample.region.as_deref()),
            Variable::Level => text(sample.source.map(|source| Level::name(source.level))),
        }
    }
}

impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture::sample;
    use crate::report::{Extent, MemorySource};

    #[test]
    fn conditions_are_held_against_what_a_sample_says() {
        let mut of = sample(&["hash_find", "main"], Extent::Whole);
        of.source = Some(MemorySource { level: Level::L2, snoop: None, stlb_miss: None, locked: None });
        let row = SampleRow { tsc: 3000, cpu: 2, tid: 11, latency_cycles: Some(14), ..SampleRow::default() };
        let span = Span { first_tsc: 1000, last_tsc: 9000, tsc_khz: 1_000_000 };
        let events = [Event { name: "mem-loads".into(), ..Event::default() }];
        let holds = |text: &str| Condition::new(text, &events, span).unwrap().holds(&row, &of);
        for text in [
            "function ~ \"^hash\" and thread == \"worker\"",
            "latency_cycles > 10 and level == \"L2\"",
            "time_ns >= 2us and time_ns < 3 us",
            "cpu == 2 and tid == 11 and event == \"mem-loads\"",
            "module ~ \"/p$\" and address == 0x234",
        ] {
            assert!(holds(text), "{text}");
            assert!(!holds(&format!("not ({text})")), "{text}");
        }
        assert!(!holds("data_address > 0") && !holds("data_address <= 0"), "it has none");
        assert!(holds("region == \"\" and file == \"\""));
        let wrong = Condition::new("functoin == \"f\"", &events, span).unwrap_err().to_string();
        assert!(wrong.contains("did you mean `function`"), "{wrong}");
    }
}
