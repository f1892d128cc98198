//! `hpmctl list --fits`: which counters count events at the same time, or why not (Sweeney et al., section 4: "functionality for
//! exploring the available events and event groups").

use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use comfy_table::{Table, presets};
use libhpm::Error;
use libhpm::event::{
    self, CoreType, Counter, Event, Fit, Misfit, Taken, core_pmus, fit, pmu_prefix, split_list,
};
use serde::Serialize;

use super::counters;

/// What came of it on one PMU.
#[derive(Serialize)]
struct Outcome<'a> {
    pmu: &'a str,
    fits: bool,
    /// The events with their counters; empty when they do not fit.
    events: Vec<Placed>,
    /// Why they do not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize)]
struct Placed {
    name: String,
    /// The counters that can count it.
    counters: String,
    /// The one that it gets.
    counter: String,
}

/// The answer as text or JSON, and whether the events fit on every PMU asked about.
pub(super) fn show(
    list: &str,
    names: &[String],
    general_counters: u32,
    json: bool,
) -> Result<(String, bool)> {
    let mut outcomes = Vec::new();
    let texts = split_list(list);
    if let Some(unknown) = texts.iter().find(|text| is_unknown_everywhere(text, names)) {
        bail!(
            "no PMU that hpm knows has an event called `{unknown}`; `hpmctl list WORD` searches names and descriptions"
        );
    }
    for name in names {
        let events: Vec<_> = texts.iter().map(|text| event::parse_each(text, name)).collect();
        for (core_type, pmu) in core_pmus(name) {
            outcomes.push(outcome(&events, core_type, pmu, general_counters));
        }
    }
    let all_fit = outcomes.iter().all(|outcome| outcome.fits);
    if json {
        return Ok((serde_json::to_string_pretty(&outcomes).context("cannot write JSON")?, all_fit));
    }
    Ok((text(&outcomes), all_fit))
}

/// Whether several PMUs would say one after the other that they have no event of this name; one PMU says so itself, and names similar ones.
fn is_unknown_everywhere(text: &str, pmus: &[String]) -> bool {
    let is_unknown = |pmu: &String| matches!(event::parse(text, pmu), Err(Error::UnknownEvent { .. }));
    pmus.len() > 1 && pmus.iter().all(is_unknown)
}

fn outcome<'a>(
    events: &[libhpm::Result<Vec<Event>>],
    core_type: CoreType,
    pmu: &'a str,
    general_counters: u32,
) -> Outcome<'a> {
    let mut here = Vec::new();
    let refused = |reason| Outcome { pmu, fits: false, events: vec![], reason: Some(reason) };
    for named in events {
        match named {
            Err(error) => return refused(error.to_string()),
            Ok(events) => here.extend(events.iter().filter(|event| event.is_for(core_type)).cloned()),
        }
    }
    match fit(&here, pmu, general_counters) {
        Ok(fit) => Outcome { pmu, fits: true, events: placed(&here, fit), reason: None },
        Err(misfit) => refused(why(&misfit, &here, core_type)),
    }
}

fn placed(events: &[Event], fit: Fit) -> Vec<Placed> {
    let placed = |(event, taken): (&Event, Taken)| Placed {
        name: event.name.clone(),
        counters: spelled(&taken.counters),
        counter: taken.counter.to_string(),
    };
    events.iter().zip(fit).map(placed).collect()
}

/// All counters by their numbers.
fn spelled(all: &[Counter]) -> String {
    counters(all, usize::MAX)
}

