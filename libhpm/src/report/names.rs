//! Names of threads through time. IDs are used again, so that a name is one of a life: from a thread's first row to its exit.

use std::collections::HashMap;
use std::sync::Arc;

use crate::trace::{ThreadChange, ThreadRow};

/// The names of all threads.
#[derive(Default)]
pub(super) struct ThreadNames {
    of_thread: HashMap<u32, Vec<Life>>,
}

/// One of the threads that had an ID.
#[derive(Default)]
struct Life {
    /// Since when it had which name, in the order of time. Never empty.
    names: Vec<(u64, Arc<str>)>,
    is_over: bool,
}

impl Life {
    fn began(&self) -> u64 {
        self.names.first().map_or(0, |&(since, _)| since)
    }
}

impl ThreadNames {
    /// From rows in order of time.
    pub(super) fn new(rows: &[ThreadRow]) -> Self {
        let mut names = Self::default();
        rows.iter().for_each(|row| names.add(row));
        names
    }

    /// The next row of a thread.
    pub(super) fn add(&mut self, row: &ThreadRow) {
        let lives = self.of_thread.entry(row.tid).or_default();
        let change = ThreadChange::from_number(row.what);
        // A fork makes a new process, whether the end of the one before was seen or not.
        let is_new = change == Some(ThreadChange::Fork) || lives.last().is_none_or(|life| life.is_over);
        if is_new {
            lives.push(Life::default());
        }
        if let Some(life) = lives.last_mut() {
            life.names.push((row.tsc, row.name.as_str().into()));
            life.is_over = change == Some(ThreadChange::Exit);
        }
    }

    /// The last name given until then, else the first one given later, else nothing.
    pub(super) fn at(&self, tid: u32, tsc: u64) -> Arc<str> {
        let names = self.life(tid, tsc).map_or(&[][..], |life| &life.names);
        let later = names.partition_point(|&(since, _)| since <= tsc);
        names.get(later.saturating_sub(1)).map_or_else(|| "".into(), |(_, name)| Arc::clone(name))
    }

    /// The last name of the one that has this ID then: the same at each time of its life.
    pub(super) fn last(&self, tid: u32, tsc: u64) -> Arc<str> {
        let names = self.life(tid, tsc).map_or(&[][..], |life| &life.names);
        let name = names.iter().rev().find(|(_, name)| !name.is_empty());
        name.map_or_else(|| "".into(), |(_, name)| Arc::clone(name))
    }

    /// The one that has this ID then; between two the first, whose threads may live on, before all the first.
    fn life(&self, tid: u32, tsc: u64) -> Option<&Life> {
        let lives = self.of_thread.get(&tid)?;
        let later = lives.partition_point(|life| life.began() <= tsc);
        lives.get(later.saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(rows: &[(u64, &str, ThreadChange)]) -> ThreadNames {
        let row = |&(tsc, name, what): &(u64, &str, ThreadChange)| ThreadRow {
            tsc,
            pid: 7,
            tid: 7,
            name: name.into(),
            what: what as u8,
            ..ThreadRow::default()
        };
        ThreadNames::new(&rows.iter().map(row).collect::<Vec<_>>())
    }

    #[test]
    fn a_name_is_the_one_of_that_time() {
        let names = names(&[(10, "sh", ThreadChange::Fork), (20, "ls", ThreadChange::Exec)]);
        let at = [5, 10, 19, 20, 99].map(|tsc| names.at(7, tsc).to_string());
        assert_eq!(at, ["sh", "sh", "sh", "ls", "ls"], "before all rows it is the first");
        assert_eq!(&*names.at(8, 20), "");
    }

    #[test]
    fn the_last_name_is_the_same_all_life_long() {
        let names = names(&[
            (10, "sh", ThreadChange::Fork),
            (20, "ls", ThreadChange::Exec),
            (30, "", ThreadChange::Exit),
            (50, "sh", ThreadChange::Start),
            (60, "worker", ThreadChange::Rename),
            // The end of the one before was lost.
            (80, "sh", ThreadChange::Fork),
            (90, "cat", ThreadChange::Exec),
        ]);
        let last = [5, 10, 20, 30, 49, 50, 79, 80, 99].map(|tsc| names.last(7, tsc).to_string());
        assert_eq!(last, ["ls", "ls", "ls", "ls", "ls", "worker", "worker", "cat", "cat"]);
        assert_eq!(&*names.last(8, 20), "");
    }
}
