//! Definitions that are kept in a trace's folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result};
use libhpm::analysis::explore::Definitions;

/// Name of the file: a JSON object from names to expressions.
const FILE: &str = "explore.json";

/// What was kept; nothing when nothing was.
///
/// # Errors
/// When the file cannot be read or is no such object.
pub(super) fn read(trace: &Path) -> Result<Definitions> {
    let path = trace.join(FILE);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        // A file of `perf record` is no folder, and keeps nothing.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Definitions::default());
        }
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let saved: BTreeMap<String, String> = serde_json::from_str(&text)
        .with_context(|| format!("{} is damaged; remove it to go on without it", path.display()))?;
    let mut definitions = Definitions::default();
    for (name, expression) in &saved {
        definitions
            .define(name, expression)
            .with_context(|| format!("{} cannot be used; mend or remove it", path.display()))?;
    }
    Ok(definitions)
}

/// Keeps all definitions.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn write(trace: &Path, definitions: &Definitions) -> Result<()> {
    let path = trace.join(FILE);
    let all: BTreeMap<&str, &str> = definitions.iter().collect();
    let text = serde_json::to_string_pretty(&all)? + "\n";
    // In one step: where there is no room, the old ones stay.
    let new = trace.join("explore.json.new");
    let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &path));
    written.with_context(|| {
        let _ = fs::remove_file(&new);
        format!("cannot write {}", path.display())
    })
}
