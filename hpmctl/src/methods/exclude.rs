//! How to compile a program so that only some of its functions call the shim.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::Args;
use libhpm::symbol::{FileFinder, functions_of};

use super::folder::{FunctionRow, read_profile, read_selection};
use crate::output::{print, warn};

/// Print the option of gcc that keeps functions from being instrumented.
///
/// Of a program: those that are small and cannot loop. Of a folder with a selection: all that are not selected.
#[derive(Args, Debug)]
pub(super) struct ExcludeArgs {
    /// Of a program, functions of at most so many bytes of machine code that cannot loop
    #[arg(long, default_value_t = 100, value_name = "BYTES")]
    least_bytes: u64,
    /// A program, or a folder NAME.methods
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// Runs the command.
///
/// # Errors
/// The file is neither, or cannot be read.
pub(super) fn run(args: &ExcludeArgs) -> Result<()> {
    let (excluded, kept) = if args.file.is_dir() { of_folder(&args.file)? } else { of_program(args)? };
    let (option, left) = option(&excluded, &kept);
    if left > 0 {
        warn(&[format!(
            "{left} functions stay instrumented: gcc excludes every function whose name contains a given one, so that naming them \
             would exclude others as well"
        )]);
    }
    print(&option)
}

/// Names of functions to be excluded, and of those to be kept.
type Names = (Vec<String>, Vec<String>);

fn of_program(args: &ExcludeArgs) -> Result<Names> {
    let functions = functions_of(&args.file, &FileFinder::default())
        .with_context(|| format!("{} is neither a program nor a folder of methods", args.file.display()))?;
    let (kept, excluded): (Vec<_>, Vec<_>) =
        functions.into_iter().partition(|function| function.is_worth_it(args.least_bytes));
    let names = |all: Vec<libhpm::symbol::FunctionCode>| all.iter().map(|one| one.name.to_string()).collect();
    Ok((names(excluded), names(kept)))
}

fn of_folder(folder: &Path) -> Result<Names> {
    let profile = read_profile(folder)?;
    let selection = read_selection(folder)?.with_context(|| {
        format!("nothing is selected: run `hpmctl methods select {} --overhead 1%`", folder.display())
    })?;
    let rows = (0..).zip(&profile.functions);
    let (phases, others): (Vec<_>, Vec<_>) =
        rows.partition(|(number, _)| selection.functions.contains(number));
    let named = |rows: Vec<(u32, &FunctionRow)>| -> Vec<(String, u64)> {
        rows.iter().map(|(_, row)| (row.name.clone(), row.calls)).collect()
    };
    let (kept, mut excluded, given_up) = without_costly(named(phases), named(others));
    if !given_up.is_empty() {
        warn(&[format!(
            "phases given up: {}. gcc excludes every function whose name contains a given one, and one with more calls has a name \
             that theirs contains",
            given_up.join(", ")
        )]);
    }
    // What the filter left out before the run calls the shim all the same.
    for module in &profile.modules {
        for function in functions_of(Path::new(&module.path), &FileFinder::default()).unwrap_or_default() {
            let name = function.name.to_string();
            if !kept.contains(&name) && !excluded.contains(&name) {
                excluded.push(name);
            }
        }
    }
    Ok((excluded, kept))
}

/// The phases that are kept, what is excluded, and the phases that are given up: with each, a function would stay instrumented that has
/// more calls. Functions come with their calls.
fn without_costly(
    phases: Vec<(String, u64)>,
    others: Vec<(String, u64)>,
) -> (Vec<String>, Vec<String>, Vec<String>) {
    let costly = |(phase, calls): &(String, u64)| {
        let contained = |name: &str| !name.is_empty() && visible(phase).contains(visible(name));
        others.iter().any(|(other, more)| more > calls && contained(other))
    };
    let (given_up, kept): (Vec<_>, Vec<_>) = phases.into_iter().partition(costly);
    let names = |rows: Vec<(String, u64)>| rows.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let (kept, given_up) = (names(kept), names(given_up));
    let excluded = [names(others), given_up.clone()].concat();
    (kept, excluded, given_up)
}

/// gcc's option, and how many functions it cannot name.
pub(super) fn option(excluded: &[String], kept: &[String]) -> (String, usize) {
    let kept: Vec<&str> = kept.iter().map(|name| visible(name)).collect();
    let mut names: Vec<&str> = excluded.iter().map(|name| visible(name)).collect();
    names.sort_unstable();
    names.dedup();
    let before = names.len();
    // The name in the source may have more than this around it, but never less.
    names.retain(|name| {
        !name.is_empty() && !name.contains(['<', '>', ' ']) && !kept.iter().any(|kept| kept.contains(name))
    });
    let left = before - names.len();
    // A name that contains another one is excluded with it.
    let all = names.clone();
    names.retain(|name| !all.iter().any(|other| other != name && name.contains(other)));
    let names: Vec<String> = names.iter().map(|name| name.replace(',', "\\,")).collect();
    (format!("-finstrument-functions-exclude-function-list={}", names.join(",")), left)
}

/// The part of a demangled name that gcc's user-visible name has too: without arguments, and without the function's own template
/// arguments.
fn visible(name: &str) -> &str {
    let name = name.split_once('(').map_or(name, |(name, _)| name);
    match name.strip_suffix('>') {
        Some(_) => name.find('<').map_or(name, |place| &name[..place]),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// lua's `match` calls itself all the time, and cannot be excluded without `gmatch_aux`.
    #[test]
    fn a_phase_is_given_up_for_a_function_with_more_calls() {
        let rows = |rows: &[(&str, u64)]| -> Vec<(String, u64)> {
            rows.iter().map(|(name, calls)| ((*name).to_owned(), *calls)).collect()
        };
        let (kept, excluded, given_up) = without_costly(
            rows(&[("gmatch_aux", 1290), ("tablerehash", 10), ("main", 1)]),
            rows(&[("match", 206_805), ("rehash", 9), ("gmatch", 6)]),
        );
        assert_eq!(
            (kept, given_up),
            (vec!["tablerehash".into(), "main".into()], vec!["gmatch_aux".to_owned()])
        );
        let (option, left) = option(&excluded, &["tablerehash".into(), "main".into()]);
        assert_eq!((option.as_str(), left), ("-finstrument-functions-exclude-function-list=match", 1));
    }
}
