//! The top: what measures, what has to be known of its numbers, and how busy the machine is.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::sheet::put;
use super::text::{bar, cut, moment, si, spark, time};
use crate::model::Model;
use crate::screens::ALL;
use crate::state::State;

/// What has to be known before the numbers are believed: a word, and the sentence behind it.
pub(crate) fn remarks(model: &Model) -> Vec<(String, String)> {
    let (facts, totals) = (&model.source, &model.totals);
    let mut remarks = of_trace(model);
    let mut add = |given: bool, word: String, sentence: &str| {
        if given {
            remarks.push((word, sentence.to_owned()));
        }
    };
    add(
        facts.software_only(),
        "software only".to_owned(),
        "no hardware counter is used: cycles, instructions and cache misses are not known",
    );
    add(
        facts.estimated(),
        "estimated".to_owned(),
        "counts of hardware events are samples times periods, not what counters said at each switch",
    );
    let least = totals
        .running_tsc
        .iter()
        .map(|&ticks| ticks as f64 / totals.on_cpu_tsc.max(1) as f64)
        .fold(1.0, f64::min);
    add(
        least < 0.995,
        format!("took turns {:.0} %", least * 100.0),
        "events took turns, or the PMU was another hpm session's: at least one was counted for that share of the time only, and nothing is scaled",
    );
    add(facts.imprecise(), "imprecise".to_owned(), "samples come by interrupts, some instructions too late");
    let lost = totals.records_lost + totals.records_unattributed + totals.quanta_lost + totals.sideband_lost;
    add(
        lost > 0,
        format!("lost {}", si(lost as f64)),
        "samples, quanta or reports found no room, or records do not say which event they are of: see the machine",
    );
    add(
        totals.throttled > 0,
        format!("throttled {}", si(totals.throttled as f64)),
        "samples were held back because they came too fast",
    );
    remarks
}

/// What the trace of a replay lacks, and how it was recorded.
fn of_trace(model: &Model) -> Vec<(String, String)> {
    let meta = &model.source.meta;
    let mut remarks = Vec::new();
    if !model.missing.is_empty() {
        let word = match (meta.complete, model.missing.len() > meta.missing.len()) {
            (false, _) => "unfinished",
            (true, true) => "damaged",
            // As it was recorded or merged.
            (true, false) => "incomplete",
        };
        remarks.push((word.to_owned(), model.missing.join("; ")));
    }
    let lacks_quanta = model.source.lacks_quanta.clone();
    remarks.extend(lacks_quanta.map(|sentence| ("no quanta".to_owned(), sentence)));
    remarks.extend(meta.phase_guided.as_ref().map(|guided| ("phase-guided".to_owned(), guided.sentence())));
    remarks.extend(
        libhpm::export::dense_places(meta).into_iter().map(|sentence| ("dense places".to_owned(), sentence)),
    );
    remarks
}

/// Draws the two lines.
pub(crate) fn draw(state: &State, area: Rect, buffer: &mut Buffer) {
    let theme = &state.theme;
    let model = state.model();
    buffer.set_style(Rect { height: 1, ..area }, theme.bar());
    let right = clock(state, area.width >= 100);
    let room = area.width.saturating_sub(right.chars().count() as u16 + 2);
    put(
        buffer,
        (area.right() - (area.width - room), area.y),
        &right,
        area.width - room - 1,
        true,
        theme.strong(),
    );
    let mut x = area.x + 1;
    let mut add = |text: &str, style: Style| {
        let left = room.saturating_sub(x - area.x);
        put(buffer, (x, area.y), text, left, false, style.patch(theme.bar()));
        x += (text.chars().count() as u16).min(left);
    };
    add("hpmtop ", theme.strong());
    // A long command line leaves room for what has to be known.
    add(&cut(&model.source.target, usize::from(room / 3).max(20)), Style::new());
    for (word, _) in remarks(model) {
        add("  ", Style::new());
        add(&word, theme.warning());
    }
    for (given, word) in [(state.is_frozen(), "frozen"), (model.recording.is_some(), "recording")] {
        if given {
            add("  ", Style::new());
            add(word, theme.key());
        }
    }
    if let (Some(why), false) = (&model.over, model.source.replay) {
        add(&format!("  {why}"), theme.warning());
    }
    let source = match model.source.meta.source.as_str() {
        "driver" => format!(" · hpm module, {}", model.source.meta.machine.pmu),
        other => format!(" · {other}"),
    };
    add(&source, theme.faint());
    summary(state, Rect { y: area.y + 1, height: 1, ..area }, buffer);
}

