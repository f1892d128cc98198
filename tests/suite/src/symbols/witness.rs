//! What the other tools find, and how it is compared.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use libhpm::symbol::Frame;

use crate::consumers::tools::output;

/// Why a name that differs is none the less right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Difference {
    /// The other tool has no linkage name for an inlined function, and names the function around it (binutils): elfutils names
    /// it as hpm does.
    Unlinked,
    /// Both names are of the same address in the file's symbol table.
    Alias,
    /// The other name is that of the compiler's special copy of the function, as `f.constprop.0`.
    Clone,
    /// c++filt leaves the other name as it is, or writes it in another way than hpm's demangler, cpp_demangle.
    Mangled,
    /// Two demanglers write a template's arguments differently; without arguments the names are the same.
    Arguments,
    /// hpm has the linker's whole name of a function that only its file can see, the other tool its short one.
    Outermost,
    /// hpm's demangler (cpp_demangle) leaves the name as the linker has it.
    Undemangled,
    /// hpm names the entry of the linker's table of jumps, the other tool knows none or takes the nearest symbol.
    Plt,
    /// hpm names a label without a size, the other tool the function around it.
    Label,
    /// A function of V8 that is in Node's file, which has its name, and also in the jitdump, which perf inject prefers.
    Builtin,
}

impl Difference {
    fn words(self) -> &'static str {
        match self {
            Self::Unlinked => "of inlined functions without a linkage name, as elfutils names them",
            Self::Alias => "by another name of the same address",
            Self::Clone => "by the name without the mark of the compiler's copy",
            Self::Mangled => "whose names c++filt demangles in another way or not at all",
            Self::Arguments => "whose template arguments c++filt writes in another way",
            Self::Outermost => "with the linker's whole name of a function that only its file sees",
            Self::Undemangled => "whose names cpp_demangle cannot demangle",
            Self::Plt => {
                "of the linker's table of jumps, where the other has no name or the nearest symbol's"
            }
            Self::Label => "by a label in the function",
            Self::Builtin => "of V8's built-in functions by their names in the file and not in the jitdump",
        }
    }
}

/// Functions and lines at addresses, innermost first.
pub(super) struct Lines(HashMap<u64, Vec<(String, String)>>);

impl Lines {
    /// By `addr2line` of binutils.
    pub(super) fn of_binutils(program: &Path, addresses: &[u64]) -> Result<Self> {
        Self::ask(Command::new("addr2line").args(["-a", "-f", "-i", "-C", "-e"]).arg(program), addresses)
    }

    /// By that of elfutils.
    pub(super) fn of_elfutils(tool: &Path, program: &Path, addresses: &[u64]) -> Result<Self> {
        Self::ask(Command::new(tool).args(["-a", "-f", "-i", "-C", "-e"]).arg(program), addresses)
    }

    fn ask(command: &mut Command, addresses: &[u64]) -> Result<Self> {
        let text = asked(command, addresses.iter().map(|address| format!("{address:#x}")))?;
        let mut found: HashMap<u64, Vec<(String, String)>> = HashMap::new();
        let mut lines = text.lines();
        let mut at = 0;
        while let Some(line) = lines.next() {
            let address = line.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
            if let Some(address) = address {
                at = address;
                continue;
            }
            // elfutils adds where a function was inlined, and the column.
            let name = line.split(" inlined at ").next().unwrap_or(line).to_owned();
            let place = lines.next().context("a function has no line")?;
            let place = place.split(" (discriminator").next().unwrap_or(place);
            let mut words = place.rsplitn(3, ':').collect::<Vec<_>>();
            words.reverse();
            let place = match words[..] {
                [file, line, column] if column.parse::<u32>().is_ok() && line.parse::<u32>().is_ok() => {
                    format!("{file}:{line}")
                }
                _ => place.to_owned(),
            };
            found.entry(at).or_default().push((name, place));
        }
        Ok(Self(found))
    }
}

/// What a tool answers to lines on its standard input.
fn asked(command: &mut Command, questions: impl Iterator<Item = String>) -> Result<String> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("it has no standard input")?;
    let questions: Vec<String> = questions.collect();
    let writer = std::thread::spawn(move || questions.iter().try_for_each(|line| writeln!(input, "{line}")));
    let output = child.wait_with_output()?;
    writer.join().map_err(|_| anyhow::anyhow!("nobody asked"))??;
    Ok(String::from_utf8(output.stdout)?)
}

/// Functions of samples as `perf script` shows them, in the order of time: as the linker knows them, and as c++filt writes them.
pub(super) struct Perf {
    pub(super) functions: Vec<(String, String)>,
}

