//! Sections of documents, of docs/measurements.md above all, that are written by the commands they name.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

const DOCUMENT: &str = "docs/measurements.md";

/// Puts the section, which begins with its heading, in the place of its predecessor, or at the end.
///
/// # Errors
/// The file cannot be read or written.
pub(crate) fn replace(root: &Path, heading: &str, section: &str) -> Result<()> {
    replace_in(&root.join(DOCUMENT), heading, section)
}

/// As [`replace`], in any document.
///
/// # Errors
/// As [`replace`].
pub(crate) fn replace_in(document: &Path, heading: &str, section: &str) -> Result<()> {
    let old = fs::read_to_string(document).with_context(|| format!("reading {}", document.display()))?;
    let start = old.find(heading);
    let (before, rest) = old.split_at(start.unwrap_or(old.len()));
    let next = rest.get(1..).and_then(|rest| rest.find("\n## ")).map(|next| &rest[1 + next..]);
    let gap = if start.is_none() && !before.ends_with("\n\n") { "\n" } else { "" };
    let new = format!("{before}{gap}{section}{}", next.unwrap_or_default());
    fs::write(document, new).with_context(|| format!("writing {}", document.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_replaces_its_predecessor_only() {
        let file = std::env::temp_dir().join(format!("measurements-{}.md", std::process::id()));
        let after = |old: &str| {
            fs::write(&file, old).unwrap();
            replace_in(&file, "## B", "## B\n\nnew\n").unwrap();
            fs::read_to_string(&file).unwrap()
        };
        assert_eq!(
            after("# M\n\n## A\n\na\n\n## B\n\nold\n\n## Z\n\nz\n"),
            "# M\n\n## A\n\na\n\n## B\n\nnew\n\n## Z\n\nz\n"
        );
        assert_eq!(after("# M\n\n## A\n\na\n"), "# M\n\n## A\n\na\n\n## B\n\nnew\n");
        fs::remove_file(&file).unwrap();
    }
}
