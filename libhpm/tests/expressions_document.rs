//! `docs/expressions.md` names every function and every name that the code knows, and no other.

use libhpm::analysis::explore::{BUILT_IN, VARIABLES};
use libhpm::analysis::expression::{Kind, functions};
use libhpm::report::SAMPLE_NAMES;

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Number => "number",
        Kind::Text => "text",
    }
}

/// A table as it stands in the document, with the empty line behind it.
fn table(head: &str, rows: impl Iterator<Item = String>) -> String {
    let columns = head.matches('|').count() - 1;
    format!("{head}\n|{}\n{}\n", "---|".repeat(columns), rows.map(|row| row + "\n").collect::<String>())
}

#[test]
fn the_document_has_every_name() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/expressions.md");
    let document = std::fs::read_to_string(path).unwrap();
    let named = |(name, of, what): (&str, Kind, &str)| format!("| `{name}` | {} | {what} |", kind(of));
    let tables = [
        table(
            "| function | what it comes to |",
            functions().map(|(name, arguments, what)| format!("| `{name}({arguments})` | {what} |")),
        ),
        table("| of a sample | | |", SAMPLE_NAMES.into_iter().map(named)),
        table(
            "| of a record | | |",
            VARIABLES.into_iter().map(|(name, _, kind, what)| named((name, kind, what))),
        ),
        table(
            "| built-in metric of a record | |",
            BUILT_IN.into_iter().map(|(name, text)| format!("| `{name}` | `{text}` |")),
        ),
    ];
    for table in tables {
        assert!(document.contains(&table), "docs/expressions.md must have this table:\n{table}");
    }
}
