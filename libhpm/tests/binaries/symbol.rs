//! Symbols: functions, lines and inlined functions of real binaries, with debug information in every place it can be.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use libhpm::address_space::AddressSpaces;
use libhpm::symbol::{Code, FileFinder, Frames, Place, Symbolizer, build_id};
use libhpm::trace::MapRow;
use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};
use tempfile::TempDir;

use crate::programs;

const PID: u32 = 42;
/// Where the test pretends the program was mapped.
const BASE: u64 = 0x5555_0000_0000;

/// A mapping of the whole file at `BASE`.
fn spaces(path: &str, build_id: Option<Vec<u8>>) -> AddressSpaces {
    let mut spaces = AddressSpaces::default();
    let row = MapRow {
        pid: PID,
        start: BASE,
        end: BASE + (1 << 30),
        path: path.into(),
        build_id,
        executable: true,
        ..MapRow::default()
    };
    spaces.map(&row);
    spaces
}

/// Addresses, under that mapping, of every byte of a function.
fn addresses_of(function: &str, program: &Path) -> std::ops::Range<u64> {
    let bytes = fs::read(program).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let symbol = elf.symbols().find(|symbol| symbol.name() == Ok(function)).unwrap();
    let segment = elf
        .segments()
        .find(|segment| (segment.address()..segment.address() + segment.size()).contains(&symbol.address()))
        .unwrap();
    let start = BASE + symbol.address() - segment.address() + segment.file_range().0;
    start..start + symbol.size()
}

/// Every distinct answer for the bytes of `innermost`, the address range taken from the unstripped `original`.
fn frames_of_innermost(
    original: &Path,
    mapped: &str,
    build_id: Option<Vec<u8>>,
    finder: FileFinder,
) -> Vec<Frames> {
    let spaces = spaces(mapped, build_id);
    let mut symbolizer = Symbolizer::new(finder, []);
    addresses_of("innermost", original).map(|address| symbolizer.frames(&spaces, PID, 0, address)).collect()
}

fn assert_has_lines_and_inlining(frames: &[Frames]) {
    let shown: Vec<(Vec<_>, Vec<_>)> = frames
        .iter()
        .map(|frames| {
            let names = frames
                .iter()
                .map(|frame| (frame.function.as_deref().unwrap_or("?"), frame.inlined))
                .collect();
            (names, frames.iter().map(|frame| frame.line.unwrap_or(0)).collect())
        })
        .collect();
    let (body, call) = (programs::line_of("line: inlined body"), programs::line_of("line: inlined call"));
    let inlined = (vec![("inlined", true), ("innermost", false)], vec![body, call]);
    assert!(shown.contains(&inlined), "{shown:?}");
    assert!(shown.iter().all(|(names, _)| names.last() == Some(&("innermost", false))), "{shown:?}");
    let file = frames[0][0].file.as_deref().unwrap();
    assert!(file.ends_with("/nested.c"), "{file}");
}

#[test]
fn a_program_with_debug_information_has_lines_and_inlining() {
    let temp = TempDir::new().unwrap();
    let program = programs::build(temp.path());
    let id = build_id(&program);
    assert_eq!(id.as_ref().map(Vec::len), Some(20));
    let frames = frames_of_innermost(&program, program.to_str().unwrap(), id, FileFinder::default());
    assert_has_lines_and_inlining(&frames);
}

/// A function whose first instruction is its own in every build, optimised or not.
#[inline(never)]
fn landmark(number: u64) -> u64 {
    std::hint::black_box(number) ^ 1
}

#[test]
fn this_rust_program_finds_its_own_lines() {
    assert_eq!(landmark(2), 3);
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let address = landmark as *const () as u64;
    let mut spaces = AddressSpaces::default();
    for line in maps.lines() {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let (start, end) = words[0].split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        let path = words.get(5).copied().unwrap_or_default().to_owned();
        let (start, end, file_offset) = (number(start), number(end), number(words[2]));
        spaces.map(&MapRow { pid: PID, start, end, file_offset, path, ..MapRow::default() });
    }
    let frames = Symbolizer::new(FileFinder::default(), []).frames(&spaces, PID, 0, address);
    let outermost = frames.last().unwrap();
    let name = outermost.function.as_deref().unwrap();
    assert!(name.ends_with("landmark"), "{name}");
    assert!(outermost.file.as_deref().unwrap().ends_with("tests/binaries/symbol.rs"));
    let first = include_str!("symbol.rs").lines().position(|line| line.starts_with("fn landmark")).unwrap()
        as u32
        + 1;
    let line = outermost.line.unwrap();
    assert!((first..first + 3).contains(&line), "line {line}, the function begins at {first}");
}

