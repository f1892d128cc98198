//! What is selected in a list that changes under the hand: the same thing, wherever it goes.

use crate::keys::Action;

/// A selection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    /// What is selected; nothing until somebody moves, so that the first row is.
    pub(crate) id: Option<u64>,
    /// Where it was last.
    place: usize,
    offset: usize,
}

impl Selection {
    /// The same, but with this selected.
    pub(crate) fn of(self, id: Option<u64>) -> Self {
        Self { id, ..self }
    }

    /// The place of what is selected among these, or if it has gone, of what is where it was.
    pub(crate) fn place(&self, ids: &[u64]) -> usize {
        let found = self.id.and_then(|id| ids.iter().position(|other| *other == id));
        let place = found.unwrap_or(if self.id.is_some() { self.place } else { 0 });
        place.min(ids.len().saturating_sub(1))
    }

    /// The first row that is seen, when `height` of them are.
    pub(crate) fn offset(&self, ids: &[u64], height: usize) -> usize {
        let place = self.place(ids);
        let last = ids.len().saturating_sub(height.max(1));
        self.offset.max((place + 1).saturating_sub(height.max(1))).min(place).min(last.max(place.min(last)))
    }

    /// Selects a place.
    pub(crate) fn select(&mut self, ids: &[u64], place: usize, height: usize) {
        if let Some(id) = ids.get(place.min(ids.len().saturating_sub(1))) {
            self.id = Some(*id);
            self.place = place.min(ids.len() - 1);
            self.offset = self.offset(ids, height);
        }
    }

    /// Moves as a key asks; whether it was such a key.
    pub(crate) fn act(&mut self, action: Action, ids: &[u64], height: usize) -> bool {
        let page = height.saturating_sub(1).max(1);
        let at = self.place(ids);
        let to = match action {
            Action::Down => at + 1,
            Action::Up => at.saturating_sub(1),
            Action::PageDown => at + page,
            Action::PageUp => at.saturating_sub(page),
            Action::Top => 0,
            Action::Bottom => ids.len(),
            _ => return false,
        };
        self.offset = self.offset(ids, height);
        self.select(ids, to, height);
        true
    }

    /// Selects the next place behind (or before) the selected one for which this holds, beginning anew at the end.
    pub(crate) fn search(
        &mut self,
        ids: &[u64],
        height: usize,
        forward: bool,
        holds: impl Fn(usize) -> bool,
    ) -> bool {
        let (at, count) = (self.place(ids), ids.len());
        let step = |n: usize| if forward { (at + n) % count } else { (at + count - n) % count };
        let found = (1..=count).map(step).find(|&place| holds(place));
        found.inspect(|&place| self.select(ids, place, height)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [u64; 6] = [10, 11, 12, 13, 14, 15];

    #[test]
    fn it_follows_what_is_selected() {
        let mut selection = Selection::default();
        assert_eq!(selection.place(&IDS), 0);
        assert!(selection.act(Action::Down, &IDS, 3));
        assert_eq!((selection.id, selection.place(&[15, 14, 11])), (Some(11), 2));
        assert_eq!(selection.place(&[15, 14]), 1, "what is where it was");
        assert_eq!(selection.place(&[]), 0);
        assert!(!selection.act(Action::Quit, &IDS, 3));
    }

    #[test]
    fn it_scrolls_as_little_as_it_must() {
        let mut selection = Selection::default();
        let mut offsets = Vec::new();
        for action in
            [Action::Down, Action::Down, Action::Down, Action::Up, Action::Bottom, Action::Up, Action::Top]
        {
            selection.act(action, &IDS, 3);
            offsets.push((selection.place(&IDS), selection.offset(&IDS, 3)));
        }
        assert_eq!(offsets, [(1, 0), (2, 0), (3, 1), (2, 1), (5, 3), (4, 3), (0, 0)]);
        selection.act(Action::PageDown, &[], 3);
    }

    #[test]
    fn a_search_begins_anew_at_the_end() {
        let mut selection = Selection::default();
        let odd = |place: usize| IDS[place] % 2 == 1;
        let mut found = Vec::new();
        for forward in [true, true, true, true, false] {
            assert!(selection.search(&IDS, 3, forward, odd));
            found.push(selection.id.unwrap());
        }
        assert_eq!(found, [11, 13, 15, 11, 15]);
        assert!(!selection.search(&IDS, 3, true, |_| false) && !selection.search(&[], 3, true, |_| true));
    }
}