/// The reason as a sentence.
fn why(misfit: &Misfit, events: &[Event], core_type: CoreType) -> String {
    let name = |index: &usize| format!("`{}`", events[*index].name);
    match misfit {
        Misfit::Unlisted(index) => format!(
            "hpm's table does not have {}, so that its counters are not known; the driver decides when it is measured",
            name(index)
        ),
        Misfit::OnlySampled(index) => {
            format!("hardware counts {} only while it samples it (`hpmctl record`)", name(index))
        }
        Misfit::Register([first, second]) => {
            format!("{} and {} need one register with different values", name(first), name(second))
        }
        Misfit::Escrs(rivals) => {
            let rivals: Vec<String> = rivals.iter().map(name).collect();
            format!("the ESCRs of a block select too few different events for {}", rivals.join(", "))
        }
        Misfit::TooFew { events: rivals, counters } => {
            let rivals: Vec<String> = rivals.iter().map(name).collect();
            let of_core = pmu_prefix(core_type).map_or_else(String::new, |prefix| format!(" of {prefix}"));
            match (rivals.as_slice(), counters.as_slice()) {
                ([only], []) => format!("no counter{of_core} can count {only}"),
                (_, [_]) => {
                    format!("only counter {}{of_core} counts {}", spelled(counters), rivals.join(" and "))
                }
                _ => format!(
                    "only counters {}{of_core} count {}: {} events for {} counters",
                    spelled(counters),
                    rivals.join(", "),
                    rivals.len(),
                    counters.len()
                ),
            }
        }
    }
}

fn text(outcomes: &[Outcome<'_>]) -> String {
    let mut text = String::new();
    for same in outcomes.chunk_by(|one, other| one.cells() == other.cells()) {
        let pmus: Vec<&str> = same.iter().map(|outcome| outcome.pmu).collect();
        let first = &same[0];
        let verdict =
            first.reason.as_ref().map_or_else(|| "fits".to_owned(), |why| format!("does not fit: {why}"));
        let _ = writeln!(text, "{}: {verdict}", pmus.join(", "));
        if !first.events.is_empty() {
            let mut table = Table::new();
            table.load_style(presets::NOTHING).set_header(["  event", "counters", "gets"]);
            for placed in &first.events {
                table.add_row([&format!("  {}", placed.name), &placed.counters, &placed.counter]);
            }
            let _ = writeln!(text, "{}", table.trim_fmt());
        }
    }
    text.truncate(text.trim_end().len());
    text
}

impl Outcome<'_> {
    /// All that is shown but the PMU's name.
    fn cells(&self) -> (Option<&String>, Vec<[&String; 3]>) {
        (
            self.reason.as_ref(),
            self.events.iter().map(|placed| [&placed.name, &placed.counters, &placed.counter]).collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fits(list: &str, pmus: &[&str]) -> (String, bool) {
        let names: Vec<String> = pmus.iter().map(ToString::to_string).collect();
        show(list, &names, u32::MAX, false).unwrap()
    }

    #[test]
    fn every_pmu_says_which_counters_or_why_not() {
        let (text, all) = fits(
            "cycles,instructions,l1d-load-miss,l2-load-miss",
            &["merom", "core2", "nehalem", "skylake", "icelake"],
        );
        assert!(!all);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn each_type_of_core_has_counters_of_its_own() {
        let (text, all) = fits("cycles,cpu_core/load/,cpu_atom/load/", &["goldencove+gracemont"]);
        assert!(all, "{text}");
        assert_eq!(fits("cycles,load", &["goldencove+gracemont"]), (text.clone(), true), "a name means both");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn events_of_the_only_type_of_core_that_is_left_are_placed() {
        let (text, all) = fits("cpu_core/load/", &["goldencove"]);
        assert!(all && text.contains("cpu_core/load/"), "{text}");
    }

    #[test]
    fn a_name_that_no_pmu_has_is_told_once() {
        let pmus = ["skylake".to_owned(), "zen4".to_owned()];
        let error = show("cycles,foo", &pmus, u32::MAX, false).unwrap_err().to_string();
        assert_eq!(
            error,
            "no PMU that hpm knows has an event called `foo`; `hpmctl list WORD` searches names and descriptions"
        );
        let of_one = fits("cycles,MEM_INST_RETIRED.ALL_LOADS", &["skylake", "zen4"]).0;
        assert!(of_one.contains("on the zen4 PMU"), "{of_one}");
    }

    #[test]
    fn reasons_are_sentences() {
        let why = |list, pmu| fits(list, &[pmu]).0;
        insta::assert_snapshot!(
            [
                why("mem-loads,cycles", "skylake"),
                why("branch,branch-miss,load,instructions", "core2"),
                why("FRONTEND_RETIRED.L1I_MISS,FRONTEND_RETIRED.ITLB_MISS", "skylake"),
                why("r00ff", "skylake"),
                why("l1d-lod-miss", "skylake"),
            ]
            .join("\n")
        );
    }
}
