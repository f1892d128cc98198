//! The configuration file: `$XDG_CONFIG_HOME/hpmtop/config.toml`, else `~/.config/hpmtop/config.toml`.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use libhpm::analysis::explore::Definitions;
use serde::{Deserialize, Serialize};

use crate::model::ColumnSpec;
use crate::theme::ThemeName;

/// Everything that can be configured. `docs/hpmtop.md` describes each key.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Colours; `none` also by the variable NO_COLOR.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) theme: Option<ThemeName>,
    /// Length of the interval that numbers are of, in ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) interval_ms: Option<u64>,
    /// Title of the column that threads and processes are sorted by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sort: Option<String>,
    /// Smallest first.
    pub(crate) ascending: bool,
    /// Rows are `processes`, `threads`, a `tree` or `cgroups`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) rows: Option<String>,
    /// Leave out what did not run.
    pub(crate) hide_idle: bool,
    /// Leave out threads of the kernel.
    pub(crate) hide_kernel: bool,
    /// Event that is watched for phases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) phase_event: Option<String>,
    /// Event that it is related to, instead of to time on a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) phase_per: Option<String>,
    /// Length of an interval of phases, in ms on a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) phase_interval_ms: Option<f64>,
    /// Named metrics, as `name = "expression"`.
    pub(crate) metrics: BTreeMap<String, String>,
    /// Keys of actions, as `action = ["key", …]`.
    pub(crate) keys: BTreeMap<String, Vec<String>>,
    /// The columns.
    #[serde(rename = "column", skip_serializing_if = "Vec::is_empty")]
    pub(crate) columns: Vec<ColumnSpec>,
}

impl Config {
    /// Where it is, unless another place was named.
    pub(crate) fn path() -> Option<PathBuf> {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")))?;
        Some(folder.join("hpmtop/config.toml"))
    }

    /// The one that holds: that was named, else the one at its usual place, if it is there and can be read. Of one that cannot be
    /// read there is a note to be told.
    ///
    /// # Errors
    /// A named one that cannot be read, or what is no configuration.
    pub(crate) fn find(named: Option<&Path>) -> Result<(Self, Option<String>)> {
        match (named, Self::path()) {
            (Some(path), _) => Ok((Self::read(path)?, None)),
            (None, Some(path)) => Self::usual(&path),
            (None, None) => Ok((Self::default(), None)),
        }
    }

    /// The one at its usual place; a home that is somebody else's is no reason to show nothing.
    fn usual(path: &Path) -> Result<(Self, Option<String>)> {
        match fs::read_to_string(path) {
            Ok(text) => Ok((Self::parse(path, &text)?, None)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                Ok((Self::default(), None))
            }
            Err(error) => {
                let note = format!(
                    "cannot read {}: {error}; everything is as usual (name another configuration with --config)",
                    path.display()
                );
                Ok((Self::default(), Some(note)))
            }
        }
    }

    /// Reads one.
    ///
    /// # Errors
    /// It is not there, cannot be read, or has what is no configuration.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                bail!("there is no configuration {}", path.display())
            }
            text => Self::parse(path, &text.with_context(|| format!("cannot read {}", path.display()))?),
        }
    }

    fn parse(path: &Path, text: &str) -> Result<Self> {
        let config: Self = toml::from_str(text)
            .map_err(|error| anyhow!("{}: {}", path.display(), error.to_string().trim_end()))?;
        config.definitions().map_err(|error| anyhow!("{}: {error}", path.display()))?;
        Ok(config)
    }

    /// Replaces it.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let write = || -> Result<()> {
            if let Some(folder) = path.parent() {
                fs::create_dir_all(folder)?;
            }
            let new = path.with_extension("toml.new");
            fs::write(&new, toml::to_string_pretty(self)?)?;
            Ok(fs::rename(&new, path)?)
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// The named metrics.
    ///
    /// # Errors
    /// An expression that is none.
    pub(crate) fn definitions(&self) -> Result<Definitions> {
        let mut definitions = Definitions::default();
        for (name, text) in &self.metrics {
            definitions.define(name, text).map_err(|error| anyhow!("metric {name}: {error}"))?;
        }
        Ok(definitions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY_KEY: &str = r#"
        theme = "colour-blind"
        interval_ms = 500
        sort = "ipc"
        ascending = true
        rows = "tree"
        hide_idle = true
        hide_kernel = true
        phase_event = "page-faults"
        phase_per = "instructions"
        phase_interval_ms = 2.5
        [metrics]
        stall = "1 - ipc / 4"
        [keys]
        freeze = ["F5", "z"]
        [[column]]
        title = "stall"
        expression = "stall * 100"
        format = "percent"
    "#;

    #[test]
    fn it_is_read_as_it_was_written() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/config.toml");
        let config: Config = toml::from_str(EVERY_KEY).unwrap();
        config.write(&path).unwrap();
        assert_eq!(Config::read(&path).unwrap(), config);
        assert!(config.columns[0].shown && config.theme == Some(ThemeName::ColourBlind));
    }

    #[test]
    fn the_usual_one_need_not_be_there_nor_be_readable() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("config.toml");
        assert_eq!(Config::usual(&path).unwrap(), (Config::default(), None), "without a file");
        let problem = Config::read(&path).unwrap_err().to_string();
        assert_eq!(problem, format!("there is no configuration {}", path.display()), "one that was named");
        fs::write(&path, "hide_idle = true").unwrap();
        assert!(Config::usual(&path).unwrap().0.hide_idle);
        let below = path.join("config.toml");
        assert_eq!(Config::usual(&below).unwrap(), (Config::default(), None), "as in the home /dev/null");
        // Root may read everything, but no folder as a file.
        let (config, note) = Config::usual(temp.path()).unwrap();
        let note = note.unwrap();
        assert!(
            config == Config::default() && note.contains("cannot read") && note.contains("--config"),
            "{note}"
        );
        assert!(format!("{:#}", Config::read(temp.path()).unwrap_err()).contains("cannot read"));
        fs::write(&path, "colour = 1").unwrap();
        assert!(Config::usual(&path).is_err(), "mistakes are not passed over");
    }

    #[test]
    fn mistakes_are_told_with_their_place() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("config.toml");
        let problem = |text: &str| {
            fs::write(&path, text).unwrap();
            format!("{:#}", Config::read(&path).unwrap_err())
        };
        assert!(problem("colour = 1").contains("colour"));
        assert!(problem("theme = \"pink\"").contains("pink"));
        assert!(problem("[metrics]\na = \"1 +\"").contains("metric a"));
    }

    #[test]
    fn every_key_is_described() {
        let docs = include_str!("../../docs/hpmtop.md");
        let config: toml::Table = toml::from_str(EVERY_KEY).unwrap();
        for key in config.keys() {
            assert!(docs.contains(&format!("`{key}`")), "{key}");
        }
    }
}
