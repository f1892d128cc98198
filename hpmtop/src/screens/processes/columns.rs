//! The list of columns: which are shown, and in which order.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::keys::Action;
use crate::screens::list::Selection;
use crate::screens::{Change, Reply, View};
use crate::view::{Cell, Head, Sheet, frame};

fn ids(view: &View<'_>) -> Vec<u64> {
    (0..view.specs.len() as u64).collect()
}

fn area(view: &View<'_>) -> Rect {
    let width = view.area.width.min(72);
    let height = view.area.height.min(view.specs.len() as u16 + 3);
    Rect { x: view.area.x + (view.area.width - width) / 2, y: view.area.y, width, height }
}

pub(super) fn act(selection: &mut Selection, action: Action, view: &View<'_>) -> Reply {
    let ids = ids(view);
    let height = usize::from(area(view).height.saturating_sub(3));
    if selection.act(action, &ids, height) {
        return Reply::Done;
    }
    let at = selection.place(&ids);
    let step = match action {
        Action::Enter | Action::Pause => return Reply::Settings(Change::Toggle(at)),
        Action::SortPrevious => -1,
        Action::SortNext => 1,
        _ => return Reply::Ignored,
    };
    let to = at.saturating_add_signed(step).min(ids.len().saturating_sub(1));
    selection.select(&ids, to, height);
    Reply::Settings(Change::Move(at, step))
}

pub(super) fn draw(selection: &Selection, view: &View<'_>, buffer: &mut Buffer) {
    let inner = frame(buffer, area(view), " columns ", view.theme);
    let ids = ids(view);
    let height = usize::from(inner.height.saturating_sub(1));
    let offset = selection.offset(&ids, height);
    let row = |spec: &crate::model::ColumnSpec| {
        let sign = if spec.shown { "✓" } else { "" };
        vec![
            Cell::text(sign),
            Cell::text(spec.title.clone()),
            Cell::text(spec.expression.clone()).styled(view.theme.faint()),
        ]
    };
    let sheet = Sheet {
        heads: vec![Head::text("", 1), Head::text("column", 8), Head::text("expression", 0)],
        rows: view.specs.iter().skip(offset).take(height).map(row).collect(),
        offset,
        total: ids.len(),
        selected: Some(selection.place(&ids) - offset),
    };
    sheet.draw(buffer, inner, view.theme);
}
