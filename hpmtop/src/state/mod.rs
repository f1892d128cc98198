//! The whole state of the screen, and what each event makes of it. Nothing here draws, waits, or asks anybody: what has to be
//! done outside is handed back as an [`Effect`].

mod commands;
mod prompt;

#[cfg(test)]
mod long;
#[cfg(test)]
mod printed;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use libhpm::analysis::explore::Definitions;
use nix::sys::signal::Signal;
use ratatui::crossterm::event::{KeyEvent, KeyEventKind, MouseEvent, MouseEventKind};
use ratatui::layout::Rect;

pub(crate) use self::prompt::{Ask, Prompt};
use crate::collect::Command;
use crate::config::Config;
use crate::event::Event;
use crate::keys::{Action, Key, KeyMap};
use crate::model::{Column, ColumnSpec, Model, SourceFacts, default_columns};
use crate::screens::{ALL, Change, Focus, Names, Reply, Rows, Screen, Settings, View, bindings};
use crate::symbols::{Look, Profile, Stop};
use crate::theme::{Theme, ThemeName};
use crate::view::{Parts, tab_places};

/// Names of functions that are kept for ends of quanta; of more, all are asked for again.
const NAMES_MAX: usize = 1 << 14;

/// What has to be done outside.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    /// End.
    Quit,
    /// Stop until somebody continues this process.
    Suspend,
    /// Draw everything anew.
    Redraw,
    /// Ask the collector.
    Ask(Command),
    /// Write the screen to a file.
    Screenshot(PathBuf),
    /// Write what is seen to a file.
    Dump(PathBuf),
    /// Save the configuration.
    Save,
}

/// The state.
pub(crate) struct State {
    live: Model,
    /// What is shown while it is frozen.
    frozen: Option<Box<Model>>,
    screens: Vec<Box<dyn Screen>>,
    at: usize,
    /// Screens that Esc goes back to.
    before: Vec<usize>,
    pub(crate) theme: Theme,
    theme_name: ThemeName,
    pub(crate) config: Config,
    keys: KeyMap,
    definitions: Definitions,
    specs: Vec<ColumnSpec>,
    columns: Vec<Column>,
    settings: Settings,
    focus: Focus,
    profile: Option<Box<Profile>>,
    looked: Option<Look>,
    names: Names,
    /// Names that were asked for and have not come.
    awaited: usize,
    pub(crate) prompt: Option<Prompt>,
    /// First line of the help that is seen, while it is open.
    pub(crate) help: Option<usize>,
    pub(crate) message: Option<String>,
    /// Something was measured, and so there is something to be looked at.
    fed: bool,
    lost: Option<String>,
    searched: String,
    area: Rect,
}

impl State {
    /// A state that has seen nothing.
    ///
    /// # Errors
    /// The configuration names a key, an action or a metric that is none.
    pub(crate) fn new(source: SourceFacts, config: Config, theme: ThemeName) -> anyhow::Result<Self> {
        let keys = KeyMap::new(&bindings(), &config.keys)?;
        let definitions = config.definitions()?;
        let live = Model::new(source);
        let events = live.event_names();
        let mut chosen: Vec<ColumnSpec> = config.columns.clone();
        // What was saved where other events were measured lacks what can be had here.
        let usual = default_columns(&events, &definitions);
        let new =
            usual.into_iter().filter(|spec| config.columns.iter().all(|known| known.title != spec.title));
        chosen.extend(new);
        let sort = config.sort.clone().unwrap_or_else(|| "cpu%".to_owned());
        let rows =
            config.rows.as_deref().and_then(|name| Rows::NAMES.iter().find(|(known, _)| *known == name));
        let settings = Settings {
            rows: rows.map_or(Rows::default(), |(_, rows)| *rows),
            sort,
            ascending: config.ascending,
            hide_idle: config.hide_idle,
            hide_kernel: config.hide_kernel,
            filter: None,
        };
        let mut state = Self {
            live,
            frozen: None,
            screens: ALL.iter().map(|(_, _, make)| make()).collect(),
            at: 0,
            before: Vec::new(),
            theme: theme.theme(),
            theme_name: theme,
            config,
            keys,
            definitions,
            specs: chosen,
            columns: Vec::new(),
            settings,
            focus: Focus::default(),
            profile: None,
            looked: None,
            names: Names::new(),
            awaited: 0,
            prompt: None,
            help: None,
            message: None,
            fed: false,
            lost: None,
            searched: String::new(),
            area: Rect::new(0, 0, 80, 24),
        };
        state.make_columns();
        Ok(state)
    }

