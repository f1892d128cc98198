//! Profiles, selections and reports as text for people.

use std::fmt::Write as _;
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use libhpm::analysis::method::{Bottleneck, Component, GridPoint};

use super::folder::{FunctionRow, ProfileFile, SelectionFile};
use super::report::{Measured, Report};
use crate::output::{counted, grouped, time};

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}

/// A table of which the columns from `from` on are numbers.
fn table(head: &[&str], from: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(head.iter().copied());
    for row in rows {
        table.add_row(row);
    }
    for column in from..head.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let lines: Vec<String> = table.trim_fmt().lines().map(|row| format!("  {row}")).collect();
    lines.join("\n") + "\n"
}

/// A part as a percentage with three digits that say something.
fn percent(part: f64) -> String {
    let percent = 100.0 * part;
    match percent.abs() {
        _ if part.is_nan() => "–".to_owned(),
        _ if percent == 0.0 => "0 %".to_owned(),
        10.0.. => format!("{percent:.1} %"),
        1.0.. => format!("{percent:.2} %"),
        0.001.. => format!("{percent:.3} %"),
        _ => format!("{percent:.0e} %"),
    }
}

fn number(value: f64) -> String {
    match value.abs() {
        _ if value.is_nan() => "–".to_owned(),
        100.0.. => format!("{value:.0}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.4}"),
    }
}

fn file_name(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).unwrap_or(path)
}

/// Step 1: functions with most time, and by whom it was spent.
pub(super) fn profile(profile: &ProfileFile, show: usize) -> String {
    let mut text = String::new();
    line(&mut text, format_args!("command   {}", profile.command.join(" ")));
    line(&mut text, format_args!("times     {}", profile.clock));
    let calls = profile.functions.iter().map(|row| row.calls).sum::<u64>();
    line(
        &mut text,
        format_args!(
            "profile   {} in {}, {}, {}",
            profile.time(profile.total()),
            counted(profile.functions.len() as u64, "function"),
            counted(calls, "call"),
            counted(profile.threads.len() as u64, "thread")
        ),
    );
    if let Some(least) = profile.least_bytes {
        line(
            &mut text,
            format_args!(
                "filter    {} functions of at most {least} bytes that cannot loop are left out, and with them {} calls",
                profile.left_out,
                grouped(profile.skipped / 2)
            ),
        );
    }
    line(
        &mut text,
        format_args!(
            "shim      {:.1} {} for an entry or exit, {:.1} for one that is left out; subtracted. {:.1} where `measure` counts",
            profile.cost * scale(profile),
            unit(profile),
            profile.skip_cost * scale(profile),
            profile.measured_cost * scale(profile)
        ),
    );
    if profile.unwound > 0 {
        line(
            &mut text,
            format_args!("unwound   {} ended by an exception or longjmp", counted(profile.unwound, "call")),
        );
    }
    text.push('\n');
    text + &functions(profile, show)
}

/// The table of Figure 3, the most time first.
fn functions(profile: &ProfileFile, show: usize) -> String {
    let mut text = String::new();
    let mut rows: Vec<&FunctionRow> = profile.functions.iter().filter(|row| row.calls > 0).collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.total), row.name.clone()));
    let all = profile.total() as f64;
    let cells = |row: &&FunctionRow| {
        vec![
            row.name.clone(),
            profile.time(row.total),
            percent(row.total as f64 / all),
            profile.time(row.own),
            profile.time(row.total / row.calls.max(1)),
            grouped(row.calls),
        ]
    };
    text += &table(
        &["function", "total", "of all", "own", "per call", "calls"],
        1,
        rows.iter().take(show).map(cells),
    );
    if rows.len() > show {
        line(&mut text, format_args!("   and {} more functions (--show)", rows.len() - show));
    }
    text
}

fn scale(profile: &ProfileFile) -> f64 {
    profile.ticks_per_ms.map_or(1.0, |per_ms| 1e6 / per_ms)
}

fn unit(profile: &ProfileFile) -> &'static str {
    if profile.ticks_per_ms.is_some() { "ns" } else { "cycles" }
}

