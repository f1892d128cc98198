//! The names that expressions can use.

use anyhow::Result;
use libhpm::analysis::explore::{BUILT_IN, Definitions, Records, VARIABLES};
use libhpm::export::quanta_remarks;
use libhpm::trace::Meta;
use serde::Serialize;

use super::text::document;

/// Where a name comes from.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Event,
    Record,
    BuiltIn,
    Defined,
}

impl Kind {
    fn heading(self) -> &'static str {
        match self {
            Self::Event => "events",
            Self::Record => "of every record",
            Self::BuiltIn => "built-in, where the events were counted",
            Self::Defined => "defined",
        }
    }
}

/// A name, and what it is or is computed by.
#[derive(Serialize)]
pub(super) struct Name<'a> {
    kind: Kind,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    what: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expression: Option<&'a str>,
}

/// All of a trace, those of a kind together.
pub(super) fn names<'a>(records: &'a Records, definitions: &'a Definitions) -> Vec<Name<'a>> {
    let computed = |kind, name, expression| Name { kind, name, what: None, expression: Some(expression) };
    let events = records.events().iter().map(|event| Name {
        kind: Kind::Event,
        name: event,
        what: None,
        expression: None,
    });
    let of_records = VARIABLES.iter().map(|(name, _, _, what)| Name {
        kind: Kind::Record,
        name,
        what: Some(what),
        expression: None,
    });
    let built_in = BUILT_IN.iter().map(|(name, expression)| computed(Kind::BuiltIn, name, expression));
    let defined = definitions.iter().map(|(name, expression)| computed(Kind::Defined, name, expression));
    events.chain(of_records).chain(built_in).chain(defined).collect()
}

pub(super) fn text(names: &[Name<'_>]) -> String {
    let mut text = String::new();
    let mut before = None;
    for name in names {
        if before.replace(name.kind) != Some(name.kind) {
            text += &format!("{}:\n", name.kind.heading());
        }
        let line = format!("  {:<18} {}", name.name, name.what.or(name.expression).unwrap_or_default());
        text += &format!("{}\n", line.trim_end());
    }
    text
}

/// The same for other programs, with what has to be known of the trace.
pub(super) fn json(names: &[Name<'_>], meta: &Meta, warnings: &[String]) -> Result<String> {
    let rows = names.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
    document(rows, warnings, &quanta_remarks(meta))
}
