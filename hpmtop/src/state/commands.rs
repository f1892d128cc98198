//! What each action does.

use super::{Ask, Effect, Prompt, State};
use crate::collect::Command;
use crate::keys::Action;
use crate::screens::{ALL, Reply};
use crate::theme::ThemeName;

/// A replay goes no faster and no slower than so many times.
const SPEEDS: (f64, f64) = (1.0 / 64.0, 4096.0);

impl State {
    /// Does what a key, the mouse or the palette asks for.
    pub(super) fn act(&mut self, action: Action) -> Vec<Effect> {
        if let Some(offset) = self.help
            && let Some(offset) = self.scroll_help(action, offset)
        {
            self.help = offset;
            return Vec::new();
        }
        match action {
            Action::Quit => return vec![Effect::Quit],
            Action::Suspend => return vec![Effect::Suspend],
            Action::Help => self.help = Some(0),
            Action::Palette => self.ask(Ask::Palette, String::new()),
            Action::Search => self.ask(Ask::Search, String::new()),
            Action::SearchNext => return self.search(true),
            Action::SearchPrevious => return self.search(false),
            Action::Screenshot => self.ask(Ask::Screenshot, "hpmtop.svg".to_owned()),
            Action::Dump => self.ask(Ask::Dump, "hpmtop.json".to_owned()),
            Action::Theme => {
                self.theme_name = self.theme_name.next();
                self.theme = self.theme_name.theme();
                self.message = Some(format!("colours: {}", self.theme_name.name()));
            }
            Action::Save => {
                self.remember();
                return vec![Effect::Save];
            }
            Action::Freeze => self.freeze(),
            Action::Record if self.live.recording.is_some() => {
                return vec![Effect::Ask(Command::StopRecording)];
            }
            Action::Record => self.ask(Ask::Record, "hpmtop.hpm".to_owned()),
            Action::Back => return self.back(),
            Action::Screen(place) => {
                self.show(place.into());
                return self.look();
            }
            Action::NextScreen => {
                self.show((self.at + 1) % ALL.len());
                return self.look();
            }
            Action::PreviousScreen => {
                self.show((self.at + ALL.len() - 1) % ALL.len());
                return self.look();
            }
            _ => return self.act_on_screen(action),
        }
        Vec::new()
    }

    /// The screen comes first; what it does not know can be of a replay.
    fn act_on_screen(&mut self, action: Action) -> Vec<Effect> {
        let mut known = true;
        let effects = self.on_screen(|screen, view| {
            let reply = screen.act(action, view);
            known = reply != Reply::Ignored;
            reply
        });
        if known { effects } else { self.act_on_replay(action) }
    }

    fn act_on_replay(&mut self, action: Action) -> Vec<Effect> {
        let is_replay = matches!(
            action,
            Action::Pause
                | Action::StepForward
                | Action::StepBack
                | Action::Faster
                | Action::Slower
                | Action::JumpToTime
                | Action::NextMarker
                | Action::PreviousMarker
                | Action::NextPhase
        );
        let Some(playback) = self.live.playback else {
            match action {
                Action::Pause => self.freeze(),
                _ if is_replay => {
                    self.message = Some("this is of a replay (hpmtop --replay NAME.hpm)".to_owned())
                }
                _ => {}
            }
            return Vec::new();
        };
        let step = i64::try_from(self.live.source.slot_ns).unwrap_or(i64::MAX);
        let command = match action {
            Action::Pause => Command::Pause(!playback.paused),
            Action::StepForward => Command::Step(step),
            Action::StepBack => Command::Step(-step),
            Action::Faster => Command::Speed((playback.speed * 2.0).min(SPEEDS.1)),
            Action::Slower => Command::Speed((playback.speed / 2.0).max(SPEEDS.0)),
            Action::NextMarker => Command::Marker(true),
            Action::PreviousMarker => Command::Marker(false),
            Action::NextPhase => Command::NextPhase(self.focus.pid),
            Action::JumpToTime => {
                self.ask(Ask::Moment, String::new());
                return Vec::new();
            }
            _ => return Vec::new(),
        };
        vec![Effect::Ask(command)]
    }

    fn ask(&mut self, ask: Ask, text: String) {
        self.prompt = Some(Prompt::new(ask, text));
    }

    /// Scrolls or closes the help; `None` for what it does not know.
    fn scroll_help(&self, action: Action, offset: usize) -> Option<Option<usize>> {
        let last = crate::view::help_lines(self).len().saturating_sub(1);
        let page = usize::from(self.area.height.saturating_sub(6)).max(1);
        let last = last.saturating_sub(page);
        let to = match action {
            Action::Down => offset + 1,
            Action::Up => offset.saturating_sub(1),
            Action::PageDown => offset + page,
            Action::PageUp => offset.saturating_sub(page),
            Action::Top => 0,
            Action::Bottom => last,
            Action::Help | Action::Back => return Some(None),
            _ => return None,
        };
        Some(Some(to.min(last)))
    }

    fn freeze(&mut self) {
        self.frozen = match self.frozen.take() {
            Some(_) => None,
            None => Some(Box::new(self.live.clone())),
        };
    }

    fn back(&mut self) -> Vec<Effect> {
        if self.screens[self.at].back() {
            return self.look();
        }
        if self.settings.filter.take().is_some() {
            return Vec::new();
        }
        if let Some(before) = self.before.pop() {
            self.at = before;
        }
        self.look()
    }

    /// Puts into the configuration what was changed here.
    fn remember(&mut self) {
        let settings = &self.settings;
        self.config.theme = Some(self.theme_name).filter(|theme| *theme != ThemeName::default());
        self.config.sort = Some(settings.sort.clone());
        self.config.ascending = settings.ascending;
        self.config.rows = Some(settings.rows.name().to_owned());
        self.config.hide_idle = settings.hide_idle;
        self.config.hide_kernel = settings.hide_kernel;
        self.config.columns.clone_from(&self.specs);
    }
}
