//! `hpmctl list`: the names that `-e` understands, what generic ones stand for, and which counters count them together.

mod equivalents;
mod fits;

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Args;
use comfy_table::{Table, presets};
use libhpm::event::{
    Counter, Equivalent, GENERICS, Row, Sampling, core_pmus, equivalent, pmu_prefix, pmus, vendor_names,
};
use libhpm::machine::pmu_name;
use libhpm::source::choice::{Chosen, Wish, choose};
use libhpm::source::perf;
use libhpm::sys::device::Driver;
use serde::{Serialize, Serializer};

use crate::output::print;

/// List the events that -e understands.
///
/// Generic names come first: they mean the same on every PMU that has an event for them.
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Show what each generic name stands for, how it is sampled, and what has to be known about it [default: on all PMUs]
    #[arg(long, conflicts_with = "fits")]
    equivalents: bool,
    /// Show which counters count these events at the same time, or why they do not fit [default: on all PMUs]
    #[arg(long, value_name = "EVENTS", conflicts_with = "words")]
    fits: Option<String>,
    /// Only this PMU
    #[arg(long, value_name = "NAME", conflicts_with = "this")]
    pmu: Option<String>,
    /// Only this machine's PMU, as the driver knows it: the default for a plain list, which without the driver shows perf_event's events
    #[arg(long)]
    this: bool,
    /// Print JSON for other programs
    #[arg(long)]
    json: bool,
    /// Show only events with all these words in their names or descriptions
    #[arg(value_name = "WORD")]
    words: Vec<String>,
}

