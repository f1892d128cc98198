//! Every screen as it is seen, from a made-up trace that is really replayed; and hands that press everything.

use std::path::{Path, PathBuf};

use clap::Parser as _;
use proptest::prelude::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Rect;
use tempfile::TempDir;

use super::State;
use crate::app::Headless;
use crate::cli::Cli;
use crate::collect::Command;
use crate::event::Event;
use crate::model::{Batch, ProcessFacts};
use crate::screens::ALL;

/// The made-up trace.
fn trace() -> (TempDir, PathBuf) {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("made.hpm");
    crate::synthetic::write_trace(&folder).unwrap();
    (temp, folder)
}

/// A replay of it on a terminal of this size, that stands at a time after these keys.
fn replay(folder: &Path, (width, height): (u16, u16), at: &str, keys: &str) -> Headless {
    let size = format!("{width}x{height}");
    // A configuration of its own, which may be replaced.
    let config = folder.with_file_name("config.toml");
    std::fs::write(&config, "").unwrap();
    let config = config.to_str().unwrap();
    let words = ["hpmtop", "--replay", folder.to_str().unwrap(), "--config", config, "--screenshot", "x"];
    let words = words.into_iter().chain(["--theme", "none", "--size", &size, "--at", at]);
    let mut headless = Headless::start(&Cli::try_parse_from(words).unwrap()).unwrap();
    headless.press_all(keys).unwrap();
    headless
}

