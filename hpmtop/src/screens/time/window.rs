//! The time that is seen, and the quanta in it.

use libhpm::analysis::explore::{QuantumEnd, Timeline};
use ratatui::layout::Rect;
use std::collections::BTreeMap;

use super::Time;
use crate::model::{Quantum, Slot};
use crate::screens::View;

/// Columns of what stands to the left of the pictures.
const LABEL: u16 = 18;
/// Time that is seen at first, in slots.
const SLOTS: u64 = 30;

/// Where the parts of the screen are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) title: Rect,
    pub(super) graph: Rect,
    /// Times and markers below the graph.
    pub(super) axis: Rect,
    pub(super) lanes: Rect,
    /// What is selected, in words.
    pub(super) words: Rect,
    pub(super) table: Rect,
}

impl Layout {
    pub(super) fn of(area: Rect) -> Self {
        let left = area.height.saturating_sub(4);
        let graph = (left * 3 / 10).max(1);
        let lanes = (left * 4 / 10).max(1);
        let table = left.saturating_sub(graph + lanes);
        let mut y = area.y;
        let mut rows = |height: u16, inset: u16| {
            let rect = Rect { x: area.x + inset, y, width: area.width.saturating_sub(inset + 1), height };
            y = (y + height).min(area.bottom());
            rect.intersection(area)
        };
        Self {
            title: rows(1, 1),
            graph: rows(graph, LABEL),
            axis: rows(2, LABEL),
            lanes: rows(lanes, LABEL),
            words: rows(1, 1),
            table: rows(table, 0),
        }
    }
}

/// The time that is seen.
pub(super) struct Window<'a> {
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) now_ns: u64,
    columns: u16,
    /// Quanta in it.
    pub(super) quanta: Vec<&'a Quantum>,
    /// Those of the range or of the cursor's column, or the last ones.
    pub(super) chosen: Vec<&'a Quantum>,
    /// The range, or the cursor's column.
    pub(super) range: Option<(u64, u64)>,
}

impl<'a> Window<'a> {
    pub(super) fn new(time: &Time, view: &View<'a>) -> Self {
        let model = view.model;
        let length = if time.length_ns == 0 { SLOTS * model.source.slot_ns } else { time.length_ns };
        let until = time.end_ns.unwrap_or(model.now_ns.max(length)).max(1);
        let from = until.saturating_sub(length);
        let focus = view.focus;
        let of_focus = |quantum: &&Quantum| {
            !time.focused
                || (focus.pid.is_none_or(|pid| quantum.pid == pid)
                    && focus.tid.is_none_or(|tid| quantum.tid == tid))
        };
        // They are in the order of their ends.
        let first = model.quanta.partition_point(|quantum| quantum.end_ns <= from);
        let inside = model.quanta.range(first..).filter(|quantum| quantum.start_ns < until);
        let mut window = Self {
            from,
            until,
            now_ns: model.now_ns,
            columns: Layout::of(view.area).graph.width.max(1),
            quanta: inside.filter(of_focus).collect(),
            chosen: Vec::new(),
            range: None,
        };
        window.range = time.cursor_ns.map(|cursor| match time.anchor_ns {
            Some(anchor) => (anchor.min(cursor), anchor.max(cursor) + 1),
            None => {
                let column = window.column_of(cursor);
                (window.edge(column), window.edge(column + 1))
            }
        });
        window.chosen = match window.range {
            Some((from, until)) => {
                let touches = |quantum: &&&Quantum| quantum.start_ns < until && quantum.end_ns > from;
                window.quanta.iter().filter(touches).copied().collect()
            }
            None => window.quanta.iter().rev().take(1000).copied().collect(),
        };
        window
    }

    /// How long a column is.
    pub(super) fn column_ns(&self) -> u64 {
        ((self.until - self.from) / u64::from(self.columns)).max(1)
    }

    /// Where a column begins.
    fn edge(&self, column: u16) -> u64 {
        let length = u128::from(self.until - self.from);
        self.from + (length * u128::from(column) / u128::from(self.columns)) as u64
    }

