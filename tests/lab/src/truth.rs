//! Showing what the PMU model counted, which is the truth that tests compare with.

use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

/// The truth of a run in lines of `path  value`; a nested name is written `a.b`.
///
/// # Errors
/// When the file is no JSON.
pub(crate) fn readable(file: &Path) -> Result<String> {
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
    let value: Value =
        serde_json::from_str(&text).with_context(|| format!("{} is no JSON", file.display()))?;
    let mut rows = Vec::new();
    collect(&value, String::new(), &mut rows);
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    Ok(rows.iter().map(|(name, value)| format!("{name:width$}  {value:>20}\n")).collect())
}

fn collect(value: &Value, name: String, rows: &mut Vec<(String, String)>) {
    let under = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| collect(value, under(key), rows)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(at, value)| collect(value, under(&at.to_string()), rows));
        }
        Value::String(text) => rows.push((name, text.clone())),
        other => rows.push((name, other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_values_get_their_path() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), r#"{"cpu":[{"instructions":{"user":12}}],"profile":"x"}"#)
            .expect("written");
        let text = readable(file.path()).expect("JSON");
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows, [["cpu.0.instructions.user", "12"], ["profile", "x"]]);
    }
}
