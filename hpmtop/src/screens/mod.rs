//! The screens. To add one: write a module with a type that is a [`Screen`], and add one line to [`ALL`].

mod list;
mod locality;
mod machine;
mod phases;
mod process;
mod processes;
mod time;

use std::collections::HashMap;
use std::sync::Arc;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::Value;

use crate::collect::Command;
use crate::keys::{Action, Binding};
use crate::model::{Column, ColumnSpec, Condition, Model};
use crate::symbols::{Look, Profile, Stop};
use crate::theme::Theme;
use crate::view::Sheet;

/// A screen's name, its keys, and how it is made.
type Entry = (&'static str, &'static [Binding], fn() -> Box<dyn Screen>);

/// All screens, in the order of their numbers.
pub(crate) const ALL: [Entry; 6] = [
    ("processes", processes::BINDINGS, || Box::new(processes::Processes::default())),
    ("time", time::BINDINGS, || Box::new(time::Time::default())),
    ("process", process::BINDINGS, || Box::new(process::OneProcess::default())),
    ("phases", phases::BINDINGS, || Box::new(phases::PhaseScreen::default())),
    ("locality", locality::BINDINGS, || Box::new(locality::Locality::default())),
    ("machine", machine::BINDINGS, || Box::new(machine::Machine::default())),
];

/// Names and keys of all screens.
pub(crate) fn bindings() -> Vec<(&'static str, &'static [Binding])> {
    ALL.iter().map(|(name, bindings, _)| (*name, *bindings)).collect()
}

/// Functions by process and address; none where no symbol covers it, or while nobody has said.
pub(crate) type Names = HashMap<(u32, u64), Option<Arc<str>>>;

/// What a screen may look at.
pub(crate) struct View<'a> {
    pub(crate) model: &'a Model,
    pub(crate) theme: &'a Theme,
    /// The columns that are shown.
    pub(crate) columns: &'a [Column],
    /// All of them.
    pub(crate) specs: &'a [ColumnSpec],
    pub(crate) settings: &'a Settings,
    /// What is looked at on every screen.
    pub(crate) focus: Focus,
    pub(crate) profile: Option<&'a Profile>,
    /// Functions in which quanta ended, by process and address; none where no symbol covers it.
    pub(crate) names: &'a Names,
    /// Where the screen is drawn.
    pub(crate) area: Rect,
}

/// What is looked at on every screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Focus {
    pub(crate) pid: Option<u32>,
    /// One of its threads only.
    pub(crate) tid: Option<u32>,
}

/// What rows are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Rows {
    #[default]
    Processes,
    Threads,
    Tree,
    Cgroups,
}

impl Rows {
    /// As the configuration has them, in the order in which a key goes through them.
    pub(crate) const NAMES: [(&'static str, Self); 4] = [
        ("processes", Self::Processes),
        ("threads", Self::Threads),
        ("tree", Self::Tree),
        ("cgroups", Self::Cgroups),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, rows)| *rows == self).map_or("", |(name, _)| name)
    }
}

/// What is remembered when the configuration is saved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    pub(crate) rows: Rows,
    /// Title of a column.
    pub(crate) sort: String,
    pub(crate) ascending: bool,
    pub(crate) hide_idle: bool,
    pub(crate) hide_kernel: bool,
    pub(crate) filter: Option<Condition>,
}

/// What a screen wants to be done.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Reply {
    /// Nothing, but the key was taken.
    Done,
    /// The key means nothing here.
    Ignored,
    /// Something is to be told.
    Say(String),
    /// Look at this everywhere.
    Focus(Focus, Option<&'static str>),
    /// Let the namer look at this.
    Look(Look),
    /// Ask the collector.
    Ask(Command),
    /// Ask the person for a filter.
    AskFilter,
    /// Change what is remembered.
    Settings(Change),
}

/// A change of what is remembered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    Rows(Rows),
    Sort(String),
    Reverse,
    HideIdle,
    HideKernel,
    /// Shows or hides the column with this place among all.
    Toggle(usize),
    /// Moves the column with this place by so many places.
    Move(usize, isize),
}

/// Whether a search has found something.
fn found(found: bool) -> Reply {
    if found { Reply::Done } else { Reply::Ignored }
}

/// A screen.
pub(crate) trait Screen {
    /// Draws it, and says nothing: what is drawn depends on the view and the screen's own state only.
    fn draw(&self, view: &View<'_>, buffer: &mut Buffer);

    /// Whether it shows single quanta or what came of them, so that it is drawn anew whenever some have come.
    fn shows_quanta(&self) -> bool {
        false
    }

    /// Does what a key asks for.
    fn act(&mut self, action: Action, view: &View<'_>) -> Reply;

    /// Somebody clicked at a place of the screen.
    fn click(&mut self, _column: u16, _row: u16, _view: &View<'_>) -> Reply {
        Reply::Ignored
    }

    /// Somebody drags the mouse to a place of the screen.
    fn drag(&mut self, _column: u16, _row: u16, _view: &View<'_>) -> Reply {
        Reply::Ignored
    }

    /// Goes to the next place (or the one before) that contains this text in small letters; [`Reply::Ignored`] without one.
    fn search(&mut self, _text: &str, _forward: bool, _view: &View<'_>) -> Reply {
        Reply::Ignored
    }

    /// What is seen, for other programs.
    fn sheet(&self, view: &View<'_>) -> Sheet;

    /// The same as JSON; more of it where the screen has several tables.
    fn json(&self, view: &View<'_>) -> Value {
        self.sheet(view).json()
    }

    /// What the namer should look at while this screen is shown.
    fn look(&self, _view: &View<'_>) -> Option<Look> {
        None
    }

    /// Ends of quanta whose functions it shows.
    fn stops(&self, _view: &View<'_>) -> Vec<Stop> {
        Vec::new()
    }

    /// Closes what is open on it; whether something was.
    fn back(&mut self) -> bool {
        false
    }

    /// Actions whose keys are told at the bottom.
    fn hints(&self) -> &'static [(Action, &'static str)];
}
