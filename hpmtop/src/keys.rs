//! Keys and what they do, as data: the help, the command palette, the manual and the tests are all made from these tables.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, bail};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What a key can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Action {
    Quit,
    Help,
    Back,
    Palette,
    /// The screen with this place.
    Screen(u8),
    NextScreen,
    PreviousScreen,
    Freeze,
    Record,
    Screenshot,
    Dump,
    Theme,
    Save,
    Suspend,
    Down,
    Up,
    PageDown,
    PageUp,
    Top,
    Bottom,
    Left,
    Right,
    Enter,
    Search,
    SearchNext,
    SearchPrevious,
    Pause,
    StepForward,
    StepBack,
    Faster,
    Slower,
    JumpToTime,
    NextMarker,
    PreviousMarker,
    NextPhase,
    SortNext,
    SortPrevious,
    SortReverse,
    Mode,
    Columns,
    Filter,
    HideIdle,
    HideKernel,
    Fold,
    ZoomIn,
    ZoomOut,
    Range,
    Lanes,
    Metric,
    Zero,
    Applied,
}

/// Where a binding holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// Everywhere.
    Everywhere,
    /// In a replay, everywhere.
    Replay,
    /// On the screen with this name.
    Screen(&'static str),
}

impl Context {
    /// In a word, for other programs.
    pub(crate) fn place(self) -> &'static str {
        match self {
            Self::Everywhere => "everywhere",
            Self::Replay => "replay",
            Self::Screen(name) => name,
        }
    }

    /// As the help has it.
    pub(crate) fn title(self) -> String {
        match self {
            Self::Everywhere => "Everywhere".to_owned(),
            Self::Replay => "In a replay".to_owned(),
            Self::Screen(name) => format!("On the screen {name}"),
        }
    }
}

/// An action with its keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    /// What it does.
    pub(crate) action: Action,
    /// Its name, in the palette and in the configuration's `[keys]`.
    pub(crate) name: &'static str,
    /// Its keys, as [`Key`] reads them.
    pub(crate) keys: &'static [&'static str],
    /// What it does, in words.
    pub(crate) help: &'static str,
}

/// A binding.
pub(crate) const fn bind(
    action: Action,
    name: &'static str,
    keys: &'static [&'static str],
    help: &'static str,
) -> Binding {
    Binding { action, name, keys, help }
}

/// Those that hold everywhere.
pub(crate) const EVERYWHERE: &[Binding] = &[
    bind(Action::Quit, "quit", &["q", "Ctrl-c"], "end"),
    bind(Action::Help, "help", &["?", "F1"], "show this help; again to close it"),
    bind(Action::Back, "back", &["Esc", "Backspace"], "go back: close what is open, else the screen before"),
    bind(Action::Palette, "palette", &[":"], "run a command by its name"),
    bind(Action::NextScreen, "next-screen", &["Tab"], "the next screen"),
    bind(Action::PreviousScreen, "previous-screen", &["Shift-Tab"], "the screen to the left"),
    bind(Action::Freeze, "freeze", &["f"], "freeze what is shown; measuring goes on"),
    bind(Action::Down, "down", &["j", "Down"], "down"),
    bind(Action::Up, "up", &["k", "Up"], "up"),
    bind(Action::PageDown, "page-down", &["PageDown", "Ctrl-d"], "a page down"),
    bind(Action::PageUp, "page-up", &["PageUp", "Ctrl-u"], "a page up"),
    bind(Action::Top, "top", &["g", "Home"], "to the beginning"),
    bind(Action::Bottom, "bottom", &["G", "End"], "to the end"),
    bind(Action::Left, "left", &["h", "Left"], "to the left"),
    bind(Action::Right, "right", &["l", "Right"], "to the right"),
    bind(Action::Enter, "open", &["Enter"], "look closer at what is selected"),
    bind(Action::Search, "search", &["/"], "search what is shown"),
    bind(Action::SearchNext, "search-next", &["n"], "the next place that was searched for"),
    bind(Action::SearchPrevious, "search-previous", &["N"], "the one before"),
    bind(Action::Record, "record", &["R"], "record to a trace from now on; again to end it"),
    bind(Action::Screenshot, "screenshot", &["S"], "write the screen to a file, .svg or text"),
    bind(Action::Dump, "dump", &["D"], "write what is seen to a file, .json or .csv"),
    bind(Action::Theme, "theme", &["c"], "the next colours"),
    bind(Action::Save, "save", &["W"], "save columns, colours and order in the configuration"),
    bind(Action::Suspend, "suspend", &["Ctrl-z"], "stop until the shell's fg"),
];

