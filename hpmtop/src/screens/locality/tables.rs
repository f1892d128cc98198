//! The tables of the screen of locality.

use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::Arc;

use libhpm::analysis::coallocation::{Advice, Verdict};
use libhpm::analysis::locality::{By, Entry, Sharing, Space, Sum};
use ratatui::style::Style;

use super::Part;
use crate::screens::View;
use crate::symbols::{Memory, Standing};
use crate::view::{Cell, Head, Sheet, bar};

/// A part as a table, all of its rows.
pub(super) fn table(part: Part, memory: &Memory, view: &View<'_>) -> Sheet {
    match part {
        Part::Spaces => entries(memory, &memory.spaces, By::Space, view),
        Part::Objects if memory.allocations.is_some() => entries(memory, &memory.objects, By::Object, view),
        Part::Objects => entries(memory, &memory.objects, By::Page, view),
        Part::Places if memory.allocations.is_some() => entries(memory, &memory.places, By::Site, view),
        Part::Places => entries(memory, &memory.places, By::Symbol, view),
        Part::Lines => entries(memory, &memory.lines, By::Line, view),
        Part::Fields => fields(memory, view),
        Part::Advice => advice(memory, view),
    }
}

/// Each row's own number: what it is, hashed.
pub(super) fn ids(part: Part, memory: &Memory) -> Vec<u64> {
    let of = |entries: &[Entry]| entries.iter().map(|entry| hashed(&key(entry))).collect();
    match part {
        Part::Spaces => of(&memory.spaces),
        Part::Objects => of(&memory.objects),
        Part::Places => of(&memory.places),
        Part::Lines => of(&memory.lines),
        Part::Fields => memory.fields.iter().map(|(field, _)| hashed(field)).collect(),
        Part::Advice => {
            let advised = memory.advice.iter().map(|(advice, _)| {
                let pair = &advice.candidate.pair;
                hashed(&(pair.field.to_string(), &pair.child))
            });
            advised.chain(memory.silent.iter().map(|(field, _)| hashed(field))).collect()
        }
    }
}

fn key(entry: &Entry) -> (Space, Option<u64>, Option<u64>, Option<&Arc<str>>) {
    (entry.key.space, entry.key.address, entry.key.bytes, entry.key.name.as_ref())
}

