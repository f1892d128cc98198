//! What the person is asked, and what is done with the answer.

use std::path::PathBuf;

use ratatui::crossterm::event::KeyCode;

use super::{Effect, State};
use crate::collect::Command;
use crate::keys::Key;
use crate::model::Condition;
use crate::view::{palette, parse_moment};

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Search,
    Filter,
    Palette,
    Moment,
    Screenshot,
    Dump,
    Record,
}

impl Ask {
    /// What stands before the answer.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Search => "/",
            Self::Filter => "show only (a word, or an expression; empty for all): ",
            Self::Palette => ":",
            Self::Moment => "jump to (1.5s, 250ms, 2:30, 40%): ",
            Self::Screenshot => "write the screen to (.svg or text): ",
            Self::Dump => "write what is seen to (.json or .csv): ",
            Self::Record => "record to the folder: ",
        }
    }
}

/// A question that waits for its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) ask: Ask,
    pub(crate) text: String,
    /// Place among the suggestions.
    pub(crate) place: usize,
}

/// Longest answer.
const LONGEST: usize = 500;

impl Prompt {
    pub(crate) fn new(ask: Ask, text: String) -> Self {
        Self { ask, text, place: 0 }
    }
}

impl State {
    /// A key while a question is open.
    pub(super) fn type_key(&mut self, key: Key) -> Vec<Effect> {
        let Some(prompt) = &mut self.prompt else { return Vec::new() };
        match (key.character(), key.plain()) {
            (Some(character), _) => {
                if prompt.text.len() < LONGEST {
                    prompt.text.push(character);
                }
                prompt.place = 0;
            }
            (_, Some(KeyCode::Backspace)) => {
                prompt.place = 0;
                if prompt.text.pop().is_none() {
                    self.prompt = None;
                }
            }
            (_, Some(KeyCode::Down)) => prompt.place += 1,
            (_, Some(KeyCode::Up)) => prompt.place = prompt.place.saturating_sub(1),
            (_, Some(KeyCode::Tab)) => self.complete(),
            (_, Some(KeyCode::Enter)) => return self.answer(),
            (_, Some(KeyCode::Esc)) | (None, None) => self.prompt = None,
            _ => {}
        }
        if self.palette_is_open() {
            let count = palette(self).len();
            if let Some(prompt) = &mut self.prompt {
                prompt.place = prompt.place.min(count.saturating_sub(1));
            }
        }
        Vec::new()
    }

    /// Takes the suggestion that is selected.
    fn complete(&mut self) {
        if !self.palette_is_open() {
            return;
        }
        let found = palette(self);
        if let Some(prompt) = &mut self.prompt
            && let Some((name, ..)) = found.get(prompt.place)
        {
            prompt.text = (*name).to_owned();
            prompt.place = 0;
        }
    }

    fn answer(&mut self) -> Vec<Effect> {
        if self.palette_is_open() {
            self.complete();
        }
        let Some(Prompt { ask, text, .. }) = self.prompt.take() else { return Vec::new() };
        let text = text.trim().to_owned();
        match ask {
            Ask::Search => {
                self.searched = text.to_lowercase();
                return self.search(true);
            }
            Ask::Filter => self.filter(&text),
            Ask::Palette => {
                let named = self.keys.named(&text, self.screen_name());
                match named {
                    Some(action) => return self.act(action),
                    None if text.is_empty() => {}
                    None => self.message = Some(format!("`{text}` is no command: the help lists them")),
                }
            }
            Ask::Moment => {
                let whole = self.live.playback.and_then(|playback| playback.duration_ns);
                match parse_moment(&text, whole) {
                    Some(ns) => return vec![Effect::Ask(Command::Seek(ns))],
                    None => {
                        self.message = Some(format!("`{text}` is no time: write 1.5s, 250ms, 2:30 or 40%"))
                    }
                }
            }
            Ask::Screenshot | Ask::Dump | Ask::Record if text.is_empty() => {}
            Ask::Screenshot => return vec![Effect::Screenshot(PathBuf::from(text))],
            Ask::Dump => return vec![Effect::Dump(PathBuf::from(text))],
            Ask::Record => return vec![Effect::Ask(Command::Record(PathBuf::from(text)))],
        }
        Vec::new()
    }

    fn filter(&mut self, text: &str) {
        if text.is_empty() {
            self.settings.filter = None;
            return;
        }
        match Condition::new(text, &self.live.event_names(), &self.definitions) {
            Ok(condition) => self.settings.filter = Some(condition),
            Err(error) => self.message = Some(error.sentence()),
        }
    }

    /// Searches again for what was searched for.
    pub(super) fn search(&mut self, forward: bool) -> Vec<Effect> {
        if self.searched.is_empty() {
            self.message = Some("nothing was searched for yet: / does".to_owned());
            return Vec::new();
        }
        let text = self.searched.clone();
        let mut found = true;
        let effects = self.on_screen(|screen, view| {
            let reply = screen.search(&text, forward, view);
            found = reply != crate::screens::Reply::Ignored;
            reply
        });
        if !found {
            self.message = Some(format!("`{text}` is not found here"));
        }
        effects
    }
}