/// Those that hold in a replay.
pub(crate) const REPLAY: &[Binding] = &[
    bind(Action::Pause, "pause", &["Space"], "pause and go on (without a replay: freeze)"),
    bind(Action::StepForward, "step", &["."], "pause, and a step forward"),
    bind(Action::StepBack, "step-back", &[","], "pause, and a step back"),
    bind(Action::Faster, "faster", &["]"], "twice as fast"),
    bind(Action::Slower, "slower", &["["], "half as fast"),
    bind(Action::JumpToTime, "jump", &["J"], "jump to a time, such as 1.5s or 40%"),
    bind(Action::NextMarker, "next-marker", &["m"], "to the next marker"),
    bind(Action::PreviousMarker, "previous-marker", &["M"], "to the marker before"),
    bind(Action::NextPhase, "next-phase", &["p"], "to the next phase change of the watched process"),
];

/// A key with its modifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    code: KeyCode,
    ctrl: bool,
}

/// Names of keys that are no characters.
const NAMED: [(&str, KeyCode); 14] = [
    ("Enter", KeyCode::Enter),
    ("Esc", KeyCode::Esc),
    ("Tab", KeyCode::Tab),
    ("Shift-Tab", KeyCode::BackTab),
    ("Space", KeyCode::Char(' ')),
    ("Backspace", KeyCode::Backspace),
    ("Up", KeyCode::Up),
    ("Down", KeyCode::Down),
    ("Left", KeyCode::Left),
    ("Right", KeyCode::Right),
    ("PageUp", KeyCode::PageUp),
    ("PageDown", KeyCode::PageDown),
    ("Home", KeyCode::Home),
    ("End", KeyCode::End),
];

impl Key {
    /// Reads `j`, `Ctrl-c`, `PageDown`, `F1`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (ctrl, rest) = match text.strip_prefix("Ctrl-") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if let Some((_, code)) = NAMED.iter().find(|(name, _)| *name == rest) {
            return Some(Self { code: *code, ctrl });
        }
        let number = rest.strip_prefix('F').and_then(|number| number.parse().ok());
        if let Some(number) = number.filter(|number| (1..=12).contains(number)) {
            return Some(Self { code: KeyCode::F(number), ctrl });
        }
        let mut characters = rest.chars();
        match (characters.next(), characters.next()) {
            (Some(one), None) => Some(Self { code: KeyCode::Char(one), ctrl }),
            _ => None,
        }
    }

    /// What the terminal reported.
    pub(crate) fn of(event: KeyEvent) -> Self {
        Self { code: event.code, ctrl: event.modifiers.contains(KeyModifiers::CONTROL) }
    }

    /// The character that it types.
    pub(crate) fn character(self) -> Option<char> {
        match self.code {
            KeyCode::Char(character) if !self.ctrl => Some(character),
            _ => None,
        }
    }

    /// Its code.
    pub(crate) fn code(self) -> KeyCode {
        self.code
    }

    /// Its code, if Ctrl is not held.
    pub(crate) fn plain(self) -> Option<KeyCode> {
        (!self.ctrl).then_some(self.code)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ctrl {
            f.write_str("Ctrl-")?;
        }
        if let Some((name, _)) = NAMED.iter().find(|(_, code)| *code == self.code) {
            return f.write_str(name);
        }
        match self.code {
            KeyCode::Char(character) => write!(f, "{character}"),
            KeyCode::F(number) => write!(f, "F{number}"),
            other => write!(f, "{other:?}"),
        }
    }
}

/// One line of the help.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Where it holds.
    pub(crate) context: Context,
    /// Its keys, those of the configuration if it names some.
    pub(crate) keys: Vec<Key>,
    /// What it does.
    pub(crate) binding: Binding,
}

/// The bindings in force.
#[derive(Clone, Debug)]
pub(crate) struct KeyMap {
    entries: Vec<Entry>,
}