fn hashed(value: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

fn percent(part: f64, of: f64, view: &View<'_>) -> Cell {
    let share = part / of;
    let text = if share.is_finite() { format!("{:.1}", share * 100.0) } else { String::new() };
    Cell::number(share * 100.0, text).styled(view.theme.load(share))
}

/// Samples of each event and its share of all of them; with one event a bar.
fn entries(memory: &Memory, entries: &[Entry], by: By, view: &View<'_>) -> Sheet {
    let names = memory.events.iter().map(|&event| view.model.source.meta.events[event].name.as_str());
    let mut heads = Vec::new();
    for name in names {
        heads.push(Head::number(name, (name.chars().count() as u16).clamp(7, 16)));
        heads.push(Head::number("%", 5));
    }
    let with_bar = memory.events.len() == 1;
    heads.extend(with_bar.then(|| Head::picture(10)));
    let has_young = memory.allocations.is_some();
    heads.extend(has_young.then(|| Head::number("young%", 6)));
    heads.extend((by == By::Site).then(|| Head::number("objects", 7)));
    match by {
        By::Space => heads.push(Head::text("space", 0)),
        By::Object | By::Page => {
            heads.extend([Head::number("address", 14), Head::number("bytes", 7)]);
            heads.push(Head::text(if by == By::Object { "allocated by" } else { "page of" }, 0));
        }
        By::Line => {
            heads.extend([
                Head::text("sharing", 9),
                Head::number("line", 14),
                Head::text("threads and bytes (w: writes)", 0),
            ]);
        }
        By::Site => heads.push(Head::text("place of allocation", 0)),
        By::Symbol => heads.push(Head::text("variable", 0)),
        By::Reason => heads.push(Head::text("reason", 0)),
    }
    let row = |entry: &Entry| {
        let mut cells = Vec::new();
        for (sum, all) in entry.sums.iter().zip(&memory.all) {
            cells.push(Cell::whole(sum.samples));
            cells.push(percent(sum.events as f64, all.events as f64, view));
        }
        if with_bar {
            let share = entry.sums[0].events as f64 / memory.all[0].events.max(1) as f64;
            cells.push(Cell::text(bar(share, 10)).styled(view.theme.load(share)));
        }
        if has_young {
            let of = |count: fn(&Sum) -> u64| entry.sums.iter().map(count).sum::<u64>() as f64;
            let young = of(|sum| sum.young) / of(|sum| sum.samples).max(1.0);
            cells.push(Cell::number(young * 100.0, format!("{:.1}", young * 100.0)));
        }
        cells.extend((by == By::Site).then(|| Cell::whole(entry.objects)));
        cells.extend(place(entry, by, view));
        cells
    };
    Sheet { heads, rows: entries.iter().map(row).collect(), total: entries.len(), ..Sheet::default() }
}

/// The cells that say which group it is.
fn place(entry: &Entry, by: By, view: &View<'_>) -> Vec<Cell> {
    let key = &entry.key;
    let address = key.address.unwrap_or(0);
    let at = Cell { value: format!("{address:#x}").into(), ..Cell::text(format!("{address:x}")) }
        .styled(view.theme.faint());
    let name = key.name.as_deref().unwrap_or_else(|| key.space.name());
    match by {
        By::Object => vec![at, Cell::whole(key.bytes.unwrap_or(0)), Cell::text(name)],
        By::Page => vec![at, Cell::whole(libhpm::analysis::locality::PAGE_BYTES), Cell::text(name)],
        By::Line => vec![sharing(entry.sharing, view), at, Cell::text(super::words::touches(&entry.touches))],
        By::Space | By::Site | By::Symbol | By::Reason => vec![Cell::text(name)],
    }
}

fn sharing(sharing: Option<Sharing>, view: &View<'_>) -> Cell {
    match sharing {
        Some(Sharing::False) => Cell::text("false").styled(view.theme.warning()),
        Some(Sharing::True) => Cell::text("true"),
        Some(Sharing::ReadOnly) => Cell::text("read only"),
        None => Cell::text("one thread").styled(view.theme.faint()),
    }
}

/// Weights of fields (Table 5.1 of Schneider's thesis).
fn fields(memory: &Memory, view: &View<'_>) -> Sheet {
    let all = memory.weight.events;
    let rows = memory.fields.iter().map(|(field, weight)| {
        let share = weight.events / all.max(1.0);
        vec![
            Cell::number(weight.samples, format!("{:.1}", weight.samples)),
            percent(weight.events, all, view),
            Cell::text(bar(share, 10)).styled(view.theme.load(share)),
            Cell::number(weight.young_share() * 100.0, format!("{:.1}", weight.young_share() * 100.0)),
            Cell::text(field.to_string()),
        ]
    });
    Sheet {
        heads: vec![
            Head::number("samples", 8),
            Head::number("%", 5),
            Head::picture(10),
            Head::number("young%", 6),
            Head::text("reached through the field", 0),
        ],
        rows: rows.collect(),
        total: memory.fields.len(),
        ..Sheet::default()
    }
}

/// A state with its colour.
fn state(standing: Standing, view: &View<'_>) -> Cell {
    let style = match standing {
        Standing::Watching => view.theme.faint(),
        Standing::Advised => view.theme.key(),
        Standing::Applied => view.theme.strong(),
        Standing::Better(_) => view.theme.series(2),
        Standing::Worse(_) => view.theme.warning(),
    };
    Cell::text(standing.word()).styled(style)
}

fn change(standing: Standing) -> Cell {
    match standing {
        Standing::Better((_, mean, _)) | Standing::Worse((_, mean, _)) => {
            Cell::number(mean * 100.0, format!("{:+.0}", mean * 100.0))
        }
        Standing::Watching | Standing::Advised | Standing::Applied => Cell::default(),
    }
}

/// Which objects belong together, and how that stands.
fn advice(memory: &Memory, view: &View<'_>) -> Sheet {
    let row = |(advice, standing): &(Advice, Standing)| {
        let pair = &advice.candidate.pair;
        let saves = match (advice.verdict, advice.benefit.expected) {
            (Verdict::Leave, _) => Cell::default(),
            (Verdict::CoAllocate, saved) => Cell::number(saved * 100.0, format!("{:.1}", saved * 100.0)),
        };
        let why = match advice.against.first() {
            Some(reason) if *standing == Standing::Watching => super::words::reason(reason),
            _ => String::new(),
        };
        vec![
            state(*standing, view),
            change(*standing),
            saves,
            Cell::number(advice.candidate.weight.samples, format!("{:.0}", advice.candidate.weight.samples)),
            Cell::text(format!("{} → {}", pair.field, pair.child)),
            Cell::text(why).styled(view.theme.faint()),
        ]
    };
    let silent = |(field, standing): &(String, Standing)| {
        let none = Cell::number(0.0, "0".to_owned());
        vec![
            state(*standing, view),
            change(*standing),
            Cell::default(),
            none,
            Cell::text(field),
            Cell::default(),
        ]
    };
    let rows: Vec<Vec<Cell>> =
        memory.advice.iter().map(row).chain(memory.silent.iter().map(silent)).collect();
    let wide = rows.iter().map(|row| row[4].text.chars().count()).max().unwrap_or(0) as u16;
    Sheet {
        total: rows.len(),
        heads: vec![
            Head::text("state", 8),
            Head::number("misses±%", 8),
            Head::number("saves%", 6),
            Head::number("samples", 7),
            Head::text("allocate together", wide.clamp(17, view.area.width.saturating_sub(35).max(17))),
            Head::text("why not", 0),
        ],
        rows,
        ..Sheet::default()
    }
}

/// Nothing.
pub(super) const PLAIN: Style = Style::new();
