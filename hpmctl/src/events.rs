//! `hpmctl events`: the names that `-e` understands.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use comfy_table::{Table, presets};
use libhpm::event::{CoreType, Row, Sampling, absent_names, core_pmus, generic_names, pmus, vendor_names};
use libhpm::machine::pmu_name;
use libhpm::sys::device::Driver;

use crate::output::print;

/// List the events that -e understands.
#[derive(Args, Debug)]
pub(crate) struct EventsArgs {
    /// List the events of this PMU [default: this machine's, as the driver knows it]
    #[arg(long, value_name = "NAME")]
    pmu: Option<String>,
    /// Show only events whose name or description contains this text
    #[arg(value_name = "TEXT")]
    filter: Option<String>,
}

pub(crate) fn run(args: &EventsArgs) -> Result<ExitCode> {
    let pmu = match &args.pmu {
        Some(pmu) => pmu.clone(),
        None => pmu_name(&Driver::open_checked()?.1),
    };
    let cores: Vec<_> = core_pmus(&pmu).collect();
    if let Some((_, unknown)) = cores.iter().find(|(_, pmu)| vendor_names(pmu).is_empty()) {
        bail!(
            "hpm has no table of events for the PMU `{unknown}`, only for {}; raw events (r08d1, \
             cpu/event=0xd1,umask=8/) can be used",
            pmus().collect::<Vec<_>>().join(", ")
        );
    }
    let filter = args.filter.as_deref().unwrap_or_default();
    let tables = cores.iter().map(|&(core_type, pmu)| (core_type, pmu, table(pmu, filter)));
    let found: Vec<_> = tables.filter(|(_, _, table)| !table.is_empty()).collect();
    if found.is_empty() {
        bail!("no event of the {pmu} PMU has this text in its name or description");
    }
    for (core_type, pmu, table) in found {
        match core_type {
            CoreType::Any => {}
            CoreType::Core => print(&format!("{pmu}, written as cpu_core/NAME/"))?,
            CoreType::Atom => print(&format!("{pmu}, written as cpu_atom/NAME/"))?,
        }
        print(&table.trim_fmt())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Generic names first; what a sample says, where `hpmctl record` samples the event precisely; counters, where not all
/// can count it.
fn table(pmu: &str, filter: &str) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["event", "sampled", "counters", "what it counts"]);
    let filter = filter.to_ascii_lowercase();
    let wanted = |texts: [&str; 2]| texts.iter().any(|text| text.to_ascii_lowercase().contains(&filter));
    let rows = vendor_names(pmu);
    let all = rows.iter().fold(0, |all, row| all | row.counters);
    let cells = |name: &'static str, row: &Row, what| {
        [name.to_owned(), sampled(row.sampling).to_owned(), counters(row.counters, all), what]
    };
    for alias in generic_names(pmu).iter().filter(|alias| wanted([alias.name, alias.counted])) {
        if let Some(row) = rows.iter().find(|row| row.name == alias.sampled) {
            table.add_row(cells(alias.name, row, alias.counted.to_owned()));
        }
    }
    for absent in absent_names(pmu).iter().filter(|absent| wanted([absent.name, absent.reason])) {
        table.add_row([absent.name, "", "", &format!("n/a: {}", absent.reason)]);
    }
    for row in rows.iter().filter(|row| wanted([row.name, row.description])) {
        table.add_row(cells(row.name, row, row.description.to_owned()));
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
    }
}

/// The counters' numbers, first to last; empty when they are all that there are.
fn counters(mask: u8, all: u8) -> String {
    match (mask.trailing_zeros(), 7 - mask.leading_zeros()) {
        _ if mask == all => String::new(),
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_finds_names_and_descriptions() {
        insta::assert_snapshot!(table("skylake", "l1_miss").trim_fmt());
        assert!(table("skylake", "aliasing").to_string().contains("LD_BLOCKS_PARTIAL.ADDRESS_ALIAS"));
        assert!(table("skylake", "no such text").is_empty());
    }

    #[test]
    fn constraints_and_absent_names_are_shown() {
        insta::assert_snapshot!(
            [table("sandybridge", "l1d").trim_fmt(), table("goldencove", "mem-").trim_fmt()].join("\n")
        );
    }
}