impl Perf {
    /// Reads a recording. Names are demangled by binutils, because perf leaves out the types of arguments.
    pub(super) fn script(perf: &Path, data: &Path) -> Result<Self> {
        let mut script = Command::new(perf);
        script.args(["script", "--no-demangle", "--fields", "ip,sym", "--input"]).arg(data);
        let text = output(&mut script)?;
        let names =
            text.lines().map(|line| line.trim().split_once(' ').map_or("[unknown]", |(_, name)| name));
        let names: Vec<String> = names
            .map(|name| {
                let (bare, version) = name.split_once('@').unwrap_or((name, ""));
                if version == "plt" { name.to_owned() } else { bare.to_owned() }
            })
            .collect();
        let text = asked(&mut Command::new("c++filt"), names.iter().cloned())?;
        Ok(Self { functions: names.into_iter().zip(text.lines().map(without_hash)).collect() })
    }
}

/// The addresses that each name has in the symbol tables of a file and of its debug file.
pub(super) struct Names(HashMap<String, HashSet<(u64, u64)>>);

impl Names {
    pub(super) fn of(module: &str) -> Self {
        let mut files = vec![module.to_owned()];
        if let Some(id) = libhpm::build_id(Path::new(module)) {
            let hex = id.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            });
            files.push(format!("/usr/lib/debug/.build-id/{}/{}.debug", &hex[..2], &hex[2..]));
        }
        let mut names: HashMap<String, HashSet<(u64, u64)>> = HashMap::new();
        for (file, table) in files.iter().flat_map(|file| [(file, "-a"), (file, "-D")]) {
            // ADDRESS [SIZE] TYPE NAME
            let Ok(text) = output(Command::new("nm").args(["-C", "-S", table]).arg(file)) else { continue };
            for line in text.lines() {
                let number = |word: &str| u64::from_str_radix(word, 16).ok().filter(|_| word.len() == 16);
                let Some((address, rest)) = line.split_once(' ') else { continue };
                let Some((second, after)) = rest.split_once(' ') else { continue };
                let (size, name) = match number(second) {
                    Some(size) => (size, after.split_once(' ').map_or("", |(_, name)| name)),
                    None => (0, after),
                };
                if let Some(address) = number(address) {
                    let name = name.split('@').next().unwrap_or(name);
                    names.entry(squeezed(name)).or_default().insert((address, size));
                }
            }
        }
        Self(names)
    }

    /// Why another name than hpm's is of the same code, if the symbol table says so.
    pub(super) fn relation(&self, own: &str, other: &str) -> Option<Difference> {
        let (own, other) = (self.0.get(&squeezed(own))?, self.0.get(&squeezed(other))?);
        let starts = |of: &HashSet<(u64, u64)>| of.iter().map(|(start, _)| *start).collect::<HashSet<_>>();
        if !starts(own).is_disjoint(&starts(other)) {
            return Some(Difference::Alias);
        }
        let around = |label: &(u64, u64)| {
            label.1 == 0 && other.iter().any(|(start, size)| (*start..start + size).contains(&label.0))
        };
        own.iter().any(around).then_some(Difference::Label)
    }
}

/// What came of comparing samples.
#[derive(Default)]
pub(super) struct Seen {
    same: usize,
    explained: BTreeMap<Difference, usize>,
    unexplained: BTreeMap<String, usize>,
}

impl Seen {
    /// Compares all functions and lines at an address.
    pub(super) fn chain(&mut self, address: u64, frames: &[Frame], binutils: &Lines, elfutils: &Lines) {
        let none = Vec::new();
        let [theirs, others] = [binutils, elfutils].map(|of| of.0.get(&address).unwrap_or(&none));
        let line = |frame: &Frame| match (&frame.file, frame.line) {
            (Some(file), line) => format!("{file}:{}", line.map_or("?".into(), |line| line.to_string())),
            (None, _) => "??:?".into(),
        };
        let lines = frames.len() == theirs.len()
            && frames.iter().zip(theirs).all(|(own, (_, place))| is_place(&line(own), place));
        // Each but the outermost: that of a function which only its file can see has a short name by both, but where binutils
        // takes it from the symbol table, as hpm does.
        let inner = frames.len() - 1;
        let inlined = |of: &[(String, String)]| {
            (of.len() == frames.len())
                .then(|| names(frames[..inner].iter().zip(&of[..inner])))
                .filter(|_| is_short_for(&frames[inner], &of[inner].0))
                .flatten()
                .map(|found| found.max(outermost(&frames[inner], &of[inner].0)))
        };
        let found = match (lines, inlined(theirs), inlined(others)) {
            (true, Some(found), _) => Some(found),
            (true, _, Some(_)) if binutils_names_the_function_around(frames, theirs) => {
                Some(Some(Difference::Unlinked))
            }
            _ if frames[0].function.as_deref().is_some_and(is_of_plt) => Some(Some(Difference::Plt)),
            _ => None,
        };
        if let Some(found) = found {
            match found {
                None => self.same += 1,
                Some(difference) => *self.explained.entry(difference).or_default() += 1,
            }
        } else {
            let own: Vec<String> = frames
                .iter()
                .map(|own| format!("{} {}", own.function.as_deref().unwrap_or("??"), line(own)))
                .collect();
            self.note(format!("{address:#x}: hpm {own:?}, binutils {theirs:?}, elfutils {others:?}"));
        }
    }

