//! The counts as a table for people.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use libhpm::analysis::topdown::Share;

use super::breakdown::Who;
use super::{Counted, EventCount, Slice};
use crate::output::time;

/// The table, and the times.
pub(super) fn text(counted: &Counted) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    for event in &counted.events {
        let metric = event.metric.as_ref().map_or_else(String::new, ToString::to_string);
        table.add_row([event.shown(), event.name.clone(), metric, share(event)]);
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
    let times = match (counted.user_ns, counted.system_ns) {
        (Some(user), Some(system)) => format!("{times}; user {}, system {}", time(user), time(system)),
        _ => times,
    };
    let without = without(counted.delay_ns);
    let mut text = format!("\nCounts of {}{without}:\n\n{}\n\n{times}", counted.target, table.trim_fmt());
    if !counted.parts.is_empty() {
        text += &format!("\n\n{}\n", parts(&counted.parts));
    }
    text += &topdown(counted);
    text += &format!("\nSource: {}.", counted.source);
    for warning in &counted.warnings {
        text += &format!("\nWarning: {warning}.");
    }
    for sentence in lost_in_parts(counted).into_iter().chain(left_out(counted.processes_left_out)) {
        text += &format!("\n{sentence}.");
    }
    if counted.events.iter().any(EventCount::took_turns) {
        text += "\nCounts with a percentage are scaled: each was counted in that share of the time, and waited for its turn in the rest.";
    }
    if counted.of_threads && counted.events.iter().any(|event| event.kernel) {
        text += "\nKernel mode is counted from the scheduler's switch to the measured thread to the switch away from it.";
    }
    text
}

/// What the parts lack.
pub(super) fn lost_in_parts(counted: &Counted) -> Option<String> {
    (counted.quanta_lost > 0 && !counted.parts.is_empty()).then(|| {
        format!(
            "Missing in the parts, but not in the sums, is what was counted in {} quanta that found no room",
            counted.quanta_lost
        )
    })
}

/// What a delay has left out, behind the name of what was measured.
pub(super) fn without(delay_ns: Option<u64>) -> String {
    delay_ns.map_or_else(String::new, |delay| format!(", without its first {}", time(delay)))
}

/// What counts lack in which so many processes are missing.
pub(super) fn left_out(processes: u64) -> Option<String> {
    (processes > 0).then(|| {
        format!(
            "Missing in the counts are {processes} processes that were forked while the driver's table was full"
        )
    })
}