/// Splits a program as Debian's packages are: compressed debug information apart, the program stripped.
fn split(program: &Path, debug: &Path) {
    let [program, debug] = [program, debug].map(|path| path.to_str().unwrap());
    programs::run("objcopy", &["--only-keep-debug", "--compress-debug-sections=zlib", program, debug]);
    programs::run("strip", &["--strip-all", program]);
}

#[test]
fn separate_debug_information_is_found_by_build_id() {
    let temp = TempDir::new().unwrap();
    let program = programs::build(temp.path());
    let original = temp.path().join("original");
    fs::copy(&program, &original).unwrap();
    let id = build_id(&program).unwrap();
    let name: String = id[1..].iter().map(|byte| format!("{byte:02x}")).collect();
    let folder = temp.path().join(format!("debug/.build-id/{:02x}", id[0]));
    fs::create_dir_all(&folder).unwrap();
    split(&program, &folder.join(name + ".debug"));
    let finder = FileFinder { debug_dirs: vec![temp.path().join("debug")], ..FileFinder::default() };
    let frames = frames_of_innermost(&original, program.to_str().unwrap(), Some(id), finder);
    assert_has_lines_and_inlining(&frames);
}

#[test]
fn functions_without_debug_information_are_named_by_the_separate_symbol_table() {
    let temp = TempDir::new().unwrap();
    let program = programs::build(temp.path());
    let addresses = addresses_of("compare", &program);
    let debug = temp.path().join("nested.debug");
    split(&program, &debug);
    let [path, debug] = [&program, &debug].map(|path| path.to_str().unwrap());
    programs::run("strip", &["--strip-debug", debug]);
    programs::run("objcopy", &[&format!("--add-gnu-debuglink={debug}"), path]);
    let spaces = spaces(path, build_id(Path::new(path)));
    let mut symbolizer = Symbolizer::new(FileFinder::default(), []);
    let frames = symbolizer.frames(&spaces, PID, 0, addresses.start);
    assert_eq!((frames.len(), frames[0].function.as_deref(), frames[0].line), (1, Some("compare"), None));
    assert!(symbolizer.note(path).unwrap().contains("no debug information"));
    // Its code is found by that name, and has that name and that extent.
    let code = Code::around(&Place::of_symbol("compare"), Path::new(path), None, &FileFinder::default());
    let code = code.unwrap().unwrap();
    assert_eq!(&*code.function, "compare");
    let bytes: u64 = code.instructions.iter().map(|one| u64::from(one.bytes)).sum();
    assert_eq!(bytes, addresses.end - addresses.start);
}

/// What has no symbol is not taken for the last function before it that has one.
#[test]
fn code_without_a_symbol_is_bounded_by_the_tables_for_unwinding() {
    let temp = TempDir::new().unwrap();
    let program = programs::build(temp.path());
    let around =
        |place: &Place| Code::around(place, &program, None, &FileFinder::default()).unwrap().unwrap();
    let whole = around(&Place::of_symbol("compare"));
    let path = program.to_str().unwrap();
    programs::run("strip", &["--strip-all", path]);
    let mut symbolizer = Symbolizer::new(FileFinder::default(), []);
    symbolizer.frames(&spaces(path, build_id(&program)), PID, 0, BASE + (1 << 12));
    let note = symbolizer.note(path).unwrap();
    assert!(note.contains("is stripped and has no debug information here, so its functions that"), "{note}");
    let start = whole.instructions[0].address;
    let stripped = around(&Place::Linked(start + 1));
    assert_eq!(&*stripped.function, format!("[nested+{start:#x}]"));
    assert_eq!(stripped.instructions, whole.instructions);
}

#[test]
fn separate_debug_information_is_found_by_its_name_below_symfs() {
    let temp = TempDir::new().unwrap();
    let folder = temp.path().join("root/opt/bin");
    fs::create_dir_all(folder.join(".debug")).unwrap();
    let program = programs::build(&folder);
    let original = temp.path().join("original");
    fs::copy(&program, &original).unwrap();
    let debug = folder.join(".debug/nested.debug");
    split(&program, &debug);
    let [program, debug_file] = [&program, &debug].map(|path| path.to_str().unwrap());
    programs::run("objcopy", &[&format!("--add-gnu-debuglink={debug_file}"), program]);
    let finder = FileFinder { symfs: Some(temp.path().join("root")), ..FileFinder::default() };
    let frames = frames_of_innermost(&original, "/opt/bin/nested", None, finder.clone());
    assert_has_lines_and_inlining(&frames);

    // Another program's debug information under the right name is not used.
    programs::run("cc", &["-g", "-Wl,--build-id=sha1", "-o", debug_file, "-x", "c", "-", "-shared"]);
    let frames = frames_of_innermost(&original, "/opt/bin/nested", None, finder);
    assert!(frames.iter().all(|frames| frames[0].line.is_none()), "{frames:?}");
}

