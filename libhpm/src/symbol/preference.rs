//! Which of several names of one function is shown: the one that people type.
//!
//! `malloc` of glibc is `__libc_malloc` and `__GI___libc_malloc`, too. The rule is close to that of perf (`choose_best_symbol` in
//! Linux, tools/perf/util/symbol.c), which has `puts` for `_IO_puts` as well.

/// A name's place among those of the same address: the least is shown. One with fewer underscores before it comes first, then one that
/// other files see (global or weak) before a local one, then the shorter one, then by the alphabet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Preference<'a> {
    underscores: usize,
    local: bool,
    length: usize,
    name: &'a str,
}

impl<'a> Preference<'a> {
    /// That of a name as the linker knows it.
    pub(super) fn of(name: &'a str, local: bool) -> Self {
        let underscores = name.len() - name.trim_start_matches('_').len();
        Self { underscores, local, length: name.len(), name }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_people_type_is_shown() {
        let first = |names: &[(&'static str, bool)]| {
            let names = names.iter().map(|&(name, local)| (Preference::of(name, local), name));
            names.min().map(|(_, name)| name)
        };
        let malloc = [("__GI___libc_malloc", true), ("__libc_malloc", false), ("malloc", false)];
        assert_eq!(first(&malloc), Some("malloc"));
        assert_eq!(first(&[("_IO_puts", false), ("puts", false)]), Some("puts"));
        assert_eq!(first(&[("cfree", false), ("free", false)]), Some("free"));
        assert_eq!(first(&[("abc", true), ("abcdef", false)]), Some("abcdef"));
        assert_eq!(first(&[("two", false), ("one", false)]), Some("one"));
        assert_eq!(first(&[]), None);
    }
}