pub(crate) fn run(args: &ListArgs) -> Result<ExitCode> {
    let here = args.this || args.pmu.is_none() && !args.equivalents && args.fits.is_none();
    let (names, general_counters) = match &args.pmu {
        Some(pmu) => (vec![pmu.clone()], u32::MAX),
        None if here => match Driver::open_checked() {
            Ok((_, info)) => (vec![pmu_name(&info)], info.general_counters),
            Err(_) if !args.this => return by_perf(args),
            Err(error) => return Err(error.into()),
        },
        None => (pmus().map(str::to_owned).collect(), u32::MAX),
    };
    for (_, pmu) in names.iter().flat_map(|name| core_pmus(name)) {
        if vendor_names(pmu).is_empty() {
            bail!(
                "hpm has no table of events for the PMU `{pmu}`, only for {}; raw events (r08d1, \
                 cpu/event=0xd1,umask=8/) can be used where the driver knows the PMU",
                pmus().collect::<Vec<_>>().join(", ")
            );
        }
    }
    if let Some(events) = &args.fits {
        let (text, all_fit) = fits::show(events, &names, general_counters, args.json)?;
        print(&text)?;
        return Ok(if all_fit { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let wanted = Words::new(&args.words);
    let text = if args.equivalents {
        equivalents::show(&names, &wanted, args.json)?
    } else {
        events(&names, &wanted, args.json)?
    };
    if text.is_empty() {
        bail!("no event of {} has these words in its name or description", names.join(", "));
    }
    print(text.trim_end())?;
    Ok(ExitCode::SUCCESS)
}

/// Without the module: the events of the kernel's perf_event, as far as it has them here.
fn by_perf(args: &ListArgs) -> Result<ExitCode> {
    #[derive(Serialize)]
    struct PerfEvent {
        name: &'static str,
        what: &'static str,
    }
    let Chosen::Perf(facts) = choose(Wish::Best)? else { bail!("the hpm module was loaded just now") };
    let wanted = Words::new(&args.words);
    let here = perf::NAMES.iter().filter(|name| facts.hardware || !name.id.is_hardware());
    let events: Vec<PerfEvent> = here
        .map(|name| PerfEvent { name: name.name, what: name.description })
        .filter(|event| wanted.are_in(&[event.name, event.what]))
        .collect();
    if events.is_empty() {
        bail!(
            "no event that perf_event has here has these words in its name or description; `hpmctl list --pmu NAME` searches \
             those of a PMU"
        );
    }
    if args.json {
        print(&serde_json::to_string_pretty(&events).context("cannot write JSON")?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    events.iter().for_each(|event| {
        table.add_row([event.name, event.what]);
    });
    print(&format!(
        "{}\n\nThese are {}. `hpmctl list --pmu NAME` lists a PMU's events.",
        table.trim_fmt(),
        facts.line
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Words that are looked for.
struct Words(Vec<String>);

impl Words {
    fn new(words: &[String]) -> Self {
        Self(words.iter().map(|word| word.to_ascii_lowercase()).collect())
    }

    /// Whether each word is in some of the texts.
    fn are_in(&self, texts: &[&str]) -> bool {
        let found = |word: &String| texts.iter().any(|text| text.to_ascii_lowercase().contains(word));
        self.0.iter().all(found)
    }
}

/// An event of a plain list.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    /// Absent for a generic name that the PMU has no event for.
    #[serde(flatten)]
    event: Option<Encoded>,
    /// What it counts, or why it is missing.
    what: String,
}

/// How an event is counted and sampled.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Encoded {
    encoding: u64,
    extra: u64,
    #[serde(serialize_with = "sampled_as_text")]
    sampled: Sampling,
    #[serde(serialize_with = "counters_as_text")]
    counters: Vec<Counter>,
}

impl Encoded {
    /// Of an event that is counted by one row and sampled by one.
    fn new(counted: &Row, sampled: &Row) -> Self {
        Self {
            encoding: counted.encoding,
            extra: counted.extra,
            sampled: sampled.sampling,
            counters: counted.counting(),
        }
    }
}

fn sampled_as_text<S: Serializer>(sampling: &Sampling, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(sampled(*sampling))
}

fn counters_as_text<S: Serializer>(counters: &[Counter], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(counters.iter().map(ToString::to_string))
}

/// The events of each core's PMU; empty when none has the words.
fn events(names: &[String], wanted: &Words, json: bool) -> Result<String> {
    #[derive(Serialize)]
    struct OfPmu<'a> {
        pmu: &'a str,
        events: Vec<Listed>,
    }
    let mut all = Vec::new();
    let mut text = String::new();
    for (core_type, pmu) in names.iter().flat_map(|name| core_pmus(name)) {
        let events = listed(pmu, wanted);
        if events.is_empty() {
            continue;
        }
        if let Some(prefix) = pmu_prefix(core_type) {
            let _ = writeln!(text, "{pmu}, alone written as {prefix}/NAME/");
        }
        let _ = writeln!(text, "{}", table(&events, pmu).trim_fmt());
        all.push(OfPmu { pmu, events });
    }
    if json && !all.is_empty() {
        return serde_json::to_string_pretty(&all).context("cannot write JSON");
    }
    Ok(text)
}

/// Generic names first, those that the PMU has no event for after the others.
fn listed(pmu: &str, wanted: &Words) -> Vec<Listed> {
    let mut present = Vec::new();
    let mut missing = Vec::new();
    for generic in GENERICS {
        match equivalent(generic.name, pmu) {
            Some(Equivalent::Event { counted, sampled, .. }) => present.push(Listed {
                name: generic.name,
                event: Some(Encoded::new(counted, sampled)),
                what: format!("{}: {}", counted.name, generic.meaning),
            }),
            Some(Equivalent::Absent { reason }) => {
                missing.push(Listed { name: generic.name, event: None, what: format!("n/a: {reason}") });
            }
            None => {}
        }
    }
    let vendor = vendor_names(pmu).iter().map(|row| Listed {
        name: row.name,
        event: Some(Encoded::new(row, row)),
        what: row.description.to_owned(),
    });
    let all = present.into_iter().chain(missing).chain(vendor);
    all.filter(|listed| wanted.are_in(&[listed.name, &listed.what])).collect()
}

/// What a sample says, where `hpmctl record` samples the event precisely; counters, where not all can count it.
fn table(events: &[Listed], pmu: &str) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["event", "sampled", "counters", "what it counts"]);
    let all = general_counters(pmu);
    for Listed { name, event, what } in events {
        let event = event.as_ref();
        let counters = event.map_or_else(String::new, |event| counters(&event.counters, all));
        let sampled = event.map_or("", |event| sampled(event.sampled));
        table.add_row([*name, sampled, &counters, what]);
    }
    table
}

/// What a precise sample says; empty for an event that is sampled with skid.
fn sampled(sampling: Sampling) -> &'static str {
    match sampling {
        Sampling::Imprecise => "",
        Sampling::Instruction => "precise",
        Sampling::LoadAddress | Sampling::StoreAddress => "precise, address",
        Sampling::LoadLatency | Sampling::StoreLatency => "precise, address, latency, source",
        Sampling::Op => "IBS, address, latency, source",
        Sampling::Fetch => "IBS",
    }
}

/// How many general counters a PMU has by its table.
fn general_counters(pmu: &str) -> usize {
    let numbers = vendor_names(pmu).iter().flat_map(Row::counting).filter_map(|counter| match counter {
        Counter::General(number) => Some(usize::from(number) + 1),
        Counter::Fixed(_) => None,
    });
    numbers.max().unwrap_or(0)
}

/// Counters as ranges of their numbers; all `all` general ones together need no word.
fn counters(counters: &[Counter], all: usize) -> String {
    let general: Vec<u8> = counters
        .iter()
        .filter_map(|counter| match counter {
            Counter::General(number) => Some(*number),
            Counter::Fixed(_) => None,
        })
        .collect();
    let mut parts: Vec<String> = general
        .chunk_by(|before, after| before + 1 == *after)
        .map(|run| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => unreachable!("a run has a member"),
        })
        .collect();
    let fixed = counters.iter().filter(|counter| matches!(counter, Counter::Fixed(_)));
    if general.len() == all {
        parts = if counters.len() > all { vec!["any".to_owned()] } else { vec![] };
    }
    parts.extend(fixed.map(ToString::to_string));
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pmu: &str, words: &[&str]) -> String {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        table(&listed(pmu, &Words::new(&words)), pmu).trim_fmt()
    }

    #[test]
    fn words_are_found_in_names_and_descriptions() {
        insta::assert_snapshot!(list("skylake", &["l1_miss"]));
        assert!(list("skylake", &["aliasing"]).contains("LD_BLOCKS_PARTIAL.ADDRESS_ALIAS"));
        let both = list("skylake", &["walks", "stores"]);
        assert!(both.contains("DTLB_STORE_MISSES") && !both.contains("DTLB_LOAD_MISSES"), "{both}");
        assert!(listed("skylake", &Words::new(&["no such text".to_owned()])).is_empty());
    }

    #[test]
    fn constraints_and_absent_names_are_shown() {
        insta::assert_snapshot!([list("sandybridge", &["l1d"]), list("goldencove", &["mem-"])].join("\n"));
    }

    #[test]
    fn counters_are_written_as_ranges() {
        let general =
            |numbers: &[u8]| numbers.iter().map(|&number| Counter::General(number)).collect::<Vec<_>>();
        assert_eq!(counters(&general(&[0, 1, 2, 3]), 4), "");
        assert_eq!(counters(&general(&[0, 2, 3]), 4), "0, 2-3");
        let mut with_fixed = general(&[0, 1]);
        with_fixed.push(Counter::Fixed(1));
        assert_eq!(counters(&with_fixed, 2), "any, fixed 1");
        assert_eq!(counters(&with_fixed, 4), "0-1, fixed 1");
    }
}
