//! Which rows there are, in which order.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::model::{Process, Series, Slot, Subject, Thread, container};
use crate::screens::{Rows, View};

/// What a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Process(u32),
    Thread(u32, u32),
    Cgroup,
}

/// Where what a row did before is found.
enum Past<'a> {
    Process(&'a Series),
    Thread(&'a Thread),
    /// Several processes together.
    Processes(Vec<u32>),
}

/// A row.
pub(super) struct Line<'a> {
    pub(super) kind: Kind,
    pub(super) subject: Subject<'a>,
    pub(super) slot: Slot,
    past: Past<'a>,
    /// Processes of a control group.
    pub(super) members: usize,
    /// What stands before the name in a tree.
    branch: String,
}

impl Line<'_> {
    /// What is selected, when it is.
    pub(super) fn id(&self) -> u64 {
        match self.kind {
            Kind::Process(pid) => u64::from(pid) << 1,
            Kind::Thread(_, tid) => u64::from(tid) << 1 | 1,
            // Its name, which nobody else has.
            Kind::Cgroup => {
                self.subject.name.bytes().fold(1 << 63, |id: u64, byte| {
                    id.rotate_left(5) ^ u64::from(byte).wrapping_mul(0x9E37_79B9)
                })
            }
        }
    }

    /// Whether a text in small letters is in its name.
    pub(super) fn contains(&self, text: &str) -> bool {
        let holds = |own: &str| own.to_lowercase().contains(text);
        holds(self.subject.name) || holds(self.subject.command) || self.subject.tid.to_string() == text
    }

    /// The name with what belongs to it.
    pub(super) fn title(&self, rows: Rows) -> String {
        let Subject { name, process, command, ended, threads, .. } = self.subject;
        let name = if name.is_empty() { "(no name)" } else { name };
        let end = if ended { " (ended)" } else { "" };
        match (self.kind, rows) {
            (Kind::Cgroup, _) => match container(name) {
                "" => name.to_owned(),
                number => format!("container {number}  {name}"),
            },
            (Kind::Thread(..), Rows::Threads) if name != process && !process.is_empty() => {
                format!("{name} of {process}{end}")
            }
            (Kind::Process(_), _) => {
                let count = if threads > 1 { format!(" ×{threads}") } else { String::new() };
                let words = command.split_once(' ').map_or(String::new(), |(_, words)| format!("  {words}"));
                format!("{}{name}{count}{end}{words}", self.branch)
            }
            _ => format!("{}{name}{end}", self.branch),
        }
    }

    /// What it did in a slot.
    pub(super) fn slot_at(&self, view: &View<'_>, number: u64) -> Slot {
        match &self.past {
            Past::Process(series) => series.at(number),
            Past::Thread(thread) => view.model.thread_at(thread, number),
            Past::Processes(pids) => {
                let mut sum = Slot::default();
                for process in pids.iter().filter_map(|pid| view.model.processes.get(pid)) {
                    sum.add(&process.series.at(number));
                }
                sum
            }
        }
    }
}

/// All rows in order.
pub(super) fn lines<'a>(view: &View<'a>, folded: &BTreeSet<u32>) -> Vec<Line<'a>> {
    let (slot, interval_ns) = view.model.shown_slot();
    let settings = view.settings;
    let passes = |line: &Line<'_>| {
        (!settings.hide_idle || line.slot.on_cpu_ns > 0)
            && settings
                .filter
                .as_ref()
                .is_none_or(|filter| filter.holds(&line.subject, &line.slot, interval_ns))
    };
    let processes = || {
        let shown = |process: &&Process| !(settings.hide_kernel && process.kernel);
        view.model.processes.values().filter(shown)
    };
    let mut lines: Vec<Line<'a>> = match settings.rows {
        Rows::Processes => {
            processes().map(|process| of_process(view, process, slot)).filter(passes).collect()
        }
        Rows::Threads => {
            processes().flat_map(|process| of_threads(view, process, slot)).filter(passes).collect()
        }
        Rows::Cgroups => of_cgroups(processes(), slot).into_iter().filter(passes).collect(),
        Rows::Tree => return tree(view, processes(), slot, folded, &passes),
    };
    sort(view, &mut lines, interval_ns);
    lines
}

fn of_process<'a>(view: &View<'a>, process: &'a Process, slot: u64) -> Line<'a> {
    let first = view.model.threads.get(&process.pid);
    let threads = || process.tids.iter().filter_map(|tid| view.model.threads.get(tid));
    let alive = threads().filter(|thread| thread.ended_ns.is_none()).count();
    let name =
        if process.name.is_empty() { first.map_or("", |thread| thread.name.as_str()) } else { &process.name };
    Line {
        kind: Kind::Process(process.pid),
        subject: Subject {
            pid: process.pid,
            tid: process.pid,
            cpu: first.and_then(|thread| thread.cpu),
            threads: alive.max(1),
            name,
            process: name,
            command: &process.command,
            cgroup: &process.cgroup,
            ended: alive == 0 && !process.tids.is_empty(),
        },
        slot: process.series.at(slot),
        past: Past::Process(&process.series),
        members: 1,
        branch: String::new(),
    }
}