/// Where in time it stands.
fn clock(state: &State, wide: bool) -> String {
    let model = state.model();
    match &model.playback {
        None => time(model.now_ns),
        Some(playback) => {
            let sign = if playback.paused { "paused" } else { "▶" };
            let known = playback.duration_ns.filter(|_| wide);
            let whole = known.map_or(String::new(), |ns| format!(" / {}", moment(ns)));
            format!("{sign} ×{} {}{whole}", playback.speed, moment(model.now_ns))
        }
    }
}

/// How busy the machine is.
fn summary(state: &State, area: Rect, buffer: &mut Buffer) {
    let theme = &state.theme;
    let model = state.model();
    let (slot, interval_ns) = model.shown_slot();
    let now = model.machine.at(slot);
    let cpus = model.source.meta.machine.cpus.max(model.cpus.len() as u32).max(1);
    let share = now.on_cpu_ns as f64 / interval_ns as f64 / f64::from(cpus);
    let mut x = area.x + 1;
    let mut add = |text: &str, style: Style| {
        put(buffer, (x, area.y), text, area.right().saturating_sub(x), false, style);
        x += text.chars().count() as u16;
    };
    add(&format!("{cpus} CPUs "), theme.faint());
    add(&bar(share, 10), theme.load(share));
    add(&format!(" {:>5.1} % ", share * 100.0), Style::new());
    let wide = usize::from(area.width.saturating_sub(100)).min(40);
    if wide > 0 {
        let first = (slot + 1).saturating_sub(wide as u64);
        let past: Vec<f64> = (first..=slot)
            .map(|slot| model.machine.at(slot).on_cpu_ns as f64 / interval_ns as f64 / f64::from(cpus))
            .collect();
        add(&format!("{:>wide$} ", spark(&past, Some(1.0))), theme.series(0));
    }
    let rate = |count: f64| si(count * 1e9 / interval_ns as f64);
    let parts = [
        (model.living_threads().to_string(), "threads"),
        (rate(now.yields.into()), "yields/s"),
        (rate(now.preemptions.into()), "preempt/s"),
        (rate(now.samples.into()), "samples/s"),
    ];
    add(&format!("each {} ", time(interval_ns)), theme.faint());
    for (number, what) in parts {
        // What does not fit is left out as a whole.
        if usize::from(area.right().saturating_sub(x)) < what.len() + 7 {
            break;
        }
        put(buffer, (x, area.y), &format!(" {number:>5}"), 6, false, theme.strong());
        put(buffer, (x + 7, area.y), what, area.right().saturating_sub(x + 7), false, theme.faint());
        x += 7 + what.len() as u16;
    }
}

/// The screens' names, with the number that leads to each.
pub(crate) fn tabs(state: &State, area: Rect, buffer: &mut Buffer) {
    let theme = &state.theme;
    for (x, width, place) in tab_places(area) {
        let name = ALL[place].0;
        let style = if place == state.at() { theme.selected().patch(theme.strong()) } else { Style::new() };
        put(buffer, (x, area.y), &format!(" {} {name} ", place + 1), width, false, style);
    }
    let help = format!("{} help ", state.keys().hint(crate::keys::Action::Help));
    put(buffer, (area.x, area.y), &help, area.width, true, theme.faint());
}

/// Where each screen's name is: column, width, and place.
pub(crate) fn tab_places(area: Rect) -> Vec<(u16, u16, usize)> {
    let mut x = area.x;
    let mut places = Vec::new();
    for (place, (name, ..)) in ALL.iter().enumerate() {
        let width = name.len() as u16 + 4;
        places.push((x, width, place));
        x += width + 1;
    }
    places
}