#[test]
fn a_stripped_program_has_its_exported_functions_and_says_what_is_missing() {
    let temp = TempDir::new().unwrap();
    let program = programs::build(temp.path());
    programs::run("strip", &["--strip-debug", program.to_str().unwrap()]);
    let path = program.to_str().unwrap();
    let spaces = spaces(path, build_id(Path::new(path)));
    let mut symbolizer = Symbolizer::new(FileFinder::default(), []);
    let address = addresses_of("innermost", &program).start;
    let frames = symbolizer.frames(&spaces, PID, 0, address);
    assert_eq!((frames.len(), frames[0].function.as_deref(), frames[0].line), (1, Some("innermost"), None));
    assert!(symbolizer.note(path).unwrap().contains("no debug information"));
}

/// As glibc has it: its debug information knows one name of a function, and several symbols are at its address.
#[test]
fn of_several_names_the_one_that_people_type_is_shown() {
    let temp = TempDir::new().unwrap();
    let [source, program] = ["names.c", "names"].map(|name| temp.path().join(name));
    let text = "long __libc_walk(long n) { return n * 3; }\n\
                long walk(long) __attribute__((weak, alias(\"__libc_walk\")));\n\
                static long hidden(long) __attribute__((alias(\"__libc_walk\"), used));\n\
                int main(void) { return 0; }\n";
    fs::write(&source, text).unwrap();
    let [source, path] = [&source, &program].map(|path| path.to_str().unwrap());
    for debug in ["-g", "-g0"] {
        programs::run("cc", &["-O1", debug, "-o", path, source]);
        let mut symbolizer = Symbolizer::new(FileFinder::default(), []);
        let address = addresses_of("__libc_walk", &program).start;
        let frames = symbolizer.frames(&spaces(path, None), PID, 0, address);
        assert_eq!(frames[0].function.as_deref(), Some("walk"), "{debug}");
        // All of its names are known.
        for name in ["walk", "__libc_walk", "hidden"] {
            let code = Code::around(&Place::of_symbol(name), &program, None, &FileFinder::default());
            assert_eq!(&*code.unwrap().unwrap().function, "walk");
        }
    }
}

#[test]
fn short_names_of_c_are_no_types_of_cxx() {
    let temp = TempDir::new().unwrap();
    let names = ["a", "b", "i", "x", "St"];
    let functions: String = names.map(|name| format!("int {name}(int n) {{ return n + 1; }}\n")).concat();
    let [source, program] = ["short.c", "short"].map(|name| temp.path().join(name));
    fs::write(&source, functions + "int main(void) { return 0; }\n").unwrap();
    let [source, path] = [&source, &program].map(|path| path.to_str().unwrap());
    programs::run("cc", &["-O1", "-o", path, source]);
    let spaces = spaces(path, None);
    let mut symbolizer = Symbolizer::new(FileFinder::default(), []);
    for name in names {
        let address = addresses_of(name, &program).start;
        let frames = symbolizer.frames(&spaces, PID, 0, address);
        assert_eq!(frames[0].function.as_deref(), Some(name));
        let code = Code::around(&Place::of_symbol(name), &program, None, &FileFinder::default());
        assert_eq!(&*code.unwrap().unwrap().function, name);
    }
}

#[test]
fn a_program_that_changed_gives_no_symbols() {
    let temp = TempDir::new().unwrap();
    let program = programs::build(temp.path());
    let path = program.to_str().unwrap();
    let spaces = spaces(path, Some(vec![7; 20]));
    let mut symbolizer = Symbolizer::new(FileFinder::default(), []);
    let frames = symbolizer.frames(&spaces, PID, 0, addresses_of("innermost", &program).start);
    assert_eq!((frames.len(), &frames[0].function, &*frames[0].module), (1, &None, path));
    assert!(symbolizer.note(path).unwrap().contains("build ID differs"));
}

#[test]
fn a_program_that_can_have_changed_is_told() {
    let temp = TempDir::new().unwrap();
    let program = programs::build(temp.path());
    let address = addresses_of("innermost", &program).start;
    let path = program.to_str().unwrap();
    let noted = |build_id: Option<Vec<u8>>| {
        let mut symbolizer = Symbolizer::new(FileFinder::default(), []);
        let frames = symbolizer.frames(&spaces(path, build_id), PID, 0, address);
        assert_eq!(frames.last().unwrap().function.as_deref(), Some("innermost"));
        symbolizer.note(path).map(str::to_owned)
    };
    let recorded = build_id(&program);
    assert_eq!(noted(recorded.clone()), None);
    assert!(noted(None).unwrap().contains("without a build ID and the file here has one"));
    // Only of mappings with code the build ID is recorded.
    let mut data = AddressSpaces::default();
    data.map(&MapRow {
        pid: PID,
        start: BASE,
        end: BASE + (1 << 30),
        path: path.into(),
        ..MapRow::default()
    });
    let mut symbolizer = Symbolizer::new(FileFinder::default(), []);
    symbolizer.frames(&data, PID, 0, address);
    assert_eq!(symbolizer.note(path), None);
    programs::run("objcopy", &["--remove-section=.note.gnu.build-id", path]);
    assert!(noted(recorded).unwrap().contains("with a build ID and the file here has none"));
}

