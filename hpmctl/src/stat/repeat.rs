//! `stat --repeat N`: the same command again and again, and how far its counts scatter.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use libhpm::analysis::statistics::Repeated;
use libhpm::analysis::topdown::Share;
use libhpm::export::csv_line;
use serde::{Serialize, Serializer};

use super::out::Out;
use super::text::without;
use super::{Counted, EventCount, StatArgs, beside_csv, measurement, status};
use crate::output::{counted, grouped, say, time, unit, warn};
use crate::workload::{End, signal_name};

/// Everything that the text and the JSON show.
#[derive(Serialize)]
struct Runs {
    source: String,
    target: String,
    /// How long after each run's start counting began.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ns: Option<u64>,
    /// How many were asked for; fewer when a signal ended one.
    wanted: u32,
    /// How many came to their end and counted something.
    done: u64,
    /// How many ended before their delay was over, and are left out.
    #[serde(skip_serializing_if = "is_zero")]
    missed: u64,
    rows: Vec<Row>,
    /// Events that never had their turn, in any run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_counted: Vec<String>,
    /// Processes that measured ones forked and that are missing in the counts of some run, because the driver's table was full.
    processes_left_out: u64,
    /// What shares of issue slots rest on; empty when nothing has to be said.
    #[serde(skip_serializing_if = "str::is_empty")]
    topdown_remark: String,
    /// What else has to be known of the counts of some or all runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
    /// How each run ended; in JSON its exit status.
    #[serde(rename = "exit_statuses", serialize_with = "statuses")]
    ends: Vec<End>,
}

/// One value over the runs.
#[derive(Serialize)]
struct Row {
    /// An event, what its count means beside another one, a share of issue slots, or `on a CPU`, `user`, `system` and `elapsed` in seconds.
    name: String,
    unit: &'static str,
    #[serde(flatten)]
    values: Repeated,
    /// In some run the event took turns, and its count is scaled; a share, which is made of all counts, when any of them is.
    scaled: bool,
}