/// What is seen, by ratatui's own test terminal; what a run costs differs each time.
fn seen(state: &State, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| crate::view::draw(state, frame.area(), frame.buffer_mut())).unwrap();
    let text = terminal.backend().to_string();
    let line = |line: &str| {
        if line.contains("% of one CPU since the start") {
            "(what hpmtop costs)".to_owned()
        } else {
            line.to_owned()
        }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

const SIZES: [(u16, u16); 2] = [(80, 24), (200, 60)];

/// Every screen, and what opens on it: a name, and the keys that lead there.
const VIEWS: [(&str, &str); 19] = [
    ("processes", "1"),
    ("threads", "1 v"),
    ("tree", "1 v v"),
    ("columns", "1 C j Enter"),
    ("filter", "1 v & t i d > 1 0 0 Enter"),
    ("time", "2"),
    ("time cursor", "2 o - Left Left Left w Left Left Left Left"),
    ("process", "1 Enter"),
    ("process lines", "1 Enter v"),
    ("phases", "4"),
    ("phases zoomed", "4 + + j"),
    ("locality", "1 j Enter 5"),
    ("locality without addresses", "1 Enter 5"),
    ("locality lines", "1 j Enter 5 v v v"),
    ("locality advice", "1 j Enter 5 v v v v v j"),
    ("locality advice in words", "1 j Enter 5 v v v v v Enter"),
    ("machine", "6"),
    ("help", "?"),
    ("palette", ": s o"),
];

#[test]
fn every_screen_in_a_small_and_a_large_terminal() {
    let (_temp, folder) = trace();
    for (name, keys) in VIEWS {
        for size in SIZES {
            let headless = replay(&folder, size, "2.3s", keys);
            let name = format!("{} {}x{}", name, size.0, size.1);
            insta::assert_snapshot!(name, seen(headless.state(), size));
        }
    }
}

#[test]
fn too_small_a_terminal_is_told() {
    let (_temp, folder) = trace();
    let headless = replay(&folder, (80, 24), "1s", "");
    assert!(seen(headless.state(), (40, 10)).contains("too small: 40×10, and 60×16 are needed"));
    for size in [(1, 1), (0, 0), (60, 16), (61, 17), (500, 300), (60, 300), (500, 16)] {
        let area = Rect::new(0, 0, size.0, size.1);
        let mut buffer = ratatui::buffer::Buffer::empty(area);
        crate::view::draw(headless.state(), area, &mut buffer);
    }
}

#[test]
fn pictures_have_what_is_seen() {
    let (_temp, folder) = trace();
    let headless = replay(&folder, (80, 24), "2.3s", "");
    let text = crate::output::text(headless.state(), 80, 24);
    let svg = crate::output::svg(headless.state(), 80, 24);
    for word in ["batch", "server", "processes"] {
        assert!(text.contains(word) && svg.contains(word), "{word}");
    }
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    let temp = TempDir::new().unwrap();
    let path = temp.path().join("seen.csv");
    crate::output::dump(headless.state(), &path).unwrap();
    let csv = std::fs::read_to_string(&path).unwrap();
    assert!(csv.lines().next().unwrap().contains("ipc") && csv.contains("batch"), "{csv}");
}

#[test]
fn advice_that_was_followed_is_watched() {
    let (_temp, folder) = trace();
    let mut headless = replay(&folder, (120, 40), "1s", "1 j Enter 5 v v v v v");
    let first = |headless: &Headless| {
        let text = seen(headless.state(), (120, 40));
        text.lines().find(|line| line.contains("make_page")).unwrap_or_default().to_owned()
    };
    assert!(first(&headless).starts_with("\"advised "), "{}", first(&headless));
    headless.press_all("a").unwrap();
    assert!(first(&headless).starts_with("\"applied "), "{}", first(&headless));
    headless.press_all("v a").unwrap();
    assert!(seen(headless.state(), (120, 40)).contains("choose the advice"));
    // What is dumped is the part that is chosen.
    headless.press_all("v v v v").unwrap();
    let mut headings = String::new();
    let mut csv = || crate::output::document(headless.state(), crate::output::Format::Csv, &mut headings);
    let (first, again) = (csv(), csv());
    assert!(first.contains("make_node (made.elf)::+16"), "{first}");
    assert_eq!(first.split_once('\n').unwrap().1, again, "the headings come once");
    let time: f64 = again.split(',').next().unwrap().parse().unwrap();
    assert!(first.starts_with("time_s,") && (0.9..1.1).contains(&time), "{first}");
}

#[test]
fn quanta_tell_the_functions_in_which_they_ended() {
    let (_temp, folder) = trace();
    let headless = replay(&folder, (200, 60), "1s", "2");
    let text = seen(headless.state(), (200, 60));
    assert!(text.contains("last function") && text.contains("walk") && text.contains("parse_line"), "{text}");
}

#[test]
fn a_replay_goes_where_it_is_sent() {
    let (_temp, folder) = trace();
    let ms = |headless: &Headless| headless.state().model().now_ns / 1_000_000;
    let mut headless = replay(&folder, (80, 24), "1s", "");
    assert_eq!(ms(&headless), 1000);
    let mut after = |keys: &str| {
        headless.press_all(keys).unwrap();
        ms(&headless)
    };
    // Slots of this trace are 20 ms long; markers stand at 0.3 s, 0.7 s, and so on.
    assert_eq!(
        [after("."), after(", ,"), after("m"), after("m"), after("M M")],
        [1020, 980, 1100, 1500, 700]
    );
    assert_eq!([after("J 50% Enter"), after("J 0.25s Enter")], [1199, 250]);
    let before = after("");
    let changed = after("p");
    assert!(changed > before && changed < before + 200, "a phase lasts 40 ms: {changed}");
    let quanta = |headless: &Headless| headless.state().model().total.quanta;
    let there = (ms(&headless), quanta(&headless));
    headless.press_all(", .").unwrap();
    assert_eq!((ms(&headless), quanta(&headless)), there, "back and forth is the same place");
}

#[test]
fn containers_have_the_names_of_their_runtimes() {
    let (_temp, folder) = trace();
    let mut headless = replay(&folder, (200, 60), "1s", "1 v v v");
    let number = "3f2a9c1b7d04e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e";
    let facts = |pid, cgroup: String| ProcessFacts { pid, cgroup, ..ProcessFacts::default() };
    let processes = vec![
        facts(100, format!("/system.slice/docker-{number}.scope")),
        facts(200, "/user.slice".to_owned()),
        facts(300, format!("/system.slice/docker-{number}.scope")),
    ];
    let now_ns = 1_000_000_000;
    let playback = headless.state().model().playback;
    let batch = Batch { now_ns, processes, playback, ..Batch::default() };
    headless.send(Event::Batch(Box::new(batch)));
    let text = seen(headless.state(), (200, 60));
    let of = |name: &str| text.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
    assert!(of("container 3f2a9c1b7d04  /system.slice/docker-").contains("     2 "), "{text}");
    assert!(of("/user.slice").contains("     1 "), "{text}");
    headless.press_all("v & c o n t a i n e r ~ \" 3 f 2 \" Enter").unwrap();
    let text = seen(headless.state(), (200, 60));
    assert!(text.contains("server") && !text.contains("batch"), "{text}");
}

#[test]
fn what_is_frozen_stays() {
    let (_temp, folder) = trace();
    let mut headless = replay(&folder, (80, 24), "1s", "f");
    assert!(seen(headless.state(), (80, 24)).contains("frozen"));
    headless.press_all(".").unwrap();
    assert_eq!(headless.state().model().now_ns, 1_000_000_000);
    headless.press_all("f").unwrap();
    assert_eq!(headless.state().model().now_ns, 1_020_000_000);
}

#[test]
fn the_source_may_go_and_the_screen_stays() {
    let (_temp, folder) = trace();
    let mut headless = replay(&folder, (80, 24), "1s", "");
    assert!(headless.verdict().is_ok());
    let why = "the module was unloaded while it measured this program, and it has told the reason in the kernel's log";
    headless.send(Event::Lost(why.to_owned()));
    let sentence = format!("the source is lost: {why}");
    for keys in ["", "1"] {
        headless.press_all(keys).unwrap();
        let text = seen(headless.state(), (80, 24));
        let words: Vec<&str> = text.split(|one: char| one == '"' || one.is_whitespace()).collect();
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        assert!(words.join(" ").contains(&sentence) && text.contains("batch"), "after `{keys}`: {text}");
        assert!(text.lines().last().unwrap().contains("look closer"), "keys can be read, too: {text}");
    }
    headless.press_all("2 Left").unwrap();
    assert_eq!(headless.press("q"), [crate::state::Effect::Quit]);
    assert_eq!(headless.verdict().unwrap_err().to_string(), sentence, "it is told when the screen is closed");
}

#[test]
fn a_source_that_is_lost_before_it_has_shown_anything_ends_the_program() {
    let source = crate::model::SourceFacts::default();
    let mut state = State::new(source, crate::config::Config::default(), Default::default()).unwrap();
    assert_eq!(state.update(Event::Lost("nobody measures".to_owned())), [crate::state::Effect::Quit]);
    assert_eq!(state.lost(), Some("the source is lost: nobody measures"));
    let told = state.update(Event::Batch(Box::default()));
    assert_ne!(told, [crate::state::Effect::Quit]);
    assert_eq!(state.update(Event::Lost("again".to_owned())), []);
}

#[test]
fn a_recording_of_a_replay_can_be_read() {
    let (temp, folder) = trace();
    let mut headless = replay(&folder, (80, 24), "1s", "R");
    assert!(headless.state().prompt.is_some());
    let to = temp.path().join("part.hpm");
    headless.ask(Command::Record(to.clone()));
    headless.press_all("Esc . . .").unwrap();
    assert!(seen(headless.state(), (200, 60)).contains("recording"));
    headless.press_all("R").unwrap();
    let reader = libhpm::trace::TraceReader::open(&to).unwrap();
    let quanta = reader.rows::<libhpm::trace::QuantumRow>().count();
    assert!(reader.meta().complete && (60..90).contains(&quanta), "{quanta} quanta in 60 ms");
    assert_eq!(reader.rows::<libhpm::trace::ThreadRow>().count(), 5);
}

#[test]
fn columns_and_order_are_saved() {
    let (temp, folder) = trace();
    let mut headless = replay(&folder, (120, 40), "1s", "v > > r i c C j Enter Esc");
    assert_eq!(headless.press("W"), [], "it is saved at once");
    let config = crate::config::Config::read(&temp.path().join("config.toml")).unwrap();
    assert_eq!(
        (config.rows.as_deref(), config.sort.as_deref(), config.ascending),
        (Some("threads"), Some("ipc"), true)
    );
    assert!(config.hide_idle && config.theme.is_none(), "the theme after `none` is the default one");
    assert_eq!(
        config.columns.iter().filter(|column| !column.shown).map(|column| column.title.as_str()).next(),
        Some("off%")
    );
}

/// What hands can do.
fn anything() -> impl Strategy<Value = Event> {
    let named = [
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Tab,
        KeyCode::BackTab,
        KeyCode::Backspace,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::Left,
        KeyCode::Right,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::F(1),
    ];
    let key = prop_oneof![
        4 => proptest::char::range(' ', '~').prop_map(KeyCode::Char),
        2 => proptest::sample::select(named.to_vec()),
        1 => any::<char>().prop_map(KeyCode::Char),
    ];
    let control = proptest::bool::weighted(0.1);
    let key = (key, control).prop_map(|(code, control)| {
        let modifiers = if control { KeyModifiers::CONTROL } else { KeyModifiers::NONE };
        Event::Key(KeyEvent::new(code, modifiers))
    });
    let kinds = [
        MouseEventKind::Down(MouseButton::Left),
        MouseEventKind::Drag(MouseButton::Left),
        MouseEventKind::Up(MouseButton::Left),
        MouseEventKind::ScrollDown,
        MouseEventKind::ScrollUp,
        MouseEventKind::Moved,
    ];
    let mouse =
        (proptest::sample::select(kinds.to_vec()), 0_u16..230, 0_u16..80).prop_map(|(kind, column, row)| {
            Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
        });
    prop_oneof![6 => key, 2 => mouse, 1 => Just(Event::Resize)]
}

/// Keys, clicks and sizes, 100,000 of them in all, on a state that has seen the trace: nothing of it may panic. Effects are
/// not carried out: the collector and files have tests of their own.
#[test]
fn hands_that_press_everything_break_nothing() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let (_temp, folder) = trace();
    let mut runner = TestRunner::deterministic();
    let (events, sizes) = (anything(), (0_u16..220, 0_u16..70));
    let mut pressed = 0;
    for round in 0..10 {
        let at = format!("{}%", round * 10 + 5);
        let mut headless = replay(&folder, (80, 24), &at, "1 Enter");
        let mut size = (80, 24);
        for _ in 0..10_000 {
            let event = events.new_tree(&mut runner).unwrap().current();
            if matches!(event, Event::Resize) {
                size = sizes.new_tree(&mut runner).unwrap().current();
                headless.resize(size);
            }
            headless.only_update(event);
            pressed += 1;
            // Drawing is most of the time; what could break it stays.
            if pressed % 4 == 0 {
                let area = Rect::new(0, 0, size.0, size.1);
                let mut buffer = ratatui::buffer::Buffer::empty(area);
                crate::view::draw(headless.state(), area, &mut buffer);
            }
        }
    }
    assert_eq!(pressed, 100_000);
}

