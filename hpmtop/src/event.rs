//! What the screen reacts to, whoever sends it.

use std::sync::Arc;

use nix::sys::signal::Signal;
use ratatui::crossterm::event::{KeyEvent, MouseEvent};

use crate::model::Batch;
use crate::symbols::Profile;

/// Something happened.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// Somebody used the mouse.
    Mouse(MouseEvent),
    /// The terminal has another size: everything is drawn anew.
    Resize,
    /// Something was measured.
    Batch(Box<Batch>),
    /// Samples of the process that is looked at have names.
    Profile(Box<Profile>),
    /// The functions in which quanta ended, by process and address; none where no symbol covers it.
    Names(Vec<(u32, u64, Option<Arc<str>>)>),
    /// Everything that was asked for before this was asked for has come.
    Synced(u64),
    /// Something has to be told.
    Said(String),
    /// A signal came.
    Signal(Signal),
    /// The source is lost; what was measured stays to be looked at.
    Lost(String),
}
