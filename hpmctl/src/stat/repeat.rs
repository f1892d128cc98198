//! `stat --repeat N`: the same command again and again, and how far its counts scatter.

use std::process::ExitCode;

use anyhow::{Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use libhpm::analysis::statistics::Repeated;
use libhpm::analysis::topdown::Share;
use serde::Serialize;

use super::out::Out;
use super::{Counted, StatArgs, csv, measurement, status};
use crate::output::grouped;
use crate::workload::End;

/// Everything that the text and the JSON show.
#[derive(Serialize)]
struct Runs {
    source: String,
    target: String,
    /// How many were asked for; fewer when a signal ended one.
    wanted: u32,
    rows: Vec<Row>,
    /// Exit status of each run.
    exit_statuses: Vec<u8>,
}

/// One value over the runs.
#[derive(Serialize)]
struct Row {
    /// An event, what its count means beside another one, a share of issue slots, or `elapsed` and `on CPU` in seconds.
    name: String,
    unit: &'static str,
    #[serde(flatten)]
    values: Repeated,
    /// In some run the event took turns, and its count is scaled.
    scaled: bool,
}

/// Statuses of programs that a signal ended begin here, as a shell shows them.
const SIGNALLED: u8 = 128;

/// Runs the command as often as asked, or until a signal ends one.
pub(super) fn run(args: &StatArgs) -> Result<ExitCode> {
    let wanted = args.repeat.unwrap_or(1);
    let mut out = Out::new(args)?;
    let (mut runs, mut statuses) = (Vec::new(), Vec::new());
    while statuses.len() < wanted as usize {
        let (counted, end): (Counted, End) = measurement::once(args, &mut out)?;
        statuses.push(end.status());
        if end.status() >= SIGNALLED {
            break;
        }
        runs.push(counted);
    }
    let Some(first) = runs.first() else {
        bail!("a signal ended the first run, so that there is nothing to show")
    };
    let (source, target) = (first.source.clone(), first.target.clone());
    let all = Runs { source, target, wanted, rows: rows(&runs), exit_statuses: statuses };
    let written = out.repeated(&all, text(&all), values(&all));
    status(written, all.exit_statuses.iter().copied().find(|status| *status != 0).unwrap_or(0))
}

fn rows(runs: &[Counted]) -> Vec<Row> {
    let row = |name: &str, unit, scaled, value: &dyn Fn(&Counted) -> Option<f64>| {
        let values: Vec<f64> = runs.iter().filter_map(value).collect();
        Some(Row { name: name.to_owned(), unit, values: Repeated::new(&values)?, scaled })
    };
    let mut rows = Vec::new();
    for (place, event) in runs[0].events.iter().enumerate() {
        let scaled = runs.iter().any(|run| run.events[place].took_turns());
        let count = |run: &Counted| run.events[place].scaled.map(|count| count as f64);
        rows.extend(row(&event.name, "", scaled, &count));
        if let Some(metric) = &event.metric {
            let value = |run: &Counted| run.events[place].metric.map(|metric| metric.value);
            rows.extend(row(&event.name, metric.unit, scaled, &value));
        }
    }
    for share in &runs[0].topdown {
        let same = |other: &&Share| {
            (other.cores, other.name, other.part_of) == (share.cores, share.name, share.part_of)
        };
        let value = |run: &Counted| run.topdown.iter().find(same).map(|share| share.share * 100.0);
        rows.extend(row(&share.label(), "%", false, &value));
    }
    rows.extend(row("on a CPU", "s", false, &|run| Some(run.on_cpu_ns as f64 / 1e9)));
    rows.extend(row("elapsed", "s", false, &|run| Some(run.elapsed_ns as f64 / 1e9)));
    rows
}

fn text(runs: &Runs) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["mean", "±", "", "least", "greatest", "", ""]);
    for Row { name, unit, values, scaled } in &runs.rows {
        let number =
            |value: f64| if unit.is_empty() { grouped(value.round() as u64) } else { format!("{value:.3}") };
        let interval = values.interval.unwrap_or(f64::NAN);
        let percent = if values.mean > 0.0 {
            format!("({:.2} %)", interval * 100.0 / values.mean)
        } else {
            String::new()
        };
        let what = if *scaled { "scaled" } else { "" };
        let name = if unit.is_empty() { name.clone() } else { format!("{unit} ({name})") };
        let cells = [number(values.mean), number(interval), percent, number(values.min), number(values.max)];
        table.add_row(cells.into_iter().chain([name, what.to_owned()]));
    }
    for column in table.column_iter_mut().take(5) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let done = runs.rows.first().map_or(0, |row| row.values.runs);
    let fewer = if done < u64::from(runs.wanted) {
        format!("\nOnly {done} of {} runs came to their end: a signal ended the last one.", runs.wanted)
    } else {
        String::new()
    };
    let failed = runs.exit_statuses.iter().filter(|status| **status != 0).count();
    let failed =
        if failed > 0 { format!("\n{failed} of the runs ended with a failure.") } else { String::new() };
    format!(
        "\nCounts of {} in {done} runs:\n\n{}\n\n± is the mean's 95 % interval by Student's t, for runs that are independent \
         and scatter normally.{fewer}{failed}\nSource: {}.",
        runs.target,
        table.trim_fmt(),
        runs.source
    )
}

fn values(runs: &Runs) -> String {
    let header = ["name", "unit", "runs", "mean", "interval95", "deviation", "min", "max", "scaled"];
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let row = |row: &Row| {
        let of = &row.values;
        csv::line([
            row.name.clone(),
            row.unit.to_owned(),
            of.runs.to_string(),
            of.mean.to_string(),
            number(of.interval),
            number(of.deviation),
            of.min.to_string(),
            of.max.to_string(),
            row.scaled.to_string(),
        ])
    };
    csv::line(header.map(str::to_owned)) + &runs.rows.iter().map(row).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::text::tests::{counted, event};

    fn runs() -> Runs {
        let run = |instructions, elapsed_ns| {
            let events = vec![event("cycles", 1_000_000, true), event("instructions", instructions, true)];
            Counted { elapsed_ns, ..counted(events) }
        };
        let all =
            [run(1_000_000, 2_000_000_000), run(1_200_000, 3_000_000_000), run(1_400_000, 2_500_000_000)];
        Runs {
            source: all[0].source.clone(),
            target: all[0].target.clone(),
            wanted: 3,
            rows: rows(&all),
            exit_statuses: vec![0, 3, 0],
        }
    }

    #[test]
    fn means_have_their_intervals() {
        insta::assert_snapshot!(text(&runs()));
        let values = values(&runs());
        let row = values.lines().nth(3).unwrap();
        // 200000 · 4.30265 / √3
        assert!(
            row.starts_with("instructions,,3,1200000,49682")
                && row.ends_with(",200000,1000000,1400000,false"),
            "{row}"
        );
    }
}
