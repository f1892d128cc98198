//! Callers and callees as text.

use libhpm::report::{CallNode, Direction, Key};

use super::samples::Calls;
use super::table::{finish, function, plain, shortened};
use super::text::line;
use crate::output::grouped;

/// Deeper calls are not drawn, but told.
const DEPTH_MAX: usize = 60;

/// One tree: a line for each function in its context, its share of all events and its own part of that.
pub(super) fn calls(text: &mut String, calls: &Calls) {
    let (what, own) = match calls.direction {
        Direction::Callers => ("callers", "outermost"),
        Direction::Callees => ("callees", "self"),
    };
    let of = calls.function.as_ref().map_or_else(String::new, |name| format!(" of {name}"));
    line(text, format_args!("\n{what}{of}\n"));
    let mut table = plain();
    table.set_header(["samples", "total", "±", own, "function"]);
    let mut rows = Vec::new();
    for node in &calls.nodes {
        walk(&mut rows, node, "", "", calls.all.events, 0);
    }
    table.add_rows(rows);
    finish(text, table, 4);
}

/// The function; of code without a symbol the file too, as there is nothing else to tell it by.
fn name(key: &Key) -> String {
    match (&key.function, &key.module) {
        (None, Some(module)) => format!("{} {}", function(key), shortened(module)),
        _ => function(key),
    }
}

fn walk(rows: &mut Vec<Vec<String>>, node: &CallNode, branch: &str, below: &str, all: u64, depth: usize) {
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let own = node.own.events as f64 / all.max(1) as f64;
    rows.push(vec![
        grouped(node.total.samples),
        percent(node.share.share),
        format!("{:.1}", node.share.error * 100.0),
        if node.own.samples > 0 { percent(own) } else { String::new() },
        format!("{branch}{}", name(&node.key)),
    ]);
    let more = |rows: &mut Vec<Vec<String>>, what: String| {
        let nothing = || vec![String::new(); 4];
        rows.push([nothing(), vec![format!("{below}└ {what}")]].concat());
    };
    if depth == DEPTH_MAX && !node.children.is_empty() {
        more(rows, "… and deeper calls (JSON has them)".to_owned());
        return;
    }
    for (index, child) in node.children.iter().enumerate() {
        let last = index + 1 == node.children.len() && node.left_out == 0;
        let (corner, line) = if last { ("└ ", "  ") } else { ("├ ", "│ ") };
        walk(rows, child, &format!("{below}{corner}"), &format!("{below}{line}"), all, depth + 1);
    }
    if node.left_out > 0 {
        more(rows, format!("… {} more (--min-share)", node.left_out));
    }
}
