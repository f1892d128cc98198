//! The counts as a table for people.

use comfy_table::{CellAlignment, Table, presets};

use super::{Counted, EventCount};
use crate::output::{grouped, time};

/// The table, and the times.
pub(super) fn text(counted: &Counted) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for event in &counted.events {
        let count = event.scaled.map_or_else(|| "not counted".to_owned(), grouped);
        table.add_row([count, event.name.clone(), remark(event, counted), share(event)]);
    }
    if let Some(column) = table.column_mut(0) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let kind = if counted.idle_included { "of CPU time, idle included" } else { "on a CPU" };
    let on_cpu = format!("{} {kind}", time(counted.on_cpu_ns));
    let times = match counted.elapsed_ns {
        0 => on_cpu,
        elapsed if counted.idle_included => format!("{on_cpu}, in {}", time(elapsed)),
        elapsed => format!(
            "{on_cpu} in {} ({:.2} CPUs used)",
            time(elapsed),
            counted.on_cpu_ns as f64 / elapsed as f64
        ),
    };
    let mut text = format!("\nCounts of {}:\n\n{}\n\n{times}", counted.target, table.trim_fmt());
    text += &format!("\nSource: {}.", counted.source);
    if counted.processes_left_out > 0 {
        text += &format!(
            "\nMissing in the counts are {} processes that were forked while the driver's table was full.",
            counted.processes_left_out
        );
    }
    if counted.events.iter().any(EventCount::took_turns) {
        text += "\nCounts with a percentage are scaled: the events took turns, and each was counted in that share of the time.";
    }
    if counted.events.iter().any(|event| event.kernel) {
        text += "\nKernel mode is counted from the scheduler's switch to the measured thread to the switch away from it.";
    }
    text
}

/// In how much of the time an event was counted that had to take turns.
fn share(event: &EventCount) -> String {
    if !event.took_turns() {
        return String::new();
    }
    format!("({:.1} % of the time)", event.running_ns as f64 * 100.0 / event.enabled_ns as f64)
}

/// What the count means beside the others, where one that it is commonly related to was counted at the same privilege.
fn remark(event: &EventCount, counted: &Counted) -> String {
    let other = |names: &[&str]| {
        counted.events.iter().find(|other| {
            names.contains(&base(&other.name)) && (other.user, other.kernel) == (event.user, event.kernel)
        })
    };
    let per = |names: &[&str], scale: f64, unit: &str, digits: usize| {
        let count = other(names).and_then(|other| other.scaled).filter(|&count| count > 0)?;
        Some(format!("{:.digits$} {unit}", event.scaled? as f64 * scale / count as f64))
    };
    let remark = match base(&event.name) {
        "cycles" => (counted.on_cpu_ns > 0 && event.user && event.kernel)
            .then(|| event.scaled.map(|count| format!("{:.3} GHz", count as f64 / counted.on_cpu_ns as f64)))
            .flatten(),
        "instructions" => per(&["cycles"], 1.0, "per cycle", 2),
        "branch-misses" | "branch-miss" => per(&["branches", "branch"], 100.0, "% of branches", 2),
        "l1d-load-miss" => per(&["load"], 100.0, "% of loads", 2)
            .or_else(|| per(&["instructions"], 1000.0, "per 1000 instructions", 2)),
        _ => per(&["instructions"], 1000.0, "per 1000 instructions", 2),
    };
    remark.unwrap_or_default()
}

/// The name without modifiers.
fn base(name: &str) -> &str {
    name.split_once(':').map_or(name, |(base, _)| base)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(name: &str, count: u64, kernel: bool) -> EventCount {
        let (enabled_ns, running_ns) = (1_500_000, 1_500_000);
        let scaled = Some(count);
        EventCount {
            name: name.into(),
            encoding: 0,
            user: true,
            kernel,
            count,
            scaled,
            enabled_ns,
            running_ns,
        }
    }

    fn counted(events: Vec<EventCount>) -> Counted {
        Counted {
            source: "the hpm module, on the skylake PMU".into(),
            target: "`ls -l`".into(),
            events,
            elapsed_ns: 2_000_000,
            on_cpu_ns: 1_500_000,
            idle_included: false,
            pmis: 1,
            msr_reads: 20,
            msr_writes: 30,
            processes_left_out: 0,
            exit_status: Some(0),
        }
    }

    #[test]
    fn counts_relate_to_each_other() {
        insta::assert_snapshot!(text(&counted(vec![
            event("cycles", 4_500_000, true),
            event("instructions", 9_000_000, true),
            event("branches", 1_234_567, true),
            event("branch-misses", 12_345, true),
            event("l1d-load-miss", 999, true),
        ])));
    }

    #[test]
    fn counts_made_in_turns_are_scaled_and_say_so() {
        let mut turns = event("branches", 400_000, false);
        (turns.scaled, turns.running_ns) = (Some(600_000), 1_000_000);
        let mut never = event("l1d-load-miss", 0, false);
        (never.scaled, never.running_ns) = (None, 0);
        insta::assert_snapshot!(text(&counted(vec![event("instructions", 3_000_000, false), turns, never])));
    }

    #[test]
    fn processes_that_are_missing_are_told() {
        let mut some = counted(vec![event("instructions:u", 9_000_000, false)]);
        assert!(!text(&some).contains("Missing"));
        some.processes_left_out = 3;
        assert!(text(&some).contains("Missing in the counts are 3 processes"));
    }

    /// A count of user mode does not relate to one of both modes.
    #[test]
    fn counts_of_different_privilege_are_not_related() {
        insta::assert_snapshot!(text(&counted(vec![
            event("instructions:u", 9_000_000, false),
            event("branches:u", 0, false),
            event("branch-misses:u", 0, false),
        ])));
        let mixed = counted(vec![event("cycles", 10, true), event("instructions:u", 10, false)]);
        assert_eq!(remark(&mixed.events[1], &mixed), "");
    }

    #[test]
    fn the_json_has_every_count() {
        let json = serde_json::to_string_pretty(&counted(vec![event("cycles:u", u64::MAX, false)])).unwrap();
        insta::assert_snapshot!(json);
    }
}
