//! What the screen of locality says in words.

use libhpm::analysis::coallocation::{Advice, Reason, Verdict};
use libhpm::analysis::locality::{LINE_BYTES, Sharing, Touch, by_thread};
use libhpm::trace::{Event, EventUse};
use ratatui::style::Style;

use super::Part;
use super::tables::PLAIN;
use crate::screens::View;
use crate::symbols::{LAYOUT, Memory, Profile, Standing};
use crate::view::{si, time};

/// Threads of a line that are shown.
const THREADS_SHOWN: usize = 4;

/// Indices of the events that are sampled.
pub(super) fn sampled(view: &View<'_>) -> Vec<usize> {
    let events = &view.model.source.meta.events;
    (0..events.len()).filter(|&at| events[at].mode != EventUse::Count).collect()
}

/// What is looked at, and what has to be known of it.
pub(super) fn headings(
    view: &View<'_>,
    event: Option<usize>,
    profile: Option<(&Profile, &Memory)>,
) -> Vec<(String, Style)> {
    let theme = view.theme;
    let Some(pid) = view.focus.pid else {
        let text = "no process is selected: choose one on the first screen with Enter".to_owned();
        return vec![(text, theme.faint())];
    };
    let name = view.model.process_name(pid);
    let event = event.and_then(|event| view.model.source.meta.events.get(event));
    let Some(event) = event else {
        let text = format!("{name} ({pid}): no event is sampled here, so nothing says where in memory it is");
        return vec![(text, theme.warning())];
    };
    let Some((profile, memory)) = profile else {
        let text = format!("{name} ({pid}): waiting for samples of {}", event.name);
        return vec![(text, theme.strong())];
    };
    let (known, unknown) = (memory.given + memory.computed, unknown(memory));
    let count = |number: u64| si(number as f64);
    let since = time(view.model.source.ticks_to_ns(profile.ticks));
    let again = if memory.partial { ", of the last samples" } else { "" };
    let ways = [(memory.given, "given"), (memory.computed, "computed"), (unknown, "unknown")];
    let ways: Vec<String> = ways
        .iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, how)| format!("{} {how}", count(*number)))
        .collect();
    let line = format!(
        "{name} ({pid}): {} samples in {since}{again}; addresses {}",
        count(known + unknown),
        ways.join(", ")
    );
    let mut lines = vec![(line, theme.strong())];
    if let Some((reason, samples)) = memory.unknown.first() {
        let text = format!("unknown of {}: {}", count(*samples), reason.words());
        lines.push((text, theme.warning()));
    }
    if known == 0 && unknown > 0 {
        let text = if view.model.source.software_only() {
            "nothing can be shown: of the software events only page faults have addresses; the hpm module has those of loads"
        } else {
            "nothing can be shown: sample an event of loads precisely (-e l1d-load-miss), whose samples have addresses"
        };
        lines.push((text.to_owned(), theme.warning()));
    }
    lines.extend(memory.ways_left_out.iter().map(|text| (text.clone(), theme.warning())));
    lines.extend(objects(memory, view).map(|text| (text, theme.faint())));
    lines
}

/// How much is known of objects.
fn objects(memory: &Memory, view: &View<'_>) -> Option<String> {
    match memory.allocations {
        None if view.model.source.replay => {
            Some("objects are not known: hpmctl record --allocations records them".to_owned())
        }
        None => Some(
            "objects are known of a replay only (hpmctl record --allocations): here are pages".to_owned(),
        ),
        Some(how) if how.sampled_bytes > 0 => how.sentence(&si(how.sampled_bytes as f64)),
        Some(how) if how.lost > 0 => Some(format!("{} objects found no room", si(how.lost as f64))),
        Some(_) => None,
    }
}

fn unknown(memory: &Memory) -> u64 {
    memory.unknown.iter().map(|(_, samples)| samples).sum()
}

