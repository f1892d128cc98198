//! Data address profiles as text for people.

use libhpm::analysis::locality::{By, Entry, Sharing, Sum, Touch, by_thread};
use libhpm::export::{dense_places, losses};
use libhpm::trace::Meta;

use super::{Addresses, Report, name};
use crate::output::grouped;
use crate::report::table::{finish, plain};
use crate::report::text::{head, line, remarks};

/// Threads of a line that are shown.
const THREADS_SHOWN: usize = 4;

/// The whole text.
pub(super) fn render(report: &Report<'_>) -> String {
    let mut text = String::new();
    head(&mut text, report.meta, report.filter.as_deref());
    remarks(&mut text, &dense_places(report.meta));
    remarks(&mut text, &losses(report.meta));
    addresses(&mut text, &report.addresses, report.meta);
    table(&mut text, report);
    if report.by == By::Line && report.entries.iter().any(|entry| entry.sharing == Some(Sharing::False)) {
        text.push_str(
            "\nfalse: several threads use different bytes of the line and one writes, as far as samples show. Give each its own line.\n",
        );
    }
    text
}

/// How the addresses came to be known.
fn addresses(text: &mut String, addresses: &Addresses, meta: &Meta) {
    let (known, unknown) = (addresses.known(), addresses.unknown_samples());
    let percent = 100.0 * known as f64 / (known + unknown).max(1) as f64;
    // What perf_event samples without a driver's precise records are the kernel's own events, as page faults.
    let giver = if meta.source == "perf_event" { "the kernel" } else { "hardware" };
    line(
        text,
        format_args!(
            "addresses {} by {giver}, {} computed from registers, {} unknown ({percent:.1} % known)",
            grouped(addresses.hardware),
            grouped(addresses.computed),
            grouped(unknown)
        ),
    );
    for (reason, samples) in &addresses.unknown {
        line(text, format_args!("          unknown of {}: {}", grouped(*samples), reason.words()));
    }
    if addresses.agreement.compared > 0 {
        let agreement = addresses.agreement;
        line(
            text,
            format_args!(
                "check     {} samples have an address by {giver} and a computed one; {} agree",
                grouped(agreement.compared),
                grouped(agreement.equal)
            ),
        );
    }
    if let Some(how) = addresses.allocations {
        let all = how
            .sentence(&grouped(how.sampled_bytes))
            .unwrap_or_else(|| "every allocation was recorded".to_owned());
        let lost = if how.lost > 0 {
            format!("; at most {} more were not recorded", grouped(how.lost))
        } else {
            String::new()
        };
        let young = addresses.nursery.map_or_else(String::new, |bytes| {
            format!("; young until {} bytes more were allocated", grouped(bytes))
        });
        line(text, format_args!("objects   {all}{lost}{young}"));
    }
}

fn table(text: &mut String, report: &Report<'_>) {
    let mut table = plain();
    let has_young = report.entries.iter().flat_map(|entry| &entry.sums).any(|sum| sum.young > 0);
    let has_objects = report.entries.iter().any(|entry| entry.objects > 0);
    let mut header: Vec<String> =
        report.events.iter().flat_map(|event| [(*event).to_owned(), "share".to_owned()]).collect();
    header.extend(has_young.then(|| "young".to_owned()));
    header.extend(has_objects.then(|| "objects".to_owned()));
    let numbers = header.len();
    if report.by == By::Line {
        header.push("sharing".to_owned());
    }
    header.push(title(report.by).to_owned());
    if report.by == By::Line {
        header.push("threads and bytes (w: writes)".to_owned());
    }
    table.set_header(header);
    for entry in &report.entries {
        let mut cells: Vec<String> = entry
            .sums
            .iter()
            .zip(&report.all)
            .flat_map(|(sum, all)| [grouped(sum.samples), share(*sum, *all)])
            .collect();
        cells.extend(has_young.then(|| young(entry)));
        cells.extend(has_objects.then(|| grouped(entry.objects)));
        if report.by == By::Line {
            cells.push(entry.sharing.map_or("", sharing).to_owned());
        }
        cells.push(name(entry));
        if report.by == By::Line {
            cells.push(touches(&entry.touches));
        }
        table.add_row(cells);
    }
    text.push('\n');
    finish(text, table, numbers);
    if report.groups > report.entries.len() {
        line(text, format_args!(" … and {} more (--limit)", report.groups - report.entries.len()));
    }
    if report.groups == 0 {
        line(text, format_args!(" no sample has one"));
    }
}

fn title(by: By) -> &'static str {
    match by {
        By::Space => "space",
        By::Page => "page",
        By::Line => "line",
        By::Symbol => "variable",
        By::Object => "object",
        By::Site => "allocated by",
        By::Reason => "reason",
    }
}

fn share(sum: Sum, all: Sum) -> String {
    if all.events == 0 {
        String::new()
    } else {
        format!("{:.1} %", 100.0 * sum.events as f64 / all.events as f64)
    }
}

fn young(entry: &Entry) -> String {
    let of = |count: fn(&Sum) -> u64| entry.sums.iter().map(count).sum::<u64>() as f64;
    format!("{:.1} %", 100.0 * of(|sum| sum.young) / of(|sum| sum.samples).max(1.0))
}

/// In a word.
pub(super) fn sharing(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::False => "false",
        Sharing::True => "true",
        Sharing::ReadOnly => "read only",
    }
}

/// `12: 0w 8; 13: 16w`, the threads with most samples.
fn touches(touches: &[Touch]) -> String {
    let threads = by_thread(touches);
    let more = threads.len().saturating_sub(THREADS_SHOWN);
    let place = |touch: &Touch| format!("{}{}", touch.offset, if touch.writes > 0 { "w" } else { "" });
    let shown = threads.iter().take(THREADS_SHOWN).map(|thread| {
        let places: Vec<String> = thread.touches.iter().map(place).collect();
        format!("{}: {}", thread.tid, places.join(" "))
    });
    let mut text = shown.collect::<Vec<_>>().join("; ");
    if more > 0 {
        text += &format!("; and {more} more");
    }
    text
}
