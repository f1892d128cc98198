//! What is printed of small systems that no trace is made up for.

use std::sync::Arc;

use libhpm::report::{Entry, Estimate, Key, Sum};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::State;
use crate::config::Config;
use crate::event::Event;
use crate::model::{Batch, Marker, ProcessFacts, Quantum, SourceFacts, ThreadNews};
use crate::output::{Format, document};
use crate::symbols::{Look, Profile};
use crate::theme::ThemeName;

/// A system in which two events of software are measured, on the screen that this key leads to.
fn measured(batch: Batch, key: char) -> State {
    let event =
        |name: &str, period| libhpm::trace::Event { name: name.to_owned(), period, ..Default::default() };
    let events = vec![event("cpu-clock:u", 1_000_000), event("page-faults", 1_240_000)];
    let meta = libhpm::trace::Meta { events, ..Default::default() };
    let target = format!("`{NAME}`");
    let source = SourceFacts { meta, target, slot_ns: 1_000_000_000, ..SourceFacts::default() };
    let mut state = State::new(source, Config::default(), ThemeName::None).unwrap();
    state.update(Event::Batch(Box::new(batch)));
    press(&mut state, key);
    state
}

fn press(state: &mut State, key: char) {
    state.update(Event::Key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE)));
}

fn text(state: &State) -> String {
    document(state, Format::Text, &mut String::new())
}

/// A name that anybody may give to a thread: it would begin a line and colour it, the last one for terminals that know C1.
const NAME: &str = "a\n\x1b[31mX\x7f\u{9b}31m";
const SHOWN: &str = "a␊␛[31mX␡\u{fffd}31m";

/// A process in which everything has that name.
fn named() -> Batch {
    let quantum = Quantum { end_ns: 2_000_000, pid: 7, tid: 7, last_ip: Some(9), ..Quantum::default() };
    let news = ThreadNews { ns: 0, pid: 7, tid: 7, parent: None, name: NAME.to_owned(), ended: false };
    let facts = ProcessFacts {
        pid: 7,
        name: NAME.to_owned(),
        command: format!("{NAME} {NAME}"),
        cgroup: NAME.to_owned(),
        ..ProcessFacts::default()
    };
    let marker = Marker { ns: 1_000_000, tid: Some(7), text: NAME.to_owned(), value: None };
    Batch {
        now_ns: 2_000_000,
        quanta: vec![quantum],
        threads: vec![news],
        processes: vec![facts],
        markers: vec![marker],
        holders: Some(vec![NAME.to_owned()]),
        ..Batch::default()
    }
}

/// Functions and files of that name.
fn profile() -> Profile {
    let name: Option<Arc<str>> = Some(NAME.into());
    let key =
        Key { function: name.clone(), module: name.clone(), file: name, line: Some(3), ..Key::default() };
    let share = Estimate { share: 0.5, error: 0.1 };
    let entry =
        Entry { key, own: Sum::default(), total: Sum::default(), own_share: share, total_share: share };
    let look = Look { pid: 7, ..Look::default() };
    Profile { look, entries: vec![entry], note: Some(NAME.to_owned()), ..Profile::default() }
}

#[test]
fn no_name_commands_the_terminal() {
    let commands = |text: &str| text.chars().any(|one| one.is_control() && one != '\n' && one != '\r');
    for screen in '1'..='6' {
        let mut state = measured(named(), screen);
        state.update(Event::Profile(Box::new(profile())));
        state.update(Event::Names(vec![(7, 9, Some(NAME.into()))]));
        // Rows are processes, threads, the tree, and control groups.
        for _ in 0..4 {
            state.update(Event::Said(NAME.to_owned()));
            let mut terminal = Terminal::new(TestBackend::new(200, 60)).unwrap();
            terminal.draw(|frame| crate::view::draw(&state, frame.area(), frame.buffer_mut())).unwrap();
            let cells = terminal.backend().buffer().content();
            assert!(!cells.iter().any(|cell| cell.symbol().chars().any(char::is_control)), "screen {screen}");
            for format in [Format::Text, Format::Csv, Format::Json] {
                let told = document(&state, format, &mut String::new());
                assert!(!commands(&told), "screen {screen} as {format:?}: {told:?}");
            }
            press(&mut state, 'v');
        }
    }
    let state = measured(named(), '1');
    assert_eq!(text(&state).lines().count(), 3, "a name begins no line: {}", text(&state));
    assert!(text(&state).contains(&format!("{SHOWN}  {SHOWN}")), "{}", text(&state));
    let json = document(&state, Format::Json, &mut String::new());
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["rows"][0]["name"], NAME, "other programs are told it as it is");
    let csv = document(&state, Format::Csv, &mut String::new());
    assert!(csv.lines().count() == 2 && csv.contains("[31m"), "{csv}");
}

#[test]
fn clocks_are_shown_as_times() {
    let mut quantum = Quantum { end_ns: 2_000_000, pid: 7, tid: 7, ..Quantum::default() };
    quantum.counts[..2].copy_from_slice(&[1_580_000, 1_580_000]);
    let batch = || Batch { now_ns: 2_000_000, quanta: vec![quantum], ..Batch::default() };
    let time = text(&measured(batch(), '2'));
    let row = time.lines().last().unwrap();
    assert!(row.trim_end().ends_with("1.6 ms        1.58M"), "{time}");
    let machine = text(&measured(batch(), '6'));
    let of = |name: &str| machine.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(of("cpu-clock:u").contains(" 1.0 ms ") && of("cpu-clock:u").contains(" 1.6 ms "), "{machine}");
    assert!(of("page-faults").contains(" 1.24M ") && of("page-faults").contains(" 1.58M "), "{machine}");
}
