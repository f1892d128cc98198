//! Step 2: which functions are phases, and what it would cost to measure them.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{ArgGroup, Args};
use libhpm::analysis::method::{GRAINS, GridPoint, Thresholds, WEIGHTS, grid, propose, select};
use serde::Serialize;

use super::folder::{ProfileFile, SelectionFile, read_profile, write_selection};
use super::profile::warnings;
use super::text;
use crate::output::{print, warn};

/// Choose the functions that are phases, by the weight of their time and the grain of their calls (step 2).
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("how").required(true).multiple(true).args(["overhead", "weight", "grid"])))]
pub(super) struct SelectArgs {
    /// As many phases as can be measured with this overhead, as 1%: both of the calls and of the time
    #[arg(long, value_name = "PART", value_parser = super::part, conflicts_with_all = ["weight", "grain"])]
    overhead: Option<f64>,
    /// Functions with more than this part of the program's time, callees included
    #[arg(long, value_name = "PART", value_parser = super::part, requires = "grain")]
    weight: Option<f64>,
    /// Functions of which one call takes more than this part of the program's time on average
    #[arg(long, value_name = "PART", value_parser = super::part, requires = "weight")]
    grain: Option<f64>,
    /// Show the number of phases and the estimated overhead for a grid of weights and grains
    #[arg(long)]
    grid: bool,
    /// Print JSON for other programs
    #[arg(long)]
    json: bool,
    /// The profile that `hpmctl methods profile` wrote
    #[arg(value_name = "NAME.methods")]
    folder: PathBuf,
}

#[derive(Serialize)]
struct Output<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    selection: Option<&'a SelectionFile>,
    /// Names of the selected functions.
    names: Vec<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grid: Option<Vec<GridPoint>>,
    /// What has to be known of the profile.
    warnings: Vec<String>,
}

/// Runs the step.
///
/// # Errors
/// There is no profile, or nothing can be selected.
pub(super) fn run(args: &SelectArgs) -> Result<()> {
    let (output, warnings) = output(args)?;
    warn(&warnings);
    print(output.trim_end())
}

/// What is to be printed; the selection is written on the way.
pub(super) fn output(args: &SelectArgs) -> Result<(String, Vec<String>)> {
    let file = read_profile(&args.folder)?;
    let warnings = warnings(&file);
    let profile = file.profile();
    let chosen = match (args.overhead, args.weight, args.grain) {
        (Some(overhead), ..) => Some(proposal(&file, overhead)?),
        (None, Some(weight), Some(grain)) => {
            let selection = select(&profile, Thresholds { weight, grain });
            if selection.functions.is_empty() {
                bail!("no function exceeds both thresholds: lower --weight or --grain, or ask for --grid");
            }
            Some(SelectionFile::new(&file, &selection))
        }
        _ => None,
    };
    if let Some(selection) = &chosen {
        write_selection(&args.folder, selection)?;
    }
    let points = args.grid.then(|| grid(&profile, &WEIGHTS, &GRAINS));
    if args.json {
        let functions = chosen.iter().flat_map(|selection| &selection.functions);
        let names = functions.map(|&function| file.functions[function as usize].name.as_str()).collect();
        let output = Output { selection: chosen.as_ref(), names, grid: points, warnings };
        return Ok((serde_json::to_string_pretty(&output)? + "\n", output.warnings));
    }
    let mut printed = String::new();
    if let Some(points) = points {
        printed += &text::grid(&points);
    }
    if let Some(selection) = &chosen {
        printed += &text::selection(&file, selection);
    }
    Ok((printed, warnings))
}

fn proposal(file: &ProfileFile, overhead: f64) -> Result<SelectionFile> {
    let affordable = |point: &GridPoint| {
        point.estimated_overhead <= overhead && file.time_overhead(point.invocations) <= overhead
    };
    match propose(&file.profile(), affordable) {
        Some(selection) => Ok(SelectionFile::new(file, &selection)),
        None if file.set_up_overhead() >= overhead => bail!(
            "to begin a measurement alone takes {:.3} % of the program's time: let it run longer, or allow more than {:.3} %, or give --weight and --grain",
            100.0 * file.set_up_overhead(),
            100.0 * overhead
        ),
        None => bail!(
            "no phase can be measured with an overhead of {:.3} %: the program makes {} calls in all; allow more, or give \
             --weight and --grain",
            100.0 * overhead,
            file.profile().calls()
        ),
    }
}