#[test]
fn a_file_that_is_gone_is_told() {
    let spaces = spaces("/nonexistent/program", None);
    let mut symbolizer = Symbolizer::new(FileFinder::default(), []);
    assert_eq!(symbolizer.frames(&spaces, PID, 0, BASE)[0].function, None);
    assert!(symbolizer.note("/nonexistent/program").unwrap().contains("--symfs"));
}

#[test]
fn an_address_in_no_mapping_is_unknown() {
    let frames = Symbolizer::new(FileFinder::default(), []).frames(&AddressSpaces::default(), PID, 0, 0x1000);
    assert_eq!((frames.len(), &frames[0].function, &*frames[0].module), (1, &None, "[unknown]"));
}

mod damaged {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Damage in a binary costs symbols, never the report.
        #[test]
        fn a_damaged_program_never_panics(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..200),
        ) {
            static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
            let (_, original) = BUILT.get_or_init(|| {
                let temp = TempDir::new().unwrap();
                let program = programs::build(temp.path());
                (temp, program)
            });
            let mut bytes = fs::read(original).unwrap();
            // Without the ELF header at the beginning nothing else would be reached.
            let header = 64;
            let rest = bytes.len() - header;
            flips.iter().for_each(|(place, flip)| bytes[header + place.index(rest)] ^= flip);
            let damaged = tempfile::NamedTempFile::new().unwrap();
            fs::write(damaged.path(), bytes).unwrap();
            let spaces = spaces(damaged.path().to_str().unwrap(), None);
            let mut symbolizer = Symbolizer::new(FileFinder::default(), []);
            for address in addresses_of("innermost", original) {
                prop_assert!(!symbolizer.frames(&spaces, PID, 0, address).is_empty());
            }
        }
    }
}

/// What a compiler that writes a jitdump maps: the file, so that it is known of, and memory without a file for its code.
#[test]
fn code_made_at_run_time_is_known_by_its_jitdump_or_its_perf_map() {
    let temp = TempDir::new().unwrap();
    std::fs::create_dir(temp.path().join("tmp")).unwrap();
    // A header of 40 bytes, and one function with one line.
    let word = |number: u32| number.to_le_bytes().to_vec();
    let long = |number: u64| number.to_le_bytes().to_vec();
    let record =
        |kind: u32, body: Vec<u8>| [word(kind), word(16 + body.len() as u32), long(0), body].concat();
    let header =
        [word(0x4A69_5444), word(1), word(40), word(62), word(0), word(PID), long(0), long(0)].concat();
    let line = [long(0x7000), long(1), long(0x7000), word(12), word(0), b"made.js\0".to_vec()].concat();
    let load =
        [word(PID), word(PID), long(0x7000), long(0x7000), long(0x100), long(1), b"made\0\x90".to_vec()]
            .concat();
    let dump = [header, record(2, line), record(0, load)].concat();
    fs::write(temp.path().join(format!("tmp/jit-{PID}.dump")), dump).unwrap();
    fs::write(temp.path().join(format!("tmp/perf-{PID}.map")), "7080 200 mapped\n").unwrap();
    let mut spaces = AddressSpaces::default();
    let row =
        |start, end, path: &str| MapRow { pid: PID, start, end, path: path.into(), ..MapRow::default() };
    spaces.map(&row(0x1000, 0x2000, &format!("/tmp/jit-{PID}.dump")));
    spaces.map(&row(0x7000, 0x8000, "/memfd:code (deleted)"));
    let finder = FileFinder { symfs: Some(temp.path().to_owned()), ..FileFinder::default() };
    let mut symbolizer = Symbolizer::new(finder, []);
    let mut at = |address| {
        let frame = symbolizer.frames(&spaces, PID, 0, address)[0].clone();
        (frame.function.map(|name| name.to_string()), frame.file.map(|file| file.to_string()), frame.line)
    };
    assert_eq!(at(0x7050), (Some("made".into()), Some("made.js".into()), Some(12)));
    assert_eq!(at(0x70ff).0.as_deref(), Some("made"), "the jitdump comes before the map");
    assert_eq!(at(0x7150), (Some("mapped".into()), None, None));
    assert_eq!(at(0x7900), (None, None, None));
}