#[test]
fn every_binding_does_something_or_says_why_not() {
    let (_temp, folder) = trace();
    for (place, (name, ..)) in ALL.iter().enumerate() {
        let entries: Vec<_> = {
            let headless = replay(&folder, (80, 24), "1s", "");
            headless.state().keys().entries().to_vec()
        };
        let here = entries
            .iter()
            .filter(|entry| !matches!(entry.context, crate::keys::Context::Screen(other) if other != *name));
        for entry in here {
            let key = entry.keys[0].to_string();
            let mut headless = replay(&folder, (80, 24), "1s", &format!("1 j {}", place + 1));
            assert!(headless.state().keys().action(entry.keys[0], name).is_some(), "{key} on {name}");
            headless.press(&key);
        }
    }
}

/// The words at the top, with their sentences.
fn words(folder: &Path) -> Vec<(String, String)> {
    crate::view::remarks(replay(folder, (80, 24), "100%", "").state().model())
}

#[test]
fn a_replay_says_what_its_trace_lacks() {
    let (_temp, folder) = trace();
    let lacks = |words: &[(String, String)], word: &str| words.iter().any(|(known, _)| known == word);
    let whole = words(&folder);
    assert!(!lacks(&whole, "damaged") && !lacks(&whole, "unfinished"), "{whole:?}");
    let meta = folder.join("meta.json");
    let text = std::fs::read_to_string(&meta).unwrap();
    let mut killed: serde_json::Value = serde_json::from_str(&text).unwrap();
    killed["complete"] = false.into();
    std::fs::write(&meta, killed.to_string()).unwrap();
    let unfinished = words(&folder);
    assert!(unfinished[0].0 == "unfinished" && unfinished[0].1.contains("proper end"), "{unfinished:?}");
    std::fs::write(&meta, text).unwrap();
    let quanta = folder.join("quanta.arrows");
    let file = std::fs::File::options().write(true).open(&quanta).unwrap();
    file.set_len(file.metadata().unwrap().len() - 5000).unwrap();
    let damaged = words(&folder);
    assert!(damaged[0].0 == "damaged" && damaged[0].1.contains("`quanta`"), "{damaged:?}");
}

