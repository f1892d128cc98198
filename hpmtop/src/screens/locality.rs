//! Locality: where in memory the events of a process happen, and which objects are worth allocating together.

mod tables;
mod words;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use serde_json::{Value, json};

use super::list::Selection;
use super::{Reply, Screen, View};
use crate::collect::Command;
use crate::keys::{Action, Binding, bind};
use crate::symbols::{Look, Memory, Profile, Sight};
use crate::view::{Sheet, put};

/// Keys of this screen.
pub(crate) const BINDINGS: &[Binding] = &[
    bind(Action::Mode, "part", &["v"], "the next part: spaces, objects, places, lines, fields, advice"),
    bind(Action::Metric, "event", &["e"], "fields and advice by the next event"),
    bind(Action::Zero, "zero", &["z"], "count samples from zero"),
    bind(
        Action::Applied,
        "applied",
        &["a"],
        "the selected advice was followed just now: watch what comes of it",
    ),
];

/// Height from which on several parts are seen at once.
const TALL: u16 = 36;
/// Rows of spaces above another part in a low terminal.
const SPACES: u16 = 5;

/// A part of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// Kinds of memory.
    #[default]
    Spaces,
    /// Objects, or pages.
    Objects,
    /// Places of allocation, or variables.
    Places,
    /// Cache lines.
    Lines,
    /// Fields through which missed objects were reached.
    Fields,
    /// What to allocate together.
    Advice,
}

impl Part {
    const ALL: [Self; 6] =
        [Self::Spaces, Self::Objects, Self::Places, Self::Lines, Self::Fields, Self::Advice];

    fn next(self) -> Self {
        let place = Self::ALL.iter().position(|part| *part == self).unwrap_or(0);
        Self::ALL[(place + 1) % Self::ALL.len()]
    }
}

/// The screen.
#[derive(Default)]
pub(crate) struct Locality {
    /// The part in which something is selected.
    part: Part,
    /// Place of the event among those that are sampled.
    event: usize,
    selection: Selection,
    /// What is known of the selected row is shown in words.
    open: bool,
}

impl Screen for Locality {
    fn draw(&self, view: &View<'_>, buffer: &mut Buffer) {
        let headings = self.headings(view);
        for (row, (text, style)) in (view.area.y..view.area.bottom()).zip(&headings) {
            put(buffer, (view.area.x + 1, row), text, view.area.width.saturating_sub(1), false, *style);
        }
        let Some(memory) = self.memory(view) else { return };
        for (part, area) in self.parts(view, headings.len() as u16) {
            self.draw_part(part, area, memory, view, buffer);
        }
    }

    fn act(&mut self, action: Action, view: &View<'_>) -> Reply {
        let ids = self.ids(view);
        if !self.open && self.selection.act(action, &ids, self.height(view)) {
            return Reply::Done;
        }
        match action {
            Action::Mode => self.choose(self.part.next()),
            Action::Metric => {
                self.event += 1;
                self.selection = Selection::default();
            }
            Action::Zero => return Reply::Ask(Command::Zero),
            Action::Enter if self.open => self.open = false,
            Action::Enter if ids.is_empty() => return Reply::Say("nothing is selected".to_owned()),
            Action::Enter => self.open = true,
            Action::Applied => return self.applied(view),
            _ => return Reply::Ignored,
        }
        self.look(view).map_or(Reply::Done, Reply::Look)
    }

    fn click(&mut self, _column: u16, row: u16, view: &View<'_>) -> Reply {
        let y = view.area.y + row;
        let parts = self.parts(view, self.headings(view).len() as u16);
        let Some((part, area)) = parts.into_iter().find(|(_, area)| (area.y..area.bottom()).contains(&y))
        else {
            return Reply::Ignored;
        };
        if part != self.part {
            self.choose(part);
        }
        let (ids, height) = (self.ids(view), self.height(view));
        let Some(line) = usize::from(y).checked_sub(usize::from(area.y) + 1) else { return Reply::Done };
        let place = self.selection.offset(&ids, height) + line;
        if place >= ids.len() {
            return Reply::Done;
        }
        if self.selection.id == Some(ids[place]) {
            return self.act(Action::Enter, view);
        }
        self.selection.select(&ids, place, height);
        Reply::Done
    }