fn of_threads<'a>(view: &View<'a>, process: &'a Process, slot: u64) -> Vec<Line<'a>> {
    let threads = process.tids.iter().filter_map(|tid| view.model.threads.get(tid));
    let line = |thread: &'a crate::model::Thread| Line {
        kind: Kind::Thread(thread.pid, thread.tid),
        subject: Subject {
            pid: thread.pid,
            tid: thread.tid,
            cpu: thread.cpu,
            threads: 1,
            name: if thread.name.is_empty() { &process.name } else { &thread.name },
            process: &process.name,
            command: &process.command,
            cgroup: &process.cgroup,
            ended: thread.ended_ns.is_some(),
        },
        slot: view.model.thread_at(thread, slot),
        past: Past::Thread(thread),
        members: 1,
        branch: String::new(),
    };
    threads.map(line).collect()
}

fn of_cgroups<'a>(processes: impl Iterator<Item = &'a Process>, slot: u64) -> Vec<Line<'a>> {
    let mut groups: BTreeMap<&'a str, Line<'a>> = BTreeMap::new();
    for process in processes {
        let name = if process.cgroup.is_empty() { "(unknown)" } else { process.cgroup.as_str() };
        let line = groups.entry(name).or_insert_with(|| Line {
            kind: Kind::Cgroup,
            subject: Subject {
                pid: 0,
                tid: 0,
                cpu: None,
                threads: 0,
                name,
                process: name,
                command: "",
                cgroup: name,
                ended: false,
            },
            slot: Slot::default(),
            past: Past::Processes(Vec::new()),
            members: 0,
            branch: String::new(),
        });
        line.slot.add(&process.series.at(slot));
        line.subject.threads += process.tids.len();
        line.members += 1;
        if let Past::Processes(pids) = &mut line.past {
            pids.push(process.pid);
        }
    }
    groups.into_values().collect()
}

/// Puts lines into the order that was asked for; equal ones by their numbers.
fn sort(view: &View<'_>, lines: &mut [Line<'_>], interval_ns: u64) {
    let settings = view.settings;
    let turn = |order: Ordering| if settings.ascending { order } else { order.reverse() };
    let id = |line: &Line<'_>| (line.subject.pid, line.subject.tid);
    match (settings.sort.as_str(), view.columns.iter().find(|column| column.title == settings.sort)) {
        (_, Some(column)) => {
            let value = |line: &Line<'_>| {
                let value = column.value(&line.subject, &line.slot, interval_ns);
                // What is not known comes last either way.
                if value.is_finite() {
                    value
                } else if settings.ascending {
                    f64::INFINITY
                } else {
                    f64::NEG_INFINITY
                }
            };
            lines.sort_by_cached_key(|line| {
                let value = value(line);
                let value = if settings.ascending { value } else { -value };
                (Total(value), id(line))
            });
        }
        ("name", None) => {
            lines.sort_by(|a, b| turn(a.subject.name.cmp(b.subject.name)).then_with(|| id(a).cmp(&id(b))))
        }
        _ => lines.sort_by(|a, b| turn(id(a).cmp(&id(b)))),
    }
}

/// Numbers in their total order.
#[derive(PartialEq)]
struct Total(f64);

impl Eq for Total {}

impl PartialOrd for Total {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Total {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// Processes below their parents. What passes the filter is shown with those above it.
fn tree<'a>(
    view: &View<'a>,
    processes: impl Iterator<Item = &'a Process>,
    slot: u64,
    folded: &BTreeSet<u32>,
    passes: &dyn Fn(&Line<'_>) -> bool,
) -> Vec<Line<'a>> {
    let (_, interval_ns) = view.model.shown_slot();
    let mut nodes: BTreeMap<u32, Line<'a>> =
        processes.map(|process| (process.pid, of_process(view, process, slot))).collect();
    let parent = |pid: u32| view.model.processes.get(&pid).and_then(|process| process.parent);
    let mut kept: BTreeSet<u32> = BTreeSet::new();
    for (pid, line) in &nodes {
        let mut at = Some(*pid).filter(|_| passes(line));
        // Numbers that were given again could make a ring.
        while let Some(pid) = at.filter(|pid| nodes.contains_key(pid) && kept.insert(*pid)) {
            at = parent(pid);
        }
    }
    nodes.retain(|pid, _| kept.contains(pid));
    let mut order: Vec<Line<'a>> = nodes.into_values().collect();
    sort(view, &mut order, interval_ns);
    let mut children: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
    for (place, line) in order.iter().enumerate() {
        let above = parent(line.subject.pid).filter(|pid| kept.contains(pid) && *pid != line.subject.pid);
        children.entry(above).or_default().push(place);
    }
    let mut placed: Vec<Option<Line<'a>>> = order.into_iter().map(Some).collect();
    let mut lines = Vec::new();
    let mut open: Vec<(usize, String, bool)> = Vec::new();
    let mut push = |open: &mut Vec<(usize, String, bool)>, above: Option<u32>, before: &str| {
        let below = children.remove(&above).unwrap_or_default();
        let last = below.len().saturating_sub(1);
        open.extend(
            below.into_iter().enumerate().rev().map(|(nth, place)| (place, before.to_owned(), nth == last)),
        );
    };
    push(&mut open, None, "");
    while let Some((place, before, last)) = open.pop() {
        let Some(mut line) = placed[place].take() else { continue };
        let pid = line.subject.pid;
        let is_root = before.is_empty() && parent(pid).is_none_or(|above| !kept.contains(&above));
        let (corner, below) = match (is_root, last) {
            (true, _) => ("", " "),
            (_, true) => ("└ ", "  "),
            (_, false) => ("├ ", "│ "),
        };
        let sign = if folded.contains(&pid) { "+ " } else { "" };
        line.branch = format!("{before}{corner}{sign}");
        lines.push(line);
        if !folded.contains(&pid) {
            push(&mut open, Some(pid), &format!("{before}{below}"));
        }
    }
    lines
}