/// Figure 4 as a table: of the grid's rows and columns those at which something changes.
pub(super) fn grid(points: &[GridPoint]) -> String {
    let mut weights: Vec<f64> = points.iter().map(|point| point.thresholds.weight).collect();
    weights.dedup();
    let columns = points.len() / weights.len().max(1);
    let rows: Vec<&[GridPoint]> = points.chunks(columns.max(1)).collect();
    let cell = |point: &GridPoint| (point.functions, point.invocations);
    let changed_rows: Vec<usize> = (0..rows.len())
        .filter(|&row| row == 0 || !rows[row].iter().map(cell).eq(rows[row - 1].iter().map(cell)))
        .collect();
    let changed_columns: Vec<usize> = (0..columns)
        .filter(|&column| column == 0 || rows.iter().any(|row| cell(&row[column]) != cell(&row[column - 1])))
        .collect();
    let mut head = vec!["weight \\ grain".to_owned()];
    head.extend(changed_columns.iter().map(|&column| percent(points[column].thresholds.grain)));
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    let row = |&row: &usize| {
        let of = |&column: &usize| {
            let point = &rows[row][column];
            match point.functions {
                0 => "–".to_owned(),
                functions => format!("{functions}: {}", percent(point.estimated_overhead)),
            }
        };
        let mut cells = vec![percent(weights[row])];
        cells.extend(changed_columns.iter().map(of));
        cells
    };
    let body = table(&head, 1, changed_rows.iter().map(row));
    format!("phases, and their calls as a part of all calls (the estimated overhead as published)\n{body}\n")
}

/// Step 2's choice.
pub(super) fn selection(profile: &ProfileFile, selection: &SelectionFile) -> String {
    let mut text = String::new();
    let thresholds = selection.thresholds();
    line(
        &mut text,
        format_args!(
            "selected  {} of {} functions: weight above {}, grain above {}",
            selection.functions.len(),
            profile.functions.len(),
            percent(thresholds.weight),
            percent(thresholds.grain)
        ),
    );
    line(
        &mut text,
        format_args!(
            "overhead  estimated: {} of {} calls, {}; logging them takes {} of the time{}",
            grouped(selection.invocations),
            grouped(profile.profile().calls()),
            percent(selection.estimated_overhead),
            percent(selection.estimated_time_overhead),
            match profile.set_up_overhead() {
                0.0 => String::new(),
                set_up => format!(", {} once for each process", percent(set_up)),
            }
        ),
    );
    line(
        &mut text,
        format_args!(
            "          the other functions' calls of the shim take {}: `hpmctl methods exclude` says how to compile without them",
            percent(profile.skip_overhead(selection.invocations))
        ),
    );
    text.push('\n');
    let all = profile.total() as f64;
    let cells = |&function: &u32| {
        let row = &profile.functions[function as usize];
        vec![
            row.name.clone(),
            percent(row.total as f64 / all),
            percent(row.total as f64 / row.calls.max(1) as f64 / all),
            grouped(row.calls),
        ]
    };
    text += &table(&["phase", "weight", "grain", "calls"], 1, selection.functions.iter().map(cells));
    text
}

/// Steps 1 and 3.
pub(super) fn report(report: &Report) -> String {
    let mut text = String::new();
    line(&mut text, format_args!("command   {}", report.command.join(" ")));
    line(&mut text, format_args!("times     {}", report.clock));
    text += &components("component", &report.modules, true);
    text += &components("thread", &report.threads, false);
    match (&report.selection, &report.measured) {
        (_, Some(measured)) => text += &self::measured(report, measured),
        (Some(_), None) => text += "\nnothing has been measured yet: `hpmctl methods measure`\n",
        (None, None) => text += "\nno phases are selected yet: `hpmctl methods select --overhead 1%`\n",
    }
    if let Some(path) = &report.picture {
        line(&mut text, format_args!("\npicture: {}", path.display()));
    }
    text
}

/// Application against runtime components (Table 5).
fn components(what: &str, components: &[Component], files: bool) -> String {
    let cells = |one: &Component| {
        let name = if files { file_name(&one.name) } else { one.name.as_str() };
        vec![name.to_owned(), percent(one.share), grouped(one.calls)]
    };
    format!("\n{}", table(&[what, "own time", "calls"], 1, components.iter().map(cells)))
}

