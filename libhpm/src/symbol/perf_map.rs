//! Functions of just-in-time compilers, from the files `/tmp/perf-PID.map` that many of them write for perf.

use std::path::Path;
use std::sync::Arc;

/// Functions of one process by address; of two that overlap the later one counts, as code memory is used again.
#[derive(Debug, Default)]
pub(super) struct PerfMap(Vec<(u64, u64, Arc<str>)>);

impl PerfMap {
    /// Reads a process's map, if it wrote one. `root` maps a path of the recorded machine to one here.
    pub(super) fn read(pid: u32, here: impl Fn(&Path) -> std::path::PathBuf) -> Self {
        let path = here(Path::new(&format!("/tmp/perf-{pid}.map")));
        std::fs::read(path)
            .map_or_else(|_| Self::default(), |bytes| Self::parse(&String::from_utf8_lossy(&bytes)))
    }

    /// Lines `START SIZE NAME`, numbers in hexadecimal (Linux, `tools/perf/Documentation/jit-interface.txt`).
    fn parse(text: &str) -> Self {
        let entry = |line: &str| {
            let mut words = line.splitn(3, ' ');
            let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
            let (start, size) = (number()?, number()?);
            Some((start, start.checked_add(size)?, words.next()?.trim().into()))
        };
        Self(text.lines().filter_map(entry).collect())
    }

    pub(super) fn name_at(&self, address: u64) -> Option<&Arc<str>> {
        let (.., name) = self.0.iter().rev().find(|(start, end, _)| (*start..*end).contains(&address))?;
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_function_at_an_address_counts() {
        let map =
            PerfMap::parse("7f00 100 old one\n0x7f80 10 new one\nbroken\nffffffffffffffff 10 overflow\n");
        assert_eq!(map.name_at(0x7f10).map(|name| &**name), Some("old one"));
        assert_eq!(map.name_at(0x7f88).map(|name| &**name), Some("new one"));
        assert_eq!(map.name_at(0x8000), None);
    }
}
