//! `hpmctl list --equivalents`: what each generic name stands for.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use comfy_table::{ContentArrangement, Table, presets};
use libhpm::event::{Equivalent, GENERICS, Generic, core_pmus, equivalent};
use serde::Serialize;

use super::{Encoded, Words, counters, general_counters, sampled};

/// One generic name on the PMUs.
#[derive(Serialize)]
struct Named<'a> {
    name: &'static str,
    meaning: &'static str,
    pmus: Vec<Answer<'a>>,
}

/// What one PMU makes of it.
#[derive(Serialize)]
struct Answer<'a> {
    pmu: &'a str,
    /// The vendor's name of the event that is counted; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'static str>,
    /// The event that is sampled, where that is another.
    #[serde(skip_serializing_if = "Option::is_none")]
    sampled_event: Option<&'static str>,
    #[serde(flatten)]
    encoded: Option<Encoded>,
    /// How it differs from the name's meaning; empty when it does not.
    #[serde(skip_serializing_if = "Option::is_none")]
    caveat: Option<&'static str>,
    /// Why there is no event.
    #[serde(skip_serializing_if = "Option::is_none")]
    absent: Option<&'static str>,
}

/// Text or JSON; empty when no name has the words.
pub(super) fn show(names: &[String], wanted: &Words, json: bool) -> Result<String> {
    let pmus: Vec<&str> = names.iter().flat_map(|name| core_pmus(name)).map(|(_, pmu)| pmu).collect();
    let named: Vec<Named<'_>> = GENERICS
        .iter()
        .map(|generic| named(generic, &pmus))
        .filter(|named| wanted.are_in(&[named.name, named.meaning]))
        .collect();
    if json && !named.is_empty() {
        return serde_json::to_string_pretty(&named).context("cannot write JSON");
    }
    Ok(match pmus.as_slice() {
        [_] => one_pmu(&named),
        _ => every_pmu(&named),
    })
}

fn named<'a>(generic: &Generic, pmus: &[&'a str]) -> Named<'a> {
    let answer = |&pmu: &&'a str| Some(Answer::new(pmu, equivalent(generic.name, pmu)?));
    Named { name: generic.name, meaning: generic.meaning, pmus: pmus.iter().filter_map(answer).collect() }
}

impl<'a> Answer<'a> {
    fn new(pmu: &'a str, equivalent: Equivalent) -> Self {
        let none = Self { pmu, event: None, sampled_event: None, encoded: None, caveat: None, absent: None };
        match equivalent {
            Equivalent::Event { counted, sampled, caveat } => Self {
                event: Some(counted.name),
                sampled_event: (counted != sampled).then_some(sampled.name),
                encoded: Some(Encoded::new(counted, sampled)),
                caveat: Some(caveat),
                ..none
            },
            Equivalent::Absent { reason } => Self { absent: Some(reason), ..none },
        }
    }

    /// Event, how it is sampled, counters, and what has to be known.
    fn cells(&self) -> [String; 4] {
        let Some(encoded) = &self.encoded else {
            return ["n/a".into(), String::new(), String::new(), self.absent.unwrap_or_default().into()];
        };
        let event = self.event.unwrap_or_default();
        let event = match self.sampled_event {
            Some(other) => format!("{event}, sampled as {other}"),
            None => event.to_owned(),
        };
        let how = match sampled(encoded.sampled) {
            "" => "by interrupts",
            precise => precise,
        };
        let counters = counters(&encoded.counters, general_counters(self.pmu));
        [event, how.to_owned(), counters, self.caveat.unwrap_or_default().to_owned()]
    }
}

fn table() -> Table {
    let mut table = Table::new();
    // Wrapped to the terminal's width; as it is when there is none.
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table
}

fn one_pmu(named: &[Named<'_>]) -> String {
    let mut table = table();
    table.set_header(["name", "event", "sampled", "counters", "what to know"]);
    for named in named {
        let cells = named.pmus.iter().flat_map(Answer::cells);
        table.add_row([named.name.to_owned()].into_iter().chain(cells));
    }
    table.trim_fmt()
}

/// A block for each name; neighbouring PMUs that have the same answer share a line.
fn every_pmu(named: &[Named<'_>]) -> String {
    let mut text = String::new();
    for named in named {
        let mut table = table();
        for same in named.pmus.chunk_by(|one, other| one.cells() == other.cells()) {
            let pmus: Vec<&str> = same.iter().map(|answer| answer.pmu).collect();
            table.add_row([format!("  {}", pmus.join(", "))].into_iter().chain(same[0].cells()));
        }
        let _ = writeln!(text, "{}: {}\n{}\n", named.name, named.meaning, table.trim_fmt());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pmus: &[&str], words: &[&str], json: bool) -> String {
        let owned = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        show(&owned(pmus), &Words::new(&owned(words)), json).unwrap()
    }

    #[test]
    fn events_caveats_and_reasons_are_shown() {
        let every: Vec<&str> = libhpm::event::pmus().collect();
        insta::assert_snapshot!(text(&every, &["l1d-load-miss"], false));
        insta::assert_snapshot!(text(&["core2"], &[], false));
    }

    #[test]
    fn json_has_an_answer_of_every_pmu_for_every_name() {
        let every: Vec<&str> = libhpm::event::pmus().collect();
        let json: serde_json::Value = serde_json::from_str(&text(&every, &[], true)).unwrap();
        let names = json.as_array().unwrap();
        assert_eq!(names.len(), GENERICS.len());
        for name in names {
            let answers = name["pmus"].as_array().unwrap();
            assert_eq!(answers.len(), every.len(), "{name}");
            assert!(
                answers.iter().all(|one| one["event"].is_string() != one["absent"].is_string()),
                "{name}"
            );
        }
    }
}