fn measured(report: &Report, measured: &Measured) -> String {
    let mut text = String::from("\n");
    let least = measured.runs_by_event.values().min().copied().unwrap_or(0);
    let runs = if measured.runs_by_event.is_empty() {
        format!("time alone, in {}", counted(measured.runs as u64, "run"))
    } else {
        format!(
            "{}; each event counted in {least} or more of them and averaged",
            counted(measured.runs as u64, "run")
        )
    };
    line(&mut text, format_args!("measured  {runs}"));
    line(&mut text, format_args!("counting  {}", measured.counting));
    let estimated = report.selection.as_ref().map_or(f64::NAN, |selection| selection.estimated_overhead);
    match measured.real_overhead {
        Some(real) => line(
            &mut text,
            format_args!("overhead  estimated {}, real {} of real time", percent(estimated), percent(real)),
        ),
        None => line(
            &mut text,
            format_args!(
                "overhead  estimated {}; `measure --baseline` measures the real one",
                percent(estimated)
            ),
        ),
    }
    text += &bottlenecks(measured);
    text += &variability(measured);
    text += &boxes(measured);
    text
}

/// Table 6.
fn bottlenecks(measured: &Measured) -> String {
    let found = &measured.bottlenecks;
    let by_cpi = found.whole.cpi.is_some();
    let per = found.base.as_ref().map_or_else(|| "per ms".to_owned(), |base| format!("per 1,000 {base}"));
    let mut head = vec!["phase".to_owned(), "time".to_owned(), "per call".to_owned()];
    head.extend(by_cpi.then(|| "CPI".to_owned()));
    let name =
        |name: &String| if found.per_ms.contains(name) { format!("{name} per ms") } else { name.clone() };
    head.extend(found.events.iter().map(name));
    head.push("stands out".to_owned());
    let cells = |row: &Bottleneck| {
        let name = row.function.and_then(|function| measured.names.get(&function).cloned());
        let optional = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), number);
        let mut cells = vec![
            name.unwrap_or_else(|| "(the whole program)".to_owned()),
            percent(row.share),
            row.per_call_ns.map_or_else(|| "–".to_owned(), |ns| time(ns as u64)),
        ];
        cells.extend(by_cpi.then(|| optional(row.cpi)));
        cells.extend(row.rates.iter().map(|rate| optional(*rate)));
        let cause = row.cause.map(|(place, factor)| format!("{} × {}", found.events[place], number(factor)));
        cells.push(cause.unwrap_or_default());
        cells
    };
    let rows = found.rows.iter().chain([&found.whole]).map(cells);
    let head: Vec<&str> = head.iter().map(String::as_str).collect();
    format!(
        "\nbottlenecks, the {} first; events {per}\n{}",
        if by_cpi { "highest CPI" } else { "longest calls" },
        table(&head, 1, rows)
    )
}

/// Figure 5 and Table 4.
fn variability(measured: &Measured) -> String {
    if measured.variability.is_empty() {
        return String::new();
    }
    let cells = |one: &super::report::Variability| {
        let mut cells = vec![one.metric.clone(), percent(one.cov_within), percent(one.left_out)];
        match (&one.anova, &one.no_anova) {
            (Some(anova), _) => cells.extend([
                number(anova.f),
                format!("({}, {})", anova.between, anova.within),
                if anova.p < 1e-16 { "< 1e-16".to_owned() } else { format!("{:.2e}", anova.p) },
            ]),
            (None, reason) => {
                cells.extend([reason.clone().unwrap_or_default(), String::new(), String::new()]);
            }
        }
        cells
    };
    let rows = measured.variability.iter().map(cells);
    format!(
        "\nvariability: CoV within phases, weighted by time, without those of a single call (so much of the phases' time is left \
         out); analysis of variance between them\n{}",
        table(&["metric", "CoV within", "left out", "F", "freedom", "p"], 1, rows)
    )
}

/// Figure 6 as numbers.
fn boxes(measured: &Measured) -> String {
    let mut text = String::new();
    for variability in &measured.variability {
        let rows = measured.phases.iter().filter_map(|phase| {
            let metric = phase.metrics.iter().find(|metric| metric.metric == variability.metric)?;
            let numbers = metric.numbers;
            let cells =
                [numbers.min, numbers.lower_quartile, numbers.median, numbers.upper_quartile, numbers.max]
                    .map(number);
            Some([vec![phase.name.clone(), metric.over_time.len().to_string()], cells.to_vec()].concat())
        });
        let head = ["phase", "calls", "min", "quarter", "median", "3 quarters", "max"];
        let _ = write!(text, "\n{}\n{}", variability.metric, table(&head, 1, rows));
    }
    text
}