impl KeyMap {
    /// All bindings, those of the screens included, with the keys that somebody wants to have instead.
    ///
    /// # Errors
    /// An action or a key that is none.
    pub(crate) fn new(
        screens: &[(&'static str, &'static [Binding])],
        wanted: &BTreeMap<String, Vec<String>>,
    ) -> Result<Self> {
        let everywhere = EVERYWHERE.iter().map(|binding| (Context::Everywhere, *binding));
        let replay = REPLAY.iter().map(|binding| (Context::Replay, *binding));
        let of_screens = screens.iter().flat_map(|(name, bindings)| {
            bindings.iter().map(move |binding| (Context::Screen(name), *binding))
        });
        let mut entries: Vec<Entry> = everywhere
            .chain(replay)
            .chain(of_screens)
            .map(|(context, binding)| Entry {
                context,
                keys: binding.keys.iter().filter_map(|key| Key::parse(key)).collect(),
                binding,
            })
            .collect();
        for (name, keys) in wanted {
            let keys = keys.iter().map(|key| Key::parse(key).ok_or_else(|| key.clone()));
            let keys = match keys.collect::<Result<Vec<Key>, String>>() {
                Ok(keys) => keys,
                Err(key) => bail!("`{key}` is no key: write j, Ctrl-d, Enter, PageDown or F5"),
            };
            let mut found = entries.iter_mut().filter(|entry| entry.binding.name == name).peekable();
            if found.peek().is_none() {
                bail!("`{name}` is no action: the help (?) lists them");
            }
            found.for_each(|entry| entry.keys.clone_from(&keys));
        }
        Ok(Self { entries })
    }

    /// What a key does on a screen: the screen's own bindings come first.
    pub(crate) fn action(&self, key: Key, screen: &str) -> Option<Action> {
        let here = |context| match context {
            Context::Screen(name) => name == screen,
            Context::Everywhere | Context::Replay => true,
        };
        let mut found: Vec<&Entry> =
            self.entries.iter().filter(|entry| entry.keys.contains(&key) && here(entry.context)).collect();
        found.sort_by_key(|entry| !matches!(entry.context, Context::Screen(_)));
        // Digits are the screens, which are not counted here.
        found.first().map(|entry| entry.binding.action).or_else(|| match key.character()? {
            digit @ '1'..='9' => Some(Action::Screen(digit as u8 - b'1')),
            _ => None,
        })
    }

    /// What the palette runs by this name on a screen.
    pub(crate) fn named(&self, name: &str, screen: &str) -> Option<Action> {
        let of = |entry: &&Entry| match entry.context {
            Context::Screen(other) => other == screen,
            Context::Everywhere | Context::Replay => true,
        };
        self.entries
            .iter()
            .filter(of)
            .find(|entry| entry.binding.name == name)
            .map(|entry| entry.binding.action)
    }

    /// Every binding.
    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The first key of an action, for hints.
    pub(crate) fn hint(&self, action: Action) -> String {
        let entry = self.entries.iter().find(|entry| entry.binding.action == action);
        entry.and_then(|entry| entry.keys.first()).map_or_else(String::new, Key::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        for text in ["j", "G", "Ctrl-c", "Enter", "Shift-Tab", "F1", "F12", "/", "Space", "F"] {
            assert_eq!(Key::parse(text).map(|key| key.to_string()).as_deref(), Some(text));
        }
        assert_eq!(Key::parse("Hyper-x"), None);
        assert_eq!(Key::parse(""), None);
    }

    #[test]
    fn no_key_means_two_things_in_one_place() {
        let screens = crate::screens::bindings();
        let map = KeyMap::new(&screens, &BTreeMap::new()).unwrap();
        for (name, _) in &screens {
            let mut seen: std::collections::HashMap<Key, &str> = std::collections::HashMap::new();
            for entry in map.entries() {
                if matches!(entry.context, Context::Screen(other) if other != *name) {
                    continue;
                }
                assert_eq!(entry.keys.len(), entry.binding.keys.len(), "{}", entry.binding.name);
                for key in &entry.keys {
                    let other = seen.insert(*key, entry.binding.name);
                    assert_eq!(other, None, "{key} on {name}");
                }
            }
        }
    }

    #[test]
    fn the_page_has_every_key() {
        let page = include_str!("../../docs/hpmtop.md");
        let map = KeyMap::new(&crate::screens::bindings(), &BTreeMap::new()).unwrap();
        for Entry { context, keys, binding } in map.entries() {
            let keys: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
            let row =
                format!("| {} | {} | {} | {} |", context.place(), binding.name, keys.join(" "), binding.help);
            assert!(page.contains(&row), "{row}");
        }
    }

    #[test]
    fn the_configuration_can_give_an_action_other_keys() {
        let wanted = |name: &str, key: &str| BTreeMap::from([(name.to_owned(), vec![key.to_owned()])]);
        let map = KeyMap::new(&[], &wanted("freeze", "F5")).unwrap();
        assert_eq!(map.action(Key::parse("F5").unwrap(), ""), Some(Action::Freeze));
        assert_eq!(map.action(Key::parse("f").unwrap(), ""), None);
        assert!(KeyMap::new(&[], &wanted("fly", "F5")).is_err());
        assert!(KeyMap::new(&[], &wanted("freeze", "Wing")).is_err());
    }
}