/// Samples within windows are no share of the event, and what was lost of them nobody knows.
#[test]
fn of_windows_no_more_is_told_than_is_known() {
    let (_temp, folder) = trace();
    let meta = folder.join("meta.json");
    let mut dense: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&meta).unwrap()).unwrap();
    dense["events"][0]["within"] = serde_json::json!({"event": "instructions:u", "events": 1000});
    dense["events"][0]["period"] = 50.into();
    std::fs::write(&meta, dense.to_string()).unwrap();
    let told = |keys: &str| seen(replay(&folder, (200, 60), "2.3s", keys).state(), (200, 60));
    let machine = told("6");
    assert!(machine.contains(" 50 in 1000 instructions:u "), "{machine}");
    assert!(machine.contains("none known to be lost") && !machine.contains("\" nothing"), "{machine}");
    let advice = told("1 j Enter 5 v v v v v Enter");
    assert!(advice.contains(" % of the samples (dense places) ("), "{advice}");
}

#[test]
fn a_word_tells_of_events_that_took_turns() {
    let (_temp, folder) = trace();
    let meta = folder.join("meta.json");
    let mut turns: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&meta).unwrap()).unwrap();
    let events = turns["events"].as_array().unwrap().len();
    turns["totals"]["on_cpu_tsc"] = 100.into();
    turns["totals"]["running_tsc"] = vec![25; events].into();
    std::fs::write(&meta, turns.to_string()).unwrap();
    let words = words(&folder);
    let (_, sentence) = words.iter().find(|(word, _)| word == "took turns 25 %").unwrap();
    assert!(sentence.contains("nothing is scaled"), "{sentence}");
}