fn statuses<S: Serializer>(ends: &[End], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(ends.iter().map(|end| end.status()))
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Runs the command as often as asked, or until a signal to hpmctl ends one. A signal that a program dies of by itself is a failure as
/// any other.
pub(super) fn run(args: &StatArgs) -> Result<ExitCode> {
    let wanted = args.repeat.unwrap_or(1);
    let mut out = Out::new(args)?;
    let (mut runs, mut missed, mut ends) = (Vec::new(), 0, Vec::new());
    while ends.len() < wanted as usize {
        let (counted, end): (Counted, End) = measurement::once(args, &mut out)?;
        ends.push(end);
        if matches!(end, End::Interrupted(_)) {
            break;
        }
        if counted.missed {
            missed += 1;
        } else {
            runs.push(counted);
        }
    }
    if runs.is_empty() && missed == u64::from(wanted) {
        bail!("nothing was counted: each run ended before its delay was over");
    }
    if runs.is_empty() {
        say("a signal ended the run before anything was counted, so that there is nothing to show");
        return Ok(ExitCode::from(ends.pop().map_or(0, End::status)));
    }
    let all = Runs { missed, ..of_runs(&runs, wanted, ends) };
    let written = out.repeated(&all, text(&all), values(&all));
    if args.csv {
        beside_csv(args, &all.source, &all.topdown_remark);
        warn(&all.remarks());
        warn(super::text::left_out(all.processes_left_out).as_slice());
    }
    status(written, all.ends.iter().map(|end| end.status()).find(|status| *status != 0).unwrap_or(0))
}

/// What the runs, of which there is one at least, come to.
fn of_runs(runs: &[Counted], wanted: u32, ends: Vec<End>) -> Runs {
    let first = &runs[0];
    Runs {
        source: first.source.clone(),
        target: first.target.clone(),
        delay_ns: first.delay_ns,
        wanted,
        done: runs.len() as u64,
        missed: 0,
        rows: rows(runs),
        not_counted: not_counted(runs),
        processes_left_out: runs.iter().map(|run| run.processes_left_out).sum(),
        topdown_remark: first.topdown_remark.clone(),
        warnings: warnings(runs),
        ends,
    }
}

/// Each warning of a run once, and of how many runs it is where it is not of all.
fn warnings(runs: &[Counted]) -> Vec<String> {
    let mut all: Vec<(&String, usize)> = Vec::new();
    for warning in runs.iter().flat_map(|run| &run.warnings) {
        match all.iter_mut().find(|(known, _)| *known == warning) {
            Some((_, times)) => *times += 1,
            None => all.push((warning, 1)),
        }
    }
    let told = |(warning, times): (&String, usize)| {
        if times == runs.len() { warning.clone() } else { format!("of {times} of the runs: {warning}") }
    };
    all.into_iter().map(told).collect()
}

impl Runs {
    /// What has to be known of the counts beside them.
    fn remarks(&self) -> Vec<String> {
        let Self { done, missed, wanted, .. } = *self;
        let missed_too = (missed > 0)
            .then(|| format!("{missed} of the runs ended before the delay was over, and are left out"));
        let fewer = (done + missed < u64::from(wanted)).then(|| {
            format!("only {} of {wanted} runs came to their end: a signal ended the last one", done + missed)
        });
        let said = self.warnings.iter().cloned().chain(self.lacking());
        [missed_too, fewer, self.failed()].into_iter().flatten().chain(said).collect()
    }

    /// How many failed, and the signals that ended any. That one is interrupted is not its failure.
    fn failed(&self) -> Option<String> {
        let is_failure = |end: &&End| match end {
            End::Exit(status) => *status != 0,
            End::Killed(_) => true,
            End::Interrupted(_) | End::Stopped => false,
        };
        let failed = self.ends.iter().filter(is_failure).count();
        let killed = self.ends.iter().filter_map(|end| match end {
            End::Killed(signal) => Some(*signal),
            _ => None,
        });
        let signals: Vec<String> = BTreeSet::from_iter(killed).into_iter().map(signal_name).collect();
        let by = if signals.is_empty() { String::new() } else { format!(", by {}", signals.join(" and ")) };
        (failed > 0).then(|| format!("{failed} of the runs ended with a failure{by}"))
    }

    /// What is in no row.
    fn lacking(&self) -> Option<String> {
        let names = self.not_counted.join(", ");
        (!names.is_empty()).then(|| format!("in no run did these events have their turn: {names}"))
    }
}

fn not_counted(runs: &[Counted]) -> Vec<String> {
    let never = |place: &usize| runs.iter().all(|run| run.events[*place].scaled.is_none());
    let places = (0..runs[0].events.len()).filter(never);
    places.map(|place| runs[0].events[place].name.clone()).collect()
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
        rows.extend(row(&event.name, unit(&event.name).unwrap_or_default(), scaled, &count));
        if let Some(metric) = runs.iter().find_map(|run| run.events[place].metric) {
            let value = |run: &Counted| run.events[place].metric.map(|metric| metric.value);
            rows.extend(row(&event.name, metric.unit, scaled, &value));
        }
    }
    let scaled = runs.iter().flat_map(|run| &run.events).any(EventCount::took_turns);
    // A run in which an event never had its turn has no shares.
    let with_shares = runs.iter().find(|run| !run.topdown.is_empty());
    for share in with_shares.into_iter().flat_map(|run| &run.topdown) {
        let same = |other: &&Share| {
            (other.cores, other.name, other.part_of) == (share.cores, share.name, share.part_of)
        };
        let value = |run: &Counted| run.topdown.iter().find(same).map(|share| share.share * 100.0);
        rows.extend(row(&share.label(), "%", scaled, &value));
    }
    rows.extend(row("on a CPU", "s", false, &|run| Some(run.on_cpu_ns as f64 / 1e9)));
    rows.extend(row("user", "s", false, &|run| Some(run.user_ns? as f64 / 1e9)));
    rows.extend(row("system", "s", false, &|run| Some(run.system_ns? as f64 / 1e9)));
    rows.extend(row("elapsed", "s", false, &|run| Some(run.elapsed_ns as f64 / 1e9)));
    rows
}

/// A mean of counts: small ones are seldom whole.
fn mean(value: f64) -> String {
    if value < 100.0 && value.fract() != 0.0 { format!("{value:.2}") } else { grouped(value.round() as u64) }
}

fn text(runs: &Runs) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["mean", "±", "", "least", "greatest", "", ""]);
    for Row { name, unit, values, scaled } in &runs.rows {
        let number = |value: f64| match *unit {
            "" => mean(value),
            "ns" => time(value.round() as u64),
            "s" => time((value * 1e9).round() as u64),
            _ => format!("{value:.3}"),
        };
        // One run tells nothing of how others scatter.
        let interval = values.interval.map_or_else(|| "-".to_owned(), number);
        let percent = match values.interval {
            Some(interval) if values.mean > 0.0 => format!("({:.2} %)", interval * 100.0 / values.mean),
            _ => String::new(),
        };
        let of =
            if values.runs < runs.done { format!("in {} of the runs", values.runs) } else { String::new() };
        let what = match (of.as_str(), *scaled) {
            (_, false) => of,
            ("", true) => "scaled".to_owned(),
            (of, true) => format!("{of}, scaled"),
        };
        // Times have units of their own.
        let name = if matches!(*unit, "" | "ns" | "s") { name.clone() } else { format!("{unit} ({name})") };
        let cells = [number(values.mean), interval, percent, number(values.min), number(values.max)];
        table.add_row(cells.into_iter().chain([name, what]));
    }
    for column in table.column_iter_mut().take(5) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let warnings: String = runs.remarks().iter().map(|what| format!("\nWarning: {what}.")).collect();
    let left_out =
        super::text::left_out(runs.processes_left_out).map_or_else(String::new, |what| format!("\n{what}."));
    let remark = match runs.topdown_remark.as_str() {
        "" => String::new(),
        remark => format!("\n{remark}"),
    };
    format!(
        "\nCounts of {}{} in {}:\n\n{}\n\n± is the mean's 95 % interval by Student's t, for runs that are independent \
         and scatter normally.{remark}{warnings}\nSource: {}.{left_out}",
        runs.target,
        without(runs.delay_ns),
        counted(runs.done, "run"),
        table.trim_fmt(),
        runs.source
    )
}