    /// The column of a time; outside of what is seen, the nearest.
    pub(super) fn column_of(&self, ns: u64) -> u16 {
        let length = u128::from((self.until - self.from).max(1));
        let ticks = u128::from(ns.clamp(self.from, self.until) - self.from);
        ((ticks * u128::from(self.columns) / length) as u16).min(self.columns - 1)
    }

    pub(super) fn middle_of(&self, column: u16) -> u64 {
        (self.edge(column) + self.edge(column + 1)) / 2
    }

    /// Numbers by which rows of the table are known.
    pub(super) fn ids(&self) -> Vec<u64> {
        self.chosen.iter().map(|quantum| quantum.end_ns.rotate_left(8) ^ u64::from(quantum.tid)).collect()
    }

    /// What happened in each column.
    pub(super) fn slots(&self) -> Vec<Slot> {
        let mut slots = vec![Slot::default(); usize::from(self.columns)];
        for quantum in &self.quanta {
            let (first, last) =
                (self.column_of(quantum.start_ns), self.column_of(quantum.end_ns.saturating_sub(1)));
            for column in first..=last {
                let start = quantum.start_ns.max(self.edge(column));
                let end = quantum.end_ns.min(self.edge(column + 1));
                slots[usize::from(column)].on_cpu_ns += end.saturating_sub(start);
            }
            // Its counts belong to where it ended, if that is seen.
            if quantum.end_ns <= self.until {
                let mut one = slot_of(quantum);
                one.on_cpu_ns = 0;
                slots[usize::from(last)].add(&one);
            }
        }
        slots
    }

    /// The lanes, those that ran longest first, for at most so many.
    pub(super) fn lanes(&self, lanes: Timeline, most: usize) -> (Vec<Lane>, usize) {
        let mut found: BTreeMap<u32, Lane> = BTreeMap::new();
        for quantum in &self.quanta {
            let (id, content) = match lanes {
                Timeline::Threads => (quantum.tid, quantum.cpu),
                Timeline::Cpus => (quantum.cpu, quantum.tid),
            };
            let lane = found.entry(id).or_insert_with(|| Lane::new(id, self.columns));
            let (first, last) =
                (self.column_of(quantum.start_ns), self.column_of(quantum.end_ns.saturating_sub(1)));
            for column in first..=last {
                let start = quantum.start_ns.max(self.edge(column));
                let length = quantum.end_ns.min(self.edge(column + 1)).saturating_sub(start);
                lane.on_cpu_ns += length;
                lane.cells[usize::from(column)].run(content, length);
            }
            lane.cells[usize::from(last)].end(quantum.end);
        }
        let count = found.len();
        let mut all: Vec<Lane> = found.into_values().collect();
        if lanes == Timeline::Threads {
            all.sort_by_key(|lane| (std::cmp::Reverse(lane.on_cpu_ns), lane.id));
        }
        all.truncate(most);
        (all, count)
    }
}

/// A quantum as a slot of its own.
pub(super) fn slot_of(quantum: &Quantum) -> Slot {
    let mut slot = Slot::default();
    slot.take(quantum, false);
    slot
}

/// A thread or processor through the time that is seen.
pub(super) struct Lane {
    pub(super) id: u32,
    pub(super) on_cpu_ns: u64,
    pub(super) cells: Vec<LaneCell>,
}

impl Lane {
    fn new(id: u32, columns: u16) -> Self {
        Self { id, on_cpu_ns: 0, cells: vec![LaneCell::default(); usize::from(columns)] }
    }
}

/// A column of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LaneCell {
    /// The CPU or thread that was there longest in one stay, and how long.
    pub(super) content: Option<(u32, u64)>,
    /// What ended there: a pre-emption tells more than a yield.
    pub(super) end: Option<QuantumEnd>,
}

impl LaneCell {
    fn run(&mut self, content: u32, length: u64) {
        if self.content.is_none_or(|(_, longest)| length > longest) {
            self.content = Some((content, length));
        }
    }

    fn end(&mut self, end: Option<QuantumEnd>) {
        let weight = |end| match end {
            Some(QuantumEnd::Exit) => 3,
            Some(QuantumEnd::Preempted) => 2,
            Some(QuantumEnd::Yielded) => 1,
            _ => 0,
        };
        if weight(end) > weight(self.end) {
            self.end = end;
        }
    }
}
