//! What the loaded module is doing.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result};
use libhpm::machine::{DriverFacts, Facts, Holder, driver_users};
use serde::Serialize;

use super::{SYSFS, is_loaded, names};
use crate::output::print;

/// What is shown.
#[derive(Serialize)]
struct Status {
    loaded: bool,
    /// The digest of the module's sources (`modinfo`, srcversion), which tells builds apart.
    source_version: Option<String>,
    /// Open descriptors of the device, each of which can hold a session; of every user's processes.
    sessions: Option<u64>,
    /// The processes among them that this user may see.
    holders: Vec<Holder>,
    parameters: BTreeMap<String, String>,
    driver: DriverFacts,
}

impl Status {
    /// Reads the state of the module whose folder in sysfs is `sysfs`.
    fn read(sysfs: &Path, driver: DriverFacts) -> Self {
        let text = |path: &Path| fs::read_to_string(path).ok().map(|text| text.trim().to_owned());
        let parameters = fs::read_dir(sysfs.join("parameters")).into_iter().flatten().flatten();
        Self {
            loaded: is_loaded(),
            source_version: text(&sysfs.join("srcversion")),
            sessions: text(&sysfs.join("refcnt")).and_then(|count| count.parse().ok()),
            holders: driver_users(),
            parameters: parameters
                .filter_map(|entry| Some((entry.file_name().into_string().ok()?, text(&entry.path())?)))
                .collect(),
            driver,
        }
    }

    fn lines(&self) -> String {
        if !self.loaded {
            return "hpm is not loaded; `hpmctl module load` as root loads it".to_owned();
        }
        let mut lines = vec!["hpm is loaded".to_owned()];
        if let Some(version) = &self.source_version {
            lines.push(format!("source version: {version}"));
        }
        lines.push(match (&self.driver.problem, self.driver.pmu_name.as_str()) {
            (Some(problem), _) => format!("PMU: not known, because {problem}"),
            (None, "") => "PMU: none that hpm can program".to_owned(),
            (None, name) if self.driver.usable => format!("PMU: {name}"),
            (None, name) => format!("PMU: {name}, which hpm cannot program here"),
        });
        let sessions = self.sessions.map_or_else(|| "unknown".to_owned(), |count| count.to_string());
        lines.push(match self.holders.as_slice() {
            [] => format!("open sessions: {sessions}"),
            found => format!("open sessions: {sessions}, of {}", names(found)),
        });
        lines.extend(self.parameters.iter().map(|(name, value)| format!("parameter {name}: {value}")));
        lines.join("\n")
    }
}

pub(super) fn run(json: bool) -> Result<ExitCode> {
    // Counted before the device is opened to ask for the PMU.
    let mut status = Status::read(Path::new(SYSFS), DriverFacts::default());
    status.driver = Facts::gather().driver;
    let text = if json {
        serde_json::to_string_pretty(&status).context("cannot write JSON")?
    } else {
        status.lines()
    };
    print(&text)?;
    Ok(if status.loaded { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loaded_module_shows_its_users_and_parameters() {
        let sysfs = tempfile::tempdir().unwrap();
        fs::create_dir(sysfs.path().join("parameters")).unwrap();
        for (file, text) in [("srcversion", "533BB7E5"), ("refcnt", "2"), ("parameters/max_sessions", "64")] {
            fs::write(sysfs.path().join(file), format!("{text}\n")).unwrap();
        }
        let driver = DriverFacts { pmu_name: "skylake".into(), usable: true, ..DriverFacts::default() };
        let mut status = Status::read(sysfs.path(), driver);
        status.holders = vec![Holder { pid: 7, name: "hpmctl".into(), descriptors: 2 }];
        status.loaded = true;
        insta::assert_snapshot!(status.lines());
        status.loaded = false;
        insta::assert_snapshot!(status.lines());
    }
}
