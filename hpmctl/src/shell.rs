//! What a shell and `man` want to know of hpmctl: completions and manual pages, made from its own definition.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use crate::cli::Cli;
use crate::output::print;

/// Print the completions of a shell.
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Write the manual pages, one for each command.
#[derive(Args, Debug)]
pub(crate) struct ManArgs {
    /// Folder to write them to; it is made if it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Runs `completions`.
///
/// # Errors
/// They cannot be written.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "hpmctl", &mut text);
    print(String::from_utf8(text).context("the completions are no text")?.trim_end())
}

/// Runs `man`.
///
/// # Errors
/// They cannot be written.
pub(crate) fn man(args: &ManArgs) -> Result<()> {
    let write = |folder: &Path| {
        fs::create_dir_all(folder)?;
        clap_mangen::generate_to(Cli::command(), folder)
    };
    write(&args.folder).with_context(|| format!("cannot write to {}", args.folder.display()))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_shell_completions() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("man1");
        man(&ManArgs { folder: folder.clone() }).unwrap();
        for command in Cli::command().get_subcommands() {
            let page = fs::read_to_string(folder.join(format!("hpmctl-{}.1", command.get_name()))).unwrap();
            assert!(page.contains(".SH SYNOPSIS"), "{page}");
        }
        assert!(fs::read_to_string(folder.join("hpmctl.1")).unwrap().contains("hpmctl\\-report(1)"));
        for shell in Shell::value_variants() {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "hpmctl", &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("wall-clock") && text.contains("annotate"), "{shell}");
        }
    }
}
