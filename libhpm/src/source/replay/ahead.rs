//! The rows of a table with the next one in sight.

use crate::trace::{Cut, Row, Rows};

/// Unlike [`std::iter::Peekable`] it can be asked whether rows are missing.
pub(super) struct Ahead<R: Row> {
    rows: Rows<R>,
    next: Option<R>,
    /// The table has no further row.
    over: bool,
}

impl<R: Row> Ahead<R> {
    pub(super) fn new(rows: Rows<R>) -> Self {
        Self { rows, next: None, over: false }
    }

    pub(super) fn peek(&mut self) -> Option<&R> {
        if self.next.is_none() && !self.over {
            self.next = self.rows.next();
            self.over = self.next.is_none();
        }
        self.next.as_ref()
    }

    pub(super) fn next_if(&mut self, wanted: impl FnOnce(&R) -> bool) -> Option<R> {
        if self.peek().is_some_and(wanted) { self.next.take() } else { None }
    }

    /// What is missing at the table's end; `None` as long as it was not reached.
    pub(super) fn cut(&self) -> Option<Cut> {
        self.over.then(|| self.rows.cut()).flatten()
    }
}
