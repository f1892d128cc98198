//! Data address profiles as comma-separated values (RFC 4180, with line feeds).

use libhpm::export::csv_line;

use super::Report;

/// A line for each group and event; empty fields for what a group does not have.
pub(super) fn render(report: &Report<'_>) -> String {
    let mut text = csv_line([
        "space", "pid", "address", "bytes", "name", "event", "samples", "events", "young", "sharing",
    ]);
    for entry in &report.entries {
        let key = &entry.key;
        let number = |number: Option<u64>| number.map_or_else(String::new, |number| number.to_string());
        for (event, sum) in report.events.iter().zip(&entry.sums) {
            text += &csv_line([
                key.space.name().to_owned(),
                number(key.pid.map(u64::from)),
                key.address.map_or_else(String::new, |address| format!("{address:#x}")),
                number(key.bytes),
                key.name.as_deref().unwrap_or_default().to_owned(),
                (*event).to_owned(),
                sum.samples.to_string(),
                sum.events.to_string(),
                sum.young.to_string(),
                entry.sharing.map_or("", super::text::sharing).to_owned(),
            ]);
        }
    }
    text
}