    /// What is shown.
    pub(crate) fn model(&self) -> &Model {
        self.frozen.as_deref().unwrap_or(&self.live)
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    pub(crate) fn screen(&self) -> &dyn Screen {
        self.screens[self.at].as_ref()
    }

    pub(crate) fn screen_name(&self) -> &'static str {
        ALL[self.at].0
    }

    /// That the source is lost and why, in a sentence.
    pub(crate) fn lost(&self) -> Option<&str> {
        self.lost.as_deref()
    }

    pub(crate) fn keys(&self) -> &KeyMap {
        &self.keys
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn palette_is_open(&self) -> bool {
        self.prompt.as_ref().is_some_and(|prompt| prompt.ask == Ask::Palette)
    }

    /// The terminal has this size.
    pub(crate) fn set_area(&mut self, area: Rect) {
        self.area = area;
    }

    /// What a screen may look at when it is drawn here.
    pub(crate) fn view(&self, area: Rect) -> View<'_> {
        View {
            model: self.model(),
            theme: &self.theme,
            columns: &self.columns,
            specs: &self.specs,
            settings: &self.settings,
            focus: self.focus,
            profile: self.profile.as_deref(),
            names: &self.names,
            area,
        }
    }

    /// What happened, and what has to be done about it.
    pub(crate) fn update(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Batch(batch) => {
                if batch.reset {
                    self.frozen = None;
                }
                self.live.apply(*batch);
                self.fed = true;
                self.follow_focus();
                self.look()
            }
            Event::Profile(profile) => {
                self.profile = Some(profile);
                Vec::new()
            }
            Event::Names(names) => {
                self.awaited = self.awaited.saturating_sub(1);
                self.names.extend(names.into_iter().map(|(pid, address, name)| ((pid, address), name)));
                Vec::new()
            }
            Event::Said(text) => {
                self.message = Some(text);
                Vec::new()
            }
            Event::Lost(why) => {
                self.lost = Some(format!("the source is lost: {why}"));
                self.live.over.clone_from(&self.lost);
                // Without anything to look at there is nothing to stay for.
                if self.fed { Vec::new() } else { vec![Effect::Quit] }
            }
            Event::Synced(_) => Vec::new(),
            Event::Key(key) => self.key(key),
            Event::Mouse(mouse) => self.mouse(mouse),
            Event::Resize | Event::Signal(Signal::SIGCONT) => vec![Effect::Redraw],
            Event::Signal(Signal::SIGTSTP) => vec![Effect::Suspend],
            Event::Signal(_) => vec![Effect::Quit],
        }
    }

    /// In a system with one measured process, that one is looked at.
    fn follow_focus(&mut self) {
        if self.focus.pid.is_none() && self.live.processes.len() == 1 {
            self.focus.pid = self.live.processes.keys().next().copied();
        }
    }

    fn key(&mut self, event: KeyEvent) -> Vec<Effect> {
        if event.kind == KeyEventKind::Release {
            return Vec::new();
        }
        let key = Key::of(event);
        if self.prompt.is_some() {
            return self.type_key(key);
        }
        self.message = None;
        match self.keys.action(key, self.screen_name()) {
            Some(action) => self.act(action),
            None => Vec::new(),
        }
    }

    fn mouse(&mut self, event: MouseEvent) -> Vec<Effect> {
        if self.prompt.is_some() {
            return Vec::new();
        }
        let parts = Parts::of(self.area);
        let (column, row) = (event.column, event.row);
        let inside = |area: Rect| area.contains((column, row).into());
        match event.kind {
            MouseEventKind::ScrollDown => self.act(Action::Down),
            MouseEventKind::ScrollUp => self.act(Action::Up),
            MouseEventKind::Down(_) if self.help.is_some() => self.act(Action::Back),
            MouseEventKind::Down(_) if inside(parts.tabs) => {
                let hit = tab_places(parts.tabs)
                    .into_iter()
                    .find(|(x, width, _)| (*x..x + width).contains(&column));
                hit.map_or_else(Vec::new, |(_, _, place)| self.act(Action::Screen(place as u8)))
            }
            MouseEventKind::Down(_) if inside(parts.body) => {
                let (column, row) = (column - parts.body.x, row - parts.body.y);
                self.on_screen(|screen, view| screen.click(column, row, view))
            }
            MouseEventKind::Drag(_) if inside(parts.body) => {
                let (column, row) = (column - parts.body.x, row - parts.body.y);
                self.on_screen(|screen, view| screen.drag(column, row, view))
            }
            _ => Vec::new(),
        }
    }

    /// Lets the shown screen do something, and carries out what it wants.
    fn on_screen(&mut self, act: impl FnOnce(&mut dyn Screen, &View<'_>) -> Reply) -> Vec<Effect> {
        let area = Parts::of(self.area).body;
        let view = View {
            model: self.frozen.as_deref().unwrap_or(&self.live),
            theme: &self.theme,
            columns: &self.columns,
            specs: &self.specs,
            settings: &self.settings,
            focus: self.focus,
            profile: self.profile.as_deref(),
            names: &self.names,
            area,
        };
        let reply = act(self.screens[self.at].as_mut(), &view);
        self.carry_out(reply)
    }

    fn carry_out(&mut self, reply: Reply) -> Vec<Effect> {
        match reply {
            Reply::Done | Reply::Ignored | Reply::Look(_) => {}
            Reply::Say(text) => self.message = Some(text),
            Reply::Focus(focus, screen) => {
                self.focus = focus;
                if let Some(name) = screen {
                    self.go_to(name);
                }
            }
            Reply::Ask(command) => return vec![Effect::Ask(command)],
            Reply::AskFilter => {
                let text =
                    self.settings.filter.as_ref().map_or_else(String::new, |filter| filter.text.clone());
                self.prompt = Some(Prompt::new(Ask::Filter, text));
            }
            Reply::Settings(change) => self.change(change),
        }
        self.look()
    }

    fn go_to(&mut self, name: &str) {
        if let Some(place) = ALL.iter().position(|(other, ..)| *other == name) {
            self.show(place);
        }
    }

    /// Shows the screen with this place.
    fn show(&mut self, place: usize) {
        if place < ALL.len() && place != self.at {
            self.before.retain(|before| *before != place);
            self.before.push(self.at);
            self.at = place;
        }
    }

    /// Lets the namer look at what the shown screen wants to know.
    fn look(&mut self) -> Vec<Effect> {
        let area = Parts::of(self.area).body;
        let view = self.view(area);
        let (wanted, stops) = (self.screen().look(&view), self.screen().stops(&view));
        let mut effects: Vec<Effect> = self.name(stops).map(Effect::Ask).into_iter().collect();
        if wanted != self.looked {
            self.looked.clone_from(&wanted);
            effects.push(Effect::Ask(Command::Look(wanted)));
        }
        effects
    }

    /// Asks for the names of those of which they were not asked for yet.
    fn name(&mut self, mut stops: Vec<Stop>) -> Option<Command> {
        stops.retain(|(pid, address, _)| !self.names.contains_key(&(*pid, *address)));
        if stops.is_empty() {
            return None;
        }
        if self.names.len() > NAMES_MAX {
            self.names.clear();
        }
        stops.retain(|(pid, address, _)| self.names.insert((*pid, *address), None).is_none());
        self.awaited += 1;
        Some(Command::Name(stops))
    }

    /// Whether names are on their way.
    pub(crate) fn awaits_names(&self) -> bool {
        self.awaited > 0
    }

    fn change(&mut self, change: Change) {
        let settings = &mut self.settings;
        let of_columns = matches!(change, Change::Toggle(_) | Change::Move(..));
        match change {
            Change::Rows(rows) => {
                settings.rows = rows;
                self.message = Some(format!("rows are {}", rows.name()));
            }
            Change::Sort(title) => settings.sort = title,
            Change::Reverse => settings.ascending = !settings.ascending,
            Change::HideIdle => {
                settings.hide_idle = !settings.hide_idle;
                self.message = Some(format!("what did not run is {}", shown(!settings.hide_idle)));
            }
            Change::HideKernel => {
                settings.hide_kernel = !settings.hide_kernel;
                self.message = Some(format!("threads of the kernel are {}", shown(!settings.hide_kernel)));
            }
            Change::Toggle(place) => {
                if let Some(spec) = self.specs.get_mut(place) {
                    spec.shown = !spec.shown;
                }
            }
            Change::Move(place, step) => {
                let to = place.saturating_add_signed(step);
                if place < self.specs.len() && to < self.specs.len() {
                    self.specs.swap(place, to);
                }
            }
        }
        if of_columns {
            self.make_columns();
        }
    }

    /// Understands the columns that are shown; those that cannot be computed of the events here are left out.
    fn make_columns(&mut self) {
        let events = self.live.event_names();
        let shown = self.specs.iter().filter(|spec| spec.shown);
        let columns = shown.filter_map(|spec| Column::new(spec, &events, &self.definitions).ok());
        self.columns = columns.collect();
    }
}

fn shown(shown: bool) -> &'static str {
    if shown { "shown" } else { "left out" }
}
