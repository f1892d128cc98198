//! The programs that send random requests (guest/mutation.rs), as two users at the same time.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command};

use anyhow::{Context, Result};
use libhpm::machine;
use libhpm::sys::device::Driver;

use crate::guest::mutation::{FLEETING, Outcomes, PMU, REQUESTS, SEED, areas};
use crate::guest::scopes::NOBODY;
use crate::guest::{GuestReport, REPORT};

/// Who sends, with which seed.
const USERS: [(&str, u32, u64); 2] = [("nobody", NOBODY, 1), ("root", 0, 2)];

/// Programs that send, one for each user.
pub(super) struct Senders {
    children: Vec<Child>,
    requests: u64,
}

impl Senders {
    /// Starts them; each sends so many requests. `fleeting`: the module will come and go meanwhile.
    ///
    /// # Errors
    /// One could not be started.
    pub(super) fn start(requests: u64, fleeting: bool) -> Result<Self> {
        let pmu = machine::pmu_name(&Driver::open_checked()?.1);
        let child = |&(name, user, seed): &(&str, u32, u64)| -> Result<Child> {
            let folder = folder(name);
            fs::create_dir_all(&folder)?;
            chown(&folder, Some(user), Some(user))?;
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["guest", "torture_sender"]).uid(user).gid(user).current_dir(folder);
            command.env(PMU, &pmu).env(SEED, seed.to_string()).env(REQUESTS, requests.to_string());
            if fleeting {
                command.env(FLEETING, "1");
            }
            Ok(command.spawn()?)
        };
        Ok(Self { children: USERS.iter().map(child).collect::<Result<_>>()?, requests })
    }

    /// Whether one of them still sends.
    ///
    /// # Errors
    /// They cannot be asked.
    pub(super) fn send(&mut self) -> Result<bool> {
        let mut any = false;
        for child in &mut self.children {
            any |= child.try_wait()?.is_none();
        }
        Ok(any)
    }

    /// What came of each user's requests; `depth` says how often at least they must have come through to everything there is.
    pub(super) fn judge(mut self, report: &mut GuestReport, how: &str, depth: Option<u64>) {
        for ((name, _, seed), child) in USERS.iter().zip(&mut self.children) {
            report.check(
                &format!("{} random requests of {name} with seed {seed} {how}", self.requests),
                || {
                    let status = child.wait()?;
                    let text = fs::read(folder(name).join(REPORT))
                        .with_context(|| format!("the sender ended with {status} and left no report"))?;
                    let outcomes = Outcomes::of(&serde_json::from_slice(&text)?)?;
                    if let Some(least) = depth {
                        outcomes.check_depth(&areas(), least).with_context(|| outcomes.table())?;
                    }
                    Ok(outcomes.table())
                },
            );
        }
    }
}

fn folder(name: &str) -> PathBuf {
    PathBuf::from(format!("/tmp/torture-{name}"))
}