/// Why a part has no rows.
pub(super) fn empty(part: Part, memory: &Memory, view: &View<'_>) -> String {
    match (part, memory.no_fields) {
        (Part::Fields | Part::Advice, Some(why)) => format!("{} was {why}", event_name(view)),
        (Part::Fields, None) => match memory.unattributed.first() {
            Some((why, _)) => format!("no miss came through a field: {}", why.words()),
            None => "no samples of this event".to_owned(),
        },
        (Part::Advice, None) => {
            "nothing is advised without fields through which objects are missed".to_owned()
        }
        (Part::Places, _) if memory.allocations.is_none() => "no sample is in a variable".to_owned(),
        _ => "no sample has an address of this kind".to_owned(),
    }
}

fn event<'a>(view: &View<'a>) -> Option<&'a Event> {
    view.profile.and_then(|profile| view.model.source.meta.events.get(profile.look.event))
}

fn event_name<'a>(view: &View<'a>) -> &'a str {
    event(view).map_or("", |event| event.name.as_str())
}

/// What is known of a row.
pub(super) fn lines(part: Part, memory: &Memory, place: usize, view: &View<'_>) -> Vec<(String, Style)> {
    let theme = view.theme;
    match part {
        Part::Advice => match memory.advice.get(place) {
            Some((advice, standing)) => of_advice(advice, *standing, view),
            None => memory.silent.get(place.wrapping_sub(memory.advice.len())).map_or_else(Vec::new, |(field, standing)| {
                vec![(field.clone(), theme.strong()), (came(*standing), PLAIN)]
            }),
        },
        Part::Lines => memory.lines.get(place).map_or_else(Vec::new, |entry| {
            let address = entry.key.address.unwrap_or(0);
            let what = match entry.sharing {
                Some(Sharing::False) => {
                    "several threads use different bytes of it and one writes, as far as samples show: give each its own line"
                }
                Some(Sharing::True) => "several threads use the same bytes of it, and one writes",
                Some(Sharing::ReadOnly) => "several threads use it, and no sample shows a write",
                None => "one thread uses it",
            };
            let head = format!("line of {LINE_BYTES} bytes at {address:#x}, {}", entry.key.space.name());
            let touch = |touch: &Touch| {
                let thread = view.model.thread_name(touch.tid);
                let text = format!(
                    "  {thread} ({}) byte {}: {} samples, {} of them known to write",
                    touch.tid, touch.offset, touch.samples, touch.writes
                );
                (text, PLAIN)
            };
            let head = [(head, theme.strong()), (what.to_owned(), PLAIN)];
            head.into_iter().chain(entry.touches.iter().map(touch)).collect()
        }),
        Part::Fields => {
            let left = memory.unattributed.iter().map(|(why, samples)| {
                (format!("{samples:.1} samples came through no field: {}", why.words()), PLAIN)
            });
            let field = memory.fields.get(place).map(|(field, weight)| {
                let share = 100.0 * weight.events / memory.weight.events.max(1.0);
                (format!("{field}: {:.1} samples, {share:.1} % of all", weight.samples), theme.strong())
            });
            field.into_iter().chain(left).collect()
        }
        Part::Spaces | Part::Objects | Part::Places => {
            let entries = match part {
                Part::Spaces => &memory.spaces,
                Part::Objects => &memory.objects,
                _ => &memory.places,
            };
            let head = entries.get(place).map(|entry| {
                let name = entry.key.name.as_deref().unwrap_or_default();
                let at = entry.key.address.map_or_else(String::new, |address| format!(" at {address:#x}"));
                (format!("{}{at} {name}", entry.key.space.name()), theme.strong())
            });
            let unknown = memory.unknown.iter().map(|(reason, samples)| {
                (format!("address unknown of {samples} samples: {}", reason.words()), PLAIN)
            });
            head.into_iter().chain(unknown).collect()
        }
    }
}

