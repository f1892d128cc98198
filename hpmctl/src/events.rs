//! `hpmctl events`: the names that `-e` understands.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Args;
use comfy_table::{Table, presets};
use libhpm::event::{generic_names, vendor_names};
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
    if vendor_names(&pmu).is_empty() {
        bail!(
            "hpm has no table of events for the PMU `{pmu}`; raw events (r08d1, cpu/event=0xd1,umask=8/) can be used"
        );
    }
    let table = table(&pmu, args.filter.as_deref().unwrap_or_default());
    if table.is_empty() {
        bail!("no event of the {pmu} PMU has this text in its name or description");
    }
    print(&table.trim_fmt())?;
    Ok(ExitCode::SUCCESS)
}

/// Generic names first; `precise` marks what `hpmctl record` can sample.
fn table(pmu: &str, filter: &str) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["event", "", "what it counts"]);
    let filter = filter.to_ascii_lowercase();
    let wanted = |texts: [&str; 2]| texts.iter().any(|text| text.to_ascii_lowercase().contains(&filter));
    let mark = |precise| if precise { "precise" } else { "" };
    for alias in generic_names(pmu).iter().filter(|alias| wanted([alias.name, alias.counted])) {
        let precise = vendor_names(pmu).iter().any(|row| row.name == alias.sampled && row.precise);
        table.add_row([alias.name, mark(precise), alias.counted]);
    }
    for row in vendor_names(pmu).iter().filter(|row| wanted([row.name, row.description])) {
        table.add_row([row.name, mark(row.precise), row.description]);
    }
    table
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
}