/// The counts of each thread or CPU, one column for each event.
fn parts(parts: &[Slice]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let names = parts[0].events.iter().map(|event| event.name.clone());
    let who = parts[0].who.as_ref().map_or(vec![], Who::columns);
    table.set_header(std::iter::once("on a CPU".to_owned()).chain(names).chain(who));
    for part in parts {
        let counts = part.events.iter().map(count_in_part);
        let who = part.who.as_ref().map_or(vec![], Who::cells);
        table.add_row(std::iter::once(time(part.on_cpu_ns)).chain(counts).chain(who));
    }
    for column in table.column_iter_mut().take(1 + parts[0].events.len()) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// A count of a thread or CPU, with the part of its time in which it was counted.
fn count_in_part(event: &EventCount) -> String {
    let count = event.shown();
    if !event.took_turns() {
        return count;
    }
    format!("{count} ({:.1} %)", running_percent(event))
}

/// Where issue slots went; the second level below the part of the first that it splits.
fn topdown(counted: &Counted) -> String {
    if counted.topdown.is_empty() && counted.topdown_remark.is_empty() {
        return String::new();
    }
    let row = |share: &Share| {
        let indent = if share.part_of.is_some() { "      " } else { "" };
        format!("\n{indent}{:>6.1} %  {}", share.share * 100.0, share.label())
    };
    let rows: String = counted.topdown.iter().map(row).collect();
    let rows = if rows.is_empty() {
        "\nWhere slots went cannot be told: an event was never counted.".into()
    } else {
        rows
    };
    let remark = if counted.topdown_remark.is_empty() {
        String::new()
    } else {
        format!("\n{}", counted.topdown_remark)
    };
    format!("\n{rows}{remark}\n")
}

/// A line of a measurement in intervals: when, who, count, event, what it means.
pub(super) fn interval(slice: &Slice) -> String {
    let mut text = String::new();
    let at = slice.until_ns.unwrap_or(0) as f64 / 1e9;
    let who = slice.who.as_ref().map_or_else(String::new, |who| format!("{:<24} ", who.cells().join(" ")));
    for event in &slice.events {
        let count = event.shown();
        let metric = event.metric.as_ref().map_or_else(String::new, ToString::to_string);
        let line = format!("{at:>10.3} s  {who}{count:>18}  {:<22} {metric} {}", event.name, share(event));
        text += line.trim_end();
        text.push('\n');
    }
    for share in &slice.topdown {
        let indent = if share.part_of.is_some() { "  " } else { "" };
        text += &format!("{at:>10.3} s  {who}{:>16.1} %  {indent}{}\n", share.share * 100.0, share.label());
    }
    text
}

/// In how much of the time an event was counted that had to take turns.
fn share(event: &EventCount) -> String {
    if !event.took_turns() {
        return String::new();
    }
    format!("({:.1} % of the time)", running_percent(event))
}

fn running_percent(event: &EventCount) -> f64 {
    event.running_ns as f64 * 100.0 / event.enabled_ns as f64
}

#[cfg(test)]
pub(in crate::stat) mod tests {
    use libhpm::analysis::topdown;
    use libhpm::trace::{Event, Totals};

    use super::*;
    use crate::output::unit;
    use crate::stat::{event_counts, metric};

    pub(in crate::stat) fn event(name: &str, count: u64, kernel: bool) -> EventCount {
        let (enabled_ns, running_ns) = (1_500_000, 1_500_000);
        let scaled = Some(count);
        EventCount {
            name: name.into(),
            encoding: 0,
            user: true,
            kernel,
            count,
            unit: unit(name),
            scaled,
            enabled_ns,
            running_ns,
            metric: None,
        }
    }

    pub(in crate::stat) fn counted(mut events: Vec<EventCount>) -> Counted {
        metric::relate(&mut events, 1_500_000);
        Counted {
            source: "the hpm module, on the skylake PMU".into(),
            target: "`ls -l`".into(),
            events,
            elapsed_ns: 2_000_000,
            on_cpu_ns: 1_500_000,
            user_ns: None,
            system_ns: None,
            idle_included: false,
            of_threads: true,
            pmis: 1,
            msr_reads: 20,
            msr_writes: 30,
            processes_left_out: 0,
            quanta_lost: 0,
            exit_status: Some(0),
            missed: false,
            delay_ns: None,
            topdown: vec![],
            topdown_remark: String::new(),
            warnings: vec![],
            parts: vec![],
        }
    }

    #[test]
    fn counts_of_one_type_of_core_relate_to_those_of_the_same() {
        let [_, _, core, atom, missed, _] = &counted(vec![
            event("cycles", 4_500_000, true),
            event("instructions", 9_000_000, true),
            event("cpu_core/load/", 1_000, true),
            event("cpu_atom/load/", 10, true),
            event("cpu_atom/l1d-load-miss/", 5, true),
            event("cpu_core/load/u", 900, false),
        ])
        .events[..] else {
            panic!("six events")
        };
        assert!(core.metric.is_none() && atom.metric.is_none(), "instructions are those of all cores");
        assert_eq!(missed.metric.as_ref().map(ToString::to_string).as_deref(), Some("50.00 % of loads"));
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

    #[test]
    fn clocks_are_times() {
        let mut some = counted(vec![event("task-clock:u", 171_982_100, false), event("load", 7, true)]);
        assert!(text(&some).contains("171.982 ms  task-clock:u"), "{}", text(&some));
        assert_eq!(some.events[1].shown(), "7");
        let json = serde_json::to_value(&some).unwrap();
        assert_eq!((&json["events"][0]["unit"], json["events"][1].get("unit")), (&"ns".into(), None));
        some.events[0].scaled = None;
        assert_eq!(some.events[0].shown(), "not counted");
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
        assert!(mixed.events[1].metric.is_none());
    }

    #[test]
    fn the_json_has_every_count() {
        let json = serde_json::to_string_pretty(&counted(vec![event("cycles:u", u64::MAX, false)])).unwrap();
        insta::assert_snapshot!(json);
    }

    #[test]
    fn threads_stand_below_the_sums() {
        let mut all = counted(vec![event("instructions", 30, true), event("cycles", 60, true)]);
        let part = |tid, name: &str, counts: [u64; 2]| Slice {
            who: Some(Who::Thread { pid: 7, tid, thread: name.into(), earlier: 0 }),
            until_ns: None,
            on_cpu_ns: counts[1] * 1000,
            events: vec![event("instructions", counts[0], true), event("cycles", counts[1], true)],
            topdown: vec![],
        };
        all.parts = vec![part(7, "main", [20_000, 40_000]), part(8, "worker", [10, 20])];
        insta::assert_snapshot!(text(&all));
    }

    #[test]
    fn the_program_s_user_and_system_time_stand_behind_the_others() {
        let (user_ns, system_ns) = (Some(1_200_000), Some(300_000));
        let all = Counted { user_ns, system_ns, ..counted(vec![event("cycles", 5, true)]) };
        let text = text(&all);
        let times = "\n1.500 ms on a CPU in 2.000 ms (0.75 CPUs used); user 1.200 ms, system 300.000 µs\n";
        assert!(text.contains(times), "{text}");
    }

    /// Each thread had its own turns.
    #[test]
    fn counts_of_threads_made_in_turns_are_scaled_and_say_so() {
        let events = || vec![event("instructions", 30, false), event("branches", 0, false)];
        let clock = |ticks| ticks;
        let sums = |counts: [u64; 2], running: u64| Totals {
            counts: counts.into(),
            running_tsc: vec![1000, running],
            on_cpu_tsc: 1000,
            ..Totals::default()
        };
        let named: Vec<Event> = ["instructions", "branches"]
            .map(|name| Event { name: name.into(), user: true, ..Event::default() })
            .into();
        let part = |tid, sums: &Totals| Slice {
            who: Some(Who::Thread { pid: 7, tid, thread: "worker".into(), earlier: 0 }),
            until_ns: None,
            on_cpu_ns: sums.on_cpu_tsc,
            events: event_counts(&named, sums, clock),
            topdown: vec![],
        };
        let mut all = counted(events());
        all.events[1].running_ns /= 2;
        all.parts = vec![part(7, &sums([20, 5], 250)), part(8, &sums([10, 0], 0))];
        let text = text(&all);
        let lines: Vec<&str> = text.lines().filter(|line| line.ends_with("worker")).collect();
        assert!(lines[0].contains("20 (25.0 %)") && lines[1].contains("not counted (0.0 %)"), "{text}");
        assert!(text.contains("Counts with a percentage are scaled"), "{text}");
    }

    #[test]
    fn slots_stand_below_the_counts() {
        let plan = topdown::plan("gracemont", 2, false).unwrap();
        let counts = [20, 20, 20, 50, 15, 3, 8, 1];
        let mut all =
            counted(plan.events.iter().zip(counts).map(|(name, count)| event(name, count, true)).collect());
        all.topdown = plan.shares(&counts.map(Some));
        all.topdown_remark = plan.remark();
        insta::assert_snapshot!(text(&all));
        let slice = Slice {
            who: None,
            until_ns: Some(1_500_000_000),
            on_cpu_ns: 5,
            events: all.events,
            topdown: all.topdown,
        };
        insta::assert_snapshot!(interval(&slice));
    }
}