fn of_advice(advice: &Advice, standing: Standing, view: &View<'_>) -> Vec<(String, Style)> {
    let theme = view.theme;
    let candidate = &advice.candidate;
    let bytes = |bytes: u64| if bytes == 0 { "unknown size".to_owned() } else { format!("{bytes} bytes") };
    let pair = &candidate.pair;
    let mut lines = vec![(
        format!(
            "{} ({}) → {} ({})",
            pair.field,
            bytes(candidate.parent.bytes),
            pair.child,
            bytes(candidate.child.bytes)
        ),
        theme.strong(),
    )];
    let what = match advice.verdict {
        Verdict::CoAllocate => "allocate the two together",
        Verdict::Leave => "leave them as they are",
    };
    lines.push((what.to_owned(), PLAIN));
    let benefit = advice.benefit;
    if benefit.high > 0.0 {
        let dense = event(view).is_some_and(|event| event.within.is_some());
        let of = if dense { "of the samples (dense places)" } else { "of all misses" };
        let text = format!(
            "would save {:.1} % {of} ({:.1} to {:.1} %)",
            benefit.expected * 100.0,
            benefit.low * 100.0,
            benefit.high * 100.0
        );
        lines.push((text, PLAIN));
    }
    let known = [
        (candidate.together, "of the pairs lie in one line already"),
        (candidate.lifetimes_match, "of the pairs live and die together"),
    ];
    for (share, what) in known.into_iter().filter_map(|(share, what)| Some((share?, what))) {
        lines.push((format!("{:.1} % {what}", share * 100.0), PLAIN));
    }
    lines.extend(
        advice.against.iter().map(|reason| (format!("not: {}", self::reason(reason)), theme.warning())),
    );
    lines.push((came(standing), theme.key()));
    if matches!(standing, Standing::Advised | Standing::Watching) {
        let text =
            format!("When it is done, press a, or let the program set the marker `{LAYOUT}{}`.", pair.field);
        lines.push((text, theme.faint()));
    }
    lines
}

/// What came of advice.
fn came(standing: Standing) -> String {
    let change = |(low, mean, high): (f64, f64, f64)| {
        format!(
            "{:+.0} % misses per time ({:+.0} to {:+.0} %) since it was followed",
            mean * 100.0,
            low * 100.0,
            high * 100.0
        )
    };
    match standing {
        Standing::Watching => "watching".to_owned(),
        Standing::Advised => "advised".to_owned(),
        Standing::Applied => "applied: what comes of it is not clear yet".to_owned(),
        Standing::Better(by) => format!("better: {}", change(by)),
        Standing::Worse(by) => format!("worse: {}; take it back", change(by)),
    }
}

/// Why not, in a few words.
pub(super) fn reason(reason: &Reason) -> String {
    match reason {
        Reason::TooFewSamples { samples, needed } => format!("{samples:.0} of {needed:.0} samples"),
        Reason::ParentIsArray => "an array has many children".to_owned(),
        Reason::TooLarge { bytes, .. } => format!("too large together: {bytes} bytes"),
        Reason::BeyondLine { share } => format!("{:.0} % would be beyond the line", share * 100.0),
        Reason::Young { share } => format!("{:.0} % of the misses are on young objects", share * 100.0),
        Reason::LifetimesDiffer { matching } => {
            format!("only {:.0} % live and die together", matching * 100.0)
        }
        Reason::SeldomFollowed { share } => format!("missed {:.1} times as often themselves", 1.0 / share),
        Reason::Together { share } => format!("{:.0} % are together already", share * 100.0),
        Reason::AnotherFieldIsHotter { field } => format!("{field} is hotter"),
        Reason::SizeUnknown => "a size is unknown".to_owned(),
    }
}

/// `12: 0w 8; 13: 16w`, the threads with most samples.
pub(super) fn touches(touches: &[Touch]) -> String {
    let threads = by_thread(touches);
    let more = threads.len().saturating_sub(THREADS_SHOWN);
    let place = |touch: &Touch| format!("{}{}", touch.offset, if touch.writes > 0 { "w" } else { "" });
    let shown = threads.iter().take(THREADS_SHOWN).map(|thread| {
        let places: Vec<String> = thread.touches.iter().map(place).collect();
        format!("{}: {}", thread.tid, places.join(" "))
    });
    let text = shown.collect::<Vec<_>>().join("; ");
    if more > 0 { format!("{text}; and {more} more") } else { text }
}

/// A text on lines of so many columns, broken at spaces.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(20);
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_inclusive(' ') {
        if line.chars().count() + word.trim_end().chars().count() > width && !line.is_empty() {
            lines.push(std::mem::take(&mut line).trim_end().to_owned());
        }
        line.push_str(word);
    }
    lines.push(line.trim_end().to_owned());
    lines
}