    /// Compares a function with the other tool's, which the linker knows as `linked`; `why` says why another name is right.
    pub(super) fn function(
        &mut self,
        own: &str,
        linked: &str,
        other: &str,
        why: impl FnOnce() -> Option<Difference>,
    ) {
        if squeezed(own) == squeezed(other) {
            self.same += 1;
            return;
        }
        let same = |a: Option<&str>, b: Option<&str>| a.is_some() && a == b;
        let found = if squeezed(without_clone(other)) == squeezed(own) {
            Some(Difference::Clone)
        } else if is_of(own, linked) {
            Some(Difference::Mangled)
        } else if own.starts_with("[.plt") && other == "@plt" {
            // The table's first entry calls the dynamic linker and belongs to no function.
            Some(Difference::Plt)
        } else if is_builtin(own, other) {
            Some(Difference::Builtin)
        } else if other.split_once("thunk to ").is_some_and(|(_, to)| squeezed(own).contains(&squeezed(to))) {
            Some(Difference::Arguments)
        } else {
            let arguments = same(without_arguments(own).as_deref(), without_arguments(other).as_deref());
            why().or_else(|| arguments.then_some(Difference::Arguments))
        };
        match found {
            Some(difference) => *self.explained.entry(difference).or_default() += 1,
            None => self.note(format!("hpm {own}, the other {other}")),
        }
    }

    fn note(&mut self, what: String) {
        *self.unexplained.entry(what).or_default() += 1;
    }

    /// What is to be said; an error when a difference is not explained.
    pub(super) fn verdict(&self, other: &str) -> Result<String> {
        let explained: usize = self.explained.values().sum();
        let unexplained: usize = self.unexplained.values().sum();
        let all = self.same + explained + unexplained;
        let mut text = format!("{} of {all} samples as {other} says", self.same);
        for (difference, samples) in &self.explained {
            let _ = write!(text, ", {samples} {}", difference.words());
        }
        if unexplained == 0 {
            return Ok(text);
        }
        let mut worst: Vec<_> = self.unexplained.iter().collect();
        worst.sort_by_key(|(_, samples)| std::cmp::Reverse(**samples));
        let worst: Vec<String> =
            worst.iter().take(12).map(|(what, samples)| format!("{samples} samples: {what}")).collect();
        bail!("{text}; {unexplained} differ: {}", worst.join("\n    "))
    }
}

/// Whether a place is the other tool's. Without a line there is no place: binutils then takes a file from the symbol table.
fn is_place(own: &str, other: &str) -> bool {
    own == other || own == other.replace(":0", ":?") || (own == "??:?" && other.ends_with(":?"))
}

/// Whether a name is of the linker's table of jumps, which has neither lines nor symbols.
fn is_of_plt(name: &str) -> bool {
    name.ends_with("@plt") || name.starts_with("[.plt")
}

/// Whether a name that c++filt cannot demangle is, by another demangler, the same: that of LLVM's rules, which hpm uses as well.
fn is_of(own: &str, mangled: &str) -> bool {
    let demangled = cpp_demangle::Symbol::new(mangled).ok().and_then(|symbol| symbol.demangle().ok());
    demangled.is_some_and(|name| squeezed(&name) == squeezed(own))
}

/// V8's built-in functions have one name in Node's symbol table and another in the jitdump.
fn is_builtin(own: &str, other: &str) -> bool {
    let Some(own) = own.strip_prefix("Builtins_") else { return false };
    match (other.strip_prefix("Builtin:"), other.strip_prefix("BytecodeHandler:")) {
        (Some(name), _) => own == name,
        // One handler serves all short forms of a bytecode: Star0, Star1, …
        (_, Some(name)) if own == "ShortStarHandler" => {
            name.strip_prefix("Star").is_some_and(|number| number.parse::<u8>().is_ok())
        }
        (_, Some(name)) => own.strip_suffix("Handler") == Some(&name.replace('.', "")),
        _ => false,
    }
}