    fn search(&mut self, text: &str, forward: bool, view: &View<'_>) -> Reply {
        let Some(memory) = self.memory(view) else { return Reply::Ignored };
        let rows = tables::table(self.part, memory, view).rows;
        let holds = |place: usize| rows[place].iter().any(|cell| cell.text.to_lowercase().contains(text));
        super::found(self.selection.search(&self.ids(view), self.height(view), forward, holds))
    }

    fn sheet(&self, view: &View<'_>) -> Sheet {
        self.memory(view).map_or_else(Sheet::default, |memory| tables::table(self.part, memory, view))
    }

    fn json(&self, view: &View<'_>) -> Value {
        let remarks: Vec<String> = self.headings(view).into_iter().map(|(text, _)| text).collect();
        let Some(memory) = self.memory(view) else { return json!({ "remarks": remarks }) };
        let part = |part| tables::table(part, memory, view).json();
        json!({
            "remarks": remarks,
            "spaces": part(Part::Spaces),
            "objects": part(Part::Objects),
            "places": part(Part::Places),
            "lines": part(Part::Lines),
            "fields": part(Part::Fields),
            "advice": part(Part::Advice),
        })
    }

    fn look(&self, view: &View<'_>) -> Option<Look> {
        let pid = view.focus.pid?;
        Some(Look { pid, event: self.event_index(view)?, by: Sight::Memory, function: None })
    }

    fn back(&mut self) -> bool {
        std::mem::take(&mut self.open)
    }

    fn hints(&self) -> &'static [(Action, &'static str)] {
        if self.open {
            return &[(Action::Back, "close"), (Action::Applied, "followed")];
        }
        &[
            (Action::Mode, "part"),
            (Action::Enter, "in words"),
            (Action::Metric, "event"),
            (Action::Zero, "zero"),
            (Action::Search, "search"),
        ]
    }
}

impl Locality {
    /// The event whose fields are shown: those that are sampled take turns.
    fn event_index(&self, view: &View<'_>) -> Option<usize> {
        let sampled = words::sampled(view);
        (!sampled.is_empty()).then(|| sampled[self.event % sampled.len()])
    }