fn values(runs: &Runs) -> String {
    let header = ["name", "unit", "runs", "mean", "interval95", "deviation", "min", "max", "scaled"];
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    let row = |row: &Row| {
        let of = &row.values;
        csv_line([
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
    csv_line(header) + &runs.rows.iter().map(row).collect::<String>()
}

#[cfg(test)]
mod tests {
    use libhpm::analysis::topdown;

    use super::*;
    use crate::stat::text::tests::{counted, event};

    fn runs() -> Runs {
        let run = |instructions, elapsed_ns| {
            let events = vec![event("cycles", 1_000_000, true), event("instructions", instructions, true)];
            Counted { elapsed_ns, ..counted(events) }
        };
        let all =
            [run(1_000_000, 2_000_000_000), run(1_200_000, 3_000_000_000), run(1_400_000, 2_500_000_000)];
        of_runs(&all, 3, [0, 3, 0].map(End::Exit).into())
    }

    /// As the plain form tells it.
    #[test]
    fn what_is_missing_and_what_is_scaled_is_told_of_runs_too() {
        let plan = topdown::plan("gracemont", 2, false).unwrap();
        let run = |left_out| {
            let events = plan.events.iter().map(|name| event(name, 20, true)).collect();
            let mut one = Counted { processes_left_out: left_out, ..counted(events) };
            one.events[1].running_ns /= 2;
            one.topdown = plan.shares(&vec![Some(20); plan.events.len()]);
            one.topdown_remark = plan.remark();
            one
        };
        let all = of_runs(&[run(2), run(1)], 2, vec![End::Exit(0); 2]);
        let shares: Vec<_> = all.rows.iter().filter(|row| row.unit == "%").collect();
        assert!(!shares.is_empty() && shares.iter().all(|row| row.scaled));
        let text = text(&all);
        assert!(text.contains("Missing in the counts are 3 processes"), "{text}");
        assert!(!plan.remark().is_empty() && text.contains(&plan.remark()), "{text}");
        let json = serde_json::to_value(&all).unwrap();
        assert_eq!(
            (&json["processes_left_out"], &json["topdown_remark"]),
            (&3.into(), &plan.remark().into())
        );
    }

    /// An event that had no turn in one run, and one that never had any, end no run.
    #[test]
    fn runs_are_counted_and_those_of_each_event_told() {
        let run = |first: Option<u64>| {
            let mut one =
                counted(vec![event("load", 0, true), event("cycles", 5, true), event("store", 0, true)]);
            (one.events[0].scaled, one.events[2].scaled) = (first, None);
            one.warnings = ["no turn", "an old kernel"][usize::from(first.is_some())..]
                .iter()
                .map(ToString::to_string)
                .collect();
            one
        };
        let all = of_runs(&[run(None), run(Some(7)), run(Some(9))], 3, vec![End::Exit(0); 3]);
        let shown = text(&all);
        assert!(shown.contains("in 3 runs") && !shown.contains("signal ended"), "{shown}");
        assert!(
            shown.lines().any(|line| line.contains("load") && line.ends_with("in 2 of the runs")),
            "{shown}"
        );
        assert!(shown.contains("in no run did these events have their turn: store"), "{shown}");
        let warned = "Warning: of 1 of the runs: no turn.\nWarning: an old kernel.\n";
        assert!(shown.contains(warned), "{shown}");
        let ended = text(&of_runs(&[run(Some(7))], 3, vec![End::Exit(0), End::Interrupted(130)]));
        assert!(
            ended.contains("only 1 of 3 runs came to their end")
                && ended.contains("in 1 run:")
                && !ended.contains("failure")
                && !ended.contains("NaN"),
            "{ended}"
        );
    }

    #[test]
    fn small_means_are_not_rounded() {
        assert_eq!([0.0, 0.5, 6.353, 99.0, 1234.5].map(mean), ["0", "0.50", "6.35", "99", "1,235"]);
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
