//! Functions of just-in-time compilers, from the files `/tmp/perf-PID.map` that many of them write for perf.

use std::path::Path;

use super::code_map::{CodeMap, MadeCode};

/// Reads a process's map, if it wrote one. `here` maps a path of the recorded machine to one here.
pub(super) fn read(pid: u32, here: impl Fn(&Path) -> std::path::PathBuf) -> CodeMap {
    let path = here(Path::new(&format!("/tmp/perf-{pid}.map")));
    std::fs::read(path).map_or_else(|_| CodeMap::default(), |bytes| parse(&String::from_utf8_lossy(&bytes)))
}

/// Lines `START SIZE NAME`, numbers in hexadecimal (Linux, `tools/perf/Documentation/jit-interface.txt`).
pub(super) fn parse(text: &str) -> CodeMap {
    let mut map = CodeMap::default();
    let entry = |line: &str| {
        let mut words = line.splitn(3, ' ');
        let mut number = || u64::from_str_radix(words.next()?.trim_start_matches("0x"), 16).ok();
        let (start, size) = (number()?, number()?);
        let (end, name) = (start.checked_add(size)?, words.next()?.trim().into());
        Some((start, MadeCode { end, name, ..MadeCode::default() }))
    };
    text.lines().filter_map(entry).for_each(|(start, code)| map.insert(start, code));
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_function_at_an_address_counts() {
        let map = parse("7f00 100 old one\n0x7f80 10 new one\nbroken\nffffffffffffffff 10 overflow\n");
        let name = |address| map.at(address).map(|code| &*code.name);
        assert_eq!(
            [name(0x7f10), name(0x7f88), name(0x7f90), name(0x8000)],
            [Some("old one"), Some("new one"), Some("old one"), None]
        );
    }
}