    /// The samples of what is looked at, if they have come.
    fn profile<'a>(&self, view: &View<'a>) -> Option<&'a Profile> {
        let look = self.look(view)?;
        view.profile.filter(|profile| profile.look == look)
    }

    fn memory<'a>(&self, view: &View<'a>) -> Option<&'a Memory> {
        self.profile(view)?.memory.as_ref()
    }

    fn choose(&mut self, part: Part) {
        self.part = part;
        self.selection = Selection::default();
        self.open = false;
    }

    /// The rows' own numbers: places that do not change while something else gets more samples.
    fn ids(&self, view: &View<'_>) -> Vec<u64> {
        self.memory(view).map_or_else(Vec::new, |memory| tables::ids(self.part, memory))
    }

    /// Rows that are seen of the chosen part.
    fn height(&self, view: &View<'_>) -> usize {
        let parts = self.parts(view, self.headings(view).len() as u16);
        let area =
            parts.into_iter().find(|(part, _)| *part == self.part).map_or(Rect::default(), |(_, area)| area);
        usize::from(area.height.saturating_sub(1))
    }

    /// Where each part is that is seen: kinds of memory above, and the chosen part below; in a tall terminal several.
    fn parts(&self, view: &View<'_>, above: u16) -> Vec<(Part, Rect)> {
        let Some(memory) = self.memory(view) else { return Vec::new() };
        let body =
            Rect { y: view.area.y + above, height: view.area.height.saturating_sub(above), ..view.area };
        let all_spaces = memory.spaces.len() as u16 + 2;
        let (spaces, below) = if body.height >= TALL {
            let chosen = match self.part {
                Part::Spaces | Part::Fields | Part::Advice => Part::Objects,
                other => other,
            };
            (all_spaces.min(body.height / 4), vec![chosen, Part::Fields, Part::Advice])
        } else {
            let chosen = if self.part == Part::Spaces { Part::Objects } else { self.part };
            let room = if self.part == Part::Spaces { body.height * 2 / 3 } else { SPACES };
            (all_spaces.min(room), vec![chosen])
        };
        let mut parts = vec![(Part::Spaces, Rect { height: spaces.min(body.height), ..body })];
        let rest = body.height.saturating_sub(spaces);
        let each = rest / below.len() as u16;
        for (place, part) in (0..).zip(below) {
            let y = body.y + spaces + each * place;
            // The last one has what is left over.
            let until = if y + 2 * each > body.bottom() { body.bottom() } else { y + each };
            parts.push((part, Rect { y, height: until.saturating_sub(y), ..body }));
        }
        parts
    }

    fn draw_part(&self, part: Part, area: Rect, memory: &Memory, view: &View<'_>, buffer: &mut Buffer) {
        let is_chosen = part == self.part;
        if is_chosen && self.open {
            let selected = self.selection.place(&tables::ids(part, memory));
            let lines = words::lines(part, memory, selected, view);
            let width = area.width.saturating_sub(2);
            let rows = lines.iter().flat_map(|(text, style)| {
                words::wrapped(text, width.into()).into_iter().map(move |line| (line, *style))
            });
            for (row, (text, style)) in (area.y..area.bottom()).zip(rows) {
                put(buffer, (area.x + 1, row), &text, width, false, style);
            }
            return;
        }
        let mut sheet = tables::table(part, memory, view);
        let height = usize::from(area.height.saturating_sub(1));
        if sheet.rows.is_empty() {
            sheet.draw(buffer, Rect { height: area.height.min(1), ..area }, view.theme);
            let why = words::empty(part, memory, view);
            for (row, line) in (area.y + 1..area.bottom()).zip(words::wrapped(&why, area.width.into())) {
                put(
                    buffer,
                    (area.x + 1, row),
                    &line,
                    area.width.saturating_sub(1),
                    false,
                    view.theme.faint(),
                );
            }
            return;
        }
        let ids = tables::ids(part, memory);
        let selection = if is_chosen { self.selection } else { Selection::default() };
        let offset = selection.offset(&ids, height);
        sheet.total = sheet.rows.len();
        sheet.offset = offset;
        sheet.rows = sheet.rows.into_iter().skip(offset).take(height).collect();
        sheet.selected = is_chosen.then(|| selection.place(&ids) - offset);
        sheet.draw(buffer, area, view.theme);
    }

    /// What was advised was done.
    fn applied(&self, view: &View<'_>) -> Reply {
        if self.part != Part::Advice {
            return Reply::Say("choose the advice that was followed (v leads to the advice)".to_owned());
        }
        let Some(memory) = self.memory(view) else {
            return Reply::Say("there is no advice yet".to_owned());
        };
        let selected = self.selection.place(&tables::ids(Part::Advice, memory));
        match (memory.advice.get(selected), view.focus.pid) {
            (Some((advice, _)), Some(pid)) => {
                Reply::Ask(Command::Applied(pid, advice.candidate.pair.field.to_string()))
            }
            _ => Reply::Say("there is no advice".to_owned()),
        }
    }

    fn headings(&self, view: &View<'_>) -> Vec<(String, ratatui::style::Style)> {
        let profile = self.profile(view).and_then(|profile| Some((profile, profile.memory.as_ref()?)));
        words::headings(view, self.event_index(view), profile)
    }
}
