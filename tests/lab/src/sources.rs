//! Which Debian mirror this machine uses, found out from apt's own configuration.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What `apt-get indextargets` is asked to print per package index.
const FORMAT: &str = "$(REPO_URI)|$(RELEASE)|$(SOURCESENTRY)";

/// One configured Debian archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Archive {
    /// Base address, for instance of a mirror near by.
    pub(crate) uri: String,
    /// Suite, for instance `bookworm-security`.
    pub(crate) suite: String,
    /// Value of `Signed-By`: a key file's path, or an embedded key with its continuation lines.
    pub(crate) signed_by: Option<String>,
}

/// Reads the archives this machine's apt is configured with.
///
/// apt itself reads both formats of its source lists and prints what it understood; only `Signed-By` is not
/// among what it prints, so that is looked up in the entry apt names.
///
/// # Errors
/// When apt-get cannot be run or a source list cannot be read.
pub(crate) fn configured() -> Result<Vec<Archive>> {
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", FORMAT, "Created-By: Packages"])
        .output()
        .context("running apt-get indextargets: the lab needs Debian's apt")?;
    if !output.status.success() {
        bail!("apt-get indextargets failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let text = String::from_utf8(output.stdout).context("apt-get indextargets printed no UTF-8")?;
    let lines: BTreeSet<&str> = text.lines().collect();
    lines.into_iter().map(archive).collect()
}

fn archive(line: &str) -> Result<Archive> {
    let mut fields = line.splitn(3, '|');
    let (Some(uri), Some(suite), Some(entry)) = (fields.next(), fields.next(), fields.next()) else {
        bail!("apt-get indextargets printed a line the lab does not understand: {line}");
    };
    let (file, number) = entry.rsplit_once(':').with_context(|| format!("no entry number in {entry}"))?;
    let number: usize = number.parse().with_context(|| format!("no entry number in {entry}"))?;
    let text = std::fs::read_to_string(file).with_context(|| format!("reading apt's source list {file}"))?;
    let signed_by = if Path::new(file).extension().is_some_and(|e| e == "sources") {
        signed_by_of_stanza(&text, number)
    } else {
        signed_by_of_line(&text, number)
    };
    Ok(Archive { uri: uri.to_owned(), suite: suite.to_owned(), signed_by })
}

/// The field of the `number`-th stanza (from 1) of a deb822 source list, with its continuation lines.
fn signed_by_of_stanza(text: &str, number: usize) -> Option<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let stanza =
        lines.split(|line| line.trim().is_empty()).filter(|s| !s.is_empty()).nth(number.checked_sub(1)?)?;
    let is_field = |line: &&str| line.to_ascii_lowercase().starts_with("signed-by:");
    let first = stanza.iter().position(is_field)?;
    let more = stanza[first + 1..].iter().take_while(|line| line.starts_with([' ', '\t']));
    let value = stanza[first].split_once(':')?.1.trim().to_owned();
    Some(more.fold(value, |value, line| value + "\n" + line))
}

/// The option in brackets of line `number` (from 1) of a one-line source list.
fn signed_by_of_line(text: &str, number: usize) -> Option<String> {
    let line = text.lines().nth(number.checked_sub(1)?)?;
    let options = line.split_once('[')?.1.split_once(']')?.0;
    options.split_whitespace().find_map(|option| option.strip_prefix("signed-by=")).map(str::to_owned)
}

/// The deb822 source list with `release`, its backports and its security archive, on the mirrors of this
/// machine; `codename` is the machine's own release.
///
/// # Errors
/// When no configured archive serves `codename`: then the machine is no Debian, or has no mirror.
pub(crate) fn list_for(archives: &[Archive], codename: &str, release: &str) -> Result<String> {
    let find = |suite: &str| archives.iter().find(|archive| archive.suite == suite);
    let Some(main) = find(codename) else {
        bail!(
            "apt on this machine has no Debian archive for its release ({codename}), so the lab cannot tell \
             where to fetch Debian packages from. Add a Debian mirror to /etc/apt/sources.list"
        );
    };
    let mut text = stanza(main, &format!("{release} {release}-backports"));
    if let Some(security) = find(&format!("{codename}-security")) {
        text += "\n";
        text += &stanza(security, &format!("{release}-security"));
    }
    Ok(text)
}

fn stanza(archive: &Archive, suites: &str) -> String {
    let mut text = format!("Types: deb\nURIs: {}\nSuites: {suites}\nComponents: main\n", archive.uri);
    if let Some(key) = &archive.signed_by {
        text += &format!("Signed-By: {key}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signed_by_in_both_formats() {
        let deb822 = "# mirror\nTypes: deb\nURIs: http://a\nSigned-By: /k/a.gpg\n\n\nTypes: deb\nsigned-by:\n -----BEGIN\n .\n x\nSuites: s\n";
        assert_eq!(signed_by_of_stanza(deb822, 1).as_deref(), Some("/k/a.gpg"));
        assert_eq!(signed_by_of_stanza(deb822, 2).as_deref(), Some("\n -----BEGIN\n .\n x"));
        assert_eq!(signed_by_of_stanza(deb822, 3), None);
        let lines = "# c\ndeb [arch=amd64 signed-by=/k/b.gpg] http://b s main\ndeb http://b s main\n";
        assert_eq!(signed_by_of_line(lines, 2).as_deref(), Some("/k/b.gpg"));
        assert_eq!(signed_by_of_line(lines, 3), None);
    }

    #[test]
    fn only_the_suite_changes() {
        let archive = |uri: &str, suite: &str, key: Option<&str>| Archive {
            uri: uri.into(),
            suite: suite.into(),
            signed_by: key.map(str::to_owned),
        };
        let archives = [
            archive("http://other/", "stable", None),
            archive("http://near/debian/", "bookworm", Some("/k.gpg")),
            archive("http://near/security/", "bookworm-security", None),
        ];
        let text = list_for(&archives, "bookworm", "trixie").expect("bookworm is configured");
        assert_eq!(
            text,
            "Types: deb\nURIs: http://near/debian/\nSuites: trixie trixie-backports\nComponents: main\n\
             Signed-By: /k.gpg\n\nTypes: deb\nURIs: http://near/security/\nSuites: trixie-security\n\
             Components: main\n"
        );
        let error = list_for(&archives, "noble", "trixie").expect_err("no such archive");
        assert!(error.to_string().contains("noble"));
    }
}
