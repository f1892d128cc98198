//! Events of user mode, of the kernel and of both are different events, and are related only to those of their own privilege.

use super::Run;
use crate::event::privilege;

/// The event that everything else is related to.
const BASE: &str = "instructions";

/// The first event of instructions that every run counted.
#[must_use]
pub fn base(runs: &[Run]) -> Option<&str> {
    let in_all = |name: &str| runs.iter().all(|run| run.events.iter().any(|event| event == name));
    let mut names = runs.first()?.events.iter().map(String::as_str);
    names.find(|name| privilege(name).0 == BASE && in_all(name))
}

/// Both events were counted in the same modes.
pub(super) fn same_privilege(one: &str, other: &str) -> bool {
    let ((_, user, kernel), (_, other_user, other_kernel)) = (privilege(one), privilege(other));
    (user, kernel) == (other_user, other_kernel)
}

/// Takes the modifiers off where all events were counted in the same modes, and says which these are; none where they differ or
/// nothing was counted.
pub fn take_common_privilege(runs: &mut [Run]) -> Option<(bool, bool)> {
    let mut names = runs.iter().flat_map(|run| &run.events);
    let first = names.next()?;
    if !names.all(|name| same_privilege(first, name)) {
        return None;
    }
    let (_, user, kernel) = privilege(first);
    for name in runs.iter_mut().flat_map(|run| &mut run.events) {
        *name = privilege(name).0.to_owned();
    }
    Some((user, kernel))
}