/// How the names of inlined functions differ, if at all: `None` when they are others.
fn names<'a>(pairs: impl Iterator<Item = (&'a Frame, &'a (String, String))>) -> Option<Option<Difference>> {
    let mut found = None;
    for (own, (name, _)) in pairs {
        found = found.max(name_of(own, name)?);
    }
    Some(found)
}

/// The same of one function.
fn name_of(frame: &Frame, name: &str) -> Option<Option<Difference>> {
    let own = frame.function.as_deref().unwrap_or("??");
    let arguments = without_arguments(own);
    if is_name(frame, name) {
        Some(None)
    } else if arguments.is_some() && arguments == without_arguments(name) {
        Some(Some(Difference::Arguments))
    } else if own.starts_with("_Z") {
        let demangled = asked(&mut Command::new("c++filt"), std::iter::once(own.to_owned())).ok()?;
        (squeezed(&demangled) == squeezed(name)).then_some(Some(Difference::Undemangled))
    } else {
        None
    }
}

/// The same of the outermost function, which may be named shortly: a difference, or none.
fn outermost(frame: &Frame, name: &str) -> Option<Difference> {
    name_of(frame, name).unwrap_or(Some(Difference::Outermost))
}

/// Whether a short name is the end of the whole one.
fn is_short_for(frame: &Frame, name: &str) -> bool {
    let bare = |name: &str| without_arguments(name).unwrap_or_else(|| squeezed(name));
    name_of(frame, name).is_some() || bare(frame.function.as_deref().unwrap_or("??")).ends_with(&bare(name))
}

/// binutils takes the name of the innermost function from the symbol table when that function has no linkage name.
fn binutils_names_the_function_around(frames: &[Frame], theirs: &[(String, String)]) -> bool {
    let around = frames.last().and_then(|frame| frame.function.as_deref());
    let inner = frames.len() - 1;
    let rest = frames.iter().zip(theirs).enumerate().skip(1).all(|(number, (own, (name, _)))| {
        if number < inner { is_name(own, name) } else { is_short_for(own, name) }
    });
    rest && around.is_some_and(|around| squeezed(around) == squeezed(&theirs[0].0))
}

fn is_name(frame: &Frame, name: &str) -> bool {
    squeezed(frame.function.as_deref().unwrap_or("??")) == squeezed(name)
}

/// A name without the mark of a special copy: `.constprop.0`, `.isra.0`, `.part.0`, `.cold`, and ` [clone …]` of demangled names.
fn without_clone(name: &str) -> &str {
    let name = name.split(" [clone").next().unwrap_or(name);
    [".constprop", ".isra", ".part", ".cold"]
        .iter()
        .fold(name, |name, mark| name.split(mark).next().unwrap_or(name))
}

/// A name of Rust without what tells versions of a crate and instances of a function apart: `::h0123456789abcdef` at its end,
/// `[0123456789abcdef]` behind a crate.
fn without_hash(name: &str) -> String {
    let is_hash = |text: &str| {
        text.len() >= 14 && text.len() <= 16 && text.chars().all(|letter| letter.is_ascii_hexdigit())
    };
    let name = name.rsplit_once("::h").filter(|(_, hash)| is_hash(hash)).map_or(name, |(name, _)| name);
    let mut bare = String::new();
    for (number, part) in name.split('[').enumerate() {
        match part.split_once(']') {
            Some((hash, rest)) if number > 0 && is_hash(hash) => bare.push_str(rest),
            _ if number > 0 => {
                bare.push('[');
                bare.push_str(part);
            }
            _ => bare.push_str(part),
        }
    }
    bare
}

/// The qualified name alone: without what stands in brackets, and without the type before it.
fn without_arguments(name: &str) -> Option<String> {
    if !name.contains('<') || name.contains("operator") {
        return None;
    }
    let mut depth = 0_u32;
    let mut bare = String::new();
    for letter in without_clone(name).replace("(anonymous namespace)", "{anonymous}").chars() {
        match letter {
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 => bare.push(letter),
            _ => {}
        }
    }
    bare.trim_end_matches(" const").rsplit(' ').next().map(str::to_owned)
}

/// Demanglers disagree on spaces.
fn squeezed(name: &str) -> String {
    let name = name.split(" [clone").next().unwrap_or(name);
    // One demangler writes the standard's abbreviation, the other what it stands for.
    let name = name.replace("std::ostream", "std::basic_ostream<char, std::char_traits<char> >");
    name.chars().filter(|letter| !letter.is_whitespace()).collect()
}
